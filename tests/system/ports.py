"""ports.py - ports of 127.0.0.1 for tests that may run at any time beside others.

    python3 ports.py    prints a port for each line that it reads, and holds the ports
                        until the end of the input

A held port is bound but not listening. A daemon that asks for this port gets it, but the kernel
gives it to no process that asks for any port. A dial to it is refused.
"""
import socket
import sys

_held = []


def hold():
    """A port that is held until this process ends."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    _held.append(one)
    return one.getsockname()[1]


if __name__ == "__main__":
    for _ in sys.stdin:
        print(hold(), flush=True)
