#!/usr/bin/env python3
# check_plan.py - `thinwire plan` against runs of real nodes on this machine.
"""Usage: check_plan.py BIN [--seconds N] [--only WORD]

Runs all settings, one after the other. Measures bytes, rounds and utilisation, and compares them
with the plan for the measured speed. The nodes learn this tree's own C code, since contributions of
untrained models are unusually alike. Prints a table for RECORDS.md; exits with status 1 if bytes or
utilisation are more than 15 % off.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "system"))
import nodes  # noqa: E402
from wan import lab  # noqa: E402
from wan.far import Far  # noqa: E402

BOUND = 0.15
MODEL = ("model.layers=4", "model.width=128", "model.heads=4", "model.context=128")
TOKENS = "train.tokens=40000000"
NEAR_MS = 1
# name, nodes, manifest keys, upload cap in Mbit/s or None, round trip in ms
SETTINGS = (
    ("streaming", 3, (), None, NEAR_MS),
    ("streaming every 90 steps", 3, ("sync.period=90",), None, NEAR_MS),
    ("streaming in ecsq2", 4, ("sync.codec=ecsq2",), None, NEAR_MS),
    ("streaming, 1 Mbit/s", 3, (), 1, NEAR_MS),
    ("diloco", 3, ("sync.preset=diloco",), None, NEAR_MS),
    ("diloco, 2 Mbit/s", 3, ("sync.preset=diloco",), 2, NEAR_MS),
    ("sparseloco", 5, ("sync.preset=sparseloco",), None, NEAR_MS),
    ("noloco", 4, ("sync.preset=noloco",), None, NEAR_MS),
    ("streaming, far", 3, (), None, 100),
    ("streaming every 90 steps, far", 3, ("sync.period=90",), None, 300),
    ("streaming, 1 Mbit/s, far", 3, (), 1, 100),
    ("diloco, far", 3, ("sync.preset=diloco",), None, 200),
    ("noloco, far", 4, ("sync.preset=noloco",), None, 200),
)


def own_code():
    """Text to learn."""
    root = pathlib.Path(__file__).resolve().parents[3]
    return "".join(path.read_text(encoding="utf-8") for room in ("daemon", "sync", "worker")
                   for path in sorted((root / room).rglob("*.c")))


def measure(bin_dir, setting, seconds):
    """Means over the nodes: steps/s, rounds/s, bytes/s sent, utilisation."""
    _, count, keys, cap, rtt_ms = setting
    network = () if cap is None else (f"upload = {cap}mbit",)
    hosts = Far(count, rtt_ms) if rtt_ms > NEAR_MS else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="twplan") as folder, hosts as star:
        group = nodes.Nodes(bin_dir, folder, count, run_keys=(*MODEL, TOKENS, *keys), step_us=None,
                            network=network, content=own_code(), star=star)
        try:
            for idx in range(count):
                group.start(idx)
            group.wait("twenty rounds", lambda: all(
                (s := group.get(idx)) and s["sync"]["rounds_committed"] >= 20
                for idx in range(count)), 300)
            before, begin = [group.get(idx) for idx in range(count)], time.monotonic()
            time.sleep(seconds)
            after, took = [group.get(idx) for idx in range(count)], time.monotonic() - begin
        finally:
            group.end()

    def rate(section, *names):
        return statistics.mean(
            (sum(b[section][n] for n in names) - sum(a[section][n] for n in names)) / took
            for a, b in zip(before, after))
    return {"steps_s": rate("train", "steps"), "rounds_s": rate("sync", "rounds_committed"),
            "bytes_s": rate("network", "bulk_out_bytes", "control_out_bytes"),
            "busy": statistics.mean(s["train"]["utilisation_ratio"] for s in after)}


def plan(bin_dir, setting, steps_s):
    """The plan's first row: the run as set."""
    _, count, keys, cap, rtt_ms = setting
    sets = [word for key in (*MODEL, TOKENS, f"sync.nodes={count}", *keys)
            for word in ("--set", key)]
    line = [] if cap is None else ["--upload", f"{cap}mbit"]
    out = subprocess.run([f"{bin_dir}/thinwire", "plan", "--json", "--steps-per-s", str(steps_s),
                          "--rtt", f"{rtt_ms}ms", *line, *sets], check=True, capture_output=True,
                         text=True).stdout
    return json.loads(out)["rows"][0]


def main():
    """Measures, plans, compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    worst = 0
    print("| setting, nodes | kB/s sent: measured, planned | rounds/s | busy |\n|---|---|---|---|")
    for setting in SETTINGS:
        if args.only not in setting[0]:
            continue
        if setting[-1] > NEAR_MS and lab.lacks() is not None:
            print(f"{setting[0]}: skipped, {lab.lacks()}", file=sys.stderr)
            continue
        real = measure(args.bin, setting, args.seconds)
        row = plan(args.bin, setting, real["steps_s"])
        planned = row["day_up_bytes"] / 86400
        off = planned / real["bytes_s"] - 1
        busy_off = row["utilisation_ratio"] / real["busy"] - 1
        worst = max(worst, abs(off), abs(busy_off))
        print(f"| {setting[0]}, {setting[1]} | {real['bytes_s'] / 1e3:.1f}, {planned / 1e3:.1f} "
              f"({100 * off:+.0f} %) | {real['rounds_s']:.2f}, {1 / row['interval_s']:.2f} | "
              f"{100 * real['busy']:.1f} %, {100 * row['utilisation_ratio']:.1f} % |", flush=True)
    print(f"largest difference {100 * worst:.0f} %")
    return 1 if worst > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
