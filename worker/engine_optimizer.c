/* engine_optimizer.c - the update: AdamW in pieces over the team, its norm and clipping. */
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "worker/engine_memory.h"

#define ADAMW_EPS 1e-8f

enum { RANGE_ELEMENTS = 64 * 1024 };

/* What the pieces of one update share. */
struct update {
    struct tw_engine *engine;
    struct tw_adamw adamw;
    float decay;
};

/* Fills ranges, or with NULL only counts them. */
static uint64_t list_ranges(const struct tw_layout *layout, struct tw_engine_range *ranges) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        const uint64_t size = (uint64_t)tensor->rows * tensor->cols;
        for (uint64_t done = 0; done < size; done += RANGE_ELEMENTS, count++) {
            if (ranges == NULL) continue;
            ranges[count] = (struct tw_engine_range){
                .begin = tensor->offset + done,
                .count = size - done < RANGE_ELEMENTS ? size - done : RANGE_ELEMENTS,
                .has_decay = tensor->has_decay};
        }
    }
    return count;
}

enum tw_status tw_engine_optimizer_init(struct tw_engine *engine, struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    const uint64_t count = list_ranges(engine->layout, NULL);
    TW_ASSERT(count <= UINT32_MAX);
    memory->ranges = calloc(count, sizeof(*memory->ranges));
    memory->squares = calloc(count, sizeof(*memory->squares));
    if (memory->ranges == NULL || memory->squares == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for %llu pieces of the optimizer's work",
                       (unsigned long long)count);
    memory->ranges_count = (uint32_t)count;
    (void)list_ranges(engine->layout, memory->ranges);
    return TW_OK;
}

static void squares_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct tw_engine *engine = context;
    const struct tw_engine_range *range = &engine->memory->ranges[piece];
    (void)thread;
    engine->memory->squares[piece] =
        engine->memory->model.ops->sum_squares(engine->gradient + range->begin, range->count);
}

double tw_engine_gradient_norm(struct tw_engine *engine) {
    struct tw_engine_memory *memory = engine->memory;
    double sum = 0.0;
    tw_team_run(memory->team, memory->ranges_count, squares_piece, engine);
    for (uint32_t i = 0; i < memory->ranges_count; i++) sum += memory->squares[i];
    return sqrt(sum);
}

static void adamw_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct update *update = context;
    const struct tw_engine *engine = update->engine;
    const struct tw_engine_range *range = &engine->memory->ranges[piece];
    struct tw_adamw cfg = update->adamw;
    (void)thread;
    cfg.decay = range->has_decay ? update->decay : 0.0f;
    engine->memory->model.ops->adamw(engine->theta + range->begin, engine->m + range->begin,
                                     engine->v + range->begin, engine->gradient + range->begin,
                                     range->count, &cfg);
}

void tw_engine_update(struct tw_engine *engine, float lr, double norm) {
    const struct tw_run *run = engine->run;
    const double clip = run->train.clip_millionths / 1e6;
    const double beta1 = run->train.beta1_millionths / 1e6;
    const double beta2 = run->train.beta2_millionths / 1e6;
    const double updates = (double)++engine->updates;
    struct update update = {
        .engine = engine,
        .adamw = {.lr = lr,
                  .beta1 = (float)beta1,
                  .beta2 = (float)beta2,
                  .eps = ADAMW_EPS,
                  .correction1 = (float)(1.0 - pow(beta1, updates)),
                  .correction2 = (float)(1.0 - pow(beta2, updates)),
                  .gradient_scale = clip > 0.0 && norm > clip ? (float)(clip / norm) : 1.0f},
        .decay = (float)(run->train.decay_millionths / 1e6),
    };
    tw_team_run(engine->memory->team, engine->memory->ranges_count, adamw_piece, &update);
}
