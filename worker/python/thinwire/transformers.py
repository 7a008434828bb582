"""Trainers of Hugging Face as nodes of a run: transformers' Trainer, TRL, peft.

    from thinwire.transformers import NodeCallback

    trainer.add_callback(NodeCallback(trainer, create="tuned", tokens=20_000_000, step_tokens=4096,
                                      on_node=lambda node: print(node.invite())))
    trainer.train()

Elsewhere join="tw1..." takes the place of `create`. The trainer stays as it was: model, data,
optimizer, devices, logging. The run's end ends the training, so give max_steps or num_train_epochs
that are larger.
"""
from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from . import torch as thinwire_torch


class NodeCallback(TrainerCallback):
    """Makes a trainer a node when training begins, and steps with its optimizer.

    trainer  whose callback this is. Its eval_dataset, if it has one, gives the held-out loss: the
             whole of it each time, so keep it small
    on_node  called with the thinwire.torch.Node when training begins
    options  create="NAME" and arguments of thinwire.torch.create, join="tw1..." and those of
             thinwire.torch.join, or else those of thinwire.torch.attach

    The model's parameters have the names and shapes of the run; adapters of peft have those of
    adapter_model.safetensors. `node` is the thinwire.torch.Node; its `next` holds step, tokens and
    rate, for callbacks that log.
    """

    def __init__(self, trainer: Trainer, *,
                 on_node: Optional[Callable[[thinwire_torch.Node], None]] = None,
                 **options: Any) -> None:
        self.node: Optional[thinwire_torch.Node] = None
        self._trainer = trainer
        self._options = options
        self._on_node = on_node
        self._loss: Any = 0.0  # of the step so far
        self._watch()

    def _watch(self) -> None:
        """Sums the losses of a step's micro-batches, which no callback is given."""
        training_step = self._trainer.training_step

        def watched(*args: Any, **kwargs: Any) -> torch.Tensor:
            loss = training_step(*args, **kwargs)
            self._loss = self._loss + loss.detach()
            return loss

        self._trainer.training_step = watched  # type: ignore[method-assign]

    def _heldout(self, _node: thinwire_torch.Node) -> float:
        trainer = self._trainer
        output = trainer.evaluation_loop(trainer.get_eval_dataloader(), "held-out loss",
                                         prediction_loss_only=True, metric_key_prefix="heldout")
        return output.metrics["heldout_loss"]

    def on_train_begin(self, args: TrainingArguments, state: TrainerState,
                       control: TrainerControl, **kwargs: Any) -> None:
        """Begins."""
        has_data = self._trainer.eval_dataset is not None
        self._loss = 0.0
        self.node = thinwire_torch.begin(kwargs["model"], kwargs["optimizer"],
                                         {"heldout": self._heldout if has_data else None,
                                          **self._options})
        if self._on_node is not None:
            self._on_node(self.node)
        control.should_training_stop = not self.node.goes_on

    def on_step_end(self, args: TrainingArguments, state: TrainerState,
                    control: TrainerControl, **kwargs: Any) -> None:
        """A step boundary. Ends the training when the run is over."""
        loss, self._loss = self._loss, 0.0
        if self.node is not None and self.node.goes_on:
            self.node.step(loss)
        if self.node is None or not self.node.goes_on:
            control.should_training_stop = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState,
                     control: TrainerControl, **kwargs: Any) -> None:
        """Ends."""
        if self.node is not None:
            self.node.close()
