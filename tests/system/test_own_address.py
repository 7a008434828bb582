#!/usr/bin/env python3
# test_own_address.py BIN - an own address under a former id is dropped in silence.
"""A machine was purged and joined again: its configuration has its own address with the id that it
had before. The node dials it, meets itself, and forgets it: no warning, no refused peer.
"""
import pathlib
import sys
import tempfile

import nodes

FORMER = "85" * 32


def is_quiet(group):
    """Whether the node has looked at its addresses and complains of none."""
    status, peers = group.get(0), group.get(0, "peers")
    if status is None or peers is None or status["sync"]["mixed_peers"] == 0:
        return False
    return not status["warnings"] and all(peer["link"] != "refused" for peer in peers["peers"]) \
        and all(row["error"] is None for row in status["bootstrap"])


def main():
    """Two nodes, one of which knows itself under a former id."""
    with tempfile.TemporaryDirectory(prefix="tw_own_") as folder:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 2, run_keys=("sync.period=20",))
        config = group.config(0)
        text = config.read_text(encoding="ascii")
        lines = [f"{line}, {group.address(0)}={FORMER}" if line.startswith("peers = ") else line
                 for line in text.splitlines()]
        assert FORMER in "".join(lines), text
        config.write_text("\n".join(lines) + "\n", encoding="ascii")
        try:
            for idx in range(2):
                group.start(idx)
            group.wait("a merge", lambda: (group.get(0) or {"sync": {"mixed_peers": 0}})
                       ["sync"]["mixed_peers"] > 0)
            group.wait("silence", lambda: is_quiet(group))
            assert "peer_refused" not in group.log(0), group.log(0)
        except BaseException:
            print(group.log(0)[-4000:], group.get(0), group.get(0, "peers"))
            raise
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
