"""test_top.py - `thinwire top` and `status --watch` on a pseudo-terminal: content, sizes, keys.
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


def start(socket, columns, rows, verb="top", **more):
    """The program on a terminal of its own."""
    main, side = pty.openpty()
    resize(main, columns, rows)
    env = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}
    program = subprocess.Popen([f"{BIN}/thinwire", *verb.split(), "--socket", socket], stdin=side,
                               stdout=side, stderr=side, env=env, start_new_session=True)
    os.close(side)
    return main, program


def end_of(main, program):
    """Sends q. Returns the exit status."""
    os.write(main, b"q")
    end = time.monotonic() + PATIENCE_S
    while program.poll() is None and time.monotonic() < end:
        try:
            if select.select([main], [], [], 0.05)[0]:
                os.read(main, 65536)
        except OSError:  # the program closed its end
            break
    os.close(main)
    return program.wait(timeout=PATIENCE_S)


def check_sizes(socket):
    """Two sizes of the terminal, a change of size, and a terminal that is too small."""
    main, program = start(socket, 80, 24)
    seen = read_until(main, "attic trains bible together with 3 others", "1.702 validation",
                      ", 3 min ago", "with 3 others 39.2k", "48.8 %", "tokens/s", "c4c4c4c4",
                      "relayed", "q quit")
    assert b"\x1b[3" in seen, "no colours"
    os.write(main, b"s")
    read_until(main, "rate")
    resize(main, 200, 50, program)
    read_until(main, "slow sender: 41.0 kB/s to us in 12 transfers")
    resize(main, 20, 5, program)
    read_until(main, "too small")
    resize(main, 80, 24, program)
    read_until(main, "q quit")
    assert end_of(main, program) == 0


def check_hangup(socket):
    """`thinwire top` ends when its terminal is gone, as after a lost ssh connection."""
    main, program = start(socket, 80, 24)
    read_until(main, "q quit")
    os.close(main)
    program.wait(timeout=PATIENCE_S)


def check_looks(socket):
    """No colour where none is wanted; refused where text cannot be placed."""
    main, program = start(socket, 80, 24, NO_COLOR="1")
    seen = read_until(main, "attic trains bible", "q quit")
    assert b"\x1b[32m" not in seen and b"\x1b[33m" not in seen, seen
    assert end_of(main, program) == 0
    for term in ("dumb", "no-such-terminal"):
        main, program = start(socket, 80, 24, TERM=term)
        read_until(main, "status --watch")
        assert program.wait(timeout=PATIENCE_S) == 2
        os.close(main)


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
        assert f"waiting for the daemon (process {server.pid}, which is stopped)" in first, said
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
            main_fd, program = start(socket, 80, 24)
            seen = b""
            while b"q quit" not in seen and b"without ncurses" not in seen:
                seen += os.read(main_fd, 65536)
            if b"without ncurses" in seen:
                print("skipped: this build has no ncurses")
                sys.exit(77)
            assert end_of(main_fd, program) == 0
            check_sizes(socket)
            check_looks(socket)
            check_hangup(socket)
        finally:
            server.stdin.close()
            server.wait(timeout=10)
    print("top: ok")


main()
