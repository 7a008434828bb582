#!/usr/bin/env python3
# test_island_files.py - the files for Slurm and Kubernetes are well formed, and their scripts run.
"""Usage: test_island_files.py SOURCE BIN

Slurm and a cluster are not there. `srun` is a stand-in that runs its command once for each host,
and `torchrun` one that fails twice and then reports its words. The daemon is the real one.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE, BIN = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
EXAMPLES = SOURCE / "deploy/examples"
PATIENCE_S = 60
SRUN = """#!/bin/bash
# The command of srun, once for each of two hosts; its end is that of the worst.
shift
export SLURM_NNODES=2
SLURM_NODEID=0 "$@" & a=$!
SLURM_NODEID=1 "$@" & b=$!
code=0
wait $a || code=1
wait $b || code=1
exit $code
"""
# A rank dies in the first two starts. In the third they wait until the test is content.
TORCHRUN = """#!/bin/bash
echo "$@" >>"$RECORD/ranks"
[ "$(grep -c 'node-rank 0' "$RECORD/ranks")" -ge 3 ] || exit 1
until [ -e "$RECORD/content" ]; do /bin/sleep 0.05; done
"""


def tool(folder, name, text):
    """Writes a program."""
    path = folder / name
    path.write_text(text, encoding="ascii")
    path.chmod(0o755)


def wait_for(holds, sentence):
    """Waits until a condition holds."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, sentence
        time.sleep(0.05)


def starts(folder, rank):
    """Words of each start of torchrun on a host."""
    path = folder / "ranks"
    text = path.read_text(encoding="ascii") if path.exists() else ""
    return [line for line in text.splitlines() if f"--node-rank {rank} " in line]


def run_of(folder):
    """A run whose data are the trainer's own, and its first node."""
    for words in (["run", "new", "island", "--tensors", "w:64x64", "--batch", "8", "--context",
                   "64", "--tokens", "10m", "--nodes", "2", "--out", "run.manifest"],
                  ["init", "--dir", "slurm", "--name", "s", "--run", "run.manifest", "--listen",
                   "127.0.0.1:0"]):
        subprocess.run([BIN / "thinwire", *words], cwd=folder, check=True, capture_output=True)


def slurm(folder, environment):
    """The batch script starts the daemon and torchrun, again after a death, and ends both."""
    config = folder / "slurm/node.conf"
    text = config.read_text(encoding="ascii")
    config.write_text(text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1), encoding="ascii")
    command = ["bash", EXAMPLES / "island.sbatch", config, "train.py", "--way", "ddp"]
    with open(folder / "slurm.log", "wb") as log, \
            subprocess.Popen(command, env={**environment, "RANKS_PER_HOST": "8"}, stdout=log,
                             stderr=log, cwd=folder) as process:
        try:
            wait_for(lambda: len(starts(folder, 0)) >= 3 and len(starts(folder, 1)) >= 3,
                     "torchrun was not started anew")
            for rank in (0, 1):
                words = starts(folder, rank)[-1]
                assert re.fullmatch(rf"--nnodes 2 --node-rank {rank} --nproc-per-node 8 "
                                    r"--master-addr \S+ --master-port 29500 train.py "
                                    r"--socket \S+/worker.sock --way ddp", words), words
            wait_for(lambda: subprocess.run([BIN / "thinwire", "--config", config, "status"],
                                            check=False, capture_output=True).returncode == 0,
                     "no daemon answers")
            (folder / "content").touch()
            assert process.wait(PATIENCE_S) == 0, (folder / "slurm.log").read_text()
        finally:
            (folder / "content").touch()
            process.terminate()
    assert subprocess.run([BIN / "thinwire", "--config", config, "status"], check=False,
                          capture_output=True).returncode != 0, "the daemon was left behind"


def start_script(documents):
    """The shell script of the manifest, and its settings."""
    data = next(d for d in documents if d["kind"] == "ConfigMap")["data"]
    assert all(isinstance(value, str) for value in data.values()), "a ConfigMap has strings alone"
    return data["start.sh"], {key: value for key, value in data.items() if key.isupper()}


def invite(folder, log):
    """Starts the node of the batch script again, which writes the ticket. Returns its process."""
    config = folder / "slurm/node.conf"
    process = subprocess.Popen([BIN / "thinwired", "--config", config], stdout=log, stderr=log)
    command = [BIN / "thinwire", "--config", config, "invite"]
    done = []

    def has_invited():
        done.append(subprocess.run(command, check=False, capture_output=True))
        return done[-1].returncode == 0

    wait_for(has_invited, "no ticket")
    (folder / "ticket").write_bytes(done[-1].stdout)
    return process


def pods(folder, environment, script, settings):
    """The first pod runs the daemon, which starts torchrun; the second torchrun alone."""
    for name in ("ranks", "content"):
        (folder / name).unlink(missing_ok=True)
    name = '--name "$POD"'
    assert name in script
    # On a free port: the usual one may be that of a node of this machine.
    (folder / "start.sh").write_text(script.replace(name, f"{name} --listen 127.0.0.1:0"),
                                     encoding="ascii")
    settings = {**settings, "FILES": str(folder), "TICKET": str(folder / "ticket"),
                "STATE": str(folder / "pod")}
    processes = []
    with open(folder / "pods.log", "wb") as log:
        processes.append(invite(folder, log))
        for number in (1, 0):
            processes.append(subprocess.Popen(
                ["sh", folder / "start.sh"], cwd=folder, stdout=log, stderr=log,
                env={**environment, **settings, "POD": f"island-{number}"}))
    try:
        wait_for(lambda: len(starts(folder, 0)) >= 3 and len(starts(folder, 1)) >= 1,
                 "the pods did not start torchrun")
        for rank in (0, 1):
            assert starts(folder, rank)[-1] == (
                f"--nnodes 2 --node-rank {rank} --nproc-per-node 8 --master-addr island-0.island "
                f"--master-port 29500 {folder}/train_island.py"), starts(folder, rank)[-1]
        assert subprocess.run([BIN / "thinwire", "--config", folder / "pod/node.conf", "config",
                               "check"], check=False, capture_output=True).returncode == 0
    except BaseException:
        print((folder / "pods.log").read_text(errors="replace")[-3000:])
        raise
    finally:
        (folder / "content").touch()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def check_kinds(documents):
    """Every field is one of Kubernetes', by its Python client if that is there."""
    try:
        from kubernetes import client
    except ImportError:
        print("no kubernetes module: the fields of the manifest are not checked")
        return

    api = client.ApiClient()
    kinds = {"Service": "V1Service", "ConfigMap": "V1ConfigMap", "StatefulSet": "V1StatefulSet"}
    for document in documents:
        known = api.sanitize_for_serialization(
            api.deserialize(json.dumps(document), kinds[document["kind"]], "application/json"))
        assert known == document, f"{document['kind']}: not all fields are known: {known}"


def check_manifest(documents):
    """Names that must agree."""
    named = {d["kind"]: d for d in documents}
    pod = named["StatefulSet"]["spec"]["template"]
    assert named["StatefulSet"]["spec"]["serviceName"] == named["Service"]["metadata"]["name"]
    assert named["StatefulSet"]["spec"]["replicas"] == int(named["ConfigMap"]["data"]["HOSTS"])
    assert named["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    volumes = {v["name"] for v in pod["spec"]["volumes"]} | {
        v["metadata"]["name"] for v in named["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    container = pod["spec"]["containers"][0]
    assert {v["name"] for v in container["volumeMounts"]} == volumes, volumes
    limit = container["resources"]["limits"]["nvidia.com/gpu"]
    assert limit == named["ConfigMap"]["data"]["RANKS_PER_HOST"]
    check_kinds(documents)


def lint(folder, script):
    """shellcheck, where it is installed."""
    (folder / "start.sh").write_text(script, encoding="ascii")
    if shutil.which("shellcheck") is None:
        print("no shellcheck")
        return
    subprocess.run(["shellcheck", EXAMPLES / "island.sbatch", folder / "start.sh"], check=True)


def main():
    """Runs the test in a folder of its own."""
    try:
        import yaml
    except ImportError:
        print("no PyYAML (python3-yaml): skipped")
        sys.exit(77)
    text = (EXAMPLES / "island.yaml").read_text(encoding="ascii")
    documents = list(yaml.safe_load_all(text))
    with tempfile.TemporaryDirectory(prefix="twsk") as name:
        folder = pathlib.Path(name)
        tools = folder / "tools"
        tools.mkdir()
        tool(tools, "srun", SRUN)
        tool(tools, "torchrun", TORCHRUN)
        tool(tools, "sleep", "#!/bin/sh\nexec /bin/sleep 0.1\n")
        environment = {**os.environ, "RECORD": str(folder),
                       "PATH": f"{tools}:{BIN}:/usr/bin:/bin"}
        for word in ("SLURM_JOB_ID", "THINWIRE_CONFIG"):
            environment.pop(word, None)
        script, settings = start_script(documents)
        lint(folder, script)
        check_manifest(documents)
        run_of(folder)
        slurm(folder, environment)
        pods(folder, environment, script, settings)
    print("the scripts for Slurm and Kubernetes start daemon and ranks, again after a death")


if __name__ == "__main__":
    main()
