#!/usr/bin/env python3
# test_mapping.py BIN - ports at a real router: daemons in homes (lab.py) behind miniupnpd.
"""Steps:

    made      the router forwards the port of a home, first by NAT-PMP, then by UPnP alone, and
              anew after the home's address changed
    used      a node in another home dials it there, instead of a relayed link
    shown     status, peers and doctor say where, or why not, and the way out
    renewed   at half its lease, so that it outlives the lease (port_mapper.c), by NAT-PMP and by
              PCP; and after a kill -9, which leaves the mapping at the router
    removed   at the stop
    not made  a router that refuses, one without a public address, none at all

Wants root, network namespaces, nft and miniupnpd, else it is skipped (77).
"""
import subprocess
import sys
import tempfile
import time

from homes import PORT, Homes
from lab import LAN4, Lab, lacks, run

PLAN = "1 public + upnp + cone"
HUB, HOME, OTHER = 0, 1, 2
INNER = (f"{LAN4}.2", PORT)


def mapping_of(world, idx):
    """The port at the router, as the daemon has it."""
    status = world.get(idx)
    return status["network"]["port_mapping"] if status else {"state": None}


def restart_router(lab, idx, *changes):
    """Starts miniupnpd anew, with lines of its configuration changed."""
    path = lab.folder / f"upnp{idx}.conf"
    text = path.read_text(encoding="ascii")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    lab.upnp_stop(idx)
    path.write_text(text, encoding="ascii")
    lab.upnp_start(idx)


def readdress(lab, address):
    """Gives the home's host another address."""
    host = lab.space(HOME)
    run("ip", "-n", host, "-4", "addr", "flush", "dev", "lan")
    run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "lan")
    run("ip", "-n", host, "route", "replace", "default", "via", f"{LAN4}.1")


def made_and_used(world, lab):
    """NAT-PMP; a node in another home dials the port."""
    world.set_key(OTHER, "listen", "")
    for idx in (HUB, HOME, OTHER):
        world.start(idx)
    world.wait("the home's port is mapped", lambda: mapping_of(world, HOME)["state"] == "mapped")
    mapping = mapping_of(world, HOME)
    assert mapping["by"] == "NAT-PMP" and mapping["address"] == world.address(HOME), mapping
    assert lab.mappings(HOME) == {PORT: INNER}, lab.mappings(HOME)
    home, other = world.short_id(HOME), world.short_id(OTHER)

    took = world.wait("the other home dials it", lambda: (world.peer(OTHER, home) or {}).get(
        "path") == "direct")
    print(f"linked by the port after {took:.1f} s")
    assert world.peer(OTHER, home)["address"] == world.address(HOME), world.peer(OTHER, home)
    assert world.peer(HOME, other)["path"] == "mapped", world.peer(HOME, other)
    assert world.get(HOME)["network"]["links"]["mapped"] >= 1, world.get(HOME)["network"]["links"]
    assert mapping_of(world, HUB)["state"] == "not_needed", mapping_of(world, HUB)
    assert mapping_of(world, OTHER)["state"] == "not_needed", mapping_of(world, OTHER)
    sentence = f"The router forwards {world.address(HOME)} to this node, by NAT-PMP"
    for verb in ("status", "peers", "doctor"):
        assert sentence in world.text_of(HOME, verb), world.text_of(HOME, verb)

    world.stop(HOME)
    assert lab.mappings(HOME) == {}, lab.mappings(HOME)
    assert "ev=port_given_back" in world.log(HOME)


def made_by_upnp(world, lab):
    """UPnP alone. The home's address changes, and its old one still has the port."""
    restart_router(lab, HOME, ("enable_natpmp=yes", "enable_natpmp=no"))
    world.start(HOME)
    world.wait("the home's port is mapped", lambda: mapping_of(world, HOME)["state"] == "mapped")
    mapping = mapping_of(world, HOME)
    assert mapping["by"] == "UPnP" and mapping["address"] == world.address(HOME), mapping
    assert lab.mappings(HOME) == {PORT: INNER}, lab.mappings(HOME)

    readdress(lab, f"{LAN4}.9")
    moved = (f"{LAN4}.9", PORT)
    world.wait("its new address is mapped", lambda: moved in lab.mappings(HOME).values() and
               mapping_of(world, HOME)["state"] == "mapped")
    port = int(mapping_of(world, HOME)["address"].rsplit(":", 1)[1])
    assert port != PORT and lab.mappings(HOME) == {PORT: INNER, port: moved}, lab.mappings(HOME)
    world.stop(HOME)
    assert lab.mappings(HOME) == {PORT: INNER}, lab.mappings(HOME)  # until its lease ends

    readdress(lab, f"{LAN4}.2")


def mapper(bin_dir, lab, *words):
    """port_mapper on the home's host."""
    return subprocess.Popen(
        [*lab.on(HOME), f"{bin_dir}/port_mapper", f"{LAN4}.2", str(PORT), "2", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def renewed(bin_dir, lab, protocol):
    """A lease of two seconds is renewed until the program ends."""
    with mapper(bin_dir, lab, *(["pcp"] if protocol == "PCP" else [])) as program:
        begin = time.monotonic()
        for count in range(4):
            line = program.stdout.readline().split()
            assert line == ["mapped", f"{lab.wan[HOME]}:{PORT}", str(count), protocol], line
            assert lab.mappings(HOME)[PORT] == INNER, lab.mappings(HOME)
        assert time.monotonic() - begin > 2.5  # longer than the lease
        program.stdin.close()
        assert program.wait(10) == 0
    assert lab.mappings(HOME) == {}, lab.mappings(HOME)


def left_behind(bin_dir, lab):
    """PCP: a mapping that a kill -9 left at the router belongs to the next start."""
    with mapper(bin_dir, lab, "pcp") as program:
        assert program.stdout.readline().startswith("mapped ")
        program.kill()
    assert lab.mappings(HOME) == {PORT: INNER}, lab.mappings(HOME)
    with mapper(bin_dir, lab, "pcp") as program:
        line = program.stdout.readline().split()
        assert line == ["mapped", f"{lab.wan[HOME]}:{PORT}", "0", "PCP"], line
        program.stdin.close()
        assert program.wait(10) == 0
    assert lab.mappings(HOME) == {}, lab.mappings(HOME)


def not_made(world, lab):
    """Why there is no port, and the way out."""
    restart_router(lab, HOME, ("enable_natpmp=yes", "enable_natpmp=no"),
                   ("allow 1024-65535", "deny 1024-65535"))
    world.start(HOME)
    world.wait("the router refuses", lambda: mapping_of(world, HOME)["state"] == "refused")
    assert f"forward TCP port {PORT} to {LAN4}.2" in mapping_of(world, HOME)["text"]
    assert "The router refuses" in world.text_of(HOME, "doctor"), world.text_of(HOME, "doctor")
    world.stop(HOME)

    run("ip", "-n", lab.router(HOME), "addr", "add", "100.64.0.9/24", "dev", "wan")
    run("ip", "-n", lab.router(HOME), "addr", "del", f"{lab.wan[HOME]}/24", "dev", "wan")
    restart_router(lab, HOME, ("enable_natpmp=no", "enable_natpmp=yes"))
    world.start(HOME)
    world.wait("double NAT is named", lambda: mapping_of(world, HOME)["state"] == "double_nat")
    assert "double NAT" in world.text_of(HOME, "doctor"), world.text_of(HOME, "doctor")
    assert lab.mappings(HOME) == {}, lab.mappings(HOME)  # the one by PCP was given back
    world.stop(HOME)

    world.stop(OTHER)
    world.set_key(OTHER, "listen", f"0.0.0.0:{PORT}")
    world.start(OTHER)
    world.wait("no router answers", lambda: mapping_of(world, OTHER)["state"] == "no_router")
    world.set_key(OTHER, "port_mapping", "off")
    run(world.tool("thinwire"), "reload", "--config", str(world.config(OTHER)))
    world.wait("it is off", lambda: mapping_of(world, OTHER)["state"] == "off")


def main():
    """All of it."""
    why = lacks(PLAN)
    if why:
        print(f"skipped: {why}")
        return 77
    with Lab(PLAN) as lab, tempfile.TemporaryDirectory() as folder:
        world = Homes(sys.argv[1], folder, lab, step_us=20000)
        try:
            made_and_used(world, lab)
            made_by_upnp(world, lab)
            restart_router(lab, HOME, ("enable_natpmp=no", "enable_natpmp=yes"))
            renewed(sys.argv[1], lab, "NAT-PMP")
            renewed(sys.argv[1], lab, "PCP")
            left_behind(sys.argv[1], lab)
            not_made(world, lab)
        except BaseException:
            for idx in range(world.count):
                print(f"---- n{idx}\n{world.log(idx)[-6000:]}")
            raise
        finally:
            world.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
