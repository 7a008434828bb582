#!/usr/bin/env python3
# test_evaluate.py - programs that measure checkpoints of real daemons: deploy/hooks/evaluate with a
# model that trains; one with bad lines; one that fails; one that hangs.
"""Usage: test_evaluate.py BIN SOURCE"""
import json
import pathlib
import re
import socket
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

PYTHON = pathlib.Path(__file__).resolve().parents[3] / "worker" / "python"
sys.path.insert(0, str(PYTHON))
from thinwire import runlog  # pylint: disable=wrong-import-position

EVERY = 3
POEM = "A host, of golden daffodils; beside the lake, beneath the trees.\n" * 2000


def configure(group, idx, command, timeout="1h"):
    """Names the program in the node's configuration."""
    text = group.config(idx).read_text(encoding="ascii")
    for key, value in (("evaluate", command), ("evaluate_rounds", EVERY),
                       ("evaluate_timeout", timeout)):
        changed = re.sub(rf"(?m)^#{key} = .*", lambda _, k=key, v=value: f"{k} = {v}", text)
        assert changed != text, key
        text = changed
    group.config(idx).write_text(text, encoding="ascii")


def lines(group, idx):
    """The lines `scores` of the node's run log."""
    return [line for folder in group.folder.glob(f"n{idx}/*/runlog")
            for _, line in runlog.lines(folder) if line["kind"] == "scores"]


def metrics(group, idx):
    """The metrics of a node, from its socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(group.folder / f"n{idx}.run" / "thinwired.sock"))
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def scores(group, idx):
    """The last values of a node."""
    return (group.get(idx) or {"scores": None})["scores"] or {"values": {}, "error": None}


def check_model(group, poem):
    """The loss of the checkpoint is that of `thinwire eval`, and stands in every view."""
    group.start(0)
    group.wait("two evaluations", lambda: len(lines(group, 0)) >= 2)
    first, second = lines(group, 0)[:2]
    assert first["rounds"] >= EVERY and second["rounds"] // EVERY > first["rounds"] // EVERY
    assert first["step"] > 0 and first["tokens"] > 0 and first["evaluation_s"] > 0, first
    kept, model = group.folder / f"kept.{first['rounds']}", group.folder / "model"
    nodes.run(group.tool("thinwire"), "export", str(kept), "--run", str(group.folder / "manifest"),
              "--part", "anchor", "--out", str(model))
    said = json.loads(nodes.run(group.tool("thinwire"), "eval", str(model), "--data", str(poem),
                                "--json", "--windows", "4", "--whole"))
    assert said["windows"] == 4
    assert set(first["scores"]) == {"loss/poem.txt"}, first
    assert abs(first["scores"]["loss/poem.txt"] - said["validation_nats"]) < 1e-5, (first, said)
    now = scores(group, 0)
    assert now["every_rounds"] == EVERY and now["rounds"] >= second["rounds"], now
    assert now["error"] is None and set(now["values"]) == {"loss/poem.txt"}, now
    text = metrics(group, 0)
    assert re.search(r'(?m)^thinwire_evaluation\{name="loss/poem.txt"\} \d', text), text
    assert re.search(r"(?m)^thinwire_evaluation_rounds \d+$", text), text
    screen = nodes.run(group.tool("thinwire"), "status", "--config", str(group.config(0)))
    assert re.search(r"Scores +loss/poem.txt \d+\.\d+", screen), screen
    assert re.search(r"ev=scored rounds=\d+ step=\d+ took_us=\d+ loss/poem.txt=\d", group.log(0))


def check_bad_lines(group):
    """Good lines are kept, others are named; no line of a program that failed is kept."""
    group.wait("values", lambda: scores(group, 1)["values"])
    now = scores(group, 1)
    assert now["values"] == {"good": 1.5}, now
    assert now["error"] == "line 2, 'bad nan': the value is not a finite decimal number", now
    assert re.search(r"ev=evaluation_lines rounds=\d+ lines=2 ", group.log(1))
    group.wait("the failure", lambda: scores(group, 2)["error"])
    now = scores(group, 2)
    assert now["error"] == "the program failed with status 7: no such task", now
    assert now["values"] == {} and now["rounds"] is None and not lines(group, 2), now
    assert "ev=evaluation_failed" in group.log(2)


def check_hang(group):
    """A program that hangs is killed at its time; training and rounds go on meanwhile."""
    folder = group.folder
    group.wait("the program", lambda: (folder / "hangs").exists())
    group.wait("its status", lambda: scores(group, 3).get("running"))
    begin = group.get(3)
    group.wait("its end", lambda: scores(group, 3)["error"])
    end = group.get(3)
    assert end["scores"]["error"].startswith("the program was killed after 3 s"), end["scores"]
    assert end["train"]["steps"] > begin["train"]["steps"]
    assert end["sync"]["rounds_committed"] > begin["sync"]["rounds_committed"]
    group.wait("a second one", lambda: (folder / "hangs").read_text("ascii").count("\n") >= 2)
    last = int((folder / "hangs").read_text("ascii").split()[-1])
    group.processes[3].terminate()
    assert group.processes[3].wait(20) == 0
    group.wait("its end", lambda: not pathlib.Path(f"/proc/{last}").exists())
    assert not list(folder.glob("n3/*/ckpt.evaluated.safetensors"))


def main():
    """Four nodes, each alone."""
    source = pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="tw_evaluate_") as name:
        folder = pathlib.Path(name)
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 4, step_us=None,
                            run_keys=["sync.period=20"], network=["links = off"])
        poem = folder / "poem.txt"
        poem.write_text(POEM, encoding="ascii")
        measure = folder / "measure"
        measure.write_text(f"""#!/bin/sh
set -e
cp "$THINWIRE_CHECKPOINT" {folder}/kept.$THINWIRE_ROUNDS
export THINWIRE={group.tool('thinwire')} EVALUATE_OPTIONS='--windows 4'
exec {source}/deploy/hooks/evaluate {poem}
""", encoding="ascii")
        measure.chmod(0o755)
        configure(group, 0, measure)
        configure(group, 1, "printf 'good 1.5\\nbad nan\\nworse\\n'")
        configure(group, 2, "echo loss 1; echo no such task >&2; exit 7")
        configure(group, 3, f"echo $$ >>{folder}/hangs; exec sleep 1000", "3s")
        try:
            check_model(group, poem)
            group.processes[0].terminate()
            for idx in (1, 2, 3):
                group.start(idx)
            check_hang(group)
            check_bad_lines(group)
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
