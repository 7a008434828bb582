/* codec_topk.c - the topk codecs: signs of the k largest elements of a chunk. */
#include "compress/codec_topk.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/block.h"
#include "compress/codec_row.h"
#include "compress/rice.h"

enum {
    CHUNK = TW_TOPK_CHUNK,
    MEAN_END = 0x7F80 /* infinity as bf16 */,
    LINE = 64 /* bytes of a cache line */
};

struct topk {
    uint32_t k;
    unsigned r; /* log2(4096 / k) - 1 */
};

static size_t chunks_of(size_t n) {
    return n / CHUNK + (n % CHUNK != 0);
}

static uint32_t count_of(size_t n, size_t chunk) {
    const size_t left = n - chunk * CHUNK;
    return (uint32_t)(left < CHUNK ? left : CHUNK);
}

static uint32_t kept_of(const struct topk *topk, uint32_t count) {
    return (topk->k * count + CHUNK - 1) / CHUNK;
}

/* Returns the bytes of the longest payload. A chunk has k ones, remainders and signs, and the zeros
 * of gaps whose sum is below 4096. */
static size_t topk_bound(const struct topk *topk, size_t n) {
    const size_t bits = topk->k * (2 + (size_t)topk->r) + (CHUNK >> topk->r);
    return chunks_of(n) * (2 + (bits + 7) / 8);
}

/* Prefetches, at each kept position of this chunk, a slice of the chunk after x. A prefetch past
 * the last chunk is harmless. */
static inline void fetch_next(const struct topk *topk, const float *x, uint32_t position) {
    const uintptr_t at = (uintptr_t)x + CHUNK * sizeof(*x);
    const uint32_t lines = CHUNK * sizeof(*x) / LINE / topk->k, first = position * lines;
    for (uint32_t i = first; i < first + lines; i++) {
        __builtin_prefetch((const void *)(at + (size_t)i * LINE));
    }
}

/* ---- encode --------------------------------------------------------------------------------- */

/* Writes positions and signs, and returns the mean. It is summed in order and in double, so it has
 * the same bits on every machine. */
static uint16_t put_chunk(const struct topk *topk, const float *x, const uint16_t *kept, uint32_t k,
                          struct tw_bits_writer *to) {
    double sum = 0.0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < k; i++) {
        const float value = x[kept[i]];
        fetch_next(topk, x, i);
        tw_bits_put_gap_and(to, kept[i] - next, topk->r, tw_block_bits(value) >> 31, 1);
        next = (uint32_t)kept[i] + 1;
        sum += (double)tw_block_float(tw_block_magnitude(value));
    }
    return tw_bf16_from_f32((float)(sum / k));
}

/* Computes magnitudes[count] and returns the largest. */
static uint32_t measure(const float *restrict x, uint32_t count, uint32_t *restrict magnitudes) {
    int32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t magnitude = (int32_t)tw_block_magnitude(x[i]);
        magnitudes[i] = (uint32_t)magnitude;
        max = magnitude > max ? magnitude : max;
    }
    return (uint32_t)max;
}

/* Subtracts the decoded values: x = x - D, where k elements of D are not 0. */
static void lose_chunk(float *x, const uint16_t *kept, uint32_t k, uint16_t mean) {
    const uint32_t size = (uint32_t)mean << 16;
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t sign = tw_block_bits(x[kept[i]]) & 0x80000000u;
        x[kept[i]] -= tw_block_float(size | sign);
    }
}

static enum tw_status topk_encode(const struct topk *topk, struct tw_codec_source source,
                                  uint8_t *dst, size_t capacity, size_t *bytes_out) {
    const size_t n = source.n;
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < topk_bound(topk, n)) return TW_LIMIT;
    const size_t chunks = chunks_of(n);
    struct tw_bits_writer to = {.at = dst + 2 * chunks};
    uint32_t magnitudes[CHUNK], guess = 0;
    uint16_t kept[TW_TOPK_MAX];
    for (size_t c = 0; c < chunks; c++) {
        const float *const x = source.x + c * CHUNK;
        const uint32_t count = count_of(n, c), k = kept_of(topk, count);
        if (measure(x, count, magnitudes) >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        TW_COMPRESS_ISA(topk_select)(magnitudes, count, k, kept, &guess);
        const struct tw_bits_writer before = to;
        const uint16_t mean = put_chunk(topk, x, kept, k, &to);
        tw_put_u16(dst + 2 * c, mean);
        if (mean == 0) to = before; /* the mean rounds to 0: no positions are sent */
        if (source.lost != NULL && mean != 0) lose_chunk(source.lost + c * CHUNK, kept, k, mean);
    }
    tw_bits_pad(&to);
    *bytes_out = (size_t)(to.at - dst);
    return TW_OK;
}

/* ---- decode --------------------------------------------------------------------------------- */

/* Sets the nonzero elements of a chunk in y[count] to +-value, or adds that. If y is NULL, only
 * checks the bits. */
static inline enum tw_status get_chunk(const struct topk *topk, float value, bool is_add,
                                       uint32_t count, struct tw_bits_reader *from, float *y) {
    const uint32_t k = kept_of(topk, count);
    uint32_t next = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t gap, is_minus;
        if (is_add) fetch_next(topk, y, i);
        if (!tw_bits_get_gap(from, topk->r, count - next, &gap)) return TW_CORRUPT;
        if (!tw_bits_get(from, 1, &is_minus)) return TW_CORRUPT;
        const float signed_value = tw_block_float(tw_block_bits(value) ^ is_minus << 31);
        if (y != NULL) y[next + gap] = is_add ? y[next + gap] + signed_value : signed_value;
        next += gap + 1;
    }
    return TW_OK;
}

/* Decodes all chunks into the sink. If the sink is NULL, only checks them. */
static enum tw_status read_all(const struct topk *topk, const uint8_t *src, size_t bytes, size_t n,
                               const struct tw_codec_sink *sink) {
    const size_t chunks = chunks_of(n);
    if (n > TW_PAYLOAD_BYTES_MAX || bytes < 2 * chunks) return TW_CORRUPT;
    struct tw_bits_reader from = {.at = src + 2 * chunks, .end = src + bytes};
    for (size_t c = 0; c < chunks; c++) {
        const uint16_t mean = tw_get_u16(src + 2 * c);
        const uint32_t count = count_of(n, c);
        const float value = tw_bf16_to_f32(mean);
        float *const dst = sink == NULL ? NULL : sink->dst + c * CHUNK;
        if (mean >= MEAN_END) return TW_CORRUPT;
        if (dst != NULL && sink->is_add) {
            if (mean == 0) continue;
            TW_TRY(get_chunk(topk, sink->weight * value, true, count, &from, dst));
        } else {
            if (dst != NULL) memset(dst, 0, count * sizeof(*dst));
            if (mean != 0) TW_TRY(get_chunk(topk, value, false, count, &from, dst));
        }
    }
    return tw_bits_end(&from) && from.at == from.end ? TW_OK : TW_CORRUPT;
}

static enum tw_status topk_check(const struct topk *topk, const uint8_t *src, size_t bytes,
                                 size_t n) {
    return read_all(topk, src, bytes, n, NULL);
}

static enum tw_status topk_decode(const struct topk *topk, const uint8_t *src, size_t bytes,
                                  size_t n, struct tw_codec_sink sink) {
    return read_all(topk, src, bytes, n, &sink);
}

static const struct topk topk256 = {.k = 256, .r = 3};
static const struct topk topk64 = {.k = 64, .r = 5};
static const struct topk topk32 = {.k = 32, .r = 6};

TW_CODEC_ROW(topk, topk256, TOPK256, .bits = 0.409, .needs_feedback = true, .is_sparse = true)
TW_CODEC_ROW(topk, topk64, TOPK64, .bits = 0.137, .needs_feedback = true, .is_sparse = true)
TW_CODEC_ROW(topk, topk32, TOPK32, .bits = 0.0784, .needs_feedback = true, .is_sparse = true)
