"""far.py - hosts that are far from each other: every packet is late, none is lost.

Each host is a namespace with a switch of its own. A wirefilter joins it to one common switch and
delays its packets both ways. Needs root and the packages vde2 and iproute2.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from wan.lab import host_up, pid_end, run


class Far:
    """`count` hosts, for nodes.Nodes. `rtt_ms`: a packet from one host to another and back."""

    def __init__(self, count, rtt_ms):
        self.count, self.delay_ms = count, rtt_ms / 4  # a round trip passes four filters
        self.folder = None

    def space(self, idx):
        """The name of a host's namespace."""
        return f"twf{os.getpid()}x{idx}"

    @staticmethod
    def address(idx):
        """Address of a host."""
        return f"10.84.0.{idx + 1}"

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are removed
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="twfar", dir="/tmp"))
        try:
            self._up()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, *_):
        self._down()

    def _up(self):
        hub = self.folder / "hub"
        run("vde_switch", "-s", str(hub), "-d", "-p", f"{hub}.pid")
        for idx in range(self.count):
            switch = self.folder / f"s{idx}"
            host_up(self.space(idx), switch, self.address(idx))
            run("wirefilter", "-v", f"{switch}:{hub}", "-d", f"{self.delay_ms:g}", "--daemon",
                "--pidfile", str(self.folder / f"f{idx}.pid"))

    def _down(self):
        for path in self.folder.glob("*.pid"):
            pid_end(path)
        for idx in range(self.count):
            for command in (["netns", "del"], ["link", "del"]):
                subprocess.run(["ip", *command, self.space(idx)], capture_output=True,
                               check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
