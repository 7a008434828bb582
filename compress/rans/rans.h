/* rans.h - an entropy coder of order 0: bytes in, nearly their entropy out.
 *
 * rANS (Duda, arXiv 1311.2540) with 12-bit probabilities, 64 interleaved 32-bit states in
 * [2^15, 2^31) and renormalisation by 16-bit words. Symbol i belongs to lane i mod 64. With
 * frequencies f[s] > 0 of sum 2^12, start[s] the sum of those before s, and x the state of the
 * lane:
 *
 *     encode, from the last symbol to the first:   if x >= f[s] 2^19: emit x mod 2^16, x >>= 16
 *                                                  x = (x / f[s]) 2^12 + start[s] + x mod f[s]
 *     decode, from the first symbol to the last:   s = the symbol whose range holds x mod 2^12
 *                                                  x = f[s] (x >> 12) + x mod 2^12 - start[s]
 *                                                  if x < 2^15: x = x 2^16 + next word
 *
 * Words are little-endian and in the order in which the decoder takes them. An encoder starts with
 * every state at 2^15, so a decoder must end there, with no word left: damage rarely does. Lanes
 * are independent between two words, so the vector forms, whatever their width, give the same bytes
 * as the plain one. No allocation. */
#ifndef TW_COMPRESS_RANS_RANS_H
#define TW_COMPRESS_RANS_RANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tw_rans_bounds {
    TW_RANS_LANES = 64,
    TW_RANS_TOTAL_BITS = 12,
    TW_RANS_TOTAL = 1 << TW_RANS_TOTAL_BITS,  /* what frequencies add up to */
    TW_RANS_SYMBOLS_MAX = 256,                /* symbols are bytes */
    TW_RANS_STATES_BYTES = 4 * TW_RANS_LANES, /* of the 64 states on the wire */
    TW_RANS_MODEL_BYTES_MAX = 2 * 256,        /* of frequencies on the wire */
    TW_RANS_WORDS_SLACK = 32,                 /* bytes: encode may write so far below its words */
    TW_RANS_FIRST_STATE = 1 << 15,
};

/* Frequencies of symbols: at least two are not 0, all add up to TW_RANS_TOTAL. */
struct tw_rans_model {
    uint16_t frequency[TW_RANS_SYMBOLS_MAX];
};

/* Frequencies for counts (256) that add up to total <= 2^32 - 1: rounded shares, then
 * units taken and given where they cost least and save most. Integers: the same on every machine.
 * False where fewer than two symbols occur. */
bool tw_rans_model_fit(struct tw_rans_model *model, const uint32_t *counts, uint32_t total);

/* Frequencies from that of symbol 0 on, until they add up to TW_RANS_TOTAL: below 128 a byte; two
 * bytes for larger ones, 128 + f / 256 and f mod 256; 0 is followed by a byte that says how many
 * more are 0. dst has TW_RANS_MODEL_BYTES_MAX. Returns the bytes. */
size_t tw_rans_model_encode(const struct tw_rans_model *model, uint8_t *dst);

/* The bytes used of src[bytes], or 0 where no model of symbols below symbols_count stands there. */
size_t tw_rans_model_decode(struct tw_rans_model *model, const uint8_t *src, size_t bytes,
                            unsigned symbols_count);

struct tw_rans_encoder {
    uint32_t states[TW_RANS_LANES];
    uint16_t frequency[TW_RANS_SYMBOLS_MAX], start[TW_RANS_SYMBOLS_MAX];
    unsigned symbols_end; /* every symbol is below */
    /* Division by a frequency as a product, for vector forms: rans.c, set_division. */
    struct tw_rans_division {
        uint32_t reciprocal, step;
    } division[TW_RANS_SYMBOLS_MAX];
    /* For a mask of 8 words: bytes of those in it, ascending, as the last. */
    uint8_t last[256][16];
};

struct tw_rans_decoder {
    uint32_t states[TW_RANS_LANES];
    uint32_t slots[TW_RANS_TOTAL]; /* symbol | frequency << 8 | (slot - start) << 20 */
    uint16_t frequency[TW_RANS_SYMBOLS_MAX], start[TW_RANS_SYMBOLS_MAX];
    unsigned symbols_end;    /* every symbol is below */
    uint64_t rank[256];      /* for a mask of 8 lanes: how many of it lie below each lane */
    const uint8_t *at, *end; /* words not yet taken; borrowed */
};

/* One way to do the work on this processor. All give the same bytes. */
struct tw_rans_form {
    const char *name; /* "plain", "AVX2", "AVX-512" */

    /* Puts the words of symbols (n) before words_end and returns their bytes, at most 2 n. There
     * is room for 2 n + TW_RANS_WORDS_SLACK bytes. Calls go from the end of a stream to its
     * beginning, and every call but the first is for a multiple of 64. Every symbol has a frequency
     * that is not 0. */
    size_t (*encode)(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end);

    /* symbols (n), from the beginning of a stream to its end; every call but the last is for a
     * multiple of 64. TW_CORRUPT where words ran out; symbols are then undefined. */
    enum tw_status (*decode)(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n);
};

/* The i-th best form that this processor can run, or NULL; 0 is the best, the last is plain. */
const struct tw_rans_form *tw_rans_form(uint32_t i);

void tw_rans_encoder_init(struct tw_rans_encoder *encoder, const struct tw_rans_model *model);
/* After the last call of encode. dst has TW_RANS_STATES_BYTES. */
void tw_rans_encoder_finish(const struct tw_rans_encoder *encoder, uint8_t *dst);

/* states (TW_RANS_STATES_BYTES) and words (words_bytes), borrowed until the stream ends.
 * TW_CORRUPT on a state that no encoder has. */
enum tw_status tw_rans_decoder_init(struct tw_rans_decoder *decoder,
                                    const struct tw_rans_model *model, const uint8_t *states,
                                    const uint8_t *words, size_t words_bytes);
/* After the last call of decode: TW_CORRUPT unless the stream ended where its encoder began. */
enum tw_status tw_rans_decoder_finish(const struct tw_rans_decoder *decoder);

#endif
