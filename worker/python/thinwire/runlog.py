"""Reads the run log of a node, and copies it to TensorBoard or Weights & Biases.

    python3 -m thinwire.runlog FOLDER --tensorboard DIR [--follow]
    python3 -m thinwire.runlog FOLDER --wandb PROJECT [--follow]

FOLDER is STATE_DIR/RUN/runlog, or STATE_DIR: then the run that was written last. Needs torch or
tensorboardX, or wandb. `thinwire help run-log` documents the keys of a line. A copy that was
stopped goes on where it was.

    for at, line in thinwire.runlog.lines(folder):
        if line["kind"] == "evaluation":
            print(line["step"], line["validation_anchor_nats"])
"""
from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

LINE_BYTES_MAX = 1 << 16
PAUSE_S = 1.0
NAME = re.compile(r"(\d+)\.jsonl")

# The values of each kind of line that are drawn over the step.
VALUES = {
    "step": ("loss_nats", "learning_rate", "grad_norm", "tokens_per_s", "utilisation_ratio",
             "tokens", "clock_tokens"),
    "evaluation": ("validation_live_nats", "validation_anchor_nats", "distance_ratio", "loss_nats",
                   "learning_rate", "tokens_per_s", "utilisation_ratio", "tokens", "clock_tokens"),
    "round": ("round", "members", "contributors", "payload_bytes", "took_s"),
}


class Position(NamedTuple):
    """A place between two lines: number of the file, and bytes before it in that file."""
    file: int = 0
    offset: int = 0


def find(folder: os.PathLike | str) -> Path:
    """The folder of the log: the given one, or that of the newest run in a state folder."""
    folder = Path(folder)
    if folder.name == "runlog" or any(NAME.fullmatch(path.name) for path in folder.glob("*.jsonl")):
        return folder
    found = [path for path in folder.glob("*/runlog") if files(path)]
    if not found:
        raise FileNotFoundError(f"{folder} has no run log: `run_log` in [node] is 0, or the node "
                                "never ran")
    return max(found, key=lambda path: files(path)[max(files(path))].stat().st_mtime)


def files(folder: Path) -> dict[int, Path]:
    """The files of the ring by number."""
    found = {}
    for path in folder.glob("*.jsonl"):
        match = NAME.fullmatch(path.name)
        if match:
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def _parse(raw: bytes) -> Optional[dict]:
    """A line as its object; None for an empty line and for anything else."""
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None


def _read(path: Path, at: Position) -> Iterator[tuple[Position, dict]]:
    """The whole lines of one file from a place on."""
    with open(path, "rb") as source:
        source.seek(at.offset)
        offset = at.offset
        while raw := source.readline(LINE_BYTES_MAX):
            if not raw.endswith(b"\n") and len(raw) < LINE_BYTES_MAX:
                return # it is being written
            offset += len(raw)
            line = _parse(raw)
            if line is not None:
                yield Position(at.file, offset), line


def lines(folder: os.PathLike | str, at: Position = Position(), follow: bool = False,
          pause_s: float = PAUSE_S) -> Iterator[tuple[Position, dict]]:
    """(place behind the line, the line), oldest first, from a place on. With `follow` it waits for
    new ones for ever.

    If the ring has lost the place, it goes on with the oldest line.
    """
    folder = find(folder)
    while True:
        there = files(folder)
        for number, path in there.items():
            if number < at.file:
                continue
            begin = at if number == at.file else Position(number, 0)
            try:
                for at, line in _read(path, begin):
                    yield at, line
            except FileNotFoundError:
                pass # the ring dropped it just now
            if at.file < number:
                at = begin
        if not follow:
            return
        time.sleep(pause_s)


def _seconds(line: dict) -> Optional[float]:
    """The time of a line since 1970."""
    try:
        text = str(line.get("time")).replace("Z", "+00:00")
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def values_of(line: dict) -> dict[str, float]:
    """The values of a line that are drawn, by names such as "round/took_s"."""
    kind = line["kind"]
    if kind == "warning":
        return {f"warning/{line.get('warning')}": float(line.get("state") == "raised")}
    if kind == "scores":
        scores = line.get("scores")
        found = {f"scores/{name}": value for name, value in scores.items()} \
            if isinstance(scores, dict) else {}
    else:
        group = "round" if kind == "round" else "train"
        found = {f"{group}/{key}": line.get(key) for key in VALUES.get(kind, ())}
    return {name: float(value) for name, value in found.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)}


def text_of(line: dict) -> Optional[str]:
    """A text by the model, after the passage that it continues; None for other lines."""
    if line["kind"] != "sample":
        return None
    return f"{line.get('prompt')}|{line.get('sample')}"


class Board:
    """TensorBoard, by PyTorch's writer or by that of tensorboardX."""

    def __init__(self, folder: str):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            try:
                from tensorboardX import SummaryWriter
            except ImportError:
                raise SystemExit("thinwire.runlog: --tensorboard needs tensorboardX, or torch with "
                                 "tensorboard") from None
        self.state = Path(folder, "thinwire-runlog.json")
        # names of event files have the second: two copies in one second must not share a file
        self.writer = SummaryWriter(folder, filename_suffix=f".{os.getpid()}")

    def add(self, line: dict, step: int) -> None:
        """Draws the values of a line."""
        for name, value in values_of(line).items():
            self.writer.add_scalar(name, value, step, _seconds(line))
        text = text_of(line)
        if text is not None:  # indented: Markdown leaves it as it is
            quoted = "".join(f"    {row}\n" for row in text.splitlines())
            self.writer.add_text("train/sample", quoted, step, _seconds(line))

    def flush(self) -> None:
        """All values so far are on disk."""
        self.writer.flush()

    def close(self) -> None:
        """Ends the event file."""
        self.writer.close()


class Wandb:
    """Weights & Biases: one run for each node, in a group for each run of Thinwire."""

    def __init__(self, project: str, folder: Path):
        try:
            import wandb
        except ImportError:
            raise SystemExit("thinwire.runlog: --wandb needs wandb") from None
        about = {"node": folder.parent.name, "run": folder.parent.name}
        for _, line in lines(folder):
            if line["kind"] == "start":
                about = line
        name = f"{str(about['run'])[:16]}-{str(about['node'])[:16]}"
        self.state = Path("wandb", f"thinwire-runlog-{name}.json")
        self.run = wandb.init(project=project, id=name, resume="allow", name=about.get("node_name"),
                              group=about.get("run_name"), config={"thinwire": about})
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def add(self, line: dict, step: int) -> None:
        """Sends the values of a line."""
        values, text = values_of(line), text_of(line)
        if text is not None:
            self.run.log({"train/sample": text, "step": step})
        elif values:
            self.run.log({**values, "step": step})

    def flush(self) -> None:
        """wandb sends by itself, and keeps unsent values on disk."""

    def close(self) -> None:
        """Sends the rest."""
        self.run.finish()


def _load(path: Path) -> Position:
    """The place where an earlier copy stopped."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return Position(int(said["file"]), int(said["offset"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Position()


def _save(path: Path, at: Position) -> None:
    """Keeps the place, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(at._asdict()) + "\n", encoding="utf-8")
    new.replace(path)


def copy(folder: Path, to: Board | Wandb, follow: bool, pause_s: float = PAUSE_S) -> int:
    """Copies new lines and returns their number. With `follow` it goes on until Ctrl-C."""
    at, step, count = _load(to.state), 0, 0
    try:
        while True:
            for at, line in lines(folder, at):
                value = line.get("step")
                step = value if isinstance(value, int) else step # a warning is at the step before
                to.add(line, step)
                count += 1
            to.flush()
            _save(to.state, at)
            if not follow:
                return count
            time.sleep(pause_s)
    except KeyboardInterrupt:
        to.flush()
        _save(to.state, at)
        return count
    finally:
        to.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m thinwire.runlog", description=__doc__.splitlines()[0],
        epilog="Without --tensorboard or --wandb it prints the lines.")
    parser.add_argument("folder", help="STATE_DIR/RUN/runlog, or STATE_DIR")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--tensorboard", metavar="DIR",
                    help="folder of the event files, one for each node")
    to.add_argument("--wandb", metavar="PROJECT")
    parser.add_argument("--follow", action="store_true", help="go on with a log that grows")
    words = parser.parse_args()
    try:
        folder = find(words.folder)
    except OSError as error:
        raise SystemExit(f"thinwire.runlog: {error}") from None
    if words.tensorboard or words.wandb:
        sink = Board(words.tensorboard) if words.tensorboard else Wandb(words.wandb, folder)
        print(f"{copy(folder, sink, words.follow)} lines of {folder}", file=sys.stderr)
        return
    try:
        for _, line in lines(folder, follow=words.follow):
            print(json.dumps(line), flush=words.follow)
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(0)


if __name__ == "__main__":
    main()
