#!/usr/bin/env python3
# test_peers.py - figures, table and picture that peers.py and report.py make of nodes' logs.
"""Times are made up: nothing runs, and nothing waits."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types

import peers
import report


def nodes_of(*logs, step_s=0.5):
    """Stands in for the nodes of a run with these logs."""
    return types.SimpleNamespace(args=types.SimpleNamespace(step_s=step_s), world=len(logs),
                                 lines=lambda rank: logs[rank])


def steady(begin, end, merges=0, every_s=1.0):
    """A log with a step a second, and a merge at every tenth."""
    count = int((end - begin) / every_s)
    return [{"t": begin + i * every_s, "step": i + 1, "merges": merges + i // 10}
            for i in range(count)]


def a_step_is_over_with_its_last_node():
    """The loss of a step counts from when the slowest node had taken it."""
    first = [{"t": 10.0, "step": 1, "merges": 0},
             {"t": 11.0, "step": 2, "merges": 0, "mean_step": 1, "mean": 3.5}]
    second = [{"t": 10.5, "step": 1, "merges": 0}, {"t": 12.0, "step": 2, "merges": 0}]
    curve = peers.curve_of(nodes_of(first, second))
    assert curve == [{"step": 1, "loss": 3.5, "seconds": 1.0}], curve
    assert peers.is_reached(curve, 3.5) and not peers.is_reached(curve, 3.4)
    assert not peers.is_reached([], 9.0)


def a_halt_of_the_witness_is_counted():
    """The witness stands for 20 of 60 s; the host that was hit is back after 5 s."""
    witness = steady(0, 100) + [{**line, "step": line["step"] + 100}
                                for line in steady(120, 160, merges=10)]
    hit = steady(0, 90) + steady(135, 160)
    row = peers.judge(nodes_of([], hit, [], [], witness), "death",
                      (100.0, 130.0, 160.0), 1.0)
    assert row["witness_steps"] == 40 and row["witness_steps_usual"] == 60, row
    assert row["witness_lost_s"] == 20 and row["goes_on"] and row["merges_go_on"], row
    assert row["hit_steps_after"] == 25 and row["hit_back_s"] == 5, row
    # its merges: the one at 90 s, and the next at 120 s
    assert row["witness_unmerged_s"] == 30, row


def a_run_that_ends_is_told():
    """No step in the last seconds: the run is over; no usual speed: no loss of time is named."""
    row = peers.judge(nodes_of([], [], [], [], steady(0, 100)), "death",
                      (100.0, 100.0, 160.0), 1.0)
    assert not row["goes_on"] and row["witness_lost_s"] == 60 and row["hit_back_s"] is None, row
    row = peers.judge(nodes_of([], [], [], [], []), "death", (100.0, 100.0, 160.0), 0.0)
    assert row["witness_lost_s"] is None, row


def results():
    """Two systems to a loss, one of them twice, and two faults."""
    def run(system, seconds, pairs=()):
        curve = [{"step": 10 * i, "seconds": seconds * i, "loss": 3 - i / 5, "bytes": 1000000 * i}
                 for i in range(1, 4)]
        return {"system": system, "set": list(pairs), "kind": "loss", "curve": curve}
    def fault(name, **more):
        return {"system": "ddp", "set": [], "kind": "fault", "fault": name, "window_s": 60.0,
                "witness_merges": 3, "witness_unmerged_s": 9.5, "witness_lost_s": 4.5,
                "hit_back_s": None, "goes_on": True, "merges_go_on": True, **more}
    return [run("ddp", 99), run("ddp", 7), run("thinwire", 2, ["sync.preset=sparseloco"]),
            fault("stop", hit_back_s=1.0), fault("death", goes_on=False, witness_lost_s=None)]


def the_report_tells(folder):
    """Levels that were reached and not, the last of equal runs, and faults."""
    path = folder / "results"
    path.write_text("".join(json.dumps(row) + "\n" for row in results()), encoding="ascii")
    sys.argv = ["report.py", str(path), "--until", "2.6,1", "--out", str(folder / "pictures")]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        report.main()
    lines = [line.split() for line in said.getvalue().splitlines()]
    assert lines[1] == ["ddp", "14", "s", "2.0", "MB", "20", "steps", "-"], lines[1]
    assert lines[2][:4] == ["thinwire", "sparseloco", "4", "s"], lines[2]
    assert lines[4] == ["ddp", "stop", "4.5", "s", "60", "s", "3", "9.5", "s", "1.0",
                        "s"], lines[4]
    assert lines[5] == ["ddp", "death", "-", "60", "s", "3", "9.5", "s", "-", "the", "run",
                        "ended"], lines[5]
    picture = (folder / "pictures/peers-bytes.svg").read_text(encoding="utf-8")
    assert "ddp, 21 s" in picture and "thinwire sparseloco" in picture


def main():
    """All checks."""
    a_step_is_over_with_its_last_node()
    a_halt_of_the_witness_is_counted()
    a_run_that_ends_is_told()
    with tempfile.TemporaryDirectory() as folder:
        the_report_tells(pathlib.Path(folder))
    print("ok")


if __name__ == "__main__":
    main()
