#!/usr/bin/env python3
# size.py - the size of the tree: files, lines, asserts and words.
"""Usage: size.py [REVISION]

Counts files, lines, the mean and the largest file, and asserts per 1,000 lines of each room; then
lines of tests and words of documents. Reads the index, or a revision.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = ("base", "proto", "compress", "kernels", "sync", "daemon", "worker", "deploy")
CODE = (".c", ".h", ".cu", ".cuh", ".cc", ".py")
ASSERT = re.compile(r"\b(TW_ASSERT|_Static_assert|static_assert)\b")


def git(*arguments):
    """Output of git, as bytes."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def texts(revision):
    """Yields path and text of each file of the tree that is text."""
    names = git("ls-tree", "-rz", "--name-only", revision) if revision else git("ls-files", "-z")
    paths = [path for path in names.decode().split("\0")
             if path.endswith(CODE + (".md", ".sh")) and "/corpus/" not in path]
    asked = "".join(f"{revision}:{path}\n" for path in paths).encode()
    answer = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, input=asked, check=True,
                            capture_output=True).stdout
    at = 0
    for path in paths:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[2])
        yield path, answer[end + 1:end + 1 + size].decode(errors="replace")
        at = end + 1 + size + 1


def main():
    """Prints the table."""
    revision = sys.argv[1] if len(sys.argv) > 1 else ""
    lines, asserts = collections.defaultdict(list), collections.Counter()
    words = {"documents": 0, "RECORDS": 0}
    for path, text in texts(revision):
        room = path.split("/")[0]
        if path.endswith(".md"):
            words["RECORDS" if path.endswith("/RECORDS.md") else "documents"] += len(text.split())
        elif room == "tests" or room in ROOMS and path.endswith(CODE):
            lines[room].append((text.count("\n"), path))
            asserts[room] += len(ASSERT.findall(text))
    print(f"{'room':10} files   lines  mean  largest  asserts/1000")
    sums = [((room,), room) for room in ROOMS] + [(ROOMS, "product"), (("tests",), "tests")]
    for rooms, name in sums:
        found = [one for room in rooms for one in lines[room]]
        total, largest = sum(count for count, _ in found), max(found, default=(0, ""))
        rate = 1000 * sum(asserts[room] for room in rooms) / max(total, 1)
        print(f"{name:10} {len(found):5} {total:7} {total // max(len(found), 1):5} {largest[0]:8}"
              f"  {rate:12.1f}")
    print(f"words of documents: {words['documents']:,}, and of RECORDS.md: {words['RECORDS']:,}")


main()
