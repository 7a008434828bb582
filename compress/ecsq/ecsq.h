/* ecsq.h - code shared by the encoder and decoder of the ecsq codecs; the format is in
 * codec_ecsq.h. */
#ifndef TW_COMPRESS_ECSQ_ECSQ_H
#define TW_COMPRESS_ECSQ_ECSQ_H

#include "base/bytes.h"
#include "compress/codec_ecsq.h"
#include "compress/codec_row.h"
#include "kernels/type.h"

enum tw_ecsq_bounds {
    TW_ECSQ_HEAD_BYTES = 4,
    TW_ECSQ_STREAM_HEAD_BYTES = 5, /* bytes before a stream's sizes and codes: its kind, and the
                                      number of sizes written in full */
    TW_ECSQ_STEP_ONE = 1 << 12,    /* c = 1 */
    TW_ECSQ_STEP_MAX = 1 << 15,
    TW_ECSQ_PEAK =
        69, /* bound of |x| / r: 64 for a block of 4096, plus half a step and rounding errors */
    TW_ECSQ_FLAT = 3,     /* least max |x| / r of a block, enforced for codecs below 2 bits */
    TW_ECSQ_SAMPLED = 64, /* largest number of blocks sampled to choose a step */
    /* The codes of a stream are counted in groups of TW_ECSQ_GROUP elements: all groups within the
     * first TW_ECSQ_COUNTED codes. After that, one group of eight is counted, with weight 8. */
    TW_ECSQ_GROUP = 64,
    TW_ECSQ_COUNTED = 1 << 14,
    TW_ECSQ_COUNTED_LOG = 3,
    TW_ECSQ_COUNTED_EVERY = 1 << TW_ECSQ_COUNTED_LOG,
    TW_ECSQ_SCALE_MIN = 0x0380, /* 2^-120 as bf16 */
    TW_ECSQ_SCALE_END = 0x7B80, /* 2^120 as bf16 */
};
enum tw_ecsq_kind { TW_ECSQ_CODED, TW_ECSQ_RAW, TW_ECSQ_ONE };

/* One codec of the family. */
struct tw_ecsq {
    uint32_t bits_256;  /* target bits per element, times 256 */
    uint32_t size_bits; /* bits per size in a code */
    uint32_t in_code;   /* elements per code: 1 or 2 */
    uint32_t dead_256;  /* dead zone in steps, times 256 */
    uint32_t step_min;  /* smallest step, which bounds the number of sizes written in full */
};

/* The step that the encoder chose for a payload. */
struct tw_ecsq_step {
    uint32_t c; /* step in units of r, times 2^12 */
    int8_t shift_one, shift_more;
};

/* Input for choosing a step: an array, and the scales of its sampled blocks. */
struct tw_ecsq_source {
    const float *x;
    size_t n;
    const uint8_t *scales;
    float peak; /* largest |x| / r of the sampled blocks */
};

/* Chooses the finest step within the target bits, from a sample (ecsq_rate.c). Some elements of the
 * sample must remain nonzero, because otherwise error feedback would send zeros forever. */
struct tw_ecsq_step tw_ecsq_choose(const struct tw_ecsq *ecsq, const struct tw_ecsq_source *source);

enum tw_status TW_COMPRESS_ISA(ecsq_encode)(const struct tw_ecsq *ecsq,
                                            struct tw_codec_source source, uint8_t *dst,
                                            size_t capacity, size_t *bytes_out);

/* Decodes into the sink. If the sink is NULL, only checks the payload. */
enum tw_status TW_COMPRESS_ISA(ecsq_decode)(const struct tw_ecsq *ecsq, const uint8_t *src,
                                            size_t bytes, size_t n,
                                            const struct tw_codec_sink *sink);

/* Returns the parameters of one codec of the family. */
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

/* Returns the number of blocks sampled to choose a step. */
static inline size_t tw_ecsq_sampled(size_t blocks) {
    return blocks < TW_ECSQ_SAMPLED ? blocks : TW_ECSQ_SAMPLED;
}

/* Returns the index of sampled block i < tw_ecsq_sampled(blocks): one in each range of blocks, at
 * varying positions. In a matrix, a fixed position might always or never fall on the same rows. */
static inline size_t tw_ecsq_sampled_block(size_t blocks, size_t i) {
    const size_t begin = i * blocks / tw_ecsq_sampled(blocks);
    const size_t end = (i + 1) * blocks / tw_ecsq_sampled(blocks);
    return begin + ((uint32_t)i * 0x9E3779B1u >> 8) % (end - begin);
}

/* Beyond the first TW_ECSQ_COUNTED codes, returns true if this group is the counted one of its
 * eight. Its position among the eight varies: in a matrix, a fixed one might always or never fall
 * on the same rows. */
static inline bool tw_ecsq_is_counted(uint32_t group) {
    const uint32_t place =
        (group >> TW_ECSQ_COUNTED_LOG) * 0x9E3779B1u >> (32 - TW_ECSQ_COUNTED_LOG);
    return group % TW_ECSQ_COUNTED_EVERY == place;
}

/* Returns the number of elements in block b of an array of n. */
static inline uint32_t tw_ecsq_count(size_t n, size_t b) {
    const size_t left = n - b * TW_ECSQ_BLOCK;
    return (uint32_t)(left < TW_ECSQ_BLOCK ? left : TW_ECSQ_BLOCK);
}

static inline uint16_t tw_ecsq_scale(const uint8_t *scales, size_t b) {
    return tw_get_u16(scales + 2 * b);
}

/* Returns the number of elements in the blocks of [begin, end) that have codes. */
static inline uint32_t tw_ecsq_active(const uint8_t *scales, size_t n, size_t begin, size_t end) {
    uint32_t count = 0;
    for (size_t b = begin; b < end; b++) {
        if (tw_ecsq_scale(scales, b) != 0) count += tw_ecsq_count(n, b);
    }
    return count;
}

/* Returns the smallest size that is written in full. */
static inline uint32_t tw_ecsq_limit(const struct tw_ecsq *ecsq) {
    return (1u << ecsq->size_bits) - 1;
}

/* Returns the number of possible codes, which are the numbers below it. */
static inline uint32_t tw_ecsq_alphabet(const struct tw_ecsq *ecsq) {
    return 1u << ecsq->size_bits * ecsq->in_code;
}

/* Returns the number of codes for `elements` elements. */
static inline uint32_t tw_ecsq_codes(const struct tw_ecsq *ecsq, uint32_t elements) {
    return (elements + ecsq->in_code - 1) / ecsq->in_code;
}

/* Returns the index after the last block of the stream that begins with block `begin`. */
static inline size_t tw_ecsq_stream_end(const struct tw_ecsq *ecsq, size_t begin, size_t blocks) {
    const size_t end = begin + TW_ECSQ_STREAM_CODES / TW_ECSQ_BLOCK * ecsq->in_code;
    return end < blocks ? end : blocks;
}

/* Returns s = c * r of a block, exactly: r has 8 significant bits, c has 16. */
static inline float tw_ecsq_unit(uint16_t scale, uint32_t c) {
    return tw_bf16_to_f32(scale) * ((float)c / (float)TW_ECSQ_STEP_ONE);
}

/* Returns 1/2 - dead. */
static inline float tw_ecsq_bias(const struct tw_ecsq *ecsq) {
    return (float)(128 - ecsq->dead_256) / 256.0f;
}

#endif
