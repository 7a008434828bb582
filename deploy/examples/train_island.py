#!/usr/bin/env python3
# train_island.py - several GPUs or hosts of one site as the worker of one node.
"""Trains a GPT on the ranks of torchrun, which together are the worker of a Thinwire node.

Give the node `spawn_worker = off` in its configuration, start it, and run this beside it:

    torchrun --nproc-per-node 2 train_island.py --socket RUN_DIR/worker.sock

`--way` chooses how the ranks share the model: fsdp shards it over all of them, hsdp over pairs
whose copies are equal (2-D mesh), tp cuts the feed-forward parts over pairs (tensor parallelism)
and shards the rest over the pairs, and ddp replicates it.

Each rank, with tp each pair, trains on its share of the batch. Rank 0, on the host of the daemon,
speaks to it. When a rank dies, torchrun ends all of them. Start it again, as `[worker] command` of
the daemon's configuration does: the ranks go on from the node's snapshot.
"""
import argparse
import os
from typing import Callable

import torch
import torch.distributed as dist
from torch import nn

import thinwire.torch
from train_gpt import GPT

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import (DTensor, Replicate, Shard, distribute_module,
                                          distribute_tensor)
except ImportError:  # an older PyTorch: --way ddp alone
    pass


def cut(block: nn.Module, mesh: "DeviceMesh") -> None:
    """Tensor parallelism: c_fc is cut by columns, c_proj by rows; between them lies a part each."""
    def of(*places: "Placement") -> Callable[..., None]:
        def partition(_: str, module: nn.Module, mesh: "DeviceMesh") -> None:
            for (name, parameter), place in zip(list(module.named_parameters()), places):
                setattr(module, name, nn.Parameter(distribute_tensor(parameter, mesh, [place])))
        return partition

    def takes(place: "Placement") -> Callable[..., "DTensor"]:
        return lambda _, inputs, mesh: DTensor.from_local(inputs[0], mesh, [place])

    def gives(place: "Placement") -> Callable[..., torch.Tensor]:
        return lambda _, output, mesh: output.redistribute(mesh, [place]).to_local()

    distribute_module(block.mlp["c_fc"], mesh, of(Shard(1), Shard(0)), takes(Replicate()),
                      gives(Shard(2)))
    distribute_module(block.mlp["c_proj"], mesh, of(Shard(0), Replicate()), takes(Shard(2)),
                      gives(Replicate()))


def spread(model: nn.Module, way: str) -> tuple[nn.Module, int, int]:
    """Spreads the model over the ranks. Returns it, the share of the batch, and their number."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model), rank, ranks
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if way == "fsdp":
        mesh = init_device_mesh(kind, (ranks,))
    else:
        mesh = init_device_mesh(kind, (ranks // 2, 2), mesh_dim_names=("outer", "inner"))
    if way == "tp":
        for block in model.h:
            cut(block, mesh["inner"])
        mesh, rank, ranks = mesh["outer"], rank // 2, ranks // 2
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh), rank, ranks


def clip(model: nn.Module, most: float) -> torch.Tensor:
    """clip_grad_norm_, where parameters lie on several meshes."""
    norms = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).norm()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_((most / norm).clamp(max=1.0).item())
    return norm


def main() -> None:
    """Trains until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--way", choices=("fsdp", "hsdp", "tp", "ddp"), default="fsdp")
    args = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    worker = thinwire.torch.open(args.socket)
    vocab, context, width, layers, heads = (
        int(worker.setting("model." + key)) for key in ("vocab", "context", "width", "layers",
                                                        "heads"))
    model, share, shares = spread(GPT(vocab, context, width, layers, heads).to(device), args.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95),
                                  foreach=args.way != "tp")

    def heldout(node: thinwire.torch.Node) -> torch.Tensor:
        with torch.no_grad():
            return model(node.heldout_windows()[share::shares].to(device))

    with thinwire.torch.attach(model, optimizer, worker=worker, heldout=heldout,
                               lr="run") as node:
        for tokens in node.batches():
            loss = model(tokens[share::shares].to(device))
            optimizer.zero_grad()
            loss.backward()
            norm = clip(model, 1.0)
            optimizer.step()
            node.step(loss, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
