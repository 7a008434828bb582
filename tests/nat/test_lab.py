#!/usr/bin/env python3
# test_lab.py - the lab's NATs behave as their classes.
"""test_lab.py [-v] - root, network namespaces and nft, else it is skipped (77).

TCP alone, as nodes speak nothing else. Checks of each class:

    mapping    two connections from one port are seen from one port (endpoint-independent), or not
    filter     a stranger gets through to that port, or not
    punch      two homes that dial each other at the same time, by the ports that a public host saw
"""
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import lab as lab_module
from lab import Lab, lacks

PORT = 4747
PLAN = "2 public + full + 2 cone + 2 symmetric + 2 cgn + 1 cgnsym + fw6 + upnp + dead"
PATIENCE_S = 10

# On a public host: tells each client its address.
MIRROR = f"""
import json, socket
server = socket.create_server(("0.0.0.0", {PORT}), backlog=16)
while True:
    link, name = server.accept()
    link.sendall(json.dumps(name[:2]).encode())
    link.close()
"""

# Actions of hosts: argv are the verb and its words.
HOST = """
import json, socket, struct, sys, time

def make(port, patience_s=3):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.settimeout(patience_s)
    one.bind(("0.0.0.0", port))
    return one

def seen(address, port):
    try:
        one = make(port)
        one.connect((address, 4747))
        return json.loads(one.recv(100))
    except OSError:
        return None

def dial(address, port):
    try:
        one = socket.create_connection((address, int(port)), 3)
        return one.recv(5) == b"hello"
    except OSError:
        return False

def listen(port, seconds):
    one = make(port, seconds)
    one.listen(4)
    print("ready", flush=True)
    try:
        link, _ = one.accept()
        link.sendall(b"hello")
        time.sleep(0.2)
        return True
    except OSError:
        return False

def punch(port, address, there, begin, seconds):
    # the simultaneous open: both dial from the mapped port, again and again
    time.sleep(max(0, begin - time.time()))
    end = time.time() + seconds
    while time.time() < end:
        one = make(port, 0.7)
        # a failed try leaves no TIME_WAIT behind, which would refuse the next ones
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            one.connect((address, there))
            one.settimeout(seconds)
            one.sendall(b"hello")
            if one.recv(5) == b"hello":
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
                return True
        except OSError:
            time.sleep(0.05)
        one.close()
    return False

words = sys.argv[2:]
print(json.dumps({
    "seen": lambda: [seen(address, int(words[0])) for address in words[1:]],
    "dial": lambda: dial(*words),
    "listen": lambda: listen(int(words[0]), float(words[1])),
    "punch": lambda: punch(int(words[0]), words[1], int(words[2]), float(words[3]),
                           float(words[4])),
}[sys.argv[1]]()), flush=True)
"""


def proc_of(pid):
    """State of a process, and where in the kernel it waits."""
    found = {}
    for name in ("cmdline", "status", "wchan", "syscall", "stack", "net/tcp"):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")
            found[name] = text.replace("\0", " ")[:2000]
    return json.dumps(found, indent=1)


class World:
    """A lab, its mirrors, and the faults found."""

    def __init__(self, lab, is_verbose):
        self.lab, self.is_verbose, self.wrong, self.processes = lab, is_verbose, [], []
        self.public = [idx for idx, kind in enumerate(lab.hosts) if kind == "public"]
        for idx in self.public:
            self.processes.append(subprocess.Popen(lab.on(idx) + [sys.executable, "-c", MIRROR]))
        end = time.monotonic() + PATIENCE_S
        while not all(self.do(idx, "seen", "40000", "127.0.0.1")[0] for idx in self.public):
            if time.monotonic() > end:
                raise RuntimeError("the mirrors do not start")

    def start(self, idx, *words):
        """A verb on a host, in the background."""
        return subprocess.Popen(self.lab.on(idx) + [sys.executable, "-c", HOST,
                                                    *map(str, words)], stdout=subprocess.PIPE,
                                text=True)

    @staticmethod
    def answer(process):
        """Output of the ended program. Its verbs end within seconds; on a machine that stands still
        the program may need longer to start, and this says what it waits for."""
        try:
            return json.loads(process.communicate(timeout=30)[0].splitlines()[-1])
        except subprocess.TimeoutExpired:
            print(f"no answer within 30 s, load {os.getloadavg()}: {proc_of(process.pid)}",
                  flush=True)
        return json.loads(process.communicate(timeout=120)[0].splitlines()[-1])

    def do(self, idx, *words):
        """A verb on a host, to its end."""
        return self.answer(self.start(idx, *words))

    def expect(self, what, found, wanted):
        """Notes a fault if the check fails."""
        if self.is_verbose or found != wanted:
            print(f"{'ok   ' if found == wanted else 'WRONG'} {what}: {found}")
        if found != wanted:
            self.wrong.append(what)

    def of(self, kind):
        """Hosts of a class."""
        return [idx for idx, one in enumerate(self.lab.hosts) if one == kind]

    def seen(self, idx, port):
        """The addresses from which a connection from `port` comes to two public hosts."""
        return self.do(idx, "seen", port, *(self.lab.wan[host] for host in self.public[:2]))

    def end(self):
        """Ends the mirrors."""
        for process in self.processes:
            process.kill()
            process.wait()


def mappings(world):
    """Addresses that each public host sees of each home."""
    lab = world.lab
    for idx, kind in enumerate(lab.hosts):
        if kind == "public":
            continue
        first, second = world.seen(idx, 41000 + idx)
        if kind == "dead":
            world.expect("dead: reaches nobody", (first, second), (None, None))
            continue
        if first is None or second is None:
            world.expect(f"{kind}: reaches the internet", (first, second), "two addresses")
            continue
        world.expect(f"{kind}: is seen at its router", first[0], lab.wan[idx])
        is_one = kind not in ("symmetric", "cgnsym")
        world.expect(f"{kind}: one port for both", first[1] == second[1], is_one)
    cgn = world.of("cgn")
    world.expect("cgn: two homes, one address", lab.wan[cgn[0]] == lab.wan[cgn[1]], True)


def filters(world):
    """Homes that a stranger reaches: the first public host was dialled, the second was not."""
    for kind in ("full", "cone", "fw6", "cgn"):
        idx, port = world.of(kind)[0], 42000 + world.of(kind)[0]
        listening = world.start(idx, "listen", port, 5)
        listening.stdout.readline()
        seen = world.do(idx, "seen", port, world.lab.wan[world.public[0]])[0]
        is_in = world.do(world.public[1], "dial", *seen) if seen else None
        world.expect(f"{kind}: a stranger gets in", is_in, kind == "full")
        listening.kill()
        listening.wait()


def punches(world):
    """Pairs of homes that dial each other at the addresses that the first public host saw."""
    pairs = (("cone", "cone", True), ("full", "cone", True), ("cone", "cgn", True),
             ("cgn", "fw6", True), ("cone", "symmetric", False), ("symmetric", "symmetric", False))
    mirror = world.lab.wan[world.public[0]]
    ports = itertools.count(43000)

    def meet(left, right, seconds):
        here = {left: next(ports), right: next(ports)}
        seen = {idx: world.do(idx, "seen", port, mirror)[0] for idx, port in here.items()}
        begin = time.time() + 1
        both = [world.start(idx, "punch", here[idx], *seen[to], begin, seconds)
                for idx, to in ((left, right), (right, left))]
        return all([world.answer(process) for process in both])

    for one, other, wanted in pairs:
        left, right = world.of(one)[0], world.of(other)[-1]
        found = meet(left, right, 4)
        if wanted and not found:  # both missed each other on a busy machine: with more patience
            found = meet(left, right, 20)
        world.expect(f"punch {one} to {other}", found, wanted)


def upnp(world):
    """A mapping made at a real miniupnpd lets a stranger in; by UPnP-IGD and by NAT-PMP."""
    idx = world.of("upnp")[0]
    tools = {"upnpc": ["upnpc", "-a", f"{lab_module.LAN4}.2", "44000", "44000", "tcp", "600"],
             "natpmpc": ["natpmpc", "-a", "44001", "44001", "tcp", "600"]}
    for port, (tool, command) in zip((44000, 44001), tools.items()):
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run(["which", tool], capture_output=True, check=False).returncode:
                continue
            subprocess.run(world.lab.on(idx) + command, capture_output=True, check=False)
            world.expect(f"upnp: {tool} maps a port", world.lab.mappings(idx).get(port),
                         (f"{lab_module.LAN4}.2", port))
            listening = world.start(idx, "listen", port, 5)
            listening.stdout.readline()
            world.expect(f"upnp: a stranger gets in by {tool}'s mapping",
                         world.do(world.public[1], "dial", world.lab.wan[idx], port), True)
            world.answer(listening)


def lines(world):
    """A line can be cut, mended and held to a rate."""
    lab, idx = world.lab, world.of("cone")[0]
    mirror = lab.wan[world.public[0]]
    lab.cut(idx)
    world.expect("cut: reaches nobody", world.do(idx, "seen", 45000, mirror)[0], None)
    lab.mend(idx)
    world.expect("mend: reaches", world.do(idx, "seen", 45001, mirror)[0] is not None, True)
    lab.rate(idx, 1000, 1000)
    shown = subprocess.run(["tc", "-n", lab.router(idx), "qdisc", "show", "dev", "wan"],
                           capture_output=True, text=True, check=True).stdout
    world.expect("rate: 1 Mbit/s at the router", "tbf" in shown and "rate 1Mbit" in shown, True)
    lab.rate(idx, None, None)
    six = world.of("fw6")[0]
    found = subprocess.run(lab.on(six) + [sys.executable, "-c", (
        "import socket\n"
        f"try: socket.create_connection(('{lab.address6(world.public[0])}', 9), 3)\n"
        "except ConnectionRefusedError: print('refused')")], capture_output=True, text=True,
                           check=False).stdout
    world.expect("fw6: IPv6 without NAT", found.strip(), "refused")


def main():
    """All of it."""
    why = lacks(PLAN)
    if why:
        print(f"skipped: {why}")
        return 77
    with Lab(PLAN) as lab:
        name = lab.name
        world = World(lab, "-v" in sys.argv)
        try:
            for part in (mappings, filters, punches, upnp, lines):
                part(world)
        finally:
            world.end()
    left = [line for line in lab_module.run("ip", "netns", "list").splitlines()
            if line.startswith(name)]
    world.expect("nothing is left", left, [])
    print("\n".join(f"WRONG {line}" for line in world.wrong) or "the NATs are as their classes say")
    return 1 if world.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
