/* rans.h - an order-0 entropy coder for bytes, whose output is close to their entropy.
 *
 * rANS (Duda, arXiv 1311.2540) with 12-bit probabilities, 64 interleaved 32-bit states in [2^15,
 * 2^31) and renormalisation by 16-bit words. Symbol i belongs to lane i mod 64. With frequencies
 * f[s] > 0 of sum 2^12, start[s] the sum of those before s, and x the state of the lane:
 *
 *     encode, from the last symbol to the first:   if x >= f[s] 2^19: emit x mod 2^16, x >>= 16
 *                                                  x = (x / f[s]) 2^12 + start[s] + x mod f[s]
 *     decode, from the first symbol to the last:   s = the symbol whose range holds x mod 2^12
 *                                                  x = f[s] (x >> 12) + x mod 2^12 - start[s]
 *                                                  if x < 2^15: x = x 2^16 + next word
 *
 * Words are little-endian, in the order in which the decoder takes them. An encoder starts with
 * every state at 2^15, so a decoder must end with every state at 2^15 and no word left, which is
 * rare for damaged data. Lanes depend on each other only by the order of their words, so vector
 * variants of any width give the same bytes as the plain one. No allocation. */
#ifndef TW_COMPRESS_RANS_RANS_H
#define TW_COMPRESS_RANS_RANS_H

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
    TW_RANS_WORDS_SLACK = 32,                 /* bytes below its words that encode may overwrite */
    TW_RANS_FIRST_STATE = 1 << 15,
};

/* Frequencies of symbols: at least two are not 0; their sum is TW_RANS_TOTAL. */
struct tw_rans_model {
    uint16_t frequency[TW_RANS_SYMBOLS_MAX];
};

/* Fits frequencies to counts (256) of sum total <= 2^32 - 1: proportional and rounded, then units
 * are moved where they cost least and save most. Integers only: the same on every machine. False if
 * fewer than two symbols occur. */
bool tw_rans_model_fit(struct tw_rans_model *model, const uint32_t *counts, uint32_t total);

/* Writes the frequencies from symbol 0 on, until they add up to TW_RANS_TOTAL: one byte below 128;
 * two bytes for larger ones, 128 + f / 256 and f mod 256; a 0 is followed by a byte with the number
 * of further zeros. dst has TW_RANS_MODEL_BYTES_MAX. Returns the bytes. */
size_t tw_rans_model_encode(const struct tw_rans_model *model, uint8_t *dst);

/* Reads the frequencies of symbols below symbols_count from src[bytes]. Returns the bytes used, or
 * 0 if src does not begin with such a model. */
size_t tw_rans_model_decode(struct tw_rans_model *model, const uint8_t *src, size_t bytes,
                            unsigned symbols_count);

struct tw_rans_encoder {
    uint32_t states[TW_RANS_LANES];
    uint16_t frequency[TW_RANS_SYMBOLS_MAX], start[TW_RANS_SYMBOLS_MAX];
    unsigned symbols_end; /* one more than the largest symbol with a frequency */
    /* Division by a frequency as a multiplication, for vector variants: rans.c, set_division. */
    struct tw_rans_division {
        uint32_t reciprocal, step;
    } division[TW_RANS_SYMBOLS_MAX];
    /* For a mask of 8 words: shuffle indices that move the selected words, in order, to the end. */
    uint8_t last[256][16];
};

struct tw_rans_decoder {
    uint32_t states[TW_RANS_LANES];
    /* by the low bits of a state (its slot): symbol | frequency << 8 | (slot - start) << 20 */
    uint32_t slots[TW_RANS_TOTAL];
    uint16_t frequency[TW_RANS_SYMBOLS_MAX], start[TW_RANS_SYMBOLS_MAX];
    unsigned symbols_end;    /* one more than the largest symbol with a frequency */
    uint64_t rank[256];      /* for a mask of 8 lanes: number of selected lanes below each lane */
    const uint8_t *at, *end; /* words not yet taken; borrowed */
};

/* One implementation for this processor. All give the same bytes. */
struct tw_rans_form {
    const char *name; /* "plain", "AVX2", "AVX-512" */

    /* Writes the words of symbols (n) before words_end and returns their bytes, at most 2 n. There
     * must be room for 2 n + TW_RANS_WORDS_SLACK bytes. Calls go from the end of a stream to its
     * beginning; in every call but the first, n is a multiple of 64. Every symbol must have a
     * nonzero frequency. */
    size_t (*encode)(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end);

    /* Decodes symbols (n), from the beginning of a stream to its end; every call but the last has a
     * multiple of 64. TW_CORRUPT if words run out; symbols are then undefined. */
    enum tw_status (*decode)(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n);
};

/* The i-th best implementation that this processor can run, or NULL; 0 is the best, the last is
 * plain. */
const struct tw_rans_form *tw_rans_form(uint32_t i);

void tw_rans_encoder_init(struct tw_rans_encoder *encoder, const struct tw_rans_model *model);
/* Call after the last encode: writes the states to dst (TW_RANS_STATES_BYTES). */
void tw_rans_encoder_finish(const struct tw_rans_encoder *encoder, uint8_t *dst);

/* Borrows states (TW_RANS_STATES_BYTES) and words (words_bytes) until the stream ends. TW_CORRUPT
 * on a state that no encoder produces. */
enum tw_status tw_rans_decoder_init(struct tw_rans_decoder *decoder,
                                    const struct tw_rans_model *model, const uint8_t *states,
                                    const uint8_t *words, size_t words_bytes);
/* Call after the last decode: TW_CORRUPT unless the states are those in which the encoder began. */
enum tw_status tw_rans_decoder_finish(const struct tw_rans_decoder *decoder);

#endif
