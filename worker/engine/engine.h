/* engine.h - one node's model, optimizer and arithmetic: GPT-2 and Llama families, on the CPU or on
 * a device.
 *
 * Every per-parameter array (theta, gradient, m, v, and any `params` argument) has layout.elements
 * floats in layout.h order; padding is zero and stays zero. Single caller: an engine belongs to one
 * thread. The same inputs give the same bits on one machine with any number of threads.
 *
 * All of them are host memory. On a device theta, gradient, m and v are mirrors of what the device
 * has: tw_engine_pull before they are read, tw_engine_push after they were written. On the CPU both
 * do nothing. engine->theta as `params` means the live parameters, wherever they are, as they were
 * pushed or stepped last; any other `params` is read where it lies.
 *
 * In a run with data.documents = masked, tokens of steps and losses see nothing before the last
 * data.separator at or before them; their positions stay those of the window. Logits, which are of
 * one text, see all of it. */
#ifndef TW_WORKER_ENGINE_ENGINE_H
#define TW_WORKER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "proto/compute.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"

struct tw_vectors;       /* vectors.h */
struct tw_engine_memory; /* model, team and optimizer: engine_memory.h */

struct tw_engine_config {
    const struct tw_run *run;         /* borrowed, must outlive the engine */
    const struct tw_layout *layout;   /* borrowed, must outlive the engine */
    struct tw_compute_config compute; /* zeros: everything as is best here */
    bool is_inference;                /* never steps: theta alone, one layer's activations */
    bool has_cache;                   /* of inference: one cache, and passes of one sequence */
    uint64_t sync_bytes;              /* of learning: what the caller will take of a device's memory
                                         by tw_engine_vectors; 0: it does not sync */
    float *theta, *m, *v;             /* caller's arrays, or NULL: the engine allocates zeros */
    enum tw_matmul_backend matmul;    /* AUTO: the environment's TW_MATMUL, else the fastest */
    const struct tw_ops *ops;         /* NULL: the fastest; its type overrules compute.compute. With
                                         either of these AUTO means the CPU */
};

/* What an engine would take, in bytes by use. Arrays the caller gives are not counted. */
struct tw_engine_plan {
    uint64_t parameters, gradients, optimizer; /* float32, 4 bytes each */
    uint64_t weights;                          /* matrices in the form products want them */
    uint64_t activations, logits;              /* of one pass */
    uint64_t cache;                            /* keys and values of one sequence; has_cache */
    uint64_t sync;                             /* of a device: what was sent, the anchor */
    uint64_t total;
    uint64_t limit;       /* compute.memory_bytes, or what the system has available */
    uint32_t micro_batch; /* sequences of one pass */
    uint32_t threads;
    enum tw_type type; /* of activations and products */
    bool is_recomputed;
    bool is_on_gpu;                          /* all of the above lies on a device, but mirrors */
    uint64_t mirrors;                        /* on the host then, not in total */
    bool is_pinned;                          /* mirrors are page-locked, if the system lets us */
    uint32_t ordinal;                        /* of the device */
    char device[64];                         /* its name */
    const struct tw_ops *ops;                /* of the CPU; NULL on a device */
    const struct tw_matmul_library *library; /* likewise */
};

/* Sets of arrays. */
enum tw_engine_array {
    TW_ENGINE_THETA = 1,
    TW_ENGINE_M = 2,
    TW_ENGINE_V = 4,
    TW_ENGINE_GRADIENT = 8,
    TW_ENGINE_STATE = TW_ENGINE_THETA | TW_ENGINE_M | TW_ENGINE_V, /* what a step changes */
};

struct tw_engine {
    const struct tw_run *run;
    const struct tw_layout *layout;
    struct tw_engine_plan plan;
    float *theta;     /* live parameters; the owner may write them between steps, and pushes */
    float *gradient;  /* of the last step, before clipping; NULL with is_inference, and so m, v */
    float *m, *v;     /* AdamW moments; for a matrix that Muon trains m is its momentum, v zero */
    uint64_t updates; /* steps that made m and v: 0 when they are zero, saved with them */
    uint64_t skipped; /* steps whose gradient was not finite */
    struct tw_engine_memory *memory;
};

struct tw_step_result {
    float loss;      /* mean nats per token of the batch, before the update, without z-loss */
    float grad_norm; /* before clipping */
    bool is_skipped; /* gradient or loss not finite: theta, m, v unchanged */
};

/* Fills *plan. compute.device = AUTO is the environment's TW_DEVICE, else a device if one can be
 * used. TW_NOMEM with a sentence of numbers when it does not fit the limit (*plan is then filled
 * too); TW_CONFIG when compute asks for what is not there; TW_DEVICE. */
enum tw_status tw_engine_plan_make(struct tw_engine_plan *plan,
                                   const struct tw_engine_config *config, struct tw_error *err);

/* Heap. As tw_engine_plan_make, before anything large is allocated; TW_NOMEM also when the system
 * refuses. theta is not initialised: see tw_engine_init_params. */
enum tw_status tw_engine_create(struct tw_engine **engine_out,
                                const struct tw_engine_config *config, struct tw_error *err);
void tw_engine_destroy(struct tw_engine *engine); /* NULL is fine */

/* Brings elements [begin, begin + n) of these arrays (enum tw_engine_array) from the device to the
 * mirrors, or from the mirrors to the device. Of an engine with is_inference: theta alone. The
 * gradient is pulled, never pushed, and is that of the last step until the next loss or logits of
 * other parameters than theta. TW_DEVICE; on the CPU nothing is done and nothing can fail. */
enum tw_status tw_engine_pull(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err);
enum tw_status tw_engine_push(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err);

/* The live theta, m and v, and the arithmetic of a sync on them, of an engine that learns on a
 * device: until it is destroyed. TW_NOMEM, TW_DEVICE. */
enum tw_status tw_engine_vectors(struct tw_engine *engine, struct tw_vectors *vectors,
                                 struct tw_error *err);

/* "cpu, 2 threads, AVX-512, bf16, oneDNN" or "cuda:0, NVIDIA H100, bf16" into text[size]. */
void tw_engine_plan_describe(const struct tw_engine_plan *plan, char *text, size_t size);
void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size);

/* What matrix products alone reach where this plan computes, in operations per second: peak.h, or
 * one large product on the device. Takes some tenths of a second. TW_NOMEM, TW_DEVICE. */
enum tw_status tw_engine_peak(const struct tw_engine_plan *plan, double *flops_s,
                              struct tw_error *err);

/* Multiplications and additions of a training step per token: for the share of the machine's peak
 * that is used (MFU).
 *
 *     6 (elements of the layers' matrices + vocab width) + 6 layers q_width (context + 1)
 *
 * 2 per element forward and 4 backward; attention sees half its context on average, in two
 * products, whatever a mask hides. Work done again (recompute, attention's backward pass) does not
 * count. */
uint64_t tw_engine_flops_token(const struct tw_run *run);

/* Initialisation from run->model.seed as GPT-2's: matrices N(0, 0.02), those added to the residual
 * stream N(0, 0.02 / sqrt(2 layers)), norm weights 1, biases 0. Bit-identical on every machine:
 * integers and IEEE + * / sqrt only. */
void tw_engine_init_params(const struct tw_run *run, const struct tw_layout *layout, float *params);

/* One inner step: forward, backward, clip, update. tokens (batch, context + 1): row b predicts
 * tokens[b][1..context] from tokens[b][0..context-1]. TW_DATA when a token is outside the
 * vocabulary (nothing changed). A gradient that is not finite is no error: is_skipped. */
enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err);

/* Mean loss in nats per token of `params` on tokens (sequences_count, context + 1); any count.
 * Changes neither theta nor moments. TW_DATA as above. */
enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err);

/* Until the next call nobody changes `params`: what is made of them for passes (copies on a device,
 * matrices in the form products want them) is made once, by the first that uses them. NULL: no
 * more. No step while theta is held. */
void tw_engine_hold(struct tw_engine *engine, const float *params);

/* Logits (vocab) that follow tokens (count), 1 <= count <= context, under `params`. */
enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err);

/* Logits (count, vocab) that follow each of tokens (count). */
enum tw_status tw_engine_logits_all(struct tw_engine *engine, const float *params,
                                    const uint32_t *tokens, uint32_t count, float *logits,
                                    struct tw_error *err);

/* ---- token by token ------------------------------------------------------------------------ */

struct tw_engine_cache; /* keys and values of one sequence so far */

/* For sequences under `params`, which must stay and not change while the cache is used. Borrows the
 * engine. TW_NOMEM. */
enum tw_status tw_engine_cache_create(struct tw_engine_cache **cache, struct tw_engine *engine,
                                      const float *params, struct tw_error *err);
void tw_engine_cache_destroy(struct tw_engine_cache *cache); /* NULL is fine */

/* Appends tokens (count >= 1), all at once, and gives the logits (vocab) that follow the last.
 * TW_LIMIT when the sequence would be longer than the context (nothing changed), TW_DATA. */
enum tw_status tw_engine_cache_extend(struct tw_engine_cache *cache, const uint32_t *tokens,
                                      uint32_t count, float *logits, struct tw_error *err);

uint32_t tw_engine_cache_used(const struct tw_engine_cache *cache); /* tokens so far */
void tw_engine_cache_clear(struct tw_engine_cache *cache);          /* of an empty sequence again */

/* ---- schedule ------------------------------------------------------------------------------ */

/* Inner learning rate at `clock_tokens` of the run clock: linear warm-up to lr, then by the run's
 * schedule (schedule.c) to lr * lr_final at the token budget, constant after it. `updates` are the
 * optimizer's steps so far (engine->updates): one that begins anew in the middle of a run, as a
 * joiner's does, warms up too. */
float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens, uint64_t updates);

#endif
