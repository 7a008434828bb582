"""test_mixed.py LIBRARY BIN PYTHON [WAY ...] - three kinds of trainers in one run, killed and back.

Node 0 is an island of two ranks with FSDP2, node 1 a plain PyTorch process, node 2 native. Their
daemons start them. Both ranks of the island, the PyTorch process and the native worker are killed
on the way, and come back. Three native nodes train for the same tokens, and both held-out losses
are compared. WAY is a preset, or `auto`: the codec auto under a budget. PYTHON has torch.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import test_examples as examples
import test_island as island

LONG_S = 900
APART = 0.01  # of the loss
TOKENS = "5m"
PERIOD = ["--set", "sync.period=20"]
WAYS = {"streaming": PERIOD, "noloco": ["--preset", "noloco", *PERIOD],
        "sparseloco": ["--preset", "sparseloco", *PERIOD],
        "auto": ["--budget", "40mbit", "--step-time", "50ms"]}


class Cluster(island.Cluster):
    """Three nodes; the daemons start the trainers."""

    def __init__(self, library, bin_dir, folder, python, way):
        folder.mkdir()
        super().__init__(library, bin_dir, folder, python or "python3", "fsdp")
        keys = list(island.KEYS)
        keys[keys.index("train.tokens=4m")] = "train.tokens=" + TOKENS
        if "sync.period=20" in keys:
            at = keys.index("sync.period=20")
            del keys[at - 1:at + 1]
        (folder / "manifest").unlink()
        examples.run(bin_dir / "thinwire", "run", "new", "mixed", "--data", folder / "text",
                     "--out", folder / "manifest", "--nodes", 3, *keys, *WAYS[way])
        self.is_mixed = python is not None
        ranks = [python, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone",
                 island.EXAMPLES / "train_island.py", "--way", "fsdp"]
        self.commands = [ranks, [python, island.EXAMPLES / "train_gpt.py", "--device", "cpu"], None]
        self.trainer = [None, None, None]  # none that the test starts

    def spawn(self, name, *command):
        """Starts a daemon, with the command of its worker in its configuration."""
        idx = int(name[1:])
        if self.is_mixed and self.commands[idx] is not None:
            words = " ".join(str(word) for word in self.commands[idx])
            with open(self.folder / f"{name}.conf", "a", encoding="ascii") as config:
                # The daemon names its socket in the environment; a line has 198 bytes at most.
                config.write(f"\n[worker]\ncommand = {words}\n")
        return super().spawn(name, *command)


def train(cluster):
    """Trains to the end; returns the held-out losses of the anchor, and a line about the rounds."""
    cluster.start(0)
    cluster.wait_steps(0, 1)
    cluster.start(1)
    cluster.start(2)
    if cluster.is_mixed:
        for idx in (1, 2):
            cluster.wait_steps(idx, island.STEPS_BEFORE_KILL)
        for rank in (1, 0):  # rank 0 speaks to the daemon
            cluster.kill(0, island.ranks_of(cluster.folder)[rank])
        cluster.kill(1)
        cluster.kill(2)
    until = time.monotonic() + LONG_S
    while any(cluster.status(idx)["state"] != "finished" for idx in range(3)):
        assert time.monotonic() < until, "a node does not finish"
        time.sleep(0.5)
    time.sleep(3)  # the last evaluation
    rounds = cluster.equal_rounds()
    status = [cluster.status(idx)["train"] for idx in range(3)]
    whole = cluster.contributors(0).count(3)
    return ([s["validation_anchor_nats"] for s in status],
            f"{rounds} common rounds with equal digests, {whole} of three nodes; steps "
            f"{[s['steps'] for s in status]}")


def check(library, bin_dir, folder, python, way):
    """The mixed run and the native one."""
    losses = []
    for kind in (python, None):
        cluster = Cluster(library, bin_dir, folder / ("mixed" if kind else "native"), kind, way)
        found, line = examples.guard(cluster, train)
        print(f"{way}, {'mixed' if kind else 'native'}: {line}; losses {found}", flush=True)
        losses.append(sum(found) / 3)
    apart = losses[0] / losses[1] - 1
    print(f"{way}: the mixed run's loss is {100 * apart:+.2f} % from that of native nodes",
          flush=True)
    assert apart < APART, "the mixed run is worse"


def main():
    """Runs the test."""
    library, bin_dir = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    python = sys.argv[3]
    if subprocess.run([python, "-c", "from torch.distributed.fsdp import fully_shard"], check=False,
                      capture_output=True).returncode != 0:
        print(f"{python} has no torch for fsdp: skipped")
        sys.exit(77)
    for way in sys.argv[4:] or WAYS:
        with tempfile.TemporaryDirectory(prefix="twmx") as name:
            check(library, bin_dir, pathlib.Path(name), python, way)


if __name__ == "__main__":
    main()
