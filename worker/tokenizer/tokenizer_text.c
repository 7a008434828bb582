#include "worker/tokenizer/tokenizer_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/tokenizer_inner.h"

/* ---- create and destroy ---------------------------------------------------------------------- */

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

/* ---- contents -------------------------------------------------------------------------------- */

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

/* ---- tokens ---------------------------------------------------------------------------------- */

void tw_tokens_deinit(struct tw_tokens *tokens) {
    free(tokens->tokens);
    *tokens = (struct tw_tokens){.tokens = NULL};
}

static enum tw_status grow(struct tw_tokens *tokens, size_t more, struct tw_error *err) {
    const size_t capacity = (tokens->count + more) / 2 * 3 + 64;
    uint32_t *const bigger = realloc(tokens->tokens, capacity * sizeof(*bigger));
    if (bigger == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu tokens", capacity);
    tokens->tokens = bigger;
    tokens->capacity = capacity;
    return TW_OK;
}

static inline enum tw_status reserve(struct tw_tokens *tokens, size_t more, struct tw_error *err) {
    return more <= tokens->capacity - tokens->count ? TW_OK : grow(tokens, more, err);
}

static enum tw_status push(struct tw_tokens *tokens, uint32_t token, struct tw_error *err) {
    TW_TRY(reserve(tokens, 1, err));
    tokens->tokens[tokens->count++] = token;
    return TW_OK;
}

/* ---- the encoder ----------------------------------------------------------------------------- */

enum {
    SLOT_TOKENS = 7,
    SLOT_BYTES = 30,
    /* words encoded before a cache is made; a prompt has fewer and needs none */
    WORDS_WITHOUT = 4096,
};

/* A word and its tokens, in one CPU cache line. The hash of a word determines its slot, and a later
 * word with the same slot replaces it. */
struct slot {
    uint32_t tokens[SLOT_TOKENS];
    uint32_t tag; /* hash bits that the slot index does not cover */
    uint8_t bytes, count;
    uint8_t word[SLOT_BYTES];
};

_Static_assert(sizeof(struct slot) == 64, "one cache line");
_Static_assert((TW_WORDS_CACHED & (TW_WORDS_CACHED - 1)) == 0, "a place is some bits of the hash");

struct tw_encoder {
    const struct tw_tokenizer *tokenizer;
    struct slot *slots;   /* (TW_WORDS_CACHED); NULL until WORDS_WITHOUT words were encoded */
    uint32_t words_count; /* number of words encoded while `slots` is NULL */
    struct tw_bpe_scratch scratch;
    struct tw_bpe_matcher matcher;
    struct tw_bpe_nfc_buffer *nfc; /* buffer of the normaliser; NULL: there is none */
    uint8_t *spaced;               /* copy of a piece with a space before it */
    size_t spaced_capacity;
    uint64_t lost_bytes, names;
};

/* The parameters of one tw_encoder_append call. */
struct call {
    struct tw_encoder *encoder;
    const struct tw_tokenizer *tokenizer;
    struct tw_tokens *out;
    bool is_plain;
};

enum tw_status tw_encoder_create(struct tw_encoder **encoder_out,
                                 const struct tw_tokenizer *tokenizer, struct tw_error *err) {
    struct tw_encoder *const encoder = calloc(1, sizeof(*encoder));
    if (encoder == NULL) return tw_fail(err, TW_NOMEM, "no memory for an encoder");
    encoder->tokenizer = tokenizer;
    enum tw_status status = TW_OK;
    if (!tokenizer->is_bytes) status = tw_bpe_matcher_init(&encoder->matcher, err);
    if (tokenizer->nfc != NULL) {
        encoder->nfc = calloc(1, sizeof(*encoder->nfc));
        if (encoder->nfc == NULL) status = tw_fail(err, TW_NOMEM, "no memory for an encoder");
    }
    if (status != TW_OK) {
        tw_encoder_destroy(encoder);
        return status;
    }
    *encoder_out = encoder;
    return TW_OK;
}

void tw_encoder_destroy(struct tw_encoder *encoder) {
    if (encoder == NULL) return;
    if (encoder->nfc != NULL) tw_bpe_nfc_buffer_deinit(encoder->nfc);
    free(encoder->nfc);
    free(encoder->spaced);
    free(encoder->slots);
    tw_bpe_scratch_deinit(&encoder->scratch);
    tw_bpe_matcher_deinit(&encoder->matcher);
    free(encoder);
}

uint64_t tw_encoder_names(const struct tw_encoder *encoder) {
    return encoder->names;
}

uint64_t tw_encoder_lost_bytes(const struct tw_encoder *encoder) {
    return encoder->lost_bytes;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Writes the tokens of a word's bytes before any merge. `out` must have room for one token per
 * byte. */
static size_t put_bytes(struct tw_encoder *encoder, struct tw_bpe_piece word, uint32_t *out) {
    const struct tw_tokenizer *const tokenizer = encoder->tokenizer;
    bool is_after_unknown = false;
    size_t count = 0;
    for (size_t i = 0; i < word.bytes; i++) {
        const uint32_t token = tokenizer->byte_tokens[word.text[i]];
        if (token != TW_TOKEN_NONE) {
            out[count++] = token;
            is_after_unknown = false;
            continue;
        }
        encoder->lost_bytes++;
        if (tokenizer->unknown == TW_TOKEN_NONE) continue;
        if (!is_after_unknown || !tokenizer->is_unknown_fused) out[count++] = tokenizer->unknown;
        is_after_unknown = true;
    }
    return count;
}

/* Appends a word's tokens. `out` must have room for one token per byte. */
static enum tw_status encode_word(struct tw_encoder *encoder, struct tw_bpe_piece word,
                                  struct tw_tokens *out, struct tw_error *err) {
    const struct tw_tokenizer *const tokenizer = encoder->tokenizer;
    uint32_t *const tokens = out->tokens + out->count;
    if (tokenizer->has_whole_words && word.bytes <= TW_TOKEN_BYTES_MAX) {
        const uint32_t whole = tw_bpe_vocab_find(&tokenizer->vocab, word.text, word.bytes);
        if (whole != TW_TOKEN_NONE) {
            tokens[0] = whole;
            out->count++;
            return TW_OK;
        }
    }
    size_t count = put_bytes(encoder, word, tokens);
    TW_TRY(tw_bpe_apply(&tokenizer->bpe, &encoder->scratch, tokens, &count, err));
    out->count += count;
    return TW_OK;
}

/* Makes the cache once enough words were encoded. Returns true if there is one. Without memory for
 * a cache, the merges of every word are computed anew. */
static bool ensure_cache(struct tw_encoder *encoder) {
    if (encoder->words_count < WORDS_WITHOUT) {
        encoder->words_count++;
        return false;
    }
    const size_t bytes = TW_WORDS_CACHED * sizeof(*encoder->slots);
    encoder->words_count = 0; /* if there is no memory, the next try comes after as many words */
    encoder->slots = aligned_alloc(64, bytes);
    /* The word of a zeroed slot has 0 bytes, so the slot matches no word. */
    if (encoder->slots != NULL) memset(encoder->slots, 0, bytes);
    return encoder->slots != NULL;
}

/* Appends the tokens of a short word, from the cache if possible. */
static inline enum tw_status encode_cached(struct tw_encoder *encoder, struct tw_bpe_piece word,
                                           struct tw_tokens *out, struct tw_error *err) {
    if (encoder->slots == NULL && !ensure_cache(encoder)) {
        return encode_word(encoder, word, out, err);
    }
    const uint64_t hash = tw_bpe_hash(word.text, word.bytes);
    struct slot *const slot = &encoder->slots[hash & (TW_WORDS_CACHED - 1)];
    const uint32_t tag = (uint32_t)(hash >> 32);
    if (slot->tag == tag && slot->bytes == word.bytes &&
        memcmp(slot->word, word.text, word.bytes) == 0) {
        for (size_t i = 0; i < slot->count; i++) out->tokens[out->count + i] = slot->tokens[i];
        out->count += slot->count;
        return TW_OK;
    }
    const size_t before = out->count;
    const uint64_t lost_before = encoder->lost_bytes;
    TW_TRY(encode_word(encoder, word, out, err));
    const size_t count = out->count - before;
    if (count > SLOT_TOKENS || encoder->lost_bytes != lost_before) return TW_OK;
    slot->tag = tag;
    slot->bytes = (uint8_t)word.bytes;
    slot->count = (uint8_t)count;
    memcpy(slot->word, word.text, word.bytes);
    memcpy(slot->tokens, out->tokens + before, count * sizeof(*slot->tokens));
    return TW_OK;
}

static enum tw_status encode_piece(const struct call *call, struct tw_bpe_piece piece,
                                   struct tw_error *err) {
    TW_TRY(reserve(call->out, piece.bytes, err));
    if (piece.bytes <= SLOT_BYTES) return encode_cached(call->encoder, piece, call->out, err);
    while (piece.bytes > 0) { /* only words longer than TW_WORD_BYTES_MAX need a second iteration */
        const size_t bytes = piece.bytes < TW_WORD_BYTES_MAX ? piece.bytes : TW_WORD_BYTES_MAX;
        const struct tw_bpe_piece part = {piece.text, bytes};
        TW_TRY(encode_word(call->encoder, part, call->out, err));
        piece.text += bytes;
        piece.bytes -= bytes;
    }
    return TW_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static enum tw_status put_space_before(struct tw_encoder *encoder, struct tw_bpe_piece *piece,
                                       struct tw_error *err) {
    if (piece->text[0] == ' ') return TW_OK;
    if (piece->bytes + 1 > encoder->spaced_capacity) {
        const size_t capacity = 2 * (piece->bytes + 1);
        uint8_t *const bigger = realloc(encoder->spaced, capacity);
        if (bigger == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu bytes", capacity);
        encoder->spaced = bigger;
        encoder->spaced_capacity = capacity;
    }
    encoder->spaced[0] = ' ';
    memcpy(encoder->spaced + 1, piece->text, piece->bytes);
    *piece = (struct tw_bpe_piece){encoder->spaced, piece->bytes + 1};
    return TW_OK;
}

/* Applies the pre-tokenizer's steps from `at` on. The recursion depth is the number of steps, at
 * most TW_TOKENIZER_STEPS_MAX. */
static enum tw_status apply_steps(const struct call *call, struct tw_bpe_piece piece, uint32_t at,
                                  struct tw_error *err) {
    const struct tw_tokenizer *const tokenizer = call->tokenizer;
    if (at == tokenizer->prefix_step) TW_TRY(put_space_before(call->encoder, &piece, err));
    if (at == tokenizer->steps_count) return encode_piece(call, piece, err);
    const struct tw_split_step *const step = &tokenizer->steps[at];
    const bool is_last = at + 1 == tokenizer->steps_count && tokenizer->prefix_step != at + 1;
    for (size_t from = 0; from < piece.bytes;) {
        struct tw_bpe_range match;
        TW_TRY(
            tw_bpe_matcher_next(&call->encoder->matcher, &step->pattern, piece, from, &match, err));
        const struct tw_bpe_piece rest = {piece.text + from, match.begin - from};
        const struct tw_bpe_piece found = {piece.text + match.begin, match.end - match.begin};
        if (rest.bytes > 0 && step->is_rest_dropped) {
            call->encoder->lost_bytes += rest.bytes;
        } else if (rest.bytes > 0) {
            TW_TRY(apply_steps(call, rest, at + 1, err));
        }
        if (found.bytes > 0) {
            TW_TRY(is_last ? encode_piece(call, found, err)
                           : apply_steps(call, found, at + 1, err));
        }
        from = match.end;
    }
    return TW_OK;
}

/* Encodes the text between two added tokens that were matched before normalisation. */
static enum tw_status encode_between(const struct call *call, struct tw_bpe_piece piece,
                                     struct tw_error *err) {
    const struct tw_tokenizer *const tokenizer = call->tokenizer;
    if (tokenizer->nfc != NULL) {
        TW_TRY(tw_bpe_nfc_apply(tokenizer->nfc, call->encoder->nfc, &piece, err));
    }
    struct tw_bpe_search search = {.added = &tokenizer->added[1],
                                   .matcher = &call->encoder->matcher,
                                   .word = &tokenizer->word,
                                   .piece = piece,
                                   .is_plain = call->is_plain};
    struct tw_bpe_range range;
    size_t from = 0;
    for (uint32_t token; tw_bpe_search_next(&search, &range, &token); from = range.end) {
        const struct tw_bpe_piece before = {piece.text + from, range.begin - from};
        if (range.begin > from) TW_TRY(apply_steps(call, before, 0, err));
        TW_TRY(push(call->out, token, err));
    }
    call->encoder->names += search.names;
    const struct tw_bpe_piece rest = {piece.text + from, piece.bytes - from};
    return rest.bytes > 0 ? apply_steps(call, rest, 0, err) : TW_OK;
}

static enum tw_status encode_valid(const struct call *call, struct tw_bpe_piece piece,
                                   struct tw_error *err) {
    struct tw_bpe_search search = {.added = &call->tokenizer->added[0],
                                   .matcher = &call->encoder->matcher,
                                   .word = &call->tokenizer->word,
                                   .piece = piece,
                                   .is_plain = call->is_plain};
    struct tw_bpe_range range;
    size_t from = 0;
    for (uint32_t token; tw_bpe_search_next(&search, &range, &token); from = range.end) {
        const struct tw_bpe_piece before = {piece.text + from, range.begin - from};
        if (range.begin > from) TW_TRY(encode_between(call, before, err));
        TW_TRY(push(call->out, token, err));
    }
    call->encoder->names += search.names;
    const struct tw_bpe_piece rest = {piece.text + from, piece.bytes - from};
    return rest.bytes > 0 ? encode_between(call, rest, err) : TW_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Length of the valid UTF-8 prefix of text[bytes]. */
static size_t valid_prefix(const uint8_t *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        if (bytes - at >= sizeof(eight)) {
            memcpy(&eight, text + at, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof(eight);
                continue;
            }
        }
        const int size = tw_utf8_size(text + at, bytes - at);
        if (size <= 0) break;
        at += (size_t)size;
    }
    return at;
}

static enum tw_status encode_bytes(struct tw_tokens *out, const uint8_t *text, size_t bytes,
                                   struct tw_error *err) {
    TW_TRY(reserve(out, bytes, err));
    for (size_t i = 0; i < bytes; i++) out->tokens[out->count + i] = text[i];
    out->count += bytes;
    return TW_OK;
}

static enum tw_status encode_text(const struct call *call, const uint8_t *text, size_t bytes,
                                  struct tw_error *err) {
    for (size_t at = 0; at < bytes;) {
        const size_t valid = valid_prefix(text + at, bytes - at);
        const struct tw_bpe_piece piece = {text + at, valid};
        if (valid > 0) TW_TRY(encode_valid(call, piece, err));
        at += valid;
        if (at == bytes) break;
        const struct tw_bpe_piece invalid = {text + at, 1};
        TW_TRY(reserve(call->out, 1, err));
        call->out->count += put_bytes(call->encoder, invalid, call->out->tokens + call->out->count);
        at++;
    }
    return TW_OK;
}

enum tw_status tw_encoder_append(struct tw_encoder *encoder, const uint8_t *text, size_t bytes,
                                 enum tw_encode_flags flags, struct tw_tokens *tokens,
                                 struct tw_error *err) {
    const struct tw_tokenizer *const tokenizer = encoder->tokenizer;
    const bool has_template = ((unsigned)flags & TW_ENCODE_TEMPLATE) != 0;
    const struct call call = {encoder, tokenizer, tokens, ((unsigned)flags & TW_ENCODE_PLAIN) != 0};
    const size_t count = tokens->count;
    if (bytes > TW_TEXT_BYTES_MAX) {
        return tw_fail(err, TW_LIMIT, "a text of %zu bytes; at most %d are encoded at a time",
                       bytes, TW_TEXT_BYTES_MAX);
    }
    if (tokenizer->is_bytes) return encode_bytes(tokens, text, bytes, err);
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; status == TW_OK && has_template && i < tokenizer->before_count; i++) {
        status = push(tokens, tokenizer->before[i], err);
    }
    if (status == TW_OK) status = encode_text(&call, text, bytes, err);
    for (uint32_t i = 0; status == TW_OK && has_template && i < tokenizer->after_count; i++) {
        status = push(tokens, tokenizer->after[i], err);
    }
    if (status != TW_OK) tokens->count = count;
    return status;
}

/* ---- access to the vocabulary ---------------------------------------------------------------- */

enum tw_token_kind tw_tokenizer_kind(const struct tw_tokenizer *tokenizer, uint32_t token) {
    const struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    const unsigned flags = token < vocab->count ? vocab->tokens[token].flags : 0;
    if ((flags & TW_BPE_TOKEN_SET) == 0) return TW_TOKEN_UNUSED;
    if ((flags & TW_BPE_TOKEN_SPECIAL) != 0) return TW_TOKEN_CONTROL;
    return (flags & TW_BPE_TOKEN_ADDED) != 0 ? TW_TOKEN_USER : TW_TOKEN_NORMAL;
}

uint32_t tw_tokenizer_normal_vocab(const struct tw_tokenizer *tokenizer) {
    uint32_t count = tokenizer->vocab.count;
    while (count > 0) {
        const enum tw_token_kind kind = tw_tokenizer_kind(tokenizer, count - 1);
        if (kind == TW_TOKEN_NORMAL) break;
        count--;
    }
    return count;
}

bool tw_tokenizer_is_bytes(const struct tw_tokenizer *tokenizer) {
    const bool is_plain = tokenizer->nfc == NULL && tokenizer->prefix_step == UINT32_MAX &&
                          tokenizer->before_count == 0 && tokenizer->after_count == 0 &&
                          tokenizer->added[0].count == 0 && tokenizer->added[1].count == 0;
    if (!is_plain || tokenizer->vocab.count != 256 || tw_tokenizer_merges(tokenizer, NULL) > 0) {
        return false;
    }
    for (uint32_t i = 0; i < 256; i++) {
        if (!tokenizer->is_bytes && tokenizer->byte_tokens[i] != i) return false;
    }
    return true;
}

const char *tw_tokenizer_split_name(const struct tw_tokenizer *tokenizer) {
    return tokenizer->split_name;
}

static int by_rank(const void *a, const void *b) {
    const uint32_t left = ((const struct tw_token_pair *)a)->rank;
    const uint32_t right = ((const struct tw_token_pair *)b)->rank;
    return (left > right) - (left < right);
}

size_t tw_tokenizer_merges(const struct tw_tokenizer *tokenizer, struct tw_token_pair *pairs) {
    const struct tw_bpe *const bpe = &tokenizer->bpe;
    size_t count = 0;
    for (uint64_t i = 0; bpe->table != NULL && i <= bpe->mask; i++) {
        const struct tw_bpe_merge *const merge = &bpe->table[i];
        if (merge->rank == TW_BPE_NONE) continue;
        if (pairs != NULL) {
            pairs[count] = (struct tw_token_pair){merge->left, merge->right, merge->rank};
        }
        count++;
    }
    if (pairs != NULL) qsort(pairs, count, sizeof(*pairs), by_rank);
    return count;
}

bool tw_tokenizer_puts_bos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->before_count == 1;
}

bool tw_tokenizer_puts_eos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->after_count == 1;
}

uint32_t tw_tokenizer_template_size(const struct tw_tokenizer *tokenizer) {
    return tokenizer->before_count + tokenizer->after_count;
}

uint32_t tw_tokenizer_before(const struct tw_tokenizer *tokenizer, uint32_t i) {
    return i < tokenizer->before_count ? tokenizer->before[i] : TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_first(const struct tw_tokenizer *tokenizer) {
    return tw_tokenizer_before(tokenizer, 0);
}

uint32_t tw_tokenizer_last(const struct tw_tokenizer *tokenizer) {
    return tokenizer->after_count > 0 ? tokenizer->after[tokenizer->after_count - 1]
                                      : TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_strips(const struct tw_tokenizer *tokenizer) {
    for (size_t set = 0; set < 2; set++) {
        for (size_t i = 0; i < tokenizer->added[set].count; i++) {
            const struct tw_bpe_added_token *const one = &tokenizer->added[set].tokens[i];
            if (one->is_left_strip || one->is_right_strip || one->is_single_word) return one->token;
        }
    }
    return TW_TOKEN_NONE;
}
