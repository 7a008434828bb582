"""demo.py - runs the demo: starts the nodes, shows them, kills one, and judges the result.

It uses only the interfaces that every user has: configuration files, signals, the status socket and
the command line. Every verdict can be recomputed from OUT/demo.json. Standard library only.
"""
import argparse
import array
import http.client
import json
import math
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

from demo_plot import write_curves

GOALS = {
    "anchor_nats_max": 2.2,          # nats per byte, held out
    "better_than_solo_nats_min": 0.05,
    "nodes_spread_max": 0.01,        # of the loss; with own anchors
    "own_spread_max": 0.03,
    "own_anchors_apart_max": 0.1,    # relative L2
    "bytes_ratio_min": 100.0,        # fp32 data parallel / ours
    "utilisation_min": 0.97,
    "rejoin_s": 10.0,                # plus the time of a round and missing bytes / rate
    "pause_s_max": 5.0,              # longest time without a step of another node, after the kill
}

# A run that two cores can train in two minutes, with five nodes at a time. The inner rate is low,
# so that neither the group nor the solo node depends on luck (at 0.004 three solo runs ended
# between 1.80 and 1.94). The outer momentum makes up for it. Five fragments keep a merge short on a
# slow link.
MANIFEST = {"train.batch": "8", "model.context": "256", "train.lr": "0.002"}
PRESETS = {  # override the preset's row, which is fitted to the length of the run
    "streaming": {"sync.period": "40", "sync.fragments": "5", "sync.outer_lr": "1",
                  "sync.outer_momentum": "0.7", "sync.sent": "mix", "sync.mix": "0.5"},
    "diloco": {"sync.period": "40", "sync.outer_lr": "1", "sync.outer_momentum": "0.7"},
    "eager": {"sync.period": "20", "sync.overlap": "19", "sync.codec": "int4",
              "sync.result": "int4"},
    "noloco": {"sync.period": "27", "sync.codec": "ecsq2"},
    "co2": {"sync.period": "20", "sync.overlap": "19", "sync.codec": "int4",
            "sync.result": "int4"},
    "decoupled": {"sync.period": "30"},
    "sparseloco": {},
    "local-sgd": {"sync.period": "20", "sync.codec": "int4", "sync.result": "int4"},
    "btm": {},
}
# Presets with outer constants chosen for this demo: these must lead by a margin. The others have
# the constants of their rows, which suit longer runs, and some lead the solo node by little.
CHOSEN = ("streaming", "diloco")
OWN_ANCHORS = ("noloco", "btm")  # presets whose nodes end with anchors of their own


class Stopped(Exception):
    """SIGTERM: stops the nodes like an interrupt from the keyboard."""


def on_sigterm(_number, _frame):
    raise Stopped


class Api(http.client.HTTPConnection):
    """One request to a node's Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=4)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path, what="/v1/status"):
    """The node's answer, or None if it does not answer."""
    api = Api(path)
    try:
        api.request("GET", what)
        return json.loads(api.getresponse().read())
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        return None
    finally:
        api.close()


class Node:
    """One thinwired with its folder, its process and its status over time."""

    def __init__(self, name, folder, binaries):
        self.name, self.folder, self.binaries = name, folder, binaries
        self.config = folder / f"{name}.conf"
        # Socket paths are limited to 108 bytes, and folders may be deep.
        self.run_dir = pathlib.Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp"),
                                    f"thinwire-demo-{os.getpid()}", name)
        self.socket = str(self.run_dir / "thinwired.sock")
        self.process = None
        self.status = None
        self.samples = []   # (seconds since the start, steps, tokens)
        self.distance_max = 0.0
        self.sent_before = 0   # bytes sent by earlier processes
        self.received_before = 0
        self.sent = self.received = 0
        self.losses = {}
        self.last_step, self.last_step_s, self.longest_pause_s = -1, None, 0.0

    def init(self, args, port, ports, secret, has_data):
        command = [self.binaries / "thinwire", "init", "--config", self.config, "--name", self.name,
                   "--state-dir", self.folder / self.name, "--run-dir", self.run_dir,
                   "--run", self.manifest, "--threads", "1"]
        if has_data: # other nodes fetch it
            command += ["--data", self.data]
        if port is not None:
            command += ["--listen", f"127.0.0.1:{port}", "--upload", args.upload,
                        "--peers", ",".join(f"127.0.0.1:{p}" for p in ports if p != port)]
        if secret is not None:
            command += ["--secret-file", secret]
        check(command)
        settings = {"checkpoint_interval": "5s", "eval_steps": str(args.eval_steps)}
        if port is None: # alone: it stops after its own steps
            settings.update(links="off", stop_step=str(args.steps))
        self.set(settings)

    def set(self, settings):
        """Uncomments or replaces `key = value` lines of the configuration."""
        lines = self.config.read_text().splitlines()
        for key, value in settings.items():
            for i, line in enumerate(lines):
                if line.lstrip("#").replace(" ", "").startswith(key + "="):
                    lines[i] = f"{key} = {value}"
                    break
            else:
                sys.exit(f"demo: {self.config} has no key {key}")
        self.config.write_text("\n".join(lines) + "\n")

    def start(self):
        self.run_dir.mkdir(parents=True, exist_ok=True)
        log = open(self.folder / f"{self.name}.log", "ab")
        self.process = subprocess.Popen([self.binaries / "thinwired", "--config", self.config],
                                        stdout=log, stderr=log, start_new_session=True)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.sent_before, self.received_before = self.sent, self.received
        self.status = None

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def poll(self, now_s):
        status = ask(self.socket)
        if status is None:
            return
        self.status = status
        self.id = status["node"]["id"]
        net, train = status["network"], status["train"]
        self.sent = self.sent_before + net["control_out_bytes"] + net["bulk_out_bytes"]
        self.received = self.received_before + net["control_in_bytes"] + net["bulk_in_bytes"]
        for row in train["losses"]:
            old = self.losses.get(row["steps"], {})
            self.losses[row["steps"]] = {k: v if v is not None else old.get(k)
                                         for k, v in row.items()}
        if train["validation_live_nats"] is not None:
            self.losses.setdefault(train["validation_steps"], {"train_nats": None}).update(
                live_nats=train["validation_live_nats"],
                anchor_nats=train["validation_anchor_nats"])
        self.samples.append((round(now_s, 2), train["steps"], train["tokens"]))
        self.distance_max = max(self.distance_max, train["distance_ratio"] or 0.0)
        if train["steps"] != self.last_step:
            self.last_step, self.last_step_s = train["steps"], now_s

    def is_finished(self):
        return self.status is not None and self.status["worker"]["state"] == "finished" and (
            self.status["state"] in ("finished", "solo") or not self.status["node"]["links"])

    def checkpoint_files(self):
        return sorted(self.folder.glob(f"{self.name}/*/ckpt.?.safetensors"),
                      key=lambda path: path.stat().st_mtime)


def check(command, **options):
    """Runs a command; shows its output only if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"demo: {' '.join(map(str, command))} failed with status {done.returncode}:\n"
                 f"{done.stdout}{done.stderr}")
    return done.stdout


def corpus(folder):
    """The King James Bible from Debian's bible-kjv as plain text: 4.4 MB of English."""
    path = folder / "corpus.txt"
    path.write_text(check(["bible", "-f", "gen1:1-rev22:21"]))
    return path


def dataset(binaries, folder):
    """The same text as shards of half a megabyte, with one passage in twenty held out."""
    path = folder / "bible"
    check([binaries / "thinwire", "data", "prepare", corpus(folder), "--out", path,
           "--heldout", "5%", "--shard-tokens", "512k"])
    return path


def has_same_data(node):
    """Whether a node's copy of the dataset equals the original."""
    names = [path.name for path in node.data.iterdir() if not path.name.startswith("prepare.")]
    copies = [path for path in (node.folder / node.name).glob("*/data") if path.is_dir()]
    return len(copies) == 1 and all(
        (copies[0] / name).is_file() and
        (copies[0] / name).read_bytes() == (node.data / name).read_bytes() for name in names)


def free_ports(count):
    """Ports that are free right now."""
    holders = []
    for _ in range(count):
        holder = socket.socket()
        holder.bind(("127.0.0.1", 0))
        holders.append(holder)
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def number(value, form="{:.3f}", none="-"):
    return none if value is None else form.format(value)


class Table:
    """The live table: redrawn in place on a terminal, printed every ten seconds elsewhere."""

    HEAD = ("node    state        step  tok/s  train  valid  anchor  round  known/alive/mixed"
            "    sent  busy%")

    def __init__(self):
        self.is_live = sys.stdout.isatty()
        self.lines_count = 0
        self.shown_s = -1e9

    def row(self, node):
        if node.process is None or node.process.poll() is not None:
            return f"{node.name:<7} {'down':<10}"
        if node.status is None:
            return f"{node.name:<7} {'starting':<10}"
        s, t, y = node.status, node.status["train"], node.status["sync"]
        mixed = f"{y['known_peers']}/{y['alive_peers']}/{y['mixed_peers']}"
        return (f"{node.name:<7} {s['state']:<10} {t['steps']:>6} {t['tokens_per_s'] or 0:>6.0f}"
                f"  {number(t['loss_nats'])}  {number(t['validation_live_nats'])}"
                f"  {number(t['validation_anchor_nats']):>6} {y['rounds_committed']:>6}"
                f"  {mixed:>17} {node.sent / 1e6:>6.1f}M"
                f"  {100 * (t['utilisation_ratio'] or 0):>5.1f}")

    def show(self, nodes, now_s, note):
        if not self.is_live and now_s - self.shown_s < 10:
            return
        self.shown_s = now_s
        done = max((n.status["run"]["done_percent"] for n in nodes if n.status), default=0.0)
        bar = int(done * 0.3)
        lines = [f"{int(now_s):>4} s  [{'#' * bar}{'.' * (30 - bar)}] {done:5.1f} %  {note}",
                 self.HEAD] + [self.row(node) for node in nodes]
        if self.is_live and self.lines_count > 0:
            sys.stdout.write(f"\x1b[{self.lines_count}F\x1b[J")
        print("\n".join(lines), flush=True)
        self.lines_count = len(lines)


class Churn:
    """Kills one node midway and restarts it; measures the effect on all nodes."""

    DOWN_S = 8.0

    def __init__(self, victim, others, rate_bytes_s, has_own_anchors):
        self.victim, self.others, self.rate_bytes_s = victim, others, rate_bytes_s
        self.has_own_anchors = has_own_anchors
        self.state = "before"
        self.facts = {"victim": victim.name}

    def step(self, now_s, done_percent):
        """Returns a note for the table."""
        if self.state == "before" and done_percent >= 40.0:
            self.victim.kill()
            self.facts["killed_at_s"] = round(now_s, 2)
            self.killed_s, self.state = now_s, "down"
            self.before_steps = {node.name: node.last_step for node in self.others}
        elif self.state == "down" and now_s - self.killed_s >= self.DOWN_S:
            self.received = self.victim.received
            # Rounds decided by each other node at the restart: the victim must enter a later one.
            self.rounds = {n: n.status["sync"]["rounds_committed"] for n in self.others if n.status}
            self.facts["round_s"] = round(
                max((now_s / max(n, 1) for n in self.rounds.values()), default=0.0), 2)
            self.victim_id = self.victim.id
            self.victim.start()
            self.started_s, self.state = now_s, "back"
            self.facts["restarted_at_s"] = round(now_s, 2)
        elif self.state == "back" and self.victim.status is not None:
            states = ("member", "finished") + (("solo",) if self.has_own_anchors else ())
            if self.victim.status["state"] in states and self.is_mixed():
                missing = self.victim.received - self.received
                self.facts.update(
                    mixing_after_s=round(now_s - self.started_s, 2), missing_bytes=missing,
                    allowed_s=round(GOALS["rejoin_s"] + self.facts["round_s"] +
                                    missing / self.rate_bytes_s, 2))
                self.state = "over"
        return {"before": "", "down": f"{self.victim.name} was killed with SIGKILL",
                "back": f"{self.victim.name} was started again",
                "over": f"{self.victim.name} came back and mixes"}[self.state]

    def is_mixed(self):
        """Whether another node reports a round after the restart that lists the victim. (Members
        of a group count the same rounds, so any of them will do.)"""
        for node, rounds in self.rounds.items():
            peers = ask(node.socket, "/v1/peers")
            if any(peer["id"] == self.victim_id and (peer["last_mixed_round"] or 0) >= rounds
                   for peer in (peers or {}).get("peers", [])):
                return True
        return False

    def watch(self, now_s):
        """Updates the longest time without a new step of any other node while one was gone."""
        if self.state not in ("down", "back"):
            return
        for node in self.others:
            if node.last_step_s is not None and not node.is_finished():
                since_s = now_s - max(node.last_step_s, self.killed_s)
                node.longest_pause_s = max(node.longest_pause_s, since_s)


def tensors(path, prefix):
    """The float32 tensors of a checkpoint whose names start with `prefix`."""
    with open(path, "rb") as file:
        header_bytes = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(header_bytes))
        for name, entry in sorted(header.items()):
            if not name.startswith(prefix):
                continue
            begin, end = entry["data_offsets"]
            file.seek(8 + header_bytes + begin)
            values = array.array("f")
            values.frombytes(file.read(end - begin))
            yield values


def distance(path_a, path_b, prefix):
    """Relative L2 distance between the same tensors of two checkpoints."""
    apart = size = 0.0
    for a, b in zip(tensors(path_a, prefix), tensors(path_b, prefix)):
        apart += math.fsum((x - y) * (x - y) for x, y in zip(a, b))
        size += math.fsum(x * x for x in a)
    return math.sqrt(apart / size) if size > 0 else float("nan")


def evaluate(node, part, windows):
    """Held-out loss of one part of a node's newest checkpoint, in nats per byte."""
    files = node.checkpoint_files()
    if not files:
        return None
    text = check([node.binaries / "thinwire", "eval", files[-1], "--run", node.manifest, "--data",
                  node.data, "--part", part, "--windows", windows, "--threads", "1", "--json"])
    return json.loads(text)["validation_nats"]


def merged_nats(args, group, files):
    """Loss of the model that `thinwire merge` makes of parted nodes; None for other presets."""
    if args.preset != "btm":
        return None
    node = group[0]
    text = check([node.binaries / "thinwire", "merge", *files, "--run", node.manifest, "--data",
                  node.data, "--weights", "greedy", "--windows", args.windows, "--threads", "1",
                  "--out", args.out / "merged.safetensors", "--json"])
    return json.loads(text)["validation_nats"]


def run_loop(args, group, solo, churn):
    """Runs until all nodes are done; returns the seconds it took."""
    table, start_s = Table(), time.monotonic()
    nodes = group + [solo]
    while True:
        now_s = time.monotonic() - start_s
        for node in nodes:
            if node.process.poll() is None:
                node.poll(now_s)
            elif not (churn.state == "down" and node is churn.victim):
                sys.exit(f"demo: {node.name} ended by itself with status "
                         f"{node.process.returncode}; see {node.folder}/{node.name}.log")
        done = max((n.status["run"]["done_percent"] for n in group if n.status), default=0.0)
        note = churn.step(now_s, done) if args.kill else ""
        churn.watch(now_s)
        table.show(nodes, now_s, note)
        if all(node.is_finished() for node in nodes):
            table.shown_s = -1e9
            table.show(nodes, now_s, "finished")
            return now_s
        if now_s > args.timeout:
            print(f"demo: not finished after {args.timeout} s", file=sys.stderr)
            return now_s
        time.sleep(0.5)


def stop_all(nodes):
    for node in nodes:
        node.stop()
    deadline_s = time.monotonic() + 30
    for node in nodes:
        if node.process is None:
            continue
        try:
            node.process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            node.process.kill()


def judge(facts):
    """Rows of name, measured value and verdict, recomputable from the facts alone."""
    group, solo = facts["nodes"], facts["solo"]
    lives = [n["live_nats"] for n in group if n["live_nats"] is not None]
    anchors = [n["anchor_nats"] for n in group if n["anchor_nats"] is not None]
    has_own, is_alone = facts["preset"] in OWN_ANCHORS, facts["preset"] == "btm"
    rows = []

    def add(name, seen, is_enough):
        rows.append({"name": name, "seen": seen, "ok": bool(is_enough)})

    what = "merged model's" if is_alone else "anchor"
    anchor = max(anchors) if len(anchors) == len(group) else float("inf")
    if is_alone:
        anchor = facts["merged_nats"]
    add(f"{what} loss at most {GOALS['anchor_nats_max']} nats/byte", f"{anchor:.4f}",
        anchor <= GOALS["anchor_nats_max"])
    if is_alone:
        add("the merge is no worse than the best of the nodes", f"{min(lives):.4f} -> {anchor:.4f}",
            anchor <= min(lives) + 1e-4)
    gain = (solo["live_nats"] or 0) - anchor
    least = GOALS["better_than_solo_nats_min"] if facts["preset"] in CHOSEN else 0.0
    add(f"better than the solo node by {least}" if least > 0 else "better than the solo node",
        f"{gain:.4f}", gain > least)
    if not is_alone:
        most = GOALS["own_spread_max" if has_own else "nodes_spread_max"]
        spread = max(lives) / min(lives) - 1 if len(lives) == len(group) else float("inf")
        add(f"nodes within {100 * most:.0f} % of each other", f"{100 * spread:.2f} %",
            spread <= most)
        apart = facts["anchor_distance_max"]
        if has_own:
            add(f"anchors at most {GOALS['own_anchors_apart_max']} apart", f"{apart:.3f}",
                apart <= GOALS["own_anchors_apart_max"])
        else:
            add("one and the same anchor on all nodes", f"{apart:.2e}", apart == 0.0)
    ratio = facts["bytes_ratio"]
    add("at least 100 times fewer bytes than fp32 data parallel",
        "nothing was sent" if ratio is None else f"{ratio:.0f} times",
        ratio is not None and ratio >= GOALS["bytes_ratio_min"])
    if facts["data_copies"] is not None:
        add("every other node fetched the data",
            f"{facts['data_copies']} of {len(group) - 1}, {facts['data_bytes'] / 1e6:.1f} MB each",
            facts["data_copies"] == len(group) - 1)
    busy = min(n["utilisation"] for n in group)
    add("utilisation at least 97 %", f"{100 * busy:.1f} %", busy >= GOALS["utilisation_min"])
    if facts["churn"] is not None:
        churn = facts["churn"]
        back, allowed = churn.get("mixing_after_s"), churn.get("allowed_s")
        if not is_alone:
            add(f"{churn['victim']} mixes again in time",
                "never" if back is None else f"{back:.1f} s of {allowed:.1f} s allowed",
                back is not None and back <= allowed)
        pause = max(churn["pauses_s"].values())
        add("the others never paused", f"longest time without a new step {pause:.1f} s",
            pause <= GOALS["pause_s_max"])
    add("everybody finished", "yes" if facts["is_finished"] else "no", facts["is_finished"])
    return rows


def describe(node, args):
    status = node.status
    return {
        "name": node.name,
        "steps": status["train"]["steps"], "tokens": status["train"]["tokens"],
        "utilisation": status["train"]["utilisation_ratio"],
        "rounds_contributed": status["sync"]["rounds_contributed"],
        "sent_bytes": node.sent, "received_bytes": node.received,
        "distance_to_anchor_max": node.distance_max,
        "live_nats": evaluate(node, "live", args.windows),
        "anchor_nats": evaluate(node, "anchor", args.windows),
        "start_nats": node.losses.get(0, {}).get("live_nats"),
        "losses": [dict(steps=s, **{k: v for k, v in node.losses[s].items() if k != "steps"})
                   for s in sorted(node.losses)],
        "samples": node.samples,
    }


def gather(args, group, solo, churn, took_s):
    params = group[0].status["run"]["model_params"]
    nodes = [describe(node, args) for node in group]
    steps = sum(node["steps"] for node in nodes)
    # Ring all-reduce of fp32 gradients: each node sends 2 (n-1)/n of 4 bytes a parameter per step.
    parallel = 2 * (len(group) - 1) / len(group) * params * 4 * steps
    sent = sum(node["sent_bytes"] for node in nodes)
    files = [node.checkpoint_files()[-1] for node in group if node.checkpoint_files()]
    facts = {
        "preset": args.preset, "merged_nats": merged_nats(args, group, files),
        "nodes": nodes, "solo": describe(solo, args), "model_params": params,
        "took_s": round(took_s, 1), "is_finished": all(n.is_finished() for n in group + [solo]),
        "upload_cap": args.upload, "goals": GOALS,
        "sent_bytes": sent, "data_parallel_bytes": parallel,
        "bytes_ratio": parallel / sent if sent > 0 else None,  # None: nothing was exchanged
        "live_distance_max": max((distance(files[0], f, "live.") for f in files[1:]), default=0.0),
        "anchor_distance_max": max((distance(files[0], f, "anchor.") for f in files[1:]),
                                   default=0.0),
        "distance_to_anchor_max": max(n["distance_to_anchor_max"] for n in nodes),
        "data_copies": None if args.no_sync else sum(has_same_data(n) for n in group[1:]),
        "data_bytes": sum(path.stat().st_size for path in group[0].data.glob("*.shard")),
        "churn": None,
    }
    if args.kill:
        churn.facts["pauses_s"] = {n.name: round(n.longest_pause_s, 2) for n in churn.others}
        facts["churn"] = churn.facts
    return facts


def report(facts, text, out):
    start = facts["nodes"][0]["start_nats"]
    print("\nValidation loss, nats per byte")
    print(f"  at the start   {number(start, '{:.4f}')}")
    for node in facts["nodes"] + [facts["solo"]]:
        print(f"  {node['name']:<14} {number(node['live_nats'], '{:.4f}')}"
              f"   anchor {number(node['anchor_nats'], '{:.4f}')}   {node['steps']} steps,"
              f" {node['sent_bytes'] / 1e6:.1f} MB sent")
    print(f"Consensus      nodes {facts['live_distance_max']:.2e} apart at the end"
          f" (relative L2); at most {facts['distance_to_anchor_max']:.3f} from the anchor on the"
          " way")
    print(f"Bytes          {facts['sent_bytes'] / 1e6:.1f} MB at the socket, fp32 data parallel"
          f" {facts['data_parallel_bytes'] / 1e9:.2f} GB: {number(facts['bytes_ratio'], '{:.0f}')}"
          " times fewer")
    print(f"Time           {facts['took_s']:.0f} s of training")
    print("\nThe model writes:\n" + "\n".join("  | " + line for line in text.splitlines()))
    print()
    for row in facts["verdicts"]:
        print(f"  {'ok  ' if row['ok'] else 'FAIL'}  {row['name']}: {row['seen']}")
    print(f"\nLoss curves in {out}/loss.svg, every number in {out}/demo.json")


def parse():
    parser = argparse.ArgumentParser(
        prog="deploy/demo",
        description="Four nodes on loopback, 5 Mbit/s up each, train one model on real text, which"
                    " only the first of them has at the start; a fifth trains alone for comparison."
                    " Exit status 0 only if the goals hold.")
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin",
                        help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default="demo-out",
                        help="output folder (default: %(default)s, emptied first)")
    parser.add_argument("--nodes", type=int, default=4, help="nodes that train together")
    parser.add_argument("--steps", type=int, default=1200, help="inner steps of each node")
    parser.add_argument("--preset", default="streaming", choices=list(PRESETS))
    parser.add_argument("--upload", default="5mbit", help="upload cap of each node")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes the run's manifest, as in `thinwire run new`")
    parser.add_argument("--no-kill", dest="kill", action="store_false",
                        help="kills no node")
    parser.add_argument("--no-sync", action="store_true",
                        help="cuts the links: the demo must then fail")
    parser.add_argument("--keep", action="store_true", help="leaves the nodes running at the end")
    parser.add_argument("--eval-steps", type=int, default=100, help=argparse.SUPPRESS)
    parser.add_argument("--windows", type=int, default=200, help=argparse.SUPPRESS)
    parser.add_argument("--timeout", type=int, default=900, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.nodes < 2:
        parser.error("--nodes must be at least 2; for one node see `thinwire train`")
    if args.check:
        sys.exit(0)
    return args


def prepare(args):
    """Folders, corpus, manifests and configurations; returns (group, solo)."""
    out = args.out.resolve()
    if out.exists() and not (out / ".thinwire-demo").exists() and any(out.iterdir()):
        sys.exit(f"demo: {out} is not empty and not from a demo; choose another --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / ".thinwire-demo").touch()
    binaries = args.bin.resolve()
    data = dataset(binaries, out)
    chosen_by_user = dict(pair.partition("=")[::2] for pair in args.set)
    settings = {**MANIFEST, **PRESETS[args.preset], **chosen_by_user}
    chosen = [f"--set={key}={value}" for key, value in settings.items()]
    step_tokens = int(settings["train.batch"]) * int(settings["model.context"])

    def manifest(name, nodes):
        path = out / f"{name}.manifest"
        tokens = args.steps * step_tokens * nodes
        text = check([binaries / "thinwire", "run", "new", name, "--data", data, "--out", path,
                      "--preset", args.preset, "--set", f"sync.nodes={nodes}",
                      "--set", f"train.tokens={tokens}",
                      "--set", f"train.warmup_tokens={tokens * 3 // 100}", *chosen])
        return path, text

    shared, text = manifest("demo", args.nodes)
    # The same run for one node: equal batch, steps and schedule, and a budget of its own steps.
    alone, _ = manifest("demo-solo", 1)
    print(text)
    ports = free_ports(args.nodes)
    group = [Node(f"node{i + 1}", out, binaries) for i in range(args.nodes)]
    solo = Node("solo", out, binaries)
    secret = None
    for node, port in zip(group, ports):
        node.manifest, node.data = shared, data
        node.init(args, None if args.no_sync else port, ports, secret,
                  has_data=args.no_sync or node is group[0])
        secret = out / group[0].name / "run.secret"
    solo.manifest, solo.data = alone, data
    solo.init(args, None, ports, None, has_data=True)
    return group, solo


def main():
    args = parse()
    if args.no_sync:
        args.kill = False
    signal.signal(signal.SIGTERM, on_sigterm)
    group, solo = prepare(args)
    rate_bytes_s = 5e6 / 8
    if args.upload.endswith("mbit"):
        rate_bytes_s = float(args.upload[:-4]) * 1e6 / 8
    churn = Churn(group[-1], group[:-1], rate_bytes_s, args.preset in OWN_ANCHORS)
    nodes = group + [solo]
    is_kept = False
    try:
        for node in nodes:
            node.start()
        took_s = run_loop(args, group, solo, churn)
        for node in nodes:
            check([node.binaries / "thinwire", "--socket", node.socket, "checkpoint"])
        print("Reading and evaluating every node's checkpoint", flush=True)
        facts = gather(args, group, solo, churn, took_s)
        facts["verdicts"] = judge(facts)
        facts["ok"] = all(row["ok"] for row in facts["verdicts"])
        (args.out / "demo.json").write_text(json.dumps(facts, indent=1) + "\n")
        write_curves(args.out / "loss.svg", facts)
        text = check([group[0].binaries / "thinwire", "generate", group[0].checkpoint_files()[-1],
                      "--run", group[0].manifest, "--prompt", "And the LORD said unto",
                      "--tokens", "240", "--temperature", "0.7", "--seed", "1"])
        report(facts, text, args.out)
        is_kept = args.keep
        return 0 if facts["ok"] else 1
    except (KeyboardInterrupt, Stopped):
        print("\ndemo: interrupted; stopping the nodes", file=sys.stderr)
        return 130
    finally:
        if is_kept:
            print("The nodes keep running. Look at one:"
                  f"\n  {args.bin}/thinwire --config {args.out}/node1.conf status"
                  "\nStop them all:\n  kill " + " ".join(str(n.process.pid) for n in nodes))
        else:
            stop_all(nodes)
            shutil.rmtree(group[0].run_dir.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
