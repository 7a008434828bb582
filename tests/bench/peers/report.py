#!/usr/bin/env python3
# report.py - tables and a picture of the results of peers.py.
"""report.py RESULTS [--until NATS,...] [--out FOLDER]

Seconds, bytes and steps of each system until the first evaluation at or below a held-out loss, then
its faults. --out writes peers-bytes.svg, drawn by the quality bench. Of equal runs the last counts.
"""
import argparse
import importlib.util
import json
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


def read(path):
    """The last row of each run: {(label, fault or None): row}."""
    rows = {}
    for line in pathlib.Path(path).read_text(encoding="ascii").splitlines():
        row = json.loads(line)
        label = " ".join([row["system"], *(pair.split("=", 1)[1] for pair in row["set"])])
        rows[label, row.get("fault")] = row
    return rows


def reached(row, until):
    """The first evaluation at or below the loss; None: there is none."""
    return next((point for point in row["curve"] if point["loss"] <= until), None)


def losses(rows, levels):
    """Lines of the table of times and bytes."""
    yield f"{'system':28}" + "".join(f"{f'until {level:g}':>32}" for level in levels)
    for (label, fault), row in rows.items():
        if fault is None:
            cells = [reached(row, level) for level in levels]
            yield f"{label:28}" + "".join(
                f"{point['seconds']:9.0f} s {point['bytes'] / 1e6:8.1f} MB {point['step']:5} steps"
                if point else f"{'-':>32}" for point in cells)


def seconds(value):
    """A time, or that there is none."""
    return "-" if value is None else f"{value:.1f} s"


def faults(rows):
    """Lines of the table of faults."""
    yield (f"{'system':28}{'fault':7}{'witness lost':>14}{'of':>8}{'merges':>8}"
           f"{'longest without':>17}{'back':>12}")
    for (label, fault), row in rows.items():
        if fault is not None:
            lost, back = row["witness_lost_s"], row["hit_back_s"]
            ends = "" if row["merges_go_on"] else "  merges ended"
            ends = ends if row["goes_on"] else "  the run ended"
            yield (f"{label:28}{fault:7}{seconds(lost):>14}{row['window_s']:6.0f} s"
                   f"{row['witness_merges']:8}{seconds(row['witness_unmerged_s']):>17}"
                   f"{seconds(back):>12}{ends}")


def draw(rows, folder):
    """Loss against bytes."""
    spec = importlib.util.spec_from_file_location("quality", HERE.parent / "quality/report.py")
    quality = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(quality)
    curves = [{"label": f"{label}, {row['curve'][-1]['seconds']:.0f} s:",
               "loss": row["curve"][-1]["loss"],
               "cases": [{"curve": [(0, point["bytes"], point["loss"])
                                    for point in row["curve"]]}]}
              for (label, fault), row in rows.items() if fault is None]
    folder.mkdir(parents=True, exist_ok=True)
    quality.draw(folder / "peers-bytes.svg", "Held-out loss, nats per byte",
                 "bytes sent by all nodes", curves, 1)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--until", default="2.45,2.3", help="held-out losses, with commas")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    args = parser.parse_args()
    rows = read(args.results)
    levels = [float(level) for level in args.until.split(",")]
    kinds = {fault is None for _, fault in rows}
    print("\n".join([*(losses(rows, levels) if True in kinds else []),
                     *(faults(rows) if False in kinds else [])]))
    if args.out:
        draw(rows, args.out)


if __name__ == "__main__":
    main()
