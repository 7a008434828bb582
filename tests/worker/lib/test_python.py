"""test_python.py LIBRARY BIN [TORCH] - the Python package against real daemons.

Two nodes train a run of any model, and start from different parameters. One has a trainer in Python
without PyTorch; the other has the same, or with TORCH (a Python that has torch) a PyTorch module.
Both must learn, and end with the same parameters.
"""
import array
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "worker/python"))
sys.path.insert(0, str(ROOT / "tests/system"))

import ports  # noqa: E402

PATIENCE_S = 60
SIDE, TARGET = 64, 3.0


def trainer(socket, seed, out):
    """Moves the tensor "w" towards TARGET. Writes the last parameters to `out`."""
    import thinwire

    numbers = array.array("f", (seed + i % 7 for i in range(SIDE * SIDE)))

    class Trainer:
        """A trainer that has one tensor in an array."""
        has_moments, engine, evaluates = False, "Python, no library", True

        def read(self, _array, _tensor, begin, count, address):
            """Implements Trainer.read."""
            ctypes.memmove(address, numbers.buffer_info()[0] + 4 * begin, 4 * count)

        def write(self, _array, _tensor, begin, count, address):
            """Implements Trainer.write."""
            ctypes.memmove(numbers.buffer_info()[0] + 4 * begin, address, 4 * count)

        def heldout(self):
            """Implements Trainer.heldout."""
            return loss()

    def loss():
        return sum((x - TARGET) ** 2 for x in numbers) / len(numbers)

    with thinwire.Worker(socket, timeout=PATIENCE_S) as worker:
        assert [t.name for t in worker.run.tensors] == ["w"], worker.run.tensors
        assert worker.run.tensors[0].shape == (SIDE, SIDE)
        assert worker.setting("train.batch") == "4"
        worker.start(Trainer())
        following = worker.step()
        while following is not None:
            for i, x in enumerate(numbers):
                numbers[i] = x + 0.02 * (TARGET - x)
            time.sleep(0.01)
            following = worker.step(loss())
    pathlib.Path(out).write_bytes(numbers.tobytes())


def module(socket, seed, out):
    """A trainer with a PyTorch module and AdamW."""
    import torch

    import thinwire.torch

    class Square(torch.nn.Module):
        """Holds "w"."""

        def __init__(self):
            super().__init__()
            start = torch.arange(SIDE * SIDE) % 7 + seed
            self.w = torch.nn.Parameter(start.float().view(SIDE, SIDE))

        def forward(self):
            """Distance to the target."""
            return ((self.w - TARGET) ** 2).mean()

    class Wrapper(torch.optim.SGD):
        """Wraps an optimizer as Accelerate does: its class is another."""

        def __init__(self, optimizer):
            super().__init__(optimizer.param_groups, lr=1.0)
            self.optimizer = optimizer

    model = Square()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.06)
    with thinwire.torch.attach(model, Wrapper(optimizer), heldout=lambda _: model(), lr="own",
                               socket=socket, timeout=PATIENCE_S) as node:
        # pylint: disable-next=protected-access
        assert node._module.has_moments, "AdamW's moments were not found in the wrapper"
        while node.goes_on:
            loss = model()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.01)
            node.step(loss)
    pathlib.Path(out).write_bytes(model.w.detach().numpy().tobytes())


def run(*command):
    """Runs a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def lay_out(bin_dir, folder, idx, held):
    """Makes the configuration of a node whose worker comes from outside."""
    config = folder / f"n{idx}.conf"
    run(bin_dir / "thinwire", "init", "--config", config, "--name", f"n{idx}", "--state-dir",
        folder / f"n{idx}", "--run-dir", folder / f"n{idx}.run", "--run", folder / "manifest",
        "--listen", f"127.0.0.1:{held[idx]}", "--peers", f"127.0.0.1:{held[1 - idx]}")
    text = config.read_text(encoding="ascii")
    config.write_text(text.replace("[node]\n", "[node]\nspawn_worker = off\neval_steps = 50\n", 1),
                      encoding="ascii")
    return config


def digests(folder, idx):
    """Digest of the anchor by round, from the log of a node."""
    text = (folder / f"n{idx}.log").read_text(encoding="utf-8", errors="replace")
    return dict(re.findall(r"ev=round_done round=(\d+) .*?contributors=2 .*?digest=(\w+)", text))


def train(library, bin_dir, folder, second):
    """Trains the run on two nodes; `second` is the interpreter and kind of trainer of node 1."""
    held = [ports.hold(), ports.hold()]
    run(bin_dir / "thinwire", "run", "new", "python", "--tensors", f"w:{SIDE}x{SIDE}", "--batch",
        "4", "--context", "16", "--tokens", "60k", "--nodes", "2", "--set", "sync.period=20",
        "--set", "sync.fragments=2", "--out", folder / "manifest")
    environment = {**os.environ, "THINWIRE_LIBRARY": str(library)}
    processes, results = [], []
    for idx, (python, kind) in enumerate([(sys.executable, "trainer"), second]):
        config = lay_out(bin_dir, folder, idx, held)
        with open(folder / f"n{idx}.log", "wb") as log:
            processes.append(subprocess.Popen([bin_dir / "thinwired", "--config", config],
                                              stderr=log, stdout=log))
        results.append(folder / f"result{idx}")
        with open(folder / f"t{idx}.log", "wb") as log:
            processes.append(subprocess.Popen(
                [python, HERE, "train", kind, folder / f"n{idx}.run/worker.sock",
                 str(10 * idx - 5), results[idx]], env=environment, stderr=log, stdout=log))
    try:
        for process in (processes[1], processes[3]):
            assert process.wait(PATIENCE_S) == 0, f"a trainer failed: see {folder}"
        status = json.loads(run(bin_dir / "thinwire", "status", "--json", "--config",
                                folder / "n1.conf"))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return results, status


def check(folder, results, status):
    """Asserts that both trainers learned, and hold the same parameters at the end."""
    first, second = (path.read_bytes() for path in results)
    assert first == second, "the trainers ended with different parameters"
    numbers = array.array("f", first)
    worst = max(abs(x - TARGET) for x in numbers)
    assert worst < 0.5, f"a parameter is {worst} from the target"
    left, right = digests(folder, 0), digests(folder, 1)
    both = left.keys() & right.keys()
    assert len(both) >= 3, f"{len(both)} rounds with both nodes"
    assert all(left[r] == right[r] for r in both), "the anchors differ"
    # On a busy machine the trainer waits for the processor at its boundaries.
    warnings = [w for w in status["warnings"] if "went into training" not in w["what"]]
    assert not warnings, warnings
    print(f"{len(both)} rounds of both nodes, {worst:.2g} from the target")


def main():
    """Runs the test, or one of its trainers."""
    if sys.argv[1] == "train":
        _, _, kind, socket, seed, out = sys.argv
        {"trainer": trainer, "module": module}[kind](socket, float(seed), out)
        return
    library, bin_dir = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    second = (sys.argv[3], "module") if len(sys.argv) > 3 else (sys.executable, "trainer")
    if len(sys.argv) > 3 and subprocess.run([sys.argv[3], "-c", "import torch"], check=False,
                                            capture_output=True).returncode != 0:
        print(f"{sys.argv[3]} has no torch: skipped")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="twpy") as name:
        folder = pathlib.Path(name)
        try:
            results, status = train(library, bin_dir, folder, second)
            check(folder, results, status)
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            raise


if __name__ == "__main__":
    main()
