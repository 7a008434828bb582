/* engine_verb.c - helpers shared by the commands (verbs) of thinwire-engine. */
#include "worker/cli/engine_verb.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "worker/files/model_source.h"
#include "worker/support/utf8.h"

enum tw_exit engine_fail(const struct tw_error *err) {
    (void)fprintf(stderr, "thinwire: %s\n", err->message);
    if (err->status == TW_DATA || err->status == TW_AGAIN) return TW_EXIT_DATA;
    if (err->status == TW_CORRUPT) return TW_EXIT_CORRUPT;
    if (err->status == TW_DEVICE) return TW_EXIT_DEVICE;
    return err->status == TW_CONFIG ? TW_EXIT_USAGE : TW_EXIT_FAILURE;
}

void engine_warn_ends(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer,
                      uint32_t vocab) {
    const char *const conflict = tw_text_ends_conflict(ends);
    if (conflict != NULL) (void)fprintf(stderr, "thinwire: %s\n", conflict);
    const uint32_t text = tokenizer != NULL ? tw_text_ends_text(ends, tokenizer) : TW_TOKEN_NONE;
    if (ends->ignored != TW_TOKEN_NONE) {
        (void)fprintf(stderr,
                      "thinwire: the model's eos_token_id %u is outside its vocabulary of %u; name "
                      "the token that ends a text with --eos\n",
                      ends->ignored, vocab);
    } else if (text != TW_TOKEN_NONE) {
        size_t size;
        const char *const token = (const char *)tw_tokenizer_token(tokenizer, text, &size);
        (void)fprintf(stderr, "thinwire: the model's eos_token_id %u is the token ", text);
        tw_json_text_print(stderr, (const uint8_t *)token, size);
        (void)fprintf(stderr, ", which is text; name the token that ends a text with --eos\n");
    } else if (tokenizer != NULL && ends->generation.eos_count == 0) {
        (void)fprintf(stderr, "thinwire: nothing says which token ends a text; name it with "
                              "--eos, as text or number\n");
    }
}

double engine_now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum tw_status engine_take_state(const char **model, const char **run, const char *part,
                                 struct tw_state_found *found, struct tw_error *err) {
    bool is_one = false;
    char age[TW_UNITS_BYTES] = "-";
    struct stat info;
    if (*model == NULL) return TW_OK;
    if (access(*model, R_OK) != 0 && errno == EACCES)
        return tw_fail(err, TW_IO, "%s: %s: a node's files are its user's; use sudo", *model,
                       strerror(errno));
    TW_TRY(tw_state_folder_find(*model, part, &is_one, found, err));
    if (!is_one) return TW_OK;
    if (stat(found->checkpoint, &info) == 0)
        (void)tw_units_duration(age, fmax(0, difftime(time(NULL), info.st_mtime)));
    (void)fprintf(
        stderr,
        "thinwire: %s%suses %s, step %llu, saved %s ago (a running node saves a newer one "
        "on the command checkpoint)\n",
        found->refused, found->refused[0] != 0 ? "; " : "", found->checkpoint,
        (unsigned long long)found->step, age);
    *model = found->checkpoint;
    if (*run == NULL && found->manifest[0] != 0) *run = found->manifest;
    return TW_OK;
}

enum tw_status engine_open(struct engine_bench *bench, enum engine_verb verb,
                           struct tw_error *err) {
    const struct tw_engine_config config = {.run = &bench->run,
                                            .layout = &bench->layout,
                                            .compute = bench->compute,
                                            .is_inference = verb != ENGINE_TRAIN,
                                            .has_cache = verb == ENGINE_GENERATE};
    return tw_engine_create(&bench->engine, &config, err);
}

enum tw_status engine_read(const struct engine_bench *bench, const char *path, float *params,
                           struct tw_error *err) {
    struct tw_model_source source;
    TW_TRY(tw_engine_source_open(&source, path, &bench->run, &bench->layout, bench->options->part,
                                 err));
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; status == TW_OK && i < bench->layout.tensors_count; i++) {
        const struct tw_tensor *const tensor = &bench->layout.tensors[i];
        status = tw_model_source_read(&source, i, 0, (uint64_t)tensor->rows * tensor->cols,
                                      params + tensor->offset, err);
    }
    tw_model_source_close(&source);
    return status;
}

enum tw_status engine_load(struct engine_bench *bench, const char *path, struct tw_error *err) {
    TW_TRY(engine_read(bench, path, bench->engine->theta, err));
    return tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err);
}
