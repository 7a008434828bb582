"""churn.py - many real daemons under faults: the share of healthy nodes in each round.

    python3 churn.py BIN [--nodes 16] [--seconds 600] [--faults-hour 62.5] [--interval 10]
                     [--seed N] [--least 0.95] [--json FILE] [--keep]

Faults come at random times, at that rate over all nodes together (125 an hour for 32 nodes): kill
-9 of a machine's processes or of its worker alone, a polite end, SIGSTOP for a while. With root
also a cable that is pulled in both directions or in one.

Measured: of all (node, round) in which the node ran without a fault from one commit to the next,
the share in which the round record lists the node. The exit status is 1 when the share is below
--least, when decided models differ, or when rounds stop.
"""
import argparse
import collections
import contextlib
import heapq
import json
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

import nodes as lab

SETTLE_S = 90


class Faults:
    """The present faults, and the times of all faults of each node."""

    def __init__(self, nodes, rng):
        self.nodes, self.rng = nodes, rng
        self.repairs = []  # heap of (when, serial, node, how)
        self.serial = 0
        self.troubles = [[] for _ in range(nodes.count)]  # [begin, end] in time.time()
        self.counts = collections.Counter()

    def _repair_in(self, seconds, idx, how):
        self.serial += 1
        heapq.heappush(self.repairs, (time.monotonic() + seconds, self.serial, idx, how))

    def is_hurt(self, idx):
        """True while the node is down, stopped or cut."""
        return bool(self.troubles[idx]) and self.troubles[idx][-1][1] is None

    def hurt(self):
        """Breaks a healthy node, but always leaves a majority."""
        whole = [idx for idx in range(self.nodes.count) if not self.is_hurt(idx)]
        if len(whole) <= self.nodes.count * 2 // 3:
            return
        idx = self.rng.choice(whole)
        kinds = ["kill", "worker", "end", "stop"]
        if self.nodes.star:
            kinds += ["both", "in", "out"]
        kind = self.rng.choice(kinds)
        self.counts[kind] += 1
        self.troubles[idx].append([time.time(), None])
        away_s = self.rng.uniform(2, 25)
        print(f"{time.strftime('%H:%M:%S')} n{idx} {kind} {away_s:.0f} s", flush=True)
        if kind == "worker":
            status = self.nodes.get(idx)
            pid = status and status["worker"]["pid"]
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(__import__("os").pidfd_open(pid), signal.SIGKILL)
            self.troubles[idx][-1][1] = time.time()
        elif kind == "kill":
            self.nodes.kill(idx)
            self._repair_in(away_s, idx, "start")
        elif kind == "end":
            self.nodes.send(idx, signal.SIGTERM)
            self._repair_in(away_s, idx, "restart")
        elif kind == "stop":
            self.nodes.send(idx, signal.SIGSTOP)
            self._repair_in(away_s, idx, "cont")
        else:
            self.nodes.star.pull(idx, kind)
            self._repair_in(away_s, idx, "plug")

    def repair(self):
        """Ends the faults that are due."""
        while self.repairs and self.repairs[0][0] <= time.monotonic():
            _, _, idx, how = heapq.heappop(self.repairs)
            if how == "restart":
                with contextlib.suppress(ProcessLookupError):
                    self.nodes.processes[idx].wait(40)
            if how in ("start", "restart"):
                self.nodes.start(idx)
            elif how == "cont":
                self.nodes.send(idx, signal.SIGCONT)
            else:
                self.nodes.star.plug(idx)
            self.troubles[idx][-1][1] = time.time()

    def is_unhurt(self, idx, begin, end):
        """True when no fault of the node touches this time."""
        return all(until is not None and until < begin or since > end
                   for since, until in self.troubles[idx])


def measure(nodes, faults, begin):
    """The results, as the head of this file describes."""
    logs = [lab.rounds_of(nodes.log(idx)) for idx in range(nodes.count)]
    told = collections.defaultdict(collections.Counter)
    for rows in logs:
        for at, number, _, digest, _, _ in rows:
            if at >= begin:
                told[number][digest] += 1
    agreed = {number: digests.most_common(1)[0][0] for number, digests in told.items()
              if digests.most_common(1)[0][1] > nodes.count // 3}
    when = {}
    for rows in logs:
        for at, number, _, digest, _, _ in rows:
            if agreed.get(number) == digest:
                when[number] = min(at, when.get(number, at))
    listed = [{number for at, number, ours, digest, _, _ in rows
               if ours and agreed.get(number) == digest} for rows in logs]
    able, there, absent = 0, 0, []
    for number in sorted(when):
        if number - 1 not in when:
            continue
        for idx in range(nodes.count):
            if faults.is_unhurt(idx, when[number - 1], when[number]):
                able += 1
                there += number in listed[idx]
                if number not in listed[idx]:
                    absent.append((number, idx))
    times = sorted(when.values())
    gaps = sorted(b - a for a, b in zip(times, times[1:]))
    return {"rounds": len(when), "able": able, "listed": there,
            "share": there / able if able else 0.0,
            "gap_median_s": gaps[len(gaps) // 2] if gaps else None,
            "gap_longest_s": gaps[-1] if gaps else None,
            "split_rounds": sum(len(digests) > 1 for digests in told.values()),
            "faults": dict(faults.counts), "absent": absent,
            "broken": [idx for idx in range(nodes.count)
                       if "ev=anchor_differs" in nodes.log(idx)
                       or "assertion failed" in nodes.log(idx)]}


def explain(nodes, faults, figures):
    """Every absence, with the time since the node's last fault, to look into."""
    logs = [{row[1]: row for row in lab.rounds_of(nodes.log(idx))} for idx in range(nodes.count)]
    whens = collections.defaultdict(list)
    for rows in logs:
        for number, row in rows.items():
            whens[number].append(row[0])
    after = collections.Counter()
    for number, idx in figures["absent"]:
        at = min(whens[number])
        ended = [until for _, until in faults.troubles[idx] if until is not None and until < at]
        ago = at - max(ended) if ended else None
        label = "never hurt" if ago is None else f"{min(int(ago // 10) * 10, 60)} s after"
        after[label] += 1
        heard = "not heard of" if number not in logs[idx] else "not listed"
        print(f"  round {number} n{idx}: {heard}, "
              + ("never hurt" if ago is None else f"{ago:.1f} s after its trouble"))
    print("  absences by time since the last trouble:", dict(after))


def settle(nodes):
    """True when all nodes are in one roster."""
    def are_together():
        found = [nodes.get(idx) for idx in range(nodes.count)]
        return all(one and one["sync"]["roster_members"] == nodes.count for one in found)
    return nodes.wait("one roster of all", are_together, SETTLE_S + 10 * nodes.count)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bin")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--faults-hour", type=float)
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("--step-us", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--json")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if args.faults_hour is None:
        args.faults_hour = 125 * args.nodes / 32
    return args


def play(nodes, args):
    """Starts all nodes, injects the faults, returns the results."""
    rng = random.Random(args.seed)
    faults = Faults(nodes, rng)
    for idx in range(nodes.count):
        nodes.start(idx)
    print(f"all in one roster after {settle(nodes):.0f} s", flush=True)
    begin, end = time.time(), time.monotonic() + args.seconds
    due = time.monotonic() + rng.expovariate(args.faults_hour / 3600)
    while time.monotonic() < end:
        faults.repair()
        if time.monotonic() >= due:
            faults.hurt()
            due = time.monotonic() + rng.expovariate(args.faults_hour / 3600)
        time.sleep(0.1)
    figures = measure(nodes, faults, begin)
    explain(nodes, faults, figures)
    return figures


def main():
    """One run."""
    args = arguments()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-churn-", dir="/tmp"))
    why = lab.lacks_hosts()
    print(f"seed {args.seed}, {args.nodes} nodes, {args.faults_hour:.0f} faults an hour, "
          f"{'no cables are pulled: ' + why if why else 'cables too'}", flush=True)
    figures = None
    with contextlib.ExitStack() as stack:
        star = None if why else stack.enter_context(lab.Star(args.nodes))
        nodes = lab.Nodes(args.bin, folder, args.nodes, star=star, step_us=args.step_us, run_keys=(
            "sync.preset=streaming", "sync.pace=clock", f"sync.interval={args.interval:g}s",
            "sync.fragments=2", "sync.period=20", "sync.overlap=1", "sync.quorum=2"))
        stack.callback(nodes.end)
        figures = play(nodes, args)
    is_good = figures["share"] >= args.least and not figures["broken"] and \
        figures["rounds"] >= args.seconds / args.interval / 4
    figures |= {"ok": is_good, "seed": args.seed, "nodes": args.nodes, "seconds": args.seconds}
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1), encoding="ascii")
    print(f"{'good' if is_good else 'BAD'}: {100 * figures['share']:.1f} % of {figures['able']} "
          f"(node, round) that could be are listed; {figures['rounds']} rounds, one every "
          f"{figures['gap_median_s']:.1f} s, the longest wait {figures['gap_longest_s']:.1f} s; "
          f"faults {figures['faults']}; {figures['split_rounds']} rounds decided apart")
    if is_good and not args.keep:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
