"""star.py - hosts on lines of their own to one switch, on one machine.

Network namespaces behind vde2's wirefilter, as in tests/system/wan/lab.py: each host has a line of
the same rate, half of the delay between two hosts, and a queue in each direction. Host I is
10.78.0.(I + 1). Needs root and the packages vde2 and iproute2. As a module: `with Star(5) as star`.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/system/wan"))

# pylint: disable=wrong-import-position,unused-import
from lab import filter_set, host_up, lacks, pid_end, run


def address(host):
    """The address of a host."""
    return f"10.78.0.{host + 1}"


class Star:
    """Hosts behind lines of 20 Mbit/s, 100 ms there and back between any two."""

    def __init__(self, hosts, rate_bytes_s=2500000, delay_ms=25, queue_bytes=1000000):
        self.hosts = hosts
        self.args = {"-d": delay_ms, "-b": rate_bytes_s, "-c": queue_bytes}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="twstar", dir="/tmp"))

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the star is removed
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def space(self, host):
        """The name of a host's namespace, and of its interface."""
        return f"{self.folder.name}{host}"

    def up(self):
        """Builds switch, hosts and lines."""
        hub, numbers = self.folder / "hub", [str(w) for pair in self.args.items() for w in pair]
        run("vde_switch", "-s", str(hub), "-n", "64", "-d", "-p", f"{hub}.pid")
        for host in range(self.hosts):
            switch = self.folder / f"switch{host}"
            host_up(self.space(host), switch, address(host))
            line = self.folder / f"line{host}"
            run("wirefilter", "-v", f"{switch}:{hub}", *numbers, "-M", str(line), "--daemon",
                "--pidfile", f"{line}.pid")

    def down(self):
        """Ends the processes of all hosts and removes the star, also when half of it was built."""
        for host in range(self.hosts):
            self.signal(host, signal.SIGKILL)
        for path in self.folder.glob("*.pid"):
            pid_end(path)
        for host in range(self.hosts):
            for command in (["netns", "del"], ["link", "del"]):
                subprocess.run(["ip", *command, self.space(host)], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def on(self, host):
        """Begin of a command line on a host, whose name is its address: programs send it to each
        other as the place where they listen."""
        return ["nsenter", f"--net=/run/netns/{self.space(host)}", "unshare", "--uts", "sh", "-c",
                'echo "$0" >/proc/sys/kernel/hostname && exec "$@"', address(host)]

    def cut(self, host, is_cut):
        """Cuts a host's line, or joins it again."""
        filter_set(self.folder / f"line{host}", f"loss {100 if is_cut else 0}")

    def signal(self, host, number):
        """Sends a signal to all processes of a host."""
        done = subprocess.run(["ip", "netns", "pids", self.space(host)], capture_output=True,
                              text=True, check=False)
        for pid in done.stdout.split():
            try:
                os.kill(int(pid), number)
            except ProcessLookupError:
                pass

    def sent_bytes(self):
        """Bytes that all hosts have sent, with the headers of all layers."""
        total = 0
        for host in range(self.hosts):
            name = self.space(host)
            link = json.loads(run("ip", "-n", name, "-s", "-j", "link", "show", "dev", name))
            total += link[0]["stats64"]["tx"]["bytes"]
        return total
