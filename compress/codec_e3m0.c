/* codec_e3m0.c - the codec e3m0: a sign and a power of two per element. */
#include "compress/codec_e3m0.h"

#include "compress/block.h"
#include "compress/codec_row.h"

enum {
    ELEMENTS = 64,
    ZERO = 120,     /* float32 exponent of level 0; the next seven exponents are levels 1 to 7: 2^-6
                       to 1 */
    HALF = 1 << 22, /* half of the range of bits with one exponent */
    LEAST = ZERO << 23, /* bits of 2^-7: from this value on, 2^-6 is nearer than 0 */
};

static uint32_t digit(float x, float inverse) {
    const uint32_t bits = tw_block_bits(x * inverse);
    const int32_t size = (int32_t)(bits & 0x7FFFFFFFu);
    /* 1.5 * 2^e is the midpoint of 2^e and 2^(e + 1). From the midpoint on, adding HALF carries
     * into the exponent. */
    const int32_t level = ((size + HALF) >> 23) - ZERO, least = size >= LEAST;
    return (uint32_t)(level > least ? level : least) | bits >> 31 << 3;
}

static float level(uint32_t digit, float scale) {
    const uint32_t level = digit & 7u, size = level == 0 ? 0 : (ZERO + level) << 23;
    return scale * tw_block_float(size | digit >> 3 << 31);
}

static const struct tw_block e3m0 = {.elements = ELEMENTS,
                                     .digit_bits = 4,
                                     .scale_end = 0x7F00, /* 2^127 as bf16 */
                                     .top = 1.0f,
                                     .digit = digit,
                                     .level = level};

TW_CODEC_ROW(tw_block, e3m0, E3M0, .bits = 4.0 + 16.0 / ELEMENTS)
