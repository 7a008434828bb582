#!/usr/bin/env python3
# make_gradients.py - losses and gradients of PyTorch for tests/worker/engine/test_gradients.c.
"""Writes gradients.txt: losses and gradients of small models by PyTorch and transformers.

Needs torch and transformers (any of 2024 or later), which the build and the tests do not: run it by
hand when a case is added, and commit its output.

Parameters and tokens follow from formulas that tests/worker/engine/test_gradients.c repeats, so
that only results need to be stored: the norm of each tensor's gradient and SAMPLES elements of it.
"""
import sys

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, CONTEXT, VOCAB, SAMPLES = 3, 12, 256, 24
LAYERS = 2
SEPARATOR = 5
DOCUMENTS = ["data.documents=masked", f"data.separator={SEPARATOR}"]


def hash32(tensor, index):
    """tensor, index -> 32 bits; all arithmetic modulo 2^32."""
    x = (tensor * 1000003 + index * 2654435761) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 2246822519) & 0xFFFFFFFF
    x ^= x >> 13
    return x


def fill(number, name, parameter):
    """Uniform in [-0.25, 0.25), around 1 for the weights of norms."""
    is_norm = parameter.dim() == 1 and name.endswith(".weight")
    values = [(hash32(number, i) >> 8) / 2**24 * 0.5 - 0.25 for i in range(parameter.numel())]
    with torch.no_grad():
        flat = torch.tensor(values, dtype=torch.float64) + (1.0 if is_norm else 0.0)
        parameter.copy_(flat.to(torch.float32).reshape(parameter.shape))


def tokens(has_documents):
    row = [[SEPARATOR if has_documents and (t * (b + 2) + 1) % 5 == 0 else
            (b * 101 + t * t * 31 + t * 7 + 3) % VOCAB for t in range(CONTEXT + 1)]
           for b in range(BATCH)]
    return torch.tensor(row)


def mask(ids):
    """(batch, 1, queries, keys): the keys of a query's own document, up to the query."""
    number = (ids == SEPARATOR).cumsum(1)
    return (number[:, None, :, None] == number[:, None, None, :]).tril()


def gpt2(tied):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=24, n_layer=LAYERS, n_head=3,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied))


LLAMA_KEYS = ["model.family=llama", "model.heads=4", "model.kv_heads=2", "model.ffn=40",
              "model.norm_eps=0.000001"]
LLAMA = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=LAYERS,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT,
             rms_norm_eps=1e-6, attention_dropout=0.0)


def llama(tied, rope):
    return LlamaForCausalLM(LlamaConfig(head_dim=6, tie_word_embeddings=tied, **rope, **LLAMA))


def qwen(rope):
    return Qwen3ForCausalLM(Qwen3Config(head_dim=10, tie_word_embeddings=False,
                                        attention_bias=True, **rope, **LLAMA))


def rope(theta, factor):
    if factor == 1:
        parameters = {"rope_type": "default", "rope_theta": theta}
    else:
        parameters = {"rope_type": "llama3", "rope_theta": theta, "factor": float(factor),
                      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 20}
    if int(transformers.__version__.split(".")[0]) >= 5:
        return {"rope_parameters": parameters}
    return {"rope_theta": theta, "rope_scaling": None if factor == 1 else parameters}


CASES = [
    ("gpt2", ["model.heads=3"], lambda: gpt2(True)),
    ("gpt2-untied", ["model.heads=3", "model.tied=no"], lambda: gpt2(False)),
    ("gpt2-documents", ["model.heads=3"] + DOCUMENTS, lambda: gpt2(True)),
    ("llama", LLAMA_KEYS, lambda: llama(True, rope(10000.0, 1))),
    ("llama-documents", LLAMA_KEYS + DOCUMENTS, lambda: llama(True, rope(10000.0, 1))),
    ("llama-scaled-untied",
     LLAMA_KEYS + ["model.tied=no", "model.rope_theta=50", "model.rope_factor=8",
                   "model.rope_original=20"],
     lambda: llama(False, rope(50.0, 8))),
    ("llama-qk-norm-bias",
     LLAMA_KEYS + ["model.tied=no", "model.head_size=10", "model.qk_norm=yes",
                   "model.qkv_bias=yes"],
     lambda: qwen(rope(10000.0, 1))),
]


def layout_order(model):
    """Parameters by the names of the manifest's layout; those absent from it are set to zero."""
    parameters = {}
    for name, parameter in model.named_parameters():
        short = name.removeprefix("transformer.")
        if short.endswith("o_proj.bias"):
            with torch.no_grad():
                parameter.zero_()
            continue
        parameters[short] = parameter
    return parameters


def write(out, name, keys, model):
    model = model.eval()
    parameters = layout_order(model)
    for tensor, parameter in parameters.items():
        # Numbered by name, because the order of the layout must not matter.
        fill(sum((i + 1) * ord(c) for i, c in enumerate(tensor)), tensor, parameter)
    model = model.double()
    ids = tokens(DOCUMENTS[0] in keys)
    seen = mask(ids[:, :-1]) if DOCUMENTS[0] in keys else None
    logits = model(ids[:, :-1], attention_mask=seen).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    print(f"case {name} {' '.join(keys)}", file=out)
    print(f"loss {loss.item():.9g}", file=out)
    for tensor, parameter in layout_order(model).items():
        flat = parameter.grad.reshape(-1)
        step = max(1, flat.numel() // SAMPLES) | 1  # odd: not one column only
        samples = " ".join(f"{flat[i].item():.7g}"
                           for i in list(range(0, flat.numel(), step))[:SAMPLES])
        print(f"{tensor} {flat.norm().item():.9g} {samples}", file=out)


def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else "gradients.txt", "w") as out:
        print(f"# by make_gradients.py, torch {torch.__version__.split('+')[0]}, transformers "
              f"{transformers.__version__}: per tensor the norm of the gradient, then every n-th\n"
              f"# element, n = max(1, elements / {SAMPLES}) made odd, at most {SAMPLES}", file=out)
        for name, keys, make in CASES:
            torch.manual_seed(1)
            write(out, name, keys, make())


main()
