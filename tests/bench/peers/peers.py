#!/usr/bin/env python3
# peers.py - Thinwire beside other systems on thin lines: time and bytes to a loss, and faults.
"""Runs nodes of one system (trainer.py) on a star of namespaces (star.py). Results are JSON.

    peers.py loss SYSTEM [--nodes 4] [--until NATS] [--most S]    trains until the held-out loss
    peers.py faults SYSTEM [FAULT...] [--watch S]                 five nodes, and a sixth that joins

Both take --python FILE (an interpreter with torch, and with torchft or hivemind), --bin FOLDER,
--text FILE, --period H, --step-s S, --set KEY=VALUE (of a Thinwire run), --out FILE (appended to).

A fault hits one host; the last of the first five is never hit, and is the witness:

    join    a sixth host starts            stop   host 3 stands still for 30 s
    cut     host 2 has no line for 30 s    death  host 1 dies
    first   host 0 dies, on which the run, the store, the lighthouse or the first peer of the DHT is
    all     all of these at once

Faults follow one another in one run. If the witness takes no step in the last 20 of --watch
seconds, the run counts as ended, and the next fault has a run of its own. So has `all`, which is
watched for 170 s at least. The joiner knows host 0 alone, so it cannot join in `all`.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from star import ROOT, Star, lacks

HERE = pathlib.Path(__file__).resolve().parent
START_S = 240     # for all nodes to take their first steps
WARM_STEPS = 20   # of each node before a fault
USUAL_S = 30      # from then on to the first fault: the witness's usual speed
LATE_S = 20       # at the end of a fault: whether the run goes on
ALL_S = 170       # least time of watching after all faults at once: a group without a majority
                  # waits for its members for two minutes
BREAK_S = 30      # length of a stop and of a cut
NODES, WITNESS, JOINER = 5, 4, 5
HIT = {"death": 1, "cut": 2, "stop": 3, "first": 0, "join": JOINER}
FAULTS = ("join", "stop", "cut", "death", "first", "all")


class Nodes:
    """The trainers of one run."""

    def __init__(self, args, star, world):
        self.args, self.star, self.world = args, star, world
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="twpeers", dir="/tmp"))
        self.processes = []
        if args.system == "torchft":
            self.spawn(0, "lighthouse", args.python.parent / "torchft_lighthouse", "--bind",
                       "0.0.0.0:4747", "--min_replicas", "1", "--join_timeout_ms", "10000",
                       "--quorum_tick_ms", "100")
        for rank in range(world):
            self.start(rank)

    def spawn(self, rank, name, *command):
        """Starts a process on a host; its words go to NAME.log."""
        library = self.args.bin.parent / "lib/libthinwire.so.1"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "THINWIRE_BIN": str(self.args.bin),
                       "THINWIRE_LIBRARY": str(library), "GLOO_SOCKET_IFNAME":
                       self.star.space(rank), "PYTHONUNBUFFERED": "1"}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes.append(subprocess.Popen(
                self.star.on(rank) + [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=environment))

    def start(self, rank):
        """Starts a node."""
        args = self.args
        self.spawn(rank, f"node{rank}", args.python, HERE / "trainer.py", args.system, "--rank",
                   rank, "--world", self.world, "--folder", self.folder, "--text", args.text,
                   "--period", args.period, "--step-s", args.step_s, "--steps", args.steps,
                   *(["--measured"] if args.task == "loss" else []),
                   *[f"--set={pair}" for pair in args.set])

    def lines(self, rank):
        """The lines of a node's log so far."""
        path = self.folder / f"node{rank}.jsonl"
        if not path.exists():
            return []
        text = path.read_text(encoding="ascii")
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait_steps(self, steps):
        """Waits until every node has taken so many steps."""
        end = time.monotonic() + START_S
        while min(len(self.lines(rank)) for rank in range(self.world)) < steps:
            if time.monotonic() > end:
                raise RuntimeError(f"the nodes do not start; their logs are in {self.folder}")
            time.sleep(1)

    def end(self):
        """Ends all nodes. Their logs stay until `remove`."""
        for host in range(self.star.hosts):
            self.star.signal(host, signal.SIGCONT)
            self.star.signal(host, signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def remove(self):
        """Removes the logs."""
        shutil.rmtree(self.folder)


# ---- to a loss ----------------------------------------------------------------------------------

def curve_of(nodes):
    """Step, seconds and loss of the mean of the nodes' models at each evaluation. A step is over
    once the last node has taken it."""
    lines = [nodes.lines(rank) for rank in range(nodes.world)]
    begin = min(rows[0]["t"] for rows in lines) - nodes.args.step_s
    ends = [{line["step"]: line["t"] for line in rows} for rows in lines]
    return [{"step": line["mean_step"], "loss": line["mean"],
             "seconds": max(end[line["mean_step"]] for end in ends) - begin}
            for line in lines[0] if "mean" in line]


def is_reached(curve, until):
    """True once the loss was that low."""
    return bool(curve) and curve[-1]["loss"] <= until


def measure_loss(args):
    """Trains until the loss, or for --most seconds. Bytes are those of all hosts when an evaluation
    was seen, at most about a second after it."""
    with Star(args.nodes) as star:
        nodes = Nodes(args, star, args.nodes)
        try:
            nodes.wait_steps(1)
            end = time.monotonic() + args.most
            curve, sent = [], []
            while time.monotonic() < end and not is_reached(curve, args.until):
                time.sleep(1)
                curve = curve_of(nodes)
                sent += [star.sent_bytes()] * (len(curve) - len(sent))
            lines = nodes.lines(0)
        finally:
            nodes.end()
        nodes.remove()
    if not curve:
        raise RuntimeError(f"no loss within {args.most} s")
    gaps = [after["t"] - before["t"] for before, after in zip(lines, lines[1:])]
    yield {"kind": "loss", "nodes": args.nodes, "until": args.until,
           "is_reached": is_reached(curve, args.until), "merges": lines[-1]["merges"],
           "step_median_s": statistics.median(gaps),
           "curve": [{**point, "bytes": count} for point, count in zip(curve, sent)]}


# ---- faults -------------------------------------------------------------------------------------

def hit(nodes, fault, is_begin):
    """Begins or ends one fault."""
    star = nodes.star
    if fault == "stop":
        star.signal(HIT["stop"], signal.SIGSTOP if is_begin else signal.SIGCONT)
    elif fault == "cut":
        star.cut(HIT["cut"], is_begin)
    elif is_begin and fault == "join":
        nodes.start(JOINER)
    elif is_begin:
        star.signal(HIT[fault], signal.SIGKILL)


def between(lines, begin, end):
    """Steps and merges of a node between two times."""
    inside = [line for line in lines if begin <= line["t"] < end]
    before = [line["merges"] for line in lines if line["t"] < begin]
    merges = inside[-1]["merges"] - (before[-1] if before else 0) if inside else 0
    return len(inside), merges


def longest_without_merge(lines, begin, end):
    """The longest time between two merges of a node, around and between the times."""
    merged = [after["t"] for before, after in zip(lines, lines[1:])
              if after["merges"] > before["merges"]]
    before = [t for t in merged if t < begin][-1:] or [begin]
    times = before + [t for t in merged if begin <= t < end] + [end]
    return max(after - before for before, after in zip(times, times[1:]))


def judge(nodes, fault, times, usual):
    """The witness during a fault, against its usual steps per second, and the host that was hit.
    Times are those of the fault's begin and end, and of the end of the watch."""
    begin, over, end = times
    watched, window_s = nodes.lines(WITNESS), end - begin
    steps, merges = between(watched, begin, end)
    late = between(watched, end - LATE_S, end)
    after = [line["t"] for line in nodes.lines(HIT.get(fault, 0)) if line["t"] > over]
    return {"kind": "fault", "fault": fault, "window_s": window_s,
            "witness_steps": steps, "witness_steps_usual": usual * window_s,
            "witness_lost_s": window_s - steps / usual if usual > 0 else None,
            "witness_merges": merges,
            "witness_unmerged_s": longest_without_merge(watched, begin, end),
            "goes_on": late[0] > 0, "merges_go_on": late[1] > 0,
            "hit_steps_after": len(after), "hit_back_s": after[0] - over if after else None}


def watch(nodes, fault, usual):
    """One fault from begin to end."""
    faults = HIT if fault == "all" else [fault]
    begin = time.monotonic()
    for one in faults:
        hit(nodes, one, True)
    has_break = "stop" in faults or "cut" in faults
    time.sleep(BREAK_S if has_break else 0)
    for one in faults:
        hit(nodes, one, False)
    over = time.monotonic()
    time.sleep(max(nodes.args.watch, ALL_S if fault == "all" else 0))
    end = time.monotonic()
    row = judge(nodes, fault, (begin, over, end), usual)
    if fault == "all":
        row["back"] = {one: between(nodes.lines(HIT[one]), over, end) for one in
                       ("join", "stop", "cut")}
    return row


def faults_of_run(args, star, waiting):
    """Takes faults from the list as long as the run goes on."""
    nodes, goes_on, is_untouched = Nodes(args, star, NODES), True, True
    try:
        nodes.wait_steps(WARM_STEPS)
        begin = time.monotonic()
        time.sleep(USUAL_S)
        usual = between(nodes.lines(WITNESS), begin, begin + USUAL_S)[0] / USUAL_S
        while waiting and goes_on and (is_untouched or waiting[0] != "all"):
            row = watch(nodes, waiting.pop(0), usual)
            goes_on, is_untouched = row["goes_on"], False
            yield row
    finally:
        nodes.end()
    nodes.remove()


def measure_faults(args):
    """All faults, in as many runs as they want."""
    waiting = list(args.faults or FAULTS)
    while waiting:
        with Star(NODES + 1) as star:
            yield from faults_of_run(args, star, waiting)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("task", choices=["loss", "faults"])
    parser.add_argument("system", choices=["thinwire", "torchft", "hivemind", "ddp"])
    parser.add_argument("faults", nargs="*", metavar="FAULT")
    parser.add_argument("--python", type=pathlib.Path, default=pathlib.Path(sys.executable))
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/ci/bin")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--until", type=float, default=2.4)
    parser.add_argument("--most", type=float, default=900)
    parser.add_argument("--watch", type=float, default=60)
    parser.add_argument("--period", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    if unknown := set(args.faults) - set(FAULTS):
        parser.error(f"there is no fault {unknown.pop()}")
    if (reason := lacks()) is not None:
        parser.error(f"this machine can have no star: it {reason}")
    args.text, args.bin = args.text.resolve(), args.bin.resolve()
    for row in (measure_loss if args.task == "loss" else measure_faults)(args):
        with open(args.out, "a", encoding="ascii") as out:
            out.write(json.dumps({"system": args.system, "period": args.period,
                                  "step_s": args.step_s, "set": args.set, **row}) + "\n")


if __name__ == "__main__":
    main()
