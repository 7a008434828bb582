#!/usr/bin/env python3
# test_power_cut.py - all nodes are killed at once: the run goes on from the newest checkpoint, and
# each node tells its loss. A daemon of `thinwire start` that dies is started again.
"""Usage: test_power_cut.py BIN"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

import nodes


def kinds(group, idx):
    """Kinds of the node's warnings; None: it does not answer."""
    status = group.get(idx)
    return status and [warning["kind"] for warning in status["warnings"]]


def together(group, since):
    """True if every node has merged a round with all the others since its log was so long."""
    return all(any(row[4] == group.count for row in nodes.rounds_of(group.log(idx)[since[idx]:]))
               for idx in range(group.count))


def cut(group):
    """Kills all daemons and workers at once; returns the lengths of their logs."""
    for idx in range(group.count):
        group.kill(idx)
    return [len(group.log(idx)) for idx in range(group.count)]


def start_all(group, since):
    """Starts all again, until each has merged a round with all."""
    for idx in range(group.count):
        group.start(idx)
    group.wait("rounds of all after the power cut", lambda: together(group, since))


def check_lost(group, since, words):
    """Every node says at its start that it is behind, and then its loss. The words are one
    node's at least: a node that comes back later finds some rounds."""
    said = []
    for idx in range(group.count):
        group.wait("the warning", lambda: "work_lost" in (kinds(group, idx) or []))
        log = group.log(idx)[since[idx]:]
        ready = re.search(r"level=(\w+) ev=worker_ready start=(\w+)", log)
        assert ready and ready[1] == "warn", log
        said.append([warning["what"] for warning in group.get(idx)["warnings"]])
        assert any("were lost" in text for text in said[idx]), said
        assert "ev=work_lost" in log, log
    assert any(words in text for texts in said for text in texts), said
    shown = subprocess.run([group.tool("thinwire"), "status", "--config", str(group.config(0))],
                           capture_output=True, text=True, check=True).stdout
    assert "This node was at round" in shown, shown


def check_whole_group(group):
    """The first checkpoint follows the first merge: a cut soon after costs rounds, not the run."""
    for idx in range(group.count):
        group.start(idx)

    def is_ahead(idx):
        """The node's note is newer than its first checkpoint by some rounds."""
        status = group.get(idx)
        return status and status["checkpoint"]["rounds"] and \
            status["sync"]["rounds_committed"] >= status["checkpoint"]["rounds"] + 12
    group.wait("a checkpoint of each", lambda: all(is_ahead(idx) for idx in range(group.count)))
    before = [group.get(idx) for idx in range(group.count)]
    for idx, status in enumerate(before):
        merged = re.search(r"ev=round_done round=(\d+) fragment=\d+ contributors=([2-9])",
                           group.log(idx))
        assert status["checkpoint"]["rounds"] < int(merged[1]) + 30, before
    since = cut(group)
    start_all(group, since)
    check_lost(group, since, "After the restart the run goes on from round")
    for idx in range(group.count):
        log = group.log(idx)[since[idx]:]
        assert re.search(r"ev=worker_ready start=(snapshot|anchor)", log), log
        assert f"ev=checkpoint_loaded generation=1 step={before[idx]['checkpoint']['steps']}" in log
        first = min(row[1] for row in nodes.rounds_of(log))
        assert first >= min(status["checkpoint"]["rounds"] for status in before), (first, before)


def check_one(group):
    """A restart of one node loses nothing, and says so."""
    group.wait("a note beyond the checkpoint", lambda: (status := group.get(2)) and
               status["sync"]["rounds_committed"] >= status["checkpoint"]["rounds"] + 12)
    group.kill(2)
    since = len(group.log(2))
    group.start(2)
    group.wait("the run found again", lambda: "ev=run_found" in group.log(2)[since:])
    group.wait("its rounds", lambda: any(row[2] for row in nodes.rounds_of(group.log(2)[since:])))
    assert "ev=work_lost" not in group.log(2)[since:]
    assert "work_lost" not in kinds(group, 2), group.get(2)["warnings"]


def check_no_checkpoint(group):
    """No node has a checkpoint any more. The run begins anew, but not in silence. It was so long
    that the new one does not pass it before the last node is back."""
    group.wait("a longer run", lambda: (status := group.get(0)) and
               status["sync"]["rounds_committed"] >= 120)
    since = cut(group)
    for idx in range(group.count):
        for path in (group.folder / f"n{idx}").glob("*/ckpt.*"):
            path.unlink()
    start_all(group, since)
    check_lost(group, since, "the run began anew")
    for idx in range(group.count):
        assert "ev=worker_ready start=fresh" in group.log(idx)[since[idx]:]


def check_anew_meanwhile(group):
    """The others lose all and begin anew while a node is away. It comes back once the new run is
    past its old clock: it does not call that its own work, and keeps its checkpoint."""
    for idx in range(group.count):
        group.start(idx)
    group.wait("a checkpoint and a note of it", lambda: (status := group.get(2)) and
               status["checkpoint"]["rounds"] and
               status["sync"]["rounds_committed"] >= status["checkpoint"]["rounds"] + 12)
    since = cut(group)
    note = next((group.folder / "n2").glob("*/reached")).read_text(encoding="ascii")
    old_clock = int(re.search(r"clock_tokens (\d+)", note)[1])
    for idx in (0, 1):
        for path in (group.folder / f"n{idx}").glob("*/ckpt.*"):
            path.unlink()
        group.start(idx)
    group.wait("a new run past the old one", lambda: all(
        (status := group.get(idx)) and status["sync"]["alive_peers"] == 1 and
        status["run"]["clock_tokens"] > old_clock for idx in (0, 1)))
    group.start(2)
    group.wait("the warning", lambda: "work_lost" in (kinds(group, 2) or []))
    log = group.log(2)[since[2]:]
    assert "ev=run_found" not in log, log
    lost = group.get(2)["checkpoint"]["lost"]
    assert lost["anew"] and lost["tokens"] == lost["clock_before"] == old_clock, lost
    text = subprocess.run([group.tool("thinwire"), "status", "--config", str(group.config(2))],
                          capture_output=True, text=True, check=True).stdout
    assert "While it was away the run began anew" in " ".join(text.split()), text
    assert re.search(r"`thinwire (--config \S+ )?rollback` lists it as `undone`",
                     " ".join(text.split())), text
    group.wait("a checkpoint of the new run", lambda: "ev=checkpoint " in group.log(2)[since[2]:])
    files = json.loads(subprocess.run(
        [group.tool("thinwire"), "rollback", "--json", "--config", str(group.config(2))],
        capture_output=True, text=True, check=True).stdout)["generations"]
    kept = [row for row in files if row["file"] == "undone"]
    assert kept and kept[0]["round"] == lost["kept_round"], (files, lost)
    others = [group.get(idx)["checkpoint"]["lost"] for idx in (0, 1)]
    assert all(each["anew"] for each in others), others


def check_kept(group):
    """A daemon that `thinwire start` put into the background dies, and is started again."""
    def thinwire(*words):
        return nodes.run(group.tool("thinwire"), *words, "--config", str(group.config(0)))
    said = thinwire("start")
    keeper = int(re.search(r"It runs as process (\d+)", said)[1])
    try:
        group.wait("a worker", lambda: (status := group.get(0)) and status["worker"]["pid"])
        worker = group.get(0)["worker"]["pid"]
        with open(f"/proc/{worker}/stat", encoding="ascii") as stat:
            daemon = int(stat.read().rsplit(")", 1)[1].split()[1])
        assert daemon != keeper
        os.kill(daemon, signal.SIGKILL)
        group.wait("the next daemon", lambda: (status := group.get(0)) and
                   status["worker"]["pid"] not in (0, None, worker))
        thinwire("leave")
        group.wait("the end of both", lambda: not os.path.exists(f"/proc/{keeper}/fd"))
    finally:
        subprocess.run(["kill", str(keeper)], check=False, capture_output=True)


def check_nothing_to_save(group):
    """A checkpoint before the first step is answered, and is no failure."""
    group.start(0)
    group.wait("an answer", lambda: group.get(0))
    done = subprocess.run([group.tool("thinwire"), "checkpoint", "--config", str(group.config(0))],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "nothing to save yet" in done.stderr, done
    assert "checkpoint_failed" not in kinds(group, 0), group.get(0)["warnings"]
    assert group.get(0)["checkpoint"]["error"] is None


def main():
    """Three nodes with stub workers, then single ones."""
    for check, count, more in (
            ([check_whole_group, check_one, check_no_checkpoint], 3, ()),
            ([check_anew_meanwhile], 3, ()),
            ([check_nothing_to_save], 1, ("spawn_worker = off",)), ([check_kept], 1, ())):
        with tempfile.TemporaryDirectory() as folder:
            group = nodes.Nodes(sys.argv[1], folder, count, node=more, step_us=20000)
            try:
                for step in check:
                    step(group)
                    print(f"{step.__name__}: good")
            except BaseException:
                for idx in range(count):
                    print(f"---- log of node {idx}\n{group.log(idx)[-4000:]}")
                raise
            finally:
                group.end()


if __name__ == "__main__":
    main()
