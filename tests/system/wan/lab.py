#!/usr/bin/env python3
# lab.py - two hosts and the bad link between them, on one machine.
"""Network namespaces joined by vde2's wirefilter, which delays, limits and loses packets.

    lab.py up [--delay MS] [--rate BYTES_S] [--loss PERCENT] [--queue BYTES]   prints its FOLDER
    lab.py exec FOLDER a|b COMMAND...       runs a command; a is 10.77.0.1, b is 10.77.0.2
    lab.py set FOLDER COMMAND...            sets the filter, e.g. 'loss 100', 'delay LR 80'
    lab.py down FOLDER

Delay and loss are one way and apply to both. LEFT to right (LR) is from a to b. As a module: `with
Lab(loss=1) as lab`. Every lab has names of its own, so any number can exist at a time.
Processes are ended by their id. Needs root and the packages vde2 and iproute2.
"""
import argparse
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SIDES = {"a": "10.77.0.1", "b": "10.77.0.2"}
PATIENCE_S = 20
PROBE = f"""
import socket
try: socket.create_connection(("{SIDES['b']}", 9), 1)
except ConnectionRefusedError: pass
except OSError: raise SystemExit(1)
"""


def lacks():
    """Why this machine can have no lab; None: it can."""
    if os.geteuid() != 0:
        return "wants root for network namespaces"
    for tool in ("vde_switch", "wirefilter", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (packages vde2 and iproute2)"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    name = f"tw{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "the kernel gives no network namespace"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def run(*command):
    """Runs a command that must succeed; the failure has its output."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait_for(what, is_there):
    """Waits until `is_there` is true."""
    end = time.monotonic() + PATIENCE_S
    while not is_there():
        if time.monotonic() > end:
            raise RuntimeError(f"{what} did not come within {PATIENCE_S} s")
        time.sleep(0.02)


def pid_end(path):
    """Ends the process of a pid file, if it still belongs to the lab."""
    try:
        pid = int(path.read_text(encoding="ascii"))
        name = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return
    if name not in ("vde_switch", "wirefilter"):
        return
    os.kill(pid, signal.SIGTERM)
    wait_for(f"the end of {name}", lambda: not os.path.exists(f"/proc/{pid}"))


def host_up(space, switch, address):
    """Makes a namespace and a switch, with a cable between them."""
    run("ip", "netns", "add", space)
    run("ip", "tuntap", "add", "dev", space, "mode", "tap")
    run("vde_switch", "-s", str(switch), "-t", space, "-d", "-p", f"{switch}.pid")
    run("ip", "link", "set", space, "up")
    # vde_switch goes to the background before it has opened the tap
    carrier = pathlib.Path(f"/sys/class/net/{space}/carrier")
    wait_for("the tap", lambda: carrier.read_text(encoding="ascii").strip() == "1")
    run("ip", "link", "set", space, "netns", space)
    run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", space)
    run("ip", "-n", space, "link", "set", "lo", "up")
    run("ip", "-n", space, "link", "set", space, "up")


def filter_set(path, *commands):
    """Sends commands such as 'loss 100' to the filter with this management socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(PATIENCE_S)
        link.connect(str(path))
        filter_answer(link)
        for command in commands:
            link.sendall(command.encode() + b"\n")
            answer = filter_answer(link)
            if b"1000" not in answer:
                raise RuntimeError(f"wirefilter does not take '{command}': {answer!r}")


def filter_answer(link):
    """The filter's words up to its prompt."""
    got = b""
    while not got.rstrip().endswith(b"VDEwf$"):
        more = link.recv(4096)
        if not more:
            break
        got += more
    return got


class Lab:
    """Two namespaces and a filter. Defaults: 20 Mbit/s, 50 ms each way, 1 MB of queue."""

    def __init__(self, delay_ms=50, rate_bytes_s=2500000, loss=0, queue_bytes=1000000,
                 folder=None):
        self.args = {"-d": delay_ms, "-b": rate_bytes_s, "-l": loss, "-c": queue_bytes}
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="twlab", dir="/tmp"))
        self.name = self.folder.name

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the lab is removed
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def space(self, side):
        """The name of a side's namespace."""
        return self.name + side

    def up(self):
        """Builds the lab and waits until the hosts reach each other."""
        for side, address in SIDES.items():
            host_up(self.space(side), self.folder / side, address)
        numbers = [str(word) for pair in self.args.items() for word in pair]
        run("wirefilter", "-v", f"{self.folder / 'a'}:{self.folder / 'b'}", *numbers,
            "-M", str(self.folder / "filter"), "--daemon", "--pidfile",
            str(self.folder / "filter.pid"))
        # the first packet may wait a second for address resolution
        wait_for("a path between the hosts", lambda: subprocess.run(
            self.on("a") + [sys.executable, "-c", PROBE], check=False).returncode == 0)

    def down(self):
        """Removes the lab, also when only half of it was built."""
        for name in ("filter", "a", "b"):
            pid_end(self.folder / f"{name}.pid")
        for side in SIDES:
            for command in (["netns", "del"], ["link", "del"]):
                subprocess.run(["ip", *command, self.space(side)], capture_output=True,
                               check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def on(self, side):
        """Begin of a command line on a side."""
        return ["nsenter", f"--net=/run/netns/{self.space(side)}"]

    def set(self, *commands):
        """Sends a command to the filter, such as 'loss 100'."""
        filter_set(self.folder / "filter", *commands)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up")
    up.add_argument("--delay", type=int, default=50)
    up.add_argument("--rate", type=int, default=2500000)
    up.add_argument("--loss", type=float, default=0)
    up.add_argument("--queue", type=int, default=1000000)
    for verb, more in (("exec", "side"), ("set", None), ("down", None)):
        one = verbs.add_parser(verb)
        one.add_argument("folder")
        if more:
            one.add_argument(more, choices=sorted(SIDES))
        if verb != "down":
            one.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.verb == "up":
        why = lacks()
        if why:
            print(f"lab: {why}", file=sys.stderr)
            return 77
        lab = Lab(args.delay, args.rate, args.loss, args.queue)
        try:
            lab.up()
        except BaseException:
            lab.down()
            raise
        print(lab.folder)
        return 0
    lab = Lab(folder=args.folder)
    if args.verb == "exec":
        return subprocess.run(lab.on(args.side) + args.words, check=False).returncode
    if args.verb == "set":
        lab.set(*args.words)
    else:
        lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
