#!/usr/bin/env python3
# test_replay.py - real daemons are recorded, killed and restarted, and their logs are repeated.
"""Usage: test_replay.py BIN"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import nodes


def replay(group, *args):
    """(exit status, output) of `thinwire replay`."""
    done = subprocess.run([group.tool("thinwire"), "replay", *map(str, args)], capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def rounds(group, idx):
    """Rounds that the node knows."""
    status = group.get(idx)
    return status["sync"]["rounds_committed"] if status else 0


def run_group(group):
    """Three nodes merge; one is killed and comes back."""
    for idx in range(3):
        group.start(idx)
    group.wait("ten rounds", lambda: all(rounds(group, idx) >= 10 for idx in range(3)))
    time.sleep(2.5)  # the recorder writes every two seconds
    group.kill(1)
    group.start(1)
    group.wait("ten more rounds", lambda: rounds(group, 1) >= 10 and rounds(group, 0) >= 20)


def check(group):
    """The logs repeat, and the nodes agree."""
    logs = [next(group.folder.glob(f"n{idx}/*/recorder")) for idx in range(3)]
    for idx, log in enumerate(logs):
        code, out = replay(group, log, "--json")
        assert code == 0, out
        said = json.loads(out)
        assert said["first_difference"] is None and said["gaps"] == 0, out
        assert said["node"] == f"n{idx}" and said["rounds"] >= 10, out
        assert said["starts"] == (2 if idx == 1 else 1), out
        assert log.stat().st_mode & 0o77 == 0, "others may read it"
    code, out = replay(group, "--config", group.config(0))
    assert code == 0 and "all as recorded" in out, out
    code, out = replay(group, logs[0], "--against", logs[1])
    assert code == 0 and "n0 and n1 agree in all" in out, out
    code, out = replay(group, logs[0], "--at", "#400", "--lines", "5")
    assert code == 0 and "node n0 after event #400, " in out and " members: " in out, out
    secret = (group.folder / "n0" / "run.secret").read_text(encoding="ascii").strip()
    for path in logs[0].iterdir():
        assert secret.encode("ascii") not in path.read_bytes()


def main():
    """Runs the group in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="tw_replay_") as folder:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 3, step_us=5000,
                            run_keys=["security.admission=secret"])
        try:
            run_group(group)
        finally:
            group.end()
        check(group)
    print("ok")


if __name__ == "__main__":
    main()
