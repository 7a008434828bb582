/* tokenizer_added.c - reads the added tokens of a tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "worker/tokenizer/tokenizer_json.h"

/* A word character as other tokenizers define it: \w of UTS #18. */
#define WORD_CHARACTER "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]"

/* Sets the text of an id. If the id is also a token of the model, merges still use the model's
 * bytes, but decoding uses the text. The two can differ: in a model's vocabulary, "é" is byte
 * E9. */
static enum tw_status set_token(struct tw_tokenizer *tokenizer, uint32_t id, const char *text,
                                bool is_special, struct tw_error *err) {
    struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    struct tw_bpe_token *const held = &vocab->tokens[id];
    const size_t size = strlen(text);
    const unsigned flags = TW_BPE_TOKEN_ADDED | (is_special ? TW_BPE_TOKEN_SPECIAL : 0u);
    if ((held->flags & TW_BPE_TOKEN_ADDED) != 0) {
        return tw_fail(err, TW_CORRUPT, "added_tokens: two tokens have the id %u", id);
    }
    if ((held->flags & TW_BPE_TOKEN_SET) != 0 && held->bytes == size &&
        memcmp(vocab->arena + held->offset, text, size) == 0) {
        held->flags = (uint16_t)(held->flags | flags);
        return TW_OK;
    }
    if ((held->flags & TW_BPE_TOKEN_SET) != 0) tokenizer->is_exact = false;
    return tw_bpe_vocab_set(vocab, id, (const uint8_t *)text, size,
                            (enum tw_bpe_token_flags)(flags | TW_BPE_TOKEN_SET), err);
}

static enum tw_status check_normal(const struct tw_tokenizer *tokenizer, const char *text,
                                   struct tw_error *err) {
    struct tw_bpe_piece piece = {(const uint8_t *)text, strlen(text)};
    if (tokenizer->nfc == NULL) return TW_OK;
    struct tw_bpe_nfc_buffer *const buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL) return tw_fail(err, TW_NOMEM, "no memory to normalise");
    enum tw_status status = tw_bpe_nfc_apply(tokenizer->nfc, buffer, &piece, err);
    if (status == TW_OK && piece.text != (const uint8_t *)text &&
        (piece.bytes != strlen(text) || memcmp(piece.text, text, piece.bytes) != 0)) {
        status =
            tw_fail(err, TW_CONFIG,
                    "added_tokens: %.40s is normalized but not in form NFC: write it in NFC", text);
    }
    tw_bpe_nfc_buffer_deinit(buffer);
    free(buffer);
    return status;
}

static enum tw_status read_one(struct tw_tokenizer *tokenizer, const json_t *token,
                               const json_t *vocab, struct tw_error *err) {
    const char *const text = tw_tokenizer_word(token, "content");
    const uint32_t id = (uint32_t)json_integer_value(json_object_get(token, "id"));
    const json_t *const known = json_object_get(vocab, text);
    const bool is_special = tw_tokenizer_flag(token, "special", false);
    const bool is_normalized = tw_tokenizer_flag(token, "normalized", !is_special);
    if (text[0] == 0) return TW_OK; /* would never match */
    if (known != NULL && (uint32_t)json_integer_value(known) != id) {
        return tw_fail(err, TW_CORRUPT,
                       "added_tokens: %.40s has the id %u here and %lld in the vocabulary", text,
                       id, (long long)json_integer_value(known));
    }
    TW_TRY(set_token(tokenizer, id, text, is_special, err));
    if (is_normalized) TW_TRY(check_normal(tokenizer, text, err));
    struct tw_bpe_added *const added = &tokenizer->added[is_normalized];
    const struct tw_bpe_token *const held = &tokenizer->vocab.tokens[id];
    struct tw_bpe_added_token *const one = &added->tokens[added->count++];
    *one = (struct tw_bpe_added_token){
        .text = tokenizer->vocab.arena + held->offset,
        .bytes = held->bytes,
        .token = id,
        .is_special = is_special,
        .is_single_word = tw_tokenizer_flag(token, "single_word", false),
        .is_left_strip = tw_tokenizer_flag(token, "lstrip", false),
        .is_right_strip = tw_tokenizer_flag(token, "rstrip", false),
    };
    if (one->is_left_strip || one->is_right_strip) tokenizer->is_exact = false;
    if (one->is_single_word && tokenizer->word.code == NULL) {
        return tw_bpe_pattern_compile_own(&tokenizer->word, WORD_CHARACTER, err);
    }
    return TW_OK;
}

static enum tw_status check_once(const struct tw_bpe_added *added, struct tw_error *err) {
    for (size_t i = 1; i < added->count; i++) {
        const struct tw_bpe_added_token *const a = &added->tokens[i - 1], *const b = a + 1;
        if (a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0) {
            return tw_fail(err, TW_CORRUPT, "added_tokens: %.*s is there twice",
                           (int)(a->bytes < 40 ? a->bytes : 40), (const char *)a->text);
        }
    }
    return TW_OK;
}

enum tw_status tw_tokenizer_read_added(struct tw_tokenizer *tokenizer, const json_t *root,
                                       struct tw_error *err) {
    const json_t *const list = tw_tokenizer_part(root, "added_tokens");
    const json_t *const vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const size_t count = json_array_size(list);
    json_t *token;
    size_t index;
    if ((list != NULL && !json_is_array(list)) || count > TW_BPE_ADDED_MAX) {
        return tw_fail(err, TW_CONFIG, "added_tokens: a list of at most %d is supported",
                       TW_BPE_ADDED_MAX);
    }
    for (size_t set = 0; set < 2; set++) {
        struct tw_bpe_added *const added = &tokenizer->added[set];
        added->tokens = calloc(count > 0 ? count : 1, sizeof(*added->tokens));
        if (added->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for added tokens");
    }
    json_array_foreach(list, index, token) TW_TRY(read_one(tokenizer, token, vocab, err));
    for (size_t set = 0; set < 2; set++) {
        tw_bpe_added_index(&tokenizer->added[set]);
        TW_TRY(check_once(&tokenizer->added[set], err));
    }
    return TW_OK;
}
