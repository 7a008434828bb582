"""Trains one model on many unequal machines that ordinary internet links join.

This package makes a trainer in Python the worker of a Thinwire node. With PyTorch:

    import thinwire.torch
    node = thinwire.torch.attach(model, optimizer)
    while node.goes_on:
        ...                 # one step of yours
        node.step(loss)
"""
from .worker import Next, Run, Tensor, ThinwireError, Trainer, Worker

__all__ = ["Next", "Run", "Tensor", "ThinwireError", "Trainer", "Worker"]
__version__ = "0.1.0"
