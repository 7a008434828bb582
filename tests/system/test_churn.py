"""test_churn.py - one of four nodes dies, stops or loses its cable, and the others go on.

    python3 test_churn.py BIN processes    kill -9 and SIGSTOP, on the loopback
    python3 test_churn.py BIN cables       a cable pulled in both directions and in one; needs root

In each case the others go on stepping and committing. They find the node dead within 6 s of
silence. Once it is back, its contributions enter the rounds again within 10 s and one round. All
bounds are stretched by the factor by which the test's own seconds were too long on this machine.
"""
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import nodes as lab

COUNT, VICTIM = 4, 2
INTERVAL_S = 1.0
DEAD_S = 6 + 4
BACK_S = 10 + 2 * INTERVAL_S + 8
AWAY_S = 22  # long enough to be off the roster (15 s)


class Watch:
    """Progress of the other three nodes while the fourth is away."""

    def __init__(self, nodes):
        self.looks = 0
        self.nodes, self.others = nodes, [idx for idx in range(COUNT) if idx != VICTIM]
        self.begin, self.steps, self.dead_s = time.monotonic(), {}, None
        self.wrong = []
        self.look()
        self.first = dict(self.steps)

    def look(self):
        """Called once a second: each has made steps; notes when they find the node dead."""
        alive = []
        self.looks += 1
        for idx in self.others:
            status = self.nodes.get(idx)
            if status is None:
                self.wrong.append(f"n{idx} does not answer")
                continue
            steps = status["train"]["steps"]
            if idx in self.steps and steps <= self.steps[idx]:
                self.wrong.append(f"n{idx} stands at step {steps}")
            self.steps[idx] = steps
            alive.append(status["sync"]["alive_peers"])
        if self.dead_s is None and alive and max(alive) < COUNT - 1:
            self.dead_s = time.monotonic() - self.begin

    def slowness(self):
        """Factor by which the seconds of this test were too long on this machine."""
        return max(1.0, (time.monotonic() - self.begin) / max(self.looks - 1, 1))

    def during(self, seconds):
        """Watches for so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(1.0)
            self.look()


def listed_since(nodes, idx, since):
    """Time of the first round record after `since` that lists the node."""
    for at, _, ours, _, contributors, _ in lab.rounds_of(nodes.log(idx)):
        if at > since and ours and contributors >= 2:
            return at
    return None


def commits(nodes, idx, begin, end):
    """Times at which a node committed rounds."""
    return [at for at, *_ in lab.rounds_of(nodes.log(idx)) if begin <= at <= end]


def all_together(nodes):
    """True when every node is on every roster and merges."""
    def is_so():
        found = [nodes.get(idx) for idx in range(COUNT)]
        return all(one and one["sync"]["roster_members"] == COUNT
                   and one["sync"]["alive_peers"] == COUNT - 1 for one in found)
    nodes.wait("all four in one roster", is_so, 90)


def fault(nodes, name, hurt, mend, dead_at_once=False):
    """Breaks one of four nodes and repairs it after a while."""
    all_together(nodes)
    watch = Watch(nodes)
    began = time.time()
    hurt()
    watch.during(AWAY_S)
    watch.look()
    ended, slowness = time.time(), watch.slowness()
    mend()
    wrong = list(watch.wrong)
    rounds = commits(nodes, 0, began, ended)
    if len(rounds) < AWAY_S / INTERVAL_S / 4:
        wrong.append(f"only {len(rounds)} rounds in {AWAY_S} s without it")
    limit_s = (2 + 2 if dead_at_once else DEAD_S) * slowness
    if watch.dead_s is None or watch.dead_s > limit_s:
        wrong.append(f"found dead after {watch.dead_s} s, {limit_s:.1f} are stated")
    try:
        nodes.wait("listed again", lambda: listed_since(nodes, VICTIM, ended), 60 * slowness)
        back_s = listed_since(nodes, VICTIM, ended) - ended
    except RuntimeError:
        back_s = None
    if back_s is None or back_s > BACK_S * slowness:
        wrong.append(f"useful again after {back_s} s, {BACK_S * slowness:.1f} are stated")
    steps = [watch.steps[idx] - watch.first[idx] for idx in watch.others if idx in watch.first]
    print(f"{name}: the others did {steps} steps and {len(rounds)} rounds, found it dead after "
          f"{watch.dead_s or -1:.1f} s, listed it {back_s or -1:.1f} s after its return",
          flush=True)
    return [f"{name}: {line}" for line in wrong]


def processes(nodes):
    """kill -9 and SIGSTOP."""
    wrong = fault(nodes, "kill -9", lambda: nodes.kill(VICTIM), lambda: nodes.start(VICTIM), True)
    return wrong + fault(nodes, "SIGSTOP", lambda: nodes.send(VICTIM, signal.SIGSTOP),
                         lambda: nodes.send(VICTIM, signal.SIGCONT))


def cables(nodes):
    """A cable pulled in both directions, and in each one."""
    wrong = []
    for way in ("both", "out", "in"):
        wrong += fault(nodes, f"cable, {way}", lambda way=way: nodes.star.pull(VICTIM, way),
                       lambda: nodes.star.plug(VICTIM))
    return wrong


def play(nodes, kind):
    """Starts all nodes, runs one part of the test, stops all."""
    try:
        for idx in range(COUNT):
            nodes.start(idx)
        wrong = {"processes": processes, "cables": cables}[kind](nodes)
    finally:
        nodes.end()
    for idx in range(COUNT):
        for word in ("ev=anchor_differs", "assertion failed"):
            if word in nodes.log(idx):
                wrong.append(f"n{idx} says {word}")
    return wrong


def main():
    """One part of the test."""
    bin_dir, kind = sys.argv[1], sys.argv[2]
    why = lab.lacks_hosts() if kind == "cables" else None
    if why:
        print(f"skipped: {why}")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-churn4-", dir="/tmp"))
    keys = ("sync.preset=streaming", "sync.pace=clock", f"sync.interval={INTERVAL_S:g}s",
            "sync.fragments=2", "sync.period=20", "sync.overlap=1", "sync.quorum=2")
    if kind == "cables":
        with lab.Star(COUNT, "c") as star:
            wrong = play(lab.Nodes(bin_dir, folder, COUNT, star=star, run_keys=keys,
                                   step_us=20000), kind)
    else:
        wrong = play(lab.Nodes(bin_dir, folder, COUNT, run_keys=keys, step_us=20000), kind)
    if wrong:
        print("\n".join(f"WRONG {line}" for line in wrong) + f"\nkept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
