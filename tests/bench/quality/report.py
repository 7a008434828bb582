#!/usr/bin/env python3
# report.py - tables and pictures of the results of thinwire-quality-bench.
"""Usage:
    report.py RESULTS.jsonl... [--out FOLDER] [--by KEY]... [--json]

Cases that differ only in their seed form one row. It has the mean and spread of the anchor's
held-out loss, compared with a node alone and with the big batch of the same plan; bits per element
of an outer gradient; bits at the socket per parameter and merge (contribution, result and control);
and bytes of all nodes. If nodes have anchors or models of their own, the loss is that of their
mean, and `own` is the mean of their losses. With several texts, a row also has the loss on the
worst text and, where models are the nodes' own, their mean loss on the nodes' own texts (`at
home`). With a grid of rates (train.lr), a row is the best one; --by KEY separates rows by the named
varied keys only. --out writes loss-tokens.svg and loss-bytes.svg."""
import argparse
import html
import json
import math
import pathlib
import statistics
import sys

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 64, 250, 40, 52
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#000000",
           "#7f7f7f", "#bcbd22"]
RATE = "train.lr"


# ---- reading ----------------------------------------------------------------------------------

def read(paths):
    """Complete lines of all files; if a case occurs twice, the last one."""
    cases = {}
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            try:
                case = json.loads(line)
            except json.JSONDecodeError:
                continue  # truncated by a kill: the bench runs it again
            cases[case["id"]] = case
    return list(cases.values())


def varied(case):
    """The case's keys that had a grid: {"seed": "1", "train.lr": "0.004"}."""
    return dict(word.split("=", 1) for word in case["varied"].split())


def told_apart(groups):
    """{key of a group: label}: a name shared by several groups gets their differing keys."""
    alike, labels = {}, {}
    for name, rest in groups:
        alike.setdefault(name, []).append(dict(rest))
    for name, rest in groups:
        others, mine = alike[name], dict(rest)
        differs = [key for key in mine if len({other.get(key) for other in others}) > 1]
        telling = [key for key in differs
                   if len({other.get(key) for other in others}) == len(others)]
        first = [key for key in ("steps", "nodes", "exact") if key in telling] or telling
        shown = first[:1] or differs
        labels[name, rest] = " ".join([name] + [f"{key}={mine[key]}" for key in shown])
    return labels


def rows_of(cases, by):
    """Cases of one row per (name, kept varied keys, all other keys but seed and rate), each with
    the best among the rates with the most seeds."""
    groups = {}
    for case in cases:
        keys = varied(case)
        kept = {key: value for key, value in keys.items()
                if key != "seed" and (key in by if by else key != RATE)}
        label = " ".join([case["name"]] + [f"{key}={value}" for key, value in kept.items()])
        rest = {"steps": case["steps"], "nodes": case["nodes"], "exact": case["exact"],
                "mix": case.get("mix"), "compute": case.get("compute")}
        rest.update((key, value) for key, value in case["manifest"].items()
                    if key not in keys and key not in (RATE, "model.seed"))
        rate = case["manifest"].get(RATE, "0")
        group = groups.setdefault((label, tuple(sorted(rest.items()))), {})
        group.setdefault(rate, []).append(case)
    labels, rows = told_apart(groups), []
    for key, rates in groups.items():
        seeds = max(len(found) for found in rates.values())
        whole = [rate for rate, found in rates.items() if len(found) == seeds]
        best = min(whole, key=lambda rate, rates=rates: loss_of(rates[rate]))
        rows.append({"label": labels[key], "rate": float(best), "rates": len(rates),
                     "cases": rates[best]})
    return rows


def loss_of(cases):
    """Mean over the seeds; a diverged case is worse than all others."""
    values = [case["anchor"] for case in cases]
    return math.inf if None in values else statistics.fmean(values)


def scale_of(row):
    """The settings that must be equal for two rows to be comparable."""
    case = row["cases"][0]
    return case["params"], case["steps"], case["nodes"]


def fill(rows):
    """Figures of each row, relative to `alone` and `big` of its size if the results have these."""
    def reference(kind, scale):
        found = [loss_of(row["cases"]) for row in rows
                 if row["cases"][0]["kind"] == kind and scale_of(row) == scale]
        return min(found) if found else None
    for row in rows:
        cases = row["cases"]
        values = [case["anchor"] for case in cases if case["anchor"] is not None]
        row["loss"] = loss_of(cases)
        row["spread"] = statistics.stdev(values) if len(values) > 1 else 0.0
        row["seeds"] = len(cases)
        row["bits"] = cases[0]["bits"]
        row["megabytes"] = statistics.fmean(case["bytes"] for case in cases) / 1e6
        row["rounds"] = cases[0]["rounds"]
        row["socket"] = socket_bits(cases[0])
        own = [case["own"] for case in cases if case.get("own") is not None]
        row["own"] = statistics.fmean(own) if own else None
        home = [case["own_at_home"] for case in cases if case.get("own_at_home") is not None]
        row["at_home"] = statistics.fmean(home) if home else None
        row["by_text"] = by_text(cases)
        row["skipped"] = sum(case["skipped"] for case in cases)
        row["refused"] = sum(case["refused"] for case in cases)
        row["alone"] = percent(row["loss"], reference("alone", scale_of(row)))
        row["big"] = percent(row["loss"], reference("big", scale_of(row)))
    return rows


def by_text(cases):
    """{text: mean loss over the seeds}; empty with one text, or if a case diverged."""
    losses = [case.get("by_text", {}) for case in cases]
    if any(None in loss.values() for loss in losses):
        return {}
    return {text: statistics.fmean(loss[text] for loss in losses) for text in losses[0]}


def socket_bits(case):
    """Bits that a node sends in total, per parameter and merge of the whole model."""
    merges = case["rounds"] / int(case["manifest"].get("sync.fragments", 1))
    return 8 * case["bytes"] / (case["params"] * case["nodes"] * merges) if merges else 0.0


def percent(value, reference):
    if reference is None or math.isinf(value):
        return None
    return 100 * (value / reference - 1)


# ---- tables -----------------------------------------------------------------------------------

def table(rows):
    def share(value):
        return f"{value:+8.2f}" if value is not None else "       -"
    width = max([24] + [len(row["label"]) for row in rows])
    lines = [f"{'case':{width}}  rate     loss    +-     %alone    %big   bits  socket       MB"
             "  seeds"]
    for row in rows:
        notes = "".join(f"  {row[key]} {key}" for key in ("skipped", "refused") if row[key])
        if row["own"] is not None:
            notes += f"  own {row['own']:.4f}"
        if row["at_home"] is not None:
            notes += f"  at home {row['at_home']:.4f}"
        if row["by_text"]:
            worst = max(row["by_text"], key=row["by_text"].get)
            notes += f"  worst {row['by_text'][worst]:.4f} ({worst})"
        lines.append(f"{row['label']:{width}}  {row['rate']:<7g} {row['loss']:6.4f}  "
                     f"{row['spread']:5.4f} {share(row['alone'])}{share(row['big'])} "
                     f"{row['bits']:6.2f} {row['socket']:7.2f} {row['megabytes']:8.2f}  "
                     f"{row['seeds']}{notes}")
    return "\n".join(lines)


# ---- pictures ---------------------------------------------------------------------------------

def points_of(row, x):
    """Mean over the seeds of (x, loss) along the curve; x is tokens (0) or bytes (1)."""
    curves = [case["curve"] for case in row["cases"]]
    points = []
    for entries in zip(*curves):
        losses = [entry[2] for entry in entries]
        if None in losses or (x == 1 and entries[0][1] == 0):
            continue
        points.append((statistics.fmean(entry[x] for entry in entries),
                       statistics.fmean(losses)))
    return points


def ticks(low, high):
    """About six round numbers in the range."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-9) / 3))
    while (high - low) / step > 8:
        step *= 2 if round(step / 10 ** math.floor(math.log10(step))) != 2 else 2.5
    value = math.ceil(low / step) * step
    while value <= high:
        yield value
        value += step


def draw(path, title, what, rows, x):
    """Loss against tokens, or against bytes on a logarithmic axis."""
    curves = [(row["label"], points_of(row, x)) for row in rows]
    silent = [(row["label"], row["loss"]) for row, curve in zip(rows, curves) if not curve[1]]
    curves = [curve for curve in curves if curve[1]]
    if not curves:
        return
    xs = [point[0] for _, points in curves for point in points]
    lasts = [points[-1][1] for _, points in curves] + [loss for _, loss in silent]
    low, high = min(lasts), max(lasts)
    low, high = low - 0.05 * (high - low + 0.1), high + 1.2 * (high - low) + 0.1
    left, right = (math.log10(min(xs)), math.log10(max(xs)) + 1e-9) if x == 1 else (0, max(xs))

    def at(point):
        across = (math.log10(point[0]) if x == 1 else point[0]) - left
        return (LEFT + (WIDTH - LEFT - RIGHT) * across / (right - left),
                TOP + (HEIGHT - TOP - BOTTOM) * (high - point[1]) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
           ' font-family="sans-serif" font-size="12">',
           f'<clipPath id="inside"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}"'
           f' height="{HEIGHT - TOP - BOTTOM}"/></clipPath>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">{html.escape(title)}</text>']
    for tick in ticks(low, high):
        y = at((10 ** left if x == 1 else 0, tick))[1]
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.3g}</text>')
    marks = [10.0 ** k for k in range(math.ceil(left), math.floor(right) + 1)] if x == 1 else \
        list(ticks(0, right))
    for mark in marks:
        text = f"{mark / 1e9:g} G" if mark >= 1e9 else f"{mark / 1e6:g} M"
        out.append(f'<text x="{at((mark, low))[0]:.1f}" y="{HEIGHT - BOTTOM + 18}"'
                   f' text-anchor="middle">{text}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}"'
               f' text-anchor="middle">{what}</text>')
    for label, loss in silent:  # cases that send nothing: a line at their loss
        y = at((10 ** left if x == 1 else 0, loss))[1]
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#555"'
                   f' stroke-dasharray="2 3"/><text x="{WIDTH - RIGHT + 4}" y="{y + 4:.1f}"'
                   f' fill="#555">{html.escape(label[:34])} {loss:.3f}</text>')
    for i, (label, points) in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        dash = "" if i < len(COLOURS) else ' stroke-dasharray="6 3"'
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in map(at, points))
        y = TOP + 16 * i + 8
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"'
                   f' clip-path="url(#inside)"{dash}/>'
                   f'<path d="M{WIDTH - RIGHT + 8} {y}h18" stroke="{colour}"'
                   f' stroke-width="2"{dash}/><text x="{WIDTH - RIGHT + 30}" y="{y + 4}">'
                   f'{html.escape(label[:34])} {points[-1][1]:.3f}</text>')
    path.write_text("\n".join(out + ["</svg>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Tables and pictures of quality measurements.")
    parser.add_argument("results", nargs="+")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the pictures")
    parser.add_argument("--by", action="append", default=[], help="a varied key to keep apart")
    parser.add_argument("--only", default="", help="rows whose label holds this")
    parser.add_argument("--json", action="store_true", help="figures instead of a table")
    args = parser.parse_args()
    rows = [row for row in fill(rows_of(read(args.results), args.by))
            if args.only in row["label"]]
    if not rows:
        sys.exit("report: there are no finished cases in these files")
    if args.json:
        keys = ("label", "rate", "loss", "spread", "seeds", "alone", "big", "bits", "socket",
                "megabytes", "rounds", "skipped", "refused", "own", "at_home", "by_text")
        print(json.dumps([{key: row[key] if row[key] != math.inf else None for key in keys}
                          for row in rows], indent=1))
    else:
        print(table(rows))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        draw(args.out / "loss-tokens.svg", "Held-out loss, nats per byte", "tokens of all nodes",
             rows, 0)
        draw(args.out / "loss-bytes.svg", "Held-out loss, nats per byte",
             "bytes sent by all nodes", rows, 1)


if __name__ == "__main__":
    main()
