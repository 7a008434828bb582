#!/usr/bin/env python3
# train_accelerate.py - a script with Hugging Face's Accelerate as the worker of a node.
"""Trains a GPT on a text of your own with Accelerate as the worker of a Thinwire node.

Give the node `spawn_worker = off` in its configuration, start it, and run this beside it:

    accelerate launch train_accelerate.py --text FILE --socket RUN_DIR/worker.sock

With `--num_processes 8` the processes are one worker, an island. The lines that a script for one
machine lacks are marked.
"""
import argparse
import pathlib

import torch
from accelerate import Accelerator

import thinwire.torch  # Thinwire
from train_gpt import GPT


def windows(path: str, context: int) -> torch.Tensor:
    """Cuts the bytes of a text into windows: (windows, context + 1)."""
    text = torch.tensor(list(pathlib.Path(path).read_bytes()))
    return text[:len(text) // (context + 1) * (context + 1)].view(-1, context + 1)


def main() -> None:
    """Trains until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--save", metavar="FILE", help="write the merged model at the end")
    args = parser.parse_args()

    accelerator = Accelerator()
    worker = thinwire.torch.open(args.socket)  # Thinwire
    vocab, context, width, layers, heads = (
        int(worker.setting("model." + key)) for key in ("vocab", "context", "width", "layers",
                                                        "heads"))
    data = windows(args.text, context)
    loader = torch.utils.data.DataLoader(data, shuffle=True, drop_last=True,
                                         batch_size=worker.run.batch // accelerator.num_processes)
    model = GPT(vocab, context, width, layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def heldout(node: thinwire.torch.Node) -> torch.Tensor:  # of the run's data
        with torch.no_grad():
            return model(node.heldout_windows().to(accelerator.device))

    # Thinwire: attach, step, and the held-out loss above
    with thinwire.torch.attach(model, optimizer, worker=worker, heldout=heldout,
                               lr="run") as node:
        while node.goes_on:
            for tokens in loader:
                loss = model(tokens)
                optimizer.zero_grad()
                accelerator.backward(loss)
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                if not node.step(loss, norm):
                    break
    if args.save and accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), args.save)
    accelerator.end_training()


if __name__ == "__main__":
    main()
