#!/usr/bin/env python3
# make_safetensors.py - writes the files of tests/data/safetensors with the real library.
"""Writes tests/data/safetensors with the real library (safetensors, numpy): names and shapes as
those of real models, with sides of a few elements."""

import json
import pathlib

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent / "safetensors"


def zeros(*shape, dtype=np.float32):
    """A tensor; its values do not matter."""
    return np.zeros(shape, dtype=dtype)


def gpt2():
    """A GPT-2 of 12 layers with a buffer, a single number and a convolution."""
    tensors = {"wte.weight": zeros(16, 4), "wpe.weight": zeros(8, 4), "ln_f.weight": zeros(4),
               "ln_f.bias": zeros(4), "logit_scale": zeros(),
               "patch.weight": zeros(4, 3, 2, 2, 2, dtype=np.float16),
               "position_ids": zeros(1, 8, dtype=np.int64)}
    for layer in range(12):
        for name, shape in (("ln_1.weight", (4,)), ("attn.c_attn.weight", (4, 12)),
                            ("attn.c_attn.bias", (12,)), ("mlp.c_fc.weight", (4, 16))):
            tensors[f"h.{layer}.{name}"] = zeros(*shape)
    save_file(tensors, HERE / "gpt2.safetensors", metadata={"format": "pt"})


def lora():
    """Adapters of a Llama on q and v, as peft names them."""
    tensors = {}
    for layer in range(16):
        for name, rows in (("q_proj", 8), ("v_proj", 4)):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = zeros(2, 8)
            tensors[f"{prefix}.lora_B.weight"] = zeros(rows, 2)
    save_file(tensors, HERE / "adapter_model.safetensors", metadata={"format": "pt"})


def moe():
    """A mixture of experts in two files: layers 0 and 3 are dense, 1, 2, 4 and 5 have experts."""
    files = [{}, {}]
    files[0]["model.embed_tokens.weight"] = zeros(16, 4)
    files[1]["model.norm.weight"] = zeros(4)
    for layer in range(6):
        tensors = files[layer // 3]
        tensors[f"model.layers.{layer}.self_attn.q_proj.weight"] = zeros(4, 4)
        if layer % 3 == 0:
            tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = zeros(8, 4)
            continue
        tensors[f"model.layers.{layer}.mlp.gate.weight"] = zeros(4, 4)
        for expert in range(4):
            prefix = f"model.layers.{layer}.mlp.experts.{expert}"
            tensors[f"{prefix}.up_proj.weight"] = zeros(2, 4)
            tensors[f"{prefix}.down_proj.weight"] = zeros(4, 2)
    weight_map = {}
    for i, tensors in enumerate(files):
        name = f"model-{i + 1:05}-of-00002.safetensors"
        save_file(tensors, HERE / "moe" / name, metadata={"format": "pt"})
        weight_map.update((tensor, name) for tensor in tensors)
    index = {"metadata": {"total_size": 0}, "weight_map": dict(sorted(weight_map.items()))}
    (HERE / "moe" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    gpt2()
    lora()
    moe()
