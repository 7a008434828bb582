/* engine_optimizer.c - the optimizer update on the thread pool: Muon by matrix, AdamW by range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/muon.h"
#include "worker/engine/engine_memory.h"

#define ADAMW_EPS 1e-8f

enum { RANGE_ELEMENTS = 64 * 1024 };

/* Values shared by the thread-pool pieces of one update. */
struct update {
    struct tw_engine *engine;
    struct tw_adamw adamw;
    float decay, momentum;
};

/* ---- list of work --------------------------------------------------------------------------- */

static bool is_muon(const struct tw_run *run, const struct tw_tensor *tensor) {
    return run->train.optimizer == TW_OPTIMIZER_MUON && tensor->is_hidden;
}

/* Fills `ranges` and returns their number; if `ranges` is NULL, only counts them. */
static uint64_t list_ranges(const struct tw_engine *engine, struct tw_engine_range *ranges) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < engine->layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &engine->layout->tensors[i];
        const uint64_t size = (uint64_t)tensor->rows * tensor->cols;
        for (uint64_t done = 0; done < size; done += RANGE_ELEMENTS, count++) {
            if (ranges == NULL) continue;
            ranges[count] = (struct tw_engine_range){
                .begin = tensor->offset + done,
                .count = size - done < RANGE_ELEMENTS ? size - done : RANGE_ELEMENTS,
                .has_decay = tensor->has_decay,
                .is_muon = is_muon(engine->run, tensor)};
        }
    }
    return count;
}

uint32_t tw_engine_matrices(const struct tw_run *run, const struct tw_tensor *tensor,
                            struct tw_engine_matrix matrices[3]) {
    const uint32_t width = run->model.width;
    const bool is_qkv = run->model.family == TW_FAMILY_GPT2 && tensor->rows == width &&
                        tensor->cols == 3 * width && strstr(tensor->name, ".attn.") != NULL;
    const uint32_t count = is_qkv ? 3 : 1;
    if (!is_muon(run, tensor)) return 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t cols = tensor->cols / count;
        matrices[i] = (struct tw_engine_matrix){tensor->offset + (uint64_t)i * cols, tensor->rows,
                                                cols, tensor->cols};
    }
    return count;
}

size_t tw_engine_muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
                            enum tw_type type) {
    struct tw_engine_matrix matrices[3];
    size_t most = 0;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        if (tw_engine_matrices(run, &layout->tensors[i], matrices) == 0) continue;
        const size_t bytes = tw_muon_scratch(matrices[0].rows, matrices[0].cols, type);
        if (bytes > most) most = bytes;
    }
    return (most + 63) / 64 * 64;
}

static int by_size(const void *a, const void *b) {
    const struct tw_engine_matrix *x = a, *y = b;
    const uint64_t first = (uint64_t)x->rows * x->cols, second = (uint64_t)y->rows * y->cols;
    return (first < second) - (first > second);
}

static enum tw_status init_muon(struct tw_engine *engine, struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    const struct tw_layout *layout = engine->layout;
    memory->muon_scratch_bytes = tw_engine_muon_bytes(engine->run, layout, memory->model.ops->type);
    if (memory->muon_scratch_bytes == 0) return TW_OK;
    memory->matrices = calloc(3 * (size_t)layout->tensors_count, sizeof(*memory->matrices));
    memory->muon_scratch = aligned_alloc(64, engine->plan.threads * memory->muon_scratch_bytes);
    if (memory->matrices == NULL || memory->muon_scratch == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for Muon's matrices: use train.optimizer = adamw");
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        memory->matrices_count += tw_engine_matrices(engine->run, &layout->tensors[i],
                                                     memory->matrices + memory->matrices_count);
    }
    qsort(memory->matrices, memory->matrices_count, sizeof(*memory->matrices), by_size);
    return TW_OK;
}

enum tw_status tw_engine_optimizer_init(struct tw_engine *engine, struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    const uint64_t count = list_ranges(engine, NULL);
    TW_ASSERT(count <= UINT32_MAX);
    memory->ranges = calloc(count, sizeof(*memory->ranges));
    memory->squares = calloc(count, sizeof(*memory->squares));
    if (memory->ranges == NULL || memory->squares == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for %llu pieces of the optimizer's work",
                       (unsigned long long)count);
    memory->ranges_count = (uint32_t)count;
    (void)list_ranges(engine, memory->ranges);
    return init_muon(engine, err);
}

void tw_engine_optimizer_deinit(struct tw_engine *engine) {
    struct tw_engine_memory *memory = engine->memory;
    free(memory->muon_scratch);
    free(memory->matrices);
    free(memory->squares);
    free(memory->ranges);
}

/* ---- norm and update ----------------------------------------------------------------------- */

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
    tw_thread_pool_run(memory->team, memory->ranges_count, squares_piece, engine);
    for (uint32_t i = 0; i < memory->ranges_count; i++) sum += memory->squares[i];
    return sqrt(sum);
}

static void multiply(void *multiplier, void *y, const void *a, const void *b,
                     const struct tw_matmul *shape) {
    tw_multiply(multiplier, y, a, b, shape);
}

static void muon_piece(const struct update *update, uint32_t piece, uint32_t thread) {
    const struct tw_engine *engine = update->engine;
    const struct tw_engine_memory *memory = engine->memory;
    const struct tw_engine_matrix *matrix = &memory->matrices[piece];
    const struct tw_muon cfg = {.rows = matrix->rows,
                                .cols = matrix->cols,
                                .stride = matrix->stride,
                                .lr = update->adamw.lr,
                                .momentum = update->momentum,
                                .decay = update->decay,
                                .gradient_scale = update->adamw.gradient_scale,
                                .ops = memory->model.ops,
                                .multiply = multiply,
                                .context = memory->model.multipliers[thread]};
    tw_muon_step(engine->theta + matrix->begin, engine->m + matrix->begin,
                 engine->gradient + matrix->begin,
                 memory->muon_scratch + thread * memory->muon_scratch_bytes, &cfg);
}

static void adamw_piece(const struct update *update, uint32_t piece) {
    const struct tw_engine *engine = update->engine;
    const struct tw_engine_range *range = &engine->memory->ranges[piece];
    struct tw_adamw cfg = update->adamw;
    if (range->is_muon) return;
    cfg.decay = range->has_decay ? update->decay : 0.0f;
    engine->memory->model.ops->adamw(engine->theta + range->begin, engine->m + range->begin,
                                     engine->v + range->begin, engine->gradient + range->begin,
                                     range->count, &cfg);
}

static void update_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct update *update = context;
    const uint32_t matrices = update->engine->memory->matrices_count;
    if (piece < matrices) {
        muon_piece(update, piece, thread);
    } else {
        adamw_piece(update, piece - matrices);
    }
}

struct tw_adamw tw_engine_adamw(const struct tw_engine *engine) {
    const double beta1 = engine->run->train.beta1_millionths / 1e6;
    const double beta2 = engine->run->train.beta2_millionths / 1e6;
    const double updates = (double)engine->updates + 1;
    return (struct tw_adamw){.beta1 = (float)beta1,
                             .beta2 = (float)beta2,
                             .eps = ADAMW_EPS,
                             .correction1 = (float)(1.0 - pow(beta1, updates)),
                             .correction2 = (float)(1.0 - pow(beta2, updates))};
}

void tw_engine_update(struct tw_engine *engine, float lr, double norm) {
    const struct tw_run *run = engine->run;
    const double clip = run->train.clip_millionths / 1e6;
    struct update update = {
        .engine = engine,
        .adamw = tw_engine_adamw(engine),
        .decay = (float)(run->train.decay_millionths / 1e6),
        .momentum = (float)(run->train.muon_momentum_millionths / 1e6),
    };
    update.adamw.lr = lr;
    update.adamw.gradient_scale = clip > 0.0 && norm > clip ? (float)(clip / norm) : 1.0f;
    engine->updates++;
    tw_thread_pool_run(engine->memory->team,
                       engine->memory->matrices_count + engine->memory->ranges_count, update_piece,
                       &update);
}
