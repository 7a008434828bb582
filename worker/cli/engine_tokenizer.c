/* engine_tokenizer.c - checks that the tokenizers of a model's folder and of a dataset give the
 * same tokens, also between texts. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "worker/cli/engine_verb.h"
#include "worker/data/corpus.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/text_ends.h"

/* A tokenizer.json and its SHA-256. */
struct side {
    char path[PATH_MAX];
    char *json;
    size_t bytes;
    struct tw_id digest;
    struct tw_tokenizer *tokenizer;
};

static bool has_file(struct side *side, const char *folder, const char *name) {
    const int n = snprintf(side->path, sizeof(side->path), "%s/%s", folder, name);
    return n > 0 && n < (int)sizeof(side->path) && access(side->path, R_OK) == 0;
}

static enum tw_status read_side(struct side *side, struct tw_error *err) {
    TW_TRY(
        tw_in_read_whole(side->path, TW_TOKENIZER_JSON_BYTES_MAX, &side->json, &side->bytes, err));
    side->digest = tw_sha256(side->json, side->bytes);
    return TW_OK;
}

/* Returns the lowest token of the dataset that has other bytes in the model's tokenizer, or
 * TW_TOKEN_NONE. */
static uint32_t first_other(const struct tw_tokenizer *model, const struct tw_tokenizer *data,
                            uint32_t vocab) {
    for (uint32_t token = 0; token < vocab; token++) {
        size_t sizes[2] = {0, 0};
        const uint8_t *const one =
            token < tw_tokenizer_vocab(model) ? tw_tokenizer_token(model, token, &sizes[0]) : NULL;
        const uint8_t *const two =
            token < tw_tokenizer_vocab(data) ? tw_tokenizer_token(data, token, &sizes[1]) : NULL;
        if (sizes[0] != sizes[1]) return token;
        if (sizes[0] > 0 && memcmp(one, two, sizes[0]) != 0) return token;
    }
    return TW_TOKEN_NONE;
}

/* Compares the tokens, because files that differ may still give the same tokens: programs write
 * tokenizer.json in many ways. */
static enum tw_status compare(struct side *model, struct side *data, uint32_t vocab,
                              const char *folder, struct tw_error *err) {
    struct tw_error why;
    if (tw_tokenizer_create_json(&model->tokenizer, model->json, model->bytes, &why) != TW_OK ||
        tw_tokenizer_create_json(&data->tokenizer, data->json, data->bytes, &why) != TW_OK) {
        (void)fprintf(
            stderr,
            "thinwire: %.100s and %.100s differ and cannot be compared: are these data of "
            "the model's tokenizer?\n",
            model->path, data->path);
        return TW_OK;
    }
    const uint32_t token = first_other(model->tokenizer, data->tokenizer, vocab);
    if (token == TW_TOKEN_NONE) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "%.80s has the tokens of another tokenizer than the model (%u is the first that "
                   "differs): prepare it with --tokenizer %.100s",
                   folder, token, model->path);
}

/* Warns if documents begin with another token than the texts on which the model was trained. */
static enum tw_status compare_begin(struct side *model, const char *folder, const char *data,
                                    const struct tw_dataset *dataset, struct tw_error *err) {
    struct tw_text_ends ends;
    struct tw_error why;
    if (model->tokenizer == NULL &&
        tw_tokenizer_create_json(&model->tokenizer, model->json, model->bytes, &why) != TW_OK) {
        return TW_OK; /* compare() reports this error if it matters */
    }
    const struct tw_text_ends_source source = {.model = folder,
                                               .tokenizer_path = model->path,
                                               .tokenizer = model->tokenizer,
                                               .vocab = tw_tokenizer_vocab(model->tokenizer)};
    TW_TRY(tw_text_ends_read(&ends, &source, err));
    const uint32_t first = tw_tokenizer_first(model->tokenizer);
    const bool begins = first != TW_TOKEN_NONE;
    const bool is_end =
        dataset->separator >= 0 && tw_text_ends_at(&ends, (uint32_t)dataset->separator);
    const uint32_t wanted = begins || ends.tokenizer.eos_count == 0 ? first : ends.tokenizer.eos[0];
    if (wanted == TW_TOKEN_NONE || dataset->separator == (int64_t)wanted || (!begins && is_end)) {
        return TW_OK;
    }
    char token[24] = "no token";
    if (dataset->separator >= 0) {
        (void)snprintf(token, sizeof(token), "%lld", (long long)dataset->separator);
    }
    (void)fprintf(
        stderr,
        "thinwire: documents of %.100s begin with %s, texts of the model %s %u: to change "
        "that, prepare them with --tokenizer %.100s\n",
        data, token, begins ? "begin with" : "end with", wanted, model->path);
    return TW_OK;
}

static enum tw_status check_model(const char *folder, const char *data,
                                  const struct tw_dataset *dataset, struct tw_error *err) {
    static struct side sides[2]; /* tokenizers of the model and of the dataset */
    memset(sides, 0, sizeof(sides));
    if (!has_file(&sides[0], folder, "tokenizer.json") ||
        !has_file(&sides[1], data, TW_DATASET_TOKENIZER_FILE)) {
        return TW_OK;
    }
    enum tw_status status = read_side(&sides[0], err);
    if (status == TW_OK && !tw_id_equal(&sides[0].digest, &dataset->tokenizer)) {
        status = read_side(&sides[1], err);
        if (status == TW_OK) {
            status = compare(&sides[0], &sides[1], dataset->vocab, data, err);
        }
    }
    if (status == TW_OK) status = compare_begin(&sides[0], folder, data, dataset, err);
    for (unsigned i = 0; i < 2; i++) {
        tw_tokenizer_destroy(sides[i].tokenizer);
        free(sides[i].json);
    }
    return status;
}

enum tw_status engine_check_tokenizer(const struct engine_options *options, struct tw_error *err) {
    static struct tw_dataset dataset;
    struct tw_id digest;
    char index[PATH_MAX];
    if (options->data == NULL) return TW_OK;
    const int n = snprintf(index, sizeof(index), "%s/%s", options->data, TW_DATASET_INDEX_FILE);
    if (n < 0 || n >= (int)sizeof(index) || access(index, R_OK) != 0) return TW_OK;
    TW_TRY(tw_dataset_read(options->data, &dataset, &digest, err));
    free(dataset.shards);
    dataset.shards = NULL;
    /* A dataset of bytes has no tokenizer to compare: dataset_run.h checks it. */
    if (tw_id_is_zero(&dataset.tokenizer)) return TW_OK;
    const char *const models[] = {options->file, options->from};
    for (unsigned i = 0; i < 2; i++) {
        if (models[i] != NULL) TW_TRY(check_model(models[i], options->data, &dataset, err));
    }
    for (uint32_t i = 1; i < options->files_count; i++) {
        TW_TRY(check_model(options->files[i], options->data, &dataset, err));
    }
    return TW_OK;
}
