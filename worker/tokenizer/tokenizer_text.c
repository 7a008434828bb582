#include "worker/tokenizer/tokenizer_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/support/in_file.h"
#include "worker/tokenizer/tokenizer_json.h"

/* ---- create and destroy ------------------------------------------------------------------------
 */

static struct tw_tokenizer *alloc_tokenizer(struct tw_error *err) {
    struct tw_tokenizer *const tokenizer = calloc(1, sizeof(*tokenizer));
    if (tokenizer == NULL) {
        (void)tw_fail(err, TW_NOMEM, "no memory for a tokenizer");
        return NULL;
    }
    tokenizer->bos = tokenizer->eos = tokenizer->unknown = TW_TOKEN_NONE;
    tokenizer->prefix_step = UINT32_MAX;
    return tokenizer;
}

void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    for (uint32_t i = 0; i < tokenizer->steps_count; i++) {
        tw_bpe_pattern_free(&tokenizer->steps[i].pattern);
    }
    tw_bpe_pattern_free(&tokenizer->word);
    free(tokenizer->added[0].tokens);
    free(tokenizer->added[1].tokens);
    tw_bpe_deinit(&tokenizer->bpe);
    tw_bpe_vocab_deinit(&tokenizer->vocab);
    free(tokenizer);
}

enum tw_status tw_tokenizer_create_bytes(struct tw_tokenizer **tokenizer_out,
                                         struct tw_error *err) {
    struct tw_tokenizer *const tokenizer = alloc_tokenizer(err);
    if (tokenizer == NULL) return TW_NOMEM;
    tokenizer->is_bytes = tokenizer->is_exact = true;
    enum tw_status status = tw_bpe_vocab_init(&tokenizer->vocab, 256, 256, err);
    for (uint32_t i = 0; status == TW_OK && i < 256; i++) {
        const uint8_t byte = (uint8_t)i;
        status = tw_bpe_vocab_set(&tokenizer->vocab, i, &byte, 1, TW_BPE_TOKEN_SET, err);
    }
    if (status != TW_OK) {
        tw_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return TW_OK;
}

enum tw_status tw_tokenizer_create_json(struct tw_tokenizer **tokenizer_out, const char *json,
                                        size_t size, struct tw_error *err) {
    struct tw_tokenizer *const tokenizer = alloc_tokenizer(err);
    if (tokenizer == NULL) return TW_NOMEM;
    const enum tw_status status = tw_tokenizer_read(tokenizer, json, size, err);
    if (status != TW_OK) {
        tw_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return TW_OK;
}

enum tw_status tw_tokenizer_create_file(struct tw_tokenizer **tokenizer, const char *path,
                                        struct tw_error *err) {
    struct tw_error why;
    char *json = NULL;
    size_t size = 0;
    TW_TRY(tw_in_read_whole(path, TW_TOKENIZER_JSON_BYTES_MAX, &json, &size, err));
    const enum tw_status status = tw_tokenizer_create_json(tokenizer, json, size, &why);
    free(json);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%.90s: %s", path, why.message);
}

/* ---- contents ----------------------------------------------------------------------------------
 */

uint32_t tw_tokenizer_vocab(const struct tw_tokenizer *tokenizer) {
    return tokenizer->vocab.count;
}

const uint8_t *tw_tokenizer_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                                  size_t *size) {
    const struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    *size = token < vocab->count ? vocab->tokens[token].bytes : 0;
    return token < vocab->count ? vocab->arena + vocab->tokens[token].offset : vocab->arena;
}

uint32_t tw_tokenizer_find(const struct tw_tokenizer *tokenizer, const char *text) {
    const size_t bytes = strlen(text);
    for (size_t set = 0; set < 2; set++) {
        const struct tw_bpe_added *const added = &tokenizer->added[set];
        for (size_t i = 0; i < added->count; i++) {
            const struct tw_bpe_added_token *const one = &added->tokens[i];
            if (one->bytes == bytes && memcmp(one->text, text, bytes) == 0) return one->token;
        }
    }
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_find_any(const struct tw_tokenizer *tokenizer, const char *text) {
    const struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    const size_t bytes = strlen(text);
    const uint32_t added = tw_tokenizer_find(tokenizer, text);
    for (uint32_t i = 0; added == TW_TOKEN_NONE && i < vocab->count; i++) {
        const struct tw_bpe_token *const token = &vocab->tokens[i];
        if ((token->flags & TW_BPE_TOKEN_SET) != 0 && token->bytes == bytes &&
            memcmp(vocab->arena + token->offset, text, bytes) == 0) {
            return i;
        }
    }
    return added;
}

uint32_t tw_tokenizer_bos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->bos;
}

uint32_t tw_tokenizer_eos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->eos;
}

bool tw_tokenizer_is_exact(const struct tw_tokenizer *tokenizer) {
    return tokenizer->is_exact;
}

/* ---- decoding -------------------------------------------------------------------------------- */

size_t tw_tokenizer_join(const struct tw_tokenizer *tokenizer, const uint32_t *tokens, size_t count,
                         uint8_t *text, size_t room) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const uint8_t *const token = tw_tokenizer_token(tokenizer, tokens[i], &size);
        const size_t left = room > bytes ? room - bytes : 0;
        if (left > 0) memcpy(text + bytes, token, size < left ? size : left);
        bytes += size;
    }
    return bytes;
}

size_t tw_decoder_take(struct tw_decoder *decoder, uint32_t token, uint8_t *out) {
    size_t size, written = 0;
    const uint8_t *const text = tw_tokenizer_token(decoder->tokenizer, token, &size);
    for (size_t i = 0; i < size; i++) {
        written += tw_utf8_take(&decoder->stream, text[i], out + written);
    }
    TW_ASSERT(written <= TW_DECODER_BYTES_MAX);
    return written;
}

size_t tw_decoder_end(struct tw_decoder *decoder, uint8_t *out) {
    return tw_utf8_end(&decoder->stream, out);
}
