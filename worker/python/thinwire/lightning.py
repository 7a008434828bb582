"""Lightning's Trainer as a node of a run.

    from thinwire.lightning import NodeCallback

    lightning.Trainer(max_epochs=-1, callbacks=[
        NodeCallback(create="tuned", tokens=20_000_000, step_tokens=4096,
                     on_node=lambda node: print(node.invite()))]).fit(module, loader)

Elsewhere join="tw1..." takes the place of `create`. For a LightningModule with one optimizer, whose
training_step returns the loss.
"""
from __future__ import annotations

from typing import Any, Callable, Optional

import lightning

from . import torch as thinwire_torch


class NodeCallback(lightning.Callback):
    """Makes the module that trains a node, and steps with its optimizer.

    on_node  called with the thinwire.torch.Node when training begins
    options  create="NAME" and arguments of thinwire.torch.create, join="tw1..." and those of
             thinwire.torch.join, or else those of thinwire.torch.attach
    """

    def __init__(self, *, on_node: Optional[Callable[[thinwire_torch.Node], None]] = None,
                 **options: Any) -> None:
        self.node: Optional[thinwire_torch.Node] = None
        self._options = options
        self._on_node = on_node
        self._steps = 0

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
                       ) -> None:
        """Begins."""
        self._steps = trainer.global_step
        self.node = thinwire_torch.begin(pl_module, trainer.optimizers[0], self._options)
        if self._on_node is not None:
            self._on_node(self.node)
        trainer.should_stop = not self.node.goes_on

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule,
                           outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step boundary, unless gradients still accumulate."""
        if self.node is None or not self.node.goes_on or trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        if not self.node.step(outputs["loss"]):
            trainer.should_stop = True

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
                     ) -> None:
        """Ends."""
        if self.node is not None:
            self.node.close()

    def on_exception(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule,
                     exception: BaseException) -> None:
        """Detaches without the other ranks of an island."""
        if self.node is not None:
            self.node.abandon()
