/* codec_nf4.c - the codec nf4: sixteen levels with a scale per block. */
#include "compress/codec_nf4.h"

#include "compress/block.h"
#include "compress/codec_row.h"

#ifdef __AVX2__
#include "compress/nf4_avx2.h"
#define WORDS tw_nf4_words_avx2
#define VALUES tw_nf4_values_avx2
#else
#define WORDS NULL
#define VALUES NULL
#endif

enum { ELEMENTS = TW_BLOCK_GROUP };

static uint32_t digit(float x, float inverse) {
    const float value = x * inverse;
    uint32_t digit = TW_NF4_LEVELS - 1;
    for (uint32_t l = 0; l + 1 < TW_NF4_LEVELS; l++) digit -= value <= tw_nf4_bound(l);
    return digit;
}

static float level(uint32_t digit, float scale) {
    return scale * tw_nf4_levels[digit];
}

static const struct tw_block nf4 = {.elements = ELEMENTS,
                                    .digit_bits = 4,
                                    .scale_end = 0x7F00, /* 2^127 as bf16 */
                                    .top = 1.0f,
                                    .digit = digit,
                                    .level = level,
                                    .words = WORDS,
                                    .values = VALUES};

TW_CODEC_ROW(tw_block, nf4, NF4, .bits = 4.0 + 16.0 / ELEMENTS)
