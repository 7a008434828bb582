#!/usr/bin/env python3
# test_mates.py BIN - two machines of one home that know only a public node link directly, though
# their router returns no packets to its own address. In another home such an address is another
# machine's: nobody dials it. Real daemons in a lab (lab.py).
"""Wants root, network namespaces and nft, else it is skipped (77)."""
import sys
import tempfile

from homes import Homes
from lab import LAN4, Lab, lacks

PLAN = "1 public + 1 cone + 1 mate + 1 symmetric"
HUB, ONE, MATE, OTHER = range(4)


def check(world):
    """One's link to its mate becomes direct, and the other home's does not."""
    for idx in range(world.count):
        world.start(idx)
    world.wait("the daemons answer", lambda: all(map(world.get, range(world.count))))
    ids = [world.short_id(idx) for idx in range(world.count)]

    def row(idx, other):
        return world.peer(idx, ids[other]) or {}
    world.wait("the mates are linked by themselves", lambda: all(
        row(idx, other).get("path") == "direct" for idx, other in ((ONE, MATE), (MATE, ONE))))
    assert all(row(idx, other)["address"].startswith(f"{LAN4}.")
               for idx, other in ((ONE, MATE), (MATE, ONE)))
    world.wait("the other home is linked",
               lambda: all(row(OTHER, one).get("path") for one in (HUB, ONE, MATE)))
    for one in (ONE, MATE):
        assert row(OTHER, one)["path"] != "direct", row(OTHER, one)
        assert not (row(OTHER, one)["address"] or "").startswith(f"{LAN4}."), row(OTHER, one)
    for idx in range(world.count):
        world.stop(idx)


def main():
    """All of it."""
    why = lacks(PLAN)
    if why:
        print(f"skipped: {why}")
        return 77
    with Lab(PLAN) as lab, tempfile.TemporaryDirectory() as folder:
        world = Homes(sys.argv[1], folder, lab, step_us=20000)
        world.set_key(HUB, "listen", "0.0.0.0:4747")
        try:
            check(world)
        except BaseException:
            for idx in range(world.count):
                print(f"---- n{idx}\n{world.text_of(idx, 'peers')}\n{world.log(idx)[-5000:]}")
            raise
        finally:
            world.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
