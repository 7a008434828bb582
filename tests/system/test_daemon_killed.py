#!/usr/bin/env python3
# test_daemon_killed.py BIN - a killed daemon costs its worker no step, alone and in a group.
"""Three daemons whose stub workers are started from outside, as systemd does. Daemons are killed in
turn, some while merges are under way, and started again: the same worker process goes on, its count
of steps never falls, its work is merged again, and all nodes apply the same rounds to the bit.
"""
import pathlib
import signal
import subprocess
import sys
import tempfile

import nodes

KILLS = 6


def start_worker(group, idx):
    """Starts the worker of a node, which outlives daemons."""
    with open(group.folder / f"w{idx}.log", "ab") as log:
        return subprocess.Popen(
            [group.tool("stub_worker"), "--socket", str(group.folder / f"n{idx}.run/worker.sock"),
             "--step-us", "5000", "--comes-back"], stdout=log, stderr=log,
            stdin=subprocess.DEVNULL)


def train_of(group, idx):
    """Steps of a node; -1 while it does not answer."""
    status = group.get(idx)
    return status["train"]["steps"] if status else -1


def merged(group, idx):
    """Rounds of this daemon's log lines that contain this node's work, with others."""
    return sum(ours and contributors > 1
               for _, _, ours, _, contributors, _ in nodes.rounds_of(group.log(idx)))


def kill_and_start(group, idx):
    """Kills a daemon and starts it again; nothing of its worker is lost."""
    group.wait(f"n{idx} answers", lambda: train_of(group, idx) >= 0)  # a busy machine may not
    steps, rounds = train_of(group, idx), merged(group, idx)
    group.kill(idx)
    group.start(idx)
    group.wait(f"n{idx} back", lambda: train_of(group, idx) > steps)
    group.wait(f"the worker of n{idx}", lambda: "ev=worker_ready" in
               group.log(idx).rsplit("ev=started", 1)[-1])
    log = group.log(idx).rsplit("ev=started", 1)[-1]
    assert "ev=worker_ready start=kept" in log, log
    return steps, rounds


def check(group, workers):
    """Alone at first, then in a group."""
    group.start(0)
    group.wait("steps alone", lambda: train_of(group, 0) > 100)
    kill_and_start(group, 0)
    for idx in (1, 2):
        group.start(idx)
    group.wait("rounds of three", lambda: all(merged(group, i) > 3 for i in range(3)))
    for count in range(KILLS):
        idx = count % 3
        _, rounds = kill_and_start(group, idx)
        group.wait(f"work of n{idx} merged", lambda i=idx, r=rounds: merged(group, i) > r + 3)
    digests = {}
    for idx in range(3):
        for _, number, _, digest, contributors, _ in nodes.rounds_of(group.log(idx)):
            if contributors > 1:
                digests.setdefault(number, set()).add(digest)
    assert sum(len(found) > 1 for found in digests.values()) == 0, digests
    for idx, worker in enumerate(workers):
        assert worker.poll() is None, idx
        status = group.get(idx)
        assert status["worker"]["pid"] == worker.pid and status["worker"]["restarts"] == 0, status


def check_alone(group):
    """The others sleep, so the run clock stands still: the status tells the work that waits."""
    sync = group.get(0)["sync"]
    assert sync["rounds_given"] >= sync["rounds_contributed"] > 0, sync
    for idx in (1, 2):
        group.send(idx, signal.SIGSTOP)
    group.wait("work that waits", lambda: group.get(0)["run"]["unmerged_tokens"] > 0)
    for idx in (1, 2):
        group.send(idx, signal.SIGCONT)
    group.wait("no work that waits", lambda: group.get(0)["run"]["unmerged_tokens"] == 0)


def main():
    """Three nodes."""
    with tempfile.TemporaryDirectory(prefix="tw_killed_") as folder:
        group = nodes.Nodes(pathlib.Path(sys.argv[1]), folder, 3, step_us=None,
                            node=["spawn_worker = off"], run_keys=("sync.period=20",))
        workers = [start_worker(group, idx) for idx in range(3)]
        try:
            check(group, workers)
            check_alone(group)
        except BaseException:
            for idx in range(3):
                print(group.log(idx)[-4000:])
                print((group.folder / f"w{idx}.log").read_text(encoding="utf-8")[-2000:])
            raise
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
