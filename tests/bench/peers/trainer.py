#!/usr/bin/env python3
# trainer.py - one node of a comparison: a small model, merged by one of four systems.
"""Trains one node, and appends a line of JSON to the log after each step. peers.py starts it.

    trainer.py SYSTEM --rank I --world N --folder FOLDER --text FILE [--period H] [--step-s S]
               [--steps N] [--measured]

SYSTEM is thinwire, torchft, hivemind or ddp. Node I has the address 10.78.0.(I + 1). A step first
waits until --step-s have passed since its begin, which stand for the arithmetic of a larger model,
so that the load of the machine does not decide the times. With --measured, node 0 logs the held-out
loss of the mean of all nodes' models every ten steps, once all have written them. The rate is
constant after a warm-up, so that no system needs to know the length of the run.
"""
import argparse
import json
import os
import pathlib
import sys
import time
from datetime import timedelta

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/examples"))
sys.path.insert(0, str(ROOT / "worker/python"))

from train_gpt import GPT  # pylint: disable=wrong-import-position
from star import address  # pylint: disable=wrong-import-position

VOCAB, CONTEXT, WIDTH, LAYERS, HEADS, BATCH = 256, 64, 128, 4, 4, 4
RATE, WARMUP_STEPS, HELDOUT_SHARE, HELDOUT_WINDOWS = 0.003, 20, 0.05, 64
# Outer constants of DiLoCo's Nesterov momentum, as sync.preset = diloco takes them for 40 merges.
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.675
PORT = 4747
SHOWN = 10  # steps between two evaluations


def make_model():
    """The same weights in every process."""
    torch.manual_seed(1)
    model = GPT(VOCAB, CONTEXT, WIDTH, LAYERS, HEADS)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)
    return model


def make_optimizer(parameters):
    """The inner optimizer of all systems."""
    return torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)


def hand_over(path, text):
    """Writes a file that other nodes wait for."""
    path.with_suffix(".new").write_text(text, encoding="ascii")
    path.with_suffix(".new").rename(path)


def wait_for(path):
    """The text of a file that another node hands over."""
    while not path.exists():
        time.sleep(0.1)
    return path.read_text(encoding="ascii")


# ---- systems ------------------------------------------------------------------------------------

class Ddp:
    """DistributedDataParallel over gloo: gradients are averaged at every step."""

    def __init__(self, args, model):
        torch.distributed.init_process_group(
            "gloo", init_method=f"tcp://{address(0)}:{PORT}", rank=args.rank,
            world_size=args.world)
        self.module = nn.parallel.DistributedDataParallel(model)
        self.optimizer = make_optimizer(model.parameters())
        self.merges = 0

    def step(self, _loss):
        """Ends a step."""
        self.optimizer.step()
        self.merges += 1


class Torchft:
    """DiLoCo of torchft over gloo. Node 0 runs the lighthouse, its coordinator, as a process."""

    def __init__(self, args, model):
        from torchft.local_sgd import DiLoCo
        from torchft.manager import Manager
        from torchft.process_group import ProcessGroupGloo
        seconds = timedelta(seconds=30)
        store = torch.distributed.TCPStore(address(args.rank), 0, is_master=True,
                                           wait_for_workers=False)
        self.module, self.store = model, store
        self.optimizer = make_optimizer(model.parameters())
        outer = torch.optim.SGD(model.parameters(), lr=OUTER_RATE, momentum=OUTER_MOMENTUM,
                                nesterov=True)
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=seconds), min_replica_size=1, use_async_quorum=False,
            init_sync=False,
            load_state_dict=lambda state: (model.load_state_dict(state["model"]),
                                           self.optimizer.load_state_dict(state["inner"])),
            state_dict=lambda: {"model": model.state_dict(),
                                "inner": self.optimizer.state_dict()},
            replica_id=f"node{args.rank}_", store_addr=address(args.rank), store_port=store.port,
            rank=0, world_size=1, lighthouse_addr=f"http://{address(0)}:{PORT}",
            hostname=address(args.rank), timeout=seconds, quorum_timeout=seconds,
            connect_timeout=seconds)
        DiLoCo(self.manager, [model], self.optimizer, outer, args.period,
               use_bucketization=True).__enter__()

    @property
    def merges(self):
        """Merges that were committed."""
        return self.manager.current_step()

    def step(self, _loss):
        """Ends a step."""
        self.optimizer.step()


class Hivemind:
    """hivemind.Optimizer with local updates: parameters are averaged in float16 every period."""

    def __init__(self, args, model):
        import hivemind
        from hivemind.compression import Float16Compression
        first = args.folder / "first"
        self.dht = hivemind.DHT(
            initial_peers=wait_for(first).split() if args.rank > 0 else None, start=True,
            host_maddrs=[f"/ip4/{address(args.rank)}/tcp/{PORT}"])
        if args.rank == 0:
            hand_over(first, " ".join(str(at) for at in self.dht.get_visible_maddrs()))
        half = Float16Compression()
        self.module = model
        self.optimizer = hivemind.Optimizer(
            dht=self.dht, run_id="peers", batch_size_per_step=BATCH,
            target_batch_size=args.world * BATCH * args.period,
            params=list(model.parameters()), optimizer=make_optimizer, use_local_updates=True,
            matchmaking_time=3.0, averaging_timeout=30.0, state_averaging_compression=half,
            load_state_compression=half)

    @property
    def merges(self):
        """Periods that have ended."""
        return self.optimizer.local_epoch

    def step(self, _loss):
        """Ends a step."""
        self.optimizer.step()


class Thinwire:
    """A node of thinwire.torch. The first one makes the run."""

    def __init__(self, args, model):
        import thinwire.torch
        self.module = model
        self.optimizer = make_optimizer(model.parameters())
        listen = f"{address(args.rank)}:{PORT}"
        step_tokens = BATCH * CONTEXT
        self.rounds = 0
        if args.rank == 0:
            self.node = thinwire.torch.create(
                "peers", model, self.optimizer, tokens=args.steps * args.world * step_tokens,
                step_tokens=step_tokens, nodes=args.world, listen=listen,
                settings={"sync.period": args.period, **dict(args.set)},
                progress=False)
            for rank in range(1, args.world + 1):
                if not (args.folder / f"ticket{rank}").exists():
                    hand_over(args.folder / f"ticket{rank}", self.node.invite())
        else:
            self.node = thinwire.torch.join(wait_for(args.folder / f"ticket{args.rank}"), model,
                                            self.optimizer, listen=listen, progress=False)

    @property
    def merges(self):
        """Committed rounds, each of one fragment."""
        status = self.node.home.status()
        self.rounds = status["sync"]["rounds_committed"] if status else self.rounds
        return self.rounds

    def step(self, loss):
        """Ends a step."""
        self.optimizer.step()
        self.node.step(loss)


SYSTEMS = {"ddp": Ddp, "torchft": Torchft, "hivemind": Hivemind, "thinwire": Thinwire}


# ---- training -----------------------------------------------------------------------------------

class Text:
    """Windows of a text in bytes; its last part is held out."""

    def __init__(self, path, seed):
        self.bytes = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        self.draw = torch.Generator().manual_seed(seed)
        self.end = int(len(self.bytes) * (1 - HELDOUT_SHARE))

    def windows(self, begin):
        """The windows that begin there."""
        return torch.stack([self.bytes[at:at + CONTEXT + 1] for at in begin.tolist()]).long()

    def batch(self):
        """The next batch."""
        return self.windows(torch.randint(0, self.end - CONTEXT - 1, (BATCH,), generator=self.draw))

    def heldout(self):
        """Windows that are never trained on."""
        return self.windows(torch.linspace(self.end, len(self.bytes) - CONTEXT - 1,
                                           HELDOUT_WINDOWS).long())


class Mean:
    """The loss of the mean of the nodes' models, of which each node writes its own."""

    def __init__(self, args, model, heldout):
        self.args, self.model, self.heldout = args, model, heldout
        self.copy, self.pending = make_model(), []

    def path(self, rank, step):
        """The file of a node's model after a step."""
        return self.args.folder / f"model{rank}.{step}"

    def write(self, step):
        """Writes this node's model."""
        path = self.path(self.args.rank, step)
        vector = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        torch.save(vector, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)
        self.pending.append(step)

    def read(self):
        """The first step whose loss was not read before, and the loss; none while a model lacks."""
        paths = [self.path(rank, self.pending[0]) for rank in range(self.args.world)]
        if not all(path.exists() for path in paths):
            return {}
        mean = sum(torch.load(path) for path in paths) / len(paths)
        for path in paths:
            path.unlink()
        with torch.no_grad():
            nn.utils.vector_to_parameters(mean, self.copy.parameters())
            return {"mean_step": self.pending.pop(0), "mean": float(self.copy(self.heldout))}


def train(args, log):
    """Trains until the last step."""
    torch.set_num_threads(1)
    model, text = make_model(), Text(args.text, 1000 + args.rank)
    mean = Mean(args, model, text.heldout())
    system = SYSTEMS[args.system](args, model)
    if args.rank < args.world:  # all begin together; a node that joins later waits for nobody
        hand_over(args.folder / f"ready{args.rank}", "")
        for rank in range(args.world):
            wait_for(args.folder / f"ready{rank}")
    for step in range(args.steps):
        begin_s = time.monotonic()
        loss = system.module(text.batch())
        time.sleep(max(0.0, begin_s + args.step_s - time.monotonic()))
        for group in system.optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARMUP_STEPS)
        system.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        system.step(loss)
        line = {"t": time.monotonic(), "step": step + 1, "merges": system.merges}
        if args.is_measured and (step + 1) % SHOWN == 0:
            mean.write(step + 1)
            line.update(mean.read() if args.rank == 0 else {})
        log.write(json.dumps(line) + "\n")


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("system", choices=sorted(SYSTEMS))
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--period", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--measured", dest="is_measured", action="store_true")
    parser.add_argument("--set", type=lambda pair: pair.split("=", 1), action="append", default=[])
    args = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = str(args.folder / f"state{args.rank}")
    with open(args.folder / f"node{args.rank}.jsonl", "a", buffering=1, encoding="ascii") as log:
        train(args, log)


if __name__ == "__main__":
    main()
