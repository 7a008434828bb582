/* engine.h - one node's model, optimizer and arithmetic: a GPT-2-family decoder on the CPU.
 *
 * Every per-parameter array (theta, gradient, m, v, and any `params` argument) has layout.elements
 * floats in layout.h order; padding is zero and stays zero. Single caller: an engine belongs to one
 * thread. With a fixed thread count and matmul backend the same inputs give the same bits. */
#ifndef TW_WORKER_ENGINE_H
#define TW_WORKER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/ops.h"
#include "proto/layout.h"
#include "proto/run.h"

struct tw_engine_memory; /* activations, engine_memory.c */

struct tw_engine_config {
    const struct tw_run *run;       /* borrowed, must outlive the engine */
    const struct tw_layout *layout; /* borrowed, must outlive the engine */
    uint32_t threads;               /* 0 = by model size, up to all cores; 1 = no pool at all */
    float *theta, *m, *v;           /* caller's arrays, or NULL: the engine allocates zeros */
};

struct tw_engine {
    const struct tw_run *run;
    const struct tw_layout *layout;
    float *theta;     /* live parameters; the owner may write them between steps */
    float *gradient;  /* of the last step, before clipping */
    float *m, *v;     /* AdamW moments */
    uint64_t updates; /* AdamW steps that made m and v: 0 when they are zero, saved with them */
    uint64_t skipped; /* steps whose gradient was not finite */
    uint32_t threads;
    struct tw_engine_memory *memory;
};

struct tw_step_result {
    float loss;      /* mean nats per token of the batch, before the update */
    float grad_norm; /* before clipping */
    bool is_skipped; /* gradient or loss not finite: theta, m, v unchanged */
};

/* What tw_engine_create allocates, in bytes, for the sentence printed before the start. Arrays the
 * caller gives are not counted. */
uint64_t tw_engine_bytes(const struct tw_engine_config *config);

/* Heap. TW_NOMEM names the size; TW_CONFIG when the family or the tokenizer is not built in.
 * theta is not initialised: see tw_engine_init_params. */
enum tw_status tw_engine_create(struct tw_engine **engine_out,
                                const struct tw_engine_config *config, struct tw_error *err);
void tw_engine_destroy(struct tw_engine *engine); /* NULL is fine */

/* Other arithmetic from the next step on, for tests and measurements. */
void tw_engine_use(struct tw_engine *engine, const struct tw_ops *ops, tw_matmul_fn *multiply);

/* "cpu, 1 thread, AVX-512, OpenBLAS" into text[size]. */
void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size);

/* GPT-2 initialisation from run->model.seed: N(0, 0.02), residual projections N(0, 0.02 /
 * sqrt(2 layers)), norm weights 1, biases 0. Bit-identical on every machine: integers and IEEE
 * + * / sqrt only. */
void tw_engine_init_params(const struct tw_run *run, const struct tw_layout *layout, float *params);

/* One inner step: forward, backward, clip, AdamW. tokens (batch, context + 1): row b predicts
 * tokens[b][1..context] from tokens[b][0..context-1]. TW_DATA when a token is outside the
 * vocabulary (nothing changed). A gradient that is not finite is no error: is_skipped. */
enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err);

/* Mean loss in nats per token of `params` on tokens (sequences_count, context + 1); any count.
 * Changes neither theta nor moments. TW_DATA as above. */
enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err);

/* Logits (vocab) that follow tokens (count), 1 <= count <= context, under `params`. */
enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err);

/* Inner learning rate at `clock_tokens` of the run clock: linear warm-up to lr, then a cosine to
 * lr * lr_final at the token budget, constant after it. */
float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens);

#endif
