#!/usr/bin/env python3
# test_wan.py - transfers, control messages and rounds over a bad path.
"""Two hosts with a round trip of 100 ms that lose one packet in a hundred each way (wan/lab.py).

    test_wan.py BIN transfer [--full]   20 Mbit/s: a payload over the real transport (wan_pump),
                                        paced and not, beside control messages, against iperf3
                                        with the same congestion control before and after it
    test_wan.py BIN slow                1 Mbit/s: two daemons with stub workers stay members of one
                                        group, and their rounds complete

Results are ratios to the goodput of iperf3 in the same lab. --full moves 64 MB and applies the
promised bounds. Without it 12 MB are moved, with wider bounds for a busy machine.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from test_joins import World
from wan.lab import SIDES, Lab, lacks

PORT = 4747
MB = 1 << 20
SLOW_S = 60


class Iperf:
    """A server of iperf3 on b; each call is one goodput from a, in bytes per second."""

    def __init__(self, lab, congestion):
        self.lab, self.congestion = lab, congestion
        self.server = subprocess.Popen(lab.on("b") + ["iperf3", "-s"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        time.sleep(0.5)

    def goodput(self, seconds):
        """One goodput, without the first second."""
        done = subprocess.run(self.lab.on("a") + ["iperf3", "-c", SIDES["b"], "-C",
                                                  self.congestion, "-t", str(seconds), "-O", "1",
                                                  "-J"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"iperf3: {done.stdout[-300:]}")
        return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8

    def end(self):
        """Stops the server."""
        self.server.terminate()
        self.server.wait()


def pump(lab, program, pace, payload, idle_s):
    """Moves a payload from a to b; returns the reports of both ends."""
    give = subprocess.Popen(lab.on("a") + [program, "give", f"{SIDES['a']}:{PORT}", "--pace",
                                           pace], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    try:
        take = subprocess.run(lab.on("b") + [program, "take", f"{SIDES['a']}:{PORT}", "--bytes",
                                             str(payload), "--warm", str(min(payload, 6 * MB)),
                                             "--idle", str(idle_s)], capture_output=True, text=True,
                              timeout=240, check=True)
        given, _ = give.communicate(timeout=30)
    finally:
        give.kill()
        give.wait()
    return json.loads(given), json.loads(take.stdout)


def measure(lab, program, pace, payload, is_full):
    """One transfer between two goodputs of iperf3: shares of them, and delays in ms."""
    congestion = pump(lab, program, pace, 1, 0)[0]["congestion"]  # the kernel's choice
    iperf = Iperf(lab, congestion)
    try:
        before = iperf.goodput(10 if is_full else 5)
        given, taken = pump(lab, program, pace, payload, 10 if is_full else 5)
        after = iperf.goodput(10 if is_full else 5)
    finally:
        iperf.end()
    rate = payload / taken["took_s"][0]
    found = {
        "share": rate / ((before + after) / 2),
        "socket": given["socket_out"] / payload,
        "idle": taken["idle_ms"], "busy": taken["busy_ms"],
        "idle_trip": given["idle_ms"], "busy_trip": given["busy_ms"],
    }
    print(f"pace {pace}: {rate * 8e-6:.2f} Mbit/s; iperf3 {congestion} {before * 8e-6:.2f} and "
          f"{after * 8e-6:.2f}: {found['share']:.3f}; socket {found['socket']:.4f} of the payload")
    print(f"  path {given['path_bytes_per_s'] * 8e-6:.2f}, held to "
          f"{given['pace_bytes_per_s'] * 8e-6:.2f} Mbit/s at the end")
    for name in ("idle", "busy", "idle_trip", "busy_trip"):
        print(f"  {name:9} ms " + "  ".join(f"{key} {value}" for key, value in found[name].items()))
    return found


def transfer(args):
    """Pace off and auto with losses, and auto without losses, where only the queue delays."""
    program = str(args.bin / "wan_pump")
    payload = (64 if args.full else 12) * MB
    least = {"auto": 0.82, "off": 0.95} if args.full else {"auto": 0.6, "off": 0.7}
    wrong = []
    with Lab(loss=1) as lab:
        found = {pace: measure(lab, program, pace, payload, args.full) for pace in least}
    for pace, share in least.items():
        if found[pace]["share"] < share:
            wrong.append(f"pace {pace} reaches {found[pace]['share']:.3f} of iperf3, not {share}")
        if found[pace]["socket"] > 1.01:
            wrong.append(f"{found[pace]['socket']:.4f} bytes at the socket per byte of payload")
    # Losses delay some messages even without a transfer, so the median shows the queue.
    if found["auto"]["busy"]["p50"] > 50 + 20:
        wrong.append(f"half of the control messages take {found['auto']['busy']['p50']} ms")
    if found["auto"]["busy"]["p50"] > found["off"]["busy"]["p50"]:
        wrong.append("pacing delays control messages")
    with Lab(loss=0) as lab:
        calm = measure(lab, program, "auto", payload, args.full)
    tail = "p99" if args.full else "p90"
    if calm["busy"][tail] > 100 + 20:
        wrong.append(f"{tail} of control messages is {calm['busy'][tail]} ms")
    return wrong


def slow(args):
    """Membership and rounds at 1 Mbit/s, with half a second of queue."""
    wrong = []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-wan-", dir="/tmp"))
    with Lab(rate_bytes_s=125000, loss=1, queue_bytes=62500) as lab:
        world = World(args.bin, lab, folder)
        try:
            wrong = slow_rounds(world)
        finally:
            world.end()
    if wrong:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return wrong


def slow_rounds(world):
    """Two nodes; a round every few seconds that needs a good part of the line."""
    manifest = world.folder / "slow.manifest"
    keys = {"model.layers": 4, "model.width": 128, "model.heads": 4, "model.context": 64,
            "train.tokens": "1g", "sync.nodes": 2, "sync.fragments": 2, "sync.period": 200,
            "sync.overlap": 10, "sync.pace": "clock", "sync.interval": "5s",
            "sync.codec": "int4", "sync.quorum": 2}
    subprocess.run([str(world.bin / "thinwire"), "run", "new", "slow", "--data",
                    str(world.folder / "text"), "--out", str(manifest)] +
                   [f"--set={key}={value}" for key, value in keys.items()], check=True,
                   stdout=subprocess.DEVNULL)
    configs = {}
    for side, other in ("ab", "ba"):
        configs[side] = world.node(side, f"{SIDES[side]}:{PORT}", manifest=manifest,
                                   peers=[f"{SIDES[other]}:{PORT}"])
    for side, config in configs.items():
        world.daemon(side, config)
    end = time.monotonic() + 90
    while any(world.status(config)["sync"]["mixed_peers"] < 1 for config in configs.values()):
        if time.monotonic() > end:
            return ["the two do not mix within 90 s"]
        time.sleep(0.5)
    first = {side: world.status(config) for side, config in configs.items()}
    wrong = set()
    end = time.monotonic() + SLOW_S
    while time.monotonic() < end:
        for side, config in configs.items():
            sync = world.status(config)["sync"]
            if sync["roster_members"] != 2 or sync["alive_peers"] != 1:
                wrong.add(f"{side}: {sync['roster_members']} members, {sync['alive_peers']} alive")
        time.sleep(0.5)
    for side, config in configs.items():
        last = world.status(config)
        rounds, ours_, sent = (last["sync"]["rounds_committed"] - first[side]["sync"]
                               ["rounds_committed"],
                               last["sync"]["rounds_contributed"] - first[side]["sync"]
                               ["rounds_contributed"],
                               last["network"]["bulk_out_bytes"] - first[side]["network"]
                               ["bulk_out_bytes"])
        print(f"{side}: {rounds} rounds in {SLOW_S} s, {ours_} with its contribution, "
              f"{sent * 8e-6 / SLOW_S:.2f} Mbit/s of payloads, {last['network']['path']}")
        if rounds < 5 or ours_ < rounds - 1:
            wrong.add(f"{side}: {rounds} rounds in {SLOW_S} s, {ours_} with its contribution")
        if sent * 8 < 0.1e6 * SLOW_S:
            wrong.add(f"{side}: the rounds are too small to say anything: {sent} bytes")
    return sorted(wrong)


def main():
    """One part of the test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("part", choices=["transfer", "slow"])
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    why = lacks()
    if why is None and args.part == "transfer" and shutil.which("iperf3") is None:
        why = "iperf3 is not installed"
    if why:
        print(f"skipped: {why}")
        return 77
    wrong = {"transfer": transfer, "slow": slow}[args.part](args)
    print("\n".join(f"WRONG {line}" for line in wrong) or "the path does no more than it must")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
