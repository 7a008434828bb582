"""test_home.py LIBRARY BIN [CASE...] - nodes that thinwire.torch.create and join make for a script.

Each case runs scripts as users would, with a state directory for each user and daemons of BIN, and
checks that no daemon is left. Wants the torch of the Python that runs it.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "tests/system"))

import ports  # noqa: E402

PATIENCE_S = 90
SCRIPT = '''
import os, sys, time, torch, thinwire.torch as tw
from thinwire import ThinwireError
torch.manual_seed(SEED)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(),
                            torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
wants = torch.nn.Linear(8, 1)
for p in wants.parameters():
    torch.nn.init.constant_(p, 0.3)

def train():
    x = torch.randn(32, 8)
    loss = ((model(x) - wants(x).detach()) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.002)
    return loss

def say(*words):
    print(*words, flush=True)

def complain(call):
    try:
        call()
    except (ThinwireError, TypeError, RuntimeError) as error:
        say("sentence:", " ".join(str(error).split()))
    else:
        say("no sentence")

def create(name="little", tokens=24000, **more):
    return tw.create(name, model, optimizer, tokens=tokens, step_tokens=32, nodes=2,
                     listen="127.0.0.1:PORT", settings={"sync.period": 20}, **more)

def total():
    return sum(float(p.detach().double().sum()) for p in model.state_dict().values()
               if p.is_floating_point())
'''


class User:
    """A user, with a state directory. Runs scripts."""

    def __init__(self, folder, library, bin_dir, seed=1):
        self.folder, self.bin, self.seed, self.port = folder, bin_dir, seed, ports.hold()
        folder.mkdir(parents=True, exist_ok=True)
        self.count = 0
        self.environment = {**os.environ, "THINWIRE_LIBRARY": str(library),
                            "THINWIRE_BIN": str(bin_dir), "XDG_STATE_HOME": str(folder),
                            "PYTHONPATH": str(ROOT / "worker/python"), "OMP_NUM_THREADS": "1"}

    def start(self, text, head=SCRIPT):
        """Starts a script. Its output goes to the files `out` and `err` of the process."""
        self.count += 1
        script = self.folder / f"script{self.count}.py"
        whole = head.replace("SEED", str(self.seed)).replace("PORT", str(self.port)) + text
        script.write_text(whole, encoding="utf-8")
        out, err = script.with_suffix(".out"), script.with_suffix(".err")
        with open(out, "wb") as to, open(err, "wb") as log:
            process = subprocess.Popen([sys.executable, script], env=self.environment, stdout=to,
                                       stderr=log, start_new_session=True)
        process.out, process.err = out, err
        return process

    def run(self, text):
        """Runs a script to its end. Returns its status, and the lines that it printed."""
        process = self.start(text)
        return end(process), process.out.read_text(encoding="utf-8").splitlines()

    def daemons(self):
        """Process ids of the daemons that have a file of this user open as their configuration."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"thinwired") and any(str(self.folder).encode() in word
                                                       for word in words):
                found.append(int(path.parent.name))
        return found

    def await_no_daemon(self):
        """Waits until the user's daemons have ended."""
        await_that(lambda: not self.daemons(), f"a daemon is left in {self.folder}")


def await_that(is_so, fault):
    """Waits for a fact."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, fault
        time.sleep(0.05)


def line_of(process, begin):
    """The line that a script prints and that begins so, without the beginning."""
    found = []

    def is_there():
        found[:] = [line for line in process.out.read_text().splitlines()
                    if line.startswith(begin) and len(line) > len(begin)]
        assert found or process.poll() in (None, 0), process.err.read_text()[-3000:]
        return found

    await_that(is_there, f"no line {begin}")
    return found[0][len(begin):].strip()


def end(process):
    """The status of a script at its end."""
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(process.err.read_text()[-3000:]) from None


TRAIN = '''
with node:
    while node.goes_on:
        node.step(train())
say("rate", optimizer.param_groups[0]["lr"])
say("total", total())
'''


def two_users_train_with_one_ticket(user, other):
    """Both end with the same model, and no daemon is left."""
    first = user.start("node = create()\nsay('ticket', node.invite())\n"
                       "while not node.home.status()['sync']['alive_peers']:\n"
                       "    time.sleep(0.1)\n" + TRAIN)
    ticket = line_of(first, "ticket")
    _, lines = other.run(f"""
model[3].weight.requires_grad_(False)
complain(lambda: tw.join('{ticket}', model, optimizer, listen='127.0.0.1:{other.port}'))
""")
    assert "not that of the node that made run little: other parameters are frozen" in lines[0], \
        lines
    second = other.start(f"node = tw.join('{ticket}', model, optimizer, "
                         "listen='127.0.0.1:PORT')\n".replace("PORT", str(other.port)) + TRAIN)
    assert end(first) == 0 and end(second) == 0, first.err.read_text() + second.err.read_text()
    assert line_of(first, "total") == line_of(second, "total"), "the models differ"
    assert line_of(first, "rate") == "0.01", "the script's rate has changed"
    assert first.err.read_text() == "" and second.err.read_text() == "", \
        "silent without a terminal: " + first.err.read_text() + second.err.read_text()
    assert not user.daemons() and not other.daemons()
    log = (other.folder / "thinwire/little/log").read_text()
    assert "contributors=2" in log, "the two never merged"
    home = json.loads((other.folder / "thinwire/little/home.json").read_text())
    assert home["run"] == "little" and not home["created"]
    again = other.start(f"node = tw.join('{ticket}', model, optimizer)\nsay('on', node.goes_on)\n"
                        "node.close()")
    line_of(again, "on")
    assert end(again) == 0
    assert [path.name for path in (other.folder / "thinwire").iterdir()] == ["little"], \
        "the ticket's node was made anew"


LONG = "node = create('long', 400_000_000)\nsay('pid', os.getpid(), node.step_count)\n"


def killed_script_goes_on(user, _other):
    """A daemon leaves with its killed script, and the next script goes on from there."""
    script = user.start(LONG + "while True:\n    node.step(train())\n"
                        "    node.step_count == 100 and say('hundred', 1)\n")
    line_of(script, "hundred")
    assert len(user.daemons()) == 2  # the daemon and the process that keeps it
    taken, lines = user.run("complain(lambda: create('long', 400_000_000))")
    assert taken == 0 and "has the node in" in lines[0], lines
    script.kill()
    script.wait()
    _, lines = user.run(LONG + "say('step', node.step_count)\nnode.close()")
    assert int(lines[-1].split()[1]) > 0, f"the script began anew: {lines}"
    assert not user.daemons()


def interrupted_scripts_leave_no_daemon(user, _other):
    """Ctrl-C, an exception in the block, and an end without `close`."""
    script = user.start(LONG + "with node:\n    while True:\n        node.step(train())\n")
    line_of(script, "pid")
    time.sleep(0.5)
    os.killpg(script.pid, signal.SIGINT)
    assert end(script) != 0 and "KeyboardInterrupt" in script.err.read_text()
    user.await_no_daemon()
    status, _ = user.run(LONG + "with node:\n    node.step(train())\n    1 / 0\n")
    assert status == 1 and not user.daemons()
    status, _ = user.run(LONG + "node.step(train())\n")
    assert status == 0 and not user.daemons()


def wrong_calls_get_sentences(user, _other):
    """After close, in a forked process, in a worker of a DataLoader, from another thread."""
    status, lines = user.run(LONG + '''
import pickle, threading
from torch.utils.data import DataLoader, Dataset
node.step(train())
pid = os.fork()
if pid == 0:
    complain(lambda: node.step(0.0))
    complain(node.close)
    sys.exit(0)
os.waitpid(pid, 0)

class Data(Dataset):
    def __len__(self): return 2
    def __getitem__(self, i): return node.step(0.0)

complain(lambda: list(DataLoader(Data(), num_workers=1)))
complain(lambda: pickle.dumps(node))
node._busy.acquire()
complain(lambda: node.step(train()))
node._busy.release()
thread = threading.Thread(target=lambda: say("other thread", node.step(train())))
thread.start(); thread.join()
complain(lambda: create(tokens=1000))
complain(lambda: tw.join("nonsense", model, optimizer))
complain(lambda: tw.join("tw1nonsense", model, optimizer))
node.step(train())
node.close()
node.close()
complain(lambda: node.step(train()))
complain(lambda: create('long', 5_000))
complain(lambda: create('Not A Name', 5_000))
say("end", 1)
''')
    text = "\n".join(lines)
    assert status == 0 and "no sentence" not in text and "end 1" in text, text
    for words in ("forked", "worker of a DataLoader", "cannot be sent to another process",
                  "call of another thread", "begins with tw1", "is closed",
                  "was made with tokens=400,000,000", "other thread True"):
        assert words in text, f"{words}: {text}"
    assert not user.daemons()


def kept_daemon_is_found_again(user, _other):
    """keep=True leaves the daemon; the next script finds it, and ends it."""
    status, lines = user.run("node = create('kept', 400_000_000, keep=True)\nnode.step(train())\n"
                             "node.close()\n")
    kept = user.daemons()
    assert status == 0 and len(kept) == 2, lines
    status, _ = user.run("node = create('kept', 400_000_000)\nnode.step(train())\n"
                         "say('step', node.step_count)\nnode.close()\n")
    assert status == 0
    user.await_no_daemon()


CASES = [two_users_train_with_one_ticket, killed_script_goes_on,
         interrupted_scripts_leave_no_daemon, wrong_calls_get_sentences,
         kept_daemon_is_found_again]


def guarded(folder, users, case):
    """Runs a case. Shows the logs of its users if it fails, and ends their daemons."""
    try:
        case()
    except BaseException:
        for log in sorted(folder.glob("*/*.err")) + sorted(folder.glob("*/*.out")) + \
                sorted(folder.glob("*/thinwire/*/log")):
            print(f"---- {log.relative_to(folder)}\n{log.read_text()[-3000:]}")
        raise
    finally:
        for user in users:
            for pid in user.daemons():
                os.kill(pid, signal.SIGTERM)
            user.await_no_daemon()


def main():
    """Runs the cases."""
    library, bin_dir = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    try:
        import torch  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        print(f"{sys.executable} has no torch: skipped")
        sys.exit(77)
    for case in CASES:
        if len(sys.argv) > 3 and case.__name__ not in sys.argv[3:]:
            continue
        with tempfile.TemporaryDirectory(prefix="twhome") as name:
            folder = pathlib.Path(name)
            users = [User(folder / word, library, bin_dir, seed)
                     for seed, word in enumerate(("a", "b"))]
            guarded(folder, users, lambda case=case, users=users: case(*users))
        print(f"{case.__name__}: as it should be")


if __name__ == "__main__":
    main()
