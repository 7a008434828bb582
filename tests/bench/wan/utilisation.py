#!/usr/bin/env python3
# utilisation.py - the cost of training together over a bad path, for two nodes.
"""Two nodes of one core each, 20 Mbit/s, 100 ms and one packet in a hundred lost each way between
them (tests/system/wan/lab.py): alone and together in turn.

    utilisation.py BIN [--pairs 5] [--seconds 20]

Per pair both nodes train alone (links off) at once, then both train together; three figures each:

    steps     steps per second, together over alone: all losses, and the machine's other load
    cpu       steps per CPU second of worker and daemon, together over alone: the cost of
              merging, coding and encryption, independent of other load
    waiting   share of the worker's time spent in steps, from the status, together over alone;
              snapshots and evaluations count in both

Exit status 0 only if the medians of cpu and waiting are 0.99 and a full-precision all-reduce of the
model over this path would take 50 steps (by processor time, as if the core were theirs alone).
Wants root, vde2, and two cores.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "system"))
from test_joins import World  # noqa: E402
from wan.lab import SIDES, Lab, lacks  # noqa: E402

RATE_BYTES_S = 2500000
PORT = 4747
RUN = {"model.layers": 4, "model.width": 128, "model.heads": 4, "model.context": 64,
       "train.batch": 4, "train.tokens": "1g", "sync.nodes": 2, "sync.period": 120}
CORES = {"a": "0", "b": "1"}


class Pinned:
    """A lab whose hosts have one core each."""

    def __init__(self, lab):
        self.lab = lab

    def on(self, side):
        """Prefix of command lines on that host."""
        return self.lab.on(side) + ["taskset", "-c", CORES[side]]


def lay_out(world, name, side, manifest, is_linked):
    """A node with the real worker and one thread."""
    other = "b" if side == "a" else "a"
    config = world.node(name, f"{SIDES[side]}:{PORT}", manifest=manifest,
                        peers=[f"{SIDES[other]}:{PORT}"])
    (world.folder / f"{name}.worker").write_text(
        f"#!/bin/sh\nexec {world.bin / 'thinwire-worker'} \"$@\"\n", encoding="ascii")
    text = config.read_text(encoding="ascii").replace("[node]\n", "[node]\nthreads = 1\n", 1)
    if not is_linked:
        text = text.replace("[network]\n", "[network]\nlinks = off\n", 1)
    config.write_text(text, encoding="ascii")
    return config


def cpu_s(pid):
    """Processor time of a process with its threads."""
    words = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def look(world, config, daemon):
    """One node at one moment."""
    status = world.status(config)
    return {"at": time.monotonic(), "steps": status["train"]["steps"],
            "rounds": status["sync"]["rounds_contributed"],
            "params": status["run"]["model_params"],
            "waiting": status["train"]["utilisation_minute_ratio"],
            "cpu": cpu_s(status["worker"]["pid"]) + cpu_s(daemon.pid)}


def phase(world, configs, seconds, is_linked):
    """Runs both nodes for a while; returns the work of each."""
    daemons = {}
    for side, config in configs.items():
        world.daemon(side, config)
        daemons[side] = world.processes[-1]
    end = time.monotonic() + 120
    for config in configs.values():
        while True:
            status = world.status(config)
            if status["train"]["steps"] >= 20 and (status["sync"]["mixed_peers"] > 0
                                                   or not is_linked):
                break
            if time.monotonic() > end:
                raise RuntimeError(f"does not get going: {status['sync']}, {status['worker']}")
            time.sleep(0.2)
    before = {side: look(world, config, daemons[side]) for side, config in configs.items()}
    time.sleep(seconds)
    after = {side: look(world, config, daemons[side]) for side, config in configs.items()}
    world.end()
    world.processes.clear()
    found = {}
    for side in configs:
        steps = after[side]["steps"] - before[side]["steps"]
        found[side] = {"steps_s": steps / (after[side]["at"] - before[side]["at"]),
                       "steps_cpu": steps / (after[side]["cpu"] - before[side]["cpu"]),
                       "params": after[side]["params"],
                       "rounds": after[side]["rounds"] - before[side]["rounds"],
                       "waiting": after[side]["waiting"]}
    return found


def measure(world, args):
    """Measures pairs of a phase alone and a phase together, and prints the verdict."""
    manifest = world.folder / "run.manifest"
    subprocess.run([str(world.bin / "thinwire"), "run", "new", "wan", "--data",
                    str(world.folder / "text"), "--out", str(manifest)] +
                   [f"--set={key}={value}" for key, value in RUN.items()], check=True,
                   stdout=subprocess.DEVNULL)
    together = {side: lay_out(world, f"together-{side}", side, manifest, True) for side in "ab"}
    alone = {side: lay_out(world, f"alone-{side}", side, manifest, False) for side in "ab"}
    ratios = {"steps": [], "cpu": [], "waiting": []}
    step_s, params = [], 0
    for pair in range(args.pairs):
        solo = phase(world, alone, args.seconds, False)
        group = phase(world, together, args.seconds, True)
        for side in "ab":
            ratios["steps"].append(group[side]["steps_s"] / solo[side]["steps_s"])
            ratios["cpu"].append(group[side]["steps_cpu"] / solo[side]["steps_cpu"])
            ratios["waiting"].append(group[side]["waiting"] / solo[side]["waiting"])
            step_s.append(1 / solo[side]["steps_cpu"])
            params = solo[side]["params"]
            print(f"pair {pair} {side}: alone {solo[side]['steps_s']:.1f} steps/s, together "
                  f"{group[side]['steps_s']:.1f}, {group[side]['rounds']} rounds; steps "
                  f"{ratios['steps'][-1]:.3f}, cpu {ratios['cpu'][-1]:.4f}, waiting "
                  f"{ratios['waiting'][-1]:.4f}", flush=True)
    reduce_steps = 4 * params / RATE_BYTES_S / statistics.median(step_s)
    print(f"{params} parameters; an fp32 all-reduce is {reduce_steps:.0f} steps of "
          f"{1e3 * statistics.median(step_s):.1f} ms")
    medians = {name: statistics.median(values) for name, values in ratios.items()}
    for name, values in ratios.items():
        print(f"{name:8} median {medians[name]:.4f}  from {min(values):.4f} to {max(values):.4f}")
    return reduce_steps >= 50 and medians["cpu"] >= 0.99 and medians["waiting"] >= 0.99


def main():
    """One bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    why = lacks()
    if why is None and (os.cpu_count() < 2 or shutil.which("taskset") is None):
        why = "wants two cores and taskset (util-linux)"
    if why:
        print(f"skipped: {why}")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-util-", dir="/tmp"))
    with Lab(rate_bytes_s=RATE_BYTES_S, loss=1) as lab:
        world = World(args.bin, Pinned(lab), folder)
        try:
            is_good = measure(world, args)
        finally:
            world.end()
    shutil.rmtree(folder)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
