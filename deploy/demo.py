"""demo.py - runs the demo: starts the nodes, shows them, kills one, and judges the result.

It uses only the interfaces that every user has: configuration files, signals, the status socket and
the command line. Every verdict can be recomputed from OUT/demo.json. Standard library only.
"""
import argparse
import array
import concurrent.futures
import hashlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import demo_judge
import demo_plan
from demo_judge import OWN_ANCHORS, number
from demo_plot import write_curves

STILL_S = 300        # without a step, a round or a change of state anywhere: the run stands still
PRINT_S = 10         # between lines of progress, where there is no terminal
TEXT_BYTES_MIN, TEXT_BYTES_MAX = 1000000, 4500000


class Stopped(Exception):
    """SIGTERM, or SIGHUP of a closed terminal: stops the nodes like an interrupt from the
    keyboard."""


def on_stop(_number, _frame):
    raise Stopped


def say(words, to=None):
    """Prints a line. A closed terminal takes none, and must not keep the nodes from being ended."""
    try:
        print(words, file=to or sys.stdout, flush=True)
    except OSError:
        pass


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
        self.status = self.seen = None # now, and the last one that there was
        self.samples = []   # (seconds since the start, steps, tokens)
        self.distance_max = 0.0
        self.sent_before = 0   # bytes sent by earlier processes
        self.received_before = 0
        self.sent = self.received = 0
        self.losses = {}
        self.last_step = 0

    def init(self, args, port, ports, has_data):
        command = [self.binaries / "thinwire", "init", "--config", self.config, "--name", self.name,
                   "--state-dir", self.folder / self.name, "--run-dir", self.run_dir,
                   "--run", self.manifest, "--threads", "1"]
        if has_data: # other nodes fetch it
            command += ["--data", self.data]
        if port is not None:
            command += ["--listen", f"127.0.0.1:{port}", "--upload", args.upload,
                        "--peers", ",".join(f"127.0.0.1:{p}" for p in ports if p != port)]
        check(command)
        # A person waits for the demo, so its workers give way to nobody.
        settings = {"checkpoint_interval": "5s", "nice": "0",
                    "eval_steps": str(args.eval_steps or max(10, args.steps // 8))}
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
        self.status = self.seen = status
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
        self.last_step = train["steps"]

    def start_nats(self):
        """The loss before the first step. On a busy machine no poll may fall between the first two
        measurements, but the log has them all."""
        log = self.folder / f"{self.name}.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        found = re.search(r"ev=evaluated step=0 loss_live=([0-9.]+)", text)
        return float(found[1]) if found else None

    def motion(self):
        """A value that changes whenever the node does something."""
        if self.status is None:
            return None
        s = self.status
        return (s["state"], s["worker"]["state"], s["train"]["steps"],
                s["sync"]["rounds_committed"], self.received // 65536)

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


def corpus(args):
    """The user's text or, from Debian's bible-kjv, the King James Bible: 4.4 MB of English."""
    path = args.out / "corpus.txt"
    if args.text is not None:
        text = args.text.read_bytes()[:TEXT_BYTES_MAX]
        path.write_bytes(text)
    else:
        path.write_text(check(["bible", "-f", "gen1:1-rev22:21"]))
    return path


def dataset(binaries, args):
    """The same text as shards of half a megabyte, with one passage in twenty held out."""
    path = args.out / "text"
    check([binaries / "thinwire", "data", "prepare", corpus(args), "--out", path,
           "--heldout", "5%", "--shard-tokens", "512k"])
    return path


def check_text(args):
    """Ends the demo without a text to train on, before anything is built or started."""
    if args.text is None and shutil.which("bible") is None:
        sys.exit("demo: no text to train on. Install Debian's King James Bible (`apt-get install"
                 " bible-kjv`),\n      or give any plain text of 1 MB or more with --text FILE")
    if args.text is not None:
        try:
            size = args.text.stat().st_size
            args.text.open("rb").close()
        except OSError as why:
            sys.exit(f"demo: --text {args.text}: {why.strerror}")
        if size < TEXT_BYTES_MIN:
            sys.exit(f"demo: --text {args.text} has {size:,} bytes, and the demo needs"
                     f" {TEXT_BYTES_MIN:,} to train on: give a longer text")


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


class Screen:
    """The progress: a table redrawn in place on a terminal, a line now and then elsewhere."""

    HEAD = ("node    state        step  tok/s  train  valid  anchor  round  known/alive/merged"
            "    sent  busy%")

    WORDS = ("solo trains alone, for comparison. known, alive, merged: peers that a node knows,"
             " that answer,\nand whose work it merged lately. sent: node1 also gives the others the"
             " text.")

    def __init__(self):
        self.is_live = sys.stdout.isatty()
        self.lines_count = 0
        self.shown_s = -1e9
        self.note = ""

    def row(self, node):
        if node.process is None or node.process.poll() is not None:
            return f"{node.name:<7} {'down':<10}"
        if node.status is None:
            return f"{node.name:<7} {'starting':<10}"
        s, t, y = node.status, node.status["train"], node.status["sync"]
        state = "alone" if s["state"] == "solo" else s["state"]
        merged = f"{y['known_peers']}/{y['alive_peers']}/{y['mixed_peers']}"
        return (f"{node.name:<7} {state:<10} {t['steps']:>6} {t['tokens_per_s'] or 0:>6.0f}"
                f"  {number(t['loss_nats'])}  {number(t['validation_live_nats'])}"
                f"  {number(t['validation_anchor_nats']):>6} {y['rounds_committed']:>6}"
                f"  {merged:>18} {node.sent / 1e6:>6.1f}M"
                f"  {100 * (t['utilisation_ratio'] or 0):>5.1f}")

    def show(self, nodes, now_s, done, left, note):
        bar = int(done * 30)
        head = f"{int(now_s):>4} s  [{'#' * bar}{'.' * (30 - bar)}] {100 * done:3.0f} %, {left}"
        if self.is_live:
            lines = [f"{head}  {note}", self.HEAD] + [self.row(node) for node in nodes]
            if self.lines_count > 0:
                sys.stdout.write(f"\x1b[{self.lines_count}F\x1b[J")
            print("\n".join(lines), flush=True)
            self.lines_count = len(lines)
        elif now_s - self.shown_s >= PRINT_S or note != self.note:
            news = "" if note == self.note else f"; {note}"
            self.shown_s, self.note = now_s, note
            steps = ", ".join(f"{node.name} {node.last_step}" for node in nodes)
            print(f"{head}; steps: {steps}{news}", flush=True)

    def end(self, nodes):
        """The table as it stands at the end."""
        if not self.is_live:
            print("\n".join([self.HEAD] + [self.row(node) for node in nodes]), flush=True)


class Churn:
    """Kills one node midway and restarts it; measures the effect on all nodes."""

    KILL_AT, RETURN_AT = 0.35, 0.6 # shares of the run; the return is earlier if all goes well
    DOWN_S, DOWN_STEPS = 8.0, 3    # down for at least these: the others must notice, and train on

    def __init__(self, victim, others, solo, rate_bytes_s, has_own_anchors):
        self.victim, self.others, self.solo = victim, others, solo
        self.rate_bytes_s = rate_bytes_s
        self.has_own_anchors = has_own_anchors
        self.state = "before"
        self.facts = {"victim": victim.name}

    def step(self, now_s, done):
        """Goes on to the next state when its time has come. Returns a note for the screen."""
        if self.state == "before" and done >= self.KILL_AT and self.victim.status is not None:
            self.victim.kill()
            self.killed_s, self.state = now_s, "down"
            self.facts["killed_at_s"] = round(now_s, 2)
            self.steps = {node: node.last_step for node in self.others + [self.solo]}
            self.rounds = self.committed()
        elif self.state == "down" and (self.has_trained_on(now_s) or done >= self.RETURN_AT):
            self.count_steps()
            self.received, self.victim_id = self.victim.received, self.victim.id
            self.victim.start()
            self.started_s, self.state = now_s, "back"
            self.facts["restarted_at_s"] = round(now_s, 2)
        elif self.state == "back" and self.victim.status is not None:
            # It counts from its first answer: how long a program takes to start is the machine's.
            self.returned_s, self.rounds = now_s, self.committed()
            self.facts["round_s"] = round(now_s / max(self.rounds, 1), 2)
            self.facts["returned_at_s"], self.state = round(now_s, 2), "joining"
        elif self.state == "joining":
            self.look_for_merge(now_s)
        name = self.victim.name
        return {"before": "", "down": f"{name} was killed with SIGKILL",
                "back": f"{name} was started again", "joining": f"{name} is back and catches up",
                "over": f"{name} is back and its work is merged again"}[self.state]

    def committed(self):
        """Rounds that the others have committed."""
        return max((n.status["sync"]["rounds_committed"] for n in self.others if n.status),
                   default=0)

    def has_trained_on(self, now_s):
        """Whether the others have trained for long enough without the victim, and merged."""
        return now_s - self.killed_s >= self.DOWN_S and all(
            node.last_step - self.steps[node] >= self.DOWN_STEPS for node in self.others) and (
            self.has_own_anchors or self.committed() > self.rounds)

    def count_steps(self):
        made = {node.name: node.last_step - before for node, before in self.steps.items()}
        self.facts["solo_steps"] = made.pop(self.solo.name)
        self.facts["others_steps"] = made
        self.facts["rounds_meanwhile"] = self.committed() - self.rounds

    def look_for_merge(self, now_s):
        states = ("member", "finished") + (("solo",) if self.has_own_anchors else ())
        if self.victim.status is None or self.victim.status["state"] not in states:
            return
        mixed = self.mixed_round()
        if mixed is None:
            return
        missing = self.victim.received - self.received
        self.facts.update(
            mixing_after_s=round(now_s - self.started_s, 2), missing_bytes=missing,
            rounds_waited=max(0, mixed - self.rounds),
            rounds_allowed=demo_judge.rounds_allowed(self.facts["round_s"], missing,
                                                     self.rate_bytes_s))
        self.state = "over"

    def mixed_round(self):
        """The newest round after the return that lists the victim at another node; None: there is
        none. (Members of a group count the same rounds, so any of them will do.)"""
        found = []
        for node in self.others:
            peers = ask(node.socket, "/v1/peers")
            found += [peer["last_mixed_round"] for peer in (peers or {}).get("peers", [])
                      if peer["id"] == self.victim_id and peer["last_mixed_round"] is not None]
        return max((number for number in found if number >= self.rounds), default=None)


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


def mark(path, prefix):
    """A digest of those tensors: equal for equal parameters."""
    digest = hashlib.sha256()
    for values in tensors(path, prefix):
        digest.update(values)
    return digest.digest()


def distance(path_a, path_b, prefix):
    """Relative L2 distance between the same tensors of two checkpoints."""
    if mark(path_a, prefix) == mark(path_b, prefix):
        return 0.0
    apart = size = 0.0
    for a, b in zip(tensors(path_a, prefix), tensors(path_b, prefix)):
        apart += math.fsum((x - y) * (x - y) for x, y in zip(a, b))
        size += math.fsum(x * x for x in a)
    return math.sqrt(apart / size) if size > 0 else float("nan")


def evaluate(node, part, windows):
    """Held-out loss of one part of a node's newest checkpoint, in nats per byte."""
    text = check([node.binaries / "thinwire", "eval", node.checkpoint_files()[-1], "--run",
                  node.manifest, "--data", node.data, "--part", part, "--windows", windows,
                  "--threads", "1", "--json"])
    return json.loads(text)["validation_nats"]


def evaluate_all(nodes, windows):
    """Losses by node and part, on the same windows. Equal parameters are evaluated once, and as
    many at a time as there are processors."""
    marks = {(node, part): mark(node.checkpoint_files()[-1], part + ".")
             for node in nodes for part in ("live", "anchor") if node.checkpoint_files()}
    first = {seen: key for key, seen in reversed(marks.items())}
    print(f"Evaluating the models of {len(nodes)} nodes on held-out text", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(first, pool.map(lambda key: evaluate(*key, windows), first.values())))
    return {(node.name, part): found.get(marks.get((node, part)))
            for node in nodes for part in ("live", "anchor")}


def merged_nats(args, group, files):
    """Loss of the model that `thinwire merge` makes of parted nodes; None for other presets."""
    if args.preset != "btm":
        return None
    node = group[0]
    text = check([node.binaries / "thinwire", "merge", *files, "--run", node.manifest, "--data",
                  node.data, "--weights", "greedy", "--windows", args.windows, "--threads", "1",
                  "--out", args.out / "merged.safetensors", "--json"])
    return json.loads(text)["validation_nats"]


def progress(args, group, solo):
    """Shares of the group and of the solo node: done by the clocks of their runs, and made as
    steps."""
    clock = max((n.status["run"]["done_percent"] for n in group if n.status), default=0.0) / 100
    made = (sum(node.last_step for node in group) / (args.steps * len(group)),
            solo.last_step / args.steps)
    return tuple(1.0 if all(n.is_finished() for n in nodes) else min(0.999, share)
                 for nodes, share in ((group, clock), ([solo], made[1]))), made


def words_left(left_s):
    if left_s == 0:
        return "done"
    return f"about {demo_plan.duration(left_s)} left" if left_s < 1e6 else "nothing moves"


def run_loop(args, group, solo, churn):
    """Runs until all nodes are done, or nothing moves any more; returns the seconds it took."""
    screen, left, start_s = Screen(), demo_plan.TimeLeft(args.planned_s), time.monotonic()
    nodes, motion, moved_s = group + [solo], None, 0.0
    print(screen.WORDS)
    while True:
        now_s = time.monotonic() - start_s
        for node in nodes:
            if node.process.poll() is None:
                node.poll(now_s)
            elif not (churn.state == "down" and node is churn.victim):
                sys.exit(f"demo: {node.name} ended by itself with status "
                         f"{node.process.returncode}; see {node.folder}/{node.name}.log")
        done, made = progress(args, group, solo)
        note = churn.step(now_s, done[0]) if args.kill else ""
        screen.show(nodes, now_s, min(done), words_left(left.update(now_s, done, made)), note)
        if min(done) == 1.0:
            screen.end(nodes)
            return now_s
        before, motion = motion, [node.motion() for node in nodes]
        moved_s = now_s if motion != before else moved_s
        if now_s - moved_s > args.still_s:
            screen.end(nodes)
            print(f"demo: nothing has moved for {args.still_s} s, so the demo ends here; the logs"
                  f" are {args.out}/*.log", file=sys.stderr)
            return now_s
        time.sleep(0.5)


def stop_all(nodes):
    for node in nodes:
        node.stop()
    deadline_s = time.monotonic() + 60
    for node in nodes:
        if node.process is None:
            continue
        try:
            node.process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            node.process.kill()


def describe(node, nats, solo):
    train, sync = node.seen["train"], node.seen["sync"]
    return {
        "name": node.name,
        "steps": train["steps"], "tokens": train["tokens"],
        "utilisation": train["utilisation_ratio"],
        "pace": demo_judge.pace(node.samples, solo.samples),
        "rounds_contributed": sync["rounds_contributed"],
        "sent_bytes": node.sent, "received_bytes": node.received,
        "distance_to_anchor_max": node.distance_max,
        "live_nats": nats[node.name, "live"], "anchor_nats": nats[node.name, "anchor"],
        "start_nats": node.start_nats(),
        "losses": [dict(steps=s, **{k: v for k, v in node.losses[s].items() if k != "steps"})
                   for s in sorted(node.losses)],
        "samples": node.samples,
    }


def gather(args, group, solo, churn, took_s):
    nats = evaluate_all(group + [solo], args.windows)
    nodes = [describe(node, nats, solo) for node in group]
    run = group[0].seen["run"]
    steps = sum(node["steps"] for node in nodes)
    # Ring all-reduce of fp32 gradients: each node sends 2 (n-1)/n of 4 bytes a parameter per step.
    parallel = 2 * (len(group) - 1) / len(group) * run["model_params"] * 4 * steps
    sent = sum(node["sent_bytes"] for node in nodes)
    files = [node.checkpoint_files()[-1] for node in group if node.checkpoint_files()]
    return {
        "preset": args.preset, "merged_nats": merged_nats(args, group, files),
        "steps": args.steps, "period": args.period, "measured_tokens_per_s": args.tokens_per_s,
        "planned_s": round(args.planned_s, 1),
        "nodes": nodes, "solo": describe(solo, nats, solo), "model_params": run["model_params"],
        "took_s": round(took_s, 1), "is_finished": all(n.is_finished() for n in group + [solo]),
        "upload_cap": args.upload, "goals": demo_judge.GOALS,
        "sent_bytes": sent, "data_parallel_bytes": parallel,
        "bytes_ratio": parallel / sent if sent > 0 else None,  # None: nothing was exchanged
        "live_distance_max": max((distance(files[0], f, "live.") for f in files[1:]), default=0.0),
        "anchor_distance_max": max((distance(files[0], f, "anchor.") for f in files[1:]),
                                   default=0.0),
        "distance_to_anchor_max": max(n["distance_to_anchor_max"] for n in nodes),
        "data_copies": None if args.no_sync else sum(has_same_data(n) for n in group[1:]),
        "data_bytes": sum(path.stat().st_size for path in group[0].data.glob("*.shard")),
        "churn": churn.facts if args.kill else None,
    }


def parse():
    is_checkout = pathlib.Path(__file__).resolve().parent.name == "deploy"
    parser = argparse.ArgumentParser(
        prog="deploy/demo" if is_checkout else "thinwire demo",
        description="Four nodes on loopback, 5 Mbit/s up each, train one model on real text, which"
                    " only the first of them has at the start; a fifth trains alone for comparison."
                    " The machine's speed is measured first, and decides how long they train."
                    " Exit status 0 only if the goals hold.")
    parser.add_argument("--bin", type=pathlib.Path, default="build/demo/bin",
                        help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default="demo-out",
                        help="output folder (default: %(default)s, emptied first)")
    parser.add_argument("--text", type=pathlib.Path, metavar="FILE",
                        help="plain text to train on, 1 MB or more, of which 4.5 MB are used"
                             " (default: the King James Bible of Debian's package bible-kjv)")
    parser.add_argument("--nodes", type=int, default=4, help="nodes that train together")
    parser.add_argument("--steps", type=int,
                        help="inner steps of each node (default: for about three minutes); with"
                             " fewer than 600 a group hardly leads, and the demo may fail")
    parser.add_argument("--preset", default="streaming", choices=list(demo_plan.PRESETS))
    parser.add_argument("--upload", default="5mbit", help="upload cap of each node")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="changes the run's manifest, as in `thinwire run new`")
    parser.add_argument("--no-kill", dest="kill", action="store_false",
                        help="kills no node")
    parser.add_argument("--no-sync", action="store_true",
                        help="cuts the links: the demo must then fail")
    parser.add_argument("--keep", action="store_true", help="leaves the nodes running at the end")
    parser.add_argument("--eval-steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--windows", type=int, default=200, help=argparse.SUPPRESS)
    parser.add_argument("--still-s", type=int, default=STILL_S, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.nodes < 2:
        parser.error("--nodes must be at least 2; for one node see `thinwire train`")
    if args.steps is not None and args.steps < 1:
        parser.error("--steps must be at least 1")
    check_text(args)
    if args.check:
        sys.exit(0)
    args.bin, args.out = args.bin.resolve(), args.out.resolve()
    args.set = dict(pair.partition("=")[::2] for pair in args.set)
    return args


def make_manifest(args, name, nodes, keys, data):
    """Writes a run's manifest; returns its path and the words of `run new` about it."""
    path = args.out / f"{name}.manifest"
    speed = [] if args.step_s is None else ["--step-time", f"{1000 * args.step_s:.0f}ms"]
    tokens = args.steps * int(keys["train.batch"]) * int(keys["model.context"]) * nodes
    text = check([args.bin / "thinwire", "run", "new", name, "--data", data, "--out", path,
                  "--explain",
                  "--preset", args.preset, "--set", f"sync.nodes={nodes}",
                  "--set", f"train.tokens={tokens}",
                  "--set", f"train.warmup_tokens={tokens * 3 // 100}", *speed,
                  *[f"--set={key}={value}" for key, value in keys.items()]])
    return path, text


def choose_length(args, data):
    """Measures the machine, and sets the steps of the run; returns the keys of its manifest."""
    trainers, asked, own = args.nodes + 1, args.steps, args.set
    print(f"Measuring this machine: {trainers} models train at once for some seconds", flush=True)
    args.steps, args.step_s = demo_plan.MEASURED.steps, None
    keys = {**demo_plan.settings(args.preset, demo_plan.MEASURED), **own}
    manifest, _ = make_manifest(args, "measured", 1, keys, data)
    args.tokens_per_s = demo_plan.measure(
        lambda i: [args.bin / "thinwire", "train", "--run", manifest, "--data", data, "--threads",
                   "1", "--eval-steps", "0", "--json", "--out", args.out / f"measured{i}"],
        trainers)
    batches = [int(own["train.batch"])] if "train.batch" in own else demo_plan.BATCHES
    length = demo_plan.choose(args.tokens_per_s, trainers, asked, batches,
                              int(keys["model.context"]))
    args.steps, args.planned_s = length.steps, length.seconds
    args.step_s = max(0.001, length.seconds / length.steps)
    print(demo_plan.sentence(length, args.tokens_per_s, trainers, asked is not None), flush=True)
    return {**demo_plan.settings(args.preset, length), **own}


def prepare(args):
    """Folders, corpus, manifests and configurations; returns (group, solo)."""
    out, binaries = args.out, args.bin
    if out.exists() and not (out / ".thinwire-demo").exists() and any(out.iterdir()):
        sys.exit(f"demo: {out} is not empty and not from a demo; choose another --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / ".thinwire-demo").touch()
    print("Preparing the text", flush=True)
    data = dataset(binaries, args)
    keys = choose_length(args, data)
    shared, text = make_manifest(args, "demo", args.nodes, keys, data)
    # The same run for one node: equal batch, steps and schedule, and a budget of its own steps.
    alone, _ = make_manifest(args, "demo-solo", 1, keys, data)
    args.period = int(re.search(r"^sync.period = (\d+)$", shared.read_text(), re.M)[1])
    (out / "run.txt").write_text(text)
    ports = free_ports(args.nodes)
    group = [Node(f"node{i + 1}", out, binaries) for i in range(args.nodes)]
    solo = Node("solo", out, binaries)
    for node, port in zip(group, ports):
        node.manifest, node.data = shared, data
        node.init(args, None if args.no_sync else port, ports,
                  has_data=args.no_sync or node is group[0])
    solo.manifest, solo.data = alone, data
    solo.init(args, None, ports, has_data=True)
    return group, solo


def prompt_of(args):
    """The beginning of a sentence of the text that was trained on."""
    if args.text is None:
        return "And the LORD said unto"
    words = args.text.read_bytes()[:4096].decode(errors="ignore").split()
    return " ".join(words[:4])[:60] or "The"


def conclude(args, group, solo, churn, took_s):
    """Evaluates all models, writes all files and the report; returns the exit status."""
    for node in group + [solo]:
        if node.process.poll() is None and node.status is not None:
            check([node.binaries / "thinwire", "--socket", node.socket, "checkpoint"])
    silent = [node.name for node in group + [solo] if node.seen is None]
    if silent:
        sys.exit(f"demo: {', '.join(silent)} never answered; the logs are {args.out}/*.log")
    facts = gather(args, group, solo, churn, took_s)
    facts["verdicts"] = demo_judge.judge(facts)
    facts["ok"] = all(row["ok"] for row in facts["verdicts"])
    (args.out / "demo.json").write_text(json.dumps(facts, indent=1) + "\n")
    write_curves(args.out / "loss.svg", facts)
    text = check([args.bin / "thinwire", "generate", group[0].checkpoint_files()[-1],
                  "--run", group[0].manifest, "--prompt", prompt_of(args),
                  "--tokens", "240", "--temperature", "0.7", "--seed", "1"])
    demo_judge.report(facts, text, args.out)
    return 0 if facts["ok"] else 1


def main():
    args = parse()
    if args.no_sync:
        args.kill = False
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, on_stop)
    nodes, is_kept = [], False
    try:
        group, solo = prepare(args)
        nodes = group + [solo]
        rate_bytes_s = 5e6 / 8
        if args.upload.endswith("mbit"):
            rate_bytes_s = float(args.upload[:-4]) * 1e6 / 8
        churn = Churn(group[-1], group[:-1], solo, rate_bytes_s, args.preset in OWN_ANCHORS)
        for node in nodes:
            node.start()
        took_s = run_loop(args, group, solo, churn)
        status = conclude(args, group, solo, churn, took_s)
        is_kept = args.keep
        return status
    except (KeyboardInterrupt, Stopped):
        say("\ndemo: interrupted; stopping the nodes", sys.stderr)
        return 130
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # a second one would leave nodes behind
        if is_kept:
            print("The nodes keep running. Look at one:"
                  f"\n  {args.bin}/thinwire --config {args.out}/node1.conf status"
                  "\nStop them all:\n  kill " + " ".join(str(n.process.pid) for n in nodes))
        elif nodes:
            stop_all(nodes)
            shutil.rmtree(nodes[0].run_dir.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
