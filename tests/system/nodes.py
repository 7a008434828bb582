"""nodes.py - real daemons, with the stub worker or thinwire-worker. With root each runs in its own
network namespace: a star of cables around one hub. A cable can be pulled in one direction or in
both. Without root all daemons share the loopback.
"""
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import ports

PATIENCE_S = 60


def run(*command):
    """Runs a command that must succeed; the failure has its output."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def lacks_hosts(*tools):
    """Why this machine can have no namespaces, or lacks one of the tools; None: it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "wants root and iproute2 for network namespaces"
    for tool in tools:
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    name = f"tws{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "the kernel gives no network namespace"
    run("ip", "netns", "del", name)
    return None


def within(space):
    """Begin of a command line in a namespace; why not by `ip netns exec`: tests/nat/lab.py."""
    return ["nsenter", f"--net=/run/netns/{space}"]


class Star:
    """`count` namespaces, each with a cable to a hub that forwards."""

    def __init__(self, count, prefix=""):
        self.count, self.prefix = count, f"{prefix}{os.getpid()}"

    def space(self, idx):
        """The name of a host's namespace; -1 is the hub."""
        return f"tws{self.prefix}{'hub' if idx < 0 else idx}"

    @staticmethod
    def address(idx):
        """Address of a host."""
        return f"10.83.{idx}.2"

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Makes the hub, the hosts and the cables."""
        for idx in range(-1, self.count):
            run("ip", "netns", "add", self.space(idx))
            run("ip", "-n", self.space(idx), "link", "set", "lo", "up")
        hub = self.space(-1)
        for idx in range(self.count):
            host, leg = self.space(idx), f"leg{idx}"
            run("ip", "link", "add", "cable", "netns", host, "type", "veth", "peer", leg, "netns",
                hub)
            run("ip", "-n", host, "addr", "add", f"10.83.{idx}.2/24", "dev", "cable")
            run("ip", "-n", hub, "addr", "add", f"10.83.{idx}.1/24", "dev", leg)
            run("ip", "-n", host, "link", "set", "cable", "up")
            run("ip", "-n", hub, "link", "set", leg, "up")
            run("ip", "-n", host, "route", "add", "default", "via", f"10.83.{idx}.1")
        run(*within(hub), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")

    def down(self):
        """Removes all namespaces."""
        for idx in range(-1, self.count):
            subprocess.run(["ip", "netns", "del", self.space(idx)], capture_output=True,
                           check=False)

    def pull(self, idx, way):
        """Drops all packets from host `idx` ("out"), to it ("in"), or "both"."""
        for which in {"out": ["from"], "in": ["to"], "both": ["from", "to"]}[way]:
            run("ip", "-n", self.space(-1), "rule", "add", which, self.address(idx), "blackhole")

    def plug(self, idx):
        """Repairs the cable."""
        for which in ("from", "to"):
            subprocess.run(["ip", "-n", self.space(-1), "rule", "del", which, self.address(idx),
                            "blackhole"], capture_output=True, check=False)


class Nodes:
    """Daemons of one run, each with a folder in one common folder. `step_us` is the time of a step
    of the stub worker; None: thinwire-worker trains. `stub`: more of its options. `network` and
    `node`: lines of those sections. `content`: the text to train on. `model`: arguments of
    `run new` that name another model than a tiny one."""

    def __init__(self, bin_dir, folder, count, *, star=None, run_keys=(), step_us=5000, stub="",
                 network=(), node=(), model=(), content="In the beginning was the word.\n" * 4000):
        self.bin, self.folder = pathlib.Path(bin_dir).resolve(), pathlib.Path(folder)
        self.count, self.star = count, star
        self.lines = {"network": network, "node": node}
        self.processes = [None] * count
        self.stopped = set()
        text = self.folder / "text"
        text.write_text(content, encoding="utf-8")
        tiny = ["model.layers=2", "model.width=32", "model.heads=2", "model.context=32"]
        keys = [*([] if model else tiny), "train.tokens=1000000000000",
                f"sync.nodes={min(count, 64)}", *run_keys]
        sets = [word for key in keys for word in ("--set", key)]
        run(self.tool("thinwire"), "run", "new", "nodes", "--data", str(text), "--out",
            str(self.folder / "manifest"), *model, *sets)
        self.ports = [4747] * count if star else [ports.hold() for _ in range(count)]
        worker = None
        if step_us is not None:
            worker = self.folder / "worker"
            worker.write_text(
                f"#!/bin/sh\nexec {self.tool('stub_worker')} --step-us {step_us} {stub} \"$@\"\n",
                encoding="ascii")
            worker.chmod(0o755)
        for idx in range(count):
            self._lay_out(idx, worker)

    def tool(self, name):
        """Path of a program of this build."""
        return str(self.bin / name)

    def address(self, idx):
        """Address at which others dial the node."""
        return f"{self.star.address(idx) if self.star else '127.0.0.1'}:{self.ports[idx]}"

    def config(self, idx):
        """Path of the node's configuration file."""
        return self.folder / f"n{idx}.conf"

    def log(self, idx):
        """Log of the node, over all its starts."""
        path = self.folder / f"n{idx}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _lay_out(self, idx, worker):
        others = [self.address((idx + k) % self.count) for k in (1, 2, 5)
                  if (idx + k) % self.count != idx]
        secret = self.folder / "n0" / "run.secret"  # with security.admission=secret
        more = ["--secret-file", str(secret)] if secret.exists() else []
        run(self.tool("thinwire"), "init", "--config", str(self.config(idx)), "--name", f"n{idx}",
            "--state-dir", str(self.folder / f"n{idx}"), "--run-dir",
            str(self.folder / f"n{idx}.run"), "--run", str(self.folder / "manifest"), "--data",
            str(self.folder / "text"), "--listen", self.address(idx), "--peers",
            ",".join(dict.fromkeys(others)), "--threads", "1", *more)
        config = self.config(idx)
        text = config.read_text(encoding="ascii")
        if worker is not None:
            text = text.replace("[node]\n", f"[node]\nworker_path = {worker}\n", 1)
        for section, lines in self.lines.items():
            for line in lines:
                text = text.replace(f"[{section}]\n", f"[{section}]\n{line}\n", 1)
        config.write_text(text, encoding="ascii")

    def start(self, idx, program="thinwired", env=()):
        """Starts the daemon unless it runs; `env` adds variables to its environment."""
        space = within(self.star.space(idx)) if self.star else []
        with open(self.folder / f"n{idx}.log", "ab") as log:
            # own process group: the worker is stopped and killed with it
            self.processes[idx] = subprocess.Popen(
                [*space, self.tool(program), "--config", str(self.config(idx))], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **dict(env)})

    def send(self, idx, what):
        """Sends a signal to the daemon and its worker, as when the machine stops."""
        os.killpg(self.processes[idx].pid, what)
        if what == signal.SIGSTOP:
            self.stopped.add(idx)
        if what == signal.SIGCONT:
            self.stopped.discard(idx)

    def kill(self, idx):
        """kill -9 of daemon and worker."""
        self.send(idx, signal.SIGKILL)
        self.processes[idx].wait()

    def end(self):
        """Stops everything, politely at first."""
        for idx in list(self.stopped):
            self.send(idx, signal.SIGCONT)
        for process in self.processes:
            if process is not None and process.poll() is None:
                process.terminate()
        for process in self.processes:
            if process is None:
                continue
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def get(self, idx, verb="status"):
        """Answer of the daemon, or None."""
        done = subprocess.run([self.tool("thinwire"), verb, "--json", "--config",
                               str(self.config(idx))], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, what, is_so, patience_s=PATIENCE_S):
        """Waits until `is_so` is true; returns the seconds it took."""
        begin = time.monotonic()
        while not is_so():
            if time.monotonic() - begin > patience_s:
                raise RuntimeError(f"{what}: not within {patience_s} s")
            time.sleep(0.1)
        return time.monotonic() - begin


LINE = re.compile(r"^ts=(\S+Z) .*ev=round_done round=(\d+) .*contributors=(\d+) roster=(\d+) "
                  r"ours=(\d).* digest=(\w+)", re.M)


def rounds_of(log):
    """[(time, round, is_ours, digest, contributors, roster)] of a log."""
    found = []
    for when, number, contributors, roster, ours, digest in LINE.findall(log):
        at = datetime.datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
        found.append((at, int(number), ours == "1", digest, int(contributors), int(roster)))
    return found
