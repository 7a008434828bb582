/* engine_memory.h - private state of an engine, shared by engine*.c and cuda/. */
#ifndef TW_WORKER_ENGINE_ENGINE_MEMORY_H
#define TW_WORKER_ENGINE_ENGINE_MEMORY_H

#include "worker/engine/cuda/gpu.h"
#include "worker/engine/engine.h"
#include "worker/engine/model.h"

/* A unit of optimizer work: a range of elements of one tensor. */
struct tw_engine_range {
    uint64_t begin, count;
    bool has_decay;
    bool is_muon; /* part of a matrix trained with Muon */
};

/* A matrix trained with Muon. */
struct tw_engine_matrix {
    uint64_t begin;
    uint32_t rows, cols, stride;
};

struct tw_engine_memory {
    /* NULL if the engine runs on the CPU. With a GPU, only the owned memory and `next` of the
       fields below are used */
    struct tw_gpu *gpu;
    struct tw_model model;
    struct tw_thread_pool *team;
    struct tw_profile *profile; /* tw_engine_profile; NULL: times are not measured */
    float *owned; /* theta, m and v, unless given by the caller; then the gradient, starting on its
                     own page */
    uint64_t owned_bytes;
    tw_engine_next *next; /* tw_engine_look_ahead; NULL: none */
    void *next_self;
    struct tw_engine_range *ranges;
    double *squares; /* squared norm of the gradient in each range (ranges_count) */
    uint32_t ranges_count;
    struct tw_engine_matrix *matrices; /* largest first; only if the run trains with Muon */
    uint32_t matrices_count;
    uint8_t *muon_scratch; /* muon_scratch_bytes for each thread */
    size_t muon_scratch_bytes;
    const float *held; /* parameters promised not to change (tw_engine_hold); NULL: none */
    bool has_held;     /* true if the model is already set to use `held` */
    uint64_t uses;     /* calls of tw_model_use; a cache compares the count to notice a change of
                          parameters */
};

/* Report whether the caller has asked to stop the current pass (tw_engine_watch). check_stop then
 * returns TW_AGAIN. */
bool tw_engine_is_stopped(const struct tw_engine *engine);
enum tw_status tw_engine_check_stop(const struct tw_engine *engine, struct tw_error *err);

/* Returns TW_DATA if a token is outside the vocabulary. */
enum tw_status tw_engine_check_tokens(const struct tw_engine *engine, const uint32_t *tokens,
                                      uint64_t count, struct tw_error *err);

/* The factor of a gradient, and the mean loss, where `scored` tokens count; 0 if none does. */
static inline float tw_engine_scale(uint64_t scored) {
    return scored == 0 ? 0.0f : 1.0f / (float)scored;
}

static inline double tw_engine_mean(double loss, uint64_t scored) {
    return scored == 0 ? loss : loss / (double)scored;
}

/* Helpers for plans:
 * - plan_sum adds up the uses of memory.
 * - plan_sequences returns the number of sequences to split into passes.
 * - plan_even returns the sequences per pass that split `batch` most evenly, `most` at most.
 * - plan_refuse fails with TW_NOMEM; its message shows the uses of memory as a table. */
void tw_engine_plan_sum(struct tw_engine_plan *plan, const struct tw_model_bytes *bytes);
uint32_t tw_engine_plan_sequences(const struct tw_engine_config *config);
uint32_t tw_engine_plan_even(uint32_t batch, uint64_t most);
enum tw_status tw_engine_plan_refuse(const struct tw_engine_plan *plan, bool is_learning,
                                     struct tw_error *err);

/* Lists the Muon matrices of a tensor and returns their number, 0 if AdamW trains the tensor. GPT-2
 * keeps q, k and v side by side in one tensor, which counts as three matrices. */
uint32_t tw_engine_matrices(const struct tw_run *run, const struct tw_tensor *tensor,
                            struct tw_engine_matrix matrices[3]);

/* Returns the AdamW settings of the next update, t = engine->updates + 1. The caller sets lr,
 * gradient_scale and decay. */
struct tw_adamw tw_engine_adamw(const struct tw_engine *engine);

#endif
