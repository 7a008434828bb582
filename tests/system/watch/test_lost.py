#!/usr/bin/env python3
# test_lost.py BIN - a machine that dies is told by the hooks of the others, and its return too.
"""Three daemons with the stub worker and a hook. One of them and its worker are killed. Within the
two minutes of member_lost nobody misses it; then each of the other two tells it once, by name. When
it is back, both tell that.
"""
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

LOST_S = 120  # TW_WARNING_LOST_US
HOOK = 'echo "$THINWIRE_NODE $THINWIRE_STATE $THINWIRE_WARNING $THINWIRE_TEXT" >>{told}'


def lines_of(told, node):
    """Lines of a node's hook about lost members: [(state, text)]."""
    rows = [line.split(" ", 3) for line in told.read_text(encoding="utf-8").splitlines()]
    return [(state, text) for name, state, kind, text in rows
            if name == node and kind == "member_lost"]


def states(told, node):
    """The states that the hook of a node told of lost members, in order."""
    return [state for state, _ in lines_of(told, node)]


def check(group, told):
    """Death and return."""
    for idx in range(3):
        group.start(idx)
    group.wait("merges of three", lambda: all(
        (group.get(i) or {"sync": {"mixed_peers": 0}})["sync"]["mixed_peers"] == 2
        for i in range(3)))
    group.kill(2)
    died = time.monotonic()
    group.wait("the hooks", lambda: all(states(told, f"n{i}") for i in range(2)), 2 * LOST_S)
    assert time.monotonic() - died > LOST_S - 1
    for node in ("n0", "n1"):
        ((state, text),) = lines_of(told, node)
        assert state == "raised" and "n2" in text and "has not been heard" in text, text
    group.start(2)
    group.wait("the return", lambda: all(
        states(told, f"n{i}") == ["raised", "cleared"] for i in range(2)))
    assert states(told, "n2") == []


def main():
    """Three nodes."""
    with tempfile.TemporaryDirectory(prefix="tw_lost_") as folder:
        told = pathlib.Path(folder) / "told"
        told.touch()
        hook = HOOK.format(told=told)
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 3, node=[f"hook = {hook}"])
        try:
            check(group, told)
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
