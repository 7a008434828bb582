#!/usr/bin/env python3
# make_hf.py - tiny random models, saved by Hugging Face's transformers, with their logits.
#
#   tests/golden/make_hf.py FOLDER [--all]
#
# Without --all only the models whose folders are in tests/golden/hf. Needs transformers, torch and
# numpy, none of which the build or the tests need. Beside each model: tokens.bin, uint32, and
# logits.bin, float32 (tokens, vocab / 16), every sixteenth of their logits; little-endian.
"""Makes the golden models of tests/golden/hf."""
import pathlib
import shutil
import sys

import numpy
import torch
import transformers
from transformers import (GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config)

TOKENS = 12
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 500000.0}
LLAMA = {"vocab_size": 256, "hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
         "bos_token_id": None, "eos_token_id": None}
GPT2 = {"vocab_size": 256, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2,
        "bos_token_id": None, "eos_token_id": None}

# name -> configuration, dtype, limit of a file, golden
MODELS = {
    "gpt2": (GPT2Config(**GPT2), torch.float32, None, True),
    "gpt2-untied": (GPT2Config(**{**GPT2, "n_layer": 2, "n_inner": 20, "n_embd": 12},
                               tie_word_embeddings=False), torch.float32, "12KB", False),
    "gpt2-f16": (GPT2Config(**GPT2), torch.float16, None, False),
    "llama": (LlamaConfig(**{**LLAMA, "hidden_size": 16, "num_hidden_layers": 2,
                             "num_attention_heads": 4, "num_key_value_heads": 2}, head_dim=6,
                          tie_word_embeddings=True, rope_parameters=SCALED), torch.bfloat16, None,
              True),
    "llama-untied": (LlamaConfig(**LLAMA, rms_norm_eps=1e-5, tie_word_embeddings=False),
                     torch.bfloat16, "4KB", True),
    "llama-3": (LlamaConfig(**{**LLAMA, "hidden_size": 64, "num_attention_heads": 4,
                               "num_key_value_heads": 2, "num_hidden_layers": 3}, head_dim=32,
                            tie_word_embeddings=False, rope_parameters=SCALED), torch.float32,
                "60KB", False),
    "mistral": (MistralConfig(**LLAMA, sliding_window=None), torch.float32, None, False),
    "qwen2": (Qwen2Config(**LLAMA, tie_word_embeddings=True), torch.bfloat16, None, True),
    "qwen3": (Qwen3Config(**LLAMA, head_dim=6, tie_word_embeddings=True), torch.float16, None,
              True),
}


def randomise(model):
    """Numbers large enough that every part of the model shows in the logits."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name or ".ln_" in name
            scale = 0.3 if parameter.dim() == 1 else 0.25
            parameter.copy_(noise * scale + (1 if is_norm and name.endswith("weight") else 0))


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens[None].astype(numpy.int64))).logits[0].float().numpy()


def make(name, folder):
    config, dtype, limit, _ = MODELS[name]
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomise(model)
    model = model.to(dtype)
    model.save_pretrained(folder, **({"max_shard_size": limit} if limit else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = numpy.random.default_rng(3).integers(0, config.vocab_size, TOKENS).astype("<u4")
    # Stored weights, computed in float32. (The model in memory has a rounded rotation, too.)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    logits = logits_of(model.eval(), tokens)
    tokens.tofile(folder / "tokens.bin")
    logits[:, ::16].astype("<f4").tofile(folder / "logits.bin")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name, (_, _, _, is_golden) in MODELS.items():
        if is_golden or "--all" in sys.argv:
            make(name, pathlib.Path(sys.argv[1]) / name)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main()
