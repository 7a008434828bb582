/* gpu_none.c - implements gpu.h in a build without CUDA: there is never a device. */
#include <stdio.h>
#include <string.h>

#include "worker/engine/cuda/gpu.h"
#include "worker/engine/devices.h"

static enum tw_status none(struct tw_error *err) {
    return tw_fail(err, TW_CONFIG,
                   "this build has no CUDA: set device = cpu, or build it where nvcc is found");
}

enum tw_status tw_gpu_plan(struct tw_engine_plan *plan, const struct tw_engine_config *config,
                           int ordinal, struct tw_error *err) {
    (void)plan, (void)config, (void)ordinal;
    return none(err);
}

enum tw_status tw_gpu_create(struct tw_gpu **gpu_out, const struct tw_engine_config *config,
                             struct tw_engine *engine, struct tw_error *err) {
    (void)gpu_out, (void)config, (void)engine;
    return none(err);
}

void tw_gpu_destroy(struct tw_gpu *gpu) {
    (void)gpu;
}

enum tw_status tw_gpu_pull(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    (void)gpu, (void)arrays, (void)begin, (void)n;
    return none(err);
}

enum tw_status tw_gpu_push(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    (void)gpu, (void)arrays, (void)begin, (void)n;
    return none(err);
}

enum tw_status tw_gpu_step(struct tw_gpu *gpu, const uint32_t *tokens, float lr,
                           struct tw_step_result *result, struct tw_error *err) {
    (void)gpu, (void)tokens, (void)lr, (void)result;
    return none(err);
}

void tw_gpu_hold(struct tw_gpu *gpu, const float *params) {
    (void)gpu, (void)params;
}

enum tw_status tw_gpu_loss(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                           uint32_t sequences_count, double *loss, struct tw_error *err) {
    (void)gpu, (void)params, (void)tokens, (void)sequences_count, (void)loss;
    return none(err);
}

enum tw_status tw_gpu_logits(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                             uint32_t first, uint32_t count, float *logits, struct tw_error *err) {
    (void)gpu, (void)params, (void)tokens, (void)first, (void)count, (void)logits;
    return none(err);
}

enum tw_status tw_gpu_cache_create(struct tw_gpu_cache **cache_out, struct tw_gpu *gpu,
                                   struct tw_error *err) {
    (void)cache_out, (void)gpu;
    return none(err);
}

void tw_gpu_cache_destroy(struct tw_gpu_cache *cache) {
    (void)cache;
}

enum tw_status tw_gpu_cache_extend(struct tw_gpu_cache *cache, const float *params,
                                   const uint32_t *tokens, uint32_t used, uint32_t count,
                                   float *logits, struct tw_error *err) {
    (void)cache, (void)params, (void)tokens, (void)used, (void)count, (void)logits;
    return none(err);
}

enum tw_status tw_gpu_vectors_open(struct tw_gpu *gpu, struct tw_vectors *vectors,
                                   struct tw_error *err) {
    (void)gpu, (void)vectors;
    return none(err);
}

uint64_t tw_gpu_vectors_bytes(const struct tw_layout *layout) {
    (void)layout;
    return 0;
}

enum tw_status tw_gpu_peak(const struct tw_engine_plan *plan, double *flops_s,
                           struct tw_error *err) {
    (void)plan, (void)flops_s;
    return none(err);
}

/* ---- devices --------------------------------------------------------------------------------- */

void tw_devices_look(struct tw_devices *devices) {
    memset(devices, 0, sizeof(*devices));
    (void)snprintf(
        devices->why_no_gpu, sizeof(devices->why_no_gpu),
        "this program was built without CUDA: install the package thinwire-cuda, or build it "
        "where nvcc is found");
}
