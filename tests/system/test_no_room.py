#!/usr/bin/env python3
# test_no_room.py BIN - a node that starts on a full disk says so at once, and names the lost steps.
"""The state folder is a small tmpfs. The node saves a checkpoint, trains on and is killed; then the
disk fills up. Its next start warns before it has tried to save.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import nodes

SKIP = 77
LEFT = 300 << 10  # bytes that stay free: enough for votes, too few for a checkpoint


def steps(group):
    """Steps of the node; 0 while it does not answer."""
    status = group.get(0)
    return status["train"]["steps"] if status else 0


def check(group, state):
    """A checkpoint, more steps, a full disk."""
    group.start(0)
    group.wait("steps", lambda: steps(group) > 20)
    nodes.run(group.tool("thinwire"), "--config", str(group.config(0)), "checkpoint")
    saved = steps(group)
    group.wait("more steps", lambda: steps(group) > saved + 1000)
    time.sleep(2)  # the note of the farthest round is written once a second
    group.kill(0)
    with open(state / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            filler.truncate(filler.tell() - LEFT)
    group.start(0)
    group.wait("an answer", lambda: group.get(0) is not None)
    texts = [row["what"] for row in group.get(0)["warnings"] if row["kind"] == "checkpoint_failed"]
    assert len(texts) == 1 and texts[0].startswith("There is no room for the next checkpoint: "), \
        group.get(0)["warnings"]
    assert "steps of this node" in texts[0], texts
    print(texts[0])
    (state / "filler").unlink()
    nodes.run(group.tool("thinwire"), "--config", str(group.config(0)), "checkpoint")
    assert not group.get(0)["warnings"], group.get(0)["warnings"]


def main():
    """One node on a small disk."""
    with tempfile.TemporaryDirectory(prefix="tw_room_") as folder:
        state = pathlib.Path(folder) / "n0"
        state.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(state)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            print("skipped: a tmpfs needs root")
            return SKIP
        group = None
        try:
            group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 1, step_us=2000,
                                run_keys=("sync.period=20",))
            check(group, state)
        except BaseException:
            if group is not None:
                print(group.log(0)[-4000:])
            raise
        finally:
            if group is not None:
                group.end()
            nodes.run("umount", str(state))
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
