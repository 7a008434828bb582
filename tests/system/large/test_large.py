#!/usr/bin/env python3
# test_large.py - two daemons merge a large model; memory of each, in bytes a parameter.
"""Usage: test_large.py BIN [--params 20m] [--fragments 8] [--merges 5] [--node KEY=VALUE ...]
[--set KEY=VALUE ...] [--folder FOLDER] [--most BYTES] [--model NAME --joins]

The workers are stubs that hold theta alone. Ends when every fragment has merged so often on both
nodes, with equal digests. --most: the daemon may take so many bytes a parameter, beside FIXED.
Memory on its own: private memory of the daemon, and pages of memory shared with the worker. Pages
of a file are counted apart, because the system takes them back when it needs memory.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

FIXED = 80 << 20  # bytes that do not depend on the model: tables, recorder, floor of the pool
SLACK = 1 << 20  # pages that are shared in part
UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
PATIENCE_S = 3000
SIDE = 4096  # rows of the tensors


def count_of(text):
    """Number such as 1.2g."""
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def tensors_of(params):
    """One tensor that no fragment holds whole, and smaller ones."""
    layers = 12
    rest = params * 2 // 3 // layers // SIDE
    return f"embed:{params // 3 // SIDE}x{SIDE} h.{{0-{layers - 1}}}.w:{rest}x{SIDE} norm:{SIDE}"


class Memory(threading.Thread):
    """Peak memory of one process, in bytes: private, shared without a file, and of files."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.anon, self.shared, self.file, self.is_over = pid, 0, 0, 0, False

    def of_shared(self):
        """Bytes that the kernel holds for the memfd, whichever process touched them."""
        for entry in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                if os.readlink(entry).startswith("/memfd:thinwire"):
                    return os.stat(entry).st_blocks * 512
            except OSError:
                continue
        return 0

    def of_file(self):
        """Bytes of the mapped file that takes the memfd's place."""
        text = pathlib.Path(f"/proc/{self.pid}/maps").read_text(encoding="ascii")
        return sum(int(end, 16) - int(begin, 16) for begin, end in re.findall(
            r"^(\w+)-(\w+) rw-s .* /(?!memfd:).*\(deleted\)$", text, re.M))

    def look(self):
        """One sample."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        self.anon = max(self.anon, int(re.search(r"RssAnon:\s+(\d+)", text)[1]) * 1024)
        self.shared = max(self.shared, self.of_shared())
        self.file = max(self.file, self.of_file())

    def run(self):
        while not self.is_over:
            try:
                self.look()
            except (OSError, TypeError):
                return
            time.sleep(0.1)


def merges_of(log, fragments):
    """{round: digest}, and the least number of merges of a fragment."""
    done = {number: digest for _, number, _, digest, _, _ in nodes.rounds_of(log)}
    counts = [0] * fragments
    for number in done:
        counts[number % fragments] += 1
    return done, min(counts)


def used():
    """Memory of the machine that cannot be taken back, in bytes."""
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    size = {key: int(re.search(rf"{key}:\s+(\d+)", text)[1]) * 1024
            for key in ("MemTotal", "MemAvailable")}
    return size["MemTotal"] - size["MemAvailable"]


def show(name, memory, params):
    """A line of the table."""
    print(f"{name}: private {memory.anon / params:.2f}, shared {memory.shared / params:.2f}, file "
          f"{memory.file / params:.2f} bytes a parameter ({memory.anon / 1e9:.2f}, "
          f"{memory.shared / 1e9:.2f}, {memory.file / 1e9:.2f} GB)", flush=True)


def watch(group, args):
    """Runs until every fragment has merged often enough. Returns the memory of both daemons."""
    group.start(0)
    if args.joins:  # into the group of a node that has trained alone
        group.wait("a worker", lambda: "ev=worker_ready" in group.log(0), 600)
    group.start(1)
    memory = [Memory(process.pid) for process in group.processes]
    for one in memory:
        one.start()
    peak, begin, said = used(), time.monotonic(), 0
    while True:
        peak = max(peak, used())
        least = [merges_of(group.log(idx), args.fragments)[1] for idx in range(2)]
        if min(least) > said:
            said = min(least)
            print(f"{time.monotonic() - begin:.0f} s: every fragment has {said} merges, machine "
                  f"{peak / 1e9:.1f} GB at most", flush=True)
        if min(least) >= args.merges:
            break
        assert time.monotonic() - begin < PATIENCE_S, f"merges: {least}\n{group.log(0)[-4000:]}"
        assert all(p.poll() is None for p in group.processes), group.log(0)[-4000:]
        time.sleep(0.3)
    assert not args.saves or all(group.get(idx, "checkpoint") for idx in range(2))
    return memory


def named_of(log):
    """Bytes of shared memory that the daemon named before it allocated any."""
    line = re.search(r"^.* ev=memory .*$", log, re.M)[0]
    return sum(int(re.search(rf" {key}_bytes=(\d+)", line)[1])
               for key in ("anchor", "transit", "snapshot"))


def check(group, args, params):
    """Equal digests, and memory within the bound."""
    done = [merges_of(group.log(idx), args.fragments)[0] for idx in range(2)]
    both = done[0].keys() & done[1].keys()
    assert all(done[0][number] == done[1][number] for number in both), "digests differ"
    assert len(both) >= args.merges * args.fragments, len(both)
    print(f"{len(both)} rounds with equal digests on both nodes", flush=True)
    for idx, memory in enumerate(group.memory):
        show(f"daemon {idx}", memory, params)
        taken = memory.shared + max(0, memory.anon - FIXED)
        assert not args.most or taken <= args.most * params, \
            f"more than {args.most} bytes a parameter"
        named = named_of(group.log(idx))
        print(f"named before the start: {named / params:.2f} bytes a parameter", flush=True)
        assert memory.shared <= named + SLACK, "more than was named"


def main():
    """Parses the arguments and runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--params", default="20m")
    parser.add_argument("--fragments", type=int, default=8)
    parser.add_argument("--merges", type=int, default=5)
    parser.add_argument("--most", type=float, default=0)
    parser.add_argument("--steps", type=int, default=4, help="steps of a round")
    parser.add_argument("--step-us", type=int, default=20000)
    parser.add_argument("--saves", action="store_true", help="also a checkpoint, at the end")
    parser.add_argument("--folder")
    parser.add_argument("--model", help="a model by name in place of tensors of --params")
    parser.add_argument("--joins", action="store_true", help="the second node starts later")
    parser.add_argument("--node", action="append", default=[])
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    params = count_of(args.params)
    with tempfile.TemporaryDirectory(prefix="large-", dir=args.folder) as folder:
        keys = [f"sync.fragments={args.fragments}", f"sync.period={args.steps * args.fragments}",
                f"sync.overlap={args.steps // 2}", "sync.lead=0", *args.set]
        group = nodes.Nodes(
            args.bin, folder, 2, run_keys=keys, step_us=args.step_us, stub="--thin",
            node=["eval_steps = 0", *(line.replace("=", " = ") for line in args.node)],
            model=["--model", args.model] if args.model else
            ["--tensors", tensors_of(params), "--batch", "1", "--context", "32", "--tokens",
             "1000g"])
        try:
            group.memory = watch(group, args)
        finally:
            group.end()
        check(group, args, params)


if __name__ == "__main__":
    main()
