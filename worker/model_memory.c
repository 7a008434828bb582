/* model_memory.c - where a model's tensors and activations lie: one block, measured, then carved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "worker/model.h"

enum {
    ALIGN = 64,
    HUGE_PAGE_BYTES = 2 << 20,
    LOGITS_MAX = 1 << 20, /* floats held at a time */
    PASS_BYTES =
        16 * 1024 * 1024, /* activations of one pass, if a sequence per thread is not more */
};

/* Hands out aligned pieces of a block; without a block it only counts. */
struct carver {
    uint8_t *block;
    uint64_t used;
};

static void *carve(struct carver *carver, uint64_t count, uint64_t size) {
    void *piece = carver->block == NULL ? NULL : carver->block + carver->used;
    carver->used += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

static float *carve_floats(struct carver *carver, uint64_t count) {
    return carve(carver, count, sizeof(float));
}

static void carve_layer(struct carver *carver, struct tw_model_activations *a, uint64_t rows,
                        const struct tw_model *model) {
    const uint64_t width = model->width;
    struct tw_model_activations unused;
    if (a == NULL) a = &unused;
    a->input = carve_floats(carver, rows * width);
    a->norm1 = carve_floats(carver, rows * width);
    a->mean1 = carve_floats(carver, rows);
    a->rstd1 = carve_floats(carver, rows);
    a->qkv = carve_floats(carver, rows * 3 * width);
    a->attention = carve_floats(carver, rows * width);
    a->lse = carve_floats(carver, rows * model->heads);
    a->middle = carve_floats(carver, rows * width);
    a->norm2 = carve_floats(carver, rows * width);
    a->mean2 = carve_floats(carver, rows);
    a->rstd2 = carve_floats(carver, rows);
    a->up = carve_floats(carver, rows * 4 * width);
    a->gelu = carve_floats(carver, rows * 4 * width);
}

static void carve_model(struct carver *carver, struct tw_model *model) {
    const uint64_t rows = (uint64_t)model->sequences_max * model->context, width = model->width;
    model->layers = carve(carver, model->layers_count, sizeof(*model->layers));
    model->activations = carve(carver, model->layers_count, sizeof(*model->activations));
    for (uint32_t l = 0; l < model->layers_count; l++) {
        carve_layer(carver, model->activations == NULL ? NULL : &model->activations[l], rows,
                    model);
    }
    model->output = carve_floats(carver, rows * width);
    model->norm = carve_floats(carver, rows * width);
    model->mean = carve_floats(carver, rows);
    model->rstd = carve_floats(carver, rows);
    model->logits = carve_floats(carver, (uint64_t)model->head_rows * model->vocab);
    const struct tw_attention one = {1, model->context, model->heads, model->width};
    model->scratch_count = (tw_attention_scratch(&one) + 15u) / 16u * 16u;
    model->scratch = carve_floats(carver, model->threads * model->scratch_count);
    model->dx = carve_floats(carver, rows * width);
    model->dnorm = carve_floats(carver, rows * width);
    model->dwide = carve_floats(carver, rows * 4 * width);
    model->targets = carve(carver, rows, sizeof(*model->targets));
}

static void set_sizes(struct tw_model *model, const struct tw_run *run, uint32_t threads) {
    *model = (struct tw_model){.threads = threads,
                               .layers_count = run->model.layers,
                               .width = run->model.width,
                               .heads = run->model.heads,
                               .context = run->model.context,
                               .vocab = run->model.vocab};
    struct carver one = {.block = NULL, .used = 0};
    carve_layer(&one, NULL, run->model.context, model);
    const uint64_t fit = PASS_BYTES / (one.used * run->model.layers);
    const uint64_t most = fit < threads ? threads : fit; /* a sequence for each thread */
    model->sequences_max = most < run->train.batch ? (uint32_t)most : run->train.batch;
    const uint64_t rows = (uint64_t)model->sequences_max * model->context;
    uint64_t head_rows = model->vocab >= LOGITS_MAX / 16 ? 16 : LOGITS_MAX / model->vocab;
    if (head_rows > TW_MODEL_HEAD_ROWS_MAX) head_rows = TW_MODEL_HEAD_ROWS_MAX;
    model->head_rows = (uint32_t)(head_rows < rows ? head_rows : rows);
}

uint64_t tw_model_bytes(const struct tw_run *run, uint32_t threads) {
    struct tw_model model;
    struct carver carver = {.block = NULL, .used = 0};
    set_sizes(&model, run, threads);
    carve_model(&carver, &model);
    return carver.used;
}

static uint64_t offset_of(const struct tw_layout *layout, const char *name) {
    const struct tw_tensor *tensor = tw_layout_find(layout, name);
    TW_ASSERT(tensor != NULL);
    return tensor->offset;
}

/* The pair `prefix`.weight, `prefix`.bias. */
static struct tw_model_pair pair_of(const struct tw_layout *layout, const char *prefix, uint32_t in,
                                    uint32_t out) {
    char name[sizeof(layout->tensors[0].name)];
    struct tw_model_pair pair = {.in = in, .out = out};
    (void)snprintf(name, sizeof(name), "%s.weight", prefix);
    pair.weight = offset_of(layout, name);
    (void)snprintf(name, sizeof(name), "%s.bias", prefix);
    pair.bias = offset_of(layout, name);
    return pair;
}

static void find_tensors(struct tw_model *model, const struct tw_layout *layout) {
    const uint32_t width = model->width;
    model->wte = offset_of(layout, "wte.weight");
    model->wpe = offset_of(layout, "wpe.weight");
    model->norm_pair = pair_of(layout, "ln_f", width, width);
    for (uint32_t l = 0; l < model->layers_count; l++) {
        struct tw_model_layer *layer = &model->layers[l];
        const struct {
            const char *name;
            struct tw_model_pair *pair;
            uint32_t in, out;
        } pairs[] = {
            {"ln_1", &layer->norm1, width, width},
            {"attn.c_attn", &layer->qkv, width, 3 * width},
            {"attn.c_proj", &layer->proj, width, width},
            {"ln_2", &layer->norm2, width, width},
            {"mlp.c_fc", &layer->up, width, 4 * width},
            {"mlp.c_proj", &layer->down, 4 * width, width},
        };
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof(prefix), "h.%u.%s", l, pairs[i].name);
            *pairs[i].pair = pair_of(layout, prefix, pairs[i].in, pairs[i].out);
        }
    }
}

enum tw_status tw_model_init(struct tw_model *model, const struct tw_run *run,
                             const struct tw_layout *layout, uint32_t threads,
                             struct tw_error *err) {
    set_sizes(model, run, threads);
    struct carver carver = {.block = NULL, .used = 0};
    carve_model(&carver, model);
    const uint64_t bytes = (carver.used + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    uint8_t *block = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (block == NULL) {
        return tw_fail(err, TW_NOMEM,
                       "the activations of this model need %.0f MiB of memory and the system "
                       "refused: choose a smaller batch, context or model",
                       (double)bytes / 1048576.0);
    }
    (void)madvise(block, bytes, MADV_HUGEPAGE); /* a hint: fewer page walks where it is allowed */
    carver = (struct carver){.block = block, .used = 0};
    carve_model(&carver, model);
    model->memory = block;
    find_tensors(model, layout);
    return TW_OK;
}

void tw_model_deinit(struct tw_model *model) {
    free(model->memory);
    model->memory = NULL;
}
