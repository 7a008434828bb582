#include "worker/files/engine_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/files/model_same.h"
#include "worker/support/out_file.h"

enum tw_status tw_engine_manifest_read(const char *path, struct tw_run *run,
                                       struct tw_layout *layout, struct tw_error *err) {
    char *text = NULL;
    size_t size = 0;
    struct tw_error why;
    TW_TRY(tw_in_read_whole(path, TW_MANIFEST_BYTES_MAX, &text, &size, err));
    enum tw_status status = tw_run_read(text, size, run, &why);
    if (status == TW_OK) status = tw_layout_init(layout, run, &why);
    free(text);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%s: %s", path, why.message);
}

/* Derives a run name from a model name: "SmolLM2-135M/" becomes "smollm2-135m". */
static void name_run(struct tw_run *run, const char *name) {
    size_t size = 0;
    for (; *name != 0 && size < sizeof(run->name) - 1; name++) {
        const char lower = *name >= 'A' && *name <= 'Z' ? (char)(*name + 'a' - 'A') : *name;
        const bool is_good = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
        if (is_good) {
            run->name[size++] = lower;
        } else if (size > 0 && run->name[size - 1] != '-') {
            run->name[size++] = '-';
        }
    }
    while (size > 0 && run->name[size - 1] == '-') size--;
    memset(run->name + size, 0, sizeof(run->name) - size);
    if (size == 0) memcpy(run->name, "imported", sizeof("imported"));
}

/* Sets training keys for a model that is already trained: a low learning rate, 4096 tokens per
 * step, 1000 steps. */
static void plan_training(struct tw_run *run) {
    enum { STEP_TOKENS = 4096, STEPS = 1000, RATE_MILLIONTHS = 50 };
    const uint32_t batch = STEP_TOKENS / run->model.context;
    run->train.batch = batch > 0 ? batch : 1;
    run->train.tokens = (uint64_t)run->train.batch * run->model.context * STEPS;
    run->train.warmup_tokens = run->train.tokens / 20;
    run->train.lr_millionths = RATE_MILLIONTHS;
    tw_run_apply_preset(run, run->sync.preset);
}

enum tw_status tw_engine_manifest_make(const struct tw_model_source *source, const char *name,
                                       uint32_t context, struct tw_run *run, uint32_t *known,
                                       struct tw_error *err) {
    tw_run_defaults(run);
    TW_TRY(tw_model_source_run(source, run, err));
    const uint32_t most = run->model.context;
    if (known != NULL) *known = most;
    if (run->model.family == TW_FAMILY_GPT2) {
        if (context != 0 && context != most) {
            return tw_fail(err, TW_CONFIG,
                           "--context %u: the positions of this model are weights, "
                           "%u of them",
                           context, most);
        }
    } else if (context > most) {
        return tw_fail(err, TW_CONFIG, "--context %u: the model knows %u positions", context, most);
    } else {
        run->model.context = context != 0               ? context
                             : most < TW_ENGINE_CONTEXT ? most
                                                        : TW_ENGINE_CONTEXT;
    }
    name_run(run, name);
    plan_training(run);
    return tw_run_check(run, err);
}

static enum tw_status check_config(const struct tw_model_source *source, const struct tw_run *run,
                                   struct tw_error *err) {
    /* In a folder, config.json certainly describes the model. Beside a single file, it may belong
     * to another one. */
    if (source->config == NULL || !source->is_folder) return TW_OK;
    struct tw_run found;
    tw_run_defaults(&found);
    TW_TRY(tw_model_source_run(source, &found, err));
    return tw_model_same(&found, run, err);
}

enum tw_status tw_engine_source_open(struct tw_model_source *source, const char *path,
                                     const struct tw_run *run, const struct tw_layout *layout,
                                     const char *part, struct tw_error *err) {
    TW_TRY(tw_model_source_open(source, path, err));
    enum tw_status status = check_config(source, run, err);
    if (status == TW_OK) status = tw_model_source_bind(source, layout, part, err);
    if (status != TW_OK) tw_model_source_close(source);
    return status;
}
