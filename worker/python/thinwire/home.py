"""A node of the user's own, without root: its folder, and the daemon in the background.

thinwire.torch.create and thinwire.torch.join keep each node in a folder below the user's state
directory ($XDG_STATE_HOME/thinwire, else ~/.local/state/thinwire), named after the run:

    node.conf      the configuration: `thinwire --config FOLDER/node.conf status` looks at the node
    log            of the daemon
    state          key, certificate, checkpoints
    run            manifest and owner's key, where this node has made the run
    home.json      of this file: run, ticket, and the daemon that was left running
    trainer.lock   held by the process that trains

The daemon is a child of the trainer's process, and leaves when that process ends, in whichever way
(thinwired --with-parent). One that was left running (`keep`) is found again.
"""
from __future__ import annotations

import atexit
import fcntl
import hashlib
import http.client
import json
import logging
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, Union

from . import _library as c
from .worker import ThinwireError

LOG = logging.getLogger("thinwire")
START_S = 60.0    # until a daemon that starts answers
END_S = 120.0     # until a daemon that leaves has ended
PORT = 4747       # of the first node of a machine; others take a free one
SOCKET_BYTES = 107  # longest path of a Unix socket

Names = Union[str, os.PathLike]


def _fail(sentence: str, status: int = c.INVALID) -> ThinwireError:
    return ThinwireError(sentence, status)


def program(name: str) -> str:
    """A program of Thinwire: in $THINWIRE_BIN, in the wheel, or on $PATH."""
    chosen = os.environ.get("THINWIRE_BIN")
    own = (Path(chosen) if chosen else Path(__file__).parent / "bin") / name
    if os.access(own, os.X_OK):
        return str(own)
    found = None if chosen else shutil.which(name)
    if found is None:
        where = f"in THINWIRE_BIN ({chosen})" if chosen else "in this package or on PATH"
        raise _fail(f"the program {name} is not {where}: install a wheel of Thinwire that has its "
                    "programs (deploy/wheel makes one), or the system's package thinwire")
    return found


def _sentence(text: str) -> str:
    """The last sentence of a program's errors, without its name."""
    begin = max(text.rfind("\nthinwire: "), text.rfind("\nthinwired: "))
    text = text[begin + 1:] if begin >= 0 else text
    for name in ("thinwire: ", "thinwired: "):
        text = text[len(name):] if text.startswith(name) else text
    return " ".join(text.split())


def call(*words: Names, text: str = "") -> str:
    """Runs `thinwire` with these words and this input. Returns its output."""
    command = [program("thinwire"), *(os.fspath(word) for word in words)]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise _fail(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        raise _fail(_sentence(done.stderr or done.stdout) or
                    f"thinwire {words[0]} ended with status {done.returncode}")
    return done.stdout


def root() -> Path:
    """The folder of all homes."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "thinwire"


def _free_port() -> int:
    """4747, one of the next nine, or any that is free."""
    for port in (*range(PORT, PORT + 10), 0):
        with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("", port))
                return held.getsockname()[1]
            except OSError:
                continue
    raise _fail("no TCP port is free: name one with listen=")


class _Api(http.client.HTTPConnection):
    """HTTP over the daemon's Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self.path = str(path)

    def connect(self) -> None:
        """Connects."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Home:
    """The folder of one node, and its daemon. Made by `made`, `joined`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "node.conf"
        self.pid = os.getpid()  # of the trainer
        self._daemon: Optional[subprocess.Popen[bytes]] = None
        self._lock: Optional[int] = None
        self.keeps = False

    # ---- the folder ----------------------------------------------------------------------------

    @property
    def sockets(self) -> Path:
        """The folder of the sockets: a short path, as Unix sockets need one."""
        beside = self.folder / "sockets"
        if len(os.fsencode(beside / "thinwired.sock")) <= SOCKET_BYTES:
            return beside
        mark = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"thinwire-{os.getuid()}-{mark}"

    @property
    def worker_socket(self) -> str:
        """Where the trainer attaches."""
        return str(self.sockets / "worker.sock")

    def facts(self) -> dict[str, Any]:
        """home.json."""
        try:
            facts = json.loads((self.folder / "home.json").read_text(encoding="utf-8"))
            return facts if isinstance(facts, dict) else {}
        except (OSError, ValueError):
            return {}

    def note(self, **facts: Any) -> None:
        """Puts facts into home.json."""
        fresh = self.folder / "home.json.new"
        fresh.write_text(json.dumps({**self.facts(), **facts}, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.folder / "home.json")

    def lock(self) -> bool:
        """Takes the folder for this process. False: another process trains there."""
        if self._lock is not None:
            return True
        descriptor = os.open(self.folder / "trainer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                             0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not inherited by fork
        except OSError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._lock = descriptor
        _OPEN[str(self.folder)] = self
        return True

    def unlock(self) -> None:
        """Gives the folder back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        _OPEN.pop(str(self.folder), None)

    def is_taken(self) -> bool:
        """Whether a process trains there: another one, or this one."""
        if str(self.folder) in _OPEN:
            return True
        if not self.lock():
            return True
        self.unlock()
        return False

    def refuse_taken(self) -> None:
        """Raises if another process, or another node of this one, trains in this folder."""
        holder = ""
        if str(self.folder) not in _OPEN and self.lock():
            return
        try:
            holder = (self.folder / "trainer.lock").read_text(encoding="ascii").strip()
        except OSError:
            pass
        raise _fail(f"a trainer (process {holder or '?'}) has the node in {self.folder}: end it, "
                    "or name another place with folder=")

    # ---- the daemon ----------------------------------------------------------------------------

    def status(self) -> Optional[dict[str, Any]]:
        """The daemon's status; None: no daemon answers."""
        api = _Api(self.sockets / "thinwired.sock")
        try:
            api.request("GET", "/v1/status")
            reply = json.loads(api.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            api.close()
        return reply if isinstance(reply, dict) else None

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
            there.settimeout(5)
            try:
                there.connect(str(self.sockets / "thinwired.sock"))
                return True
            except OSError:
                return False

    def _await_end(self) -> None:
        """Waits for the daemon of a trainer that has ended."""
        until = time.monotonic() + END_S
        while self._listens():
            if time.monotonic() >= until:
                raise _fail(f"the daemon in {self.folder} does not end: see {self.folder}/log, or "
                            f"end it with `thinwire --config {self.config} leave`")
            time.sleep(0.1)

    def start(self, keep: bool) -> None:
        """Starts the daemon, or finds the one that runs. The folder must be locked."""
        self.keeps = keep
        kept = self.facts().get("kept")
        if self._listens():
            if kept or not self.facts().get("embedded"):
                LOG.info("the daemon in %s runs already", self.folder)
                return
            self._await_end()
        if self.sockets.parent != self.folder:
            self.sockets.mkdir(mode=0o700, exist_ok=True)
            if self.sockets.stat().st_uid != os.getuid():
                raise _fail(f"{self.sockets} belongs to another user: set XDG_STATE_HOME to a "
                            "folder with a shorter name")
        self.note(embedded=not keep, kept=keep)
        if keep:
            call("--config", self.config, "start")
            return
        self._spawn()

    def _spawn(self) -> None:
        log = self.folder / "log"
        begin = log.stat().st_size if log.exists() else 0
        with open(log, "ab") as to:
            # A session of its own: Ctrl-C in the terminal is the trainer's.
            self._daemon = subprocess.Popen(
                [program("thinwired"), "--config", str(self.config),
                 f"--with-parent={os.getpid()}"], stdin=subprocess.DEVNULL, stdout=to, stderr=to,
                start_new_session=True, cwd=str(self.folder))
        until = time.monotonic() + START_S
        while not self._listens():
            if self._daemon.poll() is not None:
                said = log.read_bytes()[begin:].decode(errors="replace")
                self._daemon = None
                lines = [line for line in said.splitlines() if line.startswith("thinwired: ")]
                raise _fail("the daemon did not start: " + (
                    _sentence(lines[-1]) if lines else f"see {log}"))
            if time.monotonic() >= until:
                raise _fail(f"the daemon does not answer after {START_S:.0f} s: see {log}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the daemon in order, unless it is to be kept, and gives the folder back."""
        if self._lock is None or os.getpid() != self.pid:
            return
        try:
            if self._daemon is not None:
                self._end_child(self._daemon)
                self._daemon = None
            elif not self.keeps and self.facts().get("kept") and self._listens():
                call("--config", self.config, "leave")
                self.note(kept=False)
        finally:
            self.unlock()

    def _end_child(self, daemon: "subprocess.Popen[bytes]") -> None:
        """Lets the daemon save and leave. Ctrl-C ends only the waiting: it leaves by itself."""
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            LOG.warning("the daemon in %s saves the model and leaves", self.folder)
            daemon.wait()

    # ---- words ---------------------------------------------------------------------------------

    def invite(self, uses: int, expires: str, address: Optional[str]) -> str:
        """A ticket."""
        words = ["--json", "--config", str(self.config), "invite", "--uses", str(uses),
                 "--expires", expires]
        reply = json.loads(call(*words, *(["--address", address] if address else [])))
        return str(reply["data"]["line"])


_OPEN: dict[str, Home] = {}  # homes that this process has locked, by folder


def _end_all() -> None:
    for home in list(_OPEN.values()):
        if os.getpid() == home.pid:
            try:
                home.stop()
            except (ThinwireError, OSError) as error:
                LOG.warning("%s", error)


atexit.register(_end_all)


def _forget() -> None:
    """In a forked process: the homes are the parent's. The copies of its locks are no locks."""
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget)


# ---- making and joining ------------------------------------------------------------------------

def _places(name: str) -> Iterator[Home]:
    """NAME, NAME-2, NAME-3 ... below the root."""
    yield Home(root() / name)
    for number in range(2, 1000):
        yield Home(root() / f"{name}-{number}")


def _homes() -> list[Home]:
    try:
        return [Home(path.parent) for path in sorted(root().glob("*/home.json"))]
    except OSError:
        return []


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _fail(f"{folder}: {error.strerror}: name another place with folder=, or set "
                    "XDG_STATE_HOME") from error


def _listen(listen: Optional[str]) -> str:
    if listen is not None:
        return listen
    port = _free_port()
    return f"0.0.0.0:{port}, [::]:{port}" if socket.has_ipv6 else f"0.0.0.0:{port}"


def _options(home: Home, given: dict[str, str]) -> list[str]:
    words = ["--dir", str(home.folder)]
    if home.sockets.parent != home.folder:
        words += ["--run-dir", str(home.sockets)]
    for key, value in given.items():
        words += [f"--{key}", value]
    return words


def write_shapes(path: Path, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
    """A safetensors file with these names and shapes, whose numbers are a hole of zeros."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes:
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def made(name: str, shapes: Sequence[tuple[str, tuple[int, ...]]], settings: dict[str, str], *,
         folder: Optional[Names], node: dict[str, str]) -> tuple[Home, bool]:
    """The home of the run that this user makes, locked, and whether it is new."""
    home = Home(Path(folder).absolute() if folder else root() / name)
    _make_folder(home.folder)
    home.refuse_taken()
    try:
        if home.facts().get("created") and home.config.exists():
            return home, False
        if home.config.exists():
            raise _fail(f"{home.folder} has the node of a run that was joined: name another run, "
                        "or another place with folder=")
        run = home.folder / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.folder) as scratch:
            listed = Path(scratch) / "model.safetensors"
            write_shapes(listed, shapes)
            (run / "manifest").unlink(missing_ok=True)
            words = ["run", "new", name, "--tensors", str(listed), "--out", str(run / "manifest")]
            for key, value in settings.items():
                words += ["--set", f"{key}={value}"]
            call(*words)
        call("init", *_options(home, {"run": str(run / "manifest"), **node}))
        home.note(created=True, run=name)
        return home, True
    except BaseException:
        home.unlock()
        raise


def joined(ticket: str, *, folder: Optional[Names], node: dict[str, str]) -> tuple[Home, bool]:
    """The home of the node that the ticket lets in, locked, and whether it is new."""
    ticket = "".join(ticket.split()).lower()
    if not ticket.startswith("tw1"):
        raise _fail("a ticket begins with tw1: node.invite() on a node of the run makes one")
    mark = hashlib.sha256(ticket.encode()).hexdigest()[:16]
    run_mark = ticket[3:3 + 48]  # the run's id comes first: 240 of its 256 bits
    known = [Home(Path(folder).absolute())] if folder else _homes()
    same = [home for home in known if home.facts().get("ticket") == mark]
    same += [home for home in known if home.facts().get("run_mark") == run_mark
             and home not in same]
    for home in same:
        if home.config.exists() and not home.is_taken() and home.lock():
            _join(home, ticket, {})  # a certificate that has ended is renewed
            home.note(ticket=mark)
            return home, False
    if folder:
        home = known[0]
        _make_folder(home.folder)
        home.refuse_taken()
        try:
            run = _join(home, ticket, node)
            home.note(run=run, ticket=mark, run_mark=run_mark, created=False)
            return home, True
        except BaseException:
            home.unlock()
            raise
    _make_folder(root())
    fresh = Path(tempfile.mkdtemp(prefix=".join-", dir=root()))
    try:
        run = _join(Home(fresh), ticket, node)
        for home in _places(run):
            try:
                fresh.rename(home.folder)
            except OSError:
                continue  # it is there
            home.note(run=run, ticket=mark, run_mark=run_mark, created=False)
            home.refuse_taken()
            _move_sockets(home)
            return home, True
        raise _fail(f"a thousand folders of run {run} are in {root()}: remove some")
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _join(home: Home, ticket: str, node: dict[str, str]) -> str:
    try:
        reply = json.loads(call("--json", "join", "-", *_options(home, node), text=ticket + "\n"))
    except BaseException:
        home.unlock()
        raise
    return str(reply["run"])


def _move_sockets(home: Home) -> None:
    """Puts the folder of the sockets into the configuration of a home that was renamed."""
    if home.sockets.parent == home.folder:
        return
    lines = home.config.read_text(encoding="utf-8").splitlines()
    lines = [f"run_dir = {home.sockets}" if line.startswith("run_dir") else line for line in lines]
    home.config.write_text("\n".join(lines) + "\n", encoding="utf-8")


def node_options(listen: Optional[str], upload: Optional[str], name: Optional[str]
                 ) -> dict[str, str]:
    """Options of `init` and `join` that the user has given."""
    chosen = {"listen": _listen(listen)}
    if upload:
        chosen["upload"] = upload
    if name:
        chosen["name"] = name
    return chosen


def main() -> None:
    """The command `thinwire` of the wheel."""
    if shutil.which("thinwire") == shutil.which(sys.argv[0]) and "THINWIRE_BIN" not in os.environ:
        os.environ["THINWIRE_BIN"] = str(Path(__file__).parent / "bin")  # not this command again
    try:
        path = program("thinwire")
    except ThinwireError as error:
        sys.exit(f"thinwire: {error}")
    os.execv(path, ["thinwire", *sys.argv[1:]])


def is_terminal() -> bool:
    """Whether standard error of this process is a terminal."""
    return bool(getattr(sys.stderr, "isatty", lambda: False)())
