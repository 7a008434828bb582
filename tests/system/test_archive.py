#!/usr/bin/env python3
# test_archive.py - a run is kept as files, and proves its model.
"""test_archive.py BIN

Three nodes train for real; n0 writes its archive. n2 dies and comes back. From the archive alone
`thinwire verify` repeats the run, and finds the exported model equal to the bit. Each planted
change of a file is found and named, and so is a model that is another one.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from nodes import Nodes, run  # pylint: disable=wrong-import-position

# Long enough that a fast machine is not done before the last node is there.
KEYS = ["train.tokens=2000000", "train.batch=4", "train.warmup_tokens=1000", "sync.period=64",
        "sync.fragments=2"]


class Archive:
    """Copies of an archive, and `thinwire verify` on them."""

    def __init__(self, tool, folder, original):
        self.tool, self.folder, self.original = tool, folder, original
        self.count = 0

    def copy(self):
        """A fresh copy."""
        self.count += 1
        path = self.folder / f"copy{self.count}"
        shutil.copytree(self.original, path)
        return path

    def verify(self, path, *words):
        """(exit status, output) of a check."""
        done = subprocess.run([self.tool, "verify", str(path), *map(str, words)],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def files(self, ending):
        """Names of the archive's rounds, oldest first."""
        return sorted(path.name for path in (self.original / "rounds").glob(f"*.{ending}"))

    def refuses(self, what, change, name):
        """A changed copy must be refused, by the name of the file."""
        path = self.copy()
        change(path)
        code, said = self.verify(path)
        assert code == 9 and name in said, f"{what}: {code}, {said}"
        shutil.rmtree(path)


def flip(path, at):
    """Changes one bit of a file; a negative place counts from its end."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rounds(nodes, idx):
    """Rounds that the node knows to be decided."""
    return (nodes.get(idx) or {"sync": {"rounds_committed": 0}})["sync"]["rounds_committed"]


def is_over(nodes):
    """True when every node has finished the run."""
    return all((nodes.get(idx) or {"state": ""})["state"] == "finished" for idx in range(3))


def train(nodes):
    """The run, in which n2 dies."""
    nodes.start(0)
    nodes.wait("rounds of n0 alone", lambda: rounds(nodes, 0) > 2)
    nodes.start(1)
    nodes.start(2)
    nodes.wait("they merge", lambda: (nodes.get(0) or {"sync": {"mixed_peers": 0}})
               ["sync"]["mixed_peers"] == 2)
    nodes.kill(2)
    nodes.start(2)
    nodes.wait("the end of the run", lambda: is_over(nodes), 240)
    assert nodes.get(0)["archive"]["lost"] == 0, nodes.get(0)["archive"]
    thinwire = [nodes.tool("thinwire"), "--config", str(nodes.config(1))]
    run(*thinwire, "checkpoint")
    for dtype in ("f32", "bf16"):
        run(*thinwire, "export", "--part", "anchor", "--dtype", dtype, "--out",
            str(nodes.folder / f"model-{dtype}"))
    nodes.end()


def check_changes(archive):
    """Every kind of change is found."""
    names, results = archive.files("round"), archive.files("results")
    early, late = results[1], results[-2]
    archive.refuses("a result", lambda at: flip(at / "rounds" / early, 40), early)
    archive.refuses("a late result", lambda at: flip(at / "rounds" / late, -1), late)
    middle = names[len(names) // 2]
    archive.refuses("a vote", lambda at: flip(at / "rounds" / middle, -1), middle)
    archive.refuses("a record's magic", lambda at: flip(at / "rounds" / middle, 0), middle)
    archive.refuses("no votes", lambda at: cut(at / "rounds" / middle), middle)
    for member in (archive.original / "members").iterdir():
        archive.refuses("a certificate", lambda at, name=member.name: flip(at / "members" / name,
                                                                          -1), member.name)
    # The rounds of n0 alone left no results: their outcome is in the archive as a state.
    for state in (archive.original / "states").iterdir():
        archive.refuses("a state", lambda at, name=state.name: flip(at / "states" / name, 100),
                        state.name)


def cut(path):
    """Removes the votes of a round, so that its record stands alone."""
    data = path.read_bytes()
    path.write_bytes(data[:8 + int.from_bytes(data[4:8], "little")])


def check_gaps(archive):
    """A file that is missing is named, and nothing behind it is called proven."""
    path = archive.copy()
    name = archive.files("results")[-1]
    (path / "rounds" / name).unlink()
    code, said = archive.verify(path)
    assert code == 4 and name in said, f"{code}, {said}"
    unknown = archive.copy()
    shutil.rmtree(unknown / "members")
    code, said = archive.verify(unknown)
    assert code == 4 and "lacks the certificate of voter" in said, f"{code}, {said}"
    late = archive.copy()
    for name in archive.files("round")[:4] + archive.files("results")[:3]:
        (late / "rounds" / name).unlink(missing_ok=True)
    code, said = archive.verify(late)
    assert code in (0, 4), said  # it begins later, and proves less or the same
    empty = archive.folder / "empty"
    (empty / "rounds").mkdir(parents=True)
    shutil.copy(path / "run.manifest", empty)
    assert archive.verify(empty)[0] == 4
    assert archive.verify(archive.folder / "nowhere")[0] != 0


def check_forged(archive):
    """A record of which a value is changed is no longer that which the next one names."""
    path = archive.copy()
    name = archive.files("round")[-1]
    flip(path / "rounds" / name, 8 + 4 + 32 + 32 + 32 + 8)  # its run clock
    code, said = archive.verify(path)
    assert code == 9 and name in said, f"{code}, {said}"


def test(nodes):
    """The test."""
    train(nodes)
    archive = Archive(nodes.tool("thinwire"), nodes.folder, nodes.folder / "archive")
    code, said = archive.verify(archive.original, nodes.folder / "model-bf16", "--json")
    assert code == 0, said
    found = json.loads(said)
    assert found["model_is_same"] and found["is_closed"], found
    assert found["has_owner"] and found["voters_certified"] >= 2, found
    assert found["fragments_proven"] == found["fragments"] == 2, found
    assert found["merges"] > 10 and found["digests_matched"] >= found["merges"], found
    print(archive.verify(archive.original, nodes.folder / "model-f32")[1])
    other = nodes.folder / "other"
    shutil.copytree(nodes.folder / "model-f32", other)
    weights = next(other.glob("*.safetensors"))
    flip(weights, -5)
    code, said = archive.verify(archive.original, other)
    assert code == 9 and "is not the run's model" in said, f"{code}, {said}"
    check_changes(archive)
    check_gaps(archive)
    check_forged(archive)


def main():
    """One run in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="tw-archive-", dir="/tmp") as folder:
        nodes = Nodes(sys.argv[1], folder, 3, run_keys=KEYS, step_us=None,
                      node=["checkpoint_interval = 5s"])
        config = nodes.config(0)
        config.write_text(config.read_text(encoding="ascii").replace(
            "[node]", f"[node]\narchive = {folder}/archive", 1), encoding="ascii")
        try:
            test(nodes)
        finally:
            nodes.end()


if __name__ == "__main__":
    main()
