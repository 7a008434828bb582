#include "worker/merge/rate_fit.h"

#include <stdlib.h>

#include "proto/run/layout.h"

static int order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum tw_status find_ends(struct tw_rate_fit *fit, const struct tw_run *run,
                                struct tw_error *err) {
    struct tw_layout *layout = malloc(sizeof(*layout));
    if (layout == NULL) return tw_fail(err, TW_NOMEM, "no memory for the model's layout");
    const enum tw_status status = tw_layout_init(layout, run, err);
    for (uint32_t t = 0; status == TW_OK && t < layout->tensors_count; t++) {
        const struct tw_tensor *tensor = &layout->tensors[t];
        fit->ends[fit->ends_count++] = tensor->offset + (uint64_t)tensor->rows * tensor->cols;
    }
    free(layout);
    qsort(fit->ends, fit->ends_count, sizeof(fit->ends[0]), order);
    return status;
}

enum tw_status tw_rate_fit_create(struct tw_rate_fit **fit, const struct tw_run *run,
                                  struct tw_error *err) {
    /* This reserves mostly address space: a small model touches few of its pages. */
    *fit = malloc(sizeof(**fit));
    if (*fit == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for dealing out bytes: %zu wanted", sizeof(**fit));
    }
    (*fit)->ends_count = 0;
    const enum tw_status status = find_ends(*fit, run, err);
    if (status == TW_OK) return TW_OK;
    tw_rate_fit_destroy(*fit);
    *fit = NULL;
    return status;
}

void tw_rate_fit_destroy(struct tw_rate_fit *fit) {
    free(fit);
}

enum tw_status tw_rate_fit_encode(struct tw_rate_fit *fit, const struct tw_rate_fit_part *part,
                                  size_t *bytes_out) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < fit->ends_count; i++) {
        if (fit->ends[i] <= part->begin || fit->ends[i] >= part->begin + part->n) continue;
        fit->inside[count++] = fit->ends[i] - part->begin;
    }
    const struct tw_auto_part inner = {.x = part->x,
                                       .n = part->n,
                                       .ends = fit->inside,
                                       .ends_count = count,
                                       .bytes_max = part->bytes_max};
    return tw_auto_encode(&fit->work, &inner, part->out, part->capacity, bytes_out);
}
