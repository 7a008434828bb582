#!/usr/bin/env python3
# lab.py - an internet of network namespaces, with homes behind real NAT.
"""A bridge is the internet. Public hosts and routers are plugged into it; behind each router is a
home of one host. Every home has the same private addresses, as real ones do.

    lab.py up PLAN               builds it and prints its NAME; PLAN as in '1 public + 2 cone'
    lab.py exec NAME IDX COMMAND...     runs on host IDX, counted from 0 in the order of the plan
    lab.py down NAME
    lab.py sweep                 takes away labs whose maker is gone

Classes of hosts:

    public     an address of the internet; IPv6, too
    full       home: mapping and filter endpoint-independent ("full cone")
    cone       home: mapping endpoint-independent (ports are kept), filter by address and port
    symmetric  home: another random port for each connection
    cgn        home of class cone, behind the carrier's router (all homes of this class share it)
    cgnsym     home of class cone, behind a symmetric router of the carrier
    fw6        home of class cone; IPv6 without NAT, and the router lets nothing in
    upnp       home of class cone whose router runs miniupnpd: UPnP-IGD, NAT-PMP, PCP
    dead       home whose router forwards nothing
    mate       another host in the home before it; its router returns no packets to its own address

Linux masquerades with the port of the sender where that is free, so `cone` maps by endpoint only
when two hosts of one home use one port. Its router drops unexpected packets without an answer.

Wants root, iproute2, nftables; `upnp` wants miniupnpd-nftables. As a module: `with Lab(plan) as
lab`. Names contain the maker's process id, so any number of labs can stand at a time.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

# The host of a home is .2 of its LAN, the router .1. These are real addresses of the internet, for
# miniupnpd refuses to map on any other; nothing of the lab gets out of its namespaces.
NET4, NET6, CARRIER4 = "11.0.0", "2600:1", "100.64.0"
LAN4 = "192.168.1"
CLASSES = ("public", "full", "cone", "symmetric", "cgn", "cgnsym", "fw6", "upnp", "dead",
           "mate")
WORD = {"home": "cone", "homes": "cone"}
PREFIX = "twn"


def run(*command, text=None):
    """A command that must succeed; its words are in the failure."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          input=text, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout}")
    return done.stdout


def within(space):
    """Begin of a command line in a namespace. `ip netns exec` gives each program mounts of its own
    besides, and under load the kernel may take minutes to end a program that has them."""
    return ["nsenter", f"--net=/run/netns/{space}"]


def parse(plan):
    """'1 public + 2 cone' -> ['public', 'cone', 'cone']; 'home' is a cone."""
    hosts = []
    for term in plan.split("+"):
        match = re.fullmatch(r"\s*(?:(\d+)\s+)?([a-z0-9]+)\s*", term)
        kind = WORD.get(match.group(2), match.group(2)) if match else None
        if kind not in CLASSES:
            raise ValueError(f"'{term.strip()}' is no 'COUNT CLASS'; classes: {', '.join(CLASSES)}")
        hosts += [kind] * int(match.group(1) or 1)
    if any(kind == "mate" and one in ("public", "mate")
           for one, kind in zip(["public", *hosts], hosts)):
        raise ValueError("a mate follows the home that it is in")
    if not 1 <= len(hosts) <= 100:
        raise ValueError("a lab has 1 to 100 hosts")
    return hosts


def lacks(plan=""):
    """Why this machine can have no such lab; None: it can."""
    if os.geteuid() != 0:
        return "wants root for network namespaces"
    tools = {"ip": "iproute2", "nft": "nftables", "tc": "iproute2"}
    if "upnp" in plan:
        tools["miniupnpd"] = "miniupnpd-nftables"
    for tool, package in tools.items():
        if shutil.which(tool) is None:
            return f"{tool} is not installed (package {package})"
    name = f"{PREFIX}{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "the kernel gives no network namespace"
    try:
        run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
        run(*within(name), "nft", "-f", "-", text=rules("symmetric"))
    except RuntimeError as why:
        return f"the kernel gives no bridge or no NAT: {why}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None


def rules(kind, has_ipv6=False):
    """Rules of a router, for nft. Its inner side is `lan`, its outer one `wan`."""
    masquerade = "masquerade fully-random" if kind in ("symmetric", "cgnsym") else "masquerade"
    text = f"""
table ip nat {{
    chain post {{
        type nat hook postrouting priority srcnat
        oifname "wan" {masquerade}
    }}
}}
table inet filter {{
    chain input {{
        type filter hook input priority filter; policy drop
        iifname {{ "lan", "lo" }} accept
        ct state established,related accept
        icmp type echo-request accept
        meta l4proto ipv6-icmp accept
    }}
    chain forward {{
        type filter hook forward priority filter; policy drop
        {'drop' if kind == 'dead' else 'ct state established,related accept'}
        iifname "lan" oifname "wan" accept
        ct status dnat accept
        {'meta l4proto ipv6-icmp accept' if has_ipv6 else ''}
    }}
}}
"""
    if kind == "full":
        text += """
table ip cone {
    map mapped {
        type inet_service : ipv4_addr
        size 4096
        flags dynamic,timeout
        timeout 10m
    }
    chain learn {
        type filter hook forward priority -10
        oifname "wan" tcp flags & (syn | ack) == syn update @mapped { tcp sport : ip saddr }
    }
    chain pre {
        type nat hook prerouting priority dstnat
        iifname "wan" dnat to tcp dport map @mapped
    }
}
"""
    if kind == "upnp":
        text += """
table inet upnp {
    chain forward {
        type filter hook forward priority 10
        jump mapped
    }
    chain mapped {
    }
    chain prerouting {
        type nat hook prerouting priority dstnat
        jump mapped_nat
    }
    chain mapped_nat {
    }
    chain postrouting {
        type nat hook postrouting priority 90
        jump mapped_post
    }
    chain mapped_post {
    }
}
"""
    return text


class Lab:
    """Namespaces of one plan: NAMEnet, NAMErIDX (a home's router), NAMEhIDX (a host), NAMEc and
    NAMEs (the carrier's routers)."""

    made = 0

    def __init__(self, plan, name=None):
        Lab.made += 1
        self.hosts = parse(plan)
        self.name = name or f"{PREFIX}{os.getpid()}x{Lab.made}"
        self.net = f"{self.name}net"
        self.wan_count = 0
        self.wan = {}    # host: its address as the internet sees it
        self.local = {}  # host: its own address
        self.folder = pathlib.Path("/tmp", f"{self.name}.d")  # miniupnpd's files
        self.daemons = {}  # host: its router's miniupnpd

    # ---- up and down

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and all here goes away
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def space(self, idx):
        """The name of a host's namespace."""
        return f"{self.name}h{idx}"

    def router(self, idx):
        """The name of the namespace of a host's router; a public host has none."""
        return f"{self.name}r{idx}" if self.hosts[idx] != "public" else None

    def _make(self, space, forwards=False):
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
        if forwards:
            run(*within(space), "sh", "-c",
                "echo 1 >/proc/sys/net/ipv4/ip_forward;"
                "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")

    def _cable(self, one, one_end, other, other_end):
        run("ip", "link", "add", one_end, "netns", one, "type", "veth", "peer", other_end, "netns",
            other)
        run("ip", "-n", one, "link", "set", one_end, "up")
        run("ip", "-n", other, "link", "set", other_end, "up")

    def _address(self, space, end, *addresses):
        for address in addresses:
            more = ["nodad"] if ":" in address else []
            run("ip", "-n", space, "addr", "add", address, "dev", end, *more)

    def _plug(self, space, bridge_space, bridge, end="wan"):
        """A cable to a bridge; the number of its socket."""
        self.wan_count += 1
        leg = f"leg{self.wan_count}"
        self._cable(space, end, bridge_space, leg)
        run("ip", "-n", bridge_space, "link", "set", leg, "master", bridge)
        return self.wan_count

    def _plug_internet(self, space, end="wan"):
        number = self._plug(space, self.net, "br0", end)
        self._address(space, end, f"{NET4}.{number + 1}/24", f"{NET6}::{number + 1:x}/64")
        for family, gateway in (("-4", f"{NET4}.1"), ("-6", f"{NET6}::1")):
            run("ip", "-n", space, family, "route", "add", "default", "via", gateway)
        return number + 1

    def _rule(self, space, kind, has_ipv6=False):
        run(*within(space), "nft", "-f", "-", text=rules(kind, has_ipv6))

    def _carrier_up(self, kind):
        space = f"{self.name}{'c' if kind == 'cgn' else 's'}"
        self._make(space, forwards=True)
        self._plug_internet(space)
        run("ip", "-n", space, "link", "add", "lan", "type", "bridge")
        run("ip", "-n", space, "link", "set", "lan", "up")
        self._address(space, "lan", f"{CARRIER4}.1/24")
        self._rule(space, "cgnsym" if kind == "cgnsym" else "cone")
        return space

    def _home_up(self, idx, kind, carriers):
        router, host = self.router(idx), self.space(idx)
        self._make(router, forwards=True)
        if kind.startswith("cgn"):
            if kind not in carriers:
                carriers[kind] = self._carrier_up(kind)
            number = self._plug(router, carriers[kind], "lan") + 1
            self._address(router, "wan", f"{CARRIER4}.{number}/24")
            run("ip", "-n", router, "route", "add", "default", "via", f"{CARRIER4}.1")
            self.wan[idx] = self.address_of(carriers[kind])
        else:
            number = self._plug_internet(router)
            self.wan[idx] = f"{NET4}.{number}"
        if self.hosts[idx + 1:idx + 2] == ["mate"]:
            run("ip", "-n", router, "link", "add", "lan", "type", "bridge")
            run("ip", "-n", router, "link", "set", "lan", "up")
            # the rules are for packets that the router forwards, not for the switch in it
            run(*within(router), "sh", "-c", "for key in /proc/sys/net/bridge/bridge-nf-call-ip*;"
                "do if [ -e $key ]; then echo 0 >$key; fi; done")
            self._plug(host, router, "lan", "lan")
        else:
            self._cable(host, "lan", router, "lan")
        self._address(router, "lan", f"{LAN4}.1/24")
        self._address(host, "lan", f"{LAN4}.2/24")
        run("ip", "-n", host, "route", "add", "default", "via", f"{LAN4}.1")
        self.local[idx] = f"{LAN4}.2"
        if kind == "fw6":
            home = f"{NET6}:0:{number:x}"
            self._address(router, "lan", f"{home}::1/64")
            self._address(host, "lan", f"{home}::2/64")
            run("ip", "-n", host, "-6", "route", "add", "default", "via", f"{home}::1")
            run("ip", "-n", self.net, "-6", "route", "add", f"{home}::/64", "via",
                f"{NET6}::{number:x}")
        self._rule(router, kind if kind in ("symmetric", "full", "upnp", "dead") else "cone",
                   kind == "fw6")

    def _mate_up(self, idx):
        """Another host in the home of the one before it."""
        host, home = self.space(idx), idx - 1
        self._plug(host, self.router(home), "lan", "lan")
        self._address(host, "lan", f"{LAN4}.3/24")
        run("ip", "-n", host, "route", "add", "default", "via", f"{LAN4}.1")
        self.local[idx], self.wan[idx] = f"{LAN4}.3", self.wan[home]

    def up(self):
        """Builds it."""
        self._make(self.net, forwards=True)
        run("ip", "-n", self.net, "link", "add", "br0", "type", "bridge")
        self._address(self.net, "br0", f"{NET4}.1/24", f"{NET6}::1/64")
        run("ip", "-n", self.net, "link", "set", "br0", "up")
        carriers = {}
        for idx, kind in enumerate(self.hosts):
            self._make(self.space(idx))
            if kind == "public":
                number = self._plug_internet(self.space(idx))
                self.wan[idx] = self.local[idx] = f"{NET4}.{number}"
            elif kind == "mate":
                self._mate_up(idx)
            else:
                self._home_up(idx, kind, carriers)
            if kind == "upnp":
                self._upnp_up(idx)

    def address_of(self, space, end="wan"):
        """The IPv4 address of an end of a cable."""
        text = run("ip", "-n", space, "-4", "-br", "addr", "show", "dev", end)
        return text.split()[2].split("/")[0]

    def address6(self, idx):
        """The host's IPv6 address of the internet, or None."""
        end = "wan" if self.hosts[idx] == "public" else "lan"
        text = run("ip", "-n", self.space(idx), "-6", "-br", "addr", "show", "dev", end)
        found = [word.split("/")[0] for word in text.split()[2:] if word.startswith("2600:")]
        return found[0] if found else None

    def spaces(self):
        """Names of all namespaces of this lab that there are."""
        names = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line]
        return [name for name in names if re.fullmatch(f"{self.name}(net|c|s|[rh][0-9]+)", name)]

    def down(self):
        """Ends all that runs in its namespaces, and takes them away; also of half a lab."""
        for space in self.spaces():
            pids = run("ip", "netns", "pids", space).split()
            for pid in pids:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for daemon in self.daemons.values():
            daemon.wait()
        for space in self.spaces():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- a router with port mappings

    def _upnp_up(self, idx):
        self.folder.mkdir(mode=0o700, exist_ok=True)
        config = self.folder / f"upnp{idx}.conf"
        config.write_text(f"""
ext_ifname=wan
listening_ip=lan
port=5000
enable_upnp=yes
enable_natpmp=yes
min_lifetime=120
max_lifetime=86400
secure_mode=yes
notify_interval=900
uuid=00000000-0000-4000-8000-0000000000{idx:02x}
lease_file={self.folder}/upnp{idx}.leases
upnp_table_name=upnp
upnp_nat_table_name=upnp
upnp_forward_chain=mapped
upnp_nat_chain=mapped_nat
upnp_nat_postrouting_chain=mapped_post
allow 1024-65535 {LAN4}.0/24 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
""", encoding="ascii")
        self.upnp_start(idx)

    def upnp_stop(self, idx):
        """Ends a router's miniupnpd. A signal that comes while it starts is lost: then by force."""
        self.daemons[idx].terminate()
        try:
            self.daemons[idx].wait(5)
        except subprocess.TimeoutExpired:
            self.daemons[idx].kill()
            self.daemons[idx].wait()

    def upnp_start(self, idx):
        """Starts a router's miniupnpd with its configuration file."""
        config = self.folder / f"upnp{idx}.conf"
        log = open(self.folder / f"upnp{idx}.log", "ab")
        self.daemons[idx] = subprocess.Popen(
            [*within(self.router(idx)), "miniupnpd", "-d", "-f", str(config), "-P",
             str(self.folder / f"upnp{idx}.pid")], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL)
        log.close()
        end = time.monotonic() + 10
        while ":5000 " not in run(*within(self.router(idx)), "ss", "-ltn"):
            if self.daemons[idx].poll() is not None or time.monotonic() > end:
                text = (self.folder / f"upnp{idx}.log").read_text(encoding="utf-8")
                raise RuntimeError(f"miniupnpd does not start: {text[-500:]}")
            time.sleep(0.05)

    def mappings(self, idx):
        """{external port: (inner address, inner port)} of a router's miniupnpd."""
        text = run(*within(self.router(idx)), "nft", "list", "chain", "inet", "upnp",
                   "mapped_nat")
        found = re.findall(r"dport (\d+) .*?dnat ip to ([\d.]+):(\d+)", text)
        return {int(outer): (host, int(inner)) for outer, host, inner in found}

    # ---- actions on the lab

    def on(self, idx):
        """Prefix of a command line that runs on a host."""
        return within(self.space(idx))

    def rate(self, idx, up_kbit, down_kbit, queue_ms=100):
        """Shapes the line of a host's home, at the outer side; None takes the shaping away."""
        space = self.router(idx) or self.space(idx)
        legs = run("ip", "-n", space, "-o", "link", "show", "dev", "wan")
        peer = re.search(r"wan@if(\d+)", legs).group(1)
        far = self.net if not self.hosts[idx].startswith("cgn") else \
            f"{self.name}{'c' if self.hosts[idx] == 'cgn' else 's'}"
        leg = re.search(rf"^{peer}: (leg\d+)@", run("ip", "-n", far, "-o", "link", "show"),
                        re.M).group(1)
        for name, end, kbit in ((space, "wan", up_kbit), (far, leg, down_kbit)):
            subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", end, "root"],
                           capture_output=True, check=False)
            if kbit is None:
                continue
            run("tc", "-n", name, "qdisc", "add", "dev", end, "root", "tbf", "rate", f"{kbit}kbit",
                "burst", str(max(4000, kbit * 4)), "latency", f"{queue_ms}ms")

    def cut(self, idx):
        """The line of a host's home is dead; its host notices nothing."""
        run("ip", "-n", self.router(idx) or self.space(idx), "link", "set", "wan", "down")

    def mend(self, idx):
        """The line is whole again. The kernel forgot its routes."""
        space = self.router(idx) or self.space(idx)
        run("ip", "-n", space, "link", "set", "wan", "up")
        if self.hosts[idx].startswith("cgn"):
            run("ip", "-n", space, "route", "replace", "default", "via", f"{CARRIER4}.1")
            return
        run("ip", "-n", space, "route", "replace", "default", "via", f"{NET4}.1")
        number = self.address_of(space).rsplit(".", 1)[1]
        self._address(space, "wan", f"{NET6}::{int(number):x}/64")
        run("ip", "-n", space, "-6", "route", "replace", "default", "via", f"{NET6}::1")

    def forget(self, idx):
        """The router starts anew: it knows no connection any more."""
        run(*within(self.router(idx)), "conntrack", "-F")


def sweep():
    """Takes away labs whose maker is gone; returns how many namespaces that were."""
    gone = 0
    for line in run("ip", "netns", "list").splitlines():
        match = re.match(rf"({PREFIX}(\d+)x\d+)(net|c|s|[rh]\d+)\b", line)
        if match is None or os.path.exists(f"/proc/{match.group(2)}"):
            continue
        for pid in run("ip", "netns", "pids", match.group(0)).split():
            os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "del", match.group(0))
        shutil.rmtree(f"/tmp/{match.group(1)}.d", ignore_errors=True)
        gone += 1
    return gone


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up").add_argument("plan")
    one = verbs.add_parser("exec")
    one.add_argument("name")
    one.add_argument("idx", type=int)
    one.add_argument("words", nargs=argparse.REMAINDER)
    verbs.add_parser("down").add_argument("name")
    verbs.add_parser("sweep")
    args = parser.parse_args()
    if args.verb == "sweep":
        print(f"{sweep()} namespaces taken away")
        return 0
    if args.verb == "exec":
        command = [*within(f"{args.name}h{args.idx}"), *args.words]
        return subprocess.run(command, check=False).returncode
    if args.verb == "down":
        if not re.fullmatch(rf"{PREFIX}\d+x\d+", args.name):
            raise SystemExit(f"lab: {args.name} is no name of a lab")
        Lab("1 public", name=args.name).down()
        return 0
    why = lacks(args.plan)
    if why:
        print(f"lab: {why}", file=sys.stderr)
        return 77
    # the shell made it: this process ends at once
    lab = Lab(args.plan, name=f"{PREFIX}{os.getppid()}x{time.time_ns() % 100000}")
    try:
        lab.up()
    except BaseException:
        lab.down()
        raise
    print(lab.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
