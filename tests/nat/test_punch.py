#!/usr/bin/env python3
# test_punch.py BIN - hole punching between homes with real NAT (lab.py): real daemons.
"""Homes that only dial, and a public node through which they are linked at first.

    punched   two homes whose routers map by endpoint, also behind a carrier's router: the relayed
              link becomes a direct one at both ends, rounds go on, nobody is refused
    six       two homes with IPv6 whose routers let nothing in: by IPv6
    kinds     of NAT, as two public nodes tell them
    relayed   a home whose router takes another port for each connection: the link stays with the
              relay, and is not tried again at once

Wants root, network namespaces and nft, else it is skipped (77).
"""
import sys
import tempfile
import time

from homes import Homes, nodes
from lab import Lab, lacks

PLAN = "1 public + 1 cone + 1 cgn + 1 symmetric + 2 fw6 + 1 public"
HUB, CONE, CGN, SYMMETRIC, SIX, SEVEN, WITNESS = range(7)


def path(world, idx, other):
    """How the link to that node runs; None: there is none."""
    return (world.peer(idx, other) or {}).get("path")


def both(world, ids, one, other, wanted):
    """True if both ends say so."""
    return path(world, one, ids[other]) == wanted and path(world, other, ids[one]) == wanted


def tried(world, idx):
    """Relayed links that the node has tried to punch."""
    return world.get(idx)["network"]["punches_tried"]


def punched(world, ids):
    """Homes behind routers that map by endpoint."""
    took = world.wait("the two homes are linked by themselves",
                      lambda: both(world, ids, CONE, CGN, "punched"))
    print(f"punched after {took:.1f} s")
    rows = {one: world.peer(one, ids[other]) for one, other in ((CONE, CGN), (CGN, CONE))}
    hosts = {one: row["address"].rsplit(":", 1)[0] for one, row in rows.items()}
    assert hosts == {CONE: world.lab.wan[CGN], CGN: world.lab.wan[CONE]}, hosts
    assert rows[CONE]["via"] is None, rows[CONE]
    assert "punched" in world.text_of(CONE, "peers"), world.text_of(CONE, "peers")
    before = len(nodes.rounds_of(world.log(CONE)))
    world.wait("rounds go on", lambda: len(nodes.rounds_of(world.log(CONE))) >= before + 3)
    assert "ev=peer_refused" not in world.log(CONE) + world.log(CGN)


def relayed(world, ids):
    """A home behind a symmetric router."""
    world.wait("the symmetric home is linked", lambda: all(
        path(world, SYMMETRIC, ids[one]) for one in (HUB, CONE, CGN)))
    for one in (CONE, CGN):
        assert both(world, ids, one, SYMMETRIC, "relayed"), one
    world.wait("it was tried", lambda: tried(world, SYMMETRIC) >= 2)
    count = tried(world, SYMMETRIC)
    time.sleep(10)  # longer than a try takes, shorter than the first pause
    assert tried(world, SYMMETRIC) <= max(count, 2), tried(world, SYMMETRIC)
    for one in (CONE, CGN):
        assert both(world, ids, one, SYMMETRIC, "relayed"), one
    assert both(world, ids, CONE, CGN, "punched")
    text = world.text_of(CONE, "peers")
    assert "a direct link was punched in vain; next try in 1 min" in text, text
    assert "one node reaches the relay by IPv6, the other by IPv4" in text, text
    assert "1 punched" in world.text_of(CONE, "status"), world.text_of(CONE, "status")
    text = world.text_of(CONE, "doctor")
    assert "2 direct, 0 by the router's port, 1 punched, 3 through another member" in text, text


def kinds(world):
    """The kind of NAT, as two public nodes see it; those two have none."""
    wanted = {CONE: "endpoint_independent", CGN: "endpoint_independent", SYMMETRIC: "symmetric"}
    for idx, kind in wanted.items():
        world.wait(f"n{idx} is {kind}", lambda idx=idx: world.get(idx)["network"]["nat"]["kind"] !=
                   "unknown")
        assert world.get(idx)["network"]["nat"]["kind"] == kind, world.get(idx)["network"]["nat"]
    for verb in ("status", "peers", "doctor"):
        text = world.text_of(SYMMETRIC, verb)
        assert "symmetric NAT): links to other homes cannot be punched" in text, text
    assert "endpoint-independent NAT" in world.text_of(CONE, "doctor")
    assert "set `listen`, and forward its port in the router" in world.text_of(SYMMETRIC, "doctor")


def six(world, ids):
    """IPv6 and firewalls, no NAT."""
    world.wait("by IPv6", lambda: both(world, ids, SIX, SEVEN, "punched"))
    assert world.peer(SIX, ids[SEVEN])["address"].startswith(f"[{world.lab.address6(SEVEN)}]"), \
        world.peer(SIX, ids[SEVEN])


def main():
    """All of it."""
    why = lacks(PLAN)
    if why:
        print(f"skipped: {why}")
        return 77
    with Lab(PLAN) as lab, tempfile.TemporaryDirectory() as folder:
        world = Homes(sys.argv[1], folder, lab, step_us=20000)
        for idx in range(1, world.count):
            world.set_key(idx, "listen", "")
        world.set_key(HUB, "listen", "0.0.0.0:4747, [::]:4747")
        world.set_key(WITNESS, "listen", f"{lab.wan[WITNESS]}:4747")
        world.set_key(WITNESS, "relay", "off")
        for idx in (SIX, SEVEN):
            world.set_key(idx, "peers", f"[{lab.address6(HUB)}]:4747")
        try:
            for idx in range(world.count):
                world.start(idx)
            world.wait("the daemons answer", lambda: all(map(world.get, range(world.count))))
            ids = [world.short_id(idx) for idx in range(world.count)]
            punched(world, ids)
            six(world, ids)
            relayed(world, ids)
            kinds(world)
            for idx in range(world.count):
                world.stop(idx)
        except BaseException:
            for idx in range(world.count):
                print(f"---- n{idx}\n{world.log(idx)[-5000:]}")
            raise
        finally:
            world.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
