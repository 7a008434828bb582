#include "worker/files/gguf_vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/tokenizer/byte_tokenizer.h"

enum { GGUF_NORMAL = 1, GGUF_CONTROL = 3, GGUF_USER = 4, GGUF_UNUSED = 5 };

static void put_bytes_tokenizer(struct tw_gguf_head *head) {
    tw_gguf_pair_string(head, "tokenizer.ggml.model", "gpt2");
    tw_gguf_pair_string(head, "tokenizer.ggml.pre", "gpt-2");
    tw_gguf_pair_array(head, "tokenizer.ggml.tokens", TW_GGUF_STRING, 256);
    for (unsigned byte = 0; byte < 256; byte++) {
        char token[TW_BYTE_TOKEN_BYTES];
        (void)tw_byte_token((uint8_t)byte, token);
        tw_gguf_put_string(head, token);
    }
    tw_gguf_pair_array(head, "tokenizer.ggml.token_type", TW_GGUF_I32, 256);
    for (unsigned byte = 0; byte < 256; byte++) tw_gguf_put_u32(head, GGUF_NORMAL);
    tw_gguf_pair_array(head, "tokenizer.ggml.merges", TW_GGUF_STRING, 0);
    tw_gguf_pair_u32(head, "tokenizer.ggml.bos_token_id", 0);
    tw_gguf_pair_u32(head, "tokenizer.ggml.eos_token_id", 0);
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_bos_token", false);
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_eos_token", false);
}

/* The token as text: model tokens in GPT-2's characters, added tokens as they appear in text. */
enum { SPELLED_BYTES = 2 * TW_TOKEN_BYTES_MAX };

static size_t spell_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                          char text[SPELLED_BYTES]) {
    size_t bytes, size = 0;
    const uint8_t *const from = tw_tokenizer_token(tokenizer, token, &bytes);
    if (tw_tokenizer_kind(tokenizer, token) != TW_TOKEN_NORMAL) {
        memcpy(text, from, bytes);
        return bytes;
    }
    for (size_t i = 0; i < bytes; i++) {
        char one[TW_BYTE_TOKEN_BYTES];
        const size_t length = tw_byte_token(from[i], one);
        memcpy(text + size, one, length);
        size += length;
    }
    return size;
}

static void put_tokens(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                       uint32_t vocab) {
    char text[SPELLED_BYTES];
    tw_gguf_pair_array(head, "tokenizer.ggml.tokens", TW_GGUF_STRING, vocab);
    for (uint32_t token = 0; token < vocab; token++) {
        if (tw_tokenizer_kind(tokenizer, token) == TW_TOKEN_UNUSED) {
            (void)snprintf(text, sizeof(text), "[PAD%u]", token);
            tw_gguf_put_string(head, text);
        } else {
            tw_gguf_put_text(head, text, spell_token(tokenizer, token, text));
        }
    }
    tw_gguf_pair_array(head, "tokenizer.ggml.token_type", TW_GGUF_I32, vocab);
    for (uint32_t token = 0; token < vocab; token++) {
        static const uint32_t TYPES[] = {[TW_TOKEN_UNUSED] = GGUF_UNUSED,
                                         [TW_TOKEN_NORMAL] = GGUF_NORMAL,
                                         [TW_TOKEN_CONTROL] = GGUF_CONTROL,
                                         [TW_TOKEN_USER] = GGUF_USER};
        tw_gguf_put_u32(head, TYPES[tw_tokenizer_kind(tokenizer, token)]);
    }
}

static enum tw_status put_merges(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 struct tw_error *err) {
    const size_t count = tw_tokenizer_merges(tokenizer, NULL);
    struct tw_token_pair *const pairs = calloc(count > 0 ? count : 1, sizeof(*pairs));
    if (pairs == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu merges", count);
    (void)tw_tokenizer_merges(tokenizer, pairs);
    tw_gguf_pair_array(head, "tokenizer.ggml.merges", TW_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++) {
        char text[2 * SPELLED_BYTES + 1];
        size_t size = spell_token(tokenizer, pairs[i].left, text);
        text[size++] = ' ';
        size += spell_token(tokenizer, pairs[i].right, text + size);
        tw_gguf_put_text(head, text, size);
    }
    free(pairs);
    return TW_OK;
}

enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, struct tw_error *err) {
    if (tokenizer == NULL) {
        put_bytes_tokenizer(head);
        return TW_OK;
    }
    const char *const split = tw_tokenizer_split_name(tokenizer);
    if (tw_tokenizer_vocab(tokenizer) > vocab) {
        return tw_fail(err, TW_CONFIG,
                       "the tokenizer has %u tokens and the model %u: it is not this model's",
                       tw_tokenizer_vocab(tokenizer), vocab);
    }
    if (split == NULL) {
        return tw_fail(
            err, TW_CONFIG,
            "GGUF has no name for how this tokenizer splits text (those of GPT-2, Llama "
            "3, Qwen 2 and SmolLM have one): export without --tokenizer, or --format hf");
    }
    tw_gguf_pair_string(head, "tokenizer.ggml.model", "gpt2");
    tw_gguf_pair_string(head, "tokenizer.ggml.pre", split);
    put_tokens(head, tokenizer, vocab);
    TW_TRY(put_merges(head, tokenizer, err));
    const uint32_t bos = tw_tokenizer_bos(tokenizer), eos = tw_tokenizer_eos(tokenizer);
    if (bos != TW_TOKEN_NONE) tw_gguf_pair_u32(head, "tokenizer.ggml.bos_token_id", bos);
    if (eos != TW_TOKEN_NONE) tw_gguf_pair_u32(head, "tokenizer.ggml.eos_token_id", eos);
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_bos_token", tw_tokenizer_puts_bos(tokenizer));
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_eos_token", tw_tokenizer_puts_eos(tokenizer));
    return TW_OK;
}
