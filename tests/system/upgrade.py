#!/usr/bin/env python3
# upgrade.py - nodes of two versions together, and five nodes that are upgraded one after the other.
"""Usage: upgrade.py OLD_BIN NEW_BIN [mixed|rolling]

tests/upgrade builds the older version. With the same folder twice it is a test of restarts.
mixed: nodes of both versions form rounds, and their anchors are equal.
rolling: each of five nodes is stopped, its program is replaced, and it is started again. Meanwhile
the others go on: no round is lost, and the run clock has all tokens that the nodes say are in it.
"""
import hashlib
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import nodes

TRIES = 10
PROGRAMS = ("thinwired", "thinwire-worker")
KEYS = ("sync.period=64", "sync.pace=clock", "sync.interval=3s")
# Place of the listed tokens in a position; the fragments follow (sync/core/position.c).
FRAGMENTS_AT = 4 + 2 * 32 + 3 * 8 + 4


class Group(nodes.Nodes):
    """Nodes that each have programs of their own, which can be replaced."""

    def __init__(self, tools, folder, count):
        super().__init__(tools, folder, count, run_keys=KEYS, step_us=None)
        for idx in range(count):
            text = self.config(idx).read_text(encoding="ascii")
            for key, value in (("nice", "19"), ("checkpoint_interval", "0"),
                               ("worker_path", str(self.programs(idx) / "thinwire-worker"))):
                text = text.replace(f"#{key} = ", f"{key} = {value}\n#", 1)
            self.config(idx).write_text(text, encoding="ascii")

    def programs(self, idx):
        """Folder of the node's programs."""
        return self.folder / f"n{idx}.bin"

    def install(self, idx, source):
        """Replaces the node's programs, as a package does: by rename."""
        self.programs(idx).mkdir(exist_ok=True)
        for name in PROGRAMS:
            new = self.programs(idx) / f"{name}.new"
            shutil.copy(pathlib.Path(source) / name, new)
            new.rename(self.programs(idx) / name)

    def start(self, idx):
        """Starts the node's own program."""
        shared, self.bin = self.bin, self.programs(idx)
        try:
            super().start(idx)
        finally:
            self.bin = shared

    def runs(self, idx, source):
        """Whether the node's daemon is the program of that folder."""
        running = pathlib.Path(f"/proc/{self.processes[idx].pid}/exe").read_bytes()
        return running == (pathlib.Path(source) / "thinwired").read_bytes()

    def status(self, idx, *path):
        """A value of the node's status; None: no answer."""
        value = self.get(idx)
        for key in path:
            value = value[key] if value is not None else None
        return value

    def rounds(self, idx):
        """{round: (digest, contributors, roster, is_ours)} of the node, over all its starts."""
        return {number: (digest, contributors, roster, ours) for _, number, ours, digest,
                contributors, roster in nodes.rounds_of(self.log(idx))}

    def wait_merges(self, idx, contributors, count, what):
        """Waits until the node has seen so many more rounds with all of these contributors."""
        seen = set(self.rounds(idx))
        self.wait(what, lambda: sum(
            1 for number, row in self.rounds(idx).items()
            if number not in seen and row[1] == contributors) >= count, 180)

    def save_all(self):
        """Checkpoints of all running nodes, taken between the same two rounds."""
        for _ in range(TRIES):
            newest = max(self.rounds(0))
            self.wait("a round", lambda n=newest: max(self.rounds(0)) > n)
            asked = [subprocess.Popen([self.tool("thinwire"), "checkpoint", "--config",
                                       str(self.config(idx))], stdout=subprocess.DEVNULL)
                     for idx in range(self.count)]
            assert all(process.wait() == 0 for process in asked)
            saved = [Saved(self, idx) for idx in range(self.count)]
            if len({node.rounds for node in saved} | {node.clock_rounds for node in saved}) == 1:
                return saved
        raise RuntimeError("the nodes saved different rounds each time")


class Saved:
    """The newest checkpoint of a running node, and its run clock."""

    def __init__(self, group, idx):
        newest = -1
        for path in group.folder.glob(f"n{idx}/*/ckpt.[ab].safetensors"):
            with open(path, "rb") as file:
                about = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
                base = file.tell()
                meta = about.pop("__metadata__")
                if int(meta["generation"]) < newest:
                    continue
                newest = int(meta["generation"])
                self.anchor = hashlib.sha256()
                for name in sorted(name for name in about if name.startswith("anchor.")):
                    first, last = about[name]["data_offsets"]
                    file.seek(base + first)
                    self.anchor.update(name.encode() + file.read(last - first))
                self._read_position(bytes.fromhex(meta["position"]))
        assert newest >= 0, f"n{idx} has no checkpoint"
        status = group.get(idx)
        self.clock, self.clock_rounds = (status["run"]["clock_tokens"],
                                         status["sync"]["rounds_committed"])
        self.tokens = status["train"]["tokens"]

    def _read_position(self, position):
        assert position[:4] == b"TWP4", "another form of a position: see sync/core/position.c"
        self.rounds, = struct.unpack_from("<Q", position, 4 + 2 * 32 + 2 * 8)
        self.listed, count = struct.unpack_from("<QI", position, FRAGMENTS_AT)
        self.fragments = []
        for fragment in range(count):
            at = FRAGMENTS_AT + 12 + 56 * fragment
            rounds, digest = struct.unpack_from("<Q32s", position, at)
            self.fragments.append((rounds, digest.hex()))


def check_records(group, first):
    """All nodes have the same record of each round, and no round since the first is missing."""
    common = {}
    for idx in range(group.count):
        for number, row in group.rounds(idx).items():
            if number < first:
                continue  # of before all met: groups that formed apart count rounds of their own
            assert common.setdefault(number, row)[:3] == row[:3], (idx, number, row, common[number])
        assert "ev=anchor_differs" not in group.log(idx), group.log(idx)[-2000:]
        assert "ev=round_forged" not in group.log(idx)
    lost = set(range(first, max(common))) - set(common)
    assert not lost, f"rounds that no node has: {sorted(lost)}"
    return {number: row for number, row in sorted(common.items()) if number >= first}


def check_anchors(saved):
    """Fragments of as many rounds are equal in all checkpoints, and so are whole anchors."""
    versions, wholes = {}, {}
    for node in saved:
        wholes.setdefault(tuple(node.fragments), set()).add(node.anchor.hexdigest())
        for fragment, (rounds, digest) in enumerate(node.fragments):
            versions.setdefault((fragment, rounds), []).append(digest)
    assert all(len(set(digests)) == 1 for digests in versions.values()), versions
    assert all(len(anchors) == 1 for anchors in wholes.values()), wholes
    # one fragment at most is between two rounds
    assert max(len(digests) for digests in versions.values()) == len(saved), versions
    assert len({node.clock for node in saved}) == 1, [node.clock for node in saved]


def check_clock(before, after):
    """The run clock has grown by the tokens that the nodes had listed meanwhile, but for those of a
    node with more than four times the median of a round, as one that was held up for long. Each
    node has most of its tokens listed."""
    grown = after[0].clock - before[0].clock
    listed = sum(new.listed - old.listed for old, new in zip(before, after))
    print(f"the clock grew by {grown} tokens; the nodes say {listed}")
    assert 0.9 * listed < grown <= listed
    for old, new in zip(before, after):
        trained = new.tokens - old.tokens
        assert new.listed - old.listed > trained / 2, (old.listed, new.listed, trained)


def check_mixed(old, new, folder):
    """Two nodes of one version and one of the other."""
    group = Group(new, folder, 3)
    try:
        for idx in range(3):
            group.install(idx, old if idx == 1 else new)
            group.start(idx)
        group.wait_merges(0, 3, 8, "eight rounds of three")
        assert group.runs(1, old) and group.runs(0, new) and group.runs(2, new)
        saved = group.save_all()
    finally:
        group.end()
    rows = check_records(group, 1)
    assert all(sum(row[3] for row in group.rounds(idx).values()) >= 8 for idx in range(3))
    check_anchors(saved)
    print(f"mixed: {len(rows)} rounds, all with equal records and anchors")


def upgrade(group, idx, new):
    """Stops a node, replaces its programs and starts it again; the others go on meanwhile."""
    other = (idx + 1) % group.count
    before = group.get(idx)
    group.processes[idx].terminate()
    assert group.processes[idx].wait(60) == 0, group.log(idx)[-2000:]
    group.wait_merges(other, group.count - 1, 2, f"rounds without n{idx}")
    group.install(idx, new)
    group.start(idx)
    assert group.runs(idx, new)
    group.wait("its status", lambda: group.status(idx, "train", "steps") is not None)
    after = group.get(idx)
    for part, key in (("train", "steps"), ("train", "tokens"), ("run", "clock_tokens")):
        assert after[part][key] >= before[part][key], (idx, part, key, before[part][key],
                                                      after[part][key])
    group.wait_merges(idx, group.count, 2, f"rounds with n{idx}")


def check_rolling(old, new, folder):
    """Five nodes are upgraded one after the other."""
    count = 5
    group = Group(new, folder, count)
    try:
        for idx in range(count):
            group.install(idx, old)
            group.start(idx)
        group.wait_merges(0, count, 3, "rounds of five")
        before = group.save_all()
        first = before[0].rounds
        for idx in range(count):
            assert group.runs(idx, old)
            upgrade(group, idx, new)
        group.wait_merges(0, count, 3, "rounds of five at the end")
        assert all(group.runs(idx, new) for idx in range(count))
        losses = [group.status(idx, "train", "loss_nats") for idx in range(count)]
        after = group.save_all()
    finally:
        group.end()
    rows = check_records(group, first)
    missing = [(number, row[1:3]) for number, row in rows.items() if row[1] < count - 1]
    print(f"rolling: {len(rows)} rounds, {sum(row[1] for row in rows.values())} contributions; "
          f"losses {losses}")
    assert not missing, f"rounds with fewer than four contributors: {missing}"
    check_anchors(before)
    check_anchors(after)
    check_clock(before, after)


def main():
    """Runs the tests of the command line."""
    old, new = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    kinds = {"mixed": check_mixed, "rolling": check_rolling}
    for kind in sys.argv[3:] or kinds:
        with tempfile.TemporaryDirectory(prefix="tw_upgrade_") as folder:
            kinds[kind](old, new, folder)
    print("ok")


if __name__ == "__main__":
    main()
