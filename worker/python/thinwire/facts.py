"""The facts of a model in which the nodes of a run must not differ, though no merge compares them.

`create` puts them into the manifest's model.base, in place of a SHA-256, as 32 bytes:

    4  MARK
    2  each: digests of the names and shapes of frozen parameters, of their types, of the names that
       share a parameter, of the types of trained parameters; two are zero
    8  each: S0 = sum of h(i), S1 = sum of (i + 1) h(i), modulo P = 2^61 - 1, over the frozen
       parameters in the order of their names; h(i) is a hash of the numbers of the i-th

If one frozen parameter differs, the differences of the sums name it: (i + 1) = dS1 / dS0. If more
differ, that quotient is hardly ever an index.
"""
from __future__ import annotations

import ctypes
import hashlib
from typing import Iterable, NamedTuple, Optional, Sequence

import torch

MARK = b"tw\x01F"
P = 2**61 - 1
PIECE = 1 << 26  # bytes that are hashed at a time

Named = Sequence[tuple[str, torch.Tensor]]


def _digest(lines: Iterable[str]) -> bytes:
    return hashlib.sha256("\n".join(lines).encode()).digest()[:2]


def _hash(tensor: torch.Tensor) -> int:
    """Hash of a tensor's numbers, below P."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    flat = whole.detach().cpu().contiguous()
    size = flat.numel() * flat.element_size()
    state = hashlib.blake2b(digest_size=8)
    for at in range(0, size, PIECE):
        count = min(PIECE, size - at)
        state.update((ctypes.c_char * count).from_address(flat.data_ptr() + at))
    return int.from_bytes(state.digest(), "little") % P


class Facts(NamedTuple):
    """The facts of one model."""
    shapes: bytes
    frozen_types: bytes
    ties: bytes
    types: bytes
    sum0: int
    sum1: int

    def base(self) -> str:
        """The value of model.base."""
        parts = (MARK, self.shapes, self.frozen_types, self.ties, self.types, bytes(4),
                 self.sum0.to_bytes(8, "little"), self.sum1.to_bytes(8, "little"))
        return b"".join(parts).hex()


def of(trained: Named, frozen: Named, ties: Sequence[Sequence[str]]) -> Facts:
    """The facts of a model with these parameters; `ties` lists names that share a parameter."""
    frozen = sorted(frozen, key=lambda pair: pair[0])
    hashes = [_hash(tensor) for _, tensor in frozen]
    return Facts(
        _digest(f"{name} {tuple(tensor.shape)}" for name, tensor in frozen),
        _digest(f"{name} {tensor.dtype}" for name, tensor in frozen),
        _digest(sorted(" ".join(sorted(names)) for names in ties)),
        _digest(sorted(f"{name} {tensor.dtype}" for name, tensor in trained)),
        sum(hashes) % P, sum((i + 1) * h for i, h in enumerate(hashes)) % P)


def read(base: Optional[str]) -> Optional[Facts]:
    """The facts in a manifest's model.base; None: it holds none."""
    try:
        raw = bytes.fromhex(base or "")
    except ValueError:
        return None
    if len(raw) != 32 or not raw.startswith(MARK):
        return None
    return Facts(raw[4:6], raw[6:8], raw[8:10], raw[10:12], int.from_bytes(raw[16:24], "little"),
                 int.from_bytes(raw[24:32], "little"))


def differences(mine: Facts, run: Facts, frozen: Sequence[str], ties: Sequence[Sequence[str]]
                ) -> list[str]:
    """Sentences about the facts that differ and make a wrong model. `frozen`: their names here."""
    faults = []
    names = sorted(frozen)
    if mine.ties != run.ties:
        here = "; ".join(" = ".join(names) for names in ties) or "none"
        faults.append(f"other names share a parameter (here {here})")
    if mine.shapes != run.shapes:
        faults.append(f"other parameters are frozen, or with other shapes (here {len(names)}" +
                      (f", such as {names[0]})" if names else ")"))
    elif mine.frozen_types != run.frozen_types:
        faults.append("frozen parameters have other types")
    elif (mine.sum0, mine.sum1) != (run.sum0, run.sum1):
        index = (run.sum1 - mine.sum1) * pow(run.sum0 - mine.sum0, P - 2, P) % P - 1
        faults.append(f"frozen parameter {names[index]} has other numbers" if index < len(names)
                      else f"several of the {len(names)} frozen parameters have other numbers")
    return faults
