/* fuzz_tokenizer.c - arbitrary bytes as a tokenizer.json and a text: refused, or tokens of its
 * vocabulary. If the tokenizer claims to be exact, they decode to the text. Input: the JSON, NUL,
 * the text. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/tokenizer/tokenizer_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_back(const struct tw_tokenizer *tokenizer, const struct tw_tokens *tokens,
                       const uint8_t *text, size_t bytes) {
    const size_t size = tw_tokenizer_join(tokenizer, tokens->tokens, tokens->count, NULL, 0);
    uint8_t *const back = malloc(size + 1);
    TW_ASSERT(back != NULL);
    TW_ASSERT(tw_tokenizer_join(tokenizer, tokens->tokens, tokens->count, back, size) == size);
    if (tw_tokenizer_is_exact(tokenizer)) {
        TW_ASSERT(size == bytes && memcmp(back, text, bytes) == 0);
    }
    free(back);
}

static void check(const struct tw_tokenizer *tokenizer, const uint8_t *text, size_t bytes) {
    struct tw_encoder *encoder;
    struct tw_tokens tokens = {.tokens = NULL};
    struct tw_decoder decoder = {.tokenizer = tokenizer};
    uint8_t out[TW_DECODER_BYTES_MAX];
    if (tw_encoder_create(&encoder, tokenizer, NULL) != TW_OK) return;
    for (int flags = 0; flags < 4; flags++) {
        tokens.count = 0;
        if (tw_encoder_append(encoder, text, bytes, (enum tw_encode_flags)flags, &tokens, NULL) !=
            TW_OK) {
            continue;
        }
        for (size_t i = 0; i < tokens.count; i++) {
            TW_ASSERT(tokens.tokens[i] < tw_tokenizer_vocab(tokenizer));
            TW_ASSERT(tw_decoder_take(&decoder, tokens.tokens[i], out) <= sizeof(out));
        }
        (void)tw_decoder_end(&decoder, out);
        if (flags < 2) check_back(tokenizer, &tokens, text, bytes);
    }
    tw_tokens_deinit(&tokens);
    tw_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_tokenizer *tokenizer;
    const uint8_t *const end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t json_bytes = end != NULL ? (size_t)(end - data) : size;
    const size_t bytes = end != NULL ? size - json_bytes - 1 : 0;
    struct tw_error err;
    if (tw_tokenizer_create_json(&tokenizer, (const char *)data, json_bytes, &err) != TW_OK) {
        TW_ASSERT(memchr(err.message, 0, sizeof(err.message)) != NULL);
        return 0;
    }
    check(tokenizer, data + size - bytes, bytes);
    tw_tokenizer_destroy(tokenizer);
    return 0;
}
