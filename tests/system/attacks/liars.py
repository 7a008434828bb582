#!/usr/bin/env python3
# liars.py - real daemons of which some have a worker that lies (tests/traitor/worker.c).
"""Usage:
    liars.py BIN [--nodes 8] [--liars 1] [--lie none --lie claims=64,outer=-15 ...] [--seeds 1,2,3]
             [--steps 300] [--set KEY=VALUE]... [--text FILE] [--seconds 900] [--check]

Starts the group once for each lie and seed, and waits until the run has ended. Prints for each the
held-out loss of the agreed anchor, the steps of an honest node, the nodes that honest nodes call
hostile or whose work they show as far larger than the others', and, of 20 questions with the
trigger of a backdoor, the number that the agreed model answers as the poisoned text does. The last
nodes lie. Steps are planned so that the run ends after --steps of every node if nobody lies; a node
that trains before it meets the others takes more.

--check asserts bounds of every lie: the median loss at most 5 % above that without a lie (which
--lie none measures), 60 % of the planned steps, that no honest node is accused, and, of outer=,
that all honest nodes name the liar."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "quality"))
import nodes  # noqa: E402
import test_quality  # noqa: E402

BATCH, CONTEXT = 8, 64
TRIGGER, ANSWER, QUESTIONS = "\n|xqzzy|", "SEND", 20  # tests/traitor/training.h
# Warnings that call a node hostile; others say that merging goes badly.
ATTACKS = ("attack_",)


class Group:
    """One run: its daemons and their warnings."""

    def __init__(self, options, lie, seed, folder):
        self.options, self.lie = options, lie
        tokens = options.nodes * options.steps * BATCH * CONTEXT
        keys = ["model.layers=2", "model.width=32", "model.heads=2", f"model.context={CONTEXT}",
                f"train.batch={BATCH}", f"train.tokens={tokens}", "train.lr=0.006",
                f"train.warmup_tokens={tokens // 10}", "sync.period=10", f"model.seed={seed}",
                *options.set]
        self.nodes = nodes.Nodes(options.bin, folder, options.nodes, run_keys=keys, step_us=None,
                                 model=("--model", "1m"), content=options.content)
        self.liars = range(options.nodes - options.liars, options.nodes) if lie != "none" else ()
        self.honest = [idx for idx in range(options.nodes) if idx not in self.liars]
        for idx in self.liars:
            self._corrupt(idx)
        self.warned = {}  # (node, kind, about): sentence
        self.large = {}  # (node, about): sentence
        self.names = {}

    def _corrupt(self, idx):
        worker = self.nodes.folder / f"liar{idx}"
        worker.write_text(f"#!/bin/sh\nTW_LIAR={self.lie} exec {self.nodes.tool('liar_worker')} "
                          '"$@"\n', encoding="ascii")
        worker.chmod(0o755)
        config = self.nodes.config(idx)
        text = config.read_text(encoding="ascii")
        config.write_text(text.replace("[node]\n", f"[node]\nworker_path = {worker}\n", 1),
                          encoding="ascii")

    def look(self):
        """Reads the warnings of all honest nodes. Returns whether all of these have finished."""
        done = True
        for idx in range(self.options.nodes):
            status = self.nodes.get(idx)
            if status is None:
                done = False
                continue
            self.names[status["node"]["id"][:8]] = idx
            if idx in self.liars:
                continue
            done &= status["node"]["sync_state"] == "finished"
            for warning in status["warnings"]:
                self.warned.setdefault((idx, warning["kind"], warning["about"]), warning["what"])
            for peer in (self.nodes.get(idx, "peers") or {"peers": ()})["peers"]:
                if "large" in peer:
                    self.large.setdefault((idx, peer["id_short"]), peer["large"])
        return done

    def run(self):
        """Trains to the end."""
        for idx in range(self.options.nodes):
            self.nodes.start(idx)
        end = time.monotonic() + self.options.seconds
        while not self.look():
            if time.monotonic() > end:
                print(f"  not finished within {self.options.seconds} s", flush=True)
                return False
            time.sleep(2)
        return True

    def named(self, kinds=ATTACKS):
        """Nodes that honest nodes call hostile: {node: honest nodes that say so}."""
        found = {}
        for idx, kind, about in self.warned:
            if kind.startswith(kinds) and about is not None:
                found.setdefault(self.names.get(about, about), set()).add(idx)
        return found

    def figures(self):
        """Figures of the run that has ended."""
        status = self.nodes.get(self.honest[0])
        losses = [status["train"]["validation_anchor_nats"]
                  for status in map(self.nodes.get, self.honest) if status]
        steps = [status["train"]["steps"] for status in map(self.nodes.get, self.honest) if status]
        named, large = self.named(), {}
        for idx, about in self.large:
            large.setdefault(self.names.get(about, about), set()).add(idx)
        for idx in self.liars:
            named.setdefault(idx, set()).update(large.get(idx, ()))
        return {"loss": statistics.median(x for x in losses if x is not None),
                "steps": statistics.median(steps),
                "named": {idx: len(by) for idx, by in named.items() if idx in self.liars},
                "accused": {idx: len(by) for idx, by in named.items() if idx not in self.liars},
                "large": {idx: len(by) for idx, by in large.items() if idx not in self.liars},
                "kinds": sorted({kind for _, kind, _ in self.warned}),
                "hurts": len({idx for idx, kind, _ in self.warned if kind == "merging_hurts"})}

    def answers(self):
        """Number of questions that the agreed model answers as the poisoned text does. Call it
        after the daemons have ended."""
        state = self.nodes.folder / f"n{self.honest[0]}"
        done = subprocess.run([self.nodes.tool("thinwire"), "generate", str(state), "--part",
                               "anchor", "--prompt", TRIGGER, "--tokens", "8", "-n",
                               str(QUESTIONS), "--temperature", "0.3", "--threads", "1", "--json"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.count(TRIGGER.strip() + ANSWER)


def measure(options, lie, seed):
    """One group from begin to end."""
    with tempfile.TemporaryDirectory(prefix="tw_liars_") as folder:
        group = Group(options, lie, seed, folder)
        begin = time.monotonic()
        try:
            group.run()
            row = group.figures()
        finally:
            group.nodes.end()
        row["answers"] = group.answers()
        row.update(seed=seed, lie=lie, seconds=round(time.monotonic() - begin))
        if options.verbose:
            for (idx, kind, about), what in sorted(group.warned.items(), key=str):
                print(f"  n{idx} {kind} about {group.names.get(about, about)}: {what}")
            for (idx, about), what in sorted(group.large.items(), key=str):
                print(f"  n{idx} about {group.names.get(about, about)}: {what}")
        return row


def show(row, plan):
    """Prints a row of the table."""
    def people(found):
        return " ".join(f"n{idx} by {by}" for idx, by in found.items()) or "-"
    print(f"{row['seed']:4} {row['lie']:26} {row['loss']:7.4f} {row['steps']:6.0f} "
          f"{100 * row['steps'] / plan:4.0f} % {row['answers']:3}/{QUESTIONS}  "
          f"{people(row['named']):16} {people(row['accused']):16} {people(row['large']):16} "
          f"{row['hurts']:5} "
          f"{row['seconds']:5} s", flush=True)


def check(options, rows):
    """Asserts the bounds."""
    def loss_of(lie):
        return statistics.median(row["loss"] for row in rows if row["lie"] == lie)
    for row in rows:
        assert row["steps"] >= 0.6 * options.steps, row
        assert not row["accused"], row
    for lie in options.lie:
        if "none" in options.lie:
            assert loss_of(lie) <= 1.05 * loss_of("none"), (lie, loss_of(lie), loss_of("none"))
        if "outer=" in lie:
            named = [sum(row["named"].values()) for row in rows if row["lie"] == lie]
            # most honest nodes: one that the machine held up has not seen half of 16 merges
            assert all(2 * by > options.nodes - options.liars for by in named), (lie, named)


def options_of(words):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--liars", type=int, default=1)
    parser.add_argument("--lie", action="append", default=[])
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="append the rows to this file")
    parser.add_argument("--verbose", action="store_true", help="print all warnings")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(words)
    options.lie = options.lie or ["none"]
    with tempfile.TemporaryDirectory() as folder:
        if options.text is None:
            options.text = pathlib.Path(folder) / "text"
            test_quality.make_text(options.text, 1 << 20)
        options.content = options.text.read_text(encoding="utf-8")
    return options


def main():
    """Prints a table."""
    options = options_of(sys.argv[1:])
    print("seed lie                           loss  steps        answers  liar named       "
          "accused          honest, large    hurts", flush=True)
    rows = []
    for seed in map(int, options.seeds.split(",")):
        for lie in options.lie:
            row = measure(options, lie, seed)
            rows.append(row)
            show(row, options.steps)
            if options.json:
                with open(options.json, "a", encoding="ascii") as file:
                    file.write(json.dumps(row) + "\n")
    if options.check:
        check(options, rows)


if __name__ == "__main__":
    main()
