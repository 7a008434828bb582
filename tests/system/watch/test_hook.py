#!/usr/bin/env python3
# test_hook.py - hooks of real daemons: one that posts, one that fails, one that hangs; and the
# programs of deploy/hooks by hand, against small servers.
"""Usage: test_hook.py BIN SOURCE"""
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import nodes

KINDS = ("checkpoint_failed",)


class Posts(http.server.BaseHTTPRequestHandler):
    """Keeps each POST: path, headers, body."""
    kept = []

    def do_POST(self): # pylint: disable=invalid-name
        """One POST."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.kept.append((self.path, dict(self.headers), body.decode()))
        self.send_response(500 if "broken" in self.path else 200)
        self.end_headers()

    def log_message(self, *_): # pylint: disable=arguments-differ
        """No output."""


class Mails(socketserver.StreamRequestHandler):
    """A mail server that keeps each text."""
    kept = []

    def say(self, line):
        """Sends one line."""
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self):
        self.say("220 here")
        text = None
        for raw in self.rfile:
            line = raw.decode().rstrip("\r\n")
            if text is not None:
                if line == ".":
                    self.kept.append(text)
                    text = None
                    self.say("250 kept")
                else:
                    text.append(line)
            elif line == "DATA":
                text = []
                self.say("354 go on")
            else:
                self.say("221 bye" if line == "QUIT" else "250 ok")
                if line == "QUIT":
                    return


@contextlib.contextmanager
def serving(server):
    """A server on a thread; its port."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def by_hand(hook, *words, status=0, **values):
    """Runs a hook as the daemon does; its standard error."""
    environment = {"PATH": os.environ["PATH"], **values}
    done = subprocess.run([str(hook), *words], env=environment, input='{"kind":"warning"}\n',
                          text=True, capture_output=True, check=False)
    assert done.returncode == status or status is None and done.returncode != 0, (words, done)
    return done.stderr


def check_examples(hooks, port, folder):
    """Each program sends the warning, with the texts untouched, and fails with a reason."""
    text = "The worker died: \"x\" $(touch evil) `touch evil` 'y'"
    values = {"THINWIRE_STATE": "raised", "THINWIRE_WARNING": "worker_failed",
              "THINWIRE_TEXT": text, "THINWIRE_WAY_OUT": "repair that", "THINWIRE_NODE": "attic",
              "THINWIRE_RUN": "bible"}
    url = f"http://127.0.0.1:{port}"
    token = folder / "token"
    token.write_text("Authorization: Bearer tk_1\n", encoding="ascii")
    by_hand(hooks / "webhook", f"{url}/hook", "--header", f"@{token}", **values)
    path, headers, body = Posts.kept.pop()
    assert path == "/hook" and json.loads(body) == {"kind": "warning"}, body
    assert headers["Authorization"] == "Bearer tk_1"
    assert headers["Content-Type"] == "application/json", headers
    by_hand(hooks / "ntfy", f"{url}/topic", **values)
    path, headers, body = Posts.kept.pop()
    assert path == "/topic" and body == f"{text}\nrepair that\n", body
    assert headers["Title"] == "attic: worker_failed raised", headers
    assert headers["Priority"] == "high" and headers["Tags"] == "warning", headers
    assert "500" in by_hand(hooks / "webhook", f"{url}/broken", "--retry", "0", status=None)
    with serving(socketserver.TCPServer(("127.0.0.1", 0), Mails)) as mail_port:
        by_hand(hooks / "mail", "you@example.org", f"smtp://127.0.0.1:{mail_port}", **values)
    (mail,) = Mails.kept
    assert "To: you@example.org" in mail and text in mail and "repair that" in mail, mail
    assert "Subject: attic: worker_failed raised" in mail, mail
    assert not pathlib.Path("evil").exists()


def block(folder, is_blocked):
    """Makes checkpoints fail, or lets them succeed again."""
    for slot in "ab":
        path = folder / f"ckpt.{slot}.safetensors"
        if is_blocked:
            path.unlink(missing_ok=True)
            (path / "x").mkdir(parents=True)
        else:
            shutil.rmtree(path)


def checkpoint(group, idx):
    """`thinwire checkpoint`; its exit status."""
    return subprocess.run([group.tool("thinwire"), "checkpoint", "--config",
                           str(group.config(idx))], capture_output=True, check=False).returncode


def posts_of(state):
    """Warnings in this state that were posted."""
    rows = [json.loads(body) for path, _, body in Posts.kept if path == "/daemon"]
    return [row for row in rows if row["state"] == state and row["warning"] in KINDS]


def set_hook(group, idx, command):
    """Names the hook of a node."""
    text = group.config(idx).read_text(encoding="ascii")
    changed = re.sub("(?m)^#hook = .*", lambda _: f"hook = {command}", text)
    assert changed != text
    group.config(idx).write_text(changed, encoding="ascii")


def check_daemons(group, late):
    """Raised and cleared are told once; neither failures nor hangs disturb a node. The first node
    gets its hook, `late`, while it runs."""
    folders = []
    for idx in range(3):
        group.start(idx)
        group.wait("a node", lambda i=idx: (group.get(i) or {"train": {"steps": 0}})["train"][
            "steps"])
        if idx == 0:
            set_hook(group, idx, late)
            said = nodes.run(group.tool("thinwire"), "reload", "--config", str(group.config(idx)))
            assert "taken over: node.hook" in said, said
        folders.append(next(group.folder.glob(f"n{idx}/*/runlog")).parent)
        block(folders[idx], True)
        assert checkpoint(group, idx) == 1
    group.wait("the post", lambda: posts_of("raised"))
    group.wait("the failure", lambda: "ev=hook_failed" in group.log(1))
    group.wait("the hang", lambda: (group.folder / "hangs").exists())
    for idx in range(3):
        block(folders[idx], False)
        assert checkpoint(group, idx) == 0
    steps = group.get(2)["train"]["steps"]
    group.wait("the end", lambda: posts_of("cleared"))
    assert group.get(2)["train"]["steps"] > steps and "ev=hook" not in group.log(2)
    assert len(posts_of("raised")) == len(posts_of("cleared")) == 1, Posts.kept
    (row,) = posts_of("raised")
    assert row["node_name"] == "n0" and row["text"].startswith("The last checkpoint failed"), row
    log = group.log(1)
    line = ('text="the hook failed with status 7, at checkpoint_failed raised: it is broken"')
    assert log.count(line) == 1 and log.count("at checkpoint_failed raised") == 1, log[-900:]
    child = int((group.folder / "hangs").read_text(encoding="ascii"))
    group.processes[2].terminate()
    assert group.processes[2].wait(20) == 0
    group.wait("the end of the hanging hook", lambda: not pathlib.Path(f"/proc/{child}").exists())


def main():
    """Three nodes with a hook each."""
    if shutil.which("curl") is None:
        print("curl is not installed: skipped")
        sys.exit(77)
    hooks = (pathlib.Path(sys.argv[2]) / "deploy" / "hooks").resolve()
    binaries = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="tw_hook_") as folder, \
            serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Posts)) as port:
        os.chdir(folder)
        check_examples(hooks, port, pathlib.Path(folder))
        group = nodes.Nodes(binaries, folder, 3)
        commands = (f"{hooks}/webhook http://127.0.0.1:{port}/daemon",
                    "echo it is broken >&2; exit 7",
                    f"echo $$ >{folder}/hangs; exec sleep 1000")
        for idx in (1, 2):
            set_hook(group, idx, commands[idx])
        try:
            check_daemons(group, commands[0])
        finally:
            group.end()
    print("ok")


if __name__ == "__main__":
    main()
