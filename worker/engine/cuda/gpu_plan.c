/* gpu_plan.c - plans the memory of an engine on a device, before allocation. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/machine.h"
#include "base/units.h"
#include "worker/engine/cuda/gpu_model.h"

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

/* Chooses the micro-batch for the given choice of recompute, as fit_micro_batch() in engine_plan.c
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
        .optimizer =
            is_learning ? 2 * array + tw_gpu_muon_bytes(config->run, config->layout, type) : 0,
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
