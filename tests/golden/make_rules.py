#!/usr/bin/env python3
# make_rules.py - outer steps, merges and guard by NumPy, for tests/kernels/test_rules.c.
"""Writes rules.txt: what outer.h, merge.h, rda.h, robust.h and guard.h of kernels/ come to.

Wants NumPy, which the build and the tests do not: run it by hand when a case is added, and commit
what it writes. Everything is float64 and written from the equations, not from the C code; inputs
follow from a formula that the test repeats.
"""
import sys

import numpy as np

N, STEPS = 40, 6


def noise(stream, n=N):
    """n numbers in [-0.5, 0.5) that float32 holds exactly."""
    i = np.arange(n, dtype=np.uint64)
    x = (np.uint64(stream * 1000003) + i * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return (x >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5


def inputs(count, stream, loud):
    """Around a common vector; the first `loud` are 32 times as large and the other way."""
    common = noise(stream)
    rows = [common + noise(stream + 1 + i) / 2 for i in range(count)]
    return np.array([row * (-32 if i < loud else 1) for i, row in enumerate(rows)])


def heavyball(lr, mu, gap, clip):
    phi, u = noise(1), np.zeros(N)
    for step in range(STEPS):
        delta = noise(10 + step) * (0.25 if step % 2 else 1.0)
        size = np.linalg.norm(lr * delta)
        penalty = 1 + gap * (1 - mu) * np.linalg.norm(u) / size
        u = mu * u + lr * delta / penalty
        if clip > 0:
            most = clip * np.sqrt(np.mean((lr * delta) ** 2)) / (1 - mu)
            u = np.clip(u, -most, most)
        phi = phi - u
    return np.concatenate([phi, u])


def rda(x, w):
    norms = np.linalg.norm(x, axis=1)
    rho = np.sum(w * norms)
    units = np.array([row / norm if norm > 0 else row for row, norm in zip(x, norms)])
    d = (w[:, None] * units).sum(0)
    length = np.linalg.norm(d)
    return rho * d / length if length > 1e-2 else (w[:, None] * x).sum(0)


def trimmed(x):
    cut = len(x) // 4
    return np.sort(x, axis=0)[cut:len(x) - cut].mean(0)


def clipped(x):
    centre = np.median(x, axis=0)
    for _ in range(3):
        way = x - centre
        distance = np.linalg.norm(way, axis=1)
        radius = np.sort(distance)[(len(x) - 1) // 2]
        share = np.minimum(1, np.divide(radius, distance, out=np.ones_like(distance),
                                        where=distance > 0))
        centre = centre + (share[:, None] * way).mean(0)
    return centre


def rates(tokens, steps):
    w = np.array([t * t / s for t, s in zip(tokens, steps)])
    return w / w.sum()


def guard(norms, steps):
    steps = np.minimum(steps, 64 * np.sort(steps)[(len(steps) - 1) // 2])
    size = norms / np.sqrt(steps)
    usual = np.sort(size)[(len(size) - 1) // 2]
    return np.where(size > 4 * usual, 0, np.minimum(1, 2 * usual / size))


def write(out, words, values):
    print(*words, file=out)
    print(len(values), *(f"{v:.9g}" for v in values), file=out)


def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else "rules.txt", "w") as out:
        print(f"# by make_rules.py, NumPy {np.__version__}: a case and its numbers, then how many "
              "values and these", file=out)
        for lr, mu, gap, clip in [(0.7, 0.5, 0, 0), (1, 0.5, 1, 0), (1, 0.5, 0, 0.75),
                                  (0.5, 0.9, 0.3, 1.5)]:
            write(out, ["heavyball", lr, mu, gap, clip], heavyball(lr, mu, gap, clip))
        for count, loud in [(1, 0), (2, 0), (5, 1), (8, 2), (33, 0)]:
            x = inputs(count, 100 * count, loud)
            tokens = 1000 + 300 * np.arange(count)
            write(out, ["rda", count, loud], rda(x, tokens / tokens.sum()))
        for count, loud in [(5, 0), (5, 1), (6, 1), (8, 2), (13, 3), (64, 15)]:
            x = inputs(count, 100 * count, loud)
            write(out, ["median", count, loud], np.median(x, axis=0))
            write(out, ["trimmed", count, loud], trimmed(x))
            write(out, ["clipped", count, loud], clipped(x))
        for tokens, steps in [((1000, 2000, 3000), (10, 10, 10)), ((4096, 512), (8, 4))]:
            write(out, ["rates", len(tokens), *tokens, *steps], rates(tokens, steps))
        for norms, steps in [((1, 1, 9), (5, 5, 5)), ((1, 1, 3), (5, 5, 5)),
                             ((1, 2, 6), (5, 20, 80)), ((1, 1, 1, 40), (5, 5, 5, 5000)),
                             ((2, 1, 3, 1.5, 4.5), (7, 3, 9, 4, 1))]:
            write(out, ["guard", len(norms), *norms, *steps],
                  guard(np.array(norms), np.array(steps)))


main()
