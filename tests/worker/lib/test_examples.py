"""test_examples.py LIBRARY BIN EXAMPLE - the examples as trainers of real nodes.

EXAMPLE is the program made from deploy/examples/trainer.c, or train_gpt.py. Two nodes train on one
text. Of a GPT the other node is the native worker, so that a plain PyTorch node and thinwire-worker
must end with the same model.
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/system"))

import ports  # noqa: E402

PATIENCE_S = 120
# Losses after training, in nats per byte; before it is ln 256 = 5.5.
BIGRAMS = (["--tensors", "bigram:256x256", "--batch", "4", "--context", "64", "--tokens", "800k",
            "--set", "train.lr=0.5", "--set", "sync.period=40"], 2.9)
GPT = (["--set", "model.layers=2", "--set", "model.width=32", "--set", "model.heads=2", "--set",
        "model.context=32", "--set", "train.batch=8", "--set", "train.tokens=1m", "--set",
        "train.lr=0.005", "--set", "sync.period=30"], 3.2)


def run(*command):
    """Runs a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def write_text(path):
    """Made-up words, the same on every machine."""
    source = random.Random(1)
    words = ["".join(source.choice("aeiou" if i % 2 else "bdklmnrst") for i in range(2 + n % 5))
             for n in range(200)]
    path.write_text(" ".join(source.choice(words) for _ in range(60000)), encoding="ascii")


class Cluster:
    """Daemons and their trainers in one folder."""

    def __init__(self, library, bin_dir, example, folder, nodes=2, keys=()):
        self.bin, self.example, self.folder = bin_dir, example, folder
        self.is_gpt = example.suffix == ".py"
        self.keys, self.loss = GPT if self.is_gpt else BIGRAMS
        self.environment = {**os.environ, "THINWIRE_LIBRARY": str(library),
                            "PYTHONPATH": str(ROOT / "worker/python"), "OMP_NUM_THREADS": "1"}
        self.processes = []
        write_text(folder / "text")
        run(bin_dir / "thinwire", "run", "new", "example", "--data", folder / "text", "--out",
            folder / "manifest", "--nodes", nodes, *(keys or self.keys))
        self.held = [ports.hold() for _ in range(nodes)]

    def spawn(self, name, *command):
        """Starts a process whose output goes to NAME.log."""
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen([str(word) for word in command], stdout=log,
                                                   stderr=log, env=self.environment))
        return self.processes[-1]

    def start(self, idx):
        """Starts a daemon, and the trainer in C. Of a GPT the daemons start their workers: node 0
        the example, node 1 the native one."""
        config = self.folder / f"n{idx}.conf"
        run(self.bin / "thinwire", "init", "--config", config, "--name", f"n{idx}", "--state-dir",
            self.folder / f"n{idx}", "--run-dir", self.folder / f"n{idx}.run", "--run",
            self.folder / "manifest", "--data", self.folder / "text", "--threads", "1", "--listen",
            f"127.0.0.1:{self.held[idx]}", "--peers", f"127.0.0.1:{self.held[1 - idx]}")
        text = config.read_text(encoding="ascii")
        text = text.replace("[node]\n", "[node]\neval_steps = 50\n", 1)
        config.write_text(self.configure(idx, text), encoding="ascii")
        self.spawn(f"n{idx}", self.bin / "thinwired", "--config", config)
        return self.trainer(idx)

    def configure(self, idx, text):
        """The configuration of a node, with its worker."""
        if not self.is_gpt:
            return text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1)
        if idx == 0:
            return text + f"\n[worker]\ncommand = /usr/bin/python3 {self.example}\n"
        return text

    def trainer(self, idx):
        """Starts the trainer that the daemon does not start; None: there is none."""
        if self.is_gpt:
            return None
        return self.spawn(f"trainer{idx}", self.example, self.folder / f"n{idx}.run/worker.sock")

    def status(self, idx):
        """Status of a node; None: no answer yet."""
        done = subprocess.run([self.bin / "thinwire", "status", "--json", "--config",
                               self.folder / f"n{idx}.conf"], capture_output=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_member(self, idx):
        """Waits until a node's trainer steps, so that both nodes train from the beginning on."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            status = self.status(idx)
            if status is not None and status["train"]["steps"] > 0:
                return
            time.sleep(0.2)
        raise RuntimeError(f"node {idx} took no step")

    def has_finished(self, idx):
        """Whether a node is at the end of the run, and has evaluated the result."""
        status = self.status(idx)
        return status["state"] == "finished" and \
            status["train"]["validation_steps"] == status["train"]["steps"]

    def losses(self):
        """Held-out loss of the anchor, as each node measured it last."""
        return [self.status(idx)["train"]["validation_anchor_nats"] for idx in (0, 1)]

    def is_equal(self):
        """Whether both nodes measured the same loss of the anchor."""
        left, right = self.losses()
        return abs(left - right) < 0.005 * left

    def kill(self, idx, pid=None):
        """Kills a node's trainer, or the process `pid` of it. The node must step again by itself,
        with another worker process."""
        before = self.status(idx)
        os.kill(pid or before["worker"]["pid"], signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            status = self.status(idx)
            if status["worker"]["pid"] not in (0, before["worker"]["pid"]) and \
                    status["train"]["steps"] > before["train"]["steps"]:
                return
            time.sleep(0.2)
        raise RuntimeError(f"the trainer of node {idx} did not come back")

    def end(self):
        """Ends all processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def rounds(self, idx):
        """Digest of the anchor by round with both nodes, from the log of a node."""
        text = (self.folder / f"n{idx}.log").read_text(encoding="utf-8", errors="replace")
        return dict(re.findall(r"ev=round_done round=(\d+) .*?contributors=2 .*?digest=(\w+)",
                               text))


def equal_rounds(left, right):
    """Number of rounds that two nodes know, by their digests of the anchor, which must be equal."""
    both = left.keys() & right.keys()
    assert all(left[r] == right[r] for r in both), "the anchors differ"
    return len(both)


def check(cluster):
    """Trains to the end; both nodes must have learned the same."""
    trainers = [cluster.start(0)]
    cluster.wait_member(0)
    trainers.append(cluster.start(1))
    if cluster.is_gpt:
        cluster.wait_member(1)
        cluster.kill(0)
    for trainer in filter(None, trainers):
        assert trainer.wait(PATIENCE_S) == 0, "a trainer failed"
    until = time.monotonic() + PATIENCE_S
    while not all(cluster.has_finished(idx) for idx in (0, 1)):
        assert time.monotonic() < until, "a node does not finish"
        time.sleep(0.2)
    # A node evaluates its last step twice: before the last merges and after them.
    while not cluster.is_equal() and time.monotonic() < until:
        time.sleep(0.2)
    rounds = equal_rounds(cluster.rounds(0), cluster.rounds(1))
    assert rounds >= 3, f"{rounds} rounds with both nodes"
    losses = cluster.losses()
    assert all(loss < cluster.loss for loss in losses), f"losses {losses}: nothing was learned"
    assert cluster.is_equal(), f"losses of one anchor: {losses}"
    print(f"{rounds} rounds of both nodes, losses {losses}")


def guard(cluster, test=check):
    """Tests a cluster, shows its logs where that fails, and ends it. Returns the test's result."""
    try:
        return test(cluster)
    except BaseException:
        for log in sorted(cluster.folder.glob("*.log")):
            print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        cluster.end()


def main():
    """Runs the test."""
    library, bin_dir, example = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    if example.suffix == ".py" and subprocess.run(
            ["/usr/bin/python3", "-c", "import torch"], check=False,
            capture_output=True).returncode != 0:
        print("/usr/bin/python3 has no torch: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="twex") as name:
        guard(Cluster(library, bin_dir, example, pathlib.Path(name)))


if __name__ == "__main__":
    main()
