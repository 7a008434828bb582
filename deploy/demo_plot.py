"""demo_plot.py - the loss curves of a demo as an SVG picture. Standard library only."""

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 46, 52
COLOURS = ["#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b"]
SOLO, ANCHOR = "#d55e00", "#000000"


def _ticks(low, high, count):
    """Round numbers inside [low, high]."""
    raw = (high - low) / max(count, 1)
    step = 10.0
    for power in range(-4, 7):
        found = [m * 10 ** power for m in (1, 2, 5) if m * 10 ** power >= raw]
        if found:
            step = found[0]
            break
    value = -(-low // step) * step
    while value <= high + 1e-9:
        yield value
        value += step


def _series(node, key):
    return [(row["steps"], row[key]) for row in node["losses"] if row.get(key) is not None]


def write_curves(path, facts):
    """Validation loss of each node, of the anchor and of the solo node against inner steps."""
    curves = []
    for i, node in enumerate(facts["nodes"]):
        curves.append((node["name"], COLOURS[i % len(COLOURS)], "1.5", "",
                       _series(node, "live_nats")))
    curves.append(("anchor", ANCHOR, "2.5", "", _series(facts["nodes"][0], "anchor_nats")))
    curves.append(("solo", SOLO, "2.5", "6 4", _series(facts["solo"], "live_nats")))
    points = [point for curve in curves for point in curve[4]]
    if not points:
        points = [(0, 0.0), (1, 1.0)]
    steps_max = max(x for x, _ in points) or 1
    low, high = min(y for _, y in points), max(y for _, y in points)
    # The first value is far above the rest: the plot shows the range below it.
    later = sorted(y for x, y in points if x > 0)
    if later:
        high = min(high, later[-1] + 0.25 * (later[-1] - low) + 0.05)
    low -= 0.05 * (high - low)

    def at(x, y):
        return (LEFT + (WIDTH - LEFT - RIGHT) * x / steps_max,
                TOP + (HEIGHT - TOP - BOTTOM) * (high - min(y, high)) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
           ' font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="26" font-size="16">Validation loss, nats per byte; together with'
           f' {facts["bytes_ratio"] or 0:.0f} times fewer bytes than data parallel</text>']
    for tick in _ticks(low, high, 7):
        y = at(0, tick)[1]
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(0, steps_max, 8):
        x = at(tick, low)[0]
        out.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v5" stroke="#888"/>'
                   f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">'
                   f'{tick:g}</text>')
    out.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none"'
               ' stroke="#888"/>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
               'inner steps of a node</text>')
    label_y = []  # (height of the curve's end, name, colour, value)
    for name, colour, width, dash, series in curves:
        if not series:
            continue
        line = " ".join(f"{at(x, y)[0]:.1f},{at(x, y)[1]:.1f}" for x, y in series)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}"'
                   f' stroke-width="{width}" stroke-dasharray="{dash}"/>')
        label_y.append((at(*series[-1])[1], name, colour, series[-1][1]))
    label_y.sort()
    ceiling = HEIGHT - BOTTOM
    for i in reversed(range(len(label_y))):  # labels at the right, moved apart
        y, name, colour, value = label_y[i]
        y = min(y, ceiling)
        ceiling = y - 17
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y + 4:.1f}" fill="{colour}">{name}'
                   f' {value:.3f}</text>')
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")
