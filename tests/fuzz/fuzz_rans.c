/* fuzz_rans.c - streams from a hostile peer: two bytes for the number of symbols, then a model,
 * states and words. All implementations agree, and an accepted stream encodes to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "compress/rans.h"

enum { SYMBOLS_MAX = UINT16_MAX, WORDS_ROOM = 2 * SYMBOLS_MAX + TW_RANS_WORDS_SLACK };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum tw_status decode(const struct tw_rans_form *form, const struct tw_rans_model *model,
                             const uint8_t *states, size_t bytes, uint8_t *symbols, size_t n) {
    static struct tw_rans_decoder decoder;
    TW_TRY(tw_rans_decoder_init(&decoder, model, states, states + TW_RANS_STATES_BYTES,
                                bytes - TW_RANS_STATES_BYTES));
    TW_TRY(form->decode(&decoder, symbols, n));
    return tw_rans_decoder_finish(&decoder);
}

static void encode_again(const struct tw_rans_form *form, const struct tw_rans_model *model,
                         const uint8_t *states, size_t bytes, const uint8_t *symbols, size_t n) {
    static struct tw_rans_encoder encoder;
    static uint8_t words[WORDS_ROOM], again[TW_RANS_STATES_BYTES];
    tw_rans_encoder_init(&encoder, model);
    const size_t words_bytes = form->encode(&encoder, symbols, n, words + WORDS_ROOM);
    tw_rans_encoder_finish(&encoder, again);
    TW_ASSERT(words_bytes == bytes - TW_RANS_STATES_BYTES);
    TW_ASSERT(memcmp(again, states, sizeof(again)) == 0);
    TW_ASSERT(
        memcmp(words + WORDS_ROOM - words_bytes, states + TW_RANS_STATES_BYTES, words_bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t symbols[SYMBOLS_MAX], others[SYMBOLS_MAX];
    struct tw_rans_model model;
    if (size < 2) return 0;
    const size_t n = tw_get_u16(data);
    const size_t used = tw_rans_model_decode(&model, data + 2, size - 2, TW_RANS_SYMBOLS_MAX);
    if (used == 0 || size - 2 - used < TW_RANS_STATES_BYTES) return 0;
    const uint8_t *states = data + 2 + used;
    const size_t bytes = size - 2 - used;
    const enum tw_status status = decode(tw_rans_form(0), &model, states, bytes, symbols, n);
    for (uint32_t i = 1; tw_rans_form(i) != NULL; i++) {
        TW_ASSERT(decode(tw_rans_form(i), &model, states, bytes, others, n) == status);
        TW_ASSERT(status != TW_OK || memcmp(symbols, others, n) == 0);
    }
    if (status != TW_OK) return 0;
    for (uint32_t i = 0; tw_rans_form(i) != NULL; i++) {
        encode_again(tw_rans_form(i), &model, states, bytes, symbols, n);
    }
    return 0;
}
