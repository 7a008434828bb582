/* ecsq.h - shared parts of the ecsq codecs; the format is in codec_ecsq.h. */
#ifndef TW_COMPRESS_ECSQ_ECSQ_H
#define TW_COMPRESS_ECSQ_ECSQ_H

#include "base/bytes.h"
#include "compress/codec_ecsq.h"
#include "compress/codec_row.h"
#include "kernels/type.h"

enum tw_ecsq_bounds {
    TW_ECSQ_HEAD_BYTES = 4,
    TW_ECSQ_STREAM_HEAD_BYTES = 5, /* bytes before a stream's sizes and codes: its kind, and the
                                      number of sizes written out */
    TW_ECSQ_STEP_ONE = 1 << 12,    /* c = 1 */
    TW_ECSQ_STEP_MAX = 1 << 15,
    TW_ECSQ_PEAK =
        69, /* bound of |x| / rms: 64 for a block of 4096, plus half a step and roundings */
    TW_ECSQ_FLAT = 3,     /* codecs below 2 bits: the largest |x| / r of a block is at least this */
    TW_ECSQ_SAMPLED = 64, /* most blocks from which a step is chosen */
    /* Codes of a stream are counted in groups of TW_ECSQ_GROUP elements: all groups within the
     * first TW_ECSQ_COUNTED codes, then one of eight, whose counts are taken eight times. */
    TW_ECSQ_GROUP = 64,
    TW_ECSQ_COUNTED = 1 << 14,
    TW_ECSQ_COUNTED_LOG = 3,
    TW_ECSQ_COUNTED_EVERY = 1 << TW_ECSQ_COUNTED_LOG,
    TW_ECSQ_SCALE_MIN = 0x0380, /* 2^-120 as bf16 */
    TW_ECSQ_SCALE_END = 0x7B80, /* 2^120 */
};
enum tw_ecsq_kind { TW_ECSQ_CODED, TW_ECSQ_RAW, TW_ECSQ_ONE };

/* One codec of the family. */
struct tw_ecsq {
    uint32_t bits_256;  /* target, in 1/256 bit per element */
    uint32_t size_bits; /* bits of each size in a code */
    uint32_t in_code;   /* elements per code: 1 or 2 */
    uint32_t dead_256;  /* dead zone, in 1/256 of a step */
    uint32_t step_min;  /* smallest step; it bounds the number of sizes written out */
};

/* The step that the encoder chose for a payload. */
struct tw_ecsq_step {
    uint32_t c; /* in 2^-12 */
    int8_t shift_one, shift_more;
};

/* Input of the choice of a step: evenly spread blocks; only their scales are computed yet. */
struct tw_ecsq_source {
    const float *x;
    size_t n;
    const uint8_t *scales;
    float peak; /* their largest |x| / r */
};

/* Chooses the finest step within the target of bits, from a sample. Some elements of the sample
 * must remain nonzero, because otherwise error feedback would send only zeros for ever.
 * ecsq_rate.c. */
struct tw_ecsq_step tw_ecsq_choose(const struct tw_ecsq *ecsq, const struct tw_ecsq_source *source);

enum tw_status TW_COMPRESS_ISA(ecsq_encode)(const struct tw_ecsq *ecsq,
                                            struct tw_codec_source source, uint8_t *dst,
                                            size_t capacity, size_t *bytes_out);

/* Decodes into the sink; only checks the payload if there is none. */
enum tw_status TW_COMPRESS_ISA(ecsq_decode)(const struct tw_ecsq *ecsq, const uint8_t *src,
                                            size_t bytes, size_t n,
                                            const struct tw_codec_sink *sink);

/* The codec's row of the family. */
const struct tw_ecsq *TW_COMPRESS_ISA(ecsq_row)(enum tw_codec_id id);

static inline uint32_t tw_ecsq_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float tw_ecsq_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline size_t tw_ecsq_blocks(size_t n) {
    return n / TW_ECSQ_BLOCK + (n % TW_ECSQ_BLOCK != 0);
}

/* Number of blocks from which a step is chosen. */
static inline size_t tw_ecsq_sampled(size_t blocks) {
    return blocks < TW_ECSQ_SAMPLED ? blocks : TW_ECSQ_SAMPLED;
}

/* Index of sampled block i < tw_ecsq_sampled(blocks): one of each range of blocks, at varying
 * positions. A fixed position would always or never hit the rows of a matrix. */
static inline size_t tw_ecsq_sampled_block(size_t blocks, size_t i) {
    const size_t begin = i * blocks / tw_ecsq_sampled(blocks);
    const size_t end = (i + 1) * blocks / tw_ecsq_sampled(blocks);
    return begin + ((uint32_t)i * 0x9E3779B1u >> 8) % (end - begin);
}

/* True if this group is the counted one of its eight (beyond the first codes). Its position among
 * the eight varies, because a fixed one would always or never hit the rows of a matrix. */
static inline bool tw_ecsq_is_counted(uint32_t group) {
    const uint32_t place =
        (group >> TW_ECSQ_COUNTED_LOG) * 0x9E3779B1u >> (32 - TW_ECSQ_COUNTED_LOG);
    return group % TW_ECSQ_COUNTED_EVERY == place;
}

/* Elements of block b of n. */
static inline uint32_t tw_ecsq_count(size_t n, size_t b) {
    const size_t left = n - b * TW_ECSQ_BLOCK;
    return (uint32_t)(left < TW_ECSQ_BLOCK ? left : TW_ECSQ_BLOCK);
}

static inline uint16_t tw_ecsq_scale(const uint8_t *scales, size_t b) {
    return tw_get_u16(scales + 2 * b);
}

/* Elements of blocks [begin, end) that have codes. */
static inline uint32_t tw_ecsq_active(const uint8_t *scales, size_t n, size_t begin, size_t end) {
    uint32_t count = 0;
    for (size_t b = begin; b < end; b++) {
        if (tw_ecsq_scale(scales, b) != 0) count += tw_ecsq_count(n, b);
    }
    return count;
}

/* Sizes from this one on are written out. */
static inline uint32_t tw_ecsq_limit(const struct tw_ecsq *ecsq) {
    return (1u << ecsq->size_bits) - 1;
}

/* Number of possible codes: all codes are below it. */
static inline uint32_t tw_ecsq_alphabet(const struct tw_ecsq *ecsq) {
    return 1u << ecsq->size_bits * ecsq->in_code;
}

/* Number of codes of that many elements. */
static inline uint32_t tw_ecsq_codes(const struct tw_ecsq *ecsq, uint32_t elements) {
    return (elements + ecsq->in_code - 1) / ecsq->in_code;
}

/* End of the stream that begins with block `begin`: the index after its last block. */
static inline size_t tw_ecsq_stream_end(const struct tw_ecsq *ecsq, size_t begin, size_t blocks) {
    const size_t end = begin + TW_ECSQ_STREAM_CODES / TW_ECSQ_BLOCK * ecsq->in_code;
    return end < blocks ? end : blocks;
}

/* s = c r of a block, exact: r has 8 bits of significand, c has 16. */
static inline float tw_ecsq_unit(uint16_t scale, uint32_t c) {
    return tw_bf16_to_f32(scale) * ((float)c / (float)TW_ECSQ_STEP_ONE);
}

/* 1/2 - dead */
static inline float tw_ecsq_bias(const struct tw_ecsq *ecsq) {
    return (float)(128 - ecsq->dead_256) / 256.0f;
}

#endif
