/* codec_sparse8.c - the codec sparse8: 8-bit integers, with zeros left out if that is shorter. */
#include "compress/codec_sparse8.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/block.h"
#include "compress/rice.h"

enum { CHUNK = TW_SPARSE8_CHUNK, HEAD_BYTES = 4, SCALE_END = 0x7B80 /* 2^120 as bf16 */ };

static size_t chunks_of(size_t n) {
    return n / CHUNK + (n % CHUNK != 0);
}

static uint32_t count_of(size_t n, size_t chunk) {
    const size_t left = n - chunk * CHUNK;
    return (uint32_t)(left < CHUNK ? left : CHUNK);
}

static size_t bound(size_t n) {
    return chunks_of(n) * HEAD_BYTES + n;
}

/* Returns the Rice parameter r with the shortest code for randomly distributed positions; count >
 * 0. r + 1 is better than r once the mean gap exceeds about 2.078 * 2^r + 1/2, where (1 - 1 /
 * mean)^(2^r) is the golden ratio minus 1. */
static unsigned r_of(uint32_t elements, uint32_t count) {
    unsigned r = 0;
    while (32 * (2 * elements - count) >= (133 * count) << r) r++;
    return r;
}

/* ---- encode --------------------------------------------------------------------------------- */

/* Computes RNE(x * lift * inverse) by adding 1.5 * 2^23, because |product| <= 127. */
static void quantise(const float *restrict x, uint32_t elements, struct tw_block_factor factor,
                     int8_t *restrict codes) {
    for (uint32_t i = 0; i < elements; i++) {
        const float shifted = x[i] * factor.lift * factor.inverse + 12582912.0f;
        codes[i] = (int8_t)(uint8_t)(tw_block_bits(shifted) & 0xFFu);
    }
}

static uint32_t positions_bytes(const uint16_t *positions, uint32_t count, unsigned r) {
    uint32_t bits = count * (1 + r), next = 0;
    for (uint32_t i = 0; i < count; i++) {
        bits += (positions[i] - next) >> r;
        next = (uint32_t)positions[i] + 1;
    }
    return (bits + 7) / 8;
}

/* Writes the nonzero codes and their positions, or all codes if that is not longer. Returns the end
 * of the chunk. */
static uint8_t *put_codes(const int8_t *codes, uint32_t elements, uint8_t *head) {
    uint16_t positions[CHUNK];
    uint32_t count = 0, zeros = 0, next = 0;
    for (uint32_t i = 0; i < elements; i++) zeros += codes[i] == 0;
    for (uint32_t i = 0; zeros > elements / 10 && i < elements; i++) {
        positions[count] = (uint16_t)i;
        count += codes[i] != 0;
    }
    const unsigned r = count > 0 ? r_of(elements, count) : 0;
    uint8_t *const at = head + HEAD_BYTES;
    /* A position needs at least one bit. With at most a tenth of zeros, a list of positions is
     * therefore longer than all codes. */
    if (zeros <= elements / 10 || positions_bytes(positions, count, r) + count >= elements) {
        tw_put_u16(head + 2, (uint16_t)elements);
        memcpy(at, codes, elements);
        return at + elements;
    }
    tw_put_u16(head + 2, (uint16_t)count);
    struct tw_bits_writer to = {.at = at};
    for (uint32_t i = 0; i < count; i++) {
        tw_bits_put_gap(&to, positions[i] - next, r);
        next = (uint32_t)positions[i] + 1;
    }
    tw_bits_pad(&to);
    for (uint32_t i = 0; i < count; i++) *to.at++ = (uint8_t)codes[positions[i]];
    return to.at;
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < bound(n)) return TW_LIMIT;
    int8_t codes[CHUNK];
    uint8_t *at = dst;
    for (size_t c = 0; c < chunks_of(n); c++) {
        const float *const x = src + c * CHUNK;
        const uint32_t elements = count_of(n, c), max = tw_block_max(x, elements);
        if (max >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        const uint16_t scale = tw_block_scale_up(max, 127.0f);
        tw_put_u16(at, scale);
        quantise(x, elements, tw_block_factor(max, scale), codes);
        at = put_codes(codes, elements, at);
    }
    *bytes_out = (size_t)(at - dst);
    return TW_OK;
}

/* ---- decode --------------------------------------------------------------------------------- */

/* A chunk being decoded. */
struct chunk {
    float scale;
    uint32_t elements, count;
    const uint8_t *codes;
};

/* Returns true if no code is -128, and none is 0 unless may_be_zero. */
static bool are_codes(const uint8_t *codes, uint32_t count, bool may_be_zero) {
    uint8_t bad = 0, zeros = 0; /* bytes, like the codes, so that the loop vectorises */
    for (uint32_t i = 0; i < count; i++) {
        bad = (uint8_t)(bad | (codes[i] == 0x80));
        zeros = (uint8_t)(zeros | (codes[i] == 0));
    }
    return bad == 0 && (may_be_zero || zeros == 0);
}

/* Reads positions[count], and sets chunk->codes to the bytes after them. */
static enum tw_status read_positions(struct chunk *chunk, const uint8_t *end, uint16_t *positions) {
    struct tw_bits_reader from = {.at = chunk->codes, .end = end};
    uint32_t next = 0;
    const unsigned r = chunk->count > 0 ? r_of(chunk->elements, chunk->count) : 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t gap;
        if (!tw_bits_get_gap(&from, r, chunk->elements - next, &gap)) return TW_CORRUPT;
        positions[i] = (uint16_t)(next + gap);
        next += gap + 1;
    }
    if (!tw_bits_end(&from)) return TW_CORRUPT;
    chunk->codes = from.at;
    return TW_OK;
}

/* Reads the header of a chunk and moves *src to the next chunk. Writes the positions of the codes
 * to positions[CHUNK], unless all elements have a code. */
static enum tw_status chunk_open(struct chunk *chunk, uint16_t *positions, uint32_t elements,
                                 const uint8_t **src, const uint8_t *end) {
    if (end - *src < HEAD_BYTES) return TW_CORRUPT;
    const uint16_t scale = tw_get_u16(*src);
    *chunk = (struct chunk){.scale = tw_bf16_to_f32(scale),
                            .elements = elements,
                            .count = tw_get_u16(*src + 2),
                            .codes = *src + HEAD_BYTES};
    if (scale >= SCALE_END || chunk->count > elements) return TW_CORRUPT;
    const bool is_dense = chunk->count == elements;
    if (!is_dense) TW_TRY(read_positions(chunk, end, positions));
    if ((size_t)(end - chunk->codes) < chunk->count) return TW_CORRUPT;
    if (!are_codes(chunk->codes, chunk->count, is_dense)) return TW_CORRUPT;
    *src = chunk->codes + chunk->count;
    return TW_OK;
}

/* Decodes a checked chunk to y[elements]. */
static void chunk_get(const struct chunk *chunk, const uint16_t *positions, float *restrict y) {
    const uint32_t elements = chunk->elements;
    const uint8_t *const restrict codes = chunk->codes;
    const float scale = chunk->scale;
    if (chunk->count == elements) {
        for (uint32_t i = 0; i < elements; i++) y[i] = scale * (float)(int8_t)codes[i];
        return;
    }
    for (uint32_t i = 0; i < elements; i++) y[i] = 0.0f;
    for (uint32_t i = 0; i < chunk->count; i++) y[positions[i]] = scale * (float)(int8_t)codes[i];
}

/* sum[elements] += weight * D, rounded twice. */
static void chunk_add(const struct chunk *chunk, const uint16_t *positions, float weight,
                      float *restrict sum) {
    const uint32_t elements = chunk->elements;
    const uint8_t *const restrict codes = chunk->codes;
    const float scale = chunk->scale;
    float y[CHUNK];
    if (chunk->count == elements) {
        for (uint32_t i = 0; i < elements; i++) {
            sum[i] = sum[i] + weight * (scale * (float)(int8_t)codes[i]);
        }
        return;
    }
    chunk_get(chunk, positions, y);
    for (uint32_t i = 0; i < elements; i++) sum[i] = sum[i] + weight * y[i];
}

/* Decodes all chunks into the sink. If the sink is NULL, only checks them. */
static enum tw_status read_all(const uint8_t *src, size_t bytes, size_t n,
                               const struct tw_codec_sink *sink) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    const uint8_t *at = src, *const end = src + bytes;
    uint16_t positions[CHUNK];
    for (size_t c = 0; c < chunks_of(n); c++) {
        struct chunk chunk;
        TW_TRY(chunk_open(&chunk, positions, count_of(n, c), &at, end));
        if (sink == NULL) continue;
        if (sink->is_add) {
            chunk_add(&chunk, positions, sink->weight, sink->dst + c * CHUNK);
        } else {
            chunk_get(&chunk, positions, sink->dst + c * CHUNK);
        }
    }
    return at == end ? TW_OK : TW_CORRUPT;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    return read_all(src, bytes, n, NULL);
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    return read_all(src, bytes, n, &(struct tw_codec_sink){.dst = dst});
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    return read_all(src, bytes, n,
                    &(struct tw_codec_sink){.dst = dst, .weight = weight, .is_add = true});
}

const struct tw_codec TW_COMPRESS_ISA(codec_sparse8) = {.name = "sparse8",
                                                        .id = TW_CODEC_SPARSE8,
                                                        .bits = 8.0 + 8.0 * HEAD_BYTES / CHUNK,
                                                        .bound = bound,
                                                        .encode = encode,
                                                        .decode = decode,
                                                        .decode_add = decode_add,
                                                        .check = check};
