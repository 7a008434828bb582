/* ref.h - helpers of the reference codecs (codec_ref.h): scales, and bits one at a time. Shares no
 * code with the fast variants. */
#ifndef TW_COMPRESS_REF_H
#define TW_COMPRESS_REF_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/type.h"

/* ---- scales --------------------------------------------------------------------------------- */

static inline float tw_ref_max(const float *x, size_t count) {
    float max = 0.0f;
    for (size_t i = 0; i < count; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return max;
}

/* Returns the smallest bf16 that is at least x >= 0; for max > 0 it is not 0. */
static inline uint16_t tw_ref_bf16_up(float x, float max) {
    uint16_t up = tw_bf16_from_f32(x);
    if (tw_bf16_to_f32(up) < x) up++;
    return max > 0.0f && up == 0 ? 1 : up;
}

/* x * (1 / scale), correct even if the reciprocal of a tiny scale overflows a float. */
static inline float tw_ref_quotient(float x, float scale, float max) {
    if (scale == 0.0f) return 0.0f;
    const float lift = max < 0x1p-100f ? 0x1p64f : 1.0f;
    return x * lift * (1.0f / (scale * lift));
}

/* Returns true if every element is finite and below 2^126. A NaN fails the comparison, too. */
static inline bool tw_ref_can_send(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) < 0x1p126f)) return false;
    }
    return true;
}

/* ---- bits of a list of positions: rice.h ---------------------------------------------------- */

struct tw_ref_writer {
    uint8_t *dst;
    size_t bits; /* bits written; the last byte is padded with 0 */
};

struct tw_ref_reader {
    const uint8_t *src;
    size_t at, end; /* bits */
};

/* Writes the low `count` bits of `value`, lowest first. */
static inline void tw_ref_put(struct tw_ref_writer *to, uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++, to->bits++) {
        uint8_t *const byte = &to->dst[to->bits / 8];
        if (to->bits % 8 == 0) *byte = 0;
        *byte = (uint8_t)(*byte | (value >> i & 1) << to->bits % 8);
    }
}

static inline void tw_ref_put_gap(struct tw_ref_writer *to, uint32_t gap, unsigned r) {
    for (uint32_t i = 0; i < gap >> r; i++) tw_ref_put(to, 0, 1);
    tw_ref_put(to, 1, 1);
    tw_ref_put(to, gap, r);
}

/* Reads `count` bits. Returns false if there are fewer left. */
static inline bool tw_ref_get(struct tw_ref_reader *from, unsigned count, uint32_t *value) {
    *value = 0;
    for (unsigned i = 0; i < count; i++, from->at++) {
        if (from->at == from->end) return false;
        *value |= (uint32_t)(from->src[from->at / 8] >> from->at % 8 & 1) << i;
    }
    return true;
}

/* Reads a gap. Returns false if there are too few bits, or if the gap is `end` or more. */
static inline bool tw_ref_get_gap(struct tw_ref_reader *from, unsigned r, uint32_t end,
                                  uint32_t *gap) {
    uint64_t zeros = 0;
    uint32_t bit, low;
    for (;; zeros++) {
        if (!tw_ref_get(from, 1, &bit)) return false;
        if (bit != 0) break;
    }
    if (!tw_ref_get(from, r, &low) || (zeros << r | low) >= end) return false;
    *gap = (uint32_t)(zeros << r | low);
    return true;
}

/* Moves to the next byte boundary. Returns false unless the skipped bits are 0. */
static inline bool tw_ref_get_padding(struct tw_ref_reader *from) {
    uint32_t bit;
    while (from->at % 8 != 0) {
        if (!tw_ref_get(from, 1, &bit) || bit != 0) return false;
    }
    return true;
}

#endif
