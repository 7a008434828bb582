"""The line that a node shows on a terminal: step, loss, anchor, peers, bytes."""
from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import Any, Callable, Optional, TextIO

LOOK_S = 2.0   # between two looks at the daemon
SHOW_S = 0.5   # between two lines

Status = dict[str, Any]


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def line(step: int, loss: float, rate: float, status: Optional[Status]) -> str:
    """The row of a step, as far as the daemon's status is known.

    >>> line(120, 3.25, 8.0, None)
    'step 120, loss 3.250, 8.0 steps/s'
    """
    words = []
    if status is not None:
        words.append(str(status["run"]["name"]))
    words.append(f"step {step:,}, loss {loss:.3f}, {rate:.1f} steps/s")
    if status is None:
        return " | ".join(words)
    sync, network, run = status["sync"], status["network"], status["run"]
    peers = int(sync["alive_peers"])
    words.append(f"{run['done_percent']:.0f} % of the run")
    words.append(f"anchor {sync['rounds_committed']:,}" if sync["rounds_committed"] else
                 "no anchor yet")
    words.append(f"{peers} peer{'' if peers == 1 else 's'}" if peers else "alone")
    words.append(f"{_bytes(network['bulk_out_bytes'] + network['control_out_bytes'])} up, "
                 f"{_bytes(network['bulk_in_bytes'] + network['control_in_bytes'])} down")
    warnings = status.get("warnings") or []
    if warnings:
        words.append(f"{len(warnings)} warning{'' if len(warnings) == 1 else 's'}")
    return " | ".join(words)


class Progress:
    """Shows the row on a terminal, and nothing anywhere else. `ask` returns the daemon's status;
    a thread calls it, so that no step waits for the daemon."""

    def __init__(self, ask: Callable[[], Optional[Status]], out: Optional[TextIO] = None) -> None:
        self._out = out or sys.stderr
        self._ask = ask
        self._status: Optional[Status] = None
        self._shown_s = self._begin_s = time.monotonic()
        self._begin_step: Optional[int] = None
        self._is_shown = False
        self._end = threading.Event()
        self._pid = os.getpid()
        threading.Thread(target=self._look, daemon=True, name="thinwire progress").start()

    def _look(self) -> None:
        while not self._end.wait(LOOK_S):
            self._status = self._ask()

    def show(self, step: int, loss: float) -> None:
        """A step was taken."""
        now = time.monotonic()
        if self._begin_step is None:
            self._begin_step, self._begin_s = step, now
        if now - self._shown_s < SHOW_S or os.getpid() != self._pid:
            return
        self._shown_s = now
        rate = (step - self._begin_step) / max(now - self._begin_s, 1e-9)
        width = shutil.get_terminal_size().columns - 1
        self._write("\r\x1b[K" + line(step, loss, rate, self._status)[:width])
        self._is_shown = True

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._end.set()

    def close(self) -> None:
        """Ends the line."""
        self._end.set()
        if self._is_shown and os.getpid() == self._pid:
            self._write("\n")
        self._is_shown = False
