"""test_adapter.py SOURCE ENGINE - LoRA adapters of peft are merged by eval, generate and export.

The oracle is numpy: W + s B A. The base models are those of tests/golden/hf; adapters are written
here as peft writes them.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

TYPES = {"F32": np.float32}
RANK, ALPHA = 3, 6.0


def read(path):
    """The tensors of a safetensors file of float32."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, info in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        first, last = (8 + size + at for at in info["data_offsets"])
        tensors[name] = np.frombuffer(raw[first:last], TYPES[info["dtype"]]).reshape(info["shape"])
    return tensors


def write(path, tensors):
    """Writes float32 tensors as a safetensors file."""
    head, body = {}, b""
    for name, tensor in tensors.items():
        tensor = tensor.astype(np.float32)
        head[name] = {"dtype": "F32", "shape": list(tensor.shape),
                      "data_offsets": [len(body), len(body) + tensor.nbytes]}
        body += tensor.tobytes()
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


class Case:
    """A base model, an adapter for it, and the model that numpy makes of both."""

    def __init__(self, engine, folder, golden, names, is_transposed):
        self.engine, self.folder = engine, folder
        self.base, self.adapter = folder / "base", folder / "adapter"
        shutil.copytree(golden, self.base)
        self.adapter.mkdir()
        self.run("export", self.base, "--out", folder / "plain")
        self.plain = read(folder / "plain/model.safetensors")
        self.is_transposed = is_transposed
        draw = np.random.default_rng(1)
        self.factors = {}
        for name in names:
            rows, cols = self.plain[name + ".weight"].shape
            inputs, outputs = (rows, cols) if is_transposed else (cols, rows)
            stem = f"base_model.model.{name}"
            for end, shape in ((".lora_A.weight", (RANK, inputs)),
                               (".lora_B.weight", (outputs, RANK))):
                self.factors[stem + end] = draw.normal(size=shape).astype(np.float32)
        self.config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none",
                       "fan_in_fan_out": is_transposed, "modules_to_save": None,
                       "rank_pattern": {}, "use_dora": False, "use_rslora": False}
        self.save()

    def save(self, config=None, factors=None):
        """Writes the adapter, changed by the arguments."""
        text = json.dumps({**self.config, **(config or {})})
        (self.adapter / "adapter_config.json").write_text(text)
        write(self.adapter / "adapter_model.safetensors", factors or self.factors)

    def run(self, *words, rc=0):
        """The output of the engine, or its message if it must fail."""
        done = subprocess.run([self.engine, *map(str, words)], capture_output=True, text=True,
                              check=False)
        assert done.returncode == rc, (words, done.returncode, done.stderr)
        return done.stdout if rc == 0 else done.stderr

    def merged(self, scale):
        """The model with the adapter, as numpy computes it."""
        made = dict(self.plain)
        for name in self.factors:
            if not name.endswith(".lora_A.weight"):
                continue
            stem = name.removesuffix(".lora_A.weight")
            delta = self.factors[stem + ".lora_B.weight"] @ self.factors[name]
            weight = stem.removeprefix("base_model.model.") + ".weight"
            made[weight] = made[weight] + scale * (delta.T if self.is_transposed else delta)
        return made

    def check_export(self, out, scale):
        """The exported model is that of numpy, and differs from the base."""
        self.run("export", self.base, "--adapter", self.adapter, "--out", self.folder / out)
        got, want = read(self.folder / out / "model.safetensors"), self.merged(scale)
        assert got.keys() == want.keys()
        for name, tensor in want.items():
            assert np.allclose(got[name], tensor, rtol=1e-5, atol=1e-5), name
        changed = [name for name in want if not np.array_equal(got[name], self.plain[name])]
        assert len(changed) == len(self.factors) // 2, changed

    def check_use(self):
        """eval and generate with the adapter are those of the merged model."""
        data = self.folder / "tokens"
        data.write_bytes(np.random.default_rng(2).integers(1, 256, 2000).astype("<u2").tobytes())
        losses, texts = [], []
        for model, more in ((self.folder / "whole", []), (self.base, ["--adapter", self.adapter]),
                            (self.base, [])):
            said = self.run("eval", model, "--data", data, "--whole", "--json", *more)
            losses.append(json.loads(said)["validation_nats"])
            texts.append(self.run("generate", model, "--prompt", "1 2 3", "--tokens", 12,
                                  "--temperature", 0, "--json", *more))
            texts[-1] = json.loads(texts[-1])["text"]
        assert texts[0] == texts[1] != texts[2], texts
        assert losses[0] == losses[1] != losses[2], losses


def check_refusals(case):
    """Adapters of other kinds and of other models are refused by name."""
    first = next(iter(case.factors))
    base = [case.base, "--out", case.folder / "none", "--adapter", case.adapter]
    for config, said in (({"use_dora": True}, "use_dora is true"),
                         ({"bias": "all"}, 'bias is "all"'),
                         ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
                         ({"rank_pattern": {"q": 8}}, "rank_pattern is"),
                         ({"peft_type": "IA3"}, 'peft_type is "IA3"'),
                         ({"lora_alpha": "16"}, "lora_alpha is"),
                         ({"fan_in_fan_out": not case.is_transposed}, "of another")):
        case.save(config)
        said_now = case.run("export", *base, rc=2)
        assert said in said_now, (config, said_now)
    for factors, said in (({first: case.factors[first]}, "of another model"),
                          ({**case.factors, first: case.factors[first][:, 1:]}, "of another model"),
                          ({**case.factors, first: case.factors[first][:2]}, "the rank of"),
                          ({**case.factors, "base_model.model.x.lora_A.weight": np.ones((3, 4))},
                           "has no place for"),
                          ({**case.factors, first: case.factors[first].reshape(-1)}, "no matrix")):
        case.save(factors=factors)
        said_now = case.run("export", *base, rc=2)
        assert said in said_now, said_now
    case.save()
    said = case.run("export", case.adapter, "--out", case.folder / "none", rc=2)
    assert "take it by --adapter" in said, said
    assert "No such file" in case.run("generate", case.base, "--adapter", case.folder, rc=1)
    assert not (case.folder / "none").exists()


def main(source, engine):
    """Tries both layouts of weights."""
    golden = pathlib.Path(source) / "tests/golden/hf"
    for model, names, is_transposed in (
            ("llama", ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"), False),
            ("qwen3", ("model.layers.0.self_attn.k_proj", "model.layers.0.mlp.up_proj"), False),
            ("gpt2", ("transformer.h.0.attn.c_attn", "transformer.h.0.mlp.c_proj"), True)):
        with tempfile.TemporaryDirectory() as place:
            case = Case(engine, pathlib.Path(place), golden / model, names, is_transposed)
            case.check_export("whole", ALPHA / RANK)
            case.check_use()
            case.save({"use_rslora": True})
            case.check_export("root", ALPHA / RANK ** 0.5)
            check_refusals(case)
    print("merged as numpy merges it")


if __name__ == "__main__":
    main(*sys.argv[1:])
