"""test_island.py LIBRARY BIN PYTHON WAY - ranks of PyTorch as one node of a run.

Node 0 is an island: deploy/examples/train_island.py under torchrun, with two ranks (WAY ddp, fsdp)
or four (hsdp, tp). Node 1 has one PyTorch process, node 2 is native. All must see the same anchor
in every round and learn. The last rank is killed on the way, then rank 0, which speaks to the
daemon: torchrun starts the ranks anew each time, and the node goes on from its snapshot.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import test_examples as examples

HERE = pathlib.Path(__file__).resolve()
EXAMPLES = examples.ROOT / "deploy/examples"
STEPS_BEFORE_KILL = 30
STEPS_BETWEEN_KILLS = 15
RANKS = {"ddp": 2, "fsdp": 2, "hsdp": 4, "tp": 4}
# Steps of some ten milliseconds, so that the nodes are about as fast, and for as long as the ranks
# need to start again.
KEYS = ["--set", "model.layers=2", "--set", "model.width=96", "--set", "model.heads=2", "--set",
        "model.context=64", "--set", "train.batch=16", "--set", "train.tokens=4m", "--set",
        "train.lr=0.005", "--set", "sync.period=20"]


def again(command):
    """Starts torchrun until it succeeds, as a daemon or a service manager would do."""
    for _ in range(4):
        with subprocess.Popen(command) as process:
            signal.signal(signal.SIGTERM, lambda *_: process.terminate())
            if process.wait() == 0:
                sys.exit(0)
    sys.exit(1)


def ranks_of(folder):
    """Process ids of the ranks whose socket is in a folder, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        rank = re.search(rb"(?:^|\0)RANK=(\d+)", environment)
        if str(folder).encode() in words + environment and rank is not None:
            found[int(rank[1])] = int(entry.name)
    return found


class Cluster(examples.Cluster):
    """Three nodes; `trainer` says how each one trains."""

    def __init__(self, library, bin_dir, folder, python, way):
        super().__init__(library, bin_dir, EXAMPLES / "train_gpt.py", folder, 3, KEYS)
        # A restart within torchrun would meet gloo's addresses of the dead ranks in its store.
        torchrun = [sys.executable, HERE, "again", python, "-m", "torch.distributed.run",
                    "--nproc_per_node", str(RANKS[way]), "--standalone",
                    EXAMPLES / "train_island.py", "--way", way]
        self.trainer = [torchrun, [python, EXAMPLES / "train_gpt.py", "--device", "cpu"], None]

    def start(self, idx):
        """Starts a daemon, and its trainer beside it."""
        config = self.folder / f"n{idx}.conf"
        peers = ", ".join(f"127.0.0.1:{self.held[i]}" for i in range(3) if i != idx)
        examples.run(self.bin / "thinwire", "init", "--config", config, "--name", f"n{idx}",
                     "--state-dir", self.folder / f"n{idx}", "--run-dir",
                     self.folder / f"n{idx}.run", "--run", self.folder / "manifest", "--data",
                     self.folder / "text", "--threads", "1", "--listen",
                     f"127.0.0.1:{self.held[idx]}", "--peers", peers)
        more = "eval_steps = 50\n" + ("spawn_worker = off\n" if self.trainer[idx] else "")
        text = config.read_text(encoding="ascii")
        config.write_text(text.replace("[node]\n", "[node]\n" + more, 1), encoding="ascii")
        self.spawn(f"n{idx}", self.bin / "thinwired", "--config", config)
        if self.trainer[idx] is None:
            return None
        return self.spawn(f"trainer{idx}", *self.trainer[idx], "--socket",
                          self.folder / f"n{idx}.run/worker.sock")

    def wait_steps(self, idx, steps):
        """Waits until a node has taken so many steps."""
        until = time.monotonic() + examples.PATIENCE_S
        while time.monotonic() < until:
            status = self.status(idx)
            if status is not None and status["train"]["steps"] >= steps:
                return status["train"]["steps"]
            time.sleep(0.2)
        raise RuntimeError(f"node {idx} took no {steps} steps")

    def attached(self, idx):
        """How often a worker attached to a node."""
        text = (self.folder / f"n{idx}.log").read_text(encoding="utf-8", errors="replace")
        return len(re.findall(r"ev=worker_(?:up|attached)", text))

    def wait_attached(self, idx, count):
        """Waits until a worker attached so often."""
        until = time.monotonic() + examples.PATIENCE_S
        while self.attached(idx) < count:
            assert time.monotonic() < until, f"the trainer of node {idx} does not come back"
            time.sleep(0.2)

    def digests(self, idx):
        """Digest of the anchor by round."""
        text = (self.folder / f"n{idx}.log").read_text(encoding="utf-8", errors="replace")
        return dict(re.findall(r"ev=round_done round=(\d+) .*?digest=(\w+)", text))

    def equal_rounds(self):
        """Rounds that node 0 has in common with another one, at most; all digests are equal."""
        return max(examples.equal_rounds(self.digests(0), self.digests(idx)) for idx in (1, 2))

    def contributors(self, idx):
        """Numbers of nodes of the rounds, as a node saw them."""
        text = (self.folder / f"n{idx}.log").read_text(encoding="utf-8", errors="replace")
        return [int(n) for n in re.findall(r"ev=round_done .*?contributors=(\d+)", text)]


def check(cluster):
    """Trains to the end with the death of a rank on the way."""
    island = cluster.start(0)
    cluster.wait_steps(0, 1)
    trainers = [island, cluster.start(1), cluster.start(2)]
    steps = cluster.wait_steps(0, STEPS_BEFORE_KILL)
    for rank in (-1, 0):
        before = ranks_of(cluster.folder)
        os.kill(before[max(before) if rank < 0 else rank], signal.SIGKILL)
        cluster.wait_attached(0, 2 + rank + 1)
        steps = cluster.wait_steps(0, steps + STEPS_BETWEEN_KILLS)
    for trainer in filter(None, trainers):
        assert trainer.wait(2 * examples.PATIENCE_S) == 0, "a trainer failed"
    until = time.monotonic() + examples.PATIENCE_S
    while any(cluster.status(idx)["state"] != "finished" for idx in range(3)):
        assert time.monotonic() < until, "a node does not finish"
        time.sleep(0.2)
    attached = cluster.attached(0)
    assert attached >= 3, f"the island attached {attached} times"
    island_steps = cluster.status(0)["train"]["steps"]
    assert island_steps > steps, f"the island ended at step {island_steps}, was killed at {steps}"
    rounds = cluster.equal_rounds()
    whole = cluster.contributors(0).count(3)
    assert rounds >= 6 and whole >= 2, f"{rounds} common rounds, {whole} of three nodes"
    losses = [cluster.status(idx)["train"]["validation_anchor_nats"] for idx in range(3)]
    assert all(loss < cluster.loss for loss in losses), f"losses {losses}: nothing was learned"
    assert max(losses) - min(losses) < 0.005 * losses[0], f"losses of one anchor: {losses}"
    print(f"{rounds} common rounds, {whole} of three nodes; killed until step {steps}, ended at "
          f"{island_steps}; losses {losses}")


def main():
    """Runs the test, or torchrun."""
    if sys.argv[1] == "again":
        again(sys.argv[2:])
    library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    python, way = sys.argv[3:5]
    need = "import torch.distributed" + ("; from torch.distributed.fsdp import fully_shard"
                                         if way == "fsdp" else "")
    if subprocess.run([python, "-c", need], check=False, capture_output=True).returncode != 0:
        print(f"{python} has no torch for {way}: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="twis") as name:
        examples.guard(Cluster(library, bin_dir, pathlib.Path(name), python, way), check)


if __name__ == "__main__":
    main()
