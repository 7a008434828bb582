#!/usr/bin/env python3
# test_role.py - a node with `role = follow` has the model of the others, measures it, and gives no
# work; nobody waits for it.
"""Usage: test_role.py BIN"""
import subprocess
import sys
import tempfile

import nodes

ROUNDS = 30


def set_role(group, idx, more=""):
    """Makes the node a follower."""
    config = group.config(idx)
    text = config.read_text(encoding="ascii")
    config.write_text(text.replace("[node]\n", f"[node]\nrole = follow\n{more}", 1),
                      encoding="ascii")


def took(group, idx):
    """Median seconds from a round to the next, over the last rounds that the node saw."""
    times = [row[0] for row in nodes.rounds_of(group.log(idx))][-20:]
    gaps = sorted(later - early for early, later in zip(times, times[1:]))
    return gaps[len(gaps) // 2]


def same_model(group, rounds):
    """Each round that two nodes saw has one digest."""
    seen = {}
    for idx in range(group.count):
        for row in nodes.rounds_of(group.log(idx)):
            assert seen.setdefault(row[1], row[3]) == row[3], (idx, row)
    assert len(seen) >= rounds, len(seen)


def check_follower(group):
    """Two nodes train, the third follows: real workers, so that the losses are."""
    set_role(group, 2)
    for idx in (0, 1):
        group.start(idx)
    group.wait("rounds of two", lambda: len(nodes.rounds_of(group.log(0))) >= 25)
    before = took(group, 0)
    group.start(2)
    group.wait("the follower among the members", lambda: group.get(2) and
               group.get(2)["node"]["sync_state"] == "member")
    first = group.get(2)["sync"]["rounds_committed"]
    group.wait("rounds with it", lambda:
               group.get(2)["sync"]["rounds_committed"] >= first + ROUNDS)
    status = group.get(2)
    assert status["node"]["role"] == "follow" and status["train"]["steps"] == 0, status["train"]
    assert " follows nodes together with 2 others" in status["sentence"], status["sentence"]
    assert status["sync"]["rounds_contributed"] == 0 and status["warnings"] == [], status
    assert status["sync"]["rounds_missed"] == 0, status["sync"]
    after = took(group, 0)
    print(f"a round every {before:.2f} s without it, {after:.2f} s with it")
    group.wait("its evaluations", lambda:
               len(group.get(2)["train"]["losses"]) >= 2)  # the first may be from its entry
    train = group.get(2)["train"]
    assert train["distance_ratio"] < 1e-6, train
    assert abs(train["validation_live_nats"] - train["validation_anchor_nats"]) < 1e-6, train
    assert train["validation_live_nats"] < 4.5, train  # ln 256 = 5.55 before training
    given = [row for row in group.get(0, "ledger")["nodes"] if row["id"] == status["node"]["id"]]
    assert given == [], given  # nodes without work own no part either
    shown = subprocess.run([group.tool("thinwire"), "status", "--config", str(group.config(2))],
                           capture_output=True, text=True, check=True).stdout
    assert "none of them with us, by the role of this node" in shown, shown


def check_way_back(group):
    """The follower becomes a trainer from the model that it followed; and a lone one waits."""
    group.processes[2].terminate()
    assert group.processes[2].wait() == 0
    config = group.config(2)
    config.write_text(config.read_text(encoding="ascii").replace("role = follow\n", ""),
                      encoding="ascii")
    group.start(2)
    group.wait("its work in a round", lambda: group.get(2) and
               group.get(2)["sync"]["rounds_contributed"] >= 2)
    assert group.get(2)["train"]["loss_nats"] < 5, group.get(2)["train"]
    same_model(group, ROUNDS)


def check_refusal(bin_dir):
    """In pairs there is no model to follow."""
    with tempfile.TemporaryDirectory(prefix="tw_role_") as folder:
        group = nodes.Nodes(bin_dir, folder, 1, run_keys=("sync.preset=noloco",))
        set_role(group, 0)
        done = subprocess.run([group.tool("thinwire"), "config", "check", "--config",
                               str(group.config(0))], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "node.role = follow" in done.stdout + done.stderr, done
        done = subprocess.run([group.tool("thinwired"), "--config", str(group.config(0))],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "node.role = follow" in done.stderr, done


def main():
    """All of it."""
    check_refusal(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tw_role_") as folder:
        keys = ("sync.period=30", "train.batch=4", "train.lr=0.01", "train.warmup_tokens=20k")
        group = nodes.Nodes(sys.argv[1], folder, 3, run_keys=keys, step_us=None)
        try:
            check_follower(group)
            check_way_back(group)
        finally:
            group.end()
    print("a node that follows: ok")


main()
