#!/usr/bin/env python3
# test_anew.py - a node that is set up anew at its old address, under two daemons on loopback.
"""test_anew.py BIN

`n1` has `n0` as a peer, by address and id. `n0` loses its disk and is set up anew: another id at
the same address, in the same run. It dials `n1`. From then on `n1` has no warning:
nobody must act, and `thinwire peers` still shows that the old node is gone. The measured links of
`n1` also survive a restart.
"""
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from nodes import Nodes  # pylint: disable=wrong-import-position


def id_of(nodes, idx):
    """Answer of a daemon."""
    return nodes.get(idx)["node"]["id"]


def peer(nodes, idx, node):
    """Row of a node in `thinwire peers`."""
    return next((row for row in nodes.get(idx, "peers")["peers"] if row["id"] == node), None)


def is_alive(nodes, idx, node):
    """True when the daemon sees the node as alive."""
    return (peer(nodes, idx, node) or {"link": ""})["link"] == "alive"


def warnings(nodes, idx):
    """Warnings of the daemon."""
    return [row["what"] for row in nodes.get(idx)["warnings"]]


def set_up_anew(nodes):
    """Sets up n0 with an empty disk."""
    shutil.rmtree(nodes.folder / "n0")
    nodes.config(0).unlink()
    nodes._lay_out(0, nodes.folder / "worker")  # pylint: disable=protected-access


def test(nodes):
    """The test."""
    nodes.start(0)
    nodes.wait("n0 answers", lambda: nodes.get(0) is not None)
    old = id_of(nodes, 0)
    config = nodes.config(1)
    config.write_text(config.read_text(encoding="ascii").replace(
        f"peers = {nodes.address(0)}", f"peers = {nodes.address(0)}={old}"), encoding="ascii")
    nodes.start(1)
    nodes.wait("n1 answers", lambda: nodes.get(1) is not None)
    nodes.wait("a link", lambda: is_alive(nodes, 1, old))
    nodes.kill(0)
    set_up_anew(nodes)
    nodes.start(0)
    nodes.wait("n0 answers again", lambda: nodes.get(0) is not None)
    new = id_of(nodes, 0)
    assert new != old
    nodes.wait("a link to the new n0", lambda: is_alive(nodes, 1, new))
    nodes.wait("the old address leads to another node",
               lambda: "another node" in ((peer(nodes, 1, old) or {}).get("error") or ""))
    row = peer(nodes, 1, old)
    assert row["link"] != "refused", row
    assert not warnings(nodes, 1), warnings(nodes, 1)
    print("n0 was set up anew: linked, and nothing to warn of")

    nodes.processes[1].terminate()
    nodes.processes[1].wait(40)
    saved = next((nodes.folder / "n1").glob("*/crowd")).read_text(encoding="ascii")
    assert saved.startswith("thinwire-crowd 1 ") and new in saved, saved
    nodes.start(1)
    nodes.wait("n1 answers again", lambda: nodes.get(1) is not None)
    nodes.wait("a link after the restart", lambda: is_alive(nodes, 1, new))
    assert "ev=link_qualities_damaged" not in nodes.log(1)


def main():
    """Runs the test in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="twanew", dir="/tmp") as folder:
        nodes = Nodes(sys.argv[1], folder, 2, step_us=20000)
        try:
            test(nodes)
        except BaseException:
            for idx in range(2):
                print(f"--- n{idx}\n{nodes.log(idx)}", file=sys.stderr)
            raise
        finally:
            nodes.end()
    return 0


sys.exit(main())
