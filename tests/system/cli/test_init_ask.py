#!/usr/bin/env python3
# test_init_ask.py BIN - the questions of `thinwire init` on a terminal.
import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile

PROMPTS = ("Manifest of the run", "Text or dataset", "Most upload")
PATIENCE_S = 60


def talk(command, answers):
    """Runs the command on a terminal and answers each prompt, the line that does not end. Returns
    its status and all that the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    shown, left = "", list(answers)
    while True:
        ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
        if not ready:
            raise RuntimeError(f"waits for something else: {shown}")
        try:
            shown += os.read(terminal, 4096).decode()
        except OSError:  # the terminal's other end is closed
            break
        if shown.endswith(": ") and shown.splitlines()[-1].startswith(PROMPTS):
            if not left:
                os.write(terminal, b"\x04")
                continue
            os.write(terminal, f"{left.pop(0)}\n".encode())
    assert not left, (left, shown)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.replace("\r", "")


def keys_of(config):
    """Lines `key = value` of the file that are no comments."""
    return dict(line.split(" = ", 1) for line in config.read_text(encoding="utf-8").splitlines()
                if " = " in line and not line.startswith("#"))


def main():
    """Answers good and bad, empty, and the end of the input."""
    thinwire = str(pathlib.Path(sys.argv[1]).resolve() / "thinwire")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chdir(folder)
        (folder / "text").write_text("In the beginning was the word.\n" * 4000, encoding="utf-8")
        subprocess.run([thinwire, "run", "new", "asked", "--data", "text", "--out", "manifest"],
                       check=True, capture_output=True)

        status, shown = talk([thinwire, "init", "--dir", "one"],
                             ["nowhere", "manifest", "text", "5mbi", "5mbit"])
        assert status == 0, shown
        assert "nowhere: No such file" in shown and "\n  upload: `mbi` is no unit" in shown, shown
        keys = keys_of(folder / "one" / "node.conf")
        assert keys["run"] == f"{folder}/manifest" and keys["data"] == f"{folder}/text", keys
        assert keys["upload"] == "5mbit", keys

        status, shown = talk([thinwire, "init", "--dir", "two", "--run", "manifest"], ["", ""])
        assert status == 0 and PROMPTS[0] not in shown, shown
        keys = keys_of(folder / "two" / "node.conf")
        assert keys["run"] == f"{folder}/manifest" and "upload" not in keys, keys

        # The run's own text is suggested among other files.
        (folder / "other").write_text("another text\n" * 4000, encoding="utf-8")
        status, shown = talk([thinwire, "init", "--dir", "six", "--run", "manifest"], ["", ""])
        assert status == 0 and "unless other nodes have it [text]: " in shown, shown
        assert keys_of(folder / "six" / "node.conf")["data"] == f"{folder}/text", shown

        # The only manifest of the folder is suggested, and an empty answer takes it.
        (folder / "manifest").rename(folder / "asked.manifest")
        status, shown = talk([thinwire, "init", "--dir", "five"], ["", "text", ""])
        assert status == 0 and "makes one) [asked.manifest]: " in shown, shown
        assert keys_of(folder / "five" / "node.conf")["run"] == f"{folder}/asked.manifest", shown
        (folder / "asked.manifest").rename(folder / "manifest")

        for answers, reason in ((["a", "b", "c"], "--run gives the answer"), ([], "no answer")):
            status, shown = talk([thinwire, "init", "--dir", "three"], answers)
            assert status == 2 and reason in shown and "nothing was made" in shown, (status, shown)
            assert not (folder / "three").exists()

        done = subprocess.run([thinwire, "init", "--dir", "four"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "Manifest of the run (" not in done.stdout, done


if __name__ == "__main__":
    main()
