#!/usr/bin/env python3
# train_island.py - several GPUs or hosts of one site as the worker of one node.
"""Trains a GPT on the ranks of torchrun, which together are the worker of a Thinwire node.

Give the node `spawn_worker = off` in its configuration, start it, and run this beside it:

    torchrun --nproc-per-node 2 train_island.py --socket RUN_DIR/worker.sock

Each rank trains on its share of the batch. Rank 0, on the host of the daemon, speaks to it. When a
rank dies, torchrun ends all of them. Start it again, as `[worker] command` of the daemon's
configuration does: the ranks go on from the node's snapshot.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

import thinwire.torch
from train_gpt import GPT


def spread(model: nn.Module, way: str) -> nn.Module:
    """Shards the parameters over the ranks, or replicates them."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu",
                            (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    """Trains until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--way", choices=("fsdp", "ddp"), default="fsdp")
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    rank, ranks = dist.get_rank(), dist.get_world_size()

    worker = thinwire.torch.open(args.socket)
    vocab, context, width, layers, heads = (
        int(worker.setting("model." + key)) for key in ("vocab", "context", "width", "layers",
                                                        "heads"))
    model = spread(GPT(vocab, context, width, layers, heads).to(device), args.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))

    def heldout(node: thinwire.torch.Node) -> torch.Tensor:
        with torch.no_grad():
            return model(node.heldout_windows()[rank::ranks].to(device))

    with thinwire.torch.attach(model, optimizer, worker=worker, heldout=heldout) as node:
        for tokens in node.batches():
            loss = model(tokens[rank::ranks].to(device))
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            node.step(loss, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
