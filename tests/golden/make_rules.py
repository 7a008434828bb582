#!/usr/bin/env python3
# make_rules.py - outer steps, merges, weights and guard by NumPy, for tests/kernels/test_rules.c.
"""Writes rules.txt, results of outer.h, mix.h, momentum_lead.h, merge.h, rda.h, robust.h and
guard.h of kernels/, and eager.txt, the anchor of one node that takes its outer steps eagerly
(worker/merge/inflight.h), for tests/worker/merge/test_eager.c.

Needs NumPy, which the build and the tests do not: run it by hand when a case is added, and commit
its output. Everything is float64 and written from the equations, not from the C code; inputs
follow from a formula that the test repeats.
"""
import sys

import numpy as np

N, STEPS = 40, 6


def noise(stream, n=N):
    """n numbers in [-0.5, 0.5) that are exact in float32."""
    i = np.arange(n, dtype=np.uint64)
    x = (np.uint64(stream * 1000003) + i * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return (x >> np.uint64(8)).astype(np.float64) / 2**24 - 0.5


def inputs(count, stream, loud):
    """Inputs around a common vector; the first `loud` are 32 times as large and opposite."""
    common = noise(stream)
    rows = [common + noise(stream + 1 + i) / 2 for i in range(count)]
    return np.array([row * (-32 if i < loud else 1) for i, row in enumerate(rows)])


def nesterov(lr, mu, ramp):
    phi, u = noise(2), np.zeros(N)
    for step in range(STEPS):
        delta = noise(20 + step) * (0.25 if step % 2 else 1.0)
        now = mu * min(1, step / ramp) if ramp else mu
        u = now * u + delta
        phi = phi - lr * (delta + now * u)
    return np.concatenate([phi, u])


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


def pull(half):
    anchor, u, own, theirs = (noise(30 + i) for i in range(4))
    way = half * (theirs - own)
    return np.concatenate([anchor + way, u - way])


def mix(alpha):
    return alpha * noise(40) + (1 - alpha) * noise(41)


def shift():
    return noise(42) + (noise(43) - noise(44))


def lead(share, lr, steps, correction):
    """Moves m towards the merge's direction, where delta and v are not 0; never beyond m's norm
    there."""
    m, v, delta = noise(50) / 16, noise(51) ** 2, noise(52) / 8
    v[3::7], delta[2::5] = 0, 0
    led = (v > 0) & (delta != 0)
    root = np.sqrt(v / correction)
    own = np.linalg.norm(m[led] / root[led])
    way = delta / (lr * steps)
    way = way * min(1, own / np.linalg.norm(way[led]))
    return np.where(led, (1 - share) * m + share * root * way, m)


def eager(lr, mu, heavy, nodes):
    """The anchors of one node after each of its outer steps, as in the paper: its own gradient now,
    the others' result one step later (arXiv 2502.12996, Algorithm 3)."""
    anchor, u, seen = np.zeros(N), np.zeros(N), []
    own_before, mean_before, weight = np.zeros(N), np.zeros(N), 1.0
    for step in range(STEPS):
        # Coarse numbers, so that bfloat16 holds all sent and merged values exactly.
        own = np.round(noise(70 + step) * 128) / 128
        delta = weight * own + (mean_before - own_before)
        u = mu * u + (lr * delta if heavy else delta)
        anchor = anchor - (u if heavy else lr * (delta + mu * u))
        seen.append(anchor)
        own_before = weight * own
        mean_before = np.round((own / nodes + noise(80 + step) / 4) * 128) / 128
        weight = np.clip(mean_before @ own / (own @ own), 1 / nodes, 1)
    return np.concatenate(seen)


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
        radius = 1.5 * np.sort(distance)[(len(x) - 1) // 2]
        share = np.minimum(1, np.divide(radius, distance, out=np.ones_like(distance),
                                        where=distance > 0))
        centre = centre + (share[:, None] * way).mean(0)
    return centre


def rates(tokens, steps):
    w = np.array([t * t / s for t, s in zip(tokens, steps)])
    return w / w.sum()


def bound(w):
    """No weight above four times the median; of two, none above 16 times the other."""
    w = np.array(w, dtype=np.float64)
    w = np.minimum(w, (4 if len(w) >= 3 else 16) * np.sort(w)[(len(w) - 1) // 2])
    return w / w.sum()


def guard(norms, steps):
    usual_steps = np.sort(steps)[(len(steps) - 1) // 2]
    steps = np.minimum(steps, 4 * usual_steps)
    size = norms / np.sqrt(steps)
    usual = np.sort(size)[(len(size) - 1) // 2]
    allowed = 8 * usual * np.sqrt(np.maximum(steps / usual_steps, 1))
    return np.where(size > allowed, 0, np.minimum(1, 2 * usual / size))


def write(out, words, values):
    print(*words, file=out)
    print(len(values), *(f"{v:.9g}" for v in values), file=out)


def head(out):
    print(f"# by make_rules.py, NumPy {np.__version__}: a case and its numbers, then how many "
          "values and these", file=out)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    with open(f"{folder}/eager.txt", "w") as out:
        head(out)
        for lr, mu, heavy, nodes in [(0.7, 0.9, 0, 4), (1, 0.375, 0, 2), (0.5, 0.5, 1, 3)]:
            write(out, [lr, mu, heavy, nodes], eager(lr, mu, heavy, nodes))
    with open(f"{folder}/rules.txt", "w") as out:
        head(out)
        for lr, mu, gap, clip in [(0.7, 0.5, 0, 0), (1, 0.5, 1, 0), (1, 0.5, 0, 0.75),
                                  (0.5, 0.9, 0.3, 1.5)]:
            write(out, ["heavyball", lr, mu, gap, clip], heavyball(lr, mu, gap, clip))
        for lr, mu, ramp in [(0.7, 0.9, 0), (1, 0.5, 0), (0.85, 0.375, 4), (0.4, 0, 2)]:
            write(out, ["nesterov", lr, mu, ramp], nesterov(lr, mu, ramp))
        for half in [0.5, 0.35]:
            write(out, ["pull", half], pull(half))
        for alpha in [0, 0.5, 0.9]:
            write(out, ["mix", alpha], mix(alpha))
        write(out, ["shift"], shift())
        write(out, ["delta"], noise(40) - noise(41))
        for share, lr, steps, correction in [(0.5, 0.01, 30, 0.2), (1, 0.001, 2, 1)]:
            write(out, ["lead", share, lr, steps, correction], lead(share, lr, steps, correction))
        for count, loud in [(1, 0), (2, 0), (5, 1), (8, 2), (33, 0)]:
            x = inputs(count, 100 * count, loud)
            tokens = 1000 + 300 * np.arange(count)
            write(out, ["mean", count, loud], (tokens / tokens.sum()) @ x)
            write(out, ["rda", count, loud], rda(x, tokens / tokens.sum()))
        for count, loud in [(5, 0), (5, 1), (6, 1), (8, 2), (13, 3), (64, 15)]:
            x = inputs(count, 100 * count, loud)
            write(out, ["median", count, loud], np.median(x, axis=0))
            write(out, ["trimmed", count, loud], trimmed(x))
            write(out, ["clipped", count, loud], clipped(x))
        for tokens, steps in [((1000, 2000, 3000), (10, 10, 10)), ((4096, 512), (8, 4))]:
            write(out, ["rates", len(tokens), *tokens, *steps], rates(tokens, steps))
        for tokens in [(1,), (4096, 512), (5, 0, 3, 900000)]:
            write(out, ["tokens", len(tokens), *tokens], np.array(tokens) / sum(tokens))
        write(out, ["tokens", 3, 0, 0, 0], np.full(3, 1 / 3))
        for w in [(0.9, 0.1), (0.8, 0.1, 0.1), (0.125, 0.5, 0.25, 0.125), (0.25,) * 4,
                  (0.01, 0.01, 0.49, 0.49)]:
            write(out, ["bound", len(w), *w], bound(w))
        for norms, steps in [((1, 1, 9), (5, 5, 5)), ((1, 1, 3), (5, 5, 5)),
                             ((1, 2, 6), (5, 20, 80)), ((1, 1, 1, 40), (5, 5, 5, 5000)),
                             ((2, 1, 3, 1.5, 4.5), (7, 3, 9, 4, 1)),
                             ((1, 1, 200), (1, 1, 200)), ((1, 1, 600), (1, 1, 200))]:
            write(out, ["guard", len(norms), *norms, *steps],
                  guard(np.array(norms), np.array(steps)))


main()
