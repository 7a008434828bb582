/* profile.h - time by operator inside training steps on the CPU, for `thinwire train --profile`.
 *
 * Each thread has a stopwatch. It starts with a piece of work, and each lap adds the time since the
 * last lap to one operator. Time outside all pieces is waiting: for other threads at the end of a
 * phase, and between phases. */
#ifndef TW_WORKER_ENGINE_PROFILE_H
#define TW_WORKER_ENGINE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Kinds of time: identifier, name in JSON, name for people. The three products of a linear map
 * (forward, gradient of the input, gradient of the weight) follow each other. */
#define TW_PROFILE_EACH(X)                                                                         \
    X(QKV, "qkv", "q, k, v")                                                                       \
    X(QKV_DX, "qkv_dx", "q, k, v: input gradient")                                                 \
    X(QKV_DW, "qkv_dw", "q, k, v: weight gradient")                                                \
    X(OUT, "out", "attention output")                                                              \
    X(OUT_DX, "out_dx", "attention output: input gradient")                                        \
    X(OUT_DW, "out_dw", "attention output: weight gradient")                                       \
    X(UP, "up", "feed-forward up")                                                                 \
    X(UP_DX, "up_dx", "feed-forward up: input gradient")                                           \
    X(UP_DW, "up_dw", "feed-forward up: weight gradient")                                          \
    X(DOWN, "down", "feed-forward down")                                                           \
    X(DOWN_DX, "down_dx", "feed-forward down: input gradient")                                     \
    X(DOWN_DW, "down_dw", "feed-forward down: weight gradient")                                    \
    X(HEAD, "head", "head")                                                                        \
    X(HEAD_DX, "head_dx", "head: input gradient")                                                  \
    X(HEAD_DW, "head_dw", "head: weight gradient")                                                 \
    X(ATTENTION, "attention", "attention")                                                         \
    X(ATTENTION_BACKWARD, "attention_backward", "attention, backward")                             \
    X(CROSS_ENTROPY, "cross_entropy", "cross-entropy")                                             \
    X(NORM, "norm", "norms")                                                                       \
    X(NORM_BACKWARD, "norm_backward", "norms, backward")                                           \
    X(ACTIVATION, "activation", "activation (GELU or SwiGLU)")                                     \
    X(ACTIVATION_BACKWARD, "activation_backward", "activation, backward")                          \
    X(BIAS, "bias", "biases")                                                                      \
    X(BIAS_BACKWARD, "bias_backward", "biases, backward")                                          \
    X(ROTATION, "rotation", "rotary positions")                                                    \
    X(EMBEDDING, "embedding", "embedding")                                                         \
    X(COPY, "copy", "copies")                                                                      \
    X(PACK, "pack", "packing of weights")                                                          \
    X(GRADIENT_NORM, "gradient_norm", "norm of the gradient")                                      \
    X(OPTIMIZER, "optimizer", "optimizer")                                                         \
    X(WAITING, "waiting", "waiting of threads")

enum tw_profile_kind {
#define TW_PROFILE_ID(id, json, name) TW_PROFILE_##id,
    TW_PROFILE_EACH(TW_PROFILE_ID) TW_PROFILE_KINDS
#undef TW_PROFILE_ID
};

/* Offset from the kind of a linear map's forward product. */
enum tw_profile_product { TW_PROFILE_FORWARD, TW_PROFILE_DX, TW_PROFILE_DW };

struct tw_profile;

/* Creates a profile of `threads` threads. Errors: TW_NOMEM. destroy accepts NULL. */
enum tw_status tw_profile_create(struct tw_profile **profile, uint32_t threads,
                                 struct tw_error *err);
void tw_profile_destroy(struct tw_profile *profile);

/* Mark the begin and the end of a step, in the thread that runs the phases. The first step prepares
 * products and touches memory for the first time: the second step replaces its times. */
void tw_profile_step_begin(struct tw_profile *profile);
void tw_profile_step_end(struct tw_profile *profile);

/* Starts the stopwatch of a thread, which begins a piece of work. */
void tw_profile_start(struct tw_profile *profile, uint32_t thread);
/* Adds the time since the thread's last lap or start to `kind`. */
void tw_profile_lap(struct tw_profile *profile, uint32_t thread, enum tw_profile_kind kind);
/* The same for a part of a product with a weight (in, out): `flops` are the multiplications and
 * additions of the part. */
void tw_profile_lap_product(struct tw_profile *profile, uint32_t thread, enum tw_profile_kind kind,
                            double flops, uint32_t in, uint32_t out);

/* Mean times of a step. */
struct tw_profile_row {
    enum tw_profile_kind kind;
    double seconds;   /* mean over the threads: the rows of a step add up to its duration */
    double share;     /* of the step */
    double flops_s;   /* of the product, all threads together; 0: not a product */
    uint32_t in, out; /* shape of the product's weight */
};

/* Fills rows[TW_PROFILE_KINDS] with all kinds that took time, the longest first, and returns their
 * number; 0 without a whole step. *step_s is the mean duration of a step, *steps their number. */
uint32_t tw_profile_rows(const struct tw_profile *profile, struct tw_profile_row *rows,
                         double *step_s, uint64_t *steps);

/* Print the rows as a table, or as the members "steps_measured", "step_s", "threads" and
 * "operators" of a JSON object, without its braces. */
void tw_profile_print(FILE *out, const struct tw_profile *profile);
void tw_profile_print_json(FILE *out, const struct tw_profile *profile);

#endif
