#include "worker/data/prepare/prepare_encode.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file_kind.h"
#include "base/hash.h"
#include "proto/shard.h"
#include "worker/data/json_field.h"
#include "worker/data/tar_cut.h"
#include "worker/data/text_cut.h"

/* ---- separators ------------------------------------------------------------------------------ */

static int64_t token_or_none(uint32_t token) {
    return token == TW_TOKEN_NONE ? TW_SHARD_NO_SEPARATOR : (int64_t)token;
}

enum tw_status tw_prepare_coder_init(struct tw_prepare_coder *coder,
                                     const struct tw_tokenizer *tokenizer, bool is_bytes,
                                     struct tw_error *err) {
    memset(coder, 0, sizeof(*coder));
    coder->tokenizer = tokenizer;
    coder->closer = TW_SHARD_NO_SEPARATOR;
    if (pthread_mutex_init(&coder->large, NULL) != 0) {
        return tw_fail(err, TW_NOMEM, "no memory for a lock");
    }
    const int64_t eos = is_bytes ? 0 : token_or_none(tw_tokenizer_eos(tokenizer));
    /* the token with which the model expects a text to begin */
    const uint32_t first = tw_tokenizer_first(tokenizer);
    coder->separator = first != TW_TOKEN_NONE ? (int64_t)first : eos;
    if (eos != coder->separator) coder->closer = eos;
    return TW_OK;
}

void tw_prepare_coder_deinit(struct tw_prepare_coder *coder) {
    (void)pthread_mutex_destroy(&coder->large);
}

/* ---- checks -----------------------------------------------------------------------------------
 */

static uint32_t count_lines(const uint8_t *text, size_t size) {
    uint32_t lines = 0;
    for (const uint8_t *at = text, *end = text + size; at < end; at++, lines++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at == NULL) break;
    }
    return lines;
}

static bool is_blank(const uint8_t *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && (text[i] < '\t' || text[i] > '\r')) return false;
    }
    return true;
}

static size_t count_invalid(const uint8_t *text, size_t size) {
    size_t invalid = 0;
    for (size_t at = 0; at < size;) {
        uint64_t word;
        if (size - at >= sizeof(word)) {
            memcpy(&word, text + at, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        const int bytes = tw_utf8_size(text + at, size - at);
        if (bytes <= 0) invalid++;
        at += bytes <= 0 ? 1 : (size_t)bytes;
    }
    return invalid;
}

static enum tw_status check_text(struct tw_block_document *document, const uint8_t *text,
                                 struct tw_error *err) {
    if (document->bytes > TW_DOCUMENT_BYTES_MAX) {
        return tw_fail(err, TW_DATA, "a text of more than %d MiB", TW_DOCUMENT_BYTES_MAX >> 20);
    }
    if (memchr(text, 0, document->bytes) != NULL) {
        return tw_fail(err, TW_DATA, "a NUL character: it is not text");
    }
    const size_t invalid = count_invalid(text, document->bytes);
    document->invalid_bytes = (uint32_t)invalid;
    if (invalid >= TW_ENCODE_INVALID_MIN && invalid > document->bytes / 10) {
        return tw_fail(err, TW_DATA,
                       "%zu of the %zu bytes from here on are not UTF-8; convert it with iconv",
                       invalid, document->bytes);
    }
    return TW_OK;
}

static enum tw_status put_token(struct tw_tokens *tokens, int64_t token, struct tw_error *err) {
    if (token == TW_SHARD_NO_SEPARATOR) return TW_OK;
    if (tokens->count == tokens->capacity) {
        const size_t capacity = tokens->capacity == 0 ? 4096 : 2 * tokens->capacity;
        uint32_t *const more = realloc(tokens->tokens, capacity * sizeof(*more));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu tokens", capacity);
        tokens->tokens = more;
        tokens->capacity = capacity;
    }
    tokens->tokens[tokens->count++] = (uint32_t)token;
    return TW_OK;
}

/* ---- documents given as tokens ----------------------------------------------------------------
 */

/* Strips separators and end tokens that the writer of the file may have added. */
static void strip_separators(const struct tw_prepare_coder *coder, const uint8_t *text,
                             struct tw_block_document *document) {
    while (document->bytes >= 4 &&
           (int64_t)tw_get_u32(text + document->begin) == coder->separator) {
        document->begin += 4;
        document->bytes -= 4;
    }
    while (document->bytes >= 4) {
        const int64_t last = (int64_t)tw_get_u32(text + document->begin + document->bytes - 4);
        if (last != coder->separator && last != coder->closer) break;
        document->bytes -= 4;
    }
}

static enum tw_status copy_tokens(struct tw_block *block, const struct tw_block_document *document,
                                  struct tw_error *err) {
    for (size_t i = 0; i < document->bytes; i += 4) {
        TW_TRY(put_token(&block->tokens, tw_get_u32(block->text + document->begin + i), err));
    }
    return TW_OK;
}

static bool is_heldout(const struct tw_prepare_coder *coder, const uint8_t *text, size_t bytes) {
    if (coder->heldout_millionths == 0) return false;
    const struct tw_id digest = tw_sha256(text, bytes);
    return tw_get_u64(digest.bytes) % 1000000 < coder->heldout_millionths;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static enum tw_status append_tokens(struct tw_encoder *encoder, struct tw_block *block,
                                    struct tw_block_document *document, struct tw_error *err) {
    const uint64_t lost = tw_encoder_lost_bytes(encoder);
    /* The text is untrusted, so the name of a special token in it is encoded as ordinary text. */
    TW_TRY(tw_encoder_append(encoder, block->text + document->begin, document->bytes,
                             TW_ENCODE_PLAIN, &block->tokens, err));
    document->lost_bytes = (uint32_t)(tw_encoder_lost_bytes(encoder) - lost);
    return TW_OK;
}

static enum tw_status append_large_document(struct tw_prepare_coder *coder, struct tw_block *block,
                                            struct tw_block_document *document,
                                            struct tw_error *err) {
    struct tw_encoder *encoder;
    (void)pthread_mutex_lock(&coder->large);
    enum tw_status status = tw_encoder_create(&encoder, coder->tokenizer, err);
    if (status == TW_OK) {
        status = append_tokens(encoder, block, document, err);
        tw_encoder_destroy(encoder);
    }
    (void)pthread_mutex_unlock(&coder->large);
    return status;
}

/* Puts the template's tokens before the text, except the first, which is the separator. */
static enum tw_status put_opening(const struct tw_prepare_coder *coder, struct tw_tokens *tokens,
                                  struct tw_error *err) {
    for (uint32_t i = 1;; i++) {
        const uint32_t token = tw_tokenizer_before(coder->tokenizer, i);
        if (token == TW_TOKEN_NONE) return TW_OK;
        TW_TRY(put_token(tokens, token, err));
    }
}

static enum tw_status tokenise(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                               struct tw_block *block, struct tw_block_document *document,
                               struct tw_error *err) {
    struct tw_tokens *const tokens = &block->tokens;
    document->tokens_begin = tokens->count;
    enum tw_status status = put_token(tokens, coder->separator, err);
    if (status == TW_OK && block->kind != TW_INPUT_TOKENS) status = put_opening(coder, tokens, err);
    if (status == TW_OK && block->kind == TW_INPUT_TOKENS) {
        status = copy_tokens(block, document, err);
    } else if (status == TW_OK) {
        status = document->bytes > TW_ENCODE_SHARED_BYTES
                     ? append_large_document(coder, block, document, err)
                     : append_tokens(encoder, block, document, err);
    }
    if (status == TW_OK) status = put_token(tokens, coder->closer, err);
    if (status != TW_OK) tokens->count = document->tokens_begin;
    document->tokens_count = (uint32_t)(tokens->count - document->tokens_begin);
    return status;
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Decides whether the document is held out, and tokenises it. */
static enum tw_status encode_text(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                  struct tw_block *block, struct tw_block_document *document,
                                  struct tw_error *err) {
    const bool is_out = is_heldout(coder, block->text + document->begin, document->bytes);
    TW_TRY(tokenise(coder, encoder, block, document, err));
    if (document->tokens_count > 0) {
        document->fate = is_out ? TW_DOCUMENT_HELDOUT : TW_DOCUMENT_TRAIN;
    }
    return TW_OK;
}

/* Replaces a record by its text. A record is an object with a text field or, in arrays and JSON
 * Lines, a string. */
static enum tw_status take_field(const struct tw_prepare_coder *coder, enum tw_input_kind kind,
                                 uint8_t *record, struct tw_block_document *document,
                                 struct tw_error *err) {
    size_t begin = 0, size = document->bytes;
    if (kind != TW_INPUT_OBJECTS && record[0] == '"') {
        TW_TRY(tw_json_string(record, size, &begin, &document->bytes, err));
    } else {
        TW_TRY(tw_json_field(record, size, coder->field, &begin, &document->bytes, err));
    }
    document->begin += begin;
    return TW_OK;
}

/* Whether anything but blanks follows the first JSON value of the content. */
static bool has_more_records(const uint8_t *content, size_t bytes) {
    size_t end = 0;
    return tw_json_look(content, bytes, true, &end) == TW_JSON_VALUE &&
           !is_blank(content + end, bytes - end);
}

/* Decides whether the content of a tar member is a text, a JSON object, or neither. */
static enum tw_status look_at_member(const struct tw_prepare_coder *coder, const uint8_t *content,
                                     struct tw_block_document *document, bool *is_record,
                                     struct tw_error *err) {
    const struct tw_file_kind *const kind = tw_file_kind_of(content, document->bytes);
    const size_t look =
        document->bytes < TW_INPUT_LOOK_BYTES ? document->bytes : TW_INPUT_LOOK_BYTES;
    if (kind != NULL && kind->holds != TW_HOLDS_NOTHING &&
        !(coder->is_plain && kind->holds == TW_HOLDS_MARKUP)) {
        return tw_fail(err, TW_DATA, "it is %s: unpack the archive", kind->name);
    }
    if (tw_packing_of_bytes(content, document->bytes) != TW_PACKING_NONE) {
        return tw_fail(err, TW_DATA, "it is packed itself: unpack the archive");
    }
    const bool is_nothing = kind != NULL && kind->holds == TW_HOLDS_NOTHING;
    if (is_nothing || memchr(content, 0, look) != NULL) {
        document->fate = TW_DOCUMENT_PASSED;
        return TW_OK;
    }
    const enum tw_input_kind found =
        tw_input_kind_of(content, look, look == document->bytes, false);
    *is_record = !coder->is_plain && found != TW_INPUT_TEXT;
    if (!*is_record) return TW_OK;
    if ((found == TW_INPUT_OBJECTS || found == TW_INPUT_LINES) &&
        !has_more_records(content, document->bytes)) {
        return TW_OK;
    }
    return tw_fail(err, TW_DATA, "it is %s: unpack the archive", tw_input_kind_name(found));
}

static enum tw_status encode_content(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                     struct tw_block *block, struct tw_block_document *document,
                                     struct tw_error *err) {
    uint8_t *const text = block->text;
    bool is_record = block->kind == TW_INPUT_LINES || block->kind == TW_INPUT_ARRAY ||
                     block->kind == TW_INPUT_OBJECTS;
    if (is_blank(text + document->begin, document->bytes)) return TW_OK;
    if (block->kind == TW_INPUT_TAR) {
        TW_TRY(look_at_member(coder, text + document->begin, document, &is_record, err));
        if (document->fate == TW_DOCUMENT_PASSED) return TW_OK;
    }
    if (is_record) {
        TW_TRY(take_field(coder, block->kind, text + document->begin, document, err));
        if (is_blank(text + document->begin, document->bytes)) return TW_OK;
    }
    TW_TRY(check_text(document, text + document->begin, err));
    return encode_text(coder, encoder, block, document, err);
}

static enum tw_status encode_document(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                                      struct tw_block *block, struct tw_block_document *document,
                                      struct tw_error *err) {
    uint8_t *const text = block->text;
    if (block->kind == TW_INPUT_TOKENS) {
        strip_separators(coder, text, document);
        return document->bytes == 0 ? TW_OK : encode_text(coder, encoder, block, document, err);
    }
    if (block->kind != TW_INPUT_TAR) {
        document->lines_before = count_lines(text + document->at, document->begin - document->at);
        document->lines = count_lines(text + document->at, document->taken);
        return encode_content(coder, encoder, block, document, err);
    }
    char name[TW_TAR_NAME_BYTES];
    struct tw_error why;
    if (document->bytes == 0) return TW_OK;
    tw_tar_name(text + document->begin - TW_TAR_BLOCK, name);
    const enum tw_status status = encode_content(coder, encoder, block, document, &why);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%.60s: %s", name, why.message);
}

void tw_prepare_encode(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                       struct tw_block *block) {
    bool is_any_bad = false;
    for (uint32_t i = 0; i < block->documents_count; i++) {
        struct tw_block_document *const document = &block->documents[i];
        struct tw_error err;
        if (document->fate != TW_DOCUMENT_EMPTY) continue;
        const enum tw_status status = encode_document(coder, encoder, block, document, &err);
        if (status == TW_OK) continue;
        if (status != TW_DATA && status != TW_LIMIT) {
            block->failure = err;
            return;
        }
        document->fate = TW_DOCUMENT_BAD;
        /* The reader has already set the error of an overlong document, which is the last of its
         * block. */
        if (!is_any_bad) {
            block->bad = err;
            block->bad_document = i;
        }
        is_any_bad = true;
    }
}
