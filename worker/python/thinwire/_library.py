"""The C library libthinwire, as thinwire/worker.h declares it."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
from pathlib import Path

API = 1  # THINWIRE_WORKER_API: the soname's number

OK, WAIT, FINISHED = 0, 1, 2
INVALID, DENIED, DATA, TRAINER, FAILED = -1, -2, -3, -4, -5
PARAMETERS, MOMENT1, MOMENT2 = 0, 1, 2


class Error(ctypes.Structure):
    """struct thinwire_error"""
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 500)]


class Config(ctypes.Structure):
    """struct thinwire_config"""
    _fields_ = [("socket", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("is_talkative", ctypes.c_bool)]


class Tensor(ctypes.Structure):
    """struct thinwire_tensor"""
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_uint64),
                ("rank", ctypes.c_uint32), ("shape", ctypes.c_uint64 * 4)]


class Run(ctypes.Structure):
    """struct thinwire_run"""
    _fields_ = [("name", ctypes.c_char_p), ("id", ctypes.c_char * 65),
                ("tensors", ctypes.POINTER(Tensor)), ("tensors_count", ctypes.c_uint32),
                ("parameters", ctypes.c_uint64), ("batch", ctypes.c_uint64),
                ("context", ctypes.c_uint64), ("tokens_per_step", ctypes.c_uint64),
                ("tokens", ctypes.c_uint64), ("data_path", ctypes.c_char_p),
                ("data_seed", ctypes.c_uint64), ("heldout_windows", ctypes.c_uint64),
                ("threads", ctypes.c_uint32)]


MOVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32,
                        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
HELDOUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_double))


class Trainer(ctypes.Structure):
    """struct thinwire_trainer"""
    _fields_ = [("self", ctypes.c_void_p), ("read", MOVE), ("write", MOVE), ("heldout", HELDOUT),
                ("has_moments", ctypes.c_bool), ("engine", ctypes.c_char_p),
                ("flops_per_token", ctypes.c_uint64), ("peak_flops_per_s", ctypes.c_uint64),
                ("memory_bytes", ctypes.c_uint64)]


class Step(ctypes.Structure):
    """struct thinwire_step"""
    _fields_ = [("loss", ctypes.c_float), ("grad_norm", ctypes.c_float),
                ("is_skipped", ctypes.c_bool)]


class Next(ctypes.Structure):
    """struct thinwire_next"""
    _fields_ = [("step", ctypes.c_uint64), ("tokens", ctypes.c_uint64), ("lr", ctypes.c_float),
                ("lr_share", ctypes.c_float), ("updates", ctypes.c_uint64),
                ("is_restored", ctypes.c_bool)]


def _candidates() -> list[str]:
    """Where the library may be: $THINWIRE_LIBRARY, beside this file (a wheel), the system's."""
    name = f"libthinwire.so.{API}"
    named = os.environ.get("THINWIRE_LIBRARY")
    if named:
        return [named]
    return [str(Path(__file__).parent / name), name]


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    worker, error = ctypes.c_void_p, ctypes.POINTER(Error)
    tokens = ctypes.c_void_p
    library.thinwire_worker_open.argtypes = [ctypes.POINTER(worker), ctypes.POINTER(Config),
                                             ctypes.c_int, error]
    library.thinwire_worker_run.argtypes = [worker]
    library.thinwire_worker_run.restype = ctypes.POINTER(Run)
    library.thinwire_worker_setting.argtypes = [worker, ctypes.c_char_p]
    library.thinwire_worker_setting.restype = ctypes.c_char_p
    library.thinwire_worker_start.argtypes = [worker, ctypes.POINTER(Trainer), error]
    library.thinwire_worker_step.argtypes = [worker, ctypes.POINTER(Step), ctypes.c_int,
                                             ctypes.POINTER(Next), error]
    library.thinwire_worker_sample.argtypes = [worker, ctypes.c_char_p, ctypes.c_char_p, error]
    library.thinwire_worker_close.argtypes = [worker]
    library.thinwire_worker_close.restype = None
    library.thinwire_worker_draw.argtypes = [worker, tokens, error]
    library.thinwire_worker_heldout.argtypes = [worker, ctypes.c_uint64, ctypes.c_uint64, tokens,
                                                error]
    library.thinwire_worker_heldout_count.argtypes = [worker, error]
    library.thinwire_worker_heldout_count.restype = ctypes.c_uint64
    return library


def load() -> ctypes.CDLL:
    """Loads the library. ImportError, with the places that were tried."""
    tried = []
    for candidate in _candidates():
        try:
            return _declare(ctypes.CDLL(candidate))
        except OSError as reason:
            tried.append(str(reason))
    raise ImportError("libthinwire was not found: install the package libthinwire, or name the "
                      "file in THINWIRE_LIBRARY (" + "; ".join(tried) + ")")
