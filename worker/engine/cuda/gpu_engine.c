/* gpu_engine.c - an engine on a device: plan of its memory, update of its parameters, steps. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/units.h"
#include "worker/engine/cuda/gpu_model.h"
#include "worker/engine/plans_folder.h"

/* ---- update ---------------------------------------------------------------------------------- */

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

/* Returns the bytes of device memory that Muon needs. */
static uint64_t muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
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

static enum tw_status ranges_open(struct tw_gpu *gpu, struct tw_error *err) {
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

static void ranges_close(struct tw_gpu *gpu) {
    if (gpu->ranges == NULL) return;
    tw_cuda_free(gpu->cuda, gpu->ranges->muon_scratch);
    free(gpu->ranges->muon);
    free(gpu->ranges->adamw);
    free(gpu->ranges);
}

/* Queues the end of a step whose gradient is complete: gradient norm, decision to skip, update. */
static void gpu_update(struct tw_gpu *gpu) {
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

/* ---- plan ------------------------------------------------------------------------------------ */

enum { PASS_ROWS = 32768 }; /* rows per pass, unless configured; larger passes are no faster */

/* Finds the memory limit: as configured, or the free memory of the opened device. */
static enum tw_status find_limit(uint64_t *limit, const struct tw_engine_config *config,
                                 int ordinal, struct tw_error *err) {
    struct tw_cuda *cuda = NULL;
    *limit = config->compute.memory_bytes;
    if (*limit > 0) return TW_OK;
    TW_TRY(tw_cuda_open(&cuda, ordinal, 0, err));
    (void)tw_cuda_memory(cuda, limit);
    tw_cuda_close(cuda);
    return TW_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static enum tw_status measure(struct tw_model_bytes *bytes, const struct tw_engine_plan *plan,
                              const struct tw_engine_config *config, struct tw_error *err) {
    struct tw_gpu gpu = {.engine = NULL};
    TW_TRY(tw_gpu_map_open(&gpu, config, plan, err));
    tw_gpu_arrays_measure(bytes, &gpu);
    bytes->weights = plan->type == TW_BF16 ? config->layout->elements * sizeof(uint16_t) : 0;
    bytes->weights += TW_GPU_WORKSPACE + sizeof(struct tw_cuda_step);
    tw_gpu_map_close(&gpu);
    return TW_OK;
}

/* Chooses the micro-batch for the given choice of recompute, as fit_micro_batch() in engine.c
 * does. */
static enum tw_status fit_micro_batch(struct tw_engine_plan *plan,
                                      const struct tw_engine_config *config, struct tw_error *err) {
    const uint32_t batch = tw_engine_plan_sequences(config), asked = config->compute.micro_batch;
    struct tw_model_bytes one, two, bytes;
    plan->micro_batch = 1;
    TW_TRY(measure(&one, plan, config, err));
    plan->micro_batch = 2;
    TW_TRY(measure(&two, plan, config, err));
    const uint64_t each = two.activations - one.activations;
    uint64_t most = asked > 0 ? asked : PASS_ROWS / config->run->model.context;
    for (;;) {
        plan->micro_batch = tw_engine_plan_even(batch, most);
        TW_TRY(measure(&bytes, plan, config, err));
        tw_engine_plan_sum(plan, &bytes);
        if (plan->total <= plan->limit || plan->micro_batch == 1 || asked > 0) return TW_OK;
        const uint64_t over = (plan->total - plan->limit + each - 1) / each;
        most = over < plan->micro_batch ? plan->micro_batch - over : 1;
    }
}

/* Chooses the micro-batch for a plan with recompute. At long contexts, attention is the most
 * expensive part of a layer. Its outputs are therefore kept, unless passes would become smaller. */
static enum tw_status fit_recomputed(struct tw_engine_plan *plan,
                                     const struct tw_engine_config *config, struct tw_error *err) {
    plan->is_recomputed = true;
    plan->keeps_attention = false;
    TW_TRY(fit_micro_batch(plan, config, err));
    struct tw_engine_plan keeping = *plan;
    keeping.keeps_attention = true;
    TW_TRY(fit_micro_batch(&keeping, config, err));
    if (keeping.total <= keeping.limit && keeping.micro_batch == plan->micro_batch) *plan = keeping;
    return TW_OK;
}

/* Plans to keep the outputs of norms and activation functions too, if they fit without a smaller
 * micro-batch. */
static enum tw_status fit_outputs(struct tw_engine_plan *plan,
                                  const struct tw_engine_config *config, struct tw_error *err) {
    struct tw_engine_plan keeping = *plan;
    keeping.keeps_outputs = true;
    TW_TRY(fit_micro_batch(&keeping, config, err));
    if (keeping.total <= keeping.limit && keeping.micro_batch == plan->micro_batch) *plan = keeping;
    return TW_OK;
}

/* Page-locked memory is unavailable to all other processes, so at most half of the available memory
 * is locked. */
static enum tw_status check_mirrors(struct tw_engine_plan *plan, struct tw_error *err) {
    char mirrors[TW_UNITS_BYTES], there[TW_UNITS_BYTES];
    const uint64_t available = tw_machine_memory();
    plan->is_pinned = plan->mirrors > 0 && plan->mirrors <= available / 2;
    if (plan->mirrors <= available) return TW_OK;
    return tw_fail(err, TW_NOMEM,
                   "copies of parameters and optimizer on the host need %s of memory besides the "
                   "device's and there are %s: choose a smaller model",
                   tw_units_bytes(mirrors, (double)plan->mirrors),
                   tw_units_bytes(there, (double)available));
}

enum tw_status tw_gpu_plan(struct tw_engine_plan *plan, const struct tw_engine_config *config,
                           int ordinal, struct tw_error *err) {
    const uint64_t array = config->layout->elements * sizeof(float);
    const bool is_learning = !config->is_inference;
    struct tw_cuda_info info;
    /* Every usable device supports bf16 GEMMs, so AUTO is bf16. */
    const enum tw_type type = config->compute.compute == TW_COMPUTE_FP32 ? TW_F32 : TW_BF16;
    uint64_t limit = 0;
    TW_ASSERT(config->is_inference || !config->has_cache);
    TW_TRY(tw_cuda_info(&info, ordinal, err));
    TW_TRY(tw_cuda_products_look(err));
    TW_TRY(find_limit(&limit, config, ordinal, err));
    *plan = (struct tw_engine_plan){
        .parameters = array,
        .gradients = is_learning ? array : 0,
        .optimizer = is_learning ? 2 * array + muon_bytes(config->run, config->layout, type) : 0,
        .cache = config->has_cache ? tw_model_cache_bytes(config->run, type) : 0,
        .sync =
            config->sync_bytes == 0 ? 0 : config->sync_bytes + tw_gpu_vectors_bytes(config->layout),
        .limit = limit,
        .threads = 1,
        .type = type,
        .is_recomputed = is_learning && config->compute.recompute == TW_RECOMPUTE_ON,
        .is_on_gpu = true,
        .mirrors =
            (config->theta == NULL ? array : 0) +
            (is_learning ? (uint64_t)((config->m == NULL) + (config->v == NULL)) * array : 0),
        .ordinal = (uint32_t)ordinal,
    };
    (void)snprintf(plan->device, sizeof(plan->device), "%s", info.name);
    TW_TRY(plan->is_recomputed ? fit_recomputed(plan, config, err)
                               : fit_micro_batch(plan, config, err));
    if (plan->total > plan->limit && is_learning && config->compute.recompute == TW_RECOMPUTE_AUTO)
        TW_TRY(fit_recomputed(plan, config, err));
    if (is_learning && !plan->is_recomputed) TW_TRY(fit_outputs(plan, config, err));
    if (plan->total > plan->limit) return tw_engine_plan_refuse(plan, is_learning, err);
    return check_mirrors(plan, err);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum tw_status open_array(struct tw_gpu *gpu, void **array, uint64_t element_bytes,
                                 const char *what, struct tw_error *err) {
    const uint64_t bytes = gpu->engine->layout->elements * element_bytes;
    TW_TRY(tw_cuda_alloc(gpu->cuda, array, bytes, what, err));
    tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, *array, bytes);
    return TW_OK;
}

static enum tw_status open_floats(struct tw_gpu *gpu, float **array, const char *what,
                                  struct tw_error *err) {
    void *floats = NULL;
    const enum tw_status status = open_array(gpu, &floats, sizeof(float), what, err);
    *array = floats;
    return status;
}

static enum tw_status open_arrays(struct tw_gpu *gpu, struct tw_error *err) {
    void *copy = NULL, *step = NULL, *host = NULL;
    TW_TRY(open_floats(gpu, &gpu->theta, "parameters", err));
    gpu->params = gpu->theta;
    if (gpu->map.config.type == TW_BF16) {
        TW_TRY(open_array(gpu, &copy, sizeof(uint16_t), "working weights", err));
        gpu->copy = copy;
    }
    TW_TRY(tw_cuda_alloc(gpu->cuda, &step, sizeof(*gpu->step), "a step's numbers", err));
    gpu->step = step;
    tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, gpu->step, sizeof(*gpu->step));
    TW_TRY(tw_cuda_host_alloc(gpu->cuda, &host, sizeof(*gpu->step_host), "a step's numbers", err));
    gpu->step_host = host;
    if (!gpu->is_learning) return TW_OK;
    TW_TRY(open_floats(gpu, &gpu->gradient, "gradient", err));
    TW_TRY(open_floats(gpu, &gpu->m, "optimizer", err));
    TW_TRY(open_floats(gpu, &gpu->v, "optimizer", err));
    return ranges_open(gpu, err);
}

/* Page-locks the mirrors. If the system refuses, copies are only slower. */
static void pin_mirrors(struct tw_gpu *gpu) {
    const struct tw_engine *engine = gpu->engine;
    if (!engine->plan.is_pinned) return;
    void *const mirrors = engine->memory->owned;
    if (tw_cuda_host_pin(gpu->cuda, mirrors, engine->plan.mirrors)) gpu->pinned = mirrors;
}

static enum tw_status open_all(struct tw_gpu *gpu, const struct tw_engine_config *config,
                               struct tw_error *err) {
    const struct tw_engine_plan *plan = &gpu->engine->plan;
    char plans[PATH_MAX];
    TW_TRY(tw_cuda_open(&gpu->cuda, (int)plan->ordinal, plan->limit, err));
    gpu->queue = tw_cuda_stream(gpu->cuda, TW_CUDA_COMPUTE);
    gpu->has_plans = tw_plans_folder(plans, sizeof(plans));
    TW_TRY(tw_cuda_products_open(&gpu->products, gpu->cuda, gpu->has_plans ? plans : NULL, err));
    TW_TRY(tw_gpu_map_open(gpu, config, plan, err));
    TW_TRY(open_arrays(gpu, err));
    TW_TRY(tw_gpu_arrays_open(gpu, err));
    TW_TRY(tw_gpu_inputs_open(gpu, err));
    pin_mirrors(gpu);
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

enum tw_status tw_gpu_create(struct tw_gpu **gpu_out, const struct tw_engine_config *config,
                             struct tw_engine *engine, struct tw_error *err) {
    struct tw_gpu *gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) return tw_fail(err, TW_NOMEM, "no memory for an engine on a device");
    gpu->engine = engine;
    const enum tw_status status = open_all(gpu, config, err);
    if (status != TW_OK) {
        tw_gpu_destroy(gpu);
        return status;
    }
    *gpu_out = gpu;
    return TW_OK;
}

void tw_gpu_destroy(struct tw_gpu *gpu) {
    if (gpu == NULL) return;
    if (gpu->cuda != NULL) {
        for (uint32_t i = 0; i < TW_GPU_GRAPHS; i++)
            if (gpu->graphs[i].graph != NULL) tw_cuda_graph_free(gpu->cuda, gpu->graphs[i].graph);
        tw_gpu_vectors_close(gpu);
        tw_gpu_inputs_close(gpu);
        tw_gpu_arrays_close(gpu);
        ranges_close(gpu);
        void *const owned[] = {gpu->v, gpu->m, gpu->gradient, gpu->step, gpu->copy, gpu->theta};
        for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
            tw_cuda_free(gpu->cuda, owned[i]);
        tw_cuda_host_free(gpu->cuda, gpu->step_host);
        tw_cuda_host_unpin(gpu->cuda, gpu->pinned);
        tw_cuda_products_close(gpu->products);
    }
    tw_gpu_map_close(gpu);
    tw_cuda_close(gpu->cuda);
    free(gpu);
}

/* ---- mirrors --------------------------------------------------------------------------------- */

/* Returns the device array for one bit of enum tw_engine_array, and stores its host mirror in
 * *mirror. */
static float *array_of(const struct tw_gpu *gpu, uint32_t which, float **mirror) {
    const struct tw_engine *engine = gpu->engine;
    switch (which) {
    case TW_ENGINE_THETA: *mirror = engine->theta; return gpu->theta;
    case TW_ENGINE_M: *mirror = engine->m; return gpu->m;
    case TW_ENGINE_V: *mirror = engine->v; return gpu->v;
    default: *mirror = engine->gradient; return gpu->gradient;
    }
}

enum tw_status tw_gpu_pull(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    /* Without learning, theta never changes on the device, so there is nothing to copy. Its memory
     * may even hold other parameters. */
    if (!gpu->is_learning) return TW_OK;
    for (uint32_t which = 1; which <= TW_ENGINE_GRADIENT; which *= 2) {
        float *mirror;
        const float *array = array_of(gpu, which, &mirror);
        if ((arrays & which) == 0) continue;
        tw_cuda_copy_out(gpu->cuda, TW_CUDA_COMPUTE, mirror + begin, array + begin,
                         n * sizeof(float));
    }
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

void tw_gpu_written(struct tw_gpu *gpu, uint64_t begin, uint64_t n) {
    if (!gpu->is_copied || gpu->params != gpu->theta)
        return; /* theta has no current bf16 copy; it is made on next use */
    tw_cuda_from_f32(gpu->queue, TW_BF16, gpu->copy + begin, gpu->theta + begin, n);
}

enum tw_status tw_gpu_push(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    for (uint32_t which = 1; which <= TW_ENGINE_V; which *= 2) {
        float *mirror, *array = array_of(gpu, which, &mirror);
        if ((arrays & which) == 0 || (which == TW_ENGINE_THETA && gpu->is_foreign)) continue;
        tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, array + begin, mirror + begin,
                        n * sizeof(float));
    }
    if ((arrays & TW_ENGINE_THETA) != 0 && !gpu->is_foreign) tw_gpu_written(gpu, begin, n);
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

static void upload(struct tw_gpu *gpu, float *place, const float *params) {
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, place, params,
                    gpu->engine->layout->elements * sizeof(float));
    gpu->is_copied = false;
}

void tw_gpu_use(struct tw_gpu *gpu, const float *params) {
    const bool is_live = params == gpu->engine->theta;
    float *place = is_live || !gpu->is_learning ? gpu->theta : gpu->gradient;
    const bool is_there = is_live ? !gpu->is_foreign : gpu->has_held && params == gpu->held;
    if (!is_there) upload(gpu, place, params);
    if (place == gpu->gradient) gpu->is_padded = false;
    gpu->has_held = params == gpu->held;
    if (!gpu->is_learning) gpu->is_foreign = !is_live;
    if (gpu->params != place) gpu->is_copied = false;
    gpu->params = place;
    gpu->uses++;
    if (gpu->copy == NULL || gpu->is_copied) return;
    tw_cuda_from_f32(gpu->queue, TW_BF16, gpu->copy, place, gpu->engine->layout->elements);
    gpu->is_copied = true;
}

void tw_gpu_hold(struct tw_gpu *gpu, const float *params) {
    gpu->held = params;
    gpu->has_held = false;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void queue_pass(const struct tw_gpu_pass *pass) {
    tw_gpu_forward(pass);
    tw_gpu_head(pass);
    if (pass->is_learning) tw_gpu_backward(pass);
}

/* Returns the graph entry for such passes. Returns NULL if other kinds use all entries, and where
 * the scale differs from step to step: a graph has it as a constant. */
static struct tw_gpu_graph *graph_of(const struct tw_gpu_pass *pass) {
    if (pass->gpu->engine->run->data.loss == TW_LOSS_ANSWERS) return NULL;
    for (uint32_t i = 0; i < TW_GPU_GRAPHS; i++) {
        struct tw_gpu_graph *graph = &pass->gpu->graphs[i];
        if (graph->sequences == 0) {
            graph->sequences = pass->sequences;
            graph->is_first = pass->is_first;
        }
        if (graph->sequences == pass->sequences && graph->is_first == pass->is_first) return graph;
    }
    return NULL;
}

/* Runs a learning pass whose inputs are on their way to the device. After TW_GPU_PLAIN_STEPS plain
 * runs, the pass is captured and replayed as a CUDA graph. */
static enum tw_status run_learning_pass(const struct tw_gpu_pass *pass, struct tw_error *err) {
    struct tw_gpu *gpu = pass->gpu;
    struct tw_gpu_graph *graph = graph_of(pass);
    if (graph == NULL || graph->plain < TW_GPU_PLAIN_STEPS) {
        if (graph != NULL) graph->plain++;
        queue_pass(pass);
        return TW_OK;
    }
    if (graph->graph == NULL) {
        TW_TRY(tw_cuda_graph_begin(gpu->cuda, err));
        queue_pass(pass);
        TW_TRY(tw_cuda_graph_end(gpu->cuda, &graph->graph, err));
    }
    tw_cuda_graph_launch(gpu->cuda, graph->graph);
    return TW_OK;
}

/* One of the passes that train on, or compute the loss of, sequences with `scored` tokens. */
static struct tw_gpu_pass pass_of(struct tw_gpu *gpu, bool is_learning, uint32_t sequences,
                                  uint64_t scored) {
    const struct tw_run *run = gpu->engine->run;
    const uint32_t context = run->model.context;
    return (struct tw_gpu_pass){
        .gpu = gpu,
        .sequences = sequences,
        .context = context,
        .rows = sequences * context,
        .is_masked = run->data.documents == TW_DOCUMENTS_MASKED,
        .is_learning = is_learning,
        .scale = tw_engine_scale(scored),
        .z_loss = (float)(run->train.z_loss_millionths / 1e6),
    };
}

/* Runs sequences_count sequences of context + 1 tokens in passes, with the parameters in use. */
static enum tw_status run_passes(struct tw_gpu *gpu, bool is_learning, const uint32_t *tokens,
                                 uint32_t sequences_count, struct tw_error *err) {
    const uint32_t stride = gpu->engine->run->model.context + 1, most = gpu->sequences;
    const uint64_t scored = tw_engine_scored(gpu->engine, tokens, sequences_count);
    for (uint32_t done = 0; done < sequences_count; done += most) {
        /* The host runs at most TW_GPU_STAGED passes ahead of the device, so a stop takes effect
         * soon. */
        if (tw_engine_is_stopped(gpu->engine)) break;
        const uint32_t left = sequences_count - done;
        struct tw_gpu_pass pass = pass_of(gpu, is_learning, left < most ? left : most, scored);
        pass.is_first = done == 0;
        tw_gpu_inputs_put(&pass, tokens + (size_t)done * stride, stride, true);
        if (is_learning) {
            TW_TRY(run_learning_pass(&pass, err));
        } else {
            queue_pass(&pass);
        }
    }
    return TW_OK;
}

/* While the device computes a step: brings the inputs of the next step's first pass to it. Those of
 * its other passes are prepared while the first one runs. */
static void look_ahead(struct tw_gpu *gpu) {
    const struct tw_engine *engine = gpu->engine;
    const struct tw_engine_memory *memory = engine->memory;
    const uint32_t batch = engine->run->train.batch;
    const struct tw_gpu_pass pass =
        pass_of(gpu, true, batch < gpu->sequences ? batch : gpu->sequences, 0);
    if (memory->next == NULL || tw_engine_is_stopped(engine)) return;
    const uint32_t *tokens = memory->next(memory->next_self);
    const uint64_t count = (uint64_t)pass.sequences * (pass.context + 1);
    if (tokens == NULL || tw_engine_check_tokens(engine, tokens, count, NULL) != TW_OK) return;
    tw_gpu_inputs_ahead(&pass, tokens);
}

/* Zeros the parts of the gradient that a step's first pass does not overwrite. */
static void clear_gradient(struct tw_gpu *gpu) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    if (!gpu->is_padded) {
        tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, gpu->gradient,
                     gpu->engine->layout->elements * sizeof(float));
    } else if (!shape->is_tied) {
        /* A token's row is added to, and only if the token occurs. */
        tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, tw_gpu_grad(gpu, gpu->map.tokens),
                     (size_t)shape->vocab * shape->width * sizeof(float));
    }
    gpu->is_padded = true;
}

static void step_begin(struct tw_gpu *gpu, float lr) {
    const struct tw_run *run = gpu->engine->run;
    const struct tw_adamw adamw = tw_engine_adamw(gpu->engine);
    *gpu->step_host =
        (struct tw_cuda_step){.lr = lr,
                              .correction1 = adamw.correction1,
                              .correction2 = adamw.correction2,
                              .decay = (float)(run->train.decay_millionths / 1e6),
                              .momentum = (float)(run->train.muon_momentum_millionths / 1e6),
                              .clip = run->train.clip_millionths / 1e6};
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->step, gpu->step_host, sizeof(*gpu->step));
}

static enum tw_status step_end(struct tw_gpu *gpu, bool is_learning, struct tw_error *err) {
    tw_cuda_copy_out(gpu->cuda, TW_CUDA_COMPUTE, gpu->step_host, gpu->step, sizeof(*gpu->step));
    if (is_learning) look_ahead(gpu);
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

/* Returns TW_AGAIN if the caller no longer wants the passes. All queued passes have then ended. */
static enum tw_status give_up(struct tw_gpu *gpu, struct tw_error *err) {
    if (!tw_engine_is_stopped(gpu->engine)) return TW_OK;
    TW_TRY(tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err));
    return tw_engine_check_stop(gpu->engine, err);
}

enum tw_status tw_gpu_step(struct tw_gpu *gpu, const uint32_t *tokens, float lr,
                           struct tw_step_result *result, struct tw_error *err) {
    struct tw_engine *engine = gpu->engine;
    const struct tw_run *run = engine->run;
    TW_ASSERT(gpu->is_learning);
    tw_gpu_use(gpu, engine->theta);
    step_begin(gpu, lr);
    clear_gradient(gpu);
    TW_TRY(run_passes(gpu, true, tokens, run->train.batch, err));
    TW_TRY(give_up(gpu, err));
    gpu_update(gpu);
    TW_TRY(step_end(gpu, true, err));
    /* The first steps autotune GEMMs. The plans are saved at once, because a worker may be killed
     * at any time. */
    gpu->has_plans = gpu->has_plans && tw_cuda_products_save(gpu->products, NULL) == TW_OK;
    result->loss = (float)tw_engine_mean(gpu->step_host->loss,
                                         tw_engine_scored(engine, tokens, run->train.batch));
    result->grad_norm = (float)gpu->step_host->norm;
    result->is_skipped = gpu->step_host->is_skipped != 0;
    if (result->is_skipped) {
        engine->skipped++;
    } else {
        engine->updates++;
    }
    return TW_OK;
}

enum tw_status tw_gpu_loss(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                           uint32_t sequences_count, double *loss, struct tw_error *err) {
    tw_gpu_use(gpu, params);
    tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, gpu->step, sizeof(*gpu->step));
    TW_TRY(run_passes(gpu, false, tokens, sequences_count, err));
    TW_TRY(give_up(gpu, err));
    TW_TRY(step_end(gpu, false, err));
    *loss = gpu->step_host->loss;
    return TW_OK;
}

/* Copies to the host the logits (count, vocab) of rows [first, first + count) of a queued pass. */
static enum tw_status fetch_logits(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count,
                                   float *logits, struct tw_error *err) {
    struct tw_gpu *gpu = pass->gpu;
    const uint32_t most = tw_gpu_head_rows(gpu, TW_F32);
    const size_t vocab = gpu->map.shape.vocab, stride = gpu->arrays.logits_stride;
    for (uint32_t done = 0; done < count; done += most) {
        const uint32_t taken = count - done < most ? count - done : most;
        tw_gpu_logits_of(pass, first + done, taken, TW_F32);
        const struct tw_cuda_rows copy = {.to = logits + done * vocab,
                                          .from = gpu->arrays.logits,
                                          .to_stride = vocab * sizeof(float),
                                          .from_stride = stride * sizeof(float),
                                          .bytes = vocab * sizeof(float),
                                          .rows = taken};
        tw_cuda_copy_rows_out(gpu->cuda, TW_CUDA_COMPUTE, copy);
    }
    return tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, err);
}

enum tw_status tw_gpu_logits(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                             uint32_t first, uint32_t count, float *logits, struct tw_error *err) {
    const struct tw_gpu_pass pass = {.gpu = gpu, .sequences = 1, .context = count, .rows = count};
    tw_gpu_use(gpu, params);
    tw_gpu_inputs_put(&pass, tokens, count, false);
    tw_gpu_forward(&pass);
    return fetch_logits(&pass, first, count - first, logits, err);
}

/* ---- token by token -------------------------------------------------------------------------- */

struct tw_gpu_cache {
    struct tw_gpu *gpu;
    void *kv;      /* (layers, context, 2 * kv_width), on the device */
    uint64_t uses; /* value of gpu->uses when the device last used params */
};

enum tw_status tw_gpu_cache_create(struct tw_gpu_cache **cache_out, struct tw_gpu *gpu,
                                   struct tw_error *err) {
    struct tw_gpu_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) return tw_fail(err, TW_NOMEM, "no memory for a cache on a device");
    const enum tw_status status = tw_cuda_alloc(
        gpu->cuda, &cache->kv, tw_model_cache_bytes(gpu->engine->run, gpu->map.config.type),
        "keys and values", err);
    if (status != TW_OK) {
        free(cache);
        return status;
    }
    cache->gpu = gpu;
    *cache_out = cache;
    return TW_OK;
}

void tw_gpu_cache_destroy(struct tw_gpu_cache *cache) {
    if (cache == NULL) return;
    tw_cuda_free(cache->gpu->cuda, cache->kv);
    free(cache);
}

enum tw_status tw_gpu_cache_extend(struct tw_gpu_cache *cache, const float *params,
                                   const uint32_t *tokens, uint32_t used, uint32_t count,
                                   float *logits, struct tw_error *err) {
    struct tw_gpu *gpu = cache->gpu;
    const struct tw_gpu_pass pass = {.gpu = gpu,
                                     .sequences = 1,
                                     .context = count,
                                     .rows = count,
                                     .position_first = used,
                                     .kv = cache->kv};
    if (cache->uses == 0 || cache->uses != gpu->uses) tw_gpu_use(gpu, params);
    cache->uses = gpu->uses;
    tw_gpu_inputs_put(&pass, tokens, count, false);
    tw_gpu_forward(&pass);
    return fetch_logits(&pass, count - 1, 1, logits, err);
}
