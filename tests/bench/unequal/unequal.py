#!/usr/bin/env python3
# unequal.py - four nodes, one at a twentieth of the speed, one stopped: what do the others lose?
#
# A cgroup (version 2 or 1; needs root) limits each node, daemon and worker, to a share of a core,
# so that a stopped node does not make the others faster. First every node trains alone, links off;
# then together; then node3 is stopped with SIGSTOP, and continued. Steps and tokens per second come
# from the status API. Exit status 0 only if the goals hold. Needs the demo's packages and a machine
# with little other load; takes eight minutes.
import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "deploy"))
from demo import Node, ask, check, corpus, free_ports, stop_all  # noqa: E402

GOALS = {
    "swarm_share_min": 0.95,    # tokens/s together, relative to the running nodes alone
    "steps_change_max": 0.05,   # relative change of a node's steps/s when another stops
    "stopped_back_s": 30.0,     # time until it mixes again
    "slow_rounds_share_min": 0.8,  # rounds with the slow node, of those possible: one per step
}
PERIOD_US = 100000
FAST, SLOW = 0.40, 0.02  # of a core
STOPPED = "node3"


class Cage:
    """A cgroup that limits a node to a share of one core."""

    def __init__(self, name, share):
        quota = int(share * PERIOD_US)
        version2 = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
        if version2.exists() and "cpu" in version2.read_text().split():
            root = pathlib.Path("/sys/fs/cgroup")
            (root / "cgroup.subtree_control").write_text("+cpu")
            self.path = root / name
            self.path.mkdir(exist_ok=True)
            (self.path / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            self.path = pathlib.Path("/sys/fs/cgroup/cpu") / name
            self.path.mkdir(exist_ok=True)
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(quota))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def signal(self, number):
        for pid in (self.path / "cgroup.procs").read_text().split():
            os.kill(int(pid), number)

    def remove(self):
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


class CagedNode(Node):
    """A node of the demo whose processes start inside a cgroup."""

    def __init__(self, name, folder, binaries, share):
        super().__init__(name, folder, binaries)
        self.share = share
        self.cage = Cage(f"thinwire-{os.getpid()}-{name}", share)

    def start(self):
        before = os.getpid()
        # The daemon inherits the cgroup of this process, the worker that of the daemon.
        own = pathlib.Path("/sys/fs/cgroup/cpu" if "/cpu/" in str(self.cage.path)
                           else "/sys/fs/cgroup")
        self.cage.enter()
        try:
            super().start()
        finally:
            (own / "cgroup.procs").write_text(str(before))


def measure(nodes, seconds, what):
    """{node: steps/s, tokens/s} over that time, from the status before and after."""
    first = {}
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < seconds:
        time.sleep(1)
        if sys.stdout.isatty():
            left = max(0, seconds - (time.monotonic() - begin_s))
            print(f"\r{what}: {left:3.0f} s left ", end="", flush=True)
        if not first:
            first = {n.name: (time.monotonic(), ask(n.socket)) for n in nodes}
    rates = {}
    for node in nodes:
        then_s, then = first[node.name]
        now_s, now = time.monotonic(), ask(node.socket)
        rates[node.name] = {key: (now["train"][key] - then["train"][key]) / (now_s - then_s)
                            for key in ("steps", "tokens")}
    if sys.stdout.isatty():
        print("\r" + " " * 40 + "\r", end="")
    print(f"{what:<34}" + "  ".join(f"{n} {r['steps']:6.2f}" for n, r in rates.items())
          + "   steps/s", flush=True)
    return rates


def wait_for(condition, seconds, what):
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < seconds:
        if condition():
            return time.monotonic() - begin_s
        time.sleep(0.5)
    sys.exit(f"unequal: {what} did not come about within {seconds} s")


def is_training(node):
    status = ask(node.socket)
    return status is not None and status["train"]["steps"] > 3


def contributed(node):
    status = ask(node.socket)
    return (status["sync"]["rounds_contributed"], status["sync"]["rounds_committed"])


def build(args, out, binaries):
    data = corpus(out)
    manifest = out / "unequal.manifest"
    check([binaries / "thinwire", "run", "new", "unequal", "--data", data, "--out", manifest,
           "--preset", args.preset, "--set", "sync.nodes=4", "--set", "train.tokens=1g",
           "--set", "sync.pace=clock", "--set", f"sync.interval={args.interval}",
           *[f"--set={pair}" for pair in args.set]])
    ports = free_ports(4)
    nodes = [CagedNode(f"node{i + 1}", out, binaries, SLOW if i == 3 else FAST) for i in range(4)]
    for node, port in zip(nodes, ports):
        node.manifest, node.data = manifest, data
        node.init(types.SimpleNamespace(upload="20mbit", eval_steps=0, steps=0), port, ports,
                  has_data=True)
    return nodes


def judge(alone, together, stopped, back_s, slow_share):
    rest = [name for name in stopped]
    share_all = (sum(together[n]["tokens"] for n in together) /
                 sum(alone[n]["tokens"] for n in together))
    share_rest = (sum(stopped[n]["tokens"] for n in rest) / sum(alone[n]["tokens"] for n in rest))
    # The slow node makes only a few steps a minute, too few to measure a rate.
    change = max(abs(stopped[n]["steps"] / together[n]["steps"] - 1)
                 for n in rest if together[n]["steps"] > 0.5)
    return [
        ("together, of what they do alone", f"{100 * share_all:.1f} %",
         share_all >= GOALS["swarm_share_min"]),
        (f"while {STOPPED} is stopped, of what the rest does alone", f"{100 * share_rest:.1f} %",
         share_rest >= GOALS["swarm_share_min"]),
        ("largest change of another's steps/s", f"{100 * change:.1f} %",
         change <= GOALS["steps_change_max"]),
        (f"{STOPPED} mixes again", f"after {back_s:.1f} s", back_s <= GOALS["stopped_back_s"]),
        ("rounds the slow node is in, of those it makes a step for", f"{100 * slow_share:.0f} %",
         slow_share >= GOALS["slow_rounds_share_min"]),
    ]


def restart(nodes, links):
    stop_all(nodes)
    for node in nodes:
        node.set({"links": links})
        node.start()
    for node in nodes:
        wait_for(lambda n=node: is_training(n), 120, f"training of {node.name}")


def run(args, nodes):
    restart(nodes, "off")
    alone = measure(nodes, args.seconds, "alone")
    restart(nodes, "on")
    wait_for(lambda: all((ask(n.socket) or {"state": ""})["state"] == "member" for n in nodes), 120,
             "a group of four")
    begin = contributed(nodes[3]), contributed(nodes[0])
    together = measure(nodes, args.seconds, "together")
    end = contributed(nodes[3]), contributed(nodes[0])
    slow_steps = together[nodes[3].name]["steps"] * args.seconds
    possible = min(slow_steps, end[1][1] - begin[1][1])
    slow_share = (end[0][0] - begin[0][0]) / max(1, possible)
    victim = nodes[2]
    victim.cage.signal(signal.SIGSTOP)
    try:
        stopped = measure([n for n in nodes if n is not victim], args.stop,
                          f"{STOPPED} is stopped")
    finally:
        victim.cage.signal(signal.SIGCONT)
    before = contributed(victim)[0]
    back_s = wait_for(lambda: contributed(victim)[0] > before, 120, f"a contribution of {STOPPED}")
    return alone, together, stopped, back_s, slow_share


def main():
    parser = argparse.ArgumentParser(
        description="Four nodes, one at a twentieth of the speed, one stopped for a while: what do"
                    " the others lose?")
    parser.add_argument("--bin", type=pathlib.Path, default="build/ci/bin")
    parser.add_argument("--out", type=pathlib.Path, default="unequal-out")
    parser.add_argument("--preset", default="streaming")
    parser.add_argument("--interval", default="2s", help="between two rounds")
    parser.add_argument("--seconds", type=int, default=90, help="of each of the first two parts")
    parser.add_argument("--stop", type=int, default=180, help="seconds the third node is stopped")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("unequal: needs root, to give each node a share of a core")
    out = args.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    nodes = build(args, out, args.bin.resolve())
    try:
        alone, together, stopped, back_s, slow_share = run(args, nodes)
    finally:
        stop_all(nodes)
        for node in nodes:
            node.cage.remove()
        shutil.rmtree(nodes[0].run_dir.parent, ignore_errors=True)
    rows = judge(alone, together, stopped, back_s, slow_share)
    for name, seen, is_enough in rows:
        print(f"  {'ok  ' if is_enough else 'FAIL'}  {name}: {seen}")
    (out / "unequal.json").write_text(json.dumps(
        {"alone": alone, "together": together, "stopped": stopped, "back_s": back_s,
         "slow_rounds_share": slow_share, "ok": all(row[2] for row in rows)}, indent=1) + "\n")
    return 0 if all(row[2] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
