#!/usr/bin/env python3
# train_gpt.py - a PyTorch model as the worker of a node.
"""Trains a small GPT with PyTorch as the worker of a Thinwire node.

Give the node `spawn_worker = off` in its configuration, start it, and run this beside it:

    python3 train_gpt.py --socket /run/thinwire/worker.sock

The model's shape comes from the run (family gpt2), and so do the data. Other nodes of the run may
train with this script, with thinwire-worker, or with a trainer of their own.
"""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

import thinwire.torch


class Linear(nn.Module):
    """x W + b with W of shape (in, out), as GPT-2 stores it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.t(), self.bias)


class Block(nn.Module):
    """One layer: attention and a feed-forward part, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Linear(width, 3 * width),
                                   "c_proj": Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Linear(width, 4 * width),
                                  "c_proj": Linear(4 * width, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2)
                   for part in self.attn["c_attn"](self.ln_1(x)).split(width, dim=2))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        past = torch.ones(context, context, dtype=torch.bool, device=x.device).tril()
        mixed = scores.masked_fill(~past, float("-inf")).softmax(3) @ v
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(batch, context, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with the names of Hugging Face's GPT2Model. The head is the token embedding."""

    def __init__(self, vocab: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean nats per token of (sequences, context + 1) tokens."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.wte(inputs) + self.wpe.weight[:inputs.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> None:
    """Trains until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--save", metavar="FILE", help="write the merged model at the end")
    args = parser.parse_args()

    worker = thinwire.torch.open(args.socket)
    vocab, context, width, layers, heads = (
        int(worker.setting("model." + key)) for key in ("vocab", "context", "width", "layers",
                                                        "heads"))
    model = GPT(vocab, context, width, layers, heads).to(args.device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95))

    def heldout(node: thinwire.torch.Node) -> torch.Tensor:
        with torch.no_grad():
            return model(node.heldout_windows().to(args.device))

    with thinwire.torch.attach(model, optimizer, worker=worker, heldout=heldout,
                               lr="run") as node:
        for tokens in node.batches():
            loss = model(tokens.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            node.step(loss, norm)
    if args.save:
        torch.save(model.state_dict(), args.save)


if __name__ == "__main__":
    main()
