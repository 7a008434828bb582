"""LoRA adapters of peft in a run: the factor that begins at random is the same on all nodes.

A layer's adapter adds (alpha / r) B A to its weight. Means of A and of B over the nodes do not give
the mean of the products B A. Where all nodes keep the same A, the mean of B does, exactly:
mean(B) A = mean(B A). Hence A is frozen, and B alone is trained and merged, in half the bytes.

A follows from the run's name: each node makes the same, on any machine, and sends none.
"""
from __future__ import annotations

import hashlib
import math
from typing import Callable, Iterator, NamedTuple

import torch

# The factor that peft begins at random, and the one that it begins at zero.
FACTORS = (("lora_A", "lora_B"), ("lora_embedding_B", "lora_embedding_A"))
STEPS = 1 << 24  # numbers that a drawn one can be: float32 holds each of them


class Pair(NamedTuple):
    """The factors of one adapter."""
    name: str  # of the random one, in the model
    random: torch.nn.Parameter
    zero: torch.nn.Parameter


def pairs(model: torch.nn.Module) -> Iterator[Pair]:
    """The adapters whose second factor is trained."""
    named = dict(model.named_parameters())
    for name, zero in named.items():
        for first, second in FACTORS:
            other = name.replace(f".{second}.", f".{first}.")
            if other != name and other in named and zero.requires_grad:
                yield Pair(other, named[other], zero)


def is_adapted(model: torch.nn.Module) -> bool:
    """Whether a model has adapters that are trained."""
    return next(pairs(model), None) is not None


def _draw(seed: str, shape: torch.Size) -> torch.Tensor:
    """Uniform numbers as peft draws them, within 1 / sqrt(columns). They are the bytes of
    SHAKE-256, because generators of PyTorch differ between its versions and devices."""
    count = math.prod(shape)
    raw = bytearray(hashlib.shake_256(seed.encode()).digest(4 * count))
    whole = torch.frombuffer(raw, dtype=torch.int32).double()  # in -2^31 .. 2^31 - 1
    steps = torch.floor(whole / (2**32 // STEPS)) + 0.5
    return (steps / (STEPS / 2) / math.sqrt(shape[-1])).reshape(shape)


@torch.no_grad()
def fix(model: torch.nn.Module, run: str, plain: Callable[[str], str]) -> None:
    """Freezes the random factor of each adapter, and makes it that of the run. `plain`: the name of
    a parameter without the wrappers of its model.

    An adapter that was trained before (its other factor is not zero) keeps both factors, and so
    does one whose random factor the script has frozen itself: all nodes must then load the same.
    """
    for name, random, zero in pairs(model):
        if not random.requires_grad:
            continue
        random.requires_grad_(False)
        if not zero.any():
            random.copy_(_draw(f"{run}/{plain(name)}", random.shape))


def statistics(model: torch.nn.Module) -> set[int]:
    """Identities of the buffers that training changes: running statistics. Other buffers belong to
    the base model, such as the scales of quantized weights."""
    return {id(buffer) for module in model.modules()
            if getattr(module, "track_running_stats", False)
            for buffer in module.buffers(recurse=False)}
