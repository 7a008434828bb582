#!/usr/bin/env python3
# test_pause_run.py - the owner of a run pauses and resumes it as a whole; nobody else can.
"""Usage: test_pause_run.py BIN"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import nodes


def tool(group, *words):
    """(exit status, output) of `thinwire`, in the folder with the owner's key."""
    done = subprocess.run([group.tool("thinwire"), *map(str, words)], capture_output=True,
                          text=True, check=False, cwd=group.folder)
    return done.returncode, done.stdout + done.stderr


def by(group, idx):
    """The reasons of the node's pause; None: it does not answer."""
    status = group.get(idx)
    return None if status is None else (status["worker"]["pause"] or {"by": []})["by"]


def steps(group):
    """The steps of all nodes."""
    return [group.get(idx)["train"]["steps"] for idx in range(group.count)]


def stand_still(group, before):
    """The steps of nodes that take none any more. A step may have been under way, and a new worker
    takes a few before it is told of the pause; in a second without a pause it takes 200."""
    group.wait("its worker", lambda: all(
        group.get(idx)["worker"]["heartbeat_age_s"] is not None for idx in range(group.count)))
    time.sleep(1)
    after = steps(group)
    assert all(0 <= new - old < 100 for new, old in zip(after, before)), (before, after)
    time.sleep(1)
    assert steps(group) == after, (after, steps(group))
    return after


def wait_all(group, wanted, count):
    """Waits until so many nodes have exactly these reasons to pause."""
    group.wait(f"{wanted} at {count} nodes",
               lambda: all(by(group, idx) == wanted for idx in range(count)))


def admit(group):
    """Certificates of the owner for all nodes."""
    for idx in range(group.count):
        key = group.folder / f"n{idx}" / "identity.key"
        code, said = tool(group, "owner", "show", key, "--json")
        assert code == 0, said
        cert = group.folder / f"n{idx}.cert"
        code, said = tool(group, "owner", "sign", json.loads(said)["key"], "--run", "manifest",
                          "--out", cert)
        assert code == 0, said
        code, said = tool(group, "owner", "import", cert, "--config", group.config(idx))
        assert code == 0, said


def check_pause(group):
    """All linked nodes pause, one that links later too, and a restart does not end it."""
    for idx in (0, 1):
        group.start(idx)
    group.wait("rounds of two", lambda: group.get(1) and
               group.get(1)["sync"]["rounds_contributed"] >= 3)
    code, said = tool(group, "pause", "--run", "--config", group.config(0))
    assert code == 0 and "List 1 pauses training in the whole run" in said, said
    wait_all(group, ["run"], 2)
    code, said = tool(group, "pause", "--run", "--config", group.config(0))
    assert code == 1 and "already paused by list 1" in said, said
    group.start(2)  # it has no list yet
    wait_all(group, ["run"], 3)
    group.wait("the last step", lambda: all(
        group.get(idx)["worker"]["state"] == "paused" for idx in range(3)))
    before = stand_still(group, steps(group))
    code, said = tool(group, "resume", "--config", group.config(1))
    assert code == 0 and "the owner of the run paused all its nodes" in said, said
    assert group.get(1)["sentence"].startswith("n1 is paused: the owner of the run paused"), said
    group.processes[1].terminate()
    assert group.processes[1].wait(60) == 0
    group.start(1)
    wait_all(group, ["run"], 3)
    before = stand_still(group, before)
    assert group.get(0)["admission"]["revoked_nodes"] == 0
    return before


def check_resume(group, before):
    """A revocation keeps the pause; the owner's next list ends it, and rounds go on."""
    code, said = tool(group, "owner", "revoke", "ab" * 32, "--config", group.config(0))
    assert code == 0 and "List 2 revokes 1 node." in said, said
    group.wait("list 2", lambda: all(group.get(idx)["admission"]["revocations_list"] == 2
                                     for idx in range(3)))
    wait_all(group, ["run"], 3)
    assert group.get(2)["admission"]["revoked_nodes"] == 1
    assert tool(group, "pause", "--config", group.config(2))[0] == 0
    code, said = tool(group, "resume", "--run", "--config", group.config(0))
    assert code == 0 and "List 3 resumes training in the whole run" in said, said
    wait_all(group, [], 2)
    group.wait("the user's pause alone", lambda: by(group, 2) == ["user"])
    assert tool(group, "resume", "--config", group.config(2))[0] == 0
    rounds = group.get(0)["sync"]["rounds_committed"]
    group.wait("rounds of three", lambda: all(
        group.get(idx)["sync"]["rounds_committed"] > rounds + 3 and
        group.get(idx)["sync"]["roster_members"] == 3 for idx in range(3)))
    # the third may be on the roster before its first step in the group
    group.wait("steps of all", lambda: all(new > old for new, old in zip(steps(group), before)))


def check_others(group):
    """Another key, or a list of another key, pauses nothing."""
    code, said = tool(group, "owner", "new", "other.key")
    assert code == 0, said
    code, said = tool(group, "pause", "--run", "--key", "other.key", "--config", group.config(0))
    assert code == 7 and "only the owner pauses the run" in said, said
    assert by(group, 0) == [], by(group, 0)
    plain = group.folder / "plain"
    nodes.run(group.tool("thinwire"), "run", "new", "plain", "--data", str(group.folder / "text"),
              "--out", str(plain), "--set", "model.layers=2", "--set", "model.width=32", "--set",
              "model.heads=2", "--set", "model.context=32", "--set", "train.tokens=1g", "--set",
              "security.admission=secret")
    code, said = tool(group, "pause", "--run", "--manifest", plain, "--list", "none")
    assert code == 3 and "no node obeys another: use `thinwire pause` on each node" in said, said
    code, said = tool(group, "pause", "--run", "--manifest", "manifest", "--list", "apart.list")
    assert code == 0 and "`thinwire owner import FILE`" in said, said
    shown = json.loads(tool(group, "owner", "show", "apart.list", "--json")[1])
    assert shown["training"] == "paused" and shown["revoked"] == [], shown


def main():
    """Three nodes of a run with an owner."""
    with tempfile.TemporaryDirectory(prefix="tw_pause_") as folder:
        binaries = pathlib.Path(sys.argv[1]).resolve()
        key = json.loads(nodes.run(str(binaries / "thinwire"), "owner", "new",
                                   f"{folder}/owner.key", "--json"))["key"]
        group = nodes.Nodes(binaries, folder, 3, step_us=5000, run_keys=[
            "security.admission=owner", f"security.owner={key}"])
        try:
            admit(group)
            check_resume(group, check_pause(group))
            check_others(group)
        except BaseException:
            for idx in range(group.count):
                print(f"---- log of node {idx}\n{group.log(idx)[-20000:]}")
            raise
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
