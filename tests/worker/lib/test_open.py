"""test_open.py LIBRARY - a Python worker that attaches to a slow daemon, or to one that refuses it.

The daemon is a stub that listens at the worker socket and never says WELCOME.
"""
import os
import pathlib
import socket
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[3] / "worker/python"))

import thinwire  # noqa: E402
from thinwire import worker as attaching  # noqa: E402


class Daemon:
    """A daemon that serves a list of connections: "silent" keeps one open until the worker closes
    it, "away" closes one at once. After the list, it repeats the last."""

    def __init__(self, folder, *answers):
        self.path, self.answers, self.served = str(folder / "worker.sock"), answers, []
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        """Serves connections until the listener is closed."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            answer = self.answers[min(len(self.served), len(self.answers) - 1)]
            self.served.append(answer)
            try:
                while answer == "silent" and connection.recv(65536):
                    pass
            except OSError:
                pass
            connection.close()

    def attach(self, timeout):
        """Attaches a worker. Returns the name of the exception."""
        try:
            thinwire.Worker(self.path, timeout=timeout).close()
        except (TimeoutError, thinwire.ThinwireError) as error:
            return type(error).__name__
        finally:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        return "attached"


def main():
    """Runs the cases."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # A worker's own closed connection is the "other worker" of the refusal: it tries again.
        slow = Daemon(folder, "silent", "away", "silent")
        ended = slow.attach(timeout=2)
        assert ended == "TimeoutError", ended
        assert slow.served[:3] == ["silent", "away", "silent"], slow.served
        # Another worker is attached: said at once.
        taken = Daemon(folder, "away")
        ended = taken.attach(timeout=60)
        assert ended == "ThinwireError" and taken.served == ["away"], (ended, taken.served)
        # The refusals go on: said when the daemon has had time to see the close.
        attaching.RELEASE_S = 0.5
        again = Daemon(folder, "silent", "away")
        ended = again.attach(timeout=60)
        assert ended == "ThinwireError" and len(again.served) >= 3, (ended, again.served)


if __name__ == "__main__":
    os.environ["THINWIRE_LIBRARY"] = sys.argv[1]
    main()
