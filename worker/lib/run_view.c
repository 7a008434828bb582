#include "worker/lib/run_view.h"

#include <stdlib.h>
#include <string.h>

#include "worker/learn/eval.h"

/* Splits the canonical text of the manifest into lines that end in NUL. */
static enum tw_status manifest_make(struct tw_run_view *view, struct tw_error *err) {
    view->manifest = calloc(1, TW_MANIFEST_BYTES_MAX + 1);
    if (view->manifest == NULL) return tw_fail(err, TW_NOMEM, "no memory for a manifest");
    tw_run_encode(&view->settings, view->manifest, &view->manifest_bytes);
    for (size_t i = 0; i < view->manifest_bytes; i++) {
        if (view->manifest[i] == '\n') view->manifest[i] = '\0';
    }
    return TW_OK;
}

const char *tw_run_view_setting(const struct tw_run_view *view, const char *key) {
    const size_t length = strlen(key);
    const char *end = view->manifest + view->manifest_bytes;
    for (const char *line = view->manifest; line < end; line += strlen(line) + 1) {
        if (strncmp(line, key, length) == 0 && strncmp(line + length, " = ", 3) == 0)
            return line + length + 3;
    }
    return NULL;
}

static enum tw_status tensors_make(struct tw_run_view *view, const struct tw_layout *layout,
                                   struct tw_error *err) {
    view->layout = malloc(sizeof(*view->layout));
    view->tensors = calloc(layout->tensors_count, sizeof(*view->tensors));
    if (view->layout == NULL || view->tensors == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for a list of tensors");
    *view->layout = *layout;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &view->layout->tensors[i];
        view->tensors[i] = (struct thinwire_tensor){
            .name = tensor->name,
            .elements = (uint64_t)tensor->rows * tensor->cols,
            .rank = tensor->shape.rank,
        };
        for (uint32_t side = 0; side < tensor->shape.rank; side++)
            view->tensors[i].shape[side] = tensor->shape.sides[side];
    }
    return TW_OK;
}

enum tw_status tw_run_view_make(struct tw_run_view *view, const struct tw_learner_config *config,
                                struct tw_error *err) {
    const struct tw_run *run = config->run;
    view->settings = *run;
    view->peak_lr = run->train.lr_millionths / 1e6;
    TW_TRY(tensors_make(view, config->layout, err));
    TW_TRY(manifest_make(view, err));
    view->data_path = strdup(config->data_path);
    if (view->data_path == NULL) return tw_fail(err, TW_NOMEM, "no memory for a path");
    const struct tw_id id = tw_run_id(run);
    view->run = (struct thinwire_run){
        .name = view->settings.name,
        .tensors = view->tensors,
        .tensors_count = config->layout->tensors_count,
        .parameters = config->layout->params,
        .batch = run->train.batch,
        .context = run->model.context,
        .tokens_per_step = (uint64_t)run->train.batch * run->model.context,
        .tokens = run->train.tokens,
        .data_path = view->data_path,
        .data_seed = config->data_seed,
        .heldout_windows = tw_eval_windows(run),
        .threads = config->compute.threads,
    };
    tw_id_hex(&id, view->run.id);
    return TW_OK;
}

void tw_run_view_free(struct tw_run_view *view) {
    free(view->layout);
    free(view->tensors);
    free(view->data_path);
    free(view->manifest);
    memset(view, 0, sizeof(*view));
}

bool tw_run_view_is_of(const struct tw_run_view *view, const struct tw_run *run) {
    const struct tw_id shown = tw_run_id(&view->settings), other = tw_run_id(run);
    return tw_id_equal(&shown, &other);
}
