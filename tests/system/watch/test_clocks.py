#!/usr/bin/env python3
# test_clocks.py BIN - a linked node whose clock is wrong is told by both, and by doctor.
"""Two daemons with the stub worker in a run with an owner. The clock of one is ten minutes
ahead. Both warn, each from its own side; after a restart with the right clock neither does.
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

AHEAD_S = 630
ENV = {"TW_SHIFT_CLOCK_S": str(AHEAD_S), "ASAN_OPTIONS": "verify_asan_link_order=0"}


def told(group, idx):
    """A node's warning of clocks, or None."""
    status = group.get(idx)
    found = [row["what"] for row in status["warnings"] if row["kind"] == "clock_differs"] \
        if status else []
    return found[0] if found else None


def ahead(group, idx):
    """Seconds by which a node takes its only peer to be ahead; None: not known."""
    peers = (group.get(idx, "peers") or {"peers": []})["peers"]
    return peers[0]["clock_ahead_s"] if peers else None


def check(group, shift):
    """Wrong, then right."""
    group.start(0)
    group.start(1, env={**ENV, "LD_PRELOAD": shift}.items())
    group.wait("both warnings", lambda: told(group, 0) and told(group, 1))
    assert "n1" in told(group, 0) and "10 min ahead of this machine's" in told(group, 0), \
        told(group, 0)
    assert "n0" in told(group, 1) and "behind this machine's" in told(group, 1), told(group, 1)
    assert abs(ahead(group, 0) - AHEAD_S) <= 5 and abs(ahead(group, 1) + AHEAD_S) <= 5
    said = subprocess.run([group.tool("thinwire"), "doctor", "--config", str(group.config(0))],
                          capture_output=True, text=True, check=False).stdout
    assert "The clock of n1" in said, said
    group.kill(1)
    group.start(1)
    group.wait("the right clock",
               lambda: (seen := ahead(group, 0)) is not None and abs(seen) < 9)
    assert told(group, 0) is None and told(group, 1) is None


def main():
    """Two nodes."""
    bin_dir = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="tw_clocks_") as folder:
        group = nodes.Nodes(bin_dir, folder, 2)
        try:
            check(group, str(bin_dir / "shift_clock.so"))
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
