/* engine.h - one node's model, optimizer and arithmetic: GPT-2 and Llama families, on the CPU or a
 * GPU.
 *
 * Every per-parameter array (theta, gradient, m, v, and any `params` argument) has layout.elements
 * floats in layout.h order; padding is zero and stays zero. An engine belongs to one thread. The
 * same inputs give the same bits on one machine with any number of threads.
 *
 * All these arrays are host memory. On a device, the host arrays theta, gradient, m and v are
 * mirrors: call tw_engine_pull before reading them and tw_engine_push after writing them. On the
 * CPU both calls do nothing. Passing engine->theta as `params` means the live parameters as last
 * pushed or stepped, wherever they are. Any other `params` is read from host memory.
 *
 * In a run with data.documents = masked, steps and losses mask attention by document: a token sees
 * nothing before the last data.separator at or before it. Positions still count from the start of
 * the window. Logits are for a single text and are not masked. */
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
struct tw_profile;       /* profile.h */
struct tw_engine_memory; /* private state (model, thread pool, optimizer), defined in
                            engine_memory.h */

struct tw_engine_config {
    const struct tw_run *run;         /* borrowed, must outlive the engine */
    const struct tw_layout *layout;   /* borrowed, must outlive the engine */
    struct tw_compute_config compute; /* how to compute; a field of 0 means the best choice for this
                                         machine */
    bool is_inference;    /* no training: holds only theta and the activations of one layer */
    bool has_cache;       /* inference only: one key/value cache, and passes of one sequence */
    uint64_t sync_bytes;  /* learning only: device memory that the caller will allocate through
                             tw_engine_vectors; 0 without merging */
    float *theta, *m, *v; /* the caller's arrays; if NULL, the engine allocates its own, zeroed */
    enum tw_matmul_backend matmul; /* AUTO: the environment variable TW_MATMUL, else the fastest */
    /* CPU operators; NULL: those that the environment variable TW_OPS names, else the fastest.
     * Their data type overrides compute.compute. If ops or matmul is set, device AUTO means the CPU
     */
    const struct tw_ops *ops;
};

/* Memory that an engine needs, in bytes by use. Arrays given by the caller are not counted. */
struct tw_engine_plan {
    uint64_t parameters, gradients, optimizer; /* float32, 4 bytes each */
    uint64_t weights;                          /* weight matrices converted to the format that GEMMs
                                                  need */
    uint64_t activations, logits;              /* sizes for one pass */
    uint64_t cache;                            /* keys and values of one sequence, if has_cache */
    uint64_t sync; /* device only: in-flight outer gradients and the anchor */
    uint64_t total;
    uint64_t limit;       /* compute.memory_bytes, or what the system has available */
    uint32_t micro_batch; /* sequences per pass */
    uint32_t threads;
    enum tw_type type; /* data type of activations and of GEMM inputs */
    bool is_recomputed;
    bool keeps_attention; /* device only, if is_recomputed: attention's outputs are kept */
    /* device only, unless is_recomputed: outputs of norms and activation functions are kept */
    bool keeps_outputs;
    bool is_on_gpu;           /* all the memory above is on a device */
    uint64_t mirrors;         /* bytes of the host mirrors if is_on_gpu; not counted in `total` */
    bool is_pinned;           /* mirrors are page-locked if the system allows it */
    uint32_t ordinal;         /* device number */
    char device[64];          /* device name */
    const struct tw_ops *ops; /* CPU operators; NULL on a device */
    const struct tw_matmul_library *library; /* CPU matrix library; NULL on a device */
};

/* Sets of arrays. */
enum tw_engine_array {
    TW_ENGINE_THETA = 1,
    TW_ENGINE_M = 2,
    TW_ENGINE_V = 4,
    TW_ENGINE_GRADIENT = 8,
    TW_ENGINE_STATE = TW_ENGINE_THETA | TW_ENGINE_M | TW_ENGINE_V, /* everything a step changes */
};

struct tw_engine {
    const struct tw_run *run;
    const struct tw_layout *layout;
    struct tw_engine_plan plan;
    float *theta;     /* live parameters; the owner may write them between steps, then push */
    float *gradient;  /* gradient of the last step, before clipping. gradient, m and v are NULL if
                         is_inference */
    float *m, *v;     /* AdamW moments; for a Muon matrix, m is its momentum and v stays zero */
    uint64_t updates; /* optimizer steps accumulated in m and v, saved with them; 0 while m and v
                         are zero */
    uint64_t skipped; /* steps whose gradient was not finite */
    const _Atomic bool *stop; /* tw_engine_watch */
    struct tw_engine_memory *memory;
};

struct tw_step_result {
    float loss; /* mean loss of the batch in nats per token, before the update, without z-loss */
    float grad_norm; /* gradient norm before clipping */
    bool is_skipped; /* true if the gradient or loss was not finite: theta, m and v are then
                        unchanged */
};

/* Fills *plan. With compute.device = AUTO, the environment variable TW_DEVICE decides, else a
 * usable device. Errors: TW_NOMEM, with a table of sizes, if the plan exceeds the limit (*plan is
 * filled too); TW_CONFIG if `compute` asks for something unavailable, or from tw_run_check_engine;
 * TW_DEVICE. */
enum tw_status tw_engine_plan_make(struct tw_engine_plan *plan,
                                   const struct tw_engine_config *config, struct tw_error *err);

/* Creates an engine on the heap. Plans first, and returns the errors of tw_engine_plan_make before
 * it allocates anything large. Also returns TW_NOMEM if the system refuses memory. theta is not
 * initialised: see tw_engine_init_params. */
enum tw_status tw_engine_create(struct tw_engine **engine_out,
                                const struct tw_engine_config *config, struct tw_error *err);
void tw_engine_destroy(struct tw_engine *engine); /* NULL is allowed */

/* Copy elements [begin, begin + n) of the given arrays (a set of enum tw_engine_array). pull copies
 * from the device to the mirrors, push from the mirrors to the device. With is_inference, only
 * theta exists.
 *
 * The gradient can be pulled but not pushed. It stays that of the last step until a loss or logits
 * call with parameters other than theta overwrites it.
 *
 * On the CPU, both do nothing and cannot fail. On a device, both can return TW_DEVICE. */
enum tw_status tw_engine_pull(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err);
enum tw_status tw_engine_push(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err);

/* For an engine that learns on a device: fills *vectors with access to the live theta, m and v, and
 * with the arithmetic of merging on them. *vectors is valid until the engine is destroyed. Errors:
 * TW_NOMEM, TW_DEVICE. */
enum tw_status tw_engine_vectors(struct tw_engine *engine, struct tw_vectors *vectors,
                                 struct tw_error *err);

/* Writes a description such as "cpu, 2 threads, AVX-512, bf16, oneDNN" or "cuda:0, NVIDIA H100,
 * bf16" into text[size]. */
void tw_engine_plan_describe(const struct tw_engine_plan *plan, char *text, size_t size);
void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size);

/* Measures the GEMM rate on the plan's threads or device, in floating-point operations per second.
 * On the CPU it uses peak.h, on a device one large GEMM. Takes some tenths of a second. Errors:
 * TW_NOMEM, TW_DEVICE. */
enum tw_status tw_engine_peak(const struct tw_engine_plan *plan, double *flops_s,
                              struct tw_error *err);

/* Begins to measure the times of steps by operator. *profile is valid until the engine is
 * destroyed. Errors: TW_CONFIG on a device, TW_NOMEM. */
enum tw_status tw_engine_profile(struct tw_engine *engine, const struct tw_profile **profile,
                                 struct tw_error *err);

/* Returns the multiplications and additions of a training step per token, for model FLOPs
 * utilisation (MFU):
 *
 *     6 * (elements of the layers' matrices + vocab * width) + 6 * layers * q_width * (context + 1)
 *
 * Each element costs 2 operations forward and 4 backward. Attention is two matrix products over
 * half the context on average; document masks are ignored. Repeated work (recompute, attention's
 * backward pass) does not count. */
uint64_t tw_engine_flops_token(const struct tw_run *run);

/* Initialises params from run->model.seed as GPT-2 does: matrices N(0, 0.02), matrices whose output
 * is added to the residual stream N(0, 0.02 / sqrt(2 * layers)), norm weights 1, biases 0.
 * Bit-identical on every machine: integers and IEEE + * / sqrt only. */
void tw_engine_init_params(const struct tw_run *run, const struct tw_layout *layout, float *params);

/* Lets another thread stop a call: once *stop is true, tw_engine_step and tw_engine_loss end early
 * with TW_AGAIN, and theta, m, v and their counters are as before the call. The CPU stops within
 * milliseconds, a device after the passes already queued. An update that has begun is completed.
 * `stop` is borrowed; NULL: calls are never stopped. */
void tw_engine_watch(struct tw_engine *engine, const _Atomic bool *stop);

/* Returns the number of targets in tokens (sequences_count, context + 1) whose loss counts: those
 * without the bit TW_TOKEN_UNSCORED. */
uint64_t tw_engine_scored(const struct tw_engine *engine, const uint32_t *tokens,
                          uint32_t sequences_count);

/* One inner step: forward, backward, clip, update. tokens (batch, context + 1): row b predicts
 * tokens[b][1..context] from tokens[b][0..context-1]. Tokens with the bit TW_TOKEN_UNSCORED are
 * seen but not learned; if all have it, the loss and the gradient are 0. Returns TW_DATA, with
 * nothing changed, if a token is outside the vocabulary. A gradient that is not finite is no error:
 * it sets is_skipped.
 */
enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err);

/* Returns the batch that the next step will most likely train on, as tokens of tw_engine_step,
 * which stay unchanged until that step begins; NULL: unknown. Must not call the engine. */
typedef const uint32_t *tw_engine_next(void *self);

/* Sets the function that a step on a device calls once its update is queued. The inputs of the
 * returned batch are brought to the device before the step waits for its loss, so that the device
 * does not idle before the next step. A next step with another batch, and calls in between, have
 * the same results. It is not called on the CPU, nor after a stop (tw_engine_watch). NULL: no look
 * ahead. */
void tw_engine_look_ahead(struct tw_engine *engine, tw_engine_next *next, void *self);

/* Computes the mean loss of `params` in nats per scored token on tokens (sequences_count, context +
 * 1), for any number of sequences; 0 if no token is scored. Changes neither theta nor the moments.
 * Returns TW_DATA if a token is outside the vocabulary. */
enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err);

/* Promises that `params` will not change until the next call of this function. Device copies and
 * packed matrices derived from `params` are then made once, on first use. NULL ends the promise. If
 * `params` is theta, no step is allowed until the promise ends. */
void tw_engine_hold(struct tw_engine *engine, const float *params);

/* Computes the logits (vocab) of the token that follows tokens (count), 1 <= count <= context,
 * under `params`. */
enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err);

/* Computes logits (count, vocab): row i is for the token after tokens[i]. */
enum tw_status tw_engine_logits_all(struct tw_engine *engine, const float *params,
                                    const uint32_t *tokens, uint32_t count, float *logits,
                                    struct tw_error *err);

/* ---- token by token -------------------------------------------------------------------------- */

struct tw_engine_cache; /* keys and values of one sequence so far */

/* Creates a key/value cache for sequences under `params`, which must stay valid and unchanged while
 * the cache is used. The cache borrows the engine. Errors: TW_NOMEM. */
enum tw_status tw_engine_cache_create(struct tw_engine_cache **cache, struct tw_engine *engine,
                                      const float *params, struct tw_error *err);
void tw_engine_cache_destroy(struct tw_engine_cache *cache); /* NULL is allowed */

/* Appends tokens (count >= 1) in one pass and returns the logits (vocab) of the token after the
 * last one. Errors: TW_LIMIT if the sequence would exceed the context (nothing changed); TW_DATA.
 */
enum tw_status tw_engine_cache_extend(struct tw_engine_cache *cache, const uint32_t *tokens,
                                      uint32_t count, float *logits, struct tw_error *err);

/* Returns the bytes of a cache that holds a whole context. */
uint64_t tw_engine_cache_bytes(const struct tw_engine *engine);
uint32_t tw_engine_cache_used(const struct tw_engine_cache *cache); /* tokens in the cache */
void tw_engine_cache_clear(struct tw_engine_cache *cache);          /* back to an empty sequence */

/* ---- schedule -------------------------------------------------------------------------------- */

/* Inner learning rate at `clock_tokens` of the run clock: linear warm-up to lr, then the run's
 * schedule (schedule.c) down to lr * lr_final at the token budget, constant after it.
 *
 * `updates` is the optimizer's step count (engine->updates). An optimizer that starts with zero
 * moments in the middle of a run, such as a joiner's, warms up too. */
float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens, uint64_t updates);

#endif
