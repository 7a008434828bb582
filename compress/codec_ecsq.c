/* codec_ecsq.c - see codec_ecsq.h: the rows of the family. */
#include "compress/codec_ecsq.h"

#include "base/limits.h"
#include "compress/ecsq.h"

/* Raw symbols, and codes written out: |x| is 3.7 rms and more for them, so they are fewer than a
 * thirteenth of a block. */
static size_t bound(size_t n) {
    if (n == 0) return 0;
    const size_t blocks = tw_ecsq_blocks(n);
    const size_t streams = blocks / TW_ECSQ_STREAM_BLOCKS + (blocks % TW_ECSQ_STREAM_BLOCKS != 0);
    return TW_ECSQ_HEAD_BYTES + 2 * blocks + TW_ECSQ_STREAM_HEAD_BYTES * streams + n + n / 6;
}

static enum tw_status encode(const struct tw_ecsq *ecsq, const float *src, size_t n, uint8_t *dst,
                             size_t capacity, size_t *bytes_out) {
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < bound(n)) return TW_LIMIT;
    return TW_FORM(ecsq_encode)(ecsq, src, n, dst, bound(n), bytes_out);
}

static enum tw_status decode(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes, size_t n,
                             const struct tw_ecsq_sink *sink) {
    TW_TRY(TW_FORM(ecsq_decode)(ecsq, src, bytes, n, NULL));
    return TW_FORM(ecsq_decode)(ecsq, src, bytes, n, sink);
}

/* Sizes in 1/256 bit. */
enum { BITS_4 = 1024, BITS_3 = 768, BITS_2 = 512, BITS_1 = 256, BITS_05 = 128 };

static const struct tw_ecsq ecsq4 = {.bits_256 = BITS_4, .limit = 32, .step_min = 1 << 9};
static const struct tw_ecsq ecsq3 = {.bits_256 = BITS_3, .limit = 16, .step_min = 1 << 10};
static const struct tw_ecsq ecsq2 = {.bits_256 = BITS_2, .limit = 8, .step_min = 1 << 11};
static const struct tw_ecsq ecsq1 = {
    .bits_256 = BITS_1, .limit = 8, .dead_256 = 40, .step_min = 1 << 11};
static const struct tw_ecsq ecsq05 = {
    .bits_256 = BITS_05, .limit = 8, .dead_256 = 52, .step_min = 1 << 11};

/* Functions of a row take no row: each has its own. */
#define ROW(ecsq, ID, size, coarse)                                                                \
    static enum tw_status ecsq##_encode(const float *src, size_t n, uint8_t *dst, size_t capacity, \
                                        size_t *bytes_out) {                                       \
        return encode(&(ecsq), src, n, dst, capacity, bytes_out);                                  \
    }                                                                                              \
    static enum tw_status ecsq##_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {  \
        const struct tw_ecsq_sink sink = {.dst = dst};                                             \
        return decode(&(ecsq), src, bytes, n, &sink);                                              \
    }                                                                                              \
    static enum tw_status ecsq##_decode_add(const uint8_t *src, size_t bytes, float weight,        \
                                            float *dst, size_t n) {                                \
        const struct tw_ecsq_sink sink = {.dst = dst, .weight = weight, .is_add = true};           \
        return decode(&(ecsq), src, bytes, n, &sink);                                              \
    }                                                                                              \
    static enum tw_status ecsq##_check(const uint8_t *src, size_t bytes, size_t n) {               \
        return TW_FORM(ecsq_decode)(&(ecsq), src, bytes, n, NULL);                                 \
    }                                                                                              \
    const struct tw_codec TW_FORM(codec_##ecsq) = {.name = #ecsq,                                  \
                                                   .id = TW_CODEC_##ID,                            \
                                                   .bits = (size) / 256.0,                         \
                                                   .needs_feedback = (coarse),                     \
                                                   .bound = bound,                                 \
                                                   .encode = ecsq##_encode,                        \
                                                   .decode = ecsq##_decode,                        \
                                                   .decode_add = ecsq##_decode_add,                \
                                                   .check = ecsq##_check};

ROW(ecsq4, ECSQ4, BITS_4, false)
ROW(ecsq3, ECSQ3, BITS_3, false)
ROW(ecsq2, ECSQ2, BITS_2, true)
ROW(ecsq1, ECSQ1, BITS_1, true)
ROW(ecsq05, ECSQ05, BITS_05, true)
