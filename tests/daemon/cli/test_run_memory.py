#!/usr/bin/env python3
# test_run_memory.py - `run new`, `run show` and `config check` name a node's memory beforehand.
"""Usage: test_run_memory.py BIN

`thinwire` asks the engine beside it. Here that is a script, which answers for machines that the
test does not have.
"""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1]).resolve()
GB = 10**9
ENGINE = """#!/bin/sh
echo "$@" >>asked
printf '%s\\n' "$ANSWER"
"""


def answer(**known):
    """The engine's answer."""
    plan = {"host_bytes": 2 * GB, "device_bytes": 0, "device_limit_bytes": 0,
            "library_bytes": GB // 100, "training_bytes": 2 * GB, "engine": "cpu, 2 threads",
            "fits": True}
    return json.dumps({**plan, **known})


def call(*words, said="", bytes_free=None, status=0):
    """Output of thinwire; bytes_free limits the memory that it may count on."""
    def limit():
        if bytes_free is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (bytes_free, bytes_free))
    done = subprocess.run(["./thinwire", *words], capture_output=True, text=True, check=False,
                          preexec_fn=limit, env={**os.environ, "ANSWER": said})
    assert done.returncode == status, (words, done)
    return done.stdout


def wants(text, *parts):
    """The text has all the parts, wherever its lines are broken."""
    flat = " ".join(text.split())
    for part in parts:
        assert part in flat, (part, flat)


def shows():
    """`run new` and `run show` name daemon, worker and device."""
    text = call("run", "new", "small", "--model", "15m", "--nodes", "2", said=answer())
    wants(text, "Memory thinwired 1.03 GB: anchor and momentum in memory, snapshots full",
          "thinwire-worker 2.00 GB with activations: cpu, 2 threads", "this machine has")
    on_gpu = answer(host_bytes=3 * GB, device_bytes=7 * GB, device_limit_bytes=8 * GB)
    wants(call("run", "show", "small.manifest", said=on_gpu),
          "thinwire-worker 3.00 GB and 7.00 GB on the GPU")
    memory = json.loads(call("run", "show", "small.manifest", "--json", said=on_gpu))["memory"]
    assert memory["worker_bytes"] == 3 * GB and memory["device_bytes"] == 7 * GB, memory
    assert memory["lacks"] is None and memory["with_activations"], memory
    assert memory["snapshot"] == "full" and memory["daemon_bytes"] > 50 * 14 * 10**6, memory
    # An engine that does not answer: weights, gradients and moments of fp32 are known all the same.
    text = call("run", "show", "small.manifest", said="nothing")
    wants(text, "thinwire-worker 232 MB without activations")


def lacks():
    """Too little memory of either kind, with the way out."""
    short = answer(host_bytes=900 * 1000 * GB)
    wants(call("run", "show", "small.manifest", said=short), "TOO LITTLE: 900",
          "train a smaller model")
    short = answer(device_bytes=9 * GB, device_limit_bytes=8 * GB)
    text = call("run", "show", "small.manifest", said=short)
    wants(text, "TOO LITTLE: 9.00 GB of device memory wanted, 8.00 GB free here",
          "set `micro_batch = 1` and `recompute = on`")
    memory = json.loads(call("run", "show", "small.manifest", "--json", said=short))["memory"]
    assert memory["lacks"] == "device" and "micro_batch" in memory["way_out"], memory
    assert memory["device_free_bytes"] == 8 * GB, memory


def trainers():
    """A trainer of the user's own: libthinwire, and AdamW on its device."""
    text = call("run", "new", "own", "--tensors", "w:1000x4000", "--batch", "2", "--context", "8",
                "--tokens", "1m", "--nodes", "2", said=answer())
    wants(text, "libthinwire 10.0 MB in your trainer",
          "moments are 64.0 MB in fp32 or 32.0 MB in bf16")
    assert "thinwire-worker" not in text, text


def checks():
    """`config check` warns and still says that the daemon can start."""
    pathlib.Path("text").write_text("some words to train on " * 4000, encoding="ascii")
    call("init", "--dir", "n", "--name", "n", "--run", "small.manifest", "--data", "text",
         "--listen", "127.0.0.1:0", said=answer())
    shutil.copy("/bin/true", "thinwire-worker")
    config = pathlib.Path("n/node.conf")
    check = ["--config", str(config), "config", "check"]
    pathlib.Path("asked").unlink()
    text = call(*check, said=answer())
    wants(text, "good memory: thinwired 1.03 GB, thinwire-worker 2.00 GB; ", "The daemon can start")
    asked = pathlib.Path("asked").read_text(encoding="ascii")
    wants(asked, "--plan --device=cpu --threads=0 --memory=0B --compute=auto",
          "--recompute=auto --micro-batch=0")

    before = config.read_text(encoding="ascii")
    config.write_text(before.replace("[node]\n", "[node]\nsnapshot = full\nanchors = memory\n", 1)
                      .replace("[worker]\n", "[worker]\ndevice = cuda:1\nmemory = 8GB\n", 1),
                      encoding="ascii")
    little = {"said": answer(host_bytes=GB // 10), "bytes_free": GB // 2}
    text = call(*check, **little)
    wants(text, "WARN memory: thinwired 1.03 GB", "of memory wanted",
          "set `snapshot = off` and `anchors = file` in [node]", "The daemon can start")
    wants(pathlib.Path("asked").read_text(encoding="ascii"), "--device=cuda:1",
          "--memory=8000000000B")
    report = json.loads(call(*check, "--json", **little))
    warned = [finding for finding in report["findings"] if "warning" in finding]
    assert report["ok"] and report["memory"]["lacks"] == "host", report
    assert len(warned) == 1 and warned[0]["ok"] and "anchors = file" in warned[0]["warning"], warned
    # By itself the daemon keeps less, and that fits.
    config.write_text(before, encoding="ascii")
    memory = json.loads(call(*check, "--json", **little))["memory"]
    assert memory["lacks"] is None and memory["snapshot"] == "off", memory


def main():
    """Runs the test in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="twrm") as folder:
        os.chdir(folder)
        shutil.copy(BIN / "thinwire", "thinwire")
        pathlib.Path("thinwire-engine").write_text(ENGINE, encoding="ascii")
        os.chmod("thinwire-engine", 0o755)
        os.environ.pop("THINWIRE_CONFIG", None)
        shows()
        lacks()
        trainers()
        checks()
    print("memory is named before the start")


if __name__ == "__main__":
    main()
