#!/usr/bin/env python3
# replay_long.py - three daemons are recorded for long, with a kill and a stop; each log is repeated
# in full, and a planted difference is named.
"""Usage: replay_long.py BIN [--seconds 3600] [--step-us 50000] [--json FILE]"""
import argparse
import ctypes
import ctypes.util
import json
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import nodes

MAGIC = b"TWFLIGHT"


class Frames:
    """The zstd library, by its C functions."""

    def __init__(self):
        self.library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
        for name in ("ZSTD_decompress", "ZSTD_compress", "ZSTD_compressBound"):
            getattr(self.library, name).restype = ctypes.c_size_t

    def unpack(self, packed, size):
        """The bytes of a frame."""
        out = ctypes.create_string_buffer(size)
        done = self.library.ZSTD_decompress(out, ctypes.c_size_t(size), packed,
                                            ctypes.c_size_t(len(packed)))
        assert done == size, done
        return bytearray(out.raw)

    def pack(self, plain):
        """A frame with these bytes."""
        most = self.library.ZSTD_compressBound(ctypes.c_size_t(len(plain)))
        out = ctypes.create_string_buffer(most)
        size = self.library.ZSTD_compress(out, ctypes.c_size_t(most), bytes(plain),
                                          ctypes.c_size_t(len(plain)), 3)
        assert size <= most, size
        return out.raw[:size]


def read_blocks(frames, path):
    """The blocks of one file of a flight recorder (daemon/recorder/recorder.h)."""
    packed, blocks = path.read_bytes(), []
    assert packed.startswith(MAGIC), path
    at = len(MAGIC)
    while at + 8 <= len(packed):
        size, unpacked = struct.unpack_from("<II", packed, at)
        blocks.append(frames.unpack(packed[at + 8:at + 8 + size], unpacked))
        at += 8 + size
    return blocks


def write_blocks(frames, path, blocks):
    """Writes such a file."""
    out = bytearray(MAGIC)
    for block in blocks:
        packed = frames.pack(block)
        out += struct.pack("<II", len(packed), len(block)) + packed
    path.write_bytes(out)


def find_ends(block):
    """The places of all records that end an event."""
    ends, at = [], 0
    while at < len(block):
        tag = chr(block[at])
        if tag in "AMC":
            at += 5 + struct.unpack_from("<I", block, at + 1)[0]
        elif tag == "E":
            at += 13 + struct.unpack_from("<I", block, at + 9)[0]
        else:
            if tag == "D":
                ends.append(at)
            at += {"R": 33, "S": 65, "D": 13}[tag]
    return ends


def plant(log, folder):
    """A copy of the log's newest file with one action changed; the number of its event in it."""
    frames = Frames()
    folder.mkdir()
    source = max(log.iterdir(), key=lambda path: path.name)
    blocks = read_blocks(frames, source)
    ends = [(block, at) for block in blocks for at in find_ends(block)]
    changed = next(k for k in range(len(ends) // 2, len(ends))
                   if struct.unpack_from("<I", ends[k][0], ends[k][1] + 1)[0] > 0)
    block, at = ends[changed]
    block[at + 5] ^= 1
    write_blocks(frames, folder / source.name, blocks)
    return changed + 1


def replay(tool, *args):
    """(exit status, answer, seconds) of `thinwire replay --json`."""
    begin = time.monotonic()
    done = subprocess.run([tool, "replay", *map(str, args), "--json"], capture_output=True,
                          text=True, check=False)
    assert done.returncode in (0, 1) and done.stdout, done
    return done.returncode, json.loads(done.stdout), time.monotonic() - begin


def run_group(group, seconds):
    """The nodes run for so long; one is killed after a third, one stands still after two thirds."""
    for idx in range(group.count):
        group.start(idx)
    begin = time.monotonic()

    def wait_until(share):
        while time.monotonic() - begin < share * seconds:
            time.sleep(1)
            assert all(process.poll() is None for process in group.processes), "a daemon ended"

    wait_until(1 / 3)
    group.kill(1)
    group.start(1)
    wait_until(2 / 3)
    group.send(2, signal.SIGSTOP)
    time.sleep(min(30, seconds / 10))
    group.send(2, signal.SIGCONT)
    wait_until(1)


def check(group, seconds):
    """Each log repeats, the nodes agree, and the planted difference is named; the figures."""
    logs = [next(group.folder.glob(f"n{idx}/*/recorder")) for idx in range(group.count)]
    tool, figures = group.tool("thinwire"), []
    for idx, log in enumerate(logs):
        code, said, took_s = replay(tool, log)
        size = sum(path.stat().st_size for path in log.iterdir())
        figures.append({"node": said["node"], "events": said["events"], "actions": said["actions"],
                        "rounds": said["rounds"], "starts": said["starts"], "log_bytes": size,
                        "log_bytes_per_s": size / seconds, "replay_s": took_s})
        print(json.dumps(figures[-1]), flush=True)
        assert code == 0 and said["first_difference"] is None and said["gaps"] == 0, said
        assert said["starts"] == (2 if idx == 1 else 1), said
        assert said["rounds"] >= 10, said
    for other in logs[1:]:
        code, said, _ = replay(tool, logs[0], "--against", other)
        assert code == 0, said
    at = plant(logs[0], group.folder / "planted")
    code, said, _ = replay(tool, group.folder / "planted")
    event = figures[0]["events"] - said["events"] + at  # numbers go on over the files of a start
    assert code == 1 and said["first_difference"] == event, (event, said)
    print(f"a change of event #{event} is named")
    return figures


def main():
    """Runs the group in a folder of its own."""
    options = argparse.ArgumentParser()
    options.add_argument("bin", type=pathlib.Path)
    options.add_argument("--seconds", type=float, default=3600)
    options.add_argument("--step-us", type=int, default=50000)
    options.add_argument("--json", type=pathlib.Path)
    given = options.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tw_replay_long_"))
    group = nodes.Nodes(given.bin, folder, 3, step_us=given.step_us)
    try:
        run_group(group, given.seconds)
    finally:
        group.end()
    figures = check(group, given.seconds)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="ascii")
    shutil.rmtree(folder)
    print(f"ok: {sum(row['events'] for row in figures)} events of {given.seconds:.0f} s repeated")


if __name__ == "__main__":
    sys.exit(main())
