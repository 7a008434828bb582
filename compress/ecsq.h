/* ecsq.h - ecsq4, ecsq3, ecsq2, ecsq1, ecsq05: a uniform quantiser and an entropy coder, at
 * 4, 3, 2, 1 and 1/2 bits per element.
 *
 *     r = bf16(rms of a block of 4096),  s = c * r,  a = floor(|x| / s + 1/2 - dead)
 *     D = +-(a + shift[a]) * s,  D = 0 where a = 0
 *
 * x is an element, r the scale of its block, s the step, a the quantised magnitude of x, and D the
 * decoded value.
 *
 * Below 2 bits r = bf16(min(rms, max |x| / 3)). Otherwise a block could stay below the step forever
 * and never be sent. With error feedback, this would cost more of the loss than everything else.
 *
 * A payload has one c. Bisection finds the c at which a sample needs the codec's bits, including
 * all headers. Blocks of zeros are not counted, because they have no codes. If many elements are
 * equal, the payload may be longer, because c is limited so that some elements remain nonzero.
 * Large elements have an error of at most s / 2: their magnitude a is written in full and has no
 * shift. dead > 0 below 2 bits. shift moves decoded values to the mean of the sample's elements,
 * separately for magnitude 1 and for larger magnitudes. It points towards 0, where more elements
 * are. Sullivan, "Efficient scalar quantization of exponential and Laplacian random variables",
 * IEEE Trans. IT 42 (5), 1996.
 *
 * A code is a byte with one or two magnitudes min(a, 2^k - 1). The magnitude 2^k - 1 means that a
 * is written in full. For ecsq4, k = 5 and a code is one element. For ecsq3 (k = 4) and below (k =
 * 3), a code is two adjacent elements of a block, the first in the lower k bits; an odd last
 * element is paired with a 0. Signs are not part of codes, because they cannot be predicted.
 *
 * Bytes, little-endian, with b = ceil(n / 4096) blocks:
 *
 *     c * 2^12 (u16), at most 2^15
 *     shift of magnitude 1 and of larger ones (i8 each), in 2^-8
 *     r of each block (b bf16): 0 (a block without codes), or in [2^-120, 2^120)
 *     a stream for every 64 blocks (128 if a code is two elements), unless all are without codes:
 *         kind (u8): 0 coded, 1 raw, 2 one code
 *         number of magnitudes written in full (u32), then each (u16): 2^k - 1 <= a, a * c <= 69
 *         coded: model (rans.h), words (u32), 64 states, words (u16 each)
 *         raw: the codes          one code: that code
 *         signs of elements with a > 0: a bit each, 1 for minus, lowest first; 0 up to a byte
 *
 * s and a + shift are exact in float32, so D is rounded once. Blocks with r below 2^-120 are sent
 * as zeros. Encoding returns TW_CORRUPT if an element is 2^126 or more, or an r 2^120 or more. */
#ifndef TW_COMPRESS_ECSQ_H
#define TW_COMPRESS_ECSQ_H

#include "compress/codec_row.h"

enum tw_ecsq_bounds {
    TW_ECSQ_BLOCK = 4096, /* elements that share a scale */
    TW_ECSQ_STREAM_CODES = 64 * TW_ECSQ_BLOCK,
    TW_ECSQ_HEAD_BYTES = 4,
    TW_ECSQ_STREAM_HEAD_BYTES = 5, /* bytes before a stream's magnitudes and codes: its kind, and
                                      the number of magnitudes written in full */
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

_Static_assert(TW_ECSQ_STREAM_CODES % TW_ECSQ_BLOCK == 0, "a stream has whole blocks");
_Static_assert(TW_ECSQ_BLOCK % TW_ECSQ_GROUP == 0, "a block has whole groups");
_Static_assert(TW_ECSQ_STEP_MAX <= UINT16_MAX, "a step has 16 bits in a payload");

/* One codec of the family. */
struct tw_ecsq {
    uint32_t bits_256;       /* target bits per element, times 256 */
    uint32_t magnitude_bits; /* bits per magnitude in a code */
    uint32_t in_code;        /* elements per code: 1 or 2 */
    uint32_t dead_256;       /* dead zone in steps, times 256 */
    uint32_t step_min; /* smallest step, which bounds the number of magnitudes written in full */
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

/* Returns the parameters of one codec of the family. */
const struct tw_ecsq *TW_COMPRESS_ISA(ecsq_row)(enum tw_codec_id id);

/* Chooses the finest step within the target bits, from a sample. Some elements of the sample must
 * remain nonzero, because otherwise error feedback would send zeros forever. */
struct tw_ecsq_step TW_COMPRESS_ISA(ecsq_choose)(const struct tw_ecsq *ecsq,
                                                 const struct tw_ecsq_source *source);

enum tw_status TW_COMPRESS_ISA(ecsq_encode)(const struct tw_ecsq *ecsq,
                                            struct tw_codec_source source, uint8_t *dst,
                                            size_t capacity, size_t *bytes_out);

/* Decodes into the sink. If the sink is NULL, only checks the payload. */
enum tw_status TW_COMPRESS_ISA(ecsq_decode)(const struct tw_ecsq *ecsq, const uint8_t *src,
                                            size_t bytes, size_t n,
                                            const struct tw_codec_sink *sink);

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

/* Returns the smallest magnitude that is written in full. */
static inline uint32_t tw_ecsq_limit(const struct tw_ecsq *ecsq) {
    return (1u << ecsq->magnitude_bits) - 1;
}

/* Returns the number of possible codes, which are the numbers below it. */
static inline uint32_t tw_ecsq_alphabet(const struct tw_ecsq *ecsq) {
    return 1u << ecsq->magnitude_bits * ecsq->in_code;
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
