"""torch_step.py - a training step of a GPT-2-shaped model in PyTorch, for compare.

The same work and interface as `thinwire-engine-bench --only step --serve`: reads a number of steps,
prints the seconds of one. Attention, norms and GELU are PyTorch's own modules, with AdamW, mean
cross-entropy, and gradient clipping at 1; with --compute bf16 the products run under autocast.
--device cuda uses the usual setup there: torch.compile, flash attention, fused AdamW. The loss
stays on the device, and is read once per step.
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
parser.add_argument("--compute", choices=("fp32", "bf16"), default="bf16")
parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
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
        self.positions = nn.Embedding(o.context, o.width)
        self.blocks = nn.Sequential(*(Block(o.width, o.heads, o.context) for _ in range(o.layers)))
        self.norm = nn.LayerNorm(o.width)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[:tokens.size(1)]
        logits = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


is_cuda = options.device == "cuda"
if is_cuda:
    torch.set_float32_matmul_precision("high")
model = Decoder(options).to(options.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                              **({"fused": True} if is_cuda else {}))
tokens = torch.randint(options.vocab, (options.batch, options.context + 1)).to(options.device)
if is_cuda:
    # Flash attention or an error: a silent slower fallback would make the comparison useless.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    chosen = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]
                         if options.compute == "bf16" else [SDPBackend.EFFICIENT_ATTENTION])
    chosen.__enter__()
    run = torch.compile(model)
else:
    run = model


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.compute == "bf16"):
        loss = run(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


place = f"{torch.get_num_threads()} threads" if not is_cuda else \
    f"{torch.cuda.get_device_name()}, torch.compile, flash attention"
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
