#!/usr/bin/env python3
# test_packets.py BIN - paths that swallow packets above a size, without a word to the sender.
"""Five daemons in network namespaces; without them it is skipped (77).

- Packets above 1280 bytes are swallowed on all paths, as behind many tunnels: everything works, as
  the nodes send no larger ones.
- Packets above 700 bytes are swallowed between n0 and n1: dials succeed, and each direct link
  breaks under the first payload. A relay must carry the link, the rounds of all five go on, and
  both say that the direct link breaks again and again.
"""
import pathlib
import sys
import tempfile

import nodes

COUNT = 5
ROUNDS = 20


def be_silent(star):
    """The hub tells nobody that a packet was too large."""
    in_hub = [*nodes.within(star.space(-1)), "nft", "add"]
    nodes.run(*in_hub, "table", "inet", "f")
    nodes.run(*in_hub, "chain", "inet", "f", "out", "{ type filter hook output priority 0 ; }")
    nodes.run(*in_hub, "rule", "inet", "f", "out", "icmp", "type", "destination-unreachable",
              "drop")


def narrow(star, most):
    """The hub forwards no packet of more bytes."""
    for idx in range(COUNT):
        nodes.run("ip", "-n", star.space(-1), "link", "set", f"leg{idx}", "mtu", str(most))


def narrow_pair(star, pair, most):
    """The hub forwards no packet of more bytes from the one to the other."""
    one, other = pair
    table = str(100 + other)
    nodes.run("ip", "-n", star.space(-1), "route", "add", star.address(other), "dev", f"leg{other}",
              "mtu", "lock", str(most), "table", table)
    nodes.run("ip", "-n", star.space(-1), "rule", "add", "from", star.address(one), "to",
              star.address(other), "table", table)


def full_rounds(world, idx):
    """Number of committed rounds with the work of all nodes, in the node's log."""
    return sum(row[4] == COUNT for row in nodes.rounds_of(world.log(idx)))


def rounds_go_on(world, what):
    """Waits until each node has seen more rounds with the work of all."""
    before = [full_rounds(world, idx) for idx in range(COUNT)]
    took = world.wait(what, lambda: all(full_rounds(world, idx) >= before[idx] + ROUNDS
                                        for idx in range(COUNT)), 120)
    print(f"{what}: {ROUNDS} rounds of all in {took:.1f} s")


def is_relayed(world, idx, other):
    """True if the link runs through another member, and the node says why."""
    name = world.get(other)["node"]["id_short"]
    row = next(row for row in world.get(idx, "peers")["peers"] if row["id_short"] == name)
    if row["link"] != "alive" or row["path"] != "relayed" or row["anomaly"] is None:
        return False
    assert row["anomaly"].startswith("flapping link"), row["anomaly"]
    assert row["path_text"].startswith("direct links broke"), row["path_text"]
    return True


def main():
    """The steps above."""
    why = nodes.lacks_hosts("nft")
    if why is not None:
        print(f"skipped: {why}")
        return 77
    with tempfile.TemporaryDirectory(prefix="twp") as folder, nodes.Star(COUNT, "p") as star:
        world = nodes.Nodes(sys.argv[1], pathlib.Path(folder), COUNT, star=star)
        be_silent(star)
        narrow(star, 1280)
        try:
            for idx in range(COUNT):
                world.start(idx)
            rounds_go_on(world, "no packet above 1280 bytes")
            narrow_pair(star, (0, 1), 700)
            narrow_pair(star, (1, 0), 700)
            took = world.wait("n0 and n1 are linked through another",
                              lambda: is_relayed(world, 0, 1) and is_relayed(world, 1, 0), 120)
            print(f"relayed after {took:.1f} s")
            rounds_go_on(world, "no packet above 700 bytes between n0 and n1")
        except BaseException:
            for idx in range(COUNT):
                print(f"---- n{idx}\n{world.log(idx)[-4000:]}")
            raise
        finally:
            world.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
