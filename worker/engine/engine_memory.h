/* engine_memory.h - inside engine*.c: what an engine owns. */
#ifndef TW_WORKER_ENGINE_ENGINE_MEMORY_H
#define TW_WORKER_ENGINE_ENGINE_MEMORY_H

#include "worker/engine/cuda/gpu.h"
#include "worker/engine/engine.h"
#include "worker/engine/model.h"

/* A piece of the optimizer's work: elements of one tensor. */
struct tw_engine_range {
    uint64_t begin, count;
    bool has_decay;
    bool is_muon; /* part of a matrix below */
};

/* A matrix that Muon trains. */
struct tw_engine_matrix {
    uint64_t begin;
    uint32_t rows, cols, stride;
};

struct tw_engine_memory {
    struct tw_gpu *gpu; /* NULL: on the CPU. Of what follows it has `owned` alone */
    struct tw_model model;
    struct tw_thread_pool *team;
    float *owned; /* those of theta, m, v that the caller did not give; then, from a page of its
                     own, the gradient */
    uint64_t owned_bytes;
    struct tw_engine_range *ranges;
    double *squares; /* (ranges_count) */
    uint32_t ranges_count;
    struct tw_engine_matrix *matrices; /* largest first; of a run that trains with Muon */
    uint32_t matrices_count;
    uint8_t *muon_scratch; /* (threads, muon_scratch_bytes) */
    size_t muon_scratch_bytes;
    const float *held; /* parameters that do not change; NULL: none */
    bool has_held;     /* they are those the model has */
    uint64_t uses; /* how often the model was given parameters: a cache sees that it has to again */
};

/* ranges and matrices of the run's optimizer. TW_NOMEM. */
enum tw_status tw_engine_optimizer_init(struct tw_engine *engine, struct tw_error *err);
void tw_engine_optimizer_deinit(struct tw_engine *engine);

/* Bytes of one thread's scratch for Muon; 0 when the run trains without. */
size_t tw_engine_muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
                            enum tw_type type);

/* Norm of the whole gradient, in double; not finite if an element is not. */
double tw_engine_gradient_norm(struct tw_engine *engine);

/* theta, m, v from the gradient, whose norm is given for clipping. */
void tw_engine_update(struct tw_engine *engine, float lr, double norm);

/* Makes the model use params as they are now. */
void tw_engine_use(struct tw_engine *engine, const float *params);

/* TW_DATA when a token is outside the vocabulary. */
enum tw_status tw_engine_check_tokens(const struct tw_engine *engine, const uint32_t *tokens,
                                      uint64_t count, struct tw_error *err);

/* What the configuration asks for: table and library. TW_CONFIG. */
enum tw_status tw_engine_choose(const struct tw_engine_config *config, const struct tw_ops **ops,
                                const struct tw_matmul_library **library, struct tw_error *err);

/* For plans: sums the uses up; sequences that passes are made of, of at most `most` and all of one
 * size; refuses what does not fit, as a table of uses. TW_NOMEM. */
void tw_engine_plan_sum(struct tw_engine_plan *plan, const struct tw_model_bytes *bytes);
uint32_t tw_engine_plan_sequences(const struct tw_engine_config *config);
uint32_t tw_engine_plan_even(uint32_t batch, uint64_t most);
enum tw_status tw_engine_plan_refuse(const struct tw_engine_plan *plan, bool is_learning,
                                     struct tw_error *err);

/* The matrices of a tensor that Muon trains: GPT-2 keeps q, k and v side by side in one, which are
 * three. Returns how many, 0 where AdamW trains it. */
uint32_t tw_engine_matrices(const struct tw_run *run, const struct tw_tensor *tensor,
                            struct tw_engine_matrix matrices[3]);

/* AdamW of the next update, t = engine->updates + 1, but for lr, gradient_scale and decay. */
struct tw_adamw tw_engine_adamw(const struct tw_engine *engine);

/* The model's part of the configuration. */
struct tw_model_config tw_engine_model_config(const struct tw_engine_config *config,
                                              const struct tw_engine_plan *plan,
                                              const struct tw_ops *ops,
                                              const struct tw_matmul_library *library);

#endif
