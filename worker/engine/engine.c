#include "worker/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/units.h"
#include "kernels/muon.h"
#include "worker/engine/devices.h"
#include "worker/engine/engine_memory.h"
#include "worker/engine/peak.h"

/* ---- optimizer ------------------------------------------------------------------------------- */

#define ADAMW_EPS 1e-8f

enum { RANGE_ELEMENTS = 64 * 1024 };

/* Values shared by the thread-pool pieces of one update. */
struct update {
    struct tw_engine *engine;
    struct tw_adamw adamw;
    float decay, momentum;
};

/* ---- list of work ---------------------------------------------------------------------------- */

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

/* Returns the Muon scratch bytes of one thread; 0 if the run does not use Muon. */
static size_t muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
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
    memory->muon_scratch_bytes = muon_bytes(engine->run, layout, memory->model.ops->type);
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

/* Fills ranges and matrices for the run's optimizer. Errors: TW_NOMEM. */
static enum tw_status optimizer_init(struct tw_engine *engine, struct tw_error *err) {
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

static void optimizer_deinit(struct tw_engine *engine) {
    struct tw_engine_memory *memory = engine->memory;
    free(memory->muon_scratch);
    free(memory->matrices);
    free(memory->squares);
    free(memory->ranges);
}

/* ---- norm and update ------------------------------------------------------------------------- */

static void squares_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct tw_engine *engine = context;
    const struct tw_engine_range *range = &engine->memory->ranges[piece];
    struct tw_profile *profile = engine->memory->model.profile;
    if (profile != NULL) tw_profile_start(profile, thread);
    engine->memory->squares[piece] =
        engine->memory->model.ops->sum_squares(engine->gradient + range->begin, range->count);
    if (profile != NULL) tw_profile_lap(profile, thread, TW_PROFILE_GRADIENT_NORM);
}

/* Returns the norm of the whole gradient, summed in double. The norm is not finite if an element is
 * not. */
static double gradient_norm(struct tw_engine *engine) {
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
    struct tw_profile *profile = update->engine->memory->model.profile;
    if (profile != NULL) tw_profile_start(profile, thread);
    if (piece < matrices) {
        muon_piece(update, piece, thread);
    } else {
        adamw_piece(update, piece - matrices);
    }
    if (profile != NULL) tw_profile_lap(profile, thread, TW_PROFILE_OPTIMIZER);
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

/* Updates theta, m and v from the gradient. `norm` is the gradient's norm, used for clipping. */
static void update_params(struct tw_engine *engine, float lr, double norm) {
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

/* ---- plan ------------------------------------------------------------------------------------ */

enum {
    PASS_ROWS = 4096, /* rows per pass, unless configured; larger passes are no faster */
    /* bytes of activations per pass, unless configured; larger passes are no faster */
    PASS_BYTES = 1024 * 1024 * 1024,
    INFERENCE_SEQUENCES = 8,
    USES_BYTES = 512,
};

/* Returns the number of threads. If 0 are configured, uses all cores, but at most one thread per
 * half a million parameters, because a small model gains little from more. */
static uint32_t count_threads(const struct tw_engine_config *config) {
    const uint32_t most = TW_THREAD_POOL_THREADS_MAX;
    if (config->compute.threads > 0)
        return config->compute.threads < most ? config->compute.threads : most;
    const uint64_t cores = tw_machine_processors();
    const uint64_t useful = 1 + config->layout->params / 500000;
    const uint64_t threads = useful < cores ? useful : cores;
    return threads < most ? (uint32_t)threads : most;
}

/* Chooses the matrix library. For AUTO, the environment variable TW_MATMUL (onednn, openblas or
 * reference) decides. */
static enum tw_status choose_library(enum tw_matmul_backend backend,
                                     const struct tw_matmul_library **library,
                                     struct tw_error *err) {
    static const char *const names[] = {[TW_MATMUL_AUTO] = "auto",
                                        [TW_MATMUL_ONEDNN] = "onednn",
                                        [TW_MATMUL_OPENBLAS] = "openblas",
                                        [TW_MATMUL_REF] = "reference"};
    const char *wanted = backend == TW_MATMUL_AUTO ? getenv("TW_MATMUL") : NULL;
    if (wanted != NULL) {
        unsigned i = 0;
        while (i < 4 && strcmp(wanted, names[i]) != 0) i++;
        if (i == 4)
            return tw_fail(err, TW_CONFIG,
                           "TW_MATMUL=%.32s is not known: use auto, onednn, openblas or reference",
                           wanted);
        backend = (enum tw_matmul_backend)i;
    }
    *library = tw_matmul_library_get(backend);
    if (*library == NULL)
        return tw_fail(
            err, TW_CONFIG,
            "matrix products by %s were not built in: use another library (TW_MATMUL=auto) or "
            "rebuild with it",
            names[backend]);
    return TW_OK;
}

/* Chooses the operators for a type: the fastest, or the set that the environment variable TW_OPS
 * names, for tests and measurements. */
static enum tw_status choose_set(enum tw_type type, const struct tw_ops **ops,
                                 struct tw_error *err) {
    const char *wanted = getenv("TW_OPS");
    for (uint32_t i = 0; (*ops = tw_ops_cpu(type, i)) != NULL; i++) {
        if (wanted == NULL || strcmp((*ops)->name, wanted) == 0) return TW_OK;
    }
    return tw_fail(
        err, TW_CONFIG,
        "TW_OPS=%.32s: this processor does not have it; unset it for the fastest, or use "
        "AVX2 or baseline",
        wanted);
}

/* Chooses the operators and matrix library that the configuration asks for. Errors: TW_CONFIG. */
static enum tw_status choose_operators(const struct tw_engine_config *config,
                                       const struct tw_ops **ops,
                                       const struct tw_matmul_library **library,
                                       struct tw_error *err) {
    TW_TRY(choose_library(config->matmul, library, err));
    enum tw_type type = TW_F32;
    if (config->ops != NULL) {
        type = config->ops->type;
    } else if (config->compute.compute == TW_COMPUTE_BF16) {
        type = TW_BF16;
    } else if (config->compute.compute == TW_COMPUTE_AUTO) {
        type = tw_ops_best_type();
        if (!tw_matmul_library_has(*library, type)) type = TW_F32;
    }
    if (!tw_matmul_library_has(*library, type))
        return tw_fail(err, TW_CONFIG,
                       "compute = bf16, but %s has no bf16 products on this processor: use "
                       "compute = auto or fp32",
                       tw_matmul_library_name(*library));
    *ops = config->ops;
    return config->ops != NULL ? TW_OK : choose_set(type, ops, err);
}

/* Derives the model configuration from an engine configuration and its plan. */
static struct tw_model_config model_config(const struct tw_engine_config *config,
                                           const struct tw_engine_plan *plan,
                                           const struct tw_ops *ops,
                                           const struct tw_matmul_library *library) {
    return (struct tw_model_config){.run = config->run,
                                    .layout = config->layout,
                                    .type = ops->type,
                                    .ops = ops,
                                    .library = library,
                                    .threads = plan->threads,
                                    .sequences = plan->micro_batch,
                                    .is_recomputed = plan->is_recomputed,
                                    .is_learning = !config->is_inference};
}

/* ---- sizes ----------------------------------------------------------------------------------- */

void tw_engine_plan_sum(struct tw_engine_plan *plan, const struct tw_model_bytes *bytes) {
    plan->weights = bytes->weights;
    plan->activations = bytes->activations;
    plan->logits = bytes->logits;
    plan->total = plan->parameters + plan->gradients + plan->optimizer + plan->weights +
                  plan->activations + plan->logits + plan->cache + plan->sync;
}

uint32_t tw_engine_plan_even(uint32_t batch, uint64_t most) {
    if (most < 1) most = 1;
    const uint64_t passes = (batch + most - 1) / most;
    return (uint32_t)((batch + passes - 1) / passes);
}

uint32_t tw_engine_plan_sequences(const struct tw_engine_config *config) {
    if (!config->is_inference) return config->run->train.batch;
    return config->has_cache ? 1 : INFERENCE_SEQUENCES;
}

/* Fills *plan for the given choice of recompute, with the largest micro-batch that fits the limit.
 * If none fits, the plan has one sequence per pass. */
static enum tw_status fit_micro_batch(struct tw_engine_plan *plan,
                                      const struct tw_engine_config *config,
                                      struct tw_model_config model, struct tw_error *err) {
    const uint32_t batch = tw_engine_plan_sequences(config);
    const uint32_t asked = config->compute.micro_batch;
    struct tw_model_bytes one, two, bytes;
    model.is_recomputed = plan->is_recomputed;
    model.sequences = 1;
    TW_TRY(tw_model_measure(&one, &model, err));
    model.sequences = 2;
    TW_TRY(tw_model_measure(&two, &model, err));
    uint64_t most = PASS_ROWS / config->run->model.context;
    const uint64_t each = two.activations - one.activations;
    if (most > PASS_BYTES / each) most = PASS_BYTES / each;
    if (asked > 0) most = asked;
    for (;;) {
        plan->micro_batch = tw_engine_plan_even(batch, most);
        model.sequences = plan->micro_batch;
        TW_TRY(tw_model_measure(&bytes, &model, err));
        tw_engine_plan_sum(plan, &bytes);
        if (plan->total <= plan->limit || plan->micro_batch == 1 || asked > 0) return TW_OK;
        const uint64_t over = (plan->total - plan->limit + each - 1) / each;
        most = over < plan->micro_batch ? plan->micro_batch - over : 1;
    }
}

/* Appends an entry such as ", logits 1.5 GB" to text at *used. A use of 0 bytes is left out. */
static void put_use(char text[USES_BYTES], size_t *used, const char *name, uint64_t bytes) {
    char amount[TW_UNITS_BYTES];
    if (bytes == 0) return;
    const int n = snprintf(text + *used, USES_BYTES - *used, "%s%s %s", *used > 0 ? ", " : "", name,
                           tw_units_bytes(amount, (double)bytes));
    TW_ASSERT(n > 0 && (size_t)n < USES_BYTES - *used);
    *used += (size_t)n;
}

enum tw_status tw_engine_plan_refuse(const struct tw_engine_plan *plan, bool is_learning,
                                     struct tw_error *err) {
    char uses[USES_BYTES], total[TW_UNITS_BYTES], limit[TW_UNITS_BYTES];
    size_t used = 0;
    put_use(uses, &used, "parameters", plan->parameters);
    put_use(uses, &used, "gradient", plan->gradients);
    put_use(uses, &used, "optimizer", plan->optimizer);
    put_use(uses, &used, "working weights", plan->weights);
    put_use(uses, &used, "activations", plan->activations);
    put_use(uses, &used, "logits", plan->logits);
    put_use(uses, &used, "keys and values", plan->cache);
    put_use(uses, &used, "outer gradients and anchors", plan->sync);
    return tw_fail(err, TW_NOMEM,
                   "this model needs %s of memory (%s) and there are %s: choose a smaller model%s",
                   tw_units_bytes(total, (double)plan->total), uses,
                   tw_units_bytes(limit, (double)plan->limit),
                   !is_learning          ? " or context"
                   : plan->is_recomputed ? ", context or micro_batch"
                                         : ", context or micro_batch, or recompute = on");
}

static enum tw_status make_cpu_plan(struct tw_engine_plan *plan,
                                    const struct tw_engine_config *config, const struct tw_ops *ops,
                                    const struct tw_matmul_library *library, struct tw_error *err) {
    const uint64_t array = config->layout->elements * sizeof(float);
    const bool is_learning = !config->is_inference;
    TW_ASSERT(config->is_inference || !config->has_cache);
    *plan = (struct tw_engine_plan){
        .parameters = config->theta == NULL ? array : 0,
        .gradients = is_learning ? array : 0,
        .optimizer =
            is_learning ? (config->m == NULL ? array : 0) + (config->v == NULL ? array : 0) : 0,
        .cache = config->has_cache ? tw_model_cache_bytes(config->run, ops->type) : 0,
        .limit = config->compute.memory_bytes,
        .threads = count_threads(config),
        .type = ops->type,
        .ops = ops,
        .library = library,
        .is_recomputed = is_learning && config->compute.recompute == TW_RECOMPUTE_ON,
    };
    if (is_learning)
        plan->optimizer += plan->threads * muon_bytes(config->run, config->layout, ops->type);
    if (plan->limit == 0) plan->limit = tw_machine_memory();
    const struct tw_model_config model = model_config(config, plan, ops, library);
    TW_TRY(fit_micro_batch(plan, config, model, err));
    if (plan->total > plan->limit && is_learning &&
        config->compute.recompute == TW_RECOMPUTE_AUTO) {
        plan->is_recomputed = true;
        TW_TRY(fit_micro_batch(plan, config, model, err));
    }
    return plan->total > plan->limit ? tw_engine_plan_refuse(plan, is_learning, err) : TW_OK;
}

/* Chooses the device. For AUTO, the environment variable TW_DEVICE (cpu, cuda, ...) decides.
 * *is_free is true if neither the configuration nor the environment names a device. */
static enum tw_status choose_device(const struct tw_engine_config *config,
                                    struct tw_device_choice *device, bool *is_free,
                                    struct tw_error *err) {
    const char *text = getenv("TW_DEVICE");
    struct tw_device_choice wanted = config->compute.device;
    struct tw_devices devices;
    struct tw_error why;
    const bool is_auto = wanted.kind == TW_DEVICE_AUTO;
    if (is_auto && (config->ops != NULL || config->matmul != TW_MATMUL_AUTO)) {
        wanted.kind = TW_DEVICE_CPU;
    } else if (is_auto && text != NULL && tw_device_parse(text, &wanted, &why) != TW_OK) {
        return tw_fail(err, TW_CONFIG, "TW_DEVICE in the environment: %s", why.message);
    }
    *device = wanted;
    *is_free = wanted.kind == TW_DEVICE_AUTO;
    if (wanted.kind == TW_DEVICE_CPU) return TW_OK; /* no need to ask the driver */
    tw_devices_look(&devices);
    return tw_devices_choose(&devices, &wanted, device, err);
}

enum tw_status tw_engine_plan_make(struct tw_engine_plan *plan,
                                   const struct tw_engine_config *config, struct tw_error *err) {
    const struct tw_ops *ops;
    const struct tw_matmul_library *library;
    struct tw_device_choice device;
    bool is_free;
    TW_TRY(tw_run_check_engine(config->run, err));
    TW_TRY(choose_device(config, &device, &is_free, err));
    if (device.kind == TW_DEVICE_CUDA) {
        const enum tw_status status = tw_gpu_plan(plan, config, (int)device.ordinal, err);
        if (!is_free || (status != TW_NOMEM && status != TW_DEVICE)) return status;
    }
    TW_TRY(choose_operators(config, &ops, &library, err));
    return make_cpu_plan(plan, config, ops, library, err);
}

enum tw_status tw_engine_peak(const struct tw_engine_plan *plan, double *flops_s,
                              struct tw_error *err) {
    if (plan->is_on_gpu) return tw_gpu_peak(plan, flops_s, err);
    return tw_peak_measure(plan->library, plan->type, plan->threads, flops_s, err);
}

void tw_engine_plan_describe(const struct tw_engine_plan *plan, char *text, size_t size) {
    if (plan->is_on_gpu) {
        (void)snprintf(text, size, "cuda:%u, %s, %s", plan->ordinal, plan->device,
                       plan->type == TW_BF16 ? "bf16" : "fp32");
        return;
    }
    (void)snprintf(text, size, "cpu, %u thread%s, %s, %s, %s", plan->threads,
                   plan->threads == 1 ? "" : "s", plan->ops->name,
                   plan->type == TW_BF16 ? "bf16" : "fp32", tw_matmul_library_name(plan->library));
}

uint64_t tw_engine_flops_token(const struct tw_run *run) {
    const struct tw_run_shape shape = tw_run_shape(run);
    const uint64_t width = run->model.width, layers = run->model.layers;
    const uint64_t up = run->model.family == TW_FAMILY_GPT2 ? shape.ffn : 2 * (uint64_t)shape.ffn;
    const uint64_t layer = width * (shape.q_width + 2 * (uint64_t)shape.kv_width) +
                           shape.q_width * width + width * up + shape.ffn * width;
    return 6 * (layers * layer + run->model.vocab * width) +
           6 * layers * shape.q_width * ((uint64_t)run->model.context + 1);
}

/* Makes the model use the present values of params. */
static void use_params(struct tw_engine *engine, const float *params) {
    struct tw_engine_memory *memory = engine->memory;
    if (memory->has_held && params == memory->held) return;
    tw_model_use(&memory->model, params);
    memory->has_held = params == memory->held;
    memory->uses++;
}

/* ---- cache of generation --------------------------------------------------------------------- */

struct tw_engine_cache {
    struct tw_engine *engine;
    const float *params;
    uint64_t uses; /* value of memory->uses when the model last used params */
    struct tw_model_cache kv;
    struct tw_gpu_cache *gpu; /* cache on a device, or NULL; if set, only kv.used is valid */
};

uint64_t tw_engine_cache_bytes(const struct tw_engine *engine) {
    return tw_model_cache_bytes(engine->run, engine->plan.type);
}

enum tw_status tw_engine_cache_create(struct tw_engine_cache **cache_out, struct tw_engine *engine,
                                      const float *params, struct tw_error *err) {
    const bool is_on_gpu = engine->memory->gpu != NULL;
    const uint64_t bytes = tw_engine_cache_bytes(engine);
    struct tw_engine_cache *cache = calloc(1, sizeof(*cache));
    void *kv = is_on_gpu ? NULL : malloc(bytes);
    if (cache == NULL || (kv == NULL && !is_on_gpu)) {
        free(cache);
        free(kv);
        return tw_fail(err, TW_NOMEM,
                       "the keys and values of %u tokens need %.0f MiB and the system refused: "
                       "choose a smaller model",
                       engine->run->model.context, (double)bytes / 1048576.0);
    }
    *cache = (struct tw_engine_cache){
        .engine = engine, .params = params, .uses = UINT64_MAX, .kv = {.kv = kv}};
    const enum tw_status status =
        is_on_gpu ? tw_gpu_cache_create(&cache->gpu, engine->memory->gpu, err) : TW_OK;
    if (status != TW_OK) {
        free(cache);
        return status;
    }
    *cache_out = cache;
    return TW_OK;
}

void tw_engine_cache_destroy(struct tw_engine_cache *cache) {
    if (cache == NULL) return;
    tw_gpu_cache_destroy(cache->gpu);
    free(cache->kv.kv);
    free(cache);
}

enum tw_status tw_engine_cache_extend(struct tw_engine_cache *cache, const uint32_t *tokens,
                                      uint32_t count, float *logits, struct tw_error *err) {
    struct tw_engine *engine = cache->engine;
    struct tw_model *model = &engine->memory->model;
    const uint32_t context = engine->run->model.context;
    TW_ASSERT(count > 0);
    if (count > context - cache->kv.used)
        return tw_fail(err, TW_LIMIT,
                       "%u tokens more than %u are too many for a context of %u: start again with "
                       "the last ones",
                       count, cache->kv.used, context);
    TW_TRY(tw_engine_check_tokens(engine, tokens, count, err));
    if (cache->gpu != NULL) {
        TW_TRY(tw_gpu_cache_extend(cache->gpu, cache->params, tokens, cache->kv.used, count, logits,
                                   err));
        cache->kv.used += count;
        return TW_OK;
    }
    if (cache->uses != engine->memory->uses) use_params(engine, cache->params);
    cache->uses = engine->memory->uses;
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count, .cache = &cache->kv};
    tw_model_forward(model, &batch);
    tw_model_logits(model, count - 1, 1, logits);
    return TW_OK;
}

uint32_t tw_engine_cache_used(const struct tw_engine_cache *cache) {
    return cache->kv.used;
}

void tw_engine_cache_clear(struct tw_engine_cache *cache) {
    cache->kv.used = 0;
}

/* ---- engine ---------------------------------------------------------------------------------- */

enum { PAGE_BYTES = 64 * 1024 }; /* a multiple of every machine's page size */

static float *take_array(float **rest, float *given, uint64_t elements) {
    if (given != NULL) return given;
    float *taken = *rest;
    *rest += elements;
    return taken;
}

static enum tw_status allocate_arrays(struct tw_engine *engine,
                                      const struct tw_engine_config *config, struct tw_error *err) {
    const uint64_t elements = config->layout->elements, array = elements * sizeof(float);
    const uint64_t moments =
        config->is_inference ? 0 : (uint64_t)((config->m == NULL) + (config->v == NULL));
    /* The gradient starts on its own page. The arrays before it are host mirrors of device arrays
     * and may be page-locked: no copy to or from the device may cross the end of the page-locked
     * range. */
    const uint64_t first = ((config->theta == NULL) + moments) * array;
    const uint64_t state = (first + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    const uint64_t bytes = config->is_inference ? first : state + array;
    float *owned = NULL;
    if (bytes > 0) {
        owned = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (owned == MAP_FAILED)
            return tw_fail(err, TW_NOMEM,
                           "parameters, gradient and optimizer state need %.0f MiB and the system "
                           "refused: choose a smaller model",
                           (double)bytes / 1048576.0);
        (void)madvise(owned, bytes, MADV_HUGEPAGE);
    }
    engine->memory->owned = owned;
    engine->memory->owned_bytes = bytes;
    engine->theta = take_array(&owned, config->theta, elements);
    if (config->is_inference) return TW_OK;
    engine->m = take_array(&owned, config->m, elements);
    engine->v = take_array(&owned, config->v, elements);
    engine->gradient = engine->memory->owned + state / sizeof(float);
    return TW_OK;
}

static enum tw_status init_engine(struct tw_engine *engine, const struct tw_engine_config *config,
                                  struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    const struct tw_ops *ops;
    const struct tw_matmul_library *library;
    engine->run = config->run;
    engine->layout = config->layout;
    TW_TRY(tw_engine_plan_make(&engine->plan, config, err));
    TW_TRY(allocate_arrays(engine, config, err));
    if (engine->plan.is_on_gpu) return tw_gpu_create(&memory->gpu, config, engine, err);
    TW_TRY(choose_operators(config, &ops, &library, err));
    TW_TRY(tw_thread_pool_create(&memory->team, engine->plan.threads, err));
    const struct tw_model_config model = model_config(config, &engine->plan, ops, library);
    TW_TRY(tw_model_init(&memory->model, &model, memory->team, err));
    return config->is_inference ? TW_OK : optimizer_init(engine, err);
}

enum tw_status tw_engine_create(struct tw_engine **engine_out,
                                const struct tw_engine_config *config, struct tw_error *err) {
    struct tw_engine *engine = calloc(1, sizeof(*engine));
    struct tw_engine_memory *memory = calloc(1, sizeof(*memory));
    if (engine == NULL || memory == NULL) {
        free(engine);
        free(memory);
        return tw_fail(err, TW_NOMEM, "no memory for an engine: the system refused %zu bytes",
                       sizeof(*engine) + sizeof(*memory));
    }
    engine->memory = memory;
    const enum tw_status status = init_engine(engine, config, err);
    if (status != TW_OK) {
        tw_engine_destroy(engine);
        return status;
    }
    *engine_out = engine;
    return TW_OK;
}

void tw_engine_destroy(struct tw_engine *engine) {
    if (engine == NULL) return;
    struct tw_engine_memory *memory = engine->memory;
    tw_gpu_destroy(memory->gpu);
    optimizer_deinit(engine);
    if (memory->model.memory != NULL) tw_model_deinit(&memory->model);
    tw_profile_destroy(memory->profile);
    tw_thread_pool_destroy(memory->team);
    if (memory->owned != NULL) (void)munmap(memory->owned, memory->owned_bytes);
    free(memory);
    free(engine);
}

void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size) {
    tw_engine_plan_describe(&engine->plan, text, size);
}

enum tw_status tw_engine_check_tokens(const struct tw_engine *engine, const uint32_t *tokens,
                                      uint64_t count, struct tw_error *err) {
    const uint32_t vocab = engine->run->model.vocab;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t token = tokens[i] & ~TW_TOKEN_UNSCORED;
        if (token >= vocab) {
            return tw_fail(err, TW_DATA,
                           "token %u is outside the vocabulary of %u: the data was not made with "
                           "this run's tokenizer",
                           token, vocab);
        }
    }
    return TW_OK;
}

uint64_t tw_engine_scored(const struct tw_engine *engine, const uint32_t *tokens,
                          uint32_t sequences_count) {
    const uint32_t context = engine->run->model.context;
    uint64_t scored = 0;
    for (uint32_t b = 0; b < sequences_count; b++) {
        const uint32_t *const targets = tokens + (size_t)b * (context + 1) + 1;
        for (uint32_t t = 0; t < context; t++) scored += (targets[t] & TW_TOKEN_UNSCORED) == 0;
    }
    return scored;
}

enum tw_status tw_engine_pull(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err) {
    TW_ASSERT(begin <= engine->layout->elements && n <= engine->layout->elements - begin);
    TW_ASSERT(engine->gradient != NULL || arrays == TW_ENGINE_THETA);
    if (engine->memory->gpu == NULL) return TW_OK;
    return tw_gpu_pull(engine->memory->gpu, arrays, begin, n, err);
}

enum tw_status tw_engine_push(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err) {
    TW_ASSERT(begin <= engine->layout->elements && n <= engine->layout->elements - begin);
    TW_ASSERT(engine->gradient != NULL || arrays == TW_ENGINE_THETA);
    TW_ASSERT((arrays & TW_ENGINE_GRADIENT) == 0);
    if (engine->memory->gpu == NULL) return TW_OK;
    return tw_gpu_push(engine->memory->gpu, arrays, begin, n, err);
}

enum tw_status tw_engine_vectors(struct tw_engine *engine, struct tw_vectors *vectors,
                                 struct tw_error *err) {
    TW_ASSERT(engine->memory->gpu != NULL);
    return tw_gpu_vectors_open(engine->memory->gpu, vectors, err);
}

void tw_engine_hold(struct tw_engine *engine, const float *params) {
    engine->memory->held = params;
    engine->memory->has_held = false;
    if (engine->memory->gpu != NULL) tw_gpu_hold(engine->memory->gpu, params);
}

void tw_engine_watch(struct tw_engine *engine, const _Atomic bool *stop) {
    engine->stop = stop;
    engine->memory->model.stop = stop;
}

enum tw_status tw_engine_profile(struct tw_engine *engine, const struct tw_profile **profile,
                                 struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    TW_ASSERT(memory->profile == NULL);
    if (engine->plan.is_on_gpu)
        return tw_fail(err, TW_CONFIG,
                       "times by operator are measured on the processor only: use --device cpu");
    TW_TRY(tw_profile_create(&memory->profile, engine->plan.threads, err));
    *profile = memory->profile;
    return TW_OK;
}

void tw_engine_look_ahead(struct tw_engine *engine, tw_engine_next *next, void *self) {
    engine->memory->next = next;
    engine->memory->next_self = self;
}

bool tw_engine_is_stopped(const struct tw_engine *engine) {
    return engine->stop != NULL && atomic_load_explicit(engine->stop, memory_order_relaxed);
}

enum tw_status tw_engine_check_stop(const struct tw_engine *engine, struct tw_error *err) {
    if (!tw_engine_is_stopped(engine)) return TW_OK;
    return tw_fail(err, TW_AGAIN, "the pass was given up, because a pause begins");
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Runs sequences_count sequences of context + 1 tokens in micro-batches. Returns the mean loss of
 * the scored tokens. If is_learning, leaves its gradient in engine->gradient. */
static double run_passes(struct tw_engine *engine, bool is_learning, const uint32_t *tokens,
                         uint32_t sequences_count) {
    const struct tw_run *run = engine->run;
    struct tw_model *model = &engine->memory->model;
    const uint32_t context = model->shape.context, stride = context + 1;
    const uint32_t most = model->config.sequences;
    const uint64_t scored = tw_engine_scored(engine, tokens, sequences_count);
    struct tw_model_learn learn = {
        .gradient = engine->gradient,
        .scale = tw_engine_scale(scored),
        .z_loss = (float)(run->train.z_loss_millionths / 1e6),
        .is_first = true,
    };
    double loss = 0.0;
    if (is_learning) tw_model_clear(model, engine->gradient);
    for (uint32_t done = 0; done < sequences_count && !tw_engine_is_stopped(engine); done += most) {
        const uint32_t left = sequences_count - done;
        const struct tw_model_batch batch = {.tokens = tokens + (size_t)done * stride,
                                             .stride = stride,
                                             .sequences = left < most ? left : most,
                                             .context = context,
                                             .is_masked =
                                                 run->data.documents == TW_DOCUMENTS_MASKED,
                                             .separator = run->data.separator};
        tw_model_forward(model, &batch);
        loss +=
            is_learning ? tw_model_backward(model, &batch, &learn) : tw_model_loss(model, &batch);
        learn.is_first = false;
    }
    return tw_engine_mean(loss, scored);
}

static enum tw_status step_on_cpu(struct tw_engine *engine, const uint32_t *tokens, float lr,
                                  struct tw_step_result *result, struct tw_error *err) {
    const struct tw_run *run = engine->run;
    use_params(engine, engine->theta);
    const double loss = run_passes(engine, true, tokens, run->train.batch);
    TW_TRY(tw_engine_check_stop(engine, err));
    const double norm = gradient_norm(engine);
    result->loss = (float)loss;
    result->grad_norm = (float)norm;
    result->is_skipped = !isfinite(loss) || !isfinite(result->grad_norm);
    if (result->is_skipped) {
        engine->skipped++;
        return TW_OK;
    }
    update_params(engine, lr, norm);
    return TW_OK;
}

enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err) {
    const struct tw_run *run = engine->run;
    const uint64_t count = (uint64_t)run->train.batch * (run->model.context + 1);
    struct tw_profile *profile = engine->memory->profile;
    TW_ASSERT(engine->gradient != NULL);
    TW_ASSERT(engine->memory->held != engine->theta);
    TW_TRY(tw_engine_check_tokens(engine, tokens, count, err));
    if (engine->memory->gpu != NULL)
        return tw_gpu_step(engine->memory->gpu, tokens, lr, result, err);
    if (profile == NULL) return step_on_cpu(engine, tokens, lr, result, err);
    engine->memory->model.profile = profile; /* calls other than steps are not measured */
    tw_profile_step_begin(profile);
    const enum tw_status status = step_on_cpu(engine, tokens, lr, result, err);
    tw_profile_step_end(profile);
    engine->memory->model.profile = NULL;
    return status;
}

enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err) {
    TW_ASSERT(sequences_count > 0);
    TW_TRY(tw_engine_check_tokens(
        engine, tokens, (uint64_t)sequences_count * (engine->run->model.context + 1), err));
    if (engine->memory->gpu != NULL) {
        TW_TRY(tw_gpu_loss(engine->memory->gpu, params, tokens, sequences_count, loss_out, err));
        *loss_out = tw_engine_mean(*loss_out, tw_engine_scored(engine, tokens, sequences_count));
        return TW_OK;
    }
    use_params(engine, params);
    *loss_out = run_passes(engine, false, tokens, sequences_count);
    return tw_engine_check_stop(engine, err);
}

/* Computes the logits of the rows [first, count) of one sequence. */
static enum tw_status sequence_logits(struct tw_engine *engine, const float *params,
                                      const struct tw_model_batch *batch, uint32_t first,
                                      float *logits, struct tw_error *err) {
    struct tw_model *model = &engine->memory->model;
    TW_ASSERT(batch->context > 0 && batch->context <= engine->run->model.context);
    TW_TRY(tw_engine_check_tokens(engine, batch->tokens, batch->context, err));
    if (engine->memory->gpu != NULL)
        return tw_gpu_logits(engine->memory->gpu, params, batch->tokens, first, batch->context,
                             logits, err);
    use_params(engine, params);
    tw_model_forward(model, batch);
    tw_model_logits(model, first, batch->context - first, logits);
    return TW_OK;
}

enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err) {
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count};
    return sequence_logits(engine, params, &batch, count - 1, logits, err);
}

enum tw_status tw_engine_logits_all(struct tw_engine *engine, const float *params,
                                    const uint32_t *tokens, uint32_t count, float *logits,
                                    struct tw_error *err) {
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count};
    return sequence_logits(engine, params, &batch, 0, logits, err);
}
