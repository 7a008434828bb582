#!/usr/bin/env python3
# first_minutes.py - types "First minutes" of deploy/GUIDE.md on two systems joined by a slow line.
"""Usage: first_minutes.py ROOT_A ROOT_B

Both are root folders of a Debian with systemd, where /srv has the package, and ROOT_A's /srv the
text. They are booted as containers; one cable of 5 Mbit/s joins them, and nothing else. The
commands of the section are typed on terminals: blocks `sh both` on both, `sh first` and `sh second`
on one. Each must print the `text` block below it; where that has an answer behind a question, it is
typed. Within five minutes the two must have merged.
"""
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "system"))
from test_guide import mismatch  # noqa: E402

SECONDS_MAX = 300
BLOCK = re.compile(r"^```sh (both|first|second)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.M | re.S)
QUESTION = re.compile(r"^(.*\)(?: \[.*\])?|.*it|.*line): ?(.*)$")
PROMPT = re.compile(r"@@(\d+) $")
TICKET = re.compile(r"^tw1\S+", re.M)


def run(*command):
    """Runs a command that must succeed."""
    subprocess.run(command, check=True)


class System:
    """A booted container and a terminal in it."""

    def __init__(self, root, cable, address):
        self.log = open(f"{root}.console", "wb")  # pylint: disable=consider-using-with
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "-b", "-q", "-D", root, "--register=no", "--keep-unit",
             "--private-network"], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log)
        self.leader = self.find_leader()
        run("ip", "link", "set", cable, "netns", str(self.leader))
        self.inside("-m", "-p", "systemctl", "is-system-running", "--wait")
        for command in (f"ip addr add {address}/24 dev {cable}", f"ip link set {cable} up",
                        "ip link set lo up",
                        f"tc qdisc add dev {cable} root tbf rate 5mbit burst 32k latency 200ms"):
            assert self.inside("-n", *command.split()) == 0, command
        self.shown = ""
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execvp("nsenter", ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p",
                                  "env", "-i", "HOME=/srv", "TERM=dumb", "LC_ALL=C.UTF-8",
                                  "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "PS1=@@$? ",
                                  "bash", "--norc", "--noediting", "-i"])
        self.shell = pid
        termios.tcsetwinsize(self.terminal, (24, 80))  # the guide's width
        self.read_until_prompt({})
        self.type("cd /srv", {})

    def find_leader(self):
        """Process 1 of the container, seen from here."""
        for _ in range(600):
            done = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(self.nspawn.pid)],
                                  capture_output=True, text=True, check=False)
            for pid, name in (line.split() for line in done.stdout.splitlines()):
                if name == "systemd":
                    return int(pid)
            time.sleep(0.1)
        raise RuntimeError("the system does not boot")

    def inside(self, *words):
        """Runs a program of the container; returns its status."""
        at = next(i for i, word in enumerate(words) if not word.startswith("-"))
        for _ in range(100):  # the container's bus takes a moment
            done = subprocess.run(["nsenter", "-t", str(self.leader), *words[:at], *words[at:]],
                                  capture_output=True, check=False)
            if "Failed to connect" not in done.stderr.decode():
                break
            time.sleep(0.3)
        return done.returncode

    def read_until_prompt(self, answers):
        """Reads until the shell's prompt and answers questions. Returns (status, text)."""
        text, asked, end = "", "", time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 1)[0]:
                text += os.read(self.terminal, 65536).decode(errors="replace").replace("\r", "")
            tail = text.rsplit("\n", 1)[-1]
            found = PROMPT.search(tail)
            if found:
                return int(found[1]), text[:len(text) - len(tail)]
            for question, answer in answers.items():
                if tail.strip() == question and text != asked:
                    time.sleep(0.5)  # a person is no faster
                    os.write(self.terminal, f"{answer}\n".encode())
                    asked = text
        raise RuntimeError(f"no end:\n{text}")

    def type(self, command, answers):
        """Types a command; returns its output. It must succeed."""
        os.write(self.terminal, f"{command}\n".encode())
        status, text = self.read_until_prompt(answers)
        text = text.split("\n", 1)[1] if "\n" in text else ""  # the echo of the command
        if status != 0:
            raise RuntimeError(f"status {status} of {command}\n{text}")
        return text

    def end(self):
        """Switches the system off."""
        os.kill(self.shell, signal.SIGKILL)
        self.inside("-m", "-p", "systemctl", "--no-block", "poweroff")
        try:
            self.nspawn.wait(60)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()
        self.log.close()


def answers_of(expected, ticket):
    """{question: answer} of a text block."""
    found = {"Do you want to continue? [Y/n]": "y"}
    for line in (expected or "").splitlines():
        match = QUESTION.match(line)
        if match:
            found[match[1] + ":"] = match[2] or ticket
    return found


def type_block(system, commands, expected, ticket):
    """Types all lines of a block; returns all that was printed."""
    answers = answers_of(expected, ticket)
    return "".join(system.type(line, answers) for line in commands.splitlines())


def type_section(systems):
    """The whole section. Returns the seconds from the first command to the merge."""
    guide = (HERE.parent / "deploy" / "GUIDE.md").read_text(encoding="utf-8")
    section = re.search(r"^## First minutes\n(.*?)^## ", guide, re.M | re.S)[1]
    begin, ticket = time.monotonic(), None
    for place, commands, expected in BLOCK.findall(section):
        for system in {"both": systems, "first": systems[:1], "second": systems[1:]}[place]:
            while True:
                printed = type_block(system, commands, expected, ticket)
                print(f"-- {place}, after {time.monotonic() - begin:.0f} s\n{commands}{printed}")
                wrong = mismatch(expected, printed) if expected else None
                is_late = time.monotonic() - begin > SECONDS_MAX
                if wrong is None or is_late or "status" not in commands:
                    break
                time.sleep(5)  # "a minute later"
            if wrong is not None:
                raise RuntimeError(f"not printed: {wrong}")
            found = TICKET.search(printed)
            ticket = found[0] if found else ticket
    return time.monotonic() - begin


def main():
    """Boots both, types, and switches off."""
    cables = [f"twf{os.getpid() % 10000}{end}" for end in "ab"]
    systems = []
    run("ip", "link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
    try:
        for number, (root, cable) in enumerate(zip(sys.argv[1:3], cables)):
            systems.append(System(root, cable, f"10.84.0.{number + 1}"))
        took = type_section(systems)
        print(f"merged {took:.0f} s after the first command")
        assert took <= SECONDS_MAX, took
    finally:
        for system in systems:
            system.end()
        subprocess.run(["ip", "link", "del", cables[0]], capture_output=True, check=False)


if __name__ == "__main__":
    main()
