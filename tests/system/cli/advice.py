"""advice.py - the messages of the programs that tell a person to type a command, and a place in
which a test types it.

A message is a string constant of the sources with a command in backquotes. The text of a `%` is
known only at run time, so every `%` is a wildcard. The test that uses this: test_advice.py.
"""
import contextlib
import functools
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ports  # pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE_S = 90

# First words that a person types. A new one is added here with its first message.
COMMANDS = ("thinwire", "thinwired", "thinwire-engine", "sudo", "chown", "chmod", "cmake", "dmesg",
            "getent", "git", "iconv", "ip", "kill", "modprobe", "prlimit", "ss", "systemctl",
            "timedatectl", "ulimit", "uptime", "zstd")
# Messages that get their command from an argument, or have it in lines of its own below.
FILLED_IN = r"\bcli_(next_)?command\(|target->(start|as_root)\b"
LISTS = ("Next steps:", "On the other machine:")
HELP = "daemon/cli/common/help.c"  # pages that a person asked for
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SPAN = re.compile(r"`([^`]*)`")
HOLE = re.compile(r"%%|%(?:[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j)?[sdiouxXcfgep])?")


def squeeze(text):
    """One blank for any white space, none of the `#` of a commented line, and a way out of doctor
    behind its reason."""
    return re.sub(r"\s+", " ", re.sub(r"\n#+ ?", "\n", re.sub(r"\n +→ ", "; ", text))).strip()


class Message:
    """One string constant with advice."""

    def __init__(self, text, path):
        self.text, self.path = squeeze(text), path
        body = HOLE.sub(lambda hole: "%" if hole[0] == "%%" else "\0", self.text).strip("\0")
        self.pattern = re.compile(re.escape(body).replace(re.escape("\0"), r".{0,700}?"))

    def within(self, text):
        """The shortest place in a text that was printed where this message may be, or None."""
        found, at, text = None, 0, squeeze(text)
        while match := self.pattern.search(text, at):
            if found is None or len(match[0]) < len(found):
                found = match[0]
            at = match.start() + 1
        return found

    def __repr__(self):
        return f"{self.path}: {self.text}"


def literals(code):
    """The string constants of C code, with the parts of each joined, and the rest of its
    statement."""
    code = re.sub(r"/\*.*?\*/", " ", code, flags=re.S)
    code = re.sub(r'"\s*PRI\w+\s*"', "", code)
    for match in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', code):
        text = "".join(one[1:-1] for one in LITERAL.findall(match[0]))
        rest = code[match.end():].split(";\n", 1)[0][:600]
        yield text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"), rest


def sources():
    """The C files of the programs."""
    return sorted(path for folder in ("base", "proto", "compress", "sync", "daemon", "worker")
                  for path in (ROOT / folder).rglob("*.c"))


def is_command(span):
    """True if the text between two backquotes begins like a command."""
    return bool(span) and re.split(r"[\s]", span.replace("%s", "", 1))[0] in COMMANDS


def has_command(text, rest):
    """True if the constant has a command in backquotes, or gets it from its arguments."""
    if any(is_command(span) for span in SPAN.findall(text)) or any(one in text for one in LISTS):
        return True
    return "%s" in text and len(text) > 12 and re.search(FILLED_IN, rest) is not None


@functools.lru_cache
def messages():
    """Every message of the sources once, by its text."""
    found = {}
    for path in sources():
        name = str(path.relative_to(ROOT))
        for text, rest in literals(path.read_text(encoding="utf-8")):
            if name != HELP and has_command(text, rest):
                message = Message(text, name)
                found.setdefault(message.text, message)
    return list(found.values())


def resolve(found, fragments):
    """The messages that the fragments name, each one; and the sentences about others. A fragment
    that is the whole text of a message, or its beginning, means that one."""
    chosen, wrong = [], []
    for fragment in fragments:
        named = [one for one in found if fragment in one.text]
        closer = [one for one in named if one.text.startswith(fragment)]
        exact = [one for one in named if one.text == fragment]
        named = exact or (closer if len(closer) == 1 else named)
        if len(named) == 1:
            chosen.append(named[0])
        else:
            wrong.append(f"`{fragment}` names {len(named)} messages")
    return chosen, wrong


class Wrong(Exception):
    """A promise of a message that was not kept."""


class Said:
    """The output of a command, and its exit status."""

    def __init__(self, command, code, text):
        self.command, self.code, self.text = command, code, text

    def __str__(self):
        return f"`{self.command}` ended with {self.code} and said:\n{self.text}"


class Place:
    """A folder with the programs on the PATH, in which one user types. `seen`: the messages that
    this place must show and follow."""

    def __init__(self, bin_dir, folder, seen):
        self.bin, self.folder, self.seen = pathlib.Path(bin_dir).resolve(), folder, set(seen)
        self.left = set(seen)
        self.env = {"PATH": f"{folder / 'stand-ins'}:{self.bin}:{os.environ['PATH']}",
                    "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "160", "TERM": "dumb",
                    **{key: value for key, value in os.environ.items() if "SAN_OPTIONS" in key}}
        (folder / "stand-ins").mkdir()
        self.write("text", "".join(f"In the beginning was word {i}.\n" for i in range(4000)))

    # ---- typing ------------------------------------------------------------------------------

    def type(self, command, stdin="", **env):
        """Types a line into a shell, in the folder."""
        begin = {"env": {**self.env, **env}, "cwd": self.folder}
        done = subprocess.run(["bash", "-c", command], input=stdin, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=600, **begin)
        return Said(command, done.returncode, done.stdout)

    def good(self, command, stdin="", **env):
        """Types a line that must succeed; returns its output."""
        said = self.type(command, stdin, **env)
        if said.code != 0:
            raise Wrong(f"must succeed: {said}")
        return said.text

    def bad(self, command, stdin="", **env):
        """Types a line that must fail."""
        said = self.type(command, stdin, **env)
        if said.code == 0:
            raise Wrong(f"must fail: {said}")
        return said.text

    # ---- reading advice ----------------------------------------------------------------------

    def advice(self, text, fragment, **fill):
        """The commands in the backquotes of the message with this fragment, from the text that was
        printed. `fill` gives the words that a person fills in: NAME="x" for the word NAME."""
        message = self.message(fragment)
        found = message.within(text)
        if found is None:
            raise Wrong(f"`{message.text}` is not in:\n{text}")
        self.left.discard(message)
        commands = [span for span in SPAN.findall(found) if is_command(span)]
        if any(one in message.text for one in LISTS):
            below = re.split("|".join(LISTS), text)[1]
            commands = [line.strip() for line in re.findall(r"^    \w.*$", below, re.M)]
        if not commands:
            raise Wrong(f"no command in `{found}`")
        for word, value in sorted(fill.items(), key=lambda one: -len(one[0])):
            commands = [one.replace(word, str(value)) for one in commands]
        return commands

    def message(self, fragment):
        """The one message of this situation with that fragment."""
        found, wrong = resolve(self.seen, [fragment])
        if wrong:
            raise Wrong(f"of this situation: {wrong[0]}")
        return found[0]

    def follow(self, text, fragment, more="", nth=0, **fill):
        """Types the command of the message, with `more` behind it; it must succeed. Returns its
        output."""
        return self.good(self.advice(text, fragment, **fill)[nth] + (more and " " + more))

    def spare(self, fragment, why):
        """Leaves a message out, because this machine cannot print it."""
        self.left.discard(self.message(fragment))
        print(f"spared: {fragment}: {why}")

    def advice_told(self, text, fragment):
        """Types the commands of a message that only names where more is told."""
        for command in self.advice(text, fragment):
            self.good(command)

    # ---- making things -----------------------------------------------------------------------

    def write(self, name, text, mode=0o644):
        """A file in the folder; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def stand_in(self, name, script):
        """A program that takes the place of one of the system."""
        return self.write(f"stand-ins/{name}", f"#!/bin/sh\n{script}\n", 0o755)

    def manifest(self, name="run", keys=()):
        """The manifest of a small run."""
        sets = " ".join(f"--set {key}" for key in (
            "model.layers=1", "model.width=16", "model.heads=2", "model.context=32",
            "train.batch=4", "train.warmup_tokens=128", *keys))
        if not any(key.startswith("train.tokens") for key in keys):
            sets += " --set train.tokens=1000000000"
        self.good(f"thinwire run new {name} --data text --out {name} {sets}")
        return name

    def node(self, name, manifest="run", more="", select=True):
        """A node of that run, with the stub worker; `thinwire` selects it from here on."""
        if not (self.folder / manifest).exists():
            self.manifest(manifest)
        port = ports.hold()
        said = self.good(f"thinwire init --dir {name} --name {name} --run {manifest} --data text "
                         f"--listen 127.0.0.1:{port} {more}")
        self.stub(name)
        if select:
            self.select(name)
        return said.split("This node is ")[1].split()[0], f"127.0.0.1:{port}"

    def stub(self, name):
        """Gives a node a worker that only sleeps."""
        worker = self.write(f"{name}.worker", "#!/bin/sh\n"
                            f'exec {self.bin}/stub_worker --step-us 100000 "$@"\n', 0o755)
        self.change(name, r"^\[node\]$", f"[node]\nworker_path = {worker}")

    def shifted(self, seconds):
        """Begin of a line that is typed on a machine whose clock is wrong by so much."""
        return f"LD_PRELOAD={self.bin}/shift_clock.so TW_SHIFT_CLOCK_S={seconds} " \
               "ASAN_OPTIONS=verify_asan_link_order=0 "

    def select(self, name):
        """As `export THINWIRE_CONFIG=...` in the user's shell."""
        self.env["THINWIRE_CONFIG"] = str(self.folder / name / "node.conf")

    def change(self, name, pattern, line):
        """Edits the node's configuration."""
        path = self.folder / name / "node.conf"
        text, count = re.subn(pattern, lambda _: line, path.read_text(), count=1, flags=re.M)
        if count != 1:
            raise Wrong(f"no {pattern} in {path}")
        path.write_text(text)

    def tensors(self, name):
        """A safetensors file with one small tensor."""
        head = json.dumps({"w": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}})
        (self.folder / name).write_bytes(struct.pack("<Q", len(head)) + head.encode() + bytes(128))

    # ---- processes ---------------------------------------------------------------------------

    def start(self, name=None):
        """Starts a node in the background, as a person does."""
        if name is not None:
            self.select(name)
        return self.good("thinwire start")

    def background(self, command):
        """Types a line that runs until the place ends."""
        with open(self.folder / "background.log", "ab") as log:
            subprocess.Popen(["bash", "-c", "exec " + command], env=self.env, cwd=self.folder,
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def daemon(self, name=None):
        """The process of a node's daemon, or None."""
        conf = f"{self.folder}/{name}/node.conf" if name else self.env["THINWIRE_CONFIG"]
        found = [pid for pid, line in self.processes()
                 if line[0].endswith("thinwired") and conf in line]
        # a daemon that is started again when it dies is the child of the one that does so
        children = [pid for pid in found if parent_of(pid) in found]
        return (children or found or [None])[0]

    def processes(self):
        """(process, words) of every program that was started with a path in this folder."""
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().decode(errors="replace").split("\0")[:-1]
                if any(word.startswith(f"{self.folder}/") for word in words):
                    yield int(path.parent.name), words

    def end(self):
        """Ends the programs that were started here."""
        for how in (signal.SIGCONT, signal.SIGTERM):
            for pid, words in self.processes():
                if how == signal.SIGCONT or words[0].endswith("thinwired"):
                    with contextlib.suppress(OSError):
                        os.kill(pid, how)
        end = time.monotonic() + 20
        while any(True for _ in self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        for pid, _ in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def json(self, command):
        """The answer of a command with --json, without the words for people beside it: a command
        that waits for a busy daemon says so."""
        return json.loads(self.good(command + " --json 2>/dev/null"))

    def status(self):
        """/v1/status of the selected node."""
        return self.json("thinwire status")

    def warnings(self):
        """The kinds of the selected node's warnings."""
        return [one["kind"] for one in self.status()["warnings"]]

    def wait(self, what, is_so, patience_s=PATIENCE_S):
        """Waits until it is so, and returns the reason."""
        end = time.monotonic() + patience_s
        while True:
            found = is_so()
            if found:
                return found
            if time.monotonic() > end:
                raise Wrong(f"never: {what}")
            time.sleep(0.3)


def parent_of(pid):
    """The parent of a process; 0: it has ended."""
    with contextlib.suppress(OSError):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rsplit(")", 1)[1].split()[1])
    return 0


def typed_on_terminal(at, command, keys="", **env):
    """The screen of a command for a person at a terminal who types the keys at its first prompt."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(at.folder)
        os.execvpe("bash", ["bash", "-c", "stty cols 160 rows 50; " + command],
                   {**at.env, **env})
    shown, is_typed = b"", not keys
    with contextlib.suppress(OSError):  # the terminal closes with its last program
        while True:
            part = os.read(terminal, 65536)
            if not part:
                break
            shown += part
            if not is_typed and shown.rstrip().endswith(b":"):
                os.write(terminal, keys.encode())
                is_typed = True
    os.close(terminal)
    os.waitpid(child, 0)
    return shown.decode(errors="replace").replace("\r", "")


SITUATIONS = []


def situation(part, *fragments):
    """Enters a function into the table: it makes a situation in which the messages with these
    fragments are printed, follows their advice and checks that the situation is gone."""
    def enter(function):
        SITUATIONS.append((part, fragments, function))
        return function
    return enter


# ---- every command, wherever it is named -----------------------------------------------------

def named_commands():
    """(place, command) of every `thinwire ...` in the sources and in the guide."""
    for path in sources():
        for text, _ in literals(path.read_text(encoding="utf-8")):
            for span in SPAN.findall(text):
                yield path.name, squeeze(span)
    for name in ("README.md", "deploy/GUIDE.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for line in re.sub(r" *\\\n *", " ", text).splitlines():
            yield name, re.sub(r" +#.*", "", line.strip())
        for span in SPAN.findall(re.sub(r"```.*?```", "", text, flags=re.S)):
            yield name, squeeze(span)


def check_commands(bin_dir):
    """Every command that is named exists, with the options that are named; returns the others."""
    pages, wrong = {}, set()

    def page(*words):
        if words not in pages:
            done = subprocess.run([f"{bin_dir}/thinwire", "help", *words], capture_output=True,
                                  text=True, check=False)
            pages[words] = done.stdout if done.returncode == 0 else None
        return pages[words]

    everywhere = page()
    page("plan")
    pages["plan",] += page("run")  # whose options it takes too
    for place, command in named_commands():
        words = re.sub(r"^sudo ", "", command).split()
        if not words or words[0] != "thinwire":
            continue
        words = re.split(r" (?:[|>&<;]|2>)", " ".join(words[1:]))[0].split()
        while words and words[0].startswith("--"):
            words = words[2 if words[0] in ("--config", "--socket") else 1:]
        if not words or not re.fullmatch(r"[a-z-]+", words[0]):
            continue
        text = page(words[0])
        if text is None:
            wrong.add(f"{place}: `{command}`: there is no command `{words[0]}`")
            continue
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", " ".join(words[1:])):
            if option not in text and option not in everywhere and option != "--help":
                wrong.add(f"{place}: `{command}`: {option} is not in `thinwire help {words[0]}`")
        subs = set(re.findall(rf"^(?:thinwire )?{words[0]} ([a-z]+)\b", text, re.M))
        if len(words) > 1 and subs and re.fullmatch(r"[a-z]+", words[1]) and \
                words[0] in ("run", "owner", "config", "data") and words[1] not in text:
            wrong.add(f"{place}: `{command}`: there is no `{words[0]} {words[1]}`")
    return sorted(wrong)
