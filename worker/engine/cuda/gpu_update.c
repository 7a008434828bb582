/* gpu_update.c - the optimizer update on a device, with AdamW over ranges and Muon over matrices.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "worker/engine/cuda/gpu_model.h"

struct range {
    uint64_t begin, count;
    bool has_decay, is_muon;
};

struct tw_gpu_ranges {
    struct range *adamw; /* (adamw_count) */
    uint32_t adamw_count;
    struct tw_cuda_muon_matrix *muon; /* (muon_count), sorted so that equal sizes are adjacent */
    uint32_t muon_count;
    void *muon_scratch; /* device */
};

static int by_size(const void *a, const void *b) {
    const struct tw_cuda_muon_matrix *x = a, *y = b;
    const uint64_t first = (uint64_t)x->rows * x->cols, second = (uint64_t)y->rows * y->cols;
    if (first != second) return (first < second) - (first > second);
    if (x->rows != y->rows) return (x->rows < y->rows) - (x->rows > y->rows);
    if (x->stride != y->stride) return (x->stride < y->stride) - (x->stride > y->stride);
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Lists the layout's Muon matrices into all (3 * tensors_count). Returns their number. */
static uint32_t list_muon(const struct tw_run *run, const struct tw_layout *layout,
                          struct tw_cuda_muon_matrix *all) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        struct tw_engine_matrix matrices[3];
        const uint32_t found = tw_engine_matrices(run, &layout->tensors[i], matrices);
        for (uint32_t k = 0; k < found; k++) {
            all[count++] = (struct tw_cuda_muon_matrix){.begin = matrices[k].begin,
                                                        .rows = matrices[k].rows,
                                                        .cols = matrices[k].cols,
                                                        .stride = matrices[k].stride};
        }
    }
    qsort(all, count, sizeof(*all), by_size);
    return count;
}

uint64_t tw_gpu_muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
                           enum tw_type type) {
    static struct tw_cuda_muon_matrix all[3 * TW_TENSORS_MAX]; /* too large for a stack */
    const uint32_t count = list_muon(run, layout, all);
    return count == 0 ? 0 : tw_cuda_muon_scratch(all, count, type);
}

static int by_begin(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Lists the tensors that AdamW trains, sorted by offset, and joins neighbours with equal settings
 * into one range. The padding between them has zero gradient and moments and stays zero. The layout
 * does not list tensors in order of offset. */
static void list_adamw(const struct tw_gpu *gpu, struct tw_gpu_ranges *ranges) {
    const struct tw_layout *layout = gpu->engine->layout;
    struct range *all = ranges->adamw;
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        struct tw_engine_matrix matrices[3];
        all[i] = (struct range){
            .begin = tensor->offset,
            .count = (uint64_t)tensor->rows * tensor->cols,
            .has_decay = tensor->has_decay,
            .is_muon = tw_engine_matrices(gpu->engine->run, tensor, matrices) > 0,
        };
    }
    qsort(all, layout->tensors_count, sizeof(*all), by_begin);
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const bool is_alike = i > 0 && all[i].is_muon == all[count - 1].is_muon &&
                              all[i].has_decay == all[count - 1].has_decay;
        if (is_alike) {
            all[count - 1].count = all[i].begin + all[i].count - all[count - 1].begin;
        } else {
            all[count++] = all[i];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!all[i].is_muon) all[ranges->adamw_count++] = all[i];
    }
}

enum tw_status tw_gpu_ranges_open(struct tw_gpu *gpu, struct tw_error *err) {
    const struct tw_engine *engine = gpu->engine;
    const size_t tensors = engine->layout->tensors_count;
    struct tw_gpu_ranges *ranges = calloc(1, sizeof(*ranges));
    gpu->ranges = ranges;
    if (ranges != NULL) ranges->adamw = calloc(tensors, sizeof(*ranges->adamw));
    if (ranges != NULL) ranges->muon = calloc(3 * tensors, sizeof(*ranges->muon));
    if (ranges == NULL || ranges->adamw == NULL || ranges->muon == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for the optimizer's list of %zu tensors", tensors);
    list_adamw(gpu, ranges);
    ranges->muon_count = list_muon(engine->run, engine->layout, ranges->muon);
    if (ranges->muon_count == 0) return TW_OK;
    return tw_cuda_alloc(
        gpu->cuda, &ranges->muon_scratch,
        tw_cuda_muon_scratch(ranges->muon, ranges->muon_count, gpu->map.config.type), "Muon", err);
}

void tw_gpu_ranges_close(struct tw_gpu *gpu) {
    if (gpu->ranges == NULL) return;
    tw_cuda_free(gpu->cuda, gpu->ranges->muon_scratch);
    free(gpu->ranges->muon);
    free(gpu->ranges->adamw);
    free(gpu->ranges);
}

void tw_gpu_update(struct tw_gpu *gpu) {
    const struct tw_engine *engine = gpu->engine;
    const struct tw_gpu_ranges *ranges = gpu->ranges;
    const struct tw_adamw adamw = tw_engine_adamw(engine);
    tw_cuda_sum_squares(gpu->queue, &gpu->step->squares, gpu->gradient, engine->layout->elements,
                        false, gpu->arrays.scratch);
    tw_cuda_step_decide(gpu->queue, gpu->step);
    for (uint32_t i = 0; i < ranges->adamw_count; i++) {
        const struct range *range = &ranges->adamw[i];
        const struct tw_cuda_adamw arrays = {
            .theta = gpu->theta + range->begin,
            .m = gpu->m + range->begin,
            .v = gpu->v + range->begin,
            .gradient = gpu->gradient + range->begin,
            .copy = gpu->copy == NULL ? NULL : gpu->copy + range->begin,
            .n = range->count,
            .beta1 = adamw.beta1,
            .beta2 = adamw.beta2,
            .eps = adamw.eps,
            .has_decay = range->has_decay,
        };
        tw_cuda_adamw(gpu->queue, &arrays, gpu->step);
    }
    if (ranges->muon_count == 0) return;
    const struct tw_cuda_muon muon = {.step = gpu->step,
                                      .type = gpu->map.config.type,
                                      .theta_act = gpu->copy,
                                      .products = gpu->products,
                                      .spare = gpu->arrays.logits,
                                      .spare_bytes = gpu->arrays.logits_bytes};
    tw_cuda_muon_step(gpu->theta, gpu->m, gpu->gradient, ranges->muon_scratch, ranges->muon,
                      ranges->muon_count, &muon, gpu->queue);
}
