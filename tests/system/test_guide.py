#!/usr/bin/env python3
# test_guide.py - runs the commands of deploy/GUIDE.md as printed and compares their output.
"""Usage: test_guide.py BIN

Blocks marked `sh run` are run by one bash in a new home folder; a plain `sh` block needs a comment
`<!-- not run: REASON -->` above it. A `text` block right below a `sh run` block is its output: each
line must be printed, in order. There `...` stands for anything, and a number for any number.
Ports of 127.0.0.1 are replaced by free ones; they are the only change.
"""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import ports

HERE = pathlib.Path(__file__).resolve().parent
GUIDE = HERE.parents[1] / "deploy" / "GUIDE.md"
BLOCK = re.compile(r"^```(sh run|sh|text)\n(.*?)^```\n", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: \w[^>]*-->\n$")
UNITS = {"B", "kB", "MB", "GB", "TB", "us", "ms", "s", "min", "h"}
SECONDS_MAX = 240
TEXT_BYTES = 1500000


def blocks_of(guide):
    """[(line, commands, expected output or None)] of the blocks to run."""
    found, end = [], None
    for match in BLOCK.finditer(guide):
        kind, body = match.groups()
        line = guide.count("\n", 0, match.start()) + 1
        if kind == "sh" and not NOT_RUN.search(guide[:match.start()]):
            sys.exit(f"FAIL: GUIDE.md:{line}: mark the block `sh run`, or say why it is not run")
        if kind == "sh run":
            found.append([line, body, None])
        elif kind == "text" and found and match.start() == end:
            found[-1][2] = body
        end = match.end()
    return found


def with_free_ports(text):
    """Returns `text` with a free port in place of each port of 127.0.0.1."""
    free = {}

    def replace(match):
        if match[0] not in free:
            free[match[0]] = str(ports.hold())
        return free[match[0]]
    return re.sub(r"(?<=127\.0\.0\.1:)\d+", replace, text)


def text_file(path):
    """Paragraphs of made-up sentences, the same on every machine."""
    rng = random.Random(7)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(2000)]
    with open(path, "w", encoding="utf-8") as out:
        while out.tell() < TEXT_BYTES:
            for _ in range(5):
                out.write(" ".join(rng.choices(words, k=12)).capitalize() + ".\n")
            out.write("\n")


def pattern_of(line):
    """A line of the guide as a regular expression."""
    parts, after_number = [], False
    for word in line.split():
        if "..." in word:
            parts.append(".*".join(re.escape(piece) for piece in word.split("...")))
            after_number = False
        elif after_number and word.strip("():;,") in UNITS: # 65 s may be 1 min 5 s
            parts.append(r"\S+(?:\s+\d\S*\s+\S+)?")
            after_number = False
        else:
            after_number = re.search(r"\d", word) is not None
            parts.append(r"\S+" if after_number else re.escape(word))
    return re.compile(r"\s+".join(parts).replace(r"\s+.*", ".*") + "$")


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def mismatch(expected, printed):
    """The line of the guide that was not printed in its place, or None. On a busy machine a command
    says that it waits."""
    printed, at, may_skip = lines_of(printed), 0, False
    printed = [line for line in printed if not line.startswith("thinwire: waiting for the ")]
    for line in lines_of(expected):
        if line == "...":
            may_skip = True
            continue
        pattern = pattern_of(line)
        while may_skip and at < len(printed) and not pattern.match(printed[at]):
            at += 1
        if at >= len(printed) or not pattern.match(printed[at]):
            return line
        at, may_skip = at + 1, False
    return None if may_skip or at == len(printed) else f"(nothing), but printed was: {printed[at]}"


def script_of(blocks):
    """All blocks as one script that prints `@@ N` before block N and ends at the first failure."""
    lines = ["set -e", "exec 2>&1"]
    for number, (_, commands, _) in enumerate(blocks):
        lines += [f"echo '@@ {number}'", commands]
    return "\n".join(lines) + "\necho '@@ end'\n"


def end_daemons(home, output):
    """Daemons that a failure left behind: `thinwire start` printed their processes."""
    for pid in re.findall(r"It runs as process (\d+)", output):
        try:
            if str(home).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass # it has ended


def zone_of_three():
    """A zone in which it is three in the night: the hours of the examples are by day."""
    now = time.gmtime()
    behind = (now.tm_hour * 60 + now.tm_min - 3 * 60) % (24 * 60)
    return f"NIGHT{behind // 60:02}:{behind % 60:02}"


def run(blocks, binaries, home):
    """(exit status, what was printed)"""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("THINWIRE")}
    environment.update(HOME=str(home), TZ=zone_of_three(), LC_ALL="C.UTF-8",
                       PATH=f"{binaries}:{os.environ['PATH']}")
    (home / "try").mkdir()
    text_file(home / "try" / "text.txt")
    (home / "script").write_text(script_of(blocks))
    with open(home / "output", "wb") as out:
        child = subprocess.Popen(["bash", home / "script"], cwd=home / "try", env=environment,
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 start_new_session=True)
        try:
            status = child.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            status = f"none after {SECONDS_MAX} s"
    return status, (home / "output").read_text(encoding="utf-8", errors="replace")


def judge(blocks, status, output):
    """Sentences about what is not as the guide has it."""
    parts = re.split(r"^@@ (\d+|end)\n", output, flags=re.M)
    printed = dict(zip(parts[1::2], parts[2::2]))
    for number, (line, commands, expected) in enumerate(blocks):
        text = printed.get(str(number))
        if text is None or status != 0 and str(number + 1) not in printed and "end" not in printed:
            yield f"GUIDE.md:{line}: status {status} in\n{commands}{text or ''}"
            return
        if expected is not None:
            wrong = mismatch(expected, text)
            if wrong is not None:
                yield f"GUIDE.md:{line}: expected: {wrong}\n-- printed:\n{text}"


def main():
    blocks = blocks_of(with_free_ports(GUIDE.read_text(encoding="utf-8")))
    binaries = pathlib.Path(sys.argv[1]).resolve()
    home, output = pathlib.Path(tempfile.mkdtemp(prefix="tw_guide_", dir="/tmp")), ""
    try:
        status, output = run(blocks, binaries, home)
        findings = list(judge(blocks, status, output.replace(str(home), "~")))
        for log in sorted(home.glob("try/*/log")) if findings else ():
            print(f"-- {log.name}", "\n".join(log.read_text().splitlines()[-5:]), sep="\n")
    finally:
        end_daemons(home, output)
        shutil.rmtree(home, ignore_errors=True)
    for finding in findings:
        print(f"FAIL: {finding}")
    if findings or status != 0:
        sys.exit(1)
    print(f"{len(blocks)} blocks of the guide do what it says")


if __name__ == "__main__":
    main()
