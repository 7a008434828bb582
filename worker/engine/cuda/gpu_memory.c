/* gpu_memory.c - memory of a device for an engine, its peak rate, and the list of devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rng.h"
#include "worker/engine/cuda/gpu_model.h"
#include "worker/engine/devices.h"
#include "worker/engine/model.h"
#include "worker/engine/plans_folder.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* The activations of a pass lie in one block: a first run of the same code only counts bytes, a
 * second one hands out addresses. */

enum {
    ALIGN = 256,
    /* Logits in memory at a time: 1 / LOGITS_SHARE of the memory limit, within bounds, but at least
     * LOGITS_ROWS rows. More is better, because each chunk of logits reads and writes the head's
     * gradient once. */
    LOGITS_BYTES_LEAST = 512 << 20,
    LOGITS_SHARE = 32,
    LOGITS_ROWS = 128,
    CHUNK_ROWS = 256, /* chunks are multiples of this many rows, so that GEMMs have whole tiles */
    LOGITS_PAD = 64,  /* row strides are multiples of this many elements, for fast GEMMs */
};

/* Hands out aligned pieces of a block. Without a block it only counts bytes. */
struct carver {
    uint8_t *block;
    uint64_t used;
};

static void *carve(struct carver *carver, uint64_t count, uint64_t size) {
    void *piece = carver->block == NULL ? NULL : carver->block + carver->used;
    carver->used += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint64_t rows_max(const struct tw_gpu *gpu) {
    return (uint64_t)gpu->sequences * gpu->map.shape.context;
}

static void carve_slot(struct carver *carver, struct tw_gpu_slot *slot, const struct tw_gpu *gpu) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    const uint64_t rows = rows_max(gpu), size = tw_type_bytes(gpu->map.config.type);
    *slot = (struct tw_gpu_slot){.qkv = carve(carver, rows * shape->qkv_width, size)};
    if (shape->has_qk_norm) {
        slot->qk = carve(carver, rows * (shape->q_width + shape->kv_width), size);
        slot->qk_stats =
            carve(carver, rows * 2 * (shape->heads + (uint64_t)shape->kv_heads), sizeof(float));
    }
    slot->attention = carve(carver, rows * shape->q_width, size);
    slot->middle = carve(carver, rows * shape->width, size);
    slot->up = carve(carver, rows * shape->up_width, size);
    slot->stats1 = carve(carver, rows * 2, sizeof(float));
    slot->stats2 = carve(carver, rows * 2, sizeof(float));
    slot->lse = carve(carver, rows * shape->heads, sizeof(float));
    slot->norm1 = slot->norm2 = gpu->arrays.narrow;
    slot->act = gpu->arrays.wide;
    if (!gpu->keeps_outputs) return;
    slot->norm1 = carve(carver, rows * shape->width, size);
    slot->norm2 = carve(carver, rows * shape->width, size);
    slot->act = carve(carver, rows * shape->ffn, size);
}

static void carve_slots(struct carver *carver, struct tw_gpu *gpu) {
    const uint64_t rows = rows_max(gpu), size = tw_type_bytes(gpu->map.config.type);
    struct tw_gpu_slot slot = {.qkv = NULL};
    for (uint32_t i = 0; i < gpu->slots_count; i++) {
        if (i == 0 || !gpu->keeps_attention) {
            carve_slot(carver, &slot, gpu);
        } else {
            slot.attention = carve(carver, rows * gpu->map.shape.q_width, size);
            slot.lse = carve(carver, rows * gpu->map.shape.heads, sizeof(float));
        }
        if (gpu->arrays.slots != NULL) gpu->arrays.slots[i] = slot;
    }
}

static void carve_inputs(struct carver *carver, struct tw_gpu *gpu) {
    struct tw_gpu_inputs *inputs = &gpu->arrays.inputs;
    const bool is_masked = gpu->map.config.run->data.documents == TW_DOCUMENTS_MASKED;
    const uint64_t rows = rows_max(gpu), tokens = rows + gpu->sequences;
    const uint64_t words = tokens + rows * (1u + gpu->is_learning + is_masked);
    /* The inputs are contiguous, so that one copy transfers all of them. The inputs that some
     * passes do not have come last. */
    inputs->tokens = carve(carver, words, sizeof(uint32_t));
    gpu->arrays.input_words = (uint32_t)words;
}

/* Returns the largest scratch of any operation of a pass. Operations use it one after another. */
static uint64_t scratch_bytes(const struct tw_gpu *gpu) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    const uint32_t rows = (uint32_t)rows_max(gpu);
    const struct tw_gpu_pass pass = {.gpu = (struct tw_gpu *)(uintptr_t)gpu,
                                     .sequences = gpu->sequences,
                                     .context = shape->context,
                                     .rows = rows};
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &gpu->map.norm_f, rows);
    const struct tw_cuda_attention attention = tw_gpu_attention_of(&pass);
    const struct tw_cuda_bias bias = {
        .type = gpu->map.config.type, .rows = rows, .n = larger(shape->qkv_width, shape->up_width)};
    const struct tw_embedding embedding = {
        .rows = rows, .context = shape->context, .width = shape->width};
    size_t most = TW_CUDA_SUM_SCRATCH;
    const size_t all[] = {
        tw_cuda_norm_backward_scratch(&norm), tw_cuda_attention_scratch(&attention),
        tw_cuda_bias_backward_scratch(&bias), tw_cuda_embedding_backward_scratch(&embedding)};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) most = all[i] > most ? all[i] : most;
    for (uint32_t which = 0; which < 2 && shape->has_qk_norm; which++) {
        const struct tw_cuda_norm heads =
            tw_gpu_head_norm_of(gpu, &gpu->map.layers[0], rows, which);
        const size_t bytes = tw_cuda_norm_backward_scratch(&heads);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void carve_activations(struct carver *carver, struct tw_gpu *gpu) {
    struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const uint64_t rows = rows_max(gpu), size = tw_type_bytes(gpu->map.config.type);
    const uint64_t angles = (uint64_t)shape->context * (shape->head_size / 2);
    arrays->narrow = carve(carver, rows * larger(shape->width, shape->q_width), size);
    arrays->wide = carve(carver, rows * shape->ffn, size);
    carve_slots(carver, gpu);
    for (uint32_t i = 0; i <= shape->layers; i++) {
        /* Without backward passes, a layer's output may overwrite its input. */
        const bool is_own = i == 0 || gpu->is_learning;
        void *x = is_own ? carve(carver, rows * shape->width, size) : NULL;
        if (arrays->x != NULL) arrays->x[i] = is_own ? x : arrays->x[0];
    }
    arrays->norm = carve(carver, rows * shape->width, size);
    arrays->stats_f = carve(carver, rows * 2, sizeof(float));
    arrays->losses = carve(carver, rows, sizeof(float));
    if (shape->has_rope) {
        arrays->cos = carve(carver, angles, sizeof(float));
        arrays->sin = carve(carver, angles, sizeof(float));
    }
    carve_inputs(carver, gpu);
    if (gpu->is_learning) {
        arrays->stream = carve(carver, rows * shape->width, size);
        arrays->broad_bytes = rows * larger(shape->up_width, shape->qkv_width) * size;
        arrays->broad = carve(carver, arrays->broad_bytes, 1);
    }
    arrays->scratch = carve(carver, gpu->is_learning ? scratch_bytes(gpu) : TW_CUDA_SUM_SCRATCH, 1);
}

static void carve_logits(struct carver *carver, struct tw_gpu *gpu) {
    struct tw_gpu_arrays *arrays = &gpu->arrays;
    const uint64_t rows = rows_max(gpu);
    const uint64_t stride =
        ((uint64_t)gpu->map.shape.vocab + LOGITS_PAD - 1) / LOGITS_PAD * LOGITS_PAD;
    uint64_t most = gpu->logits_most / (stride * sizeof(float));
    if (most < LOGITS_ROWS) most = LOGITS_ROWS;
    arrays->logits_stride = (uint32_t)stride;
    arrays->logits_bytes = (most < rows ? most : rows) * stride * sizeof(float);
    arrays->logits = carve(carver, arrays->logits_bytes, 1);
}

static struct tw_model_bytes carve_all(struct carver *carver, struct tw_gpu *gpu) {
    struct tw_model_bytes bytes = {0};
    carve_activations(carver, gpu);
    bytes.activations = carver->used;
    carve_logits(carver, gpu);
    bytes.logits = carver->used - bytes.activations;
    return bytes;
}

uint32_t tw_gpu_head_rows(const struct tw_gpu *gpu, enum tw_type type) {
    const uint64_t row = (uint64_t)gpu->arrays.logits_stride * tw_type_bytes(type);
    return (uint32_t)(gpu->arrays.logits_bytes / row);
}

uint32_t tw_gpu_head_chunk(const struct tw_gpu *gpu, enum tw_type type, uint32_t rows) {
    const uint32_t most = tw_gpu_head_rows(gpu, type), chunks = (rows + most - 1) / most;
    if (chunks <= 1) return rows;
    const uint32_t even = (rows + chunks - 1) / chunks;
    const uint32_t whole = (even + CHUNK_ROWS - 1) / CHUNK_ROWS * CHUNK_ROWS;
    return whole <= most ? whole : most;
}

void tw_gpu_arrays_measure(struct tw_model_bytes *bytes, const struct tw_gpu *gpu) {
    struct tw_gpu counted = *gpu;
    struct carver carver = {.block = NULL};
    counted.arrays = (struct tw_gpu_arrays){.slots = NULL};
    *bytes = carve_all(&carver, &counted);
}

/* ---- life ------------------------------------------------------------------------------------ */

static uint64_t logits_most(uint64_t limit) {
    const uint64_t share = limit / LOGITS_SHARE, least = LOGITS_BYTES_LEAST, most = 4 * least;
    return share < least ? least : share > most ? most : share;
}

enum tw_status tw_gpu_map_open(struct tw_gpu *gpu, const struct tw_engine_config *config,
                               const struct tw_engine_plan *plan, struct tw_error *err) {
    gpu->map = (struct tw_model){
        .config = {.run = config->run, .layout = config->layout, .type = plan->type},
        .shape = tw_model_shape_of(config->run)};
    gpu->is_learning = !config->is_inference;
    gpu->logits_most = logits_most(plan->limit);
    gpu->sequences = plan->micro_batch;
    gpu->keeps_attention = plan->is_recomputed && plan->keeps_attention;
    gpu->keeps_outputs = plan->keeps_outputs;
    const bool is_one = !gpu->is_learning || (plan->is_recomputed && !plan->keeps_attention);
    gpu->slots_count = is_one ? 1 : gpu->map.shape.layers;
    gpu->map.layers = calloc(gpu->map.shape.layers, sizeof(*gpu->map.layers));
    if (gpu->map.layers == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of layers");
    tw_model_find(&gpu->map);
    return TW_OK;
}

void tw_gpu_map_close(struct tw_gpu *gpu) {
    free(gpu->map.layers);
    gpu->map.layers = NULL;
}

/* Computes the rotation tables on the host, with the CPU's function, and copies them to the device.
 */
static enum tw_status put_angles(struct tw_gpu *gpu, struct tw_error *err) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    const size_t count = (size_t)shape->context * (shape->head_size / 2);
    if (!shape->has_rope) return TW_OK;
    float *angles = malloc(2 * count * sizeof(float));
    if (angles == NULL) return tw_fail(err, TW_NOMEM, "no memory for the angles of %zu", count);
    gpu->map.cos = angles;
    gpu->map.sin = angles + count;
    tw_model_fill_rotation(&gpu->map);
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->arrays.cos, angles, count * sizeof(float));
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->arrays.sin, angles + count,
                    count * sizeof(float));
    const enum tw_status status = tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
    gpu->map.cos = gpu->map.sin = NULL;
    free(angles);
    return status;
}

enum tw_status tw_gpu_arrays_open(struct tw_gpu *gpu, struct tw_error *err) {
    struct tw_gpu_arrays *arrays = &gpu->arrays;
    struct tw_model_bytes bytes;
    tw_gpu_arrays_measure(&bytes, gpu);
    arrays->slots = calloc(gpu->slots_count, sizeof(*arrays->slots));
    arrays->x = calloc((size_t)gpu->map.shape.layers + 1, sizeof(*arrays->x));
    if (arrays->slots == NULL || arrays->x == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for a list of layers");
    const uint64_t total = bytes.activations + bytes.logits;
    TW_TRY(tw_cuda_alloc(gpu->cuda, &gpu->block, total, "activations", err));
    struct carver carver = {.block = gpu->block};
    (void)carve_all(&carver, gpu);
    TW_ASSERT(carver.used <= total);
    return put_angles(gpu, err);
}

void tw_gpu_arrays_close(struct tw_gpu *gpu) {
    free(gpu->arrays.x);
    free(gpu->arrays.slots);
    tw_cuda_free(gpu->cuda, gpu->block);
}

/* ---- peak rate ------------------------------------------------------------------------------- */

enum { SIZE_FIRST = 256, SIZE_MOST = 8192, TRIES = 5, PATTERN = 32768 };
static const double LONG_S = 0.002;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fills the block with numbers of all signs and mantissas, none far from 1. With zeros a card draws
 * less power and would reach a rate that no training reaches. */
static enum tw_status fill_block(struct tw_cuda *cuda, uint8_t *block, size_t bytes,
                                 enum tw_type type, struct tw_error *err) {
    static uint32_t pattern[PATTERN];
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    for (uint32_t i = 0; i < PATTERN; i++) {
        const uint32_t bits = (uint32_t)tw_rng_next(&rng);
        pattern[i] =
            type == TW_BF16 ? (bits & 0x80ff80ff) | 0x3f003f00 : (bits & 0x80ffffff) | 0x3f000000;
    }
    size_t done = bytes < sizeof(pattern) ? bytes : sizeof(pattern);
    tw_cuda_copy_in(cuda, TW_CUDA_COMPUTE, block, pattern, done);
    while (done < bytes) {
        const size_t more = bytes - done < done ? bytes - done : done;
        tw_cuda_copy(cuda, TW_CUDA_COMPUTE, block + done, block, more);
        done += more;
    }
    return tw_cuda_finish(cuda, TW_CUDA_COMPUTE, err);
}

/* Times a GEMM of this size. Allocates memory for this size only, because three matrices of
 * SIZE_MOST could use memory that a training needs. */
static enum tw_status time_products(struct tw_cuda *cuda, struct tw_cuda_products *products,
                                    enum tw_type type, uint32_t size, double *best_s,
                                    struct tw_error *err) {
    const size_t bytes = (size_t)size * size * tw_type_bytes(type);
    void *block = NULL;
    TW_TRY(tw_cuda_alloc(cuda, &block, 3 * bytes, "timing products", err));
    const struct tw_cuda_gemm gemm = {
        .shape =
            {.m = size, .k = size, .n = size, .form = TW_MATMUL_NN, .type = type, .y_type = type},
        .y = block,
        .a = (uint8_t *)block + bytes,
        .b = (uint8_t *)block + 2 * bytes};
    enum tw_status status = fill_block(cuda, block, 3 * bytes, type, err);
    for (uint32_t i = 0; i < TRIES && status == TW_OK; i++) {
        const double begin_s = now_s();
        tw_cuda_gemm(products, tw_cuda_stream(cuda, TW_CUDA_COMPUTE), &gemm);
        status = tw_cuda_finish(cuda, TW_CUDA_COMPUTE, err);
        const double took_s = now_s() - begin_s;
        if (i == 0 || took_s < *best_s) *best_s = took_s; /* the first try includes autotuning */
        if (took_s > 100 * LONG_S) break;
    }
    tw_cuda_free(cuda, block);
    return status;
}

static enum tw_status measure_sizes(struct tw_cuda *cuda, const struct tw_engine_plan *plan,
                                    double *flops_s, struct tw_error *err) {
    struct tw_cuda_products *products = NULL;
    TW_TRY(tw_cuda_products_open(&products, cuda, NULL, err));
    enum tw_status status = TW_OK;
    *flops_s = 0;
    for (uint32_t size = SIZE_FIRST; size <= SIZE_MOST && status == TW_OK; size *= 2) {
        double best_s = 0;
        status = time_products(cuda, products, plan->type, size, &best_s, err);
        if (status == TW_OK) *flops_s = 2.0 * size * size * size / (best_s + 1e-9);
        if (best_s > LONG_S) break;
    }
    /* If memory is too small for the next size, the result for the smaller sizes is used. */
    if (status == TW_NOMEM && *flops_s > 0) status = TW_OK;
    tw_cuda_products_close(products);
    return status;
}

enum tw_status tw_gpu_peak(const struct tw_engine_plan *plan, double *flops_s,
                           struct tw_error *err) {
    struct tw_cuda *cuda = NULL;
    TW_TRY(tw_cuda_open(&cuda, (int)plan->ordinal, 0, err));
    const enum tw_status status = measure_sizes(cuda, plan, flops_s, err);
    tw_cuda_close(cuda);
    return status;
}

/* ---- devices --------------------------------------------------------------------------------- */

void tw_devices_look(struct tw_devices *devices) {
    struct tw_error err = {.message = ""};
    tw_plans_folder_keep_code();
    const int count = tw_cuda_count(&err);
    memset(devices, 0, sizeof(*devices));
    (void)snprintf(devices->why_no_gpu, sizeof(devices->why_no_gpu), "%s", err.message);
    bool is_usable = false;
    for (int i = 0; i < count && i < TW_CUDA_DEVICES_MAX; i++) {
        struct tw_cuda_info *const gpu = &devices->gpus[i];
        if (tw_cuda_info(gpu, i, &err) != TW_OK) {
            *gpu = (struct tw_cuda_info){.ordinal = i};
            (void)snprintf(gpu->reason, sizeof(gpu->reason), "%.159s", err.message);
        }
        if (!is_usable && gpu->reason[0] != '\0') {
            (void)snprintf(devices->why_no_gpu, sizeof(devices->why_no_gpu), "%s", gpu->reason);
        }
        is_usable |= gpu->reason[0] == '\0';
        devices->gpus_count++;
    }
    if (is_usable) devices->why_no_gpu[0] = '\0';
}
