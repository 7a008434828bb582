#!/usr/bin/env python3
# test_demo_ends.py - the nodes of deploy/demo.py end with it: on SIGTERM, and on the SIGHUP of a
# closed terminal. The programs are stand-ins, so that nothing is built or trained.
#   test_demo_ends.py SOURCE
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(sys.argv[1])

THINWIRE = """#!/usr/bin/env python3
import pathlib, sys, time
words = sys.argv[1:]
def value(name):
    return pathlib.Path(words[words.index(name) + 1])
if words[:2] == ["data", "prepare"]:
    value("--out").mkdir()
elif words[:2] == ["run", "new"]:
    value("--out").write_text("sync.period = 20\\n")
    print("run demo\\n  Words       that a person would type")
elif words[0] == "init":
    keys = "checkpoint_interval nice eval_steps links stop_step".split()
    value("--config").write_text("".join(f"# {key} = 1\\n" for key in keys))
elif words[0] == "train":
    for step in range(100):
        print('{"event": "step", "tokens": %d}' % (step * 128), flush=True)
        time.sleep(0.5)
"""
# It notes its process beside its configuration, and outlives the terminal as thinwired does.
THINWIRED = """#!/usr/bin/env python3
import os, pathlib, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
pathlib.Path(sys.argv[2] + ".pid").write_text(str(os.getpid()))
while True:
    signal.pause()
"""
NODES = ("node1", "node2", "solo")
failures = 0


def check(holds, sentence):
    global failures
    print(f"{'ok  ' if holds else 'FAIL'} {sentence}")
    failures += not holds


def wait_for(condition):
    """Whether the condition came to hold within five minutes."""
    for _ in range(3000):
        if condition():
            return True
        time.sleep(0.1)
    return False


def is_up(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def start(folder):
    """Starts a demo on a terminal of its own; returns its process, the terminal and its nodes."""
    binaries, out, text = folder / "bin", folder / "out", folder / "text.txt"
    binaries.mkdir()
    for name, program in (("thinwire", THINWIRE), ("thinwired", THINWIRED)):
        (binaries / name).write_text(program)
        (binaries / name).chmod(0o755)
    text.write_text("a text long enough\n" * 60000)
    terminal, other = pty.openpty()

    def own_terminal():
        os.setsid()
        os.close(os.open(os.ttyname(other), os.O_RDWR))  # becomes the controlling terminal

    demo = subprocess.Popen(
        [sys.executable, "-B", str(SOURCE / "deploy/demo.py"), "--bin", str(binaries), "--out",
         str(out), "--text", str(text), "--nodes", "2", "--steps", "600"],
        stdin=other, stdout=other, stderr=other, preexec_fn=own_terminal)
    os.close(other)
    notes = [out / f"{name}.conf.pid" for name in NODES]
    check(wait_for(lambda: all(note.exists() and note.read_text() for note in notes)),
          "the nodes run")
    return demo, terminal, [int(note.read_text()) for note in notes]


def the_nodes_end_with_it(words, end):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        demo, terminal, nodes = start(folder)
        seen = os.read(terminal, 65536).decode()
        end(demo, terminal)
        check(wait_for(lambda: demo.poll() is not None), f"{words}: the demo ends")
        check(wait_for(lambda: not any(map(is_up, nodes))), f"{words}: and its nodes")
        for node in filter(is_up, nodes):
            os.kill(node, signal.SIGKILL)
        check("that a person would type" not in seen
              and "that a person" in (folder / "out/run.txt").read_text(),
              f"{words}: the description of the run is in a file")


the_nodes_end_with_it("SIGTERM", lambda demo, _: demo.send_signal(signal.SIGTERM))
the_nodes_end_with_it("SIGHUP", lambda demo, _: demo.send_signal(signal.SIGHUP))
the_nodes_end_with_it("a closed terminal", lambda _, terminal: os.close(terminal))
sys.exit(1 if failures else 0)
