/* text.c - text on a machine with a compiler alone: tokens are bytes, and files that need jansson,
 * PCRE2, zlib, zstd or OpenSSL are refused. Stands in for the tokenizers, hf_config.h, prepare.h
 * and verify (tests/gpu/build). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/engine_verb.h"
#include "worker/data/prepare/prepare.h"
#include "worker/files/hf_config.h"
#include "worker/tokenizer/text_ends.h"
#include "worker/tokenizer/tokenizer_text.h"

struct tw_tokenizer {
    uint8_t bytes[256]; /* text of each token: the byte of the same number */
};

struct tw_encoder {
    const struct tw_tokenizer *tokenizer;
};

enum tw_status tw_tokenizer_create_bytes(struct tw_tokenizer **tokenizer, struct tw_error *err) {
    *tokenizer = malloc(sizeof(**tokenizer));
    if (*tokenizer == NULL) return tw_fail(err, TW_NOMEM, "no memory for a tokenizer");
    for (unsigned i = 0; i < 256; i++) (*tokenizer)->bytes[i] = (uint8_t)i;
    return TW_OK;
}

enum tw_status tw_tokenizer_create_json(struct tw_tokenizer **tokenizer, const char *json,
                                        size_t size, struct tw_error *err) {
    (void)json;
    (void)size;
    *tokenizer = NULL;
    return tw_fail(err, TW_CONFIG,
                   "this program was built without jansson, PCRE2 and utf8proc, which read such "
                   "files: build it with them, or prompt with token numbers");
}

enum tw_status tw_tokenizer_create_file(struct tw_tokenizer **tokenizer, const char *path,
                                        struct tw_error *err) {
    struct tw_error why;
    const enum tw_status status = tw_tokenizer_create_json(tokenizer, NULL, 0, &why);
    return tw_fail(err, status, "%.80s: %.160s", path, why.message);
}

void tw_tokenizer_destroy(struct tw_tokenizer *tokenizer) {
    free(tokenizer);
}

uint32_t tw_tokenizer_bos(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_eos(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_vocab(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return 256;
}

const uint8_t *tw_tokenizer_token(const struct tw_tokenizer *tokenizer, uint32_t token,
                                  size_t *size) {
    *size = token < 256;
    return &tokenizer->bytes[token % 256];
}

enum tw_token_kind tw_tokenizer_kind(const struct tw_tokenizer *tokenizer, uint32_t token) {
    (void)tokenizer;
    return token < 256 ? TW_TOKEN_NORMAL : TW_TOKEN_UNUSED;
}

const char *tw_tokenizer_split_name(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return NULL;
}

size_t tw_tokenizer_merges(const struct tw_tokenizer *tokenizer, struct tw_token_pair *pairs) {
    (void)tokenizer;
    (void)pairs;
    return 0;
}

bool tw_tokenizer_puts_bos(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return false;
}

bool tw_tokenizer_puts_eos(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return false;
}

void tw_tokens_deinit(struct tw_tokens *tokens) {
    free(tokens->tokens);
    memset(tokens, 0, sizeof(*tokens));
}

enum tw_status tw_encoder_create(struct tw_encoder **encoder, const struct tw_tokenizer *tokenizer,
                                 struct tw_error *err) {
    *encoder = malloc(sizeof(**encoder));
    if (*encoder == NULL) return tw_fail(err, TW_NOMEM, "no memory for a tokenizer");
    (*encoder)->tokenizer = tokenizer;
    return TW_OK;
}

void tw_encoder_destroy(struct tw_encoder *encoder) {
    free(encoder);
}

enum tw_status tw_encoder_append(struct tw_encoder *encoder, const uint8_t *text, size_t bytes,
                                 enum tw_encode_flags flags, struct tw_tokens *tokens,
                                 struct tw_error *err) {
    (void)encoder;
    (void)flags;
    if (bytes > TW_TEXT_BYTES_MAX) return tw_fail(err, TW_LIMIT, "the text is too long");
    if (tokens->capacity - tokens->count < bytes) {
        const size_t capacity = tokens->count + bytes + tokens->count / 2;
        uint32_t *const more = realloc(tokens->tokens, capacity * sizeof(*more));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu tokens", capacity);
        tokens->tokens = more;
        tokens->capacity = capacity;
    }
    for (size_t i = 0; i < bytes; i++) tokens->tokens[tokens->count++] = text[i];
    return TW_OK;
}

/* Every byte is a token. */
uint64_t tw_encoder_lost_bytes(const struct tw_encoder *encoder) {
    (void)encoder;
    return 0;
}

size_t tw_tokenizer_join(const struct tw_tokenizer *tokenizer, const uint32_t *tokens, size_t count,
                         uint8_t *text, size_t room) {
    for (size_t i = 0; i < count && i < room; i++) {
        text[i] = tokens[i] < 256 ? tokenizer->bytes[tokens[i]] : (uint8_t)'?';
    }
    return count;
}

size_t tw_decoder_take(struct tw_decoder *decoder, uint32_t token, uint8_t *out) {
    uint8_t byte;
    (void)tw_tokenizer_join(decoder->tokenizer, &token, 1, &byte, 1);
    return tw_utf8_take(&decoder->stream, byte, out);
}

size_t tw_decoder_end(struct tw_decoder *decoder, uint8_t *out) {
    return tw_utf8_end(&decoder->stream, out);
}

uint32_t tw_tokenizer_find_any(const struct tw_tokenizer *tokenizer, const char *text) {
    return text[0] != 0 && text[1] == 0 ? tokenizer->bytes[(uint8_t)text[0]] : TW_TOKEN_NONE;
}

/* Reads no file, because without the libraries only bytes are tokens. */
enum tw_status tw_text_ends_read(struct tw_text_ends *ends,
                                 const struct tw_text_ends_source *source, struct tw_error *err) {
    static const struct tw_end_ids NONE = {.bos = TW_TOKEN_NONE, .pad = TW_TOKEN_NONE};
    *ends = (struct tw_text_ends){
        .generation = NONE, .config = NONE, .tokenizer = NONE, .ignored = TW_TOKEN_NONE};
    ends->generation.eos_count = source->tokenizer != NULL; /* eos[0] is 0, a byte that no text
                                                               contains */
    if (source->eos == NULL) return TW_OK;
    char *end;
    const unsigned long number = strtoul(source->eos, &end, 10);
    if (source->eos[0] < '0' || source->eos[0] > '9' || *end != 0 || number >= source->vocab) {
        return tw_fail(err, TW_CONFIG,
                       "--eos %.40s: it is no number below %u, and this program was built without "
                       "jansson, PCRE2 and utf8proc, which read the texts of tokens",
                       source->eos, source->vocab);
    }
    ends->generation.eos[0] = ends->config.eos[0] = (uint32_t)number;
    ends->generation.eos_count = ends->config.eos_count = 1;
    return TW_OK;
}

const char *tw_text_ends_conflict(const struct tw_text_ends *ends) {
    (void)ends;
    return NULL;
}

uint32_t tw_text_ends_text(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer) {
    (void)ends;
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

void tw_tokenizer_set_ends(struct tw_tokenizer *tokenizer, const struct tw_text_ends *ends) {
    (void)tokenizer;
    (void)ends;
}

uint32_t tw_tokenizer_normal_vocab(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return 256;
}

bool tw_tokenizer_is_bytes(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return true;
}

bool tw_tokenizer_is_text(const struct tw_tokenizer *tokenizer, uint32_t token) {
    (void)tokenizer;
    (void)token;
    return true;
}

uint32_t tw_tokenizer_template_size(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return 0;
}

uint32_t tw_tokenizer_before(const struct tw_tokenizer *tokenizer, uint32_t i) {
    (void)tokenizer;
    (void)i;
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_first(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_last(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_strips(const struct tw_tokenizer *tokenizer) {
    (void)tokenizer;
    return TW_TOKEN_NONE;
}

bool tw_text_ends_at(const struct tw_text_ends *ends, uint32_t token) {
    return ends->generation.eos_count > 0 && ends->generation.eos[0] == token;
}

/* ---- files of models and datasets ------------------------------------------------------------ */

enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err) {
    (void)run;
    (void)json;
    (void)size;
    return tw_fail(err, TW_CONFIG, "this program reads no JSON");
}

enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err) {
    (void)json;
    (void)size;
    memset(index, 0, sizeof(*index));
    return tw_fail(err, TW_CONFIG, "this program reads no JSON");
}

void tw_hf_index_free(struct tw_hf_index *index) {
    memset(index, 0, sizeof(*index));
}

const struct tw_hf_entry *tw_hf_index_find(const struct tw_hf_index *index, const char *name) {
    (void)index;
    (void)name;
    return NULL;
}

enum tw_status tw_hf_chat_template(const char *folder, char **text, struct tw_error *err) {
    (void)folder;
    (void)err;
    *text = NULL;
    return TW_OK;
}

enum tw_status tw_prepare(const struct tw_prepare_options *options,
                          struct tw_prepare_summary *summary, struct tw_error *err) {
    (void)options;
    (void)summary;
    return tw_fail(err, TW_CONFIG, "this program prepares no data");
}

enum tw_exit engine_verify(int argc, char **argv) {
    (void)argc;
    (void)argv;
    fprintf(stderr, "this program verifies no archive\n");
    return TW_EXIT_FAILURE;
}
