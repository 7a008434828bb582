#!/usr/bin/env python3
# train_lightning.py - Lightning's Trainer as the worker of a node.
"""Trains a GPT on a text of your own with Lightning as the worker of a Thinwire node.

Give the node `spawn_worker = off` in its configuration, start it, and run this beside it:

    python3 train_lightning.py --text FILE --socket RUN_DIR/worker.sock
"""
import argparse

import lightning
import torch

import thinwire.torch
from thinwire.lightning import NodeCallback
from train_accelerate import windows
from train_gpt import GPT


class Module(lightning.LightningModule):
    """A GPT with its optimizer."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.gpt = GPT(*shape)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.gpt(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, betas=(0.9, 0.95))


def main() -> None:
    """Trains until the run is over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--accelerator", default="auto", help="cpu, gpu or auto")
    parser.add_argument("--save", metavar="FILE", help="write the merged model at the end")
    args = parser.parse_args()

    worker = thinwire.torch.open(args.socket)
    vocab, context, width, layers, heads = (
        int(worker.setting("model." + key)) for key in ("vocab", "context", "width", "layers",
                                                        "heads"))
    data = windows(args.text, context)
    loader = torch.utils.data.DataLoader(data, batch_size=worker.run.batch, shuffle=True,
                                         drop_last=True)
    module = Module(vocab, context, width, layers, heads)

    def heldout(node: thinwire.torch.Node) -> torch.Tensor:  # of the run's data
        with torch.no_grad():
            return module.gpt(node.heldout_windows().to(module.device))

    trainer = lightning.Trainer(accelerator=args.accelerator, devices=1, max_epochs=-1,
                                gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[NodeCallback(worker=worker, heldout=heldout,
                                                        lr="run")])
    trainer.fit(module, loader)
    if args.save:
        torch.save(module.gpt.state_dict(), args.save)


if __name__ == "__main__":
    main()
