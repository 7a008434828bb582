#!/usr/bin/env python3
# test_committee.py - a run with an owner in which four nodes vote, and three only train, or lie.
"""Usage: test_committee.py BIN"""
import collections
import json
import pathlib
import re
import sys
import tempfile
import time

import nodes

VOTERS = range(4)
TRAINERS = range(4, 7)
EVERYBODY = range(7)
STILL_S = 6  # rounds take less than a second
LINEAGE = re.compile(r" ev=lineage lineage=(\w+)")


def admit(group):
    """Certificates of the owner: the trainers get no vote."""
    for idx in EVERYBODY:
        key = json.loads(nodes.run(group.tool("thinwire"), "owner", "show",
                                   str(group.folder / f"n{idx}" / "identity.key"), "--json"))["key"]
        cert = str(group.folder / f"n{idx}.cert")
        nodes.run(group.tool("thinwire"), "owner", "sign", key, "--run",
                  str(group.folder / "manifest"), "--key", str(group.folder / "owner.key"), "--out",
                  cert, *(["--no-vote"] if idx in TRAINERS else []))
        nodes.run(group.tool("thinwire"), "owner", "import", cert, "--config",
                  str(group.config(idx)))


def sync(group, idx):
    """The sync part of the node's status; None: it does not answer."""
    status = group.get(idx)
    return None if status is None else status["sync"]


def are_members(group, which, count):
    """Whether these nodes have a roster of `count` with four voters, and link them all."""
    found = [sync(group, idx) for idx in which]
    return all(one and one["roster_members"] == count and one["roster_voters"] == len(VOTERS) and
               one["alive_voters"] == len(VOTERS) - (idx in VOTERS)
               for idx, one in zip(which, found))


def wait_rounds(group, what, which, key="rounds_contributed", more=4):
    """Waits until each of these nodes counts more rounds than now."""
    before = {idx: sync(group, idx)[key] for idx in which}
    group.wait(what, lambda: all((sync(group, idx) or {key: 0})[key] >= before[idx] + more
                                 for idx in which))


def check_digests(group, which, least):
    """In each lineage these nodes decided the same rounds. All seven contributed to at least so
    many rounds of one lineage."""
    digests, whole = {}, collections.Counter()
    for idx in which:
        lineage = None
        for line in group.log(idx).splitlines():
            begun = LINEAGE.search(line)
            lineage = begun[1] if begun else lineage
            for _, number, _, digest, contributors, _ in nodes.rounds_of(line):
                place = (lineage, number)
                if contributors == len(EVERYBODY) and place not in digests:
                    whole[lineage] += 1
                known = digests.setdefault(place, digest)
                assert known == digest, f"n{idx}: round {place} is {digest}, not {known}"
    assert max(whole.values()) >= least, f"rounds of all: {whole}, of {len(digests)}"


def check_words(group):
    """Status, peers and doctor say who votes."""
    for idx in EVERYBODY:
        assert group.get(idx)["admission"]["has_vote"] == (idx in VOTERS), idx
    ids = {group.get(idx)["node"]["id"]: idx for idx in EVERYBODY}
    for idx in (0, 6):
        votes = {ids[peer["id"]]: peer["votes"] for peer in group.get(idx, "peers")["peers"]}
        assert votes == {k: k in VOTERS for k in EVERYBODY if k != idx}, (idx, votes)
    said = nodes.run(group.tool("thinwire"), "status", "--config", str(group.config(5)))
    assert "this node trains, but does not vote" in said, said
    assert "roster of 7, 4 vote" in said, said


def check_trainers_gone(group):
    """The rounds of the voters go on without the trainers, which come back."""
    for idx in TRAINERS:
        group.kill(idx)
    wait_rounds(group, "rounds of the voters", VOTERS)
    for idx in TRAINERS:
        group.start(idx)
    group.wait("the trainers' seats", lambda: are_members(group, EVERYBODY, len(EVERYBODY)))
    wait_rounds(group, "rounds of all again", EVERYBODY)


def check_voters_gone(group):
    """Without voters the trainers train, and decide nothing; with them, rounds go on. The voters
    crash, and get from the trainers the rounds since their checkpoints."""
    for idx in VOTERS:
        nodes.run(group.tool("thinwire"), "checkpoint", "--config", str(group.config(idx)))
    wait_rounds(group, "rounds after the checkpoints", EVERYBODY)
    for idx in VOTERS:
        group.kill(idx)
    group.wait("the loss of the voters", lambda: all(
        sync(group, idx)["alive_voters"] == 0 for idx in TRAINERS))
    before = [group.get(idx) for idx in TRAINERS]
    time.sleep(STILL_S)
    for idx, old in zip(TRAINERS, before):
        new = group.get(idx)
        assert new["sync"]["rounds_committed"] == old["sync"]["rounds_committed"], (idx, new)
        assert new["run"]["lineage"] == old["run"]["lineage"], (idx, new)
        assert new["train"]["steps"] > old["train"]["steps"] + 100, (idx, new)
    said = nodes.run(group.tool("thinwire"), "status", "--config", str(group.config(5)))
    assert "no voter is linked" in said, said
    for idx in VOTERS:
        group.start(idx)
    group.wait("the voters", lambda: are_members(group, EVERYBODY, len(EVERYBODY)))
    wait_rounds(group, "rounds of all at last", EVERYBODY)
    for idx in EVERYBODY:
        assert group.get(idx)["run"]["lineage"] == before[0]["run"]["lineage"], idx
        assert sync(group, idx)["rounds_committed"] > before[0]["sync"]["rounds_committed"], idx


def check_liars(group):
    """All three trainers lie in every message, more than may lie among seven voters. The voters
    decide their rounds, stay in their lineage, and give nobody a vote."""
    for idx in TRAINERS:
        group.kill(idx)
        group.start(idx, "traitor_daemon", {"TW_TRAITOR_SEED": str(idx), "TW_TRAITOR_MEMBERS": "7"})
    group.wait("the lies", lambda: all(" ev=treason " in group.log(idx) for idx in TRAINERS))
    lineage = group.get(0)["run"]["lineage"]
    wait_rounds(group, "rounds beside liars", VOTERS, more=20)
    for idx in VOTERS:
        assert group.get(idx)["run"]["lineage"] == lineage, idx
        assert sync(group, idx)["roster_voters"] == len(VOTERS), sync(group, idx)
        assert sync(group, idx)["alive_voters"] == len(VOTERS) - 1, sync(group, idx)


def main():
    """Seven nodes of a run with an owner."""
    with tempfile.TemporaryDirectory(prefix="tw_committee_") as folder:
        binaries = pathlib.Path(sys.argv[1]).resolve()
        key = json.loads(nodes.run(str(binaries / "thinwire"), "owner", "new",
                                   f"{folder}/owner.key", "--json"))["key"]
        group = nodes.Nodes(binaries, folder, len(EVERYBODY), step_us=5000, run_keys=[
            "security.admission=owner", f"security.owner={key}"])
        try:
            admit(group)
            for idx in EVERYBODY:
                group.start(idx)
            group.wait("seats", lambda: are_members(group, EVERYBODY, len(EVERYBODY)))
            wait_rounds(group, "rounds of all", EVERYBODY)
            check_words(group)
            check_trainers_gone(group)
            check_voters_gone(group)
            check_digests(group, EVERYBODY, 8)
            check_liars(group)
            check_digests(group, VOTERS, 8)
        except Exception:
            for idx in EVERYBODY:
                print(f"n{idx}: " + "\n    ".join(group.log(idx).splitlines()[-12:]))
            raise
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
