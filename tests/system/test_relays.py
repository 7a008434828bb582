#!/usr/bin/env python3
# test_relays.py - two daemons that nobody can dial, linked through a third.
"""test_relays.py BIN

n0 and n1 listen nowhere, n2 and n3 do. n0 and n1 must link

- through n2, and train with it;
- through n3, within ten seconds of the death of n2;
- within the cap of n3, while it has one;
- not at all, once n3 does not relay;
- directly, as soon as n1 listens.
"""
import re
import signal
import sys
import tempfile
import time

import nodes

SWITCH_S = 10
CAP_BYTES_S = 25 * 1000  # relay = 200kbit, less than the rounds want
BURST_BYTES = 64 * 1024  # a bucket of two records, and the records under way


def set_key(world, idx, key, value):
    """Sets a key of [network] in the configuration of a node."""
    path = world.config(idx)
    text = re.sub(rf"^{key} *=.*\n", "", path.read_text(encoding="ascii"), flags=re.M)
    path.write_text(text.replace("[network]\n", f"[network]\n{key} = {value}\n", 1),
                    encoding="ascii")


def reload(world, idx):
    """Makes the daemon read its configuration again."""
    nodes.run(world.tool("thinwire"), "reload", "--config", str(world.config(idx)))


def short_id(world, idx):
    """Short id of a running node."""
    return world.get(idx)["node"]["id_short"]


def way(world, idx, other):
    """(path, via) of the link to the node with that short id; None: no link."""
    answer = world.get(idx, "peers")
    for peer in answer["peers"] if answer else []:
        if peer["id_short"] == other and peer["link"] == "alive":
            return peer["path"], peer["via"]
    return None


def relay_of(world, idx):
    """Relaying of a node."""
    return world.get(idx)["network"]["relay"]


def main():
    """Runs the steps above."""
    with tempfile.TemporaryDirectory() as folder:
        world = nodes.Nodes(sys.argv[1], folder, 4, step_us=20000)
        try:
            for idx in (0, 1):
                set_key(world, idx, "listen", "")
                set_key(world, idx, "punch", "off")  # loopback lets one in a hundred through
            steps(world)
        except BaseException:
            for idx in range(world.count):
                print(f"---- n{idx}\n{world.log(idx)[-6000:]}")
            raise
        finally:
            world.end()


def steps(world):
    """The test."""
    for idx in (0, 1, 2):
        world.start(idx)
    world.wait("three daemons answer", lambda: all(world.get(i) for i in (0, 1, 2)))
    ids = [short_id(world, i) for i in (0, 1, 2)]

    took = world.wait("n0 and n1 are linked", lambda: way(world, 0, ids[1]) and
                      way(world, 1, ids[0]))
    assert way(world, 0, ids[1]) == ("relayed", ids[2]), way(world, 0, ids[1])
    assert way(world, 1, ids[0]) == ("relayed", ids[2]), way(world, 1, ids[0])
    assert way(world, 0, ids[2]) == ("direct", None), way(world, 0, ids[2])
    print(f"linked through n2 after {took:.1f} s")
    world.wait("rounds of all three", lambda: any(row[4] == 3 for row in nodes.rounds_of(
        world.log(2))))
    relay = relay_of(world, 2)
    assert relay["on"] and relay["pipes"] == 2 and relay["relayed_bytes"] > 0, relay
    assert "ev=relay_opened" in world.log(2)

    world.start(3)
    world.wait("n3 answers", lambda: world.get(3))
    ids.append(short_id(world, 3))
    world.wait("n3 is linked", lambda: way(world, 0, ids[3]) and way(world, 1, ids[3]))
    time.sleep(2)  # for the claims of n3 to arrive: once a second at most
    world.kill(2)
    took = world.wait("n0 and n1 are linked through n3",
                      lambda: way(world, 0, ids[1]) == ("relayed", ids[3]) and
                      way(world, 1, ids[0]) == ("relayed", ids[3]))
    print(f"linked through n3 {took:.1f} s after the death of n2")
    assert took <= SWITCH_S, took
    before = len(nodes.rounds_of(world.log(0)))
    world.wait("rounds go on", lambda: len(nodes.rounds_of(world.log(0))) >= before + 3)

    set_key(world, 3, "relay", "200kbit")
    reload(world, 3)
    begin, first = time.monotonic(), relay_of(world, 3)["relayed_bytes"]
    world.wait("n3 carries bytes under its cap", lambda: relay_of(world, 3)["relayed_bytes"] >
               first + 2 * BURST_BYTES)
    carried, took = relay_of(world, 3)["relayed_bytes"] - first, time.monotonic() - begin
    print(f"carried {carried} bytes in {took:.1f} s under a cap of {CAP_BYTES_S} bytes/s")
    assert carried <= CAP_BYTES_S * took + BURST_BYTES, carried
    assert way(world, 0, ids[1]) == ("relayed", ids[3])

    set_key(world, 3, "relay", "off")
    reload(world, 3)
    world.wait("n0 and n1 have no link", lambda: way(world, 0, ids[1]) is None)
    assert relay_of(world, 3)["pipes"] == 0
    world.wait("n0 says why", lambda: any(
        peer["id_short"] == ids[1] and "no relay links it" in (peer["error"] or "")
        for peer in world.get(0, "peers")["peers"]))
    set_key(world, 3, "relay", "on")
    world.send(3, signal.SIGHUP)
    world.wait("n0 and n1 are linked again", lambda: way(world, 0, ids[1]) ==
               ("relayed", ids[3]))

    world.processes[1].terminate()
    world.processes[1].wait(40)
    set_key(world, 1, "listen", world.address(1))
    world.start(1)
    world.wait("n1 is linked directly", lambda: way(world, 0, ids[1]) == ("direct", None))
    world.wait("no pipe is left", lambda: relay_of(world, 3)["pipes"] == 0)


if __name__ == "__main__":
    main()
