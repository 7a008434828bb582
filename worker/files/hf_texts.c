#include "worker/files/hf_texts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/support/out_file.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_text.h"

const char *const TW_HF_TEXT_NAMES[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "added_tokens.json",
                                        NULL};
enum { TOKENIZER, TOKENIZER_CONFIG, SPECIALS, TEMPLATE, GENERATION, MODEL, VOCAB, MERGES, ADDED };

void tw_hf_texts_free(struct tw_hf_texts *texts) {
    for (uint32_t i = 0; i < texts->count; i++) free(texts->list[i].text);
    texts->count = 0;
}

/* Takes over `text`. */
static enum tw_status add_text(struct tw_hf_texts *texts, unsigned name, char *text, size_t bytes,
                               struct tw_error *err) {
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", TW_HF_TEXT_NAMES[name]);
    TW_ASSERT(texts->count < TW_HF_TEXTS_MAX);
    texts->list[texts->count++] = (struct tw_hf_text){TW_HF_TEXT_NAMES[name], text, bytes};
    return TW_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies a file from the folder `path` or, if is_file, from the folder of the file `path`. Sets
 * *is_there to whether that file exists. */
static enum tw_status copy_text(struct tw_hf_texts *texts, unsigned name, const char *path,
                                bool is_file, bool *is_there, struct tw_error *err) {
    char *text = NULL, from[PATH_MAX];
    size_t bytes = 0;
    *is_there = false;
    if (path == NULL) return TW_OK;
    const char *const slash = is_file ? strrchr(path, '/') : path + strlen(path);
    const int n = snprintf(from, sizeof(from), "%.*s/%s", slash != NULL ? (int)(slash - path) : 1,
                           slash != NULL ? path : ".", TW_HF_TEXT_NAMES[name]);
    if (n >= (int)sizeof(from) || access(from, F_OK) != 0) return TW_OK;
    TW_TRY(tw_in_read_whole(from, TW_TEXT_ENDS_BYTES_MAX, &text, &bytes, err));
    *is_there = true;
    return add_text(texts, name, text, bytes, err);
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

/* Writes a token as tokenizer.json spells it, or null. Null also replaces a token that is ordinary
 * text, because readers treat each token named in this file as special wherever it occurs. */
static void put_token(FILE *to, const char *key, const struct tw_tokenizer *tokenizer,
                      uint32_t token) {
    size_t size;
    (void)fprintf(to, ",\n  \"%s\": ", key);
    if (token == TW_TOKEN_NONE || tw_tokenizer_is_text(tokenizer, token)) {
        (void)fputs("null", to);
        return;
    }
    const uint8_t *const text = tw_tokenizer_token(tokenizer, token, &size);
    tw_json_text_print(to, text, size);
}

static enum tw_status make_tokenizer_config(struct tw_hf_texts *texts, const struct tw_run *run,
                                            const struct tw_hf_texts_source *source,
                                            struct tw_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return tw_fail(err, TW_NOMEM, "no memory for a tokenizer_config.json");
    (void)fprintf(to,
                  "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                  "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %u",
                  run->model.context);
    static const struct tw_end_ids NONE = {.bos = TW_TOKEN_NONE, .pad = TW_TOKEN_NONE};
    const bool is_known = source->tokenizer != NULL && source->tokenizer_text != NULL;
    const struct tw_end_ids *const ids = is_known ? &source->ends->tokenizer : &NONE;
    put_token(to, "bos_token", source->tokenizer, ids->bos);
    put_token(to, "eos_token", source->tokenizer, ids->eos_count > 0 ? ids->eos[0] : TW_TOKEN_NONE);
    put_token(to, "pad_token", source->tokenizer, ids->pad);
    /* Without this null, transformers 5 adds "<|endoftext|>" to the tokens of a qwen2 model. */
    put_token(to, "unk_token", source->tokenizer, TW_TOKEN_NONE);
    (void)fputs("\n}\n", to);
    if (fclose(to) != 0) {
        free(text);
        text = NULL;
    }
    return add_text(texts, TOKENIZER_CONFIG, text, bytes, err);
}

/* ---- generation_config.json ------------------------------------------------------------------ */

static enum tw_status make_generation_config(struct tw_hf_texts *texts,
                                             const struct tw_end_ids *ids, struct tw_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    /* No file names an end token, so readers find none either. */
    if (ids->eos_count == 0) return TW_OK;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return tw_fail(err, TW_NOMEM, "no memory for a generation_config.json");
    (void)fputs("{\n", to);
    if (ids->bos != TW_TOKEN_NONE) (void)fprintf(to, "  \"bos_token_id\": %u,\n", ids->bos);
    if (ids->pad != TW_TOKEN_NONE) (void)fprintf(to, "  \"pad_token_id\": %u,\n", ids->pad);
    (void)fprintf(to, "  \"eos_token_id\": %s", ids->eos_count > 1 ? "[" : "");
    for (uint32_t i = 0; i < ids->eos_count; i++) {
        (void)fprintf(to, "%s%u", i > 0 ? ", " : "", ids->eos[i]);
    }
    (void)fprintf(to, "%s\n}\n", ids->eos_count > 1 ? "]" : "");
    if (fclose(to) != 0) {
        free(text);
        text = NULL;
    }
    return add_text(texts, GENERATION, text, bytes, err);
}

/* ---- entry point ----------------------------------------------------------------------------- */

static enum tw_status make_tokenizer(struct tw_hf_texts *texts, const struct tw_run *run,
                                     const struct tw_hf_texts_source *source,
                                     struct tw_error *err) {
    const bool is_bytes = source->tokenizer_text == NULL;
    bool has_config = false, is_there = false;
    if (is_bytes && run->data.tokenizer != TW_TOKENIZER_BYTES) return TW_OK;
    const size_t bytes = is_bytes ? TW_BYTE_TOKENIZER_BYTES : source->tokenizer_bytes;
    char *const text = malloc(bytes + 1);
    size_t size = bytes;
    if (text != NULL && is_bytes) size = tw_byte_tokenizer_json(text);
    if (text != NULL && !is_bytes) memcpy(text, source->tokenizer_text, bytes);
    TW_TRY(add_text(texts, TOKENIZER, text, size, err));
    if (!is_bytes) {
        const char *const path = source->tokenizer_path;
        TW_TRY(copy_text(texts, TOKENIZER_CONFIG, path, true, &has_config, err));
        TW_TRY(copy_text(texts, SPECIALS, path, true, &is_there, err));
        TW_TRY(copy_text(texts, TEMPLATE, path, true, &is_there, err));
        /* Other forms of the tokenizer, for the slow tokenizers of transformers 4 and for
         * converters. */
        for (unsigned name = MODEL; name <= ADDED; name++) {
            TW_TRY(copy_text(texts, name, path, true, &is_there, err));
        }
    }
    return has_config ? TW_OK : make_tokenizer_config(texts, run, source, err);
}

enum tw_status tw_hf_texts_make(struct tw_hf_texts *texts, const struct tw_run *run,
                                const struct tw_hf_texts_source *source, struct tw_error *err) {
    bool is_there = false;
    texts->count = 0;
    TW_TRY(make_tokenizer(texts, run, source, err));
    if (!source->is_eos_chosen) {
        TW_TRY(copy_text(texts, GENERATION, source->model, false, &is_there, err));
    }
    return is_there ? TW_OK : make_generation_config(texts, &source->ends->generation, err);
}
