#!/usr/bin/env python3
# train.py - the effect of a topology on a run: real nodes and workers in the lab, beside the mesh.
"""train.py BIN --plan '1 public + 2 homes' [--preset NAME] ...

Runs one small run in the lab of that plan (lab.py), then the same run where all hosts are public,
and prints the end of each node, and the ratio of the losses. The held-out loss decides: the
anchor's loss is the group's.

    --plan PLAN      as lab.py has them; without any: the three plans of the project's goals
    --preset NAME    of the run: streaming (default), diloco, noloco ...
    --set KEY=VALUE  of the manifest, over the small model here
    --tokens N       of the run
    --rate KBIT      of every home's line, each way
    --relay off      no member carries links of others, so homes have none to each other
    --kill IDX@STEP  kill -9 of that node, daemon and worker, when it has taken so many steps
    --no-mesh        the plan alone; --mesh FILE takes the mesh's figures from an earlier --json
    --json FILE      all that was measured
    --keep DIR       the nodes' folders and logs stay there
    --most PERCENT   ends with status 1 where an anchor is worse than the mesh's by more, or anybody
                     was refused or struck

A run takes one to three minutes on two cores, and wants them to itself: by default every worker has
one thread. The text is the King James Bible (package bible-kjv), or --text FILE. Ends with 77 where
there can be no lab.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lab import Lab, lacks, parse, run

PORT = 4747
PLANS = ("1 public + 2 cone", "2 public + 6 cone", "1 public + 3 cone")
MODEL = {"model.layers": 2, "model.width": 64, "model.heads": 2, "model.context": 64,
         "train.batch": 8}
EVENTS = ("contribution_refused", "input_scaled", "result_large",
          "peer_refused", "peer_out_of_line", "round_forged", "two_faced", "lineage_left",
          "owner_struck",
          "partner_struck", "misbehaved", "left_out", "anchor_differs", "peer_dead", "not_encoded",
          "pair_one_sided", "peer_stalls", "merging_hurts", "bad_merging", "twin")
FIELD = re.compile(r'(\w+)=("[^"]*"|\S+)')
MOST_S = 900


def fields(line):
    """Of a line of the log."""
    return {key: value.strip('"') for key, value in FIELD.findall(line)}


def edit(config, **settings):
    """Puts `key = value` lines in the place of those that are there, commented or not."""
    text = config.read_text(encoding="utf-8")
    for key, value in settings.items():
        text, count = re.subn(rf"(?m)^#?{key} =.*$", f"{key} = {value}".rstrip(), text, count=1)
        if count != 1:
            raise RuntimeError(f"{config} has no key {key}")
    config.write_text(text, encoding="utf-8")


class Node:
    """One daemon on one host of the lab, and its status over time."""

    def __init__(self, world, idx):
        self.world, self.idx, self.name = world, idx, f"n{idx}"
        self.kind = world.lab.hosts[idx]
        self.config = world.folder / f"{self.name}.conf"
        self.log = world.folder / f"{self.name}.log"
        self.process, self.status, self.peers = None, None, None
        self.is_killed, self.is_late = False, False
        self.losses, self.warnings, self.penalties = {}, {}, {}
        self.distances = []

    def init(self):
        """Key, folder, configuration. Public nodes listen; all nodes dial all that listen."""
        world = self.world
        others = [f"{world.lab.wan[idx]}:{PORT}" for idx, kind in enumerate(world.lab.hosts)
                  if kind == "public" and idx != self.idx]
        more = ["--peers", ",".join(others)] if others else []
        run(world.tool("thinwire"), "init", "--config", self.config, "--name", self.name,
            "--state-dir", world.folder / self.name, "--run-dir",
            world.folder / f"{self.name}.run", "--run", world.manifest, "--data", world.text,
            "--threads", "1", *more)
        address = f"{world.lab.local[self.idx]}:{PORT}" if self.kind == "public" else ""
        edit(self.config, listen=address, eval_steps=str(world.args.eval_steps),
             checkpoint_interval="5s", relay=world.args.relay)

    def start(self):
        """In its namespace, and behind everything else on this machine."""
        self.is_killed, self.is_late = False, False
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.world.lab.on(self.idx), "nice", "-n", "5", self.world.tool("thinwired"),
                 "--config", str(self.config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True)

    def get(self, verb):
        """The daemon's answer, or None."""
        done = subprocess.run([self.world.tool("thinwire"), verb, "--json", "--config",
                               str(self.config)], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def poll(self):
        """Reads the status, and remembers values that pass."""
        if self.is_killed or self.process is None:
            return
        status, peers = self.get("status"), self.get("peers")
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.process.returncode}; see {self.log}")
        if status is None or peers is None:
            return
        self.status, self.peers, train = status, peers, status["train"]
        for row in train["losses"]:
            kept = self.losses.setdefault(row["steps"], {})
            kept.update({key: value for key, value in row.items() if value is not None})
        if train["validation_live_nats"] is not None:
            self.losses.setdefault(train["validation_steps"], {}).update(
                live_nats=train["validation_live_nats"],
                anchor_nats=train["validation_anchor_nats"])
        if train["distance_ratio"] is not None:
            self.distances.append((train["steps"], train["distance_ratio"]))
        for row in status["warnings"]:
            self.warnings[re.sub(r"\d+", "N", row["what"])] = row["what"]
        for peer in peers["peers"]:
            for kind in ("strike", "stall", "refused", "anomaly"):
                if peer.get(kind):
                    self.penalties[kind] = peer[kind]

    def stop(self):
        """In order."""
        self.is_killed = True
        self.process.terminate()
        self.process.wait(60)

    def kill(self):
        """As when the machine loses its power."""
        self.is_killed = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def is_finished(self):
        """Nothing more will come."""
        if self.is_killed or self.status is None:
            return self.is_killed
        return self.status["worker"]["state"] == "finished" and \
            self.status["state"] in ("finished", "solo")

    def steps(self):
        """Inner steps, as far as is known."""
        return self.status["train"]["steps"] if self.status else 0

    def events(self):
        """How often each kind of trouble is in the log."""
        counts = collections.Counter()
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            name = fields(line).get("ev")
            counts["receiver"] += name == "state" and " state=receiver" in line
            if "count" in fields(line) and name in EVENTS:
                # the worker's guard: refused and scaled have one count, and few of the lines
                counts["guarded"] = max(counts["guarded"], int(fields(line)["count"]))
            elif name in EVENTS:
                counts[name] += 1
        return {name: count for name, count in counts.items() if count > 0}

    def anchor(self):
        """Held-out loss of the newest checkpoint: its anchor's and its live parameters'."""
        found = {}
        for part in ("anchor", "live"):
            done = subprocess.run(
                ["nice", "-n", "5", self.world.tool("thinwire"), "eval",
                 str(self.world.folder / self.name), "--data", str(self.world.text), "--part",
                 part, "--windows", "400", "--threads", "1", "--json"], capture_output=True,
                text=True, check=False)
            found[part] = json.loads(done.stdout)["validation_nats"] if done.returncode == 0 \
                else None
        return found

    def row(self):
        """The measurements. Losses are of the last evaluation while it trained: at its end theta is
        the anchor."""
        both = [self.losses[step] for step in sorted(self.losses)
                if step % self.world.args.eval_steps == 0 and
                "anchor_nats" in self.losses[step] and "live_nats" in self.losses[step]]
        sync, end = self.status["sync"], self.anchor()
        return {
            "name": self.name, "class": self.kind, "id": self.status["node"]["id_short"],
            "is_killed": self.is_killed, "steps": self.steps(),
            "end_anchor_nats": end["anchor"], "end_live_nats": end["live"],
            "live_nats": both[-1]["live_nats"] if both else None,
            "anchor_nats": both[-1]["anchor_nats"] if both else None,
            "anchor_least_nats": min((row["anchor_nats"] for row in both), default=None),
            "distance_last": self.distances[-1][1] if self.distances else None,
            "distance_most": max((ratio for _, ratio in self.distances), default=None),
            "rounds_committed": sync["rounds_committed"],
            "rounds_contributed": sync["rounds_contributed"],
            "rounds_missed": sync["rounds_missed"],
            "contributions_refused": sync["contributions_refused"],
            "lineage_changes": sync["lineage_changes"],
            "pairs": sync["pairs"] if sync["topology"] == "pair" else None,
            "bytes_out": self.status["network"]["bulk_out_bytes"],
            "events": self.events(), "penalties": self.penalties,
            "warnings": sorted(self.warnings.values()),
            "links": [{key: peer[key] for key in ("id_short", "link", "address", "member", "state")}
                      for peer in self.peers["peers"]],
            "losses": {step: self.losses[step] for step in sorted(self.losses)},
        }


class World:
    """One run in one lab."""

    def __init__(self, args, plan, lab, folder):
        self.args, self.plan, self.lab, self.folder = args, plan, lab, folder
        self.text = args.text
        self.manifest = folder / "manifest"
        keys = {**MODEL, "train.tokens": args.tokens, "sync.nodes": len(lab.hosts),
                **dict(pair.split("=", 1) for pair in args.set)}
        preset = ["--preset", args.preset] if args.preset != "default" else []
        run(self.tool("thinwire"), "run", "new", "nat", "--data", self.text, "--out",
            self.manifest, *preset, *(f"--set={key}={value}" for key, value in keys.items()))
        self.nodes = [Node(self, idx) for idx in range(len(lab.hosts))]
        for node in self.nodes:
            node.init()

    def tool(self, name):
        """A program of this build."""
        return str(self.args.bin / name)

    def churn(self):
        """Every two seconds: nodes that go."""
        for idx, step in self.args.kill:
            if not self.nodes[idx].is_killed and self.nodes[idx].steps() >= step:
                self.nodes[idx].kill()

    def go(self):
        """Starts all, waits for their end, measures."""
        begin = shown = time.monotonic()
        for node in self.nodes:
            if not node.is_late:
                node.start()
        try:
            while not all(node.is_finished() for node in self.nodes):
                time.sleep(2)
                for node in self.nodes:
                    node.poll()
                self.churn()
                now = time.monotonic()
                if now - begin > self.args.most_s:
                    print(f"  not finished after {self.args.most_s} s", file=sys.stderr)
                    break
                if now - shown > 20:
                    shown = now
                    print(f"  {now - begin:.0f} s: steps "
                          f"{' '.join(str(node.steps()) for node in self.nodes)}", file=sys.stderr)
            for node in self.nodes:
                node.poll()
        finally:
            self.end()
        return {"plan": self.plan, "preset": self.args.preset, "seconds":
                round(time.monotonic() - begin, 1), "is_whole":
                all(node.is_finished() for node in self.nodes),
                "nodes": [node.row() for node in self.nodes]}

    def end(self):
        """Stops all nodes."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.terminate()
        for node in self.nodes:
            if node.process is None:
                continue
            try:
                node.process.wait(40)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()


def measure(args, plan):
    """One run in a lab of this plan."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw-nat-", dir="/tmp"))
    folder.chmod(0o755)
    print(f"{plan}, preset {args.preset}: {folder}", file=sys.stderr)
    with Lab(plan) as lab:
        for idx, kind in enumerate(lab.hosts):
            if args.rate and kind != "public":
                lab.rate(idx, args.rate, args.rate)
        found = World(args, plan, lab, folder).go()
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        name = f"{re.sub('[^a-z0-9]+', '-', plan)}.{args.preset}"
        shutil.rmtree(args.keep / name, ignore_errors=True)
        shutil.move(folder, args.keep / name)
    else:
        shutil.rmtree(folder)
    return found


def number(value, form="{:.3f}"):
    """For the table."""
    return "-" if value is None else form.format(value)


def show(found):
    """The table of one run."""
    print(f"\n{found['plan']}, preset {found['preset']}, {found['seconds']:.0f} s"
          f"{'' if found['is_whole'] else ', NOT FINISHED'}")
    print("node class     steps   live anchor  least    end   distance  rounds  with us  refused"
          "  trouble")
    for row in found["nodes"]:
        print(f"{row['name']:<4} {row['class']:<9} {row['steps']:>5}  {number(row['live_nats'])}"
              f"  {number(row['anchor_nats'])}  {number(row['anchor_least_nats'])}"
              f"  {number(row['end_anchor_nats'])}"
              f"  {number(row['distance_most'], '{:>8.1%}')}  {row['rounds_committed']:>6}"
              f"  {row['rounds_contributed']:>7}  {row['contributions_refused']:>7}  "
              + (" ".join(f"{key}:{value}" for key, value in sorted(row["events"].items()))
                 or "none"))
        for key, value in row["penalties"].items():
            print(f"     {key}: {value}")
        for text in row["warnings"]:
            print(f"     warning: {text}")


def worst(found, key):
    """Of the nodes that stayed; inf where one has none."""
    return max(row[key] if row[key] is not None else math.inf for row in found["nodes"]
               if not row["is_killed"])


def compare(found, mesh):
    """Prints ratios; {key: ratio}."""
    ratios = {}
    for key in ("live_nats", "anchor_nats", "end_anchor_nats"):
        here, there = worst(found, key), worst(mesh, key)
        ratios[key] = here / there if math.isfinite(here) and math.isfinite(there) else None
        print(f"  worst {key:<16} {here:.4f}, all reachable {there:.4f}: "
              f"{number(ratios[key], '{:.4f}')}")
    return ratios


def is_wrong(args, found, ratios):
    """Beyond what is allowed?"""
    wrong = [key for key in ("anchor_nats", "end_anchor_nats")
             if ratios.get(key) is None or ratios[key] > 1 + args.most / 100]
    wrong += [f"{row['name']} {key}" for row in found["nodes"]
              for key in ("contribution_refused", "owner_struck",
                          "partner_struck", "misbehaved") if row["events"].get(key)]
    wrong += [f"{row['name']} {key}" for row in found["nodes"] for key in row["penalties"]]
    wrong += [] if found["is_whole"] else ["not finished"]
    if wrong:
        print(f"  WRONG: {', '.join(wrong)}")
    return bool(wrong)


def text_of_bible():
    """The King James Bible; None where it is not installed."""
    if shutil.which("bible") is None:
        return None
    path = pathlib.Path(tempfile.mkdtemp(prefix="tw-nat-text-", dir="/tmp"), "text.txt")
    path.write_text(run("bible", "-f", "gen1:1-rev22:21"), encoding="utf-8")
    return path


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--plan", action="append", default=[])
    parser.add_argument("--preset", default="default")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--tokens", default="2400k")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--relay", default="on")
    parser.add_argument("--kill", action="append", default=[])
    parser.add_argument("--eval-steps", type=int, default=100)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--no-mesh", action="store_true")
    parser.add_argument("--mesh", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--most", type=float)
    parser.add_argument("--most-s", type=int, default=MOST_S)
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    args.plan = args.plan or list(PLANS)
    args.kill = [tuple(int(word) for word in pair.split("@")) for pair in args.kill]
    return args


def main():
    """Each plan, and a mesh of its size once."""
    args = options()
    why = lacks(" ".join(args.plan))
    made = args.text is None
    if why is None and made:
        args.text = text_of_bible()
        why = "no text: install bible-kjv, or give --text FILE" if args.text is None else None
    if why:
        print(f"skipped: {why}")
        return 77
    args.text = args.text.resolve()
    meshes = {}
    if args.mesh:
        earlier = json.loads(args.mesh.read_text(encoding="utf-8"))
        meshes = {len(one["nodes"]): one for one in earlier["runs"]
                  if set(parse(one["plan"])) == {"public"} and one["preset"] == args.preset}
    runs, is_bad = [], False
    for plan in args.plan:
        count = len(parse(plan))
        found = measure(args, plan)
        runs.append(found)
        show(found)
        if set(parse(plan)) == {"public"}:
            meshes[count] = found
        if args.no_mesh:
            continue
        if count not in meshes:
            meshes[count] = measure(args, f"{count} public")
            runs.append(meshes[count])
            show(meshes[count])
        found["ratios"] = compare(found, meshes[count])
        is_bad |= args.most is not None and is_wrong(args, found, found["ratios"])
    if args.json:
        args.json.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    if made:
        shutil.rmtree(args.text.parent)
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main())
