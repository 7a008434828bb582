#!/usr/bin/env python3
# test_causes.py BIN - causes of bad merging that lie in the line or the machine, each by its name.
"""Real daemons with the stub worker, in network namespaces; without them it is skipped (77).

    firewall   lets a node out to one member of four alone: it gets no seat
    sleeper    a machine that sleeps again and again: it takes over the others' state

The node that has the fault names it, in its log and in `status`, and no other node does.
"""
import re
import signal
import sys
import tempfile
import time

import nodes

PATIENCE_S = 240
CAUSES = re.compile(r"ev=bad_merging finding=(\w+)")


def forbid(star, idx, others):
    """No packet passes between host `idx` and these others."""
    for other in others:
        for one, two in ((idx, other), (other, idx)):
            nodes.run("ip", "-n", star.space(-1), "rule", "add", "from", star.address(one), "to",
                      star.address(two), "blackhole")


def permit(star, idx, others):
    """Takes `forbid` back."""
    for other in others:
        for one, two in ((idx, other), (other, idx)):
            nodes.run("ip", "-n", star.space(-1), "rule", "del", "from", star.address(one), "to",
                      star.address(two), "blackhole")


def set_key(world, idx, section, line):
    """Adds a line to a section of the node's configuration."""
    path = world.config(idx)
    key = line.split(" =", maxsplit=1)[0]
    text = re.sub(rf"(?m)^#?{key} *=.*\n", "", path.read_text(encoding="utf-8"))
    path.write_text(text.replace(f"[{section}]\n", f"[{section}]\n{line}\n", 1), encoding="utf-8")


def start(world, eval_steps):
    """Starts all; a group of them is together."""
    for idx in range(world.count):
        set_key(world, idx, "node", f"eval_steps = {eval_steps}")
        world.start(idx)


def members(world, idx):
    """Size of the roster that the node knows."""
    status = world.get(idx)
    return status["sync"]["roster_members"] if status else 0


def named(world, idx, cause):
    """Waits until the node names the cause; it stands in `status`, too."""
    took = world.wait(f"n{idx} says {cause}", lambda: cause in CAUSES.findall(world.log(idx)),
                      PATIENCE_S)
    print(f"{cause} after {took:.0f} s")


def warned(world, idx, kind):
    """The text of the node's warning of that kind."""
    found = [row["what"] for row in world.get(idx)["warnings"] if row["kind"] == kind]
    assert len(found) == 1, (kind, world.get(idx)["warnings"])
    print(f"   {found[0]}")
    return found[0]


def quiet(world, but):
    """No other node names anything."""
    for idx in range(world.count):
        found = CAUSES.findall(world.log(idx))
        assert idx == but or not found, (idx, found)


def firewall(bin_dir, folder):
    """Node 4 reaches node 0 alone, and nobody carries links of others."""
    with nodes.Star(5, "f") as star:
        world = nodes.Nodes(bin_dir, folder, 5, star=star, network=("relay = off",))
        set_key(world, 4, "network", f"peers = {world.address(0)}")
        try:
            forbid(star, 4, (1, 2, 3))
            for idx in range(4):
                world.start(idx)
            world.wait("four members", lambda: all(members(world, i) == 4 for i in range(4)))
            world.start(4)
            named(world, 4, "no_seat")
            text = warned(world, 4, "no_seat")
            assert "too few of the 4 members can hear it, 1 is linked" in text, text
            assert world.get(4)["sync"]["rounds_contributed"] == 0
            quiet(world, 4)
            permit(star, 4, (1, 2, 3))
            world.wait("a seat", lambda: "ev=bad_merging_over finding=no_seat" in world.log(4))
            world.wait("its work counts",
                       lambda: world.get(4)["sync"]["rounds_contributed"] > 0)
        finally:
            world.end()


def sleeper(bin_dir, folder):
    """Node 0 sleeps longer than the others keep rounds for it, after each second or so."""
    with nodes.Star(3, "s") as star:
        world = nodes.Nodes(bin_dir, folder, 3, star=star)
        try:
            start(world, 400)
            world.wait("three members", lambda: all(members(world, i) == 3 for i in range(3)))
            end = time.monotonic() + PATIENCE_S
            while "takes_over" not in CAUSES.findall(world.log(0)):
                assert time.monotonic() < end, "takes_over is not named"
                world.send(0, signal.SIGSTOP)
                time.sleep(8)
                world.send(0, signal.SIGCONT)
                time.sleep(1.5)
            warned(world, 0, "takes_over")
            quiet(world, 0)
        finally:
            world.end()


def main():
    """All causes, or those named behind BIN."""
    why = nodes.lacks_hosts()
    if why is not None:
        print(f"skipped: {why}")
        return 77
    known = {"firewall": firewall, "sleeper": sleeper}
    for name in sys.argv[2:] or known:
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="twc") as folder:
            world_folder = nodes.pathlib.Path(folder)
            known[name](sys.argv[1], world_folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
