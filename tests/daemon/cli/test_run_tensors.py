#!/usr/bin/env python3
# test_run_tensors.py - `run new --tensors` takes the tensors that transformers would load, and
# refuses the rest by name.
"""Usage: test_run_tensors.py BIN"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

THINWIRE = pathlib.Path(sys.argv[1]).resolve() / "thinwire"
SIZES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I64": 8}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write(path, tensors):
    """A safetensors file of zeros: name to (type, shape)."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin = end
        end += SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path = pathlib.Path(path)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def index(folder, **places):
    """The index of a sharded model: tensor to file."""
    pathlib.Path(folder, INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")


def take(path, *options):
    """The tensors of a run of these files; or the complaint."""
    out = pathlib.Path("run.manifest")
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [THINWIRE, "run", "new", "r", "--tensors", path, "--batch", "2", "--context", "8",
         "--tokens", "10k", "--nodes", "2", "--out", out, *options],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        assert not out.exists() and done.stderr.count("\n") >= 1, done
        return " ".join(done.stderr.split())
    rows = [row for row in out.read_text(encoding="utf-8").splitlines()
            if row.startswith("model.tensors")]
    return rows[0].split(" = ")[1]


def check(found, *parts):
    """A complaint has all its parts."""
    for part in parts:
        assert part in found, (part, found)


def folders():
    """Files beside the model do not become part of it."""
    one, other = {"a": ("F32", [4, 8])}, {"b": ("F32", [8])}
    write(f"single/{SINGLE}", one)
    write("single/consolidated.safetensors", other)
    assert take("single") == "a:4x8"
    write(f"single/{SHARDS[0]}", other)
    index("single", b=SHARDS[0])
    assert take("single") == "a:4x8"  # as transformers: the single file comes first
    write(f"sharded/{SHARDS[0]}", one)
    write(f"sharded/{SHARDS[1]}", other)
    write("sharded/training.safetensors", {"c": ("F32", [2])})
    index("sharded", a=SHARDS[0], b=SHARDS[1])
    assert take("sharded") == "a:4x8 b:8"
    write("plain/x.safetensors", one)
    write("plain/y.safetensors", other)
    assert take("plain") == "a:4x8 b:8"
    write("plain/y.safetensors", one)
    check(take("plain"), "x.safetensors and y.safetensors both have tensor a")


def indexes():
    """An index is not believed."""
    one = {"a": ("F32", [4, 8])}
    write(f"cut/{SHARDS[0]}", one)
    index("cut", a=SHARDS[0], b=SHARDS[1])
    check(take("cut"), f"cut lacks {SHARDS[1]}", "copy it too")
    write(f"cut/{SHARDS[1]}", {"c": ("F32", [8])})
    check(take("cut"), f"says that {SHARDS[1]} has tensor b, and it has not")
    index("cut", c=SHARDS[0], a=SHARDS[0])
    check(take("cut"), f"says that {SHARDS[0]} has tensor c")
    index("cut", a="../single/" + SINGLE)
    check(take("cut"), "names no file of the folder for a")


def kinds():
    """Weights that nobody trains, and names that no manifest can hold."""
    write("q/m.safetensors", {"w": ("F8_E4M3", [4, 8]), "w.scale": ("F32", [4]),
                              "ids": ("I64", [3]), "half": ("BF16", [2])})
    check(take("q"), "tensor w is quantised to 8 bits", "train adapters over it")
    assert take("q", "--train", "half") == "half:2"
    assert take("q", "--frozen", "w") == "half:2 w.scale:4"
    write("n/m.safetensors", {"a b": ("F32", [2]), "c": ("F32", [2])})
    check(take("n"), "tensor `a b`: a name in a run has only", "--frozen")
    assert take("n", "--frozen", "a*") == "c:2"
    pathlib.Path("zip.pt").write_bytes(b"PK\3\4" + bytes(100))
    check(take("zip.pt"), "zip.pt", "no safetensors")


with tempfile.TemporaryDirectory(prefix="tw_tensors_") as work:
    os.chdir(work)
    for part in (folders, indexes, kinds):
        part()
print("the tensors of a run: ok")
