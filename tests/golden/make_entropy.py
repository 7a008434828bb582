#!/usr/bin/env python3
# make_entropy.py - payloads of the codecs of chunks as NumPy computes them, like make_codecs.py.
"""Writes entropy.txt: payloads of ecsq*, topk* and sparse8 for some arrays, from
the comments of codec_sparse.c, ecsq.h, rans.h, rice.h and ecsq_encode.c in compress/, without their
code.

Needs NumPy, which the build and the tests do not: run it by hand when a codec is added, and commit
its output. Lines are those of codecs.txt.
"""
import math
import pathlib
import struct

import numpy as np

from make_codecs import CASES, bf16_near, bf16_value, hash32, quotients, scale_of_max

F = np.float32
BLOCK = 4096
SPARSE = len(CASES)  # a further case: one of 29 elements is not 0
# case -> number of elements: two chunks, or few enough to stay raw
ELEMENTS = {"usual": 5000, "tails": 4999, "large": 300, "small": 299, "tiny": 300, "zero": 300,
            "sparse": 5000}


def elements(number, name):
    exponent, has_tails = CASES.get(name, (-20, False))
    values = np.zeros(ELEMENTS[name])
    for i in range(len(values)):
        h = hash32(number, i)
        value = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24) - 510
        is_kept = exponent is not None and (name != "sparse" or h % 29 == 0)
        values[i] = value * (64 if has_tails and h % 61 == 0 else 1) if is_kept else 0
    return np.ldexp(values, exponent or 0).astype(F)


def blocks_of(x):
    return [x[at:at + BLOCK] for at in range(0, len(x), BLOCK)]


# ---- rANS --------------------------------------------------------------------------------------

def frequencies(counts):
    """{symbol: share of 4096}: rounded, then units moved where they cost least and save most."""
    total = sum(counts.values())
    f = {s: max(1, (n * 4096 + total // 2) // total) for s, n in counts.items()}
    while sum(f.values()) > 4096:
        s = min((s for s in sorted(f) if f[s] > 1),
                key=lambda s: (counts[s] / (2 * f[s] - 1), s))
        f[s] -= 1
    while sum(f.values()) < 4096:
        s = max(sorted(f), key=lambda s: (counts[s] / (2 * f[s] + 1), -s))
        f[s] += 1
    return f


def model(f):
    """Frequencies of symbols up to the last one that occurs."""
    out, zeros = b"", 0
    for share in [f.get(s, 0) for s in range(max(f) + 1)]:
        if share and zeros:
            out += bytes([0, zeros - 1])
        zeros = 0 if share else zeros + 1
        if share >= 128:
            out += bytes([128 | share >> 8, share & 255])
        elif share:
            out += bytes([share])
    return out


def rans(symbols, f):
    """Model, count of words, states, words."""
    start, below = {}, 0
    for s in sorted(f):
        start[s], below = below, below + f[s]
    states, words = [1 << 15] * 64, []
    for i in range(len(symbols) - 1, -1, -1):
        s, x = symbols[i], states[i % 64]
        if x >= f[s] << 19:
            words.append(x & 0xFFFF)
            x >>= 16
        states[i % 64] = (x // f[s] << 12) + start[s] + x % f[s]
    return (model(f) + struct.pack("<I", len(words)) + struct.pack("<64I", *states) +
            struct.pack(f"<{len(words)}H", *reversed(words)))


# ---- ecsq --------------------------------------------------------------------------------------

def log2(x):
    """log2 in 2^-16, rounded down, by squaring the mantissa."""
    log = x.bit_length() - 1
    mantissa = x << (31 - log)
    for _ in range(16):
        mantissa = mantissa * mantissa >> 31
        log *= 2
        if mantissa >> 32:
            mantissa >>= 1
            log += 1
    return log


def root_mean_square(x):
    exponent = max(-126, math.frexp(float(np.abs(x).max()))[1] - 1)
    sums = np.zeros(64, F)
    for at in range(0, len(x), 64):
        part = np.ldexp(x[at:at + 64], -exponent).astype(F)
        sums[:len(part)] += part * part
    total = 0.0
    for part in sums.tolist():
        total += part
    return F(math.ldexp(math.sqrt(total / len(x)), exponent))


class Sample:
    """Histogram of |x| / rms in 64ths, and estimates from it for a step of c / 4096 rms."""

    def __init__(self, blocks, scales, limit, dead):
        self.limit, self.dead = limit, dead
        self.bins = [0] * 4096  # payloads of up to 16 blocks are sampled whole
        for x, scale in zip(blocks, scales):
            if scale:
                position = (np.abs(x) * (F(64) / bf16_value(np.array(scale)))).astype(np.int64)
                for bin_ in np.minimum(position, 4095):
                    self.bins[bin_] += 1
        self.below = [0]
        for count in self.bins:
            self.below.append(self.below[-1] + count)
        self.count = self.below[-1]

    def below_code(self, c, a):
        bin_, part = divmod((256 * a - 128 + self.dead) * c // 256, 64)
        if bin_ >= 4096:
            return self.count
        return self.below[bin_] + self.bins[bin_] * part // 64

    def sizes(self, c):
        ends = [self.below_code(c, a + 1) for a in range(self.limit)] + [self.count]
        return [end - before for before, end in zip([0] + ends, ends)]

    def bits(self, c):
        bits = 0
        for a, n in enumerate(self.sizes(c)):
            bits += n * (log2(self.count) - log2(n)) if n else 0
            bits += (n << 16) * (0 if a == 0 else 1 if a < self.limit else 17)
        return bits

    def codes(self, c, in_code, codes):
        """Number of distinct codes expected in a stream of `codes` codes."""
        sizes = self.sizes(c)
        if in_code == 1:
            return sum(n > 0 for n in sizes)
        return sum(n * m * codes >= self.count ** 2 for n in sizes for m in sizes)

    def shift(self, c, first, end):
        total = weight = 0
        for bin_, n in enumerate(self.bins):
            middle = bin_ * 64 + 32
            a = (256 * middle + (128 - self.dead) * c) // (256 * c)
            if first <= a < end:
                total += n * (256 * middle // c - 256 * a)
                weight += n
        mean = (total + 256 * weight + weight // 2) // weight - 256 if weight else 0
        return max(-128, min(127, mean))


def choose(sample, scales, counts, target, in_code, step_min, peak):
    active = sum(n for n, scale in zip(counts, scales) if scale)
    if active == 0:
        return 2 * step_min, 0, 0
    def is_within(c):
        models = 12 * sample.codes(c, in_code, -(-active // in_code))
        heads = 8 * 4 + 16 * len(scales) + 8 * (5 + 4 + 192) + models
        room, cost = (target << 8) * active, heads << 16
        room = (room - cost) // active if cost < room // 2 else (target << 8) // 2
        return sample.bits(c) <= room * sample.count

    edge = F(128 + sample.dead) / F(256)
    low, high = step_min, min(1 << 15, int(F(peak / edge) * F(4095)))
    if is_within(low):
        high = low
    while high - low > low // 1024:
        middle = (low + high) // 2
        if is_within(middle):
            high = middle
        else:
            low = middle + 1
    return high, sample.shift(high, 1, 2), sample.shift(high, 2, sample.limit)


def ecsq(x, target, size_bits, in_code, dead, step_min):
    limit = (1 << size_bits) - 1
    blocks = blocks_of(x)
    sizes = [root_mean_square(block) for block in blocks]
    if dead:
        sizes = [min(size, F(np.abs(block).max() / F(3))) for size, block in zip(sizes, blocks)]
    scales = [int(bf16_near(size)) for size in sizes]
    scales = [scale if scale >= 0x0380 else 0 for scale in scales]
    peak = max([F(0)] + [np.abs(block).max() / bf16_value(np.array(scale))
                         for block, scale in zip(blocks, scales) if scale])
    sample = Sample(blocks, scales, limit, dead)
    c, one, more = choose(sample, scales, [len(b) for b in blocks], target, in_code,
                          step_min, peak)
    sizes, signs, written, decoded = [], "", [], []
    for block, scale in zip(blocks, scales):
        s = F(bf16_value(np.array(scale)) * F(c / 4096))
        if not scale:
            decoded += [F(0)] * len(block)
            continue
        quantised = (np.abs(block) * F(F(1) / s) + F((128 - dead) / 256)).astype(np.int64)
        for a, is_minus in zip(quantised.tolist(), np.signbit(block).tolist()):
            level = F(a) if a >= limit else F((a + (one if a == 1 else more) / 256) if a else 0)
            value = F(level * s)
            decoded.append(-value if is_minus and a else value)
            sizes.append(min(a, limit))
            signs += "01"[int(is_minus)] if a else ""
            if a >= limit:
                written.append(a)
    payload = struct.pack("<Hbb", c, one, more) + struct.pack(f"<{len(scales)}H", *scales)
    if sizes:
        sizes += [0] * (-len(sizes) % in_code)
        codes = [sum(sizes[at + j] << j * size_bits for j in range(in_code))
                 for at in range(0, len(sizes), in_code)]
        counts = {code: codes.count(code) for code in set(codes)}
        coded = rans(codes, frequencies(counts)) if len(counts) > 1 else b""
        kind, body = 1, bytes(codes)
        if len(counts) == 1:
            kind, body = 2, bytes(codes[:1])
        elif len(coded) <= len(codes):
            kind, body = 0, coded
        payload += struct.pack("<BI", kind, len(written))
        payload += struct.pack(f"<{len(written)}H", *written) + body + packed(signs)
    return payload, np.array(decoded, F)


# ---- positions ---------------------------------------------------------------------------------

def packed(bits):
    """Bytes from a text of 0 and 1, the first in the lowest bit."""
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at:at + 8][::-1], 2) for at in range(0, len(bits), 8))


def number(value, width):
    return format(value, f"0{width}b")[::-1] if width else ""


def gaps(positions, r, after):
    text, following = "", 0
    for i, position in enumerate(positions):
        gap, following = position - following, position + 1
        text += "0" * (gap >> r) + "1" + number(gap & (1 << r) - 1, r) + after(i)
    return text


def topk(x, k, r):
    means, text, decoded = [], "", []
    for chunk in blocks_of(x):
        size = np.abs(chunk)
        kept = sorted(np.argsort(-size, kind="stable")[:-(-k * len(chunk) // BLOCK)].tolist())
        total = 0.0
        for i in kept:
            total += float(size[i])
        mean = int(bf16_near(F(total / len(kept))))
        means.append(mean)
        values = np.zeros(len(chunk), F)
        if mean:
            minus = np.signbit(chunk)
            text += gaps(kept, r, lambda i, minus=minus, kept=kept: "01"[int(minus[kept[i]])])
            values[kept] = np.where(minus[kept], F(-1), F(1)) * bf16_value(np.array(mean))
        decoded.append(values)
    return struct.pack(f"<{len(means)}H", *means) + packed(text), np.concatenate(decoded)


def sparse8(x):
    payload, decoded = b"", []
    for chunk in blocks_of(x):
        scale = scale_of_max(chunk[None], 127)
        codes = np.rint(quotients(chunk[None], scale))[0].astype(np.int64)
        decoded.append(codes.astype(F) * bf16_value(scale)[0] + F(0))
        positions = np.flatnonzero(codes).tolist()
        r = 0
        while positions and 32 * (2 * len(chunk) - len(positions)) >= 133 * len(positions) << r:
            r += 1
        listed = packed(gaps(positions, r, lambda i: "")) + codes[positions].astype("i1").tobytes()
        is_dense = len(listed) >= len(chunk)
        payload += struct.pack("<HH", int(scale[0]), len(chunk) if is_dense else len(positions))
        payload += codes.astype("i1").tobytes() if is_dense else listed
    return payload, np.concatenate(decoded)


CODECS = {
    "ecsq4": lambda x: ecsq(x, 1024, 5, 1, 0, 1 << 9),
    "ecsq3": lambda x: ecsq(x, 768, 4, 2, 0, 1 << 10),
    "ecsq2": lambda x: ecsq(x, 512, 3, 2, 0, 1 << 11),
    "ecsq1": lambda x: ecsq(x, 256, 3, 2, 40, 1 << 11),
    "ecsq05": lambda x: ecsq(x, 128, 3, 2, 52, 1 << 11),
    "topk256": lambda x: topk(x, 256, 3),
    "topk64": lambda x: topk(x, 64, 5),
    "topk32": lambda x: topk(x, 32, 6),
    "sparse8": sparse8,
}


def main():
    lines = []
    for codec, make in CODECS.items():
        for index, name in enumerate([*CASES, "sparse"]):
            coded, decoded = make(elements(index, name))
            total = sum((i + 1) * int(bits) for i, bits in enumerate(decoded.view(np.uint32)))
            lines.append(f"{codec} {name} {ELEMENTS[name]} {coded.hex()} {total % 2 ** 64:016x}\n")
    pathlib.Path(__file__).with_name("entropy.txt").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
