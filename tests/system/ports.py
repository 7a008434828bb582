"""ports.py - ports of 127.0.0.1 for tests that may run at any time beside others.

    python3 ports.py    prints a port for each line that it reads, and holds them until there are
                        no more lines

A held port is bound and not listening: who wants this very one gets it, as a daemon does, but
nobody is given it who asks for any, neither to listen nor to dial from. To dial it is refused.
"""
import socket
import sys

_held = []


def hold():
    """A port that is ours until this process ends."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    _held.append(one)
    return one.getsockname()[1]


if __name__ == "__main__":
    for _ in sys.stdin:
        print(hold(), flush=True)
