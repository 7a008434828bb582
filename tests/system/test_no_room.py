#!/usr/bin/env python3
# test_no_room.py BIN - a node that starts on a full disk says so at once, names the lost steps,
# trains on, and goes on by itself when there is room again.
"""The state folder is a small tmpfs. The node saves a checkpoint, trains on and is killed; then the
disk fills up: first so that only votes have room, then to the last byte.
"""
import pathlib
import re
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


def fill(state, left_bytes):
    """Fills the disk, but for so many bytes."""
    with open(state / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            filler.truncate(filler.tell() - left_bytes)


def warnings(group):
    """Kinds of the node's warnings."""
    return {row["kind"] for row in group.get(0)["warnings"]}


def boots(group):
    """The counts of all starts, by the log."""
    return [int(count) for count in re.findall(r"ev=started .* boot=(\d+)", group.log(0))]


def check_last_byte(group, state):
    """Not one byte is free: the node comes up, takes steps, and closes rounds once there is
    room."""
    group.kill(0)
    fill(state, 0)
    group.start(0)
    group.wait("an answer", lambda: group.get(0) is not None)
    group.wait("warnings", lambda: {"checkpoint_failed", "votes_unsaved"} <= warnings(group))
    group.wait("steps on a full disk", lambda: steps(group) > 0)
    rounds = group.get(0)["sync"]["rounds_committed"]
    group.kill(0)  # twice: the count of starts must not be the same again
    group.start(0)
    group.wait("an answer", lambda: group.get(0) is not None)
    assert boots(group) == [1, 2, 3, 4], boots(group)
    (state / "filler").unlink()
    group.wait("rounds again", lambda: group.get(0)["sync"]["rounds_committed"] > rounds)
    nodes.run(group.tool("thinwire"), "--config", str(group.config(0)), "checkpoint")
    group.wait("no warning of the disk",
               lambda: not warnings(group) & {"checkpoint_failed", "votes_unsaved"})


def check(group, state):
    """A checkpoint, more steps, a full disk."""
    group.start(0)
    group.wait("steps", lambda: steps(group) > 20)
    nodes.run(group.tool("thinwire"), "--config", str(group.config(0)), "checkpoint")
    saved = steps(group)
    group.wait("more steps", lambda: steps(group) > saved + 1000)
    time.sleep(2)  # the note of the farthest round is written once a second
    group.kill(0)
    fill(state, LEFT)
    group.start(0)
    group.wait("an answer", lambda: group.get(0) is not None)

    def texts():
        return [row["what"] for row in group.get(0)["warnings"]
                if row["kind"] == "checkpoint_failed"]

    # The number of steps is there once the worker has taken some.
    group.wait("the loss", lambda: any("steps of this node" in text for text in texts()))
    assert len(texts()) == 1, texts()
    assert texts()[0].startswith("There is no room for the next checkpoint: "), texts()
    print(texts()[0])
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
            check_last_byte(group, state)
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
