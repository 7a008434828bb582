#!/usr/bin/env python3
# test_run_log.py - the run log of real daemons, over kill -9, a torn line and a full disk; and its
# copies to TensorBoard and W&B, by stand-ins for these.
"""Usage: test_run_log.py BIN"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

PYTHON = pathlib.Path(__file__).resolve().parents[3] / "worker" / "python"
sys.path.insert(0, str(PYTHON))
from thinwire import runlog  # pylint: disable=wrong-import-position

STAND_INS = {
    "tensorboardX": """import json
class SummaryWriter:
    def __init__(self, folder, filename_suffix):
        self.out = open(folder + "/scalars", "a")
    def add_scalar(self, *words):
        print(json.dumps(words), file=self.out)
    def add_text(self, *words):
        print(json.dumps(words), file=self.out)
    def flush(self):
        self.out.flush()
    def close(self):
        self.out.close()
""",
    "wandb": """import json
class Run:
    def define_metric(self, *words, **named):
        pass
    def log(self, values):
        print(json.dumps(values), file=open("sent", "a"))
    def finish(self):
        pass
def init(**about):
    json.dump(about, open("about", "w"))
    return Run()
"""}


def kinds(folder):
    """The kinds of all lines, in order."""
    return [line["kind"] for _, line in runlog.lines(folder)]


def copy(folder, where, *words):
    """Runs the copy program, with stand-ins for its libraries; returns the number of lines."""
    environment = {**os.environ, "PYTHONPATH": f"{where / 'lib'}:{PYTHON}"}
    done = subprocess.run([sys.executable, "-m", "thinwire.runlog", str(folder), *words],
                          cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[0]) if done.stderr else done.stdout


def check_copies(state, folder, where):
    """Each copy has every line once, and goes on where it was."""
    (where / "lib").mkdir()
    for name, text in STAND_INS.items():
        (where / "lib" / f"{name}.py").write_text(text, encoding="ascii")
    (where / "board").mkdir()
    count = len(kinds(folder))
    assert copy(state, where, "--tensorboard", "board") == count
    assert copy(folder, where, "--tensorboard", "board") == 0
    assert copy(folder, where, "--wandb", "attic") == count
    with open(sorted(folder.glob("*.jsonl"))[-1], "a", encoding="ascii") as out:
        out.write('{"kind":"evaluation","time":"2026-01-31T12:00:00.000Z","step":77,'
                  '"validation_anchor_nats":2.5,"loss_nats":null}\n')
    assert copy(folder, where, "--tensorboard", "board") == 1
    assert copy(folder, where, "--wandb", "attic") == 1
    drawn = (where / "board" / "scalars").read_text(encoding="ascii").splitlines()
    wanted = ["train/validation_anchor_nats", 2.5, 77, 1769860800.0]
    assert json.loads(drawn[-1]) == wanted, drawn[-1]
    assert any("round/members" in row for row in drawn), drawn[-9:]
    values = {"kind": "scores", "scores": {"loss/poem": 1.5, "a": 2, "odd": None}, "rounds": 3}
    assert runlog.values_of(values) == {"scores/loss/poem": 1.5, "scores/a": 2.0}
    sent = (where / "sent").read_text(encoding="ascii").splitlines()
    assert json.loads(sent[-1]) == {"train/validation_anchor_nats": 2.5, "step": 77}, sent[-1]
    with open(sorted(folder.glob("*.jsonl"))[-1], "a", encoding="ascii") as out:
        out.write('{"kind":"sample","step":77,"prompt":"In the","sample":" end\\n#"}\n{"kind":"ste')
    assert copy(folder, where, "--tensorboard", "board") == 1
    assert copy(folder, where, "--wandb", "attic") == 1
    shown = (where / "board" / "scalars").read_text(encoding="ascii").splitlines()[-1]
    assert json.loads(shown) == ["train/sample", "    In the| end\n    #\n", 77, None], shown
    sent = (where / "sent").read_text(encoding="ascii").splitlines()[-1]
    assert json.loads(sent) == {"train/sample": "In the| end\n#", "step": 77}, sent
    about = json.loads((where / "about").read_text(encoding="ascii"))
    assert about["project"] == "attic" and about["resume"] == "allow", about
    assert about["name"] == "n0" and about["group"] == "nodes", about


def check_kill(group, folder):
    """After kill -9 and a torn line, the next start goes on in the same file."""
    group.wait("evaluations", lambda: kinds(folder).count("evaluation") >= 3)
    curve = group.get(0)["train"]["losses"]
    group.kill(0)
    path = sorted(folder.glob("*.jsonl"))[-1]
    with open(path, "a", encoding="ascii") as out:
        out.write('{"kind":"step","ti')
    group.start(0)
    group.wait("the second start", lambda: kinds(folder).count("start") == 2)
    again = group.get(0)["train"]["losses"]  # of the log, where it has a line every ten seconds
    assert again and again[0]["steps"] <= 20 < curve[-1]["steps"], (curve, again)
    assert any(point["anchor_nats"] is not None for point in again[:3]), again
    rows = path.read_text(encoding="ascii").splitlines()
    assert sum(not row.strip() for row in rows) == 1, rows
    assert all(json.loads(row) for row in rows if row.strip()), rows


def check_warning(group, folder):
    """A checkpoint that cannot be saved is a warning, and clears when one is."""
    blocked = [folder.parent / f"ckpt.{slot}.safetensors" for slot in "ab"]
    for path in blocked:
        path.unlink(missing_ok=True)
        (path / "x").mkdir(parents=True)
    checkpoint = [group.tool("thinwire"), "checkpoint", "--config", str(group.config(0))]
    assert subprocess.run(checkpoint, capture_output=True, check=False).returncode == 1
    group.wait("the warning", lambda: "warning" in kinds(folder))
    for path in blocked:
        (path / "x").rmdir()
        path.rmdir()
    nodes.run(*checkpoint)
    group.wait("its end", lambda: kinds(folder).count("warning") == 2)
    group.wait("rounds", lambda: "round" in kinds(folder))
    raised, cleared = [line for _, line in runlog.lines(folder) if line["kind"] == "warning"]
    assert (raised["state"], cleared["state"]) == ("raised", "cleared"), (raised, cleared)
    assert raised["warning"] == cleared["warning"] == "checkpoint_failed", raised
    assert raised["text"].startswith("The last checkpoint failed: ") and raised["node_name"] == "n0"


def check_full_disk(group, folder):
    """A full disk is said once, and training goes on."""
    if os.geteuid() != 0:
        print("full disk: skipped: it needs root")
        return
    group.processes[0].terminate()
    group.processes[0].wait()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(folder)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print("full disk: skipped:", done.stderr.strip())
        return
    try:
        (folder / "other").write_bytes(b"x" * 4096 * 3)
        group.start(0)
        group.wait("the full disk", lambda: "ev=run_log_failed" in group.log(0))
        step = group.get(0)["train"]["steps"]
        group.wait("steps", lambda: group.get(0)["train"]["steps"] > step)
        assert group.log(0).count("ev=run_log_failed") == 1
        group.processes[0].terminate()
        assert group.processes[0].wait() == 0
    finally:
        nodes.run("umount", str(folder))


def main():
    """One node with the stub worker; then a node without a log."""
    with tempfile.TemporaryDirectory(prefix="tw_run_log_") as temporary:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), temporary, 1, run_keys=["sync.period=20"],
                            network=["links = off"])
        config = group.config(0)
        text = config.read_text(encoding="ascii")
        config.write_text(re.sub("(?m)^#eval_steps = .*", "eval_steps = 20", text),
                          encoding="ascii")
        try:
            group.start(0)
            group.wait("a log", lambda: list(group.folder.glob("n0/*/runlog/*.jsonl")))
            folder = next(group.folder.glob("n0/*/runlog"))
            check_kill(group, folder)
            check_warning(group, folder)
            group.processes[0].terminate()
            group.processes[0].wait()
            found = kinds(folder)
            assert found[0] == "start" and found[-1] == "stop" and "step" in found, found
            assert folder.stat().st_mode & 0o77 == 0, "others may read it"
            where = group.folder / "copies"
            where.mkdir()
            check_copies(group.folder / "n0", folder, where)
            group.start(0)
            group.wait("the third start", lambda: kinds(folder).count("start") == 3)
            check_full_disk(group, folder)
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
