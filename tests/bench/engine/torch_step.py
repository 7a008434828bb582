"""torch_step.py - a training step of a GPT-2 or Llama shape in PyTorch, for compare and tests/gpu.

The same work and interface as `thinwire-engine-bench --only step --serve`: reads a number of steps,
prints the seconds of one. Attention, norms and GELU are PyTorch's own modules, with AdamW, mean
cross-entropy, and gradient clipping at 1; with --compute bf16 the products run under autocast.
AdamW is fused where this PyTorch has that. --compile compiles the model; it has compiled before it
prints its line.
--device cuda uses the usual setup there: torch.compile, fused AdamW, and the attention asked for;
it has compiled before it prints its line. The loss stays on the device, and is read once per step.
--profile N prints the time of N steps by operator, the longest first, and ends: the table beside
that of `thinwire train --profile`.
"""
import argparse
import json
import math
import os
import sys
import time

parser = argparse.ArgumentParser()
for name, default in (("layers", 4), ("width", 128), ("heads", 4), ("context", 128), ("vocab", 257),
                      ("batch", 8), ("threads", 0)):
    parser.add_argument("--" + name, type=int, default=default)
for name in ("kv-heads", "ffn"):  # 0: as many as heads; 4 times the width
    parser.add_argument("--" + name, type=int, default=0)
parser.add_argument("--family", choices=("gpt2", "llama"), default="gpt2")
parser.add_argument("--attention", choices=("flash", "cudnn"), default="flash")
parser.add_argument("--compute", choices=("fp32", "bf16"), default="bf16")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
parser.add_argument("--compile", action="store_true", help="always on with --device cuda")
parser.add_argument("--profile", type=int, default=0, metavar="N")
options = parser.parse_args()
threads = options.threads or len(os.sched_getaffinity(0))
os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # before the library is loaded
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(threads)
torch.manual_seed(1)


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(context, context).tril().bool(), persistent=False)

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        if hasattr(functional, "scaled_dot_product_attention"):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.size(-1)))
            scores = scores.masked_fill(~self.mask[:context, :context], -math.inf)
            y = functional.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, context, width))


class GroupedAttention(nn.Module):
    """Llama's: rotary positions, groups of queries that share keys, no biases."""

    def __init__(self, o):
        super().__init__()
        self.size, self.heads, self.kv_heads = o.width // o.heads, o.heads, o.kv_heads or o.heads
        self.qkv = nn.Linear(o.width, (o.heads + 2 * self.kv_heads) * self.size, bias=False)
        self.out = nn.Linear(o.width, o.width, bias=False)
        rates = 1e4 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = torch.arange(o.context)[:, None] * rates[None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x):
        low, high = x.float().chunk(2, dim=-1)
        turned = (low * self.cos - high * self.sin, high * self.cos + low * self.sin)
        return torch.cat(turned, dim=-1).type_as(x)

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.qkv(x).view(batch, context, -1, self.size).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        y = functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v,
                                                    is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, context, width))


class GatedBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        ffn = o.ffn or 4 * o.width
        self.norm1, self.norm2 = nn.RMSNorm(o.width, 1e-5), nn.RMSNorm(o.width, 1e-5)
        self.attention = GroupedAttention(o)
        self.gate_up = nn.Linear(o.width, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, o.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


def tanh_gelu():
    try:
        return nn.GELU(approximate="tanh")
    except TypeError:
        return nn.GELU()


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), tanh_gelu(),
                                  nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens = nn.Embedding(o.vocab, o.width)
        is_llama = o.family == "llama"
        self.positions = None if is_llama else nn.Embedding(o.context, o.width)
        self.blocks = nn.Sequential(*(GatedBlock(o) if is_llama else
                                      Block(o.width, o.heads, o.context) for _ in range(o.layers)))
        self.norm = nn.RMSNorm(o.width, 1e-5) if is_llama else nn.LayerNorm(o.width)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.size(1)]
        logits = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


is_cuda = options.device == "cuda"
if is_cuda:
    torch.set_float32_matmul_precision("high")
model = Decoder(options).to(options.device)


def adamw(**more):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                             **more)


try:
    optimizer = adamw(fused=True)
except (RuntimeError, TypeError):  # old PyTorch
    optimizer = adamw()
is_compiled = is_cuda or options.compile
tokens = torch.randint(options.vocab, (options.batch, options.context + 1)).to(options.device)
if is_cuda:
    # The attention asked for, or an error: a silent slower one would make the comparison useless.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    kinds = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    chosen = sdpa_kernel([kinds[options.attention] if options.compute == "bf16"
                          else SDPBackend.EFFICIENT_ATTENTION])
    chosen.__enter__()
run = torch.compile(model) if is_compiled else model


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.compute == "bf16"):
        loss = run(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


place = f"{torch.get_num_threads()} threads" if not is_cuda else \
    f"{torch.cuda.get_device_name()}, {options.attention} attention"
if is_compiled:
    place += ", torch.compile"
    step(), step()  # compiled and tuned now, not in the first round
if options.profile > 0:
    from torch.profiler import profile
    step()  # memory is there now
    with profile() as taken:
        for _ in range(options.profile):
            step()
    rows = sorted(taken.key_averages(), key=lambda row: -row.self_cpu_time_total)
    whole = sum(row.self_cpu_time_total for row in rows)
    for row in rows[:20]:
        print(f"{100 * row.self_cpu_time_total / whole:5.1f} %  "
              f"{row.self_cpu_time_total / 1e3 / options.profile:9.2f} ms  "
              f"{row.count // options.profile:5} times a step  {row.key}")
    sys.exit(0)
print(json.dumps({"what": f"PyTorch {torch.__version__}, {place}, "
                          + ("bf16 autocast" if options.compute == "bf16" else "fp32"),
                  "tokens": options.batch * options.context}), flush=True)
for line in sys.stdin:
    steps = int(line)
    start, busy = time.monotonic(), time.process_time()
    for _ in range(steps):
        step()
    print(f"{(time.monotonic() - start) / steps:.6f} {(time.process_time() - busy) / steps:.6f}",
          flush=True)
