/* rans.c - rANS: frequency models, tables of encoder and decoder, and the plain implementation. */
#include "compress/rans.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "kernels/ops.h"

enum {
    TOTAL = TW_RANS_TOTAL,
    SYMBOLS = TW_RANS_SYMBOLS_MAX,
    WORD_BYTES = 2,
    WIDE = 128, /* frequencies from this one on take two bytes in a model */
};

/* Returns true if a / b < c / d. The products fit, because counts have 32 bits and frequencies 12.
 */
static bool is_less(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return a * d < c * b;
}

/* Returns the symbol for which a frequency lower by 1 costs the fewest bits: count * log2(f / (f -
 * 1)) is nearly proportional to count / (f - 1/2). */
static unsigned cheapest_loss(const struct tw_rans_model *model, const uint32_t *counts) {
    unsigned best = SYMBOLS;
    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (model->frequency[s] < 2) continue;
        if (best == SYMBOLS || is_less(counts[s], 2u * model->frequency[s] - 1, counts[best],
                                       2u * model->frequency[best] - 1)) {
            best = s;
        }
    }
    return best;
}

/* Returns the symbol for which a frequency higher by 1 saves the most bits. */
static unsigned best_gain(const struct tw_rans_model *model, const uint32_t *counts) {
    unsigned best = SYMBOLS;
    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (model->frequency[s] == 0) continue;
        if (best == SYMBOLS || is_less(counts[best], 2u * model->frequency[best] + 1, counts[s],
                                       2u * model->frequency[s] + 1)) {
            best = s;
        }
    }
    return best;
}

bool tw_rans_model_fit(struct tw_rans_model *model, const uint32_t *counts, uint32_t total) {
    unsigned present = 0, sum = 0;
    for (unsigned s = 0; s < SYMBOLS; s++) {
        uint64_t f = 0;
        if (counts[s] > 0) {
            f = ((uint64_t)counts[s] * TOTAL + total / 2) / total;
            if (f == 0) f = 1;
            present++;
        }
        model->frequency[s] = (uint16_t)f;
        sum += (unsigned)f;
    }
    if (present < 2) return false;
    for (; sum > TOTAL; sum--) model->frequency[cheapest_loss(model, counts)]--;
    for (; sum < TOTAL; sum++) model->frequency[best_gain(model, counts)]++;
    TW_ASSERT(sum == TOTAL);
    return true;
}

size_t tw_rans_model_encode(const struct tw_rans_model *model, uint8_t *dst) {
    uint8_t *to = dst;
    unsigned left = TOTAL;
    for (unsigned s = 0; left > 0; s++) {
        const unsigned f = model->frequency[s], first = s;
        if (f == 0) {
            while (model->frequency[s + 1] == 0) s++;
            *to++ = 0;
            *to++ = (uint8_t)(s - first);
        } else if (f < WIDE) {
            *to++ = (uint8_t)f;
        } else {
            *to++ = (uint8_t)(WIDE | f >> 8);
            *to++ = (uint8_t)(f & 0xFF);
        }
        TW_ASSERT(f <= left);
        left -= f;
    }
    TW_ASSERT(to - dst <= TW_RANS_MODEL_BYTES_MAX);
    return (size_t)(to - dst);
}

size_t tw_rans_model_decode(struct tw_rans_model *model, const uint8_t *src, size_t bytes,
                            unsigned symbols_count) {
    size_t at = 0;
    unsigned left = TOTAL, s = 0;
    memset(model, 0, sizeof(*model));
    while (left > 0) {
        if (at == bytes) return 0;
        unsigned f = src[at++];
        const bool is_zero = f == 0, is_wide = f >= WIDE;
        if ((is_zero || is_wide) && at == bytes) return 0;
        if (is_zero) {
            s += 1u + src[at++];
            continue;
        }
        if (is_wide) f = (f - WIDE) << 8 | src[at++];
        if (s >= symbols_count || f > left || f == TOTAL || (is_wide && f < WIDE)) return 0;
        model->frequency[s++] = (uint16_t)f;
        left -= f;
    }
    return at;
}

/* x / f = (x * reciprocal >> 32) >> shift for every x < 2^31 (Alverson, in Giesen's form). So the
 * next state is x + bias + (x / f) * (2^12 - f). With f = 1 the multiplication gives x - 1, which
 * the bias corrects. */
static void set_division(struct tw_rans_encoder *encoder, unsigned s) {
    const uint32_t f = encoder->frequency[s];
    uint32_t bias = encoder->start[s], shift = 0, reciprocal = UINT32_MAX;
    if (f == 1) {
        bias += TOTAL - 1;
    } else {
        while (1u << shift < f) shift++;
        reciprocal = (uint32_t)(((UINT64_C(1) << (shift + 31)) + f - 1) / f);
        shift--;
    }
    encoder->division[s].reciprocal = reciprocal;
    encoder->division[s].step =
        (TOTAL - f) | bias << TW_RANS_STEP_BIAS | shift << TW_RANS_STEP_SHIFT;
}

void tw_rans_encoder_init(struct tw_rans_encoder *encoder, const struct tw_rans_model *model) {
    for (unsigned j = 0; j < TW_RANS_LANES; j++) encoder->states[j] = TW_RANS_FIRST_STATE;
    unsigned start = 0;
    for (unsigned s = 0; s < SYMBOLS; s++) {
        encoder->frequency[s] = model->frequency[s];
        encoder->start[s] = (uint16_t)start;
        encoder->division[s] = (struct tw_rans_division){0};
        if (model->frequency[s] == 0) continue;
        set_division(encoder, s);
        start += model->frequency[s];
    }
    TW_ASSERT(start == TOTAL);
    for (unsigned mask = 0; mask < 256; mask++) {
        unsigned at = 16;
        for (unsigned lane = 8; lane-- > 0;) {
            if ((mask >> lane & 1) == 0) continue;
            encoder->last[mask][--at] = (uint8_t)(2 * lane + 1);
            encoder->last[mask][--at] = (uint8_t)(2 * lane);
        }
    }
}

void tw_rans_encoder_finish(const struct tw_rans_encoder *encoder, uint8_t *dst) {
    for (unsigned j = 0; j < TW_RANS_LANES; j++) tw_put_u32(dst + 4 * j, encoder->states[j]);
}

enum tw_status tw_rans_decoder_init(struct tw_rans_decoder *decoder,
                                    const struct tw_rans_model *model, const uint8_t *states,
                                    const uint8_t *words, size_t words_bytes) {
    for (unsigned j = 0; j < TW_RANS_LANES; j++) {
        const uint32_t state = tw_get_u32(states + 4 * j);
        if (state < TW_RANS_FIRST_STATE || state >> 31 != 0) return TW_CORRUPT;
        decoder->states[j] = state;
    }
    unsigned slot = 0;
    for (unsigned s = 0; s < SYMBOLS; s++) {
        const uint32_t f = model->frequency[s];
        TW_ASSERT(f <= TOTAL - slot);
        for (uint32_t i = 0; i < f; i++) decoder->slots[slot++] = s | f << 8 | i << 20;
    }
    for (unsigned mask = 0; mask < 256; mask++) {
        uint64_t ranks = 0, below = 0;
        for (unsigned lane = 0; lane < 8; lane++) {
            ranks |= below << 8 * lane;
            below += mask >> lane & 1;
        }
        decoder->rank[mask] = ranks;
    }
    TW_ASSERT(slot == TOTAL);
    decoder->at = words;
    decoder->end = words + words_bytes;
    return TW_OK;
}

enum tw_status tw_rans_decoder_finish(const struct tw_rans_decoder *decoder) {
    uint32_t wrong = 0;
    for (unsigned j = 0; j < TW_RANS_LANES; j++) wrong |= decoder->states[j] ^ TW_RANS_FIRST_STATE;
    return wrong == 0 && decoder->at == decoder->end ? TW_OK : TW_CORRUPT;
}

/* ---- the plain implementation: as in the equations of rans.h -------------------------------- */

static size_t encode(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end) {
    uint8_t *to = words_end;
    for (size_t i = n; i-- > 0;) {
        uint32_t x = encoder->states[i % TW_RANS_LANES];
        const uint32_t f = encoder->frequency[symbols[i]];
        if (x >= f << 19) {
            to -= WORD_BYTES;
            tw_put_u16(to, (uint16_t)(x & 0xFFFFu));
            x >>= 16;
        }
        encoder->states[i % TW_RANS_LANES] =
            (x / f << TW_RANS_TOTAL_BITS) + encoder->start[symbols[i]] + x % f;
    }
    return (size_t)(words_end - to);
}

static enum tw_status decode(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n) {
    const uint8_t *at = decoder->at;
    size_t words = (size_t)(decoder->end - at) / WORD_BYTES;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = decoder->states[i % TW_RANS_LANES];
        const uint32_t slot = decoder->slots[x & (TW_RANS_TOTAL - 1)];
        symbols[i] = (uint8_t)(slot & 0xFFu);
        x = (slot >> 8 & 0xFFFu) * (x >> TW_RANS_TOTAL_BITS) + (slot >> 20);
        if (x < TW_RANS_FIRST_STATE) {
            if (words == 0) return TW_CORRUPT;
            x = x << 16 | tw_get_u16(at);
            at += WORD_BYTES;
            words--;
        }
        decoder->states[i % TW_RANS_LANES] = x;
    }
    decoder->at = at;
    return TW_OK;
}

const struct tw_rans_form tw_base_rans = {.name = "plain", .encode = encode, .decode = decode};

const struct tw_rans_form *tw_rans_form(uint32_t i) {
    const struct tw_rans_form *found[2];
    uint32_t count = 0;
#ifdef TW_COMPRESS_X86
    if (tw_cpu_has_avx2()) found[count++] = &tw_avx2_rans;
#endif
    found[count++] = &tw_base_rans;
    return i < count ? found[i] : NULL;
}
