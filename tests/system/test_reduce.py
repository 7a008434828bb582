#!/usr/bin/env python3
# test_reduce.py - a node with `role = reduce` has no data and sends no work, but merges for others.
"""Usage: test_reduce.py BIN"""
import re
import subprocess
import sys
import tempfile

import nodes

ROUNDS = 30


def make_reducer(group, idx):
    """Gives the node the role, and takes its data."""
    config = group.config(idx)
    text = config.read_text(encoding="ascii").replace("[node]\n", "[node]\nrole = reduce\n", 1)
    text, count = re.subn(r"^data = .*\n", "", text, flags=re.M)
    assert count == 1, text
    config.write_text(text, encoding="ascii")


def row_of(group, idx):
    """The node's row in the ledger of node 0: the work it gave, the parts it merged."""
    name = group.get(idx)["node"]["id"]
    rows = [row for row in group.get(0, "ledger")["nodes"] if row["id"] == name]
    return rows[0] if rows else {"parts": 0, "rounds": 0}


def common_rounds(group):
    """Number of rounds that all nodes saw. Each round that two nodes saw has one digest."""
    seen = {}
    for idx in range(group.count):
        for row in nodes.rounds_of(group.log(idx)):
            seen.setdefault(row[1], []).append(row[3])
    assert all(len(set(digests)) == 1 for digests in seen.values()), seen
    return sum(len(digests) == group.count for digests in seen.values())


def same_model(group, rounds):
    """Waits until all three saw many rounds, with the same digests."""
    group.wait("rounds of all three", lambda: common_rounds(group) >= rounds)


def committed(group, idx):
    """Number of rounds in the node's lineage."""
    status = group.get(idx)
    return status["sync"]["rounds_committed"] if status else 0


def check_reducer(group):
    """Two nodes train with real workers; the third merges."""
    for idx in range(3):
        group.start(idx)
    group.wait("three members", lambda: all(
        group.get(idx) and group.get(idx)["sync"]["roster_members"] == 3 for idx in range(3)))
    group.wait("parts that it merged", lambda: row_of(group, 2)["parts"] >= ROUNDS)
    status = group.get(2)
    assert status["node"]["role"] == "reduce" and status["train"]["steps"] == 0, status["train"]
    assert " merges for nodes together with 2 others" in status["sentence"], status["sentence"]
    assert status["warnings"] == [], status["warnings"]
    assert status["sync"]["rounds_contributed"] == 0, status["sync"]
    assert status["sync"]["rounds_missed"] == 0, status["sync"]
    assert row_of(group, 2)["rounds"] == 0, row_of(group, 2)
    roles = {row["id"]: row["role"] for row in group.get(0, "peers")["peers"]}
    assert roles[status["node"]["id"]] == "reduce", roles
    assert sorted(roles.values()) == ["reduce", "train"], roles
    group.wait("a loss that falls", lambda:
               (group.get(0)["train"]["validation_anchor_nats"] or 9) < 4.5)  # ln 256 = 5.55
    same_model(group, ROUNDS)
    print(f"{row_of(group, 2)['parts']} parts merged by the node that reduces")


def check_loss_of_it(group):
    """The others go on while it is gone, and it merges again when it is back."""
    group.kill(2)
    before = committed(group, 0)
    group.wait("rounds without it", lambda: committed(group, 0) >= before + ROUNDS)
    group.start(2)
    group.wait("it among the members", lambda: group.get(2) and
               group.get(2)["node"]["sync_state"] == "member")
    parts = row_of(group, 2)["parts"]
    group.wait("parts that it merges again", lambda: row_of(group, 2)["parts"] >= parts + 5)
    same_model(group, ROUNDS)


def check_refusal(bin_dir):
    """In pairs nobody merges for others. In a group the node needs no data."""
    for preset, status in (("noloco", 2), ("streaming", 0)):
        with tempfile.TemporaryDirectory(prefix="tw_reduce_") as folder:
            group = nodes.Nodes(bin_dir, folder, 1, run_keys=(f"sync.preset={preset}",))
            make_reducer(group, 0)
            done = subprocess.run([group.tool("thinwire"), "config", "check", "--config",
                                   str(group.config(0))], capture_output=True, text=True,
                                  check=False)
            assert done.returncode == status, done
            word = "node.role = reduce" if status else "training data: none"
            assert word in done.stdout + done.stderr, done


def main():
    """All of it."""
    check_refusal(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tw_reduce_") as folder:
        keys = ("sync.period=30", "train.batch=4", "train.lr=0.01", "train.warmup_tokens=20k")
        group = nodes.Nodes(sys.argv[1], folder, 3, run_keys=keys, step_us=None)
        make_reducer(group, 2)
        try:
            check_reducer(group)
            check_loss_of_it(group)
        finally:
            group.end()
    print("a node that reduces: ok")


main()
