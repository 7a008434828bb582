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

CODECS = ("codec_row.h", "codec_fixed.c", "codec_sparse.c", "rice.h")
ENCODERS = (r"encode|quantise|bound|measure|positions_bytes|lose|put_(chunk|codes)|bits_(put|pad)|"
            r"_(digit|part|mean)$|^(above|largest|probe|is_done|narrow|count_above|list_)|"
            r"topk_select$|block_(max|scale|scales|lift|factor|unit|store|put|sum|expect)|"
            r"magnitude_of$|fetch_next$")

AUTO_ENCODERS = (r"^(bound|encode|is_ecsq|tw_auto_(rung|bytes_min|encode)|tw_budget_choose|"
                 r"put_.*|try_.*|rung_at|choose_at|price_of_nothing|number_of|bits_of|piece_size|"
                 r"squares|held.*|"
                 r"sample|measure|add_cells|cut|piece_end|pieces_count|rate_for)$")

# target -> files of compress/ that it should reach, without functions that take no foreign bytes
TABLE = {
    "fuzz_codec": {**{name: "" for name in CODECS}, "ecsq_decode.c": ""},
    "fuzz_decode": {**{name: ENCODERS for name in CODECS}, "ecsq_decode.c": "",
                    "codec_auto.c": AUTO_ENCODERS},
    "fuzz_auto": {"codec_auto.c": AUTO_ENCODERS},
    "fuzz_lattice": {"lattice.c": "encode|bound|exponent|distance"},
    "fuzz_pack": {"pack.c": "^(tw_pack|tw_pack_bound|tw_packer_create|take_plane|rotated)$"},
    "fuzz_rans": {"rans.c": "is_less|cheapest|best|model_fit|model_encode",
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
    run(BUILD / "bin" / f"{target}_replay", ROOT / "tests" / "fuzz" / "corpus" / f"{target}.tar")
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
