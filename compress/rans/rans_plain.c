/* rans_plain.c - rANS as in the equations of rans.h: for any processor, and for the last symbols of
 * a stream in the other implementations. */
#include "base/bytes.h"
#include "compress/rans/rans_isa.h"

enum { LANES = TW_RANS_LANES, BITS = TW_RANS_TOTAL_BITS, WORD_BYTES = 2 };

static size_t encode(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end) {
    uint8_t *to = words_end;
    for (size_t i = n; i-- > 0;) {
        uint32_t x = encoder->states[i % LANES];
        const uint32_t f = encoder->frequency[symbols[i]];
        if (x >= f << 19) {
            to -= WORD_BYTES;
            tw_put_u16(to, (uint16_t)(x & 0xFFFFu));
            x >>= 16;
        }
        encoder->states[i % LANES] = (x / f << BITS) + encoder->start[symbols[i]] + x % f;
    }
    return (size_t)(words_end - to);
}

static enum tw_status decode(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n) {
    const uint8_t *at = decoder->at;
    size_t words = (size_t)(decoder->end - at) / WORD_BYTES;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = decoder->states[i % LANES];
        const uint32_t slot = decoder->slots[x & (TW_RANS_TOTAL - 1)];
        symbols[i] = (uint8_t)(slot & 0xFFu);
        x = (slot >> 8 & 0xFFFu) * (x >> BITS) + (slot >> 20);
        if (x < TW_RANS_FIRST_STATE) {
            if (words == 0) return TW_CORRUPT;
            x = x << 16 | tw_get_u16(at);
            at += WORD_BYTES;
            words--;
        }
        decoder->states[i % LANES] = x;
    }
    decoder->at = at;
    return TW_OK;
}

const struct tw_rans_form tw_base_rans = {.name = "plain", .encode = encode, .decode = decode};
