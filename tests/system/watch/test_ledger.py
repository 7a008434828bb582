#!/usr/bin/env python3
# test_ledger.py BIN - each node's part in a run, as running nodes tell it.
"""Three daemons with the stub worker. All tell the same of the rounds that they saw, one of them
over a restart, and nobody tells more tokens than the nodes trained on.
"""
import json
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

ROUNDS = 20


def ledger(group, idx):
    """The ledger of a node; its rows by the node's short id."""
    answer = group.get(idx, "ledger")
    return answer, {row["id_short"]: row for row in answer["nodes"]}


def wait_rounds(group, idx, count):
    """Waits until the node has counted so many rounds."""
    group.wait(f"{count} rounds at n{idx}",
               lambda: (group.get(idx, "ledger") or {"rounds": 0})["rounds"] >= count)


def check(group, idx):
    """Sums, shares and this node's own row."""
    answer, rows = ledger(group, idx)
    trained = sum(group.get(i)["train"]["tokens"] for i in range(3))  # read later, so it has grown
    assert 0 < answer["tokens"] <= trained, (answer["tokens"], trained)
    assert sum(row["tokens"] for row in rows.values()) == answer["tokens"], answer
    assert abs(sum(row["token_share_ratio"] for row in rows.values()) - 1) < 1e-6, answer
    assert [key for key, row in rows.items() if row["is_self"]] == [group.ids[idx]], rows
    assert answer["others"] is None, answer
    return answer, rows


def versions(group, idx):
    """The versions of `thinwire checkpoint --run`: [(rounds, digest, nodes)], and unheard nodes."""
    said = json.loads(nodes.run(group.tool("thinwire"), "checkpoint", "--run", "--json",
                                "--config", str(group.config(idx))))
    return [(row["rounds"], row["tip"], {node["id_short"] for node in row["nodes"]})
            for row in said["versions"]], {node["id_short"] for node in said["unknown"]}


def check_versions(group):
    """All nodes are seen to hold one version, and a node that stands still is seen to be silent."""
    group.wait("one version", lambda: [len(row[2]) for row in versions(group, 0)[0]] == [3])
    group.send(2, signal.SIGSTOP)
    group.wait("the silent node", lambda: group.ids[2] in versions(group, 0)[1])
    rounds, tip, names = versions(group, 0)[0][0]
    assert names <= set(group.ids[:2]) and tip and rounds > 0, (rounds, tip, names)
    group.send(2, signal.SIGCONT)
    group.wait("one version again", lambda: [len(row[2]) for row in versions(group, 0)[0]] == [3])
    text = nodes.run(group.tool("thinwire"), "checkpoint", "--run", "--config",
                     str(group.config(1)))
    assert "after" in text and "this node" in text and "lineage" in text, text


def main():
    """Runs the test."""
    with tempfile.TemporaryDirectory(prefix="twl") as folder:
        group = nodes.Nodes(sys.argv[1], pathlib.Path(folder), 3)
        try:
            for idx in range(3):
                group.start(idx)
            group.wait("three members", lambda: all(
                (group.get(idx) or {"sync": {"roster_members": 0}})["sync"]["roster_members"] == 3
                for idx in range(3)))
            group.ids = [group.get(idx)["node"]["id_short"] for idx in range(3)]
            wait_rounds(group, 0, ROUNDS)
            _, rows = check(group, 0)
            assert set(rows) == set(group.ids), rows
            assert all(row["tokens"] > 0 and row["merged_bytes"] > 0 for row in rows.values()), rows

            check_versions(group)

            # A restart goes on with the file.
            before = ledger(group, 1)[0]
            group.processes[1].terminate()
            assert group.processes[1].wait(40) == 0
            group.start(1)
            wait_rounds(group, 1, before["rounds"] + ROUNDS)
            after, rows = check(group, 1)
            assert after["first_round"] == before["first_round"], (before, after)
            assert after["tokens"] > before["tokens"], (before, after)
            assert set(rows) == set(group.ids), rows

            text = nodes.run(group.tool("thinwire"), "ledger", "--config", str(group.config(1)))
            print(text)
            assert "this node" in text and all(f"n{idx} " in text for idx in range(3)), text
        finally:
            group.end()


if __name__ == "__main__":
    main()
