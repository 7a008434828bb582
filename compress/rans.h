/* rans.h - an order-0 entropy coder for bytes: the output is close to the entropy of their
 * frequencies.
 *
 * rANS (Duda, arXiv 1311.2540) with 12-bit probabilities, 64 interleaved 32-bit states in [2^15,
 * 2^31) and renormalisation by 16-bit words. Symbol i belongs to lane i mod 64. Frequencies f[s] >
 * 0 have the sum 2^12, start[s] is the sum of the frequencies before s, and x is the state of the
 * lane:
 *
 *     encode, from the last symbol to the first:
 *         if x >= f[s] * 2^19: emit x mod 2^16, x >>= 16
 *         x = (x / f[s]) * 2^12 + start[s] + x mod f[s]
 *     decode, from the first symbol to the last:
 *         s = the symbol whose range contains x mod 2^12
 *         x = f[s] * (x >> 12) + x mod 2^12 - start[s]
 *         if x < 2^15: x = x * 2^16 + next word
 *
 * Words are little-endian, in the order in which the decoder reads them. An encoder starts with
 * every state at 2^15. A decoder must therefore end with every state at 2^15 and no word left,
 * which rarely happens with damaged data. Lanes depend on each other only by the order of their
 * words, so vector variants of any width give the same bytes as the plain one. No allocation. */
#ifndef TW_COMPRESS_RANS_H
#define TW_COMPRESS_RANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tw_rans_bounds {
    TW_RANS_LANES = 64,
    TW_RANS_TOTAL_BITS = 12,
    TW_RANS_TOTAL = 1 << TW_RANS_TOTAL_BITS,  /* sum of all frequencies */
    TW_RANS_SYMBOLS_MAX = 256,                /* symbols are bytes */
    TW_RANS_STATES_BYTES = 4 * TW_RANS_LANES, /* bytes of the 64 states in a payload */
    TW_RANS_MODEL_BYTES_MAX = 2 * 256,        /* most bytes of the frequencies in a payload */
    TW_RANS_WORDS_SLACK = 32,                 /* bytes before its words that encode may overwrite */
    TW_RANS_FIRST_STATE = 1 << 15,
};
_Static_assert(TW_RANS_TOTAL * 8 == TW_RANS_FIRST_STATE, "x / f * 2^12 + start stays below 2^31");

/* Frequencies of the symbols: at least two are nonzero, and their sum is TW_RANS_TOTAL. */
struct tw_rans_model {
    uint16_t frequency[TW_RANS_SYMBOLS_MAX];
};

/* Fits frequencies to counts[256] with the sum total <= 2^32 - 1. They are proportional and
 * rounded; then single units are moved where they cost the fewest and save the most bits. Integers
 * only, so the result is the same on every machine. Returns false if fewer than two symbols occur.
 */
bool tw_rans_model_fit(struct tw_rans_model *model, const uint32_t *counts, uint32_t total);

/* Writes the frequencies from symbol 0 on, until they add up to TW_RANS_TOTAL. A frequency f below
 * 128 is one byte; a larger one is two bytes, 128 + f / 256 and f mod 256. A 0 is followed by a
 * byte with the number of further zeros. dst has TW_RANS_MODEL_BYTES_MAX bytes. Returns the number
 * of bytes written. */
size_t tw_rans_model_encode(const struct tw_rans_model *model, uint8_t *dst);

/* Reads the frequencies of symbols below symbols_count from src[bytes]. Returns the number of bytes
 * read, or 0 if src does not begin with such a model. */
size_t tw_rans_model_decode(struct tw_rans_model *model, const uint8_t *src, size_t bytes,
                            unsigned symbols_count);

struct tw_rans_encoder {
    uint32_t states[TW_RANS_LANES];
    uint16_t frequency[TW_RANS_SYMBOLS_MAX], start[TW_RANS_SYMBOLS_MAX];
    /* Division by a frequency as a multiplication, for vector variants: set_division in rans.c. */
    struct tw_rans_division {
        uint32_t reciprocal, step;
    } division[TW_RANS_SYMBOLS_MAX];
    /* For a bit mask of 8 words: shuffle indices that move the selected words, in order, to the
     * end. */
    uint8_t last[256][16];
};

struct tw_rans_decoder {
    uint32_t states[TW_RANS_LANES];
    /* indexed by the low 12 bits of a state (slot): symbol | frequency << 8 | (slot - start) << 20
     */
    uint32_t slots[TW_RANS_TOTAL];
    uint64_t rank[256]; /* for a bit mask of 8 lanes: number of selected lanes below each lane */
    const uint8_t *at, *end; /* unread words; borrowed */
};

/* One implementation of the coder. All give the same bytes. */
struct tw_rans_form {
    const char *name; /* "plain", "AVX2" */

    /* Writes the words of symbols[n] before words_end and returns their bytes, at most 2 * n. The
     * buffer before words_end must have 2 * n + TW_RANS_WORDS_SLACK bytes. Calls go from the end of
     * a stream to its beginning; in every call but the first, n is a multiple of 64. Every symbol
     * must have a nonzero frequency. */
    size_t (*encode)(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end);

    /* Decodes symbols[n], from the beginning of a stream to its end; in every call but the last, n
     * is a multiple of 64. Returns TW_CORRUPT if there are too few words; symbols are then
     * undefined. */
    enum tw_status (*decode)(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n);
};

/* Bits of tw_rans_division.step, lowest first: 2^12 - f (12 bits), a zero, bias (13 bits), shift (4
 * bits). */
enum { TW_RANS_STEP_BIAS = 13, TW_RANS_BIAS_BITS = 13, TW_RANS_STEP_SHIFT = 26 };

extern const struct tw_rans_form tw_base_rans; /* for any processor; the reference for the other */
extern const struct tw_rans_form tw_avx2_rans;

/* Returns the i-th fastest implementation that this processor supports, or NULL. 0 is the fastest,
 * the last one is plain. */
const struct tw_rans_form *tw_rans_form(uint32_t i);

void tw_rans_encoder_init(struct tw_rans_encoder *encoder, const struct tw_rans_model *model);
/* Call after the last encode: writes the states to dst[TW_RANS_STATES_BYTES]. */
void tw_rans_encoder_finish(const struct tw_rans_encoder *encoder, uint8_t *dst);

/* Borrows states[TW_RANS_STATES_BYTES] and words[words_bytes] until the stream ends. Returns
 * TW_CORRUPT if no encoder produces one of the states. */
enum tw_status tw_rans_decoder_init(struct tw_rans_decoder *decoder,
                                    const struct tw_rans_model *model, const uint8_t *states,
                                    const uint8_t *words, size_t words_bytes);
/* Call after the last decode: returns TW_CORRUPT unless all words were read and all states are the
 * encoder's first states. */
enum tw_status tw_rans_decoder_finish(const struct tw_rans_decoder *decoder);

#endif
