#!/usr/bin/env python3
# make_codecs.py - payloads of codecs as NumPy computes them for tests/compress/test_codec_golden.c.
"""Writes codecs.txt: payloads of each block codec for some arrays, from the equations in
the comments of compress/codec_fixed.c alone.

Needs NumPy, which the build and the tests do not: run it by hand when a codec is added, and commit
its output. The arrays follow from a formula that the test repeats.

A line: codec, case, elements, payload in hex, sum over i of (i + 1) * (bits of D(x)[i]) mod 2^64.
"""
import pathlib

import numpy as np

ELEMENTS = 300  # whole blocks and an incomplete one
F = np.float32
# case -> (exponent of the elements, whether some are 64 times as large)
CASES = {"usual": (-20, False), "tails": (-33, True), "large": (100, True), "small": (-110, True),
         "tiny": (-140, False), "zero": (None, False)}


def hash32(case, index):
    """case, index -> 32 bits; all arithmetic modulo 2^32."""
    x = (case * 1000003 + index * 2654435761) & 0xFFFFFFFF
    x ^= x >> 15
    x = (x * 2246822519) & 0xFFFFFFFF
    x ^= x >> 13
    return x


def elements(number, exponent, has_tails):
    if exponent is None:
        return np.zeros(ELEMENTS, F)
    values = []
    for i in range(ELEMENTS):
        h = hash32(number, i)
        value = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24) - 510
        values.append(float(value * (64 if has_tails and h % 61 == 0 else 1)))
    return np.ldexp(np.array(values), exponent).astype(F)


# ---- bf16 --------------------------------------------------------------------------------------

def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(F)


def bf16_near(x):
    bits = np.asarray(x, F).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_up(x):
    low = (np.asarray(x, F).view(np.uint32) >> 16).astype(np.uint16)
    return np.where(bf16_value(low) < x, low + 1, low).astype(np.uint16)


# ---- blocks ------------------------------------------------------------------------------------

def in_blocks(x, size):
    """(blocks, size), the last one padded with 0, and the number of elements of each."""
    blocks = -(-len(x) // size)
    padded = np.zeros(blocks * size, F)
    padded[:len(x)] = x
    counts = np.full(blocks, size)
    counts[-1] = len(x) - (blocks - 1) * size
    return padded.reshape(blocks, size), counts


def scale_of_max(x, top):
    largest = np.abs(x).max(axis=1)
    scale = bf16_up(largest / F(top))
    return np.where((largest > 0) & (scale == 0), 1, scale).astype(np.uint16)


def quotients(x, scale):
    """x times the float32 nearest to 1 / scale, rounded to float32. Computed in double, whose range
    exceeds the reciprocal's, and which holds the product exactly."""
    value = bf16_value(scale).astype(np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(value > 0, 1 / value, 0)
    mantissa, exponent = np.frexp(inverse)
    inverse = np.ldexp(mantissa.astype(F).astype(np.float64), exponent)
    return (x.astype(np.float64) * inverse[:, None]).astype(F)


def exponents(x):
    """e with max |x| = 1.m * 2^e, at least -126."""
    largest = np.abs(x).max(axis=1).astype(np.float64)
    return np.where(largest > 0, np.maximum(np.frexp(largest)[1] - 1, -126), -126)


def packed(digits, counts, bits):
    """Digits (blocks, size): element 8 k + j is digit k of the little-endian word j."""
    blocks, size = digits.shape
    digits = np.where(np.arange(size)[None] < counts[:, None], digits, 0).astype(np.uint64)
    by_lane = digits.reshape(blocks, size // 8, 8)
    shifts = (np.arange(size // 8, dtype=np.uint64) * np.uint64(bits))[None, :, None]
    words = np.bitwise_or.reduce(by_lane << shifts, axis=1)
    return words.astype("<u4" if size // 8 * bits == 32 else "<u2").tobytes()


def payload(scale, codes):
    return scale.astype("<u2").tobytes() + codes


# ---- codecs: x -> payload, D(x) ----------------------------------------------------------------

def bf16(x):
    bits = bf16_near(x)
    return bits.astype("<u2").tobytes(), bf16_value(bits)


def integers(x, size, top):
    blocks, counts = in_blocks(x, size)
    scale = scale_of_max(blocks, top)
    codes = np.rint(quotients(blocks, scale)).astype(np.int64)
    decoded = bf16_value(scale)[:, None] * codes.astype(F)
    return scale, codes, counts, decoded.reshape(-1)[:len(x)]


def int8(x):
    scale, codes, _, decoded = integers(x, 256, 127)
    return payload(scale, codes.reshape(-1)[:len(x)].astype(np.int8).tobytes()), decoded


def int4(x):
    scale, codes, counts, decoded = integers(x, 64, 7)
    return payload(scale, packed(codes & 15, counts, 4)), decoded


def e3m0(x):
    blocks, counts = in_blocks(x, 64)
    scale = scale_of_max(blocks, 1)
    levels = np.concatenate([[F(0)], np.exp2(np.arange(-6, 1)).astype(F)])
    middles = (levels[:-1] + levels[1:]) / F(2)
    size = np.searchsorted(middles, np.abs(quotients(blocks, scale)), side="right")
    minus = np.signbit(blocks)
    decoded = bf16_value(scale)[:, None] * np.where(minus, -levels[size], levels[size])
    return payload(scale, packed(size + 8 * minus, counts, 4)), decoded.reshape(-1)[:len(x)]


def mean(blocks, counts):
    e = exponents(blocks)
    y = np.ldexp(blocks, -e[:, None]).astype(F)
    whole = np.rint(np.abs(y).astype(np.float64) * 2 ** 21)
    average = whole.sum(axis=1).astype(F) / (counts * 2.0 ** 21).astype(F)
    return bf16_near(np.ldexp(average, e).astype(F))


def sign(x):
    blocks, counts = in_blocks(x, 256)
    scale = mean(blocks, counts)
    minus = np.signbit(blocks)
    decoded = np.where(minus, -bf16_value(scale)[:, None], bf16_value(scale)[:, None])
    return payload(scale, packed(minus, counts, 1)), decoded.reshape(-1)[:len(x)]


def auto(x):
    coded, decoded = int4(x)  # rung 1 of the ladder, a single piece
    return np.array([1, len(x) + (1 << 24), len(coded)], "<u4").tobytes() + coded, decoded


def main():
    lines = []
    for codec in (bf16, int8, int4, e3m0, sign, auto):
        for number, (name, (exponent, has_tails)) in enumerate(CASES.items()):
            coded, decoded = codec(elements(number, exponent, has_tails))
            total = sum((i + 1) * int(bits) for i, bits in enumerate(decoded.view(np.uint32)))
            lines.append(f"{codec.__name__} {name} {ELEMENTS} {coded.hex()} "
                         f"{total % 2 ** 64:016x}\n")
    pathlib.Path(__file__).with_name("codecs.txt").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
