"""test_watch.py - `status --watch` on a pseudo-terminal: content and sizes; a stopped daemon.
BIN: folder of the programs."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

BIN = sys.argv[1]
PATIENCE_S = 20


def resize(terminal, columns, rows, program=None):
    """Sets the size of a terminal, and tells its program."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    if program:
        program.send_signal(signal.SIGWINCH)


def read_until(terminal, *words):
    """Everything written until all words have come."""
    seen, end = b"", time.monotonic() + PATIENCE_S
    while not all(word.encode() in seen for word in words):
        assert time.monotonic() < end, (words, seen)
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536)
    return seen


def start(socket, columns, rows, verb):
    """The program on a terminal of its own."""
    main, side = pty.openpty()
    resize(main, columns, rows)
    env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    program = subprocess.Popen([f"{BIN}/thinwire", *verb.split(), "--socket", socket], stdin=side,
                               stdout=side, stderr=side, env=env, start_new_session=True)
    os.close(side)
    return main, program


def frame_of(terminal, rows):
    """The lines of the next whole drawing of `status --watch`, which leaves the last row free."""
    seen = b""
    while seen.count(b"\x1b[J") < 2:
        seen += read_until(terminal, "\x1b[J")
    frame = seen.split(b"\x1b[J")[1].split(b"\x1b[H")[-1].decode().split("\n")
    assert frame[-1] == "" and len(frame) <= rows, frame
    return frame[:-1]


def check_watch(socket):
    """`status --watch` fits any terminal, and follows its size at once."""
    main, program = start(socket, 80, 24, "status --watch --every 0.2")
    frame = frame_of(main, 24)
    assert "attic trains bible together with 3 others" in frame[0], frame
    assert any("1.702" in line for line in frame) and "more lines" in frame[-1], frame
    resize(main, 60, 12, program)
    assert "more lines" in frame_of(main, 12)[-1]
    resize(main, 100, 60, program)
    assert "thinwire 0.1.0" in frame_of(main, 60)[-1]
    program.terminate()
    program.wait(timeout=PATIENCE_S)
    os.close(main)

    main, program = start(socket, 80, 24, "status --watch --every 3600")
    read_until(main, "\x1b[J")
    resize(main, 60, 12, program)  # it does not wait for the next second
    read_until(main, "\x1b[J")
    program.terminate()
    program.wait(timeout=PATIENCE_S)
    os.close(main)

    with subprocess.Popen([f"{BIN}/thinwire", "status", "--watch", "--every", "0.2", "--socket",
                           socket], stdout=subprocess.PIPE) as program:
        seen = b""
        while seen.count(b"attic trains bible") < 2:
            seen += os.read(program.stdout.fileno(), 65536)
        program.terminate()
    assert b"\x1b" not in seen, "escape codes in a pipe"


def check_stopped(socket, server):
    """A daemon that is stopped: its process is named early, the way out at the end."""
    server.send_signal(signal.SIGSTOP)
    try:
        said = subprocess.run([f"{BIN}/thinwire", "status", "--socket", socket], check=False,
                              capture_output=True, text=True, timeout=60)
        first, last = said.stderr.strip().split("\n")
        assert said.returncode != 0
        assert f"the daemon (process {server.pid}, which is stopped)" in first, said
        assert f"`kill -CONT {server.pid}` lets it go on" in last, said
    finally:
        server.send_signal(signal.SIGCONT)
    subprocess.run([f"{BIN}/thinwire", "status", "--socket", socket], check=True,
                   capture_output=True)


def main():
    """All of it on the API of one fixed node."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/api.sock"
        server = subprocess.Popen([f"{BIN}/api_server", socket], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        try:
            assert server.stdout.readline() == "ready\n"
            check_watch(socket)
            check_stopped(socket, server)
        finally:
            server.stdin.close()
            server.wait(timeout=10)
    print("watch: ok")


main()
