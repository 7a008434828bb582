"""A worker of a Thinwire node, for trainers in Python. Needs nothing but the C library.

thinwire.torch is the same for PyTorch modules, and is the one to begin with.
"""
from __future__ import annotations

import ctypes
import logging
import math
import os
import time
from typing import Callable, NamedTuple, Optional, Protocol, Sequence

from . import _library as c

LOG = logging.getLogger("thinwire")
POLL_MS = 200  # the C library returns this often, so that Ctrl-C works while it waits
RELEASE_S = 10  # time in which a loaded daemon sees that a connection was closed


class ThinwireError(RuntimeError):
    """The daemon refuses, data are missing, or a call was wrong. The message says which."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Tensor(NamedTuple):
    """A tensor of the run's model."""
    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for side in self.shape:
            count *= side
        return count


class Run(NamedTuple):
    """The run that the daemon trains."""
    name: str
    id: str
    tensors: Sequence[Tensor]
    parameters: int
    batch: int             # sequences of a step
    context: int           # tokens of a sequence
    tokens_per_step: int   # batch * context: a step counts as these, on every node
    tokens: int            # budget of the run, over all nodes
    data_path: str         # training data as the daemon has them; "": the trainer's own
    data_seed: int         # seed of this node's order of the data
    heldout_windows: int   # held-out windows that thinwire-worker evaluates
    threads: int           # that the node's configuration allows; 0: no limit


class Next(NamedTuple):
    """The step to take next."""
    step: int              # steps of this node so far
    tokens: int            # tokens of this node so far
    lr: float              # learning rate of the run's schedule
    lr_share: float        # the same as a share of the run's peak rate
    updates: int           # optimizer steps in the moments; 0: they are zero
    is_restored: bool      # parameters were put in place that do not follow from the last step


class Trainer(Protocol):
    """The trainer, as a worker sees it. `address` is that of `count` float32 numbers."""

    has_moments: bool      # whether read and write know arrays 1 and 2, AdamW's moments
    evaluates: bool        # whether heldout() may be called
    engine: str            # for people

    def read(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Copies elements [begin, begin + count) of a tensor to the address."""

    def write(self, array: int, tensor: int, begin: int, count: int, address: int) -> None:
        """Copies elements [begin, begin + count) of a tensor from the address."""

    def heldout(self) -> float:
        """Loss of the present parameters on held-out data, in nats per token."""


def _tensor(tensor: c.Tensor) -> Tensor:
    return Tensor(tensor.name.decode(), tuple(tensor.shape[i] for i in range(tensor.rank)))


class Worker:
    """A worker of the node whose daemon listens at `socket`.

    socket   the daemon's worker socket; None: $THINWIRE_WORKER_SOCKET, else
             /run/thinwire/worker.sock
    device   for people, in `thinwire status`
    timeout  seconds to wait for the daemon; None: without limit
    verbose  log lines on stderr for each change of state

    Raises TimeoutError if no daemon was there in time, and ThinwireError. A context manager; one
    thread at a time may use it.
    """

    def __init__(self, socket: Optional[str] = None, device: str = "Python",
                 timeout: Optional[float] = None, verbose: bool = False) -> None:
        self._c = c.load()
        self._handle = ctypes.c_void_p()
        self._error = c.Error()
        self._keep: list[object] = []  # callbacks that C holds
        self._raised: Optional[BaseException] = None
        self._next = c.Next()
        self._has_step = False
        self.on_wait: Optional[Callable[[], None]] = None  # called often while `step` waits
        config = c.Config(socket.encode() if socket else None, device.encode(), verbose)
        self._open(config, timeout)
        self.run = self._run()

    def _open(self, config: c.Config, timeout: Optional[float]) -> None:
        tries = 0
        released = -math.inf  # time at which a try timed out, and closed its connection
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            # A second at a time: Ctrl-C is seen between calls.
            status = self._c.thinwire_worker_open(ctypes.byref(self._handle), ctypes.byref(config),
                                                  1000, ctypes.byref(self._error))
            now = time.monotonic()
            if status == c.OK:
                return
            if status == c.WAIT:
                released = now
            elif status != c.DENIED or now - released >= RELEASE_S:
                self._fail(status)
            if until is not None and now >= until:
                raise TimeoutError(self._error.message.decode())
            if status == c.DENIED:  # the daemon may take that last try for another worker
                time.sleep(POLL_MS / 1000)
            if tries == 3:
                LOG.warning("waiting for the daemon: %s", self._error.message.decode())
            tries += 1

    @property
    def _attached(self) -> ctypes.c_void_p:
        """The worker in C, which a call after `close` would not find."""
        if not self._handle:
            raise ThinwireError("this worker is closed: attach again to go on", c.INVALID)
        return self._handle

    def _run(self) -> Run:
        run = self._c.thinwire_worker_run(self._attached).contents
        tensors = [_tensor(run.tensors[i]) for i in range(run.tensors_count)]
        return Run(run.name.decode(), run.id.decode(), tensors, run.parameters, run.batch,
                   run.context, run.tokens_per_step, run.tokens, os.fsdecode(run.data_path),
                   run.data_seed, run.heldout_windows, run.threads)

    def _fail(self, status: int) -> None:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        raise ThinwireError(self._error.message.decode(errors="replace"), status)

    def setting(self, key: str) -> Optional[str]:
        """The manifest's value of a key such as "train.lr"; None: no such key."""
        value = self._c.thinwire_worker_setting(self._attached, key.encode())
        return None if value is None else value.decode()

    def _guard(self, call: Callable[[], None]) -> int:
        """Runs a callback. C cannot carry an exception: the call of step raises it again."""
        try:
            call()
            return 0
        except BaseException as raised:  # pylint: disable=broad-except
            self._raised = raised
            return 1

    def start(self, trainer: Trainer) -> None:
        """Says how to reach the trainer. The first `step` puts parameters in place."""
        def heldout(_self: object, loss: "ctypes._Pointer[ctypes.c_double]") -> int:
            def measure() -> None:
                loss[0] = trainer.heldout()
            return self._guard(measure)

        read = c.MOVE(lambda _, *to: self._guard(lambda: trainer.read(*to)))
        write = c.MOVE(lambda _, *to: self._guard(lambda: trainer.write(*to)))
        measured = c.HELDOUT(heldout) if trainer.evaluates else c.HELDOUT()
        given = c.Trainer(None, read, write, measured, trainer.has_moments,
                          trainer.engine.encode()[:95], getattr(trainer, "flops_per_token", 0), 0,
                          getattr(trainer, "memory_bytes", 0))
        self._keep += [read, write, measured, given, trainer]
        status = self._c.thinwire_worker_start(self._attached, ctypes.byref(given),
                                               ctypes.byref(self._error))
        if status != c.OK:
            self._fail(status)

    def step(self, loss: Optional[float] = None, grad_norm: float = 0.0,
             is_skipped: bool = False) -> Optional[Next]:
        """A step boundary. `loss` is that of the step taken; None before the first step.

        Returns the step to take next, or None when the run is over and its last merges are in the
        parameters. Waits while the node is paused, or its daemon is away.
        """
        done = None
        if self._has_step:
            done = c.Step(float("nan") if loss is None else loss, grad_norm, is_skipped)
        while True:
            status = self._c.thinwire_worker_step(
                self._attached, ctypes.byref(done) if done is not None else None, POLL_MS,
                ctypes.byref(self._next), ctypes.byref(self._error))
            done = None
            self._has_step = status == c.OK
            if status == c.OK:
                n = self._next
                return Next(n.step, n.tokens, n.lr, n.lr_share, n.updates, n.is_restored)
            if status == c.FINISHED:
                return None
            if status != c.WAIT:
                self._fail(status)
            if self.on_wait is not None:
                self.on_wait()

    def draw(self, address: int) -> bool:
        """Draws the node's next batch, (batch, context + 1) uint32, to the address.

        With data.loss = answers, a token that is no part of an answer has its highest bit set.

        False: no data have arrived yet. Raises ThinwireError where they are missing or damaged.
        """
        status = self._c.thinwire_worker_draw(self._attached, address, ctypes.byref(self._error))
        if status not in (c.OK, c.WAIT):
            self._fail(status)
        return status == c.OK

    def heldout_count(self) -> int:
        """Number of held-out windows; 0: none has arrived yet."""
        count = self._c.thinwire_worker_heldout_count(self._attached, ctypes.byref(self._error))
        if self._error.status not in (c.OK, c.WAIT):
            self._fail(self._error.status)
        return count

    def heldout_window(self, index: int, count: int, address: int) -> None:
        """Reads window `index` of `count` held-out ones, (context + 1) uint32, to the address."""
        status = self._c.thinwire_worker_heldout(self._attached, index, count, address,
                                                 ctypes.byref(self._error))
        if status != c.OK:
            self._fail(status)

    def sample(self, prompt: str, text: str) -> None:
        """A text that the model wrote after a prompt, for `thinwire status` and the page.

        It is shown after the next evaluation. At most 1023 bytes of UTF-8 of each are.
        """
        status = self._c.thinwire_worker_sample(
            self._attached, *(part.replace("\0", "").encode(errors="replace")
                            for part in (prompt, text)), ctypes.byref(self._error))
        if status != c.OK:
            self._fail(status)

    def abandon(self) -> None:
        """Detaches after an error of the trainer."""
        self.close()

    def close(self) -> None:
        """Takes a snapshot and detaches. May be called again."""
        if self._handle:
            self._c.thinwire_worker_close(self._handle)
            self._handle = ctypes.c_void_p()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
