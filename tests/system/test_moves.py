#!/usr/bin/env python3
# test_moves.py - two hosts whose addresses fail and change under two daemons.
"""test_moves.py BIN - needs root and network namespaces, or is skipped.

`a` and `b` are joined by one cable, with IPv4 and IPv6. First the IPv6 address that `b` knows of
`a` drops all packets: the link must not wait for it. Then `b` gets another address, then `a`, which
`b` is configured to dial. Each time they must find each other at the new address.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 90
PORT = 4747


def run(*command):
    """Runs a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def lacks():
    """Why the test cannot run on this machine; None: it can."""
    if os.geteuid() != 0:
        return "wants root for network namespaces"
    if shutil.which("ip") is None:
        return "ip is not installed (package iproute2)"
    name = f"tw{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "the kernel gives no network namespace"
    run("ip", "netns", "del", name)
    return None


class Hosts:
    """Namespaces a and b with a cable between them, and a daemon in each."""

    def __init__(self, bin_dir, folder):
        self.bin, self.folder = pathlib.Path(bin_dir).resolve(), pathlib.Path(folder)
        self.processes = {}
        self.prefix = f"twm{os.getpid()}"

    def ip(self, host, *words):
        """Runs `ip` on a host."""
        run("ip", "-n", self.prefix + host, *words)

    def up(self):
        """Makes the cable and the first addresses."""
        for host in "ab":
            run("ip", "netns", "add", self.prefix + host)
            self.ip(host, "link", "set", "lo", "up")
        run("ip", "link", "add", "cable", "netns", self.prefix + "a", "type", "veth", "peer",
            "cable", "netns", self.prefix + "b")
        for host, number in (("a", 1), ("b", 2)):
            self.ip(host, "addr", "add", f"10.9.0.{number}/24", "dev", "cable")
            self.ip(host, "addr", "add", f"fd00:9::{number}/64", "dev", "cable", "nodad")
            self.ip(host, "link", "set", "cable", "up")
        # IPv6 packets of b arrive, but no answer comes back.
        self.ip("a", "-6", "route", "add", "blackhole", "fd00:9::2/128")

    def down(self):
        """Ends the daemons and removes the namespaces."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        for host in "ab":
            subprocess.run(["ip", "netns", "del", self.prefix + host], capture_output=True,
                           check=False)

    def tool(self, *words):
        """Runs the command line tool."""
        return run(self.bin / "thinwire", *words)

    def configure(self, host, *more):
        """Makes the files of a host's node; returns its id."""
        config = self.folder / f"{host}.conf"
        worker = self.folder / "worker"
        worker.write_text(f"#!/bin/sh\nexec {self.bin / 'stub_worker'} --step-us 20000 \"$@\"\n",
                          encoding="ascii")
        worker.chmod(0o755)
        said = self.tool("init", "--config", config, "--state-dir", self.folder / host, "--run-dir",
                         self.folder / f"{host}.run", "--run", self.folder / "run.manifest",
                         "--data", self.folder / "text", *more)
        text = config.read_text(encoding="ascii")
        config.write_text(text.replace("[node]\n", f"[node]\nworker_path = {worker}\n", 1),
                          encoding="ascii")
        return re.search(r"\b[0-9a-f]{64}\b", said).group()

    def start(self, host):
        """Starts the daemon of a host."""
        with open(self.folder / f"{host}.log", "wb") as log:
            self.processes[host] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.prefix}{host}", str(self.bin / "thinwired"),
                 "--config", str(self.folder / f"{host}.conf")], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL)

    def log(self, host):
        """Log of the daemon."""
        return (self.folder / f"{host}.log").read_text(errors="replace")

    def peers(self, host):
        """Rows of `peers`; None without an answer."""
        done = subprocess.run([self.bin / "thinwire", "peers", "--json", "--config",
                               self.folder / f"{host}.conf"], capture_output=True, text=True,
                              check=False)
        return json.loads(done.stdout)["peers"] if done.returncode == 0 else None

    def answers(self, host):
        """True when the daemon of a host is up."""
        return self.peers(host) is not None

    def wait(self, what, is_so):
        """Waits until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {PATIENCE_S} s: {what}\n--- a\n{self.log('a')}"
                                   f"\n--- b\n{self.log('b')}")
            time.sleep(0.1)

    def is_alive(self, host, address=""):
        """True when it sees the other node as alive, at that address."""
        return any(peer["link"] == "alive" and (peer["address"] or "").startswith(address)
                   for peer in self.peers(host) or [])


def test(hosts):
    """The three cases, one after the other."""
    (hosts.folder / "text").write_text("In the beginning was the word.\n" * 4000, encoding="ascii")
    hosts.tool("run", "new", "moves", "--data", hosts.folder / "text", "--out",
               hosts.folder / "run.manifest", "--set", "model.layers=2", "--set", "model.width=32",
               "--set", "model.heads=2", "--set", "model.context=32")
    node = hosts.configure("a")
    where = [f"[fd00:9::1]:{PORT}={node}", f"10.9.0.1:{PORT}={node}"]
    hosts.configure("b", "--peers", ",".join(where))
    hosts.start("a")
    hosts.wait("a answers", lambda: hosts.answers("a"))
    # Without a default route a must still find the address at which b can dial it.
    ticket = hosts.tool("invite", "--json", "--config", hosts.folder / "a.conf")
    for own in (f"[fd00:9::1]:{PORT}", f"10.9.0.1:{PORT}"):
        assert own in ticket, f"{own} is not in {ticket}"
    hosts.start("b")
    hosts.wait("a link beside the silent address", lambda: "ev=peer_up" in hosts.log("b"))
    before = hosts.log("b").split("ev=peer_up")[0]
    assert "ev=dial_failed" not in before, f"it waited for the silent address:\n{before}"
    hosts.wait("a link over IPv4", lambda: hosts.is_alive("b", "10.9.0.1:"))

    for moves, stays, old, new in (("b", "a", "10.9.0.2", "10.9.0.7"),
                                   ("a", "b", "10.9.0.1", "10.9.0.8")):
        hosts.ip(moves, "addr", "del", f"{old}/24", "dev", "cable")
        hosts.ip(moves, "addr", "add", f"{new}/24", "dev", "cable")
        hosts.wait(f"{moves} notices its address",
                   lambda: "ev=address_changed" in hosts.log(moves))
        hosts.wait(f"{stays} has {moves} at its new address",
                   lambda: hosts.is_alive(stays, f"{new}:"))
        hosts.wait(f"{moves} has {stays} again", lambda: hosts.is_alive(moves))
        print(f"{moves} moved from {old} to {new}: alive again")


def main():
    """Skips, or runs the test in a folder of its own."""
    why = lacks()
    if why:
        print(f"test_moves: {why}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory(prefix="twmove", dir="/tmp") as folder:
        hosts = Hosts(sys.argv[1], folder)
        try:
            hosts.up()
            test(hosts)
        finally:
            hosts.down()
    return 0


sys.exit(main())
