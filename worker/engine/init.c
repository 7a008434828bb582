/* init.c - initial weights, bit-identical on every machine. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "worker/engine/engine.h"

/* Draws a nearly normal number with mean 0 and variance 1: a sum of twelve uniform numbers minus
 * its mean (Irwin-Hall). The sum is an integer, so every machine gets the same value without
 * rounding or libm. */
static double draw_normal(struct tw_rng *rng) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t bits = tw_rng_next(rng);
        sum += (bits >> 32) + (bits & 0xFFFFFFFFu);
    }
    return (double)sum * 0x1p-32 - 6.0;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

void tw_engine_init_params(const struct tw_run *run, const struct tw_layout *layout,
                           float *params) {
    const double deviation = 0.02, residual = deviation / sqrt(2.0 * run->model.layers);
    struct tw_rng rng;
    tw_rng_seed(&rng, run->model.seed);
    memset(params, 0, layout->elements * sizeof(float));
    /* Tensors are drawn in the model's order, so that the initial weights do not depend on the
     * run's fragments. */
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
        float *to = params + tensor->offset;
        if (tensor->shape.rank == 2) {
            const double scale = tensor->is_residual ? residual : deviation;
            for (uint64_t j = 0; j < count; j++) to[j] = (float)(scale * draw_normal(&rng));
        } else if (ends_with(tensor->name, ".weight")) {
            for (uint64_t j = 0; j < count; j++) to[j] = 1.0f;
        }
    }
}
