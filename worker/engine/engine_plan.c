/* engine_plan.c - decides how an engine computes and how much memory it needs, before allocation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/units.h"
#include "worker/engine/devices.h"
#include "worker/engine/engine_memory.h"
#include "worker/engine/peak.h"

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

enum tw_status tw_engine_choose(const struct tw_engine_config *config, const struct tw_ops **ops,
                                const struct tw_matmul_library **library, struct tw_error *err) {
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
    *ops = config->ops != NULL ? config->ops : tw_ops_cpu(type, 0);
    return TW_OK;
}

struct tw_model_config tw_engine_model_config(const struct tw_engine_config *config,
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

/* ---- sizes --------------------------------------------------------------------------------- */

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
        plan->optimizer +=
            plan->threads * tw_engine_muon_bytes(config->run, config->layout, ops->type);
    if (plan->limit == 0) plan->limit = tw_machine_memory();
    const struct tw_model_config model = tw_engine_model_config(config, plan, ops, library);
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
    TW_TRY(tw_engine_choose(config, &ops, &library, err));
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
