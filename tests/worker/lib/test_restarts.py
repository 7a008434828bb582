#!/usr/bin/env python3
# test_restarts.py LIBRARY BIN - a trainer outlives its daemon, and may come and go.
"""One node alone, and a trainer in Python without PyTorch. Its daemon is killed, told to leave and
stopped, and started again each time: the same process trains on with its own parameters, and no
step is lost. It detaches and attaches many times, which no restart counts.
"""
import array
import ctypes
import json
import os
import pathlib
import re
import signal
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
COUNT = 4096


def attach_once(socket, numbers, steps, out):
    """Attaches, takes `steps` steps (None: until the file `stop` is there), detaches."""
    import thinwire

    class Trainer:
        """A trainer that has one tensor in an array."""
        has_moments, engine, evaluates = False, "Python, no library", False

        def read(self, _array, _tensor, begin, count, address):
            """Implements Trainer.read."""
            ctypes.memmove(address, numbers.buffer_info()[0] + 4 * begin, 4 * count)

        def write(self, _array, _tensor, begin, count, address):
            """Implements Trainer.write."""
            ctypes.memmove(numbers.buffer_info()[0] + 4 * begin, address, 4 * count)

    with thinwire.Worker(socket, timeout=PATIENCE_S) as worker:
        worker.start(Trainer())
        following = worker.step()
        while following is not None and (following.step < steps if steps else
                                         not out.with_name("stop").exists()):
            print(following.step, int(following.is_restored), numbers[0], file=out.open("a"))
            for i, x in enumerate(numbers):
                numbers[i] = x + 1
            time.sleep(0.01)
            following = worker.step(1.0)


def trainer(socket, out):
    """Comes and goes ten times, then stays."""
    numbers = array.array("f", [0.0] * COUNT)
    for count in range(1, 11):
        attach_once(socket, numbers, 2 * count, out)
    attach_once(socket, numbers, None, out)


def run(*command):
    """Runs a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stderr or done.stdout}")
    return done.stdout


def wait(what, is_so):
    """Waits until `is_so` is true."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Node:
    """A daemon whose worker comes from outside."""

    def __init__(self, bin_dir, folder):
        self.bin, self.folder, self.config = bin_dir, folder, folder / "n.conf"
        run(bin_dir / "thinwire", "run", "new", "python", "--tensors", f"w:{COUNT}", "--batch",
            "4", "--context", "16", "--tokens", "100m", "--nodes", "2", "--set", "sync.period=20",
            "--out", folder / "manifest")
        run(bin_dir / "thinwire", "init", "--config", self.config, "--name", "n", "--state-dir",
            folder / "n", "--run-dir", folder / "run", "--run", folder / "manifest", "--listen",
            f"127.0.0.1:{ports.hold()}")
        text = self.config.read_text(encoding="ascii")
        self.config.write_text(text.replace("[node]\n", "[node]\nspawn_worker = off\n", 1),
                               encoding="ascii")
        self.process = None

    def start(self):
        """Starts the daemon."""
        with open(self.folder / "n.log", "ab") as log:
            self.process = subprocess.Popen([self.bin / "thinwired", "--config", self.config],
                                            stderr=log, stdout=log)

    def end(self, how):
        """Ends it by a signal, or by `thinwire leave`."""
        if how == "leave":
            run(self.bin / "thinwire", "leave", "--config", self.config)
        else:
            self.process.send_signal(how)
        self.process.wait(PATIENCE_S)

    def status(self):
        """Its status, or None."""
        done = subprocess.run([self.bin / "thinwire", "status", "--json", "--config", self.config],
                              capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None


def rows_of(out):
    """[(step, is_restored, first parameter)] of the trainer's steps."""
    lines = out.read_text(encoding="ascii").splitlines() if out.exists() else []
    return [(int(step), restored == "1", float(x)) for step, restored, x in
            (line.split() for line in lines)]


def check(node, child, out):
    """Comings and goings, then daemons that end."""
    wait("eleven trainers", lambda: len(rows_of(out)) > 30)
    status = node.status()
    assert status["worker"]["restarts"] == 0, status["worker"]
    log = (node.folder / "n.log").read_text(encoding="utf-8")
    assert len(re.findall("ev=worker_left", log)) == 10 and "worker_died" not in log, log
    for how in (signal.SIGKILL, "leave", signal.SIGTERM, signal.SIGKILL):
        before = len(rows_of(out))
        node.end(how)
        time.sleep(0.2)
        assert child.poll() is None
        node.start()
        wait(f"steps after {how}", lambda: len(rows_of(out)) > before + 20)
        assert child.poll() is None
    rows = rows_of(out)
    steps = [step for step, _, _ in rows]
    assert steps == list(range(len(steps))), "steps were lost, or taken twice"
    assert all(x == step for step, _, x in rows), "the parameters are not those of these steps"
    assert sum(restored for _, restored, _ in rows) == 11
    wait("the daemon's count", lambda: (node.status() or {"train": {"steps": 0}})[
        "train"]["steps"] >= len(steps))
    log = (node.folder / "n.log").read_text(encoding="utf-8")
    assert len(re.findall("ev=worker_ready start=kept", log)) == 4, log


def main():
    """Runs the test, or its trainer."""
    if sys.argv[1] == "train":
        trainer(sys.argv[2], pathlib.Path(sys.argv[3]))
        return
    library, bin_dir = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(prefix="twre") as name:
        folder = pathlib.Path(name)
        node, out = Node(bin_dir, folder), folder / "steps"
        node.start()
        with open(folder / "t.log", "wb") as log:
            child = subprocess.Popen(
                [sys.executable, HERE, "train", folder / "run/worker.sock", out],
                env={**os.environ, "THINWIRE_LIBRARY": str(library)}, stderr=log, stdout=log)
        try:
            check(node, child, out)
            (folder / "stop").touch()
            assert child.wait(PATIENCE_S) == 0
            assert "daemon_gone" in (folder / "t.log").read_text(encoding="utf-8")
        except BaseException:
            print((folder / "t.log").read_text(encoding="utf-8")[-3000:])
            print((folder / "n.log").read_text(encoding="utf-8")[-6000:])
            raise
        finally:
            for process in (child, node.process):
                process.kill()
                process.wait()
    print("ok")


if __name__ == "__main__":
    main()
