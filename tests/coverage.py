#!/usr/bin/env python3
# coverage.py - do the corpora of tests/fuzz reach what they are meant to? Lines of every decoder.
"""Usage:
    coverage.py [--lines] [TARGET...]
Builds the replay of the named fuzz targets, or of all in the table, in build/coverage (gcc's
--coverage, no optimisation), runs each over its corpus alone, and prints how many lines of its
decoders that reached. Exit status 1 where one is below 90 %. --lines: the lines that were not."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
LEAST = 0.9

CODECS = ("block.h", "codec_bf16.c", "codec_int8.c", "codec_int4.c",
          "codec_e3m0.c", "codec_sign.c", "codec_ecsq.c", "codec_topk.c",
          "codec_sparse8.c", "rice.h")
ENCODERS = (r"encode|^quantise|bound|row_of|mean_of|rms_of|measure|positions_bytes|lose|"
            r"put_(chunk|codes)|bf16_round|bits_(put|pad)|^(digit|part|rms|mean)$|_words_|_search$|"
            r"block_(magnitude|max|scale|lift|factor|unit|store|put|sum|expect)|^fetch_next$")
ECSQ = ("ecsq_decode.c", "ecsq_isa.h", "ecsq_avx2.h")
ECSQ_ENCODERS = "^tw_ecsq_(size|sizes|sizes_avx2|pack|make.*|signs_put|set_.*)$"

# target -> files of compress/ that it should reach, without functions that take no foreign bytes
TABLE = {
    "fuzz_codec": {**{name: "" for name in CODECS}, **{name: "^tw_ecsq_set_" for name in ECSQ},
                   "codec_ecsq.c": "encode_at"},  # sets are of arrays longer than its inputs
    "fuzz_decode": {**{name: ENCODERS for name in CODECS}, **{name: ECSQ_ENCODERS for name in ECSQ},
                    "codec_auto.c": "^(bound|tw_auto_(is_ecsq|bytes_min|put.*)|encode)$"},
    "fuzz_auto": {"codec_auto.c": "^(bound|tw_auto_rung|tw_auto_bytes_min|tw_auto_put.*|encode)$"},
    "fuzz_lattice": {"lattice.c": "encode|bound|exponent|distance", "lattice_ref.c": "encode"},
    "fuzz_pack": {"pack.c": "^(tw_pack|tw_pack_bound|tw_packer_create|take_plane|rotated)$"},
    "fuzz_rans": {"rans.c": "is_less|cheapest|best|model_fit|model_encode", "rans_plain.c": "",
                  "rans_avx2.c": ""},
}


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **more)
    if done.returncode != 0:
        sys.exit(f"coverage.py: {' '.join(map(str, command))}:\n{done.stdout[-4000:]}{done.stderr}")
    return done.stdout


def build(targets):
    flags = "--coverage -O0 -fno-inline"  # some files ask for -O3
    run("cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", "-DTW_TESTS=ON",
        f"-DCMAKE_C_FLAGS={flags}", "-DTW_CUDA=OFF", env={**os.environ, "CC": "gcc"})
    run("cmake", "--build", BUILD, "--target", *(f"{target}_replay" for target in targets))


def lines_of(target):
    """{file: {line: (count, function)}} of what the target's corpus ran, files of compress/."""
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    run(BUILD / "bin" / f"{target}_replay", ROOT / "tests" / "fuzz" / "corpus" / target)
    files = {}
    for data in BUILD.rglob("*.gcda"):
        report = json.loads(run("gcov", "--json-format", "--stdout", data, cwd=BUILD))
        for file in report["files"]:
            path = (pathlib.Path(report["current_working_directory"]) / file["file"]).resolve()
            if path.parent != ROOT / "compress":
                continue
            lines = files.setdefault(path.name, {})
            names = {number: function["name"] for function in file["functions"]
                     for number in range(function["start_line"], function["end_line"] + 1)}
            for line in file["lines"]:
                number = line["line_number"]
                count, _ = lines.get(number, (0, ""))
                lines[number] = (count + line["count"], names.get(number, ""))
    return files


def report(target, show_lines):
    files, low = lines_of(target), []
    for name, others in TABLE[target].items():
        lines = {number: count for number, (count, function) in files.get(name, {}).items()
                 if others == "" or not re.search(others, function)}
        reached = sum(count > 0 for count in lines.values())
        share = reached / len(lines) if lines else 0.0
        print(f"{target:14} {name:16} {reached:4} of {len(lines):4} lines  {100 * share:5.1f} %")
        if share < LEAST:
            low.append(f"{target}: {name}")
        if show_lines:
            print("".join(f"    {name}:{number}\n" for number, count in sorted(lines.items())
                          if count == 0), end="")
    return low


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    targets = options.targets or list(TABLE)
    for target in targets:
        if target not in TABLE:
            sys.exit(f"coverage.py: no row for {target}; there are {', '.join(TABLE)}")
    build(targets)
    low = [name for target in targets for name in report(target, options.lines)]
    if low:
        sys.exit(f"coverage.py: below {100 * LEAST:.0f} %: {', '.join(low)}")


if __name__ == "__main__":
    main()
