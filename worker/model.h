/* model.h - forward and backward passes of the GPT-2 family: pre-norm blocks, causal attention,
 * GELU, learned positions, output head tied to the token embedding. Radford et al. 2019.
 *
 *     x = wte[token] + wpe[t]
 *     per layer:  x = x + proj(attention(qkv(norm1(x))));  x = x + down(gelu(up(norm2(x))))
 *     logits = norm_f(x) wte^T
 *
 * `rows` below is sequences * context of one pass; a batch is worked off in several passes so that
 * activations fit the caches (and memory). */
#ifndef TW_WORKER_MODEL_H
#define TW_WORKER_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/ops.h"
#include "proto/layout.h"
#include "proto/run.h"

enum {
    TW_MODEL_PIECE_ROWS = 64, /* rows that one thread takes at a time */
    TW_MODEL_HEAD_ROWS_MAX = 4096,
};

/* Where a pair of weight and bias lies in any per-parameter array, in elements. A linear map is y
 * (rows, out) = x (rows, in) weight (in, out) + bias; a norm has in = out = width. */
struct tw_model_pair {
    uint64_t weight, bias;
    uint32_t in, out;
};

struct tw_model_layer {
    struct tw_model_pair norm1, qkv, proj, norm2, up, down;
};

/* What a layer's forward pass leaves for its backward pass. */
struct tw_model_activations {
    float *input;                 /* (rows, width) */
    float *norm1, *mean1, *rstd1; /* (rows, width), (rows), (rows) */
    float *qkv;                   /* (rows, 3 width) */
    float *attention, *lse;       /* (rows, width), (rows, heads) */
    float *middle;                /* (rows, width): after the attention residual */
    float *norm2, *mean2, *rstd2;
    float *up, *gelu; /* (rows, 4 width) */
};

struct tw_model {
    uint32_t layers_count, width, heads, context, vocab;
    uint32_t sequences_max; /* of one pass */
    uint32_t threads;
    uint32_t head_rows; /* rows of logits held at a time */
    const struct tw_ops *ops;
    tw_matmul_fn *multiply;

    uint64_t wte, wpe; /* (vocab, width), (context, width) */
    struct tw_model_pair norm_pair;
    struct tw_model_layer *layers;            /* (layers_count) */
    struct tw_model_activations *activations; /* (layers_count) */
    float *output;                            /* (rows, width): after the last layer */
    float *norm, *mean, *rstd;                /* of the final norm */
    float *logits;                            /* (head_rows, vocab) */
    float *scratch;                           /* attention, (threads, scratch_count) */
    size_t scratch_count;
    float *dx, *dnorm; /* (rows, width) */
    float *dwide;      /* (rows, 4 width): of up, or of qkv */
    uint32_t *targets; /* (rows) */
    void *memory;      /* everything above in one block */
};

struct tw_model_batch {
    const uint32_t
        *tokens; /* (sequences, stride): stride >= context, + 1 where there are targets */
    uint32_t stride, sequences, context;
};

/* Bytes of the one block a model of `run` takes. */
uint64_t tw_model_bytes(const struct tw_run *run, uint32_t threads);

/* TW_NOMEM. `ops` and `multiply` stay as they are for the model's life. */
enum tw_status tw_model_init(struct tw_model *model, const struct tw_run *run,
                             const struct tw_layout *layout, uint32_t threads,
                             struct tw_error *err);
void tw_model_deinit(struct tw_model *model);

/* Activations of the batch under `params`, up to the final norm. sequences <= sequences_max,
 * context <= model->context, tokens < vocab. */
void tw_model_forward(struct tw_model *model, const float *params,
                      const struct tw_model_batch *batch);

/* After forward: sum of losses in nats over all rows. */
double tw_model_loss(struct tw_model *model, const float *params,
                     const struct tw_model_batch *batch);

/* After forward: the same sum, and gradient += the gradient of scale * sum. */
double tw_model_backward(struct tw_model *model, const float *params, float *gradient,
                         const struct tw_model_batch *batch, float scale);

/* After forward: logits (vocab) of the last row of the first sequence. */
void tw_model_last_logits(struct tw_model *model, const float *params,
                          const struct tw_model_batch *batch, float *logits);

#endif
