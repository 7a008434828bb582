#!/usr/bin/env python3
# test_restarts.py BIN - a node that is restarted again and again is a member again each time.
"""Two real daemons with stub workers. One is killed, loses its checkpoints and starts again, 15
times: each time it fetches the whole state from the other one, within the budget for members. The
rounds of the other one go on meanwhile, and neither warns.
"""
import pathlib
import sys
import tempfile

import nodes

RESTARTS = 15


def is_merged(group, idx):
    """Whether the node is a member, with work of the other one merged since its start."""
    status = group.get(idx)
    return status is not None and status["state"] == "member" and \
        status["sync"]["mixed_peers"] > 0


def rounds(group):
    """Rounds that the first node committed."""
    return len(nodes.rounds_of(group.log(0)))


def check(group):
    """Two members, then the restarts of one of them."""
    for idx in range(2):
        group.start(idx)
    group.wait("two members", lambda: is_merged(group, 0) and is_merged(group, 1))
    for count in range(RESTARTS):
        before = rounds(group)
        group.kill(1)
        for path in (group.folder / "n1").rglob("ckpt.*"):
            path.unlink()
        group.start(1)
        group.wait(f"restart {count}", lambda: is_merged(group, 1))
        group.wait("rounds of n0", lambda b=before: rounds(group) > b + 2)
    assert "ev=serving_refused" not in group.log(0), group.log(0)
    served = group.get(0)["network"]["serving"]
    assert served["refused_node"] == 0 and served["bytes"] > 0, served
    print("served", served)


def main():
    """Two nodes."""
    with tempfile.TemporaryDirectory(prefix="tw_restarts_") as folder:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 2, run_keys=("sync.period=20",))
        try:
            check(group)
        except BaseException:
            for idx in (1, 0):
                print(group.log(idx)[-4000:])
            raise
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
