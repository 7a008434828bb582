"""Datasets of chats and of tables, for `thinwire data prepare`.

    python3 -m thinwire.data chat SET... --model FOLDER --out DIR
    python3 -m thinwire.data text SET... --out DIR [--column NAME] [--tokenizer FILE]

A SET is a file or a folder: JSON Lines, a JSON array, Parquet, or a dataset that the package
`datasets` has saved. Parquet and saved datasets need pyarrow, chats need jinja2. Options of
`thinwire data prepare` may follow.

`chat` applies the chat template in FOLDER, a model as transformers saves it. Special tokens come
from the template alone: their names in a conversation stay text. Only the words of the assistant
are marked as answers, so a run on this dataset has `data.loss = answers`. A conversation is a list
"messages", "conversations" or "conversation", or a pair "prompt" and "completion".

The records are first written beside DIR, then `thinwire data prepare` reads them. An interrupted
command goes on where it stopped, if it is run again.
"""
from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence

from . import home
from .worker import ThinwireError

NAME, NAME_END, ANSWER, ANSWER_END = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3"  # prepare_block.h
GUARD, GUARD_END, PLACE = "\ufdd4", "\ufdd5", "\ufdd6"  # names in a conversation, while it renders
MARKS = re.compile("[\ufdd0-\ufdd6]")
ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}
LISTS = ("messages", "conversations", "conversation")
ENDINGS = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz", ".parquet",
           ".arrow")
SHOWN_S = 0.5


class RecordError(ValueError):
    """A record that cannot be used."""


# ---- records -------------------------------------------------------------------------------------

def files_of(sets: Sequence[str]) -> list[Path]:
    """The files of all sets, those of a folder by name."""
    found: list[Path] = []
    for name in sets:
        path = Path(name)
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file()
                            and p.name.lower().endswith(ENDINGS) and not is_about(p)
                            and not any(part.startswith(".") for part in p.relative_to(path).parts))
            if not inside:
                raise ThinwireError(f"{path} has no files of JSON, Parquet or Arrow", 0)
            found += inside
        else:
            raise ThinwireError(f"{path} is not there: name a file or a folder; a dataset of the "
                                f"Hub comes with `hf download --repo-type dataset {name}`", 0)
    return found


def is_about(path: Path) -> bool:
    """Whether a file of a saved dataset tells about it, and has no records."""
    return path.name in ("dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                         "state.json")


def _tables(path: Path) -> Iterator[list[dict[str, Any]]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ThinwireError(f"{path} needs the package pyarrow: install it with pip", 0) from error
    if path.name.lower().endswith(".parquet"):
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1024):
                yield batch.to_pylist()
        return
    with pyarrow.memory_map(str(path)) as source:
        for batch in pyarrow.ipc.open_stream(source):
            yield batch.to_pylist()


def records(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file, each with its place for messages."""
    if path.name.lower().endswith((".parquet", ".arrow")):
        number = 0
        for rows in _tables(path):
            for row in rows:
                number += 1
                yield f"{path}, row {number}", row
        return
    opened = gzip.open(path, "rt", encoding="utf-8") if path.name.lower().endswith(".gz") \
        else open(path, encoding="utf-8-sig")
    with opened as file:
        first = file.read(1)
        while first and first.isspace():
            first = file.read(1)
        if first == "[":
            for number, record in enumerate(json.loads(first + file.read()), 1):
                yield f"{path}, record {number}", record
            return
        for number, line in enumerate(file, 1):
            line = first + line if number == 1 else line
            if not line.strip():
                continue
            try:
                yield f"{path}:{number}", json.loads(line)
            except ValueError as error:
                raise ThinwireError(f"{path}:{number}: no JSON: {error}", 0) from error


# ---- chat templates ------------------------------------------------------------------------------

def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ThinwireError(f"{path}: {error}", 0) from error
    return found if isinstance(found, dict) else {}


def _content(token: Any) -> Optional[str]:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


class ChatTemplate:
    """The chat template and the special tokens of a model's folder."""

    def __init__(self, folder: Path, template: Optional[Path] = None) -> None:
        try:
            import jinja2
            import jinja2.ext
            import jinja2.sandbox
        except ImportError as error:
            raise ThinwireError("chat templates need the package jinja2: install it with pip",
                                0) from error
        self.folder = folder
        config = _read_json(folder / "tokenizer_config.json")
        added = _read_json(folder / "tokenizer.json").get("added_tokens")
        if added is None:
            raise ThinwireError(f"{folder} has no tokenizer.json", 0)
        special = [token for token in added if token.get("special")]
        names = sorted((token["content"] for token in special), key=len, reverse=True)
        self.tokens = {token["content"]: token for token in special}
        self.names = re.compile("|".join(map(re.escape, names)) or "(?!)")
        self.text = self._find_text(config, template)
        pieces = {**_read_json(folder / "special_tokens_map.json"), **config}
        self.pieces = {key: _content(value) for key, value in pieces.items()
                       if key.endswith("_token") and _content(value) is not None}

        class Generation(jinja2.ext.Extension):
            """The block {% generation %}, which holds an answer."""

            tags = {"generation"}

            def parse(self, parser: Any) -> Any:
                """Puts the block's text between marks."""
                line = next(parser.stream).lineno
                body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
                call = jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body)
                return call.set_lineno(line)

            def mark(self, caller: Any) -> str:
                """The text, marked."""
                return f"{ANSWER}{caller()}{ANSWER_END}"

        def refuse(message: str) -> None:
            raise jinja2.exceptions.TemplateError(message)

        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", Generation])
        environment.filters["tojson"] = lambda x, indent=None, **_: json.dumps(
            x, ensure_ascii=False, indent=indent)
        environment.globals["raise_exception"] = refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self.failure = jinja2.exceptions.TemplateError
        try:
            self.template = environment.from_string(self.text)
        except jinja2.exceptions.TemplateError as error:
            raise ThinwireError(f"the chat template of {folder}: {error}", 0) from error
        self.has_blocks = re.search(r"{%-?\+?\s*generation\b", self.text) is not None

    def _find_text(self, config: dict[str, Any], template: Optional[Path]) -> str:
        if template is not None:
            return template.read_text(encoding="utf-8")
        file = self.folder / "chat_template.jinja"
        if file.exists():
            return file.read_text(encoding="utf-8")
        found = config.get("chat_template") or \
            _read_json(self.folder / "chat_template.json").get("chat_template")
        if isinstance(found, list):  # several by name
            found = {one["name"]: one["template"] for one in found}.get("default")
        if not isinstance(found, str):
            raise ThinwireError(f"{self.folder} has no chat template: name a file with --template",
                                0)
        return found

    # ---- the words of a conversation stay text ---------------------------------------------------

    def _guard(self, value: Any, names: list[str]) -> Any:
        """The value, with names of special tokens in its strings replaced by numbers."""
        def put(match: "re.Match[str]") -> str:
            names.append(match.group())
            return f"{GUARD}{len(names) - 1}{GUARD_END}"
        if isinstance(value, str):
            return self.names.sub(put, MARKS.sub("\ufffd", value))
        if isinstance(value, dict):
            return {key: self._guard(inner, names) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._guard(inner, names) for inner in value]
        return value

    def _mark(self, text: str, names: Sequence[str]) -> str:
        """Marks the special tokens of a rendered text, and puts guarded names back as text."""
        parts, at = [], 0
        for match in self.names.finditer(text):
            token = self.tokens[match.group()]
            before = text[at:match.start()]
            parts.append(before.rstrip() if token.get("lstrip") else before)
            parts.append(f"{NAME}{match.group()}{NAME_END}")
            at = match.end()
            while token.get("rstrip") and at < len(text) and text[at].isspace():
                at += 1
        parts.append(text[at:])
        return re.sub(f"{GUARD}([0-9]+){GUARD_END}", lambda m: names[int(m.group(1))],
                      "".join(parts))

    # ---- rendering -------------------------------------------------------------------------------

    def _render(self, messages: Sequence[Any], asks: bool, more: dict[str, Any]) -> str:
        try:
            return str(self.template.render(messages=list(messages), add_generation_prompt=asks,
                                            **self.pieces, **more))
        except self.failure as error:
            raise RecordError(f"the chat template: {error}") from error
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise RecordError(f"the chat template does not take it: {error}") from error

    def _begin(self, whole: str, messages: Sequence[Any], i: int, more: dict[str, Any]) -> int:
        """Where the answer of message i begins in the whole text: after the prompt for it."""
        try:
            asked = self._render(messages[:i], True, more)
        except RecordError:  # such as without a question
            asked = None
        if asked is not None and whole.startswith(asked):
            return len(asked)
        there = [*messages[:i], {**messages[i], "content": PLACE}, *messages[i + 1:]]
        before, place, _ = self._render(there, False, more).partition(PLACE)
        if place and whole.startswith(before):
            # White space behind the last special token may be the answer's already.
            last, tail = self._tail(before), asked[self._tail(asked):] if asked else None
            if tail is not None and before[last:].startswith(tail):
                return last + len(tail)
            return len(before)
        raise RecordError(f"where answer {i + 1} begins cannot be told, as the template changes "
                          "the messages before it: put {% generation %} and {% endgeneration %} "
                          "around the answer in a copy of it, and name that with --template")

    def _tail(self, text: str) -> int:
        """The end of the last special token."""
        return max((match.end() for match in self.names.finditer(text)), default=0)

    def _end(self, whole: str, begin: int, messages: Sequence[Any], i: int,
             more: dict[str, Any]) -> int:
        """Where the answer of message i ends: behind the token that ends it."""
        until = self._render(messages[:i + 1], False, more)
        ends = self.names.findall(until[min(begin, len(until)):]) or self.names.findall(until)[-1:]
        if ends:
            at = whole.find(ends[-1], begin)
            if at >= 0:
                return at + len(ends[-1])
        if whole.startswith(until) and len(until) > begin:
            return len(until)
        raise RecordError(f"where answer {i + 1} ends cannot be told")

    def chat(self, messages: Sequence[Any], answers: Optional[Sequence[int]] = None,
             more: Optional[dict[str, Any]] = None) -> str:
        """The conversation as a marked text. `answers`: the messages that count, where not all of
        the assistant do; `more`: further variables of the template, such as tools."""
        names: list[str] = []
        guarded = self._guard(list(messages), names)
        more = self._guard(more or {}, names)
        said = [i for i, message in enumerate(guarded) if message.get("role") == "assistant"]
        if answers is not None:
            said = [i for i in said if i in answers]
        if not said:
            raise RecordError("the assistant says nothing in it")
        whole = self._render(guarded, False, more)
        if self.has_blocks and answers is None:
            return self._mark(whole, names)
        whole = MARKS_OF_ANSWERS.sub("", whole)
        parts, at = [], 0
        for i in said:
            begin = self._begin(whole, guarded, i, more)
            end = self._end(whole, begin, guarded, i, more)
            parts += [whole[at:begin], ANSWER, whole[begin:end], ANSWER_END]
            at = end
        parts.append(whole[at:])
        return self._mark("".join(parts), names)

    def pair(self, prompt: str, completion: str) -> str:
        """A prompt and its completion as a marked text, without the template."""
        end = self.pieces.get("eos_token")
        if end is None:
            raise RecordError("tokenizer_config.json names no eos_token to end a completion")
        names: list[str] = []
        ask, answer = self._guard([prompt, completion], names)
        return self._mark(f"{ask}{ANSWER}{answer}{end}{ANSWER_END}", names)

    def separator(self, chat: str) -> Optional[str]:
        """The token to put before each document: one that is not within this chat."""
        first = re.match(f"(?:{ANSWER})?{NAME}(.*?){NAME_END}", chat)
        inside = chat[first.end():] if first else chat
        ends = ("bos_token", "pad_token", "eos_token")
        for name in [self.pieces.get("bos_token"), "<|endoftext|>",
                     *(self.pieces.get(end) for end in ends)]:
            if name in self.tokens and f"{NAME}{name}{NAME_END}" not in inside:
                return name
        return None


MARKS_OF_ANSWERS = re.compile(f"[{ANSWER}{ANSWER_END}]")


# ---- conversations -------------------------------------------------------------------------------

def _messages(found: Any) -> list[dict[str, Any]]:
    """A list of messages with role and content, from that of ShareGPT too."""
    if isinstance(found, str):
        found = json.loads(found)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RecordError("the conversation is not a list of messages")
    out = []
    for one in found:
        if "role" in one:
            # Tables have every field in every row; a template asks whether a field is there.
            out.append({key: value for key, value in one.items()
                        if value is not None or key == "content"})
        elif "from" in one and "value" in one:
            out.append({"role": ROLES.get(one["from"], one["from"]), "content": one["value"]})
        else:
            raise RecordError("a message has neither role and content nor from and value")
    return out


def conversation(template: ChatTemplate, record: Any) -> str:
    """The marked text of a record."""
    if not isinstance(record, dict):
        raise RecordError("it is no object")
    more = {key: record[key] for key in ("tools", "documents") if record.get(key)}
    for key, value in more.items():
        more[key] = json.loads(value) if isinstance(value, str) else value
    for name in LISTS:
        if record.get(name):
            return template.chat(_messages(record[name]), None, more)
    prompt, completion = record.get("prompt"), record.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        return template.pair(prompt, completion)
    if prompt and completion:
        asked, said = _messages(prompt), _messages(completion)
        return template.chat(asked + said, range(len(asked), len(asked) + len(said)), more)
    raise RecordError(f"no conversation: its fields are {', '.join(map(str, record)) or 'none'}; "
                      "one of messages, conversations, or prompt and completion is read")


def encode(marked: str, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Tokens and labels of a marked text, by a fast tokenizer of transformers. The label of a token
    outside answers is -100, which losses of transformers ignore."""
    ids: list[int] = []
    labels: list[int] = []
    is_said = False
    for part in re.split(f"({NAME}.*?{NAME_END})", marked, flags=re.DOTALL):
        if part.startswith(NAME):
            ids.append(tokenizer.convert_tokens_to_ids(part[1:-1]))
            labels.append(ids[-1] if is_said else -100)
            continue
        plain, said = "", []  # whether each character is of an answer
        for letter in part:
            if letter in (ANSWER, ANSWER_END):
                is_said = letter == ANSWER
            else:
                plain += letter
                said.append(is_said)
        if not plain:
            continue
        found = tokenizer(plain, add_special_tokens=False, split_special_tokens=True,
                          return_offsets_mapping=True)
        ids += found["input_ids"]
        labels += [token if begin < end and said[begin] else -100 for token, (begin, end)
                   in zip(found["input_ids"], found["offset_mapping"])]
    return ids, labels


# ---- staging -------------------------------------------------------------------------------------

class Row:
    """A row of progress on a terminal."""

    def __init__(self) -> None:
        self._is_shown = home.is_terminal()
        self._shown = 0.0

    def show(self, text: str) -> None:
        """Shows it now and then."""
        if self._is_shown and time.monotonic() - self._shown > SHOWN_S:
            self._shown = time.monotonic()
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clears it."""
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _identity(words: Sequence[str], files: Sequence[Path]) -> str:
    mark = hashlib.sha256("\0".join(words).encode())
    for file in files:
        info = file.stat()
        mark.update(f"{file.resolve()}\0{info.st_size}\0{info.st_mtime_ns}\0".encode())
    return mark.hexdigest()[:12]


class Staging:
    """The folder beside DIR in which the records wait for `thinwire data prepare`."""

    def __init__(self, out: Path, words: Sequence[str], files: Sequence[Path]) -> None:
        self.folder = out.parent / f"{out.name}.records-{_identity(words, files)}"
        self.files = files
        self.bad = 0
        self.first_bad = ""

    def fill(self, make: Any, skips: bool) -> None:
        """Writes the records of each file that is not there yet. `make` turns one into an object,
        or into None."""
        self.folder.mkdir(parents=True, exist_ok=True)
        row, written = Row(), 0
        for number, file in enumerate(self.files):
            to = self.folder / f"{number:05}.jsonl"
            if to.exists():
                continue
            with open(to.with_suffix(".part"), "w", encoding="utf-8") as out:
                for place, record in records(file):
                    try:
                        made = make(record)
                    except RecordError as error:
                        if not skips:
                            row.end()
                            raise ThinwireError(f"{place}: {error} (--skip-bad leaves such records "
                                                "out)", 0) from error
                        self.first_bad = self.first_bad or f"{place}: {error}"
                        self.bad += 1
                        continue
                    if made is not None:
                        out.write(json.dumps(made) + "\n")
                        written += 1
                    row.show(f"{written} records, file {number + 1} of {len(self.files)}")
            to.with_suffix(".part").replace(to)
        row.end()
        if self.bad:
            print(f"{self.bad} records left out; the first: {self.first_bad}", file=sys.stderr)

    def first(self) -> dict[str, Any]:
        """The first record."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise ThinwireError("there is no record that can be used", 0)

    def prepare(self, *words: str) -> int:
        """Makes the dataset. Returns the status of the command."""
        paths = sorted(str(path) for path in self.folder.glob("*.jsonl") if path.stat().st_size)
        done = subprocess.run([home.program("thinwire"), "data", "prepare", *paths, *words],
                              check=False)
        if done.returncode == 0:
            shutil.rmtree(self.folder)
        return done.returncode


# ---- commands ------------------------------------------------------------------------------------

def chat(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """The command `chat`."""
    folder = Path(args.model)
    if not folder.is_dir():
        raise ThinwireError(f"{folder} is no folder: a model of the Hub comes with "
                            f"`hf download {args.model}`", 0)
    template = ChatTemplate(folder, Path(args.template) if args.template else None)
    tokens = (folder / "tokenizer.json").read_text(encoding="utf-8")
    staging = Staging(Path(args.out), ["chat 1", template.text, tokens, json.dumps(template.pieces),
                                       str(args.skip_bad)], files_of(args.sets))
    staging.fill(lambda record: {"chat": conversation(template, record)}, args.skip_bad)
    separator = template.separator(staging.first()["chat"])
    return staging.prepare("--chat", "--tokenizer", str(folder / "tokenizer.json"), "--out",
                           args.out, *(["--eos", separator] if separator else []), *rest)


def text(args: argparse.Namespace, rest: Sequence[str]) -> int:
    """The command `text`."""
    def make(record: Any) -> Optional[dict[str, str]]:
        found = record.get(args.column) if isinstance(record, dict) else record
        if found is None and isinstance(record, dict) and args.column not in record:
            raise RecordError(f"no column {args.column}: there are {', '.join(map(str, record))}; "
                              "name one with --column")
        if found is not None and not isinstance(found, str):
            raise RecordError(f"the column {args.column} is no text")
        return None if found is None else {"text": found}

    staging = Staging(Path(args.out), ["text 1", args.column, str(args.skip_bad)],
                      files_of(args.sets))
    staging.fill(make, args.skip_bad)
    staging.first()
    return staging.prepare("--out", args.out, *rest)


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs a command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m thinwire.data", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="chat|text")
    chats = verbs.add_parser("chat", help="a dataset of chats, with the loss on answers")
    texts = verbs.add_parser("text", help="a dataset of a column of tables")
    for verb in (chats, texts):
        verb.add_argument("sets", nargs="+", metavar="SET")
        verb.add_argument("--out", required=True, metavar="DIR")
        verb.add_argument("--skip-bad", action="store_true", help="leave out records of no use")
    chats.add_argument("--model", required=True, metavar="FOLDER")
    chats.add_argument("--template", metavar="FILE", help="another chat template")
    texts.add_argument("--column", default="text", metavar="NAME")
    args, rest = parser.parse_known_args(words)
    try:
        return chat(args, rest) if args.verb == "chat" else text(args, rest)
    except ThinwireError as error:
        print(f"thinwire.data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("thinwire.data: stopped; run the same command to continue", file=sys.stderr)
        return 130
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.close(1)
        return 1


if __name__ == "__main__":
    sys.exit(main())
