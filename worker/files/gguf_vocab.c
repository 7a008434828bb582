#include "worker/files/gguf_vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/tokenizer/tokenizer_text.h"
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
}

/* Spells a token as GGUF expects it: model tokens in GPT-2's characters for bytes, added tokens as
 * they appear in text. */
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

/* ---- the ends of a text ---------------------------------------------------------------------- */

/* llama.cpp stops at each of these tokens. If the file names no eos, llama.cpp assumes token 11,
 * which is a comma in GPT-2. */
static const char *const STOPS[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                    "tokenizer.ggml.eom_token_id"};
enum { STOPS_COUNT = sizeof(STOPS) / sizeof(STOPS[0]) };

/* `first`: the token that the template puts after a text, or TW_TOKEN_NONE. It is written as the
 * eos. */
static enum tw_status put_stops(struct tw_gguf_head *head, uint32_t first,
                                const struct tw_end_ids *ids, struct tw_error *err) {
    uint32_t count = 0;
    if (first != TW_TOKEN_NONE) tw_gguf_pair_u32(head, STOPS[count++], first);
    for (uint32_t i = 0; i < ids->eos_count; i++) {
        if (ids->eos[i] == first) continue;
        if (count == STOPS_COUNT) {
            return tw_fail(err, TW_CONFIG,
                           "%u tokens end a text of this model, and GGUF has room for %d: name one "
                           "with --eos, or export with --format hf",
                           ids->eos_count, STOPS_COUNT);
        }
        tw_gguf_pair_u32(head, STOPS[count++], ids->eos[i]);
    }
    if (count > 0) return TW_OK;
    return tw_fail(
        err, TW_CONFIG,
        "nothing says which token ends a text, and llama.cpp would take a comma: name it "
        "with --eos, as text or number");
}

/* If the model has no begin token, the end token of a previous text serves as one. */
static enum tw_status put_ends(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                               const struct tw_text_ends *ends, struct tw_error *err) {
    static const struct tw_end_ids ZERO = {
        .eos = {0}, .eos_count = 1, .bos = 0, .pad = TW_TOKEN_NONE};
    const struct tw_end_ids *const ids = ends != NULL ? &ends->generation : &ZERO;
    const bool has_bos = tokenizer != NULL && tw_tokenizer_puts_bos(tokenizer);
    const bool has_eos = tokenizer != NULL && tw_tokenizer_puts_eos(tokenizer);
    uint32_t bos = tokenizer != NULL ? tw_tokenizer_bos(tokenizer) : TW_TOKEN_NONE;
    TW_TRY(put_stops(head, has_eos ? tw_tokenizer_last(tokenizer) : TW_TOKEN_NONE, ids, err));
    if (bos == TW_TOKEN_NONE) bos = ids->bos != TW_TOKEN_NONE ? ids->bos : ids->eos[0];
    tw_gguf_pair_u32(head, "tokenizer.ggml.bos_token_id", bos);
    if (ids->pad != TW_TOKEN_NONE) {
        tw_gguf_pair_u32(head, "tokenizer.ggml.padding_token_id", ids->pad);
    }
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_bos_token", has_bos);
    tw_gguf_pair_bool(head, "tokenizer.ggml.add_eos_token", has_eos);
    return TW_OK;
}

/* Refuses features that llama.cpp would silently ignore. */
static enum tw_status check_plain(const struct tw_tokenizer *tokenizer, struct tw_error *err) {
    const uint32_t strips = tw_tokenizer_strips(tokenizer);
    const uint32_t known =
        (tw_tokenizer_puts_bos(tokenizer) ? 1u : 0u) + (tw_tokenizer_puts_eos(tokenizer) ? 1u : 0u);
    if (tw_tokenizer_template_size(tokenizer) != known) {
        return tw_fail(
            err, TW_CONFIG,
            "the template of this tokenizer puts several tokens before or behind a text, "
            "and GGUF has room for one each: export with --format hf");
    }
    if (strips == TW_TOKEN_NONE) return TW_OK;
    size_t size;
    const uint8_t *const text = tw_tokenizer_token(tokenizer, strips, &size);
    return tw_fail(
        err, TW_CONFIG,
        "the added token %.*s of this tokenizer strips white space or matches whole words "
        "only (lstrip, rstrip, single_word), which GGUF cannot say: export with --format "
        "hf",
        (int)(size < 40 ? size : 40), (const char *)text);
}

/* ---- entry point ----------------------------------------------------------------------------- */

enum tw_status tw_gguf_put_vocab(struct tw_gguf_head *head, const struct tw_tokenizer *tokenizer,
                                 uint32_t vocab, const struct tw_text_ends *ends,
                                 struct tw_error *err) {
    if (tokenizer == NULL) {
        put_bytes_tokenizer(head);
        return put_ends(head, NULL, ends, err);
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
    TW_TRY(check_plain(tokenizer, err));
    tw_gguf_pair_string(head, "tokenizer.ggml.model", "gpt2");
    tw_gguf_pair_string(head, "tokenizer.ggml.pre", split);
    put_tokens(head, tokenizer, vocab);
    TW_TRY(put_merges(head, tokenizer, err));
    return put_ends(head, tokenizer, ends, err);
}
