/* model.h - forward and backward passes of a decoder: pre-norm blocks with causal attention.
 *
 *     x = tokens[token] (+ positions[t])
 *     per layer:  x = x + out(attention(qkv(norm1(x))));  x = x + down(act(up(norm2(x))))
 *     logits = norm_f(x) head^T
 *
 * Two families, told apart by struct tw_model_shape alone: GPT-2 (Radford et al. 2019: LayerNorm,
 * learned positions, biases, GELU) and Llama (arXiv 2302.13971: RMSNorm, rotary positions, shared
 * key/value heads, SwiGLU).
 *
 * Everything but attention and the gradients of weights is independent per row, so a pass is a list
 * of phases over the team: blocks of TW_MATMUL_ROWS rows go through all operations between two
 * attentions while they are in the cache; attention goes by sequence and key/value head (and within
 * that by document, where a mask hides them from each other); gradients of weights go by tiles. How
 * a phase is cut depends on the shapes alone and nothing is summed across pieces but in a fixed
 * order, so results do not depend on the number of threads.
 *
 * Activations are of one type, float32 or bf16; `rows` is sequences * context of one pass. */
#ifndef TW_WORKER_ENGINE_MODEL_H
#define TW_WORKER_ENGINE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/support/thread_pool.h"

#define TW_MODEL_NONE UINT64_MAX /* the offset of a tensor the model does not have */

/* Sizes, and what differs between the families. */
struct tw_model_shape {
    uint32_t layers, width, context, vocab;
    uint32_t heads, kv_heads, group, head_size;
    uint32_t q_width, kv_width, qkv_width;
    uint32_t ffn, up_width; /* out of and into the activation: up_width is 2 ffn for gate | up */
    float eps;
    bool is_rms, has_rope, is_gated, has_qk_norm, is_tied;
    enum tw_matmul_form form; /* of the layers' matrices: NN (in, out), NT (out, in) */
};

/* y (rows, out) = x (rows, in) W + bias. Offsets are in elements of any per-parameter array. */
struct tw_model_linear {
    uint32_t in, out;
    enum tw_matmul_form form;
    uint64_t weight, bias; /* bias may be TW_MODEL_NONE */
    struct tw_weight forward,
        backward; /* backward: dx = dy W^T; not in a model that never learns */
};

struct tw_model_norm {
    uint64_t weight, bias; /* bias may be TW_MODEL_NONE */
};

struct tw_model_layer {
    struct tw_model_norm norm1, norm2, q_norm, k_norm; /* the last two only with QK-norm */
    struct tw_model_linear qkv, out, up, down;
};

/* What a layer's forward pass leaves for its backward pass. Elements per row, of the activations'
 * type: qkv_width + q_width + width + up_width (+ q_width + kv_width with QK-norm), and float32:
 * 4 + heads (+ 2 (heads + kv_heads)). With recompute there is one of these for all layers. */
struct tw_model_slot {
    void *qkv;       /* (rows, qkv_width): q | k | v, after QK-norm and rotation */
    void *qk;        /* (rows, q_width + kv_width): before QK-norm; NULL without */
    void *attention; /* (rows, q_width) */
    void *middle;    /* (rows, width): residual stream after attention */
    void *up;        /* (rows, up_width) */
    float *stats1, *stats2, *qk_stats; /* (rows, 2), (rows, 2), (rows, heads + kv_heads, 2) */
    float *lse;                        /* (sequences, heads, context) */
};

struct tw_model_config {
    const struct tw_run *run;
    const struct tw_layout *layout;
    enum tw_type type;
    const struct tw_ops *ops; /* of that type */
    const struct tw_matmul_library *library;
    uint32_t threads;
    uint32_t sequences; /* of one pass at most */
    bool is_recomputed; /* layers keep their input alone and are run again in the backward pass */
    bool is_learning;   /* there will be backward passes */
};

/* Bytes by use. */
struct tw_model_bytes {
    uint64_t weights;     /* packed copies */
    uint64_t activations; /* of one pass, with the buffers of its backward pass */
    uint64_t logits;
};

struct tw_model {
    struct tw_model_config config;
    struct tw_model_shape shape;
    const struct tw_ops *ops;
    struct tw_thread_pool *team;        /* borrowed */
    struct tw_multiplier **multipliers; /* (threads) */

    uint64_t tokens, positions; /* offsets: (vocab, width), (context, width) or TW_MODEL_NONE */
    struct tw_model_norm norm_f;
    struct tw_model_linear head;   /* form NT of (vocab, width): the token table where tied */
    struct tw_model_layer *layers; /* (layers) */
    const float *params;           /* in use */
    struct tw_weight **weights;    /* those with a packed copy: at most 8 layers + 2 */
    uint32_t weights_count;

    struct tw_model_slot *slots; /* (slots_count): layer l has slot l % slots_count */
    uint32_t slots_count;
    void **x;         /* (layers + 1): (rows, width) each: input of every layer, and output */
    void *norm;       /* (rows, width): output of the last norm */
    float *stats_f;   /* (rows, 2) */
    float *cos, *sin; /* (context, head_size / 2); NULL without rotation */

    float *logits; /* (head_rows, logits_stride) */
    void *dlogits; /* (head_rows, logits_stride), zeros past vocab; logits themselves if float32 */
    uint32_t head_rows;
    uint32_t logits_stride;
    double *losses;    /* one per piece of a chunk of rows, so that their sum has one order */
    uint32_t *targets; /* (rows) */

    void *scratch; /* (threads, scratch_bytes) */
    size_t scratch_bytes;

    /* Backward pass, one layer at a time. */
    void *dx[2];         /* (rows, width): residual stream, by turns */
    void *dnorm;         /* (rows, width): of the last norm */
    void *norm1, *norm2; /* (rows, width): computed again */
    void *act, *dup;     /* (rows, ffn), (rows, up_width) */
    void *dattention;    /* (rows, q_width) */
    void *dqkv[2];       /* (rows, qkv_width): by turns */
    void *dqk;           /* (rows, q_width + kv_width): with QK-norm only */
    float *partial[2];   /* (blocks of rows, 2 width + 2 head_size): norm weights, by block */

    void *memory; /* everything above in one block */
    uint64_t memory_bytes;
};

/* Keys and values of one sequence, layer after layer: (layers, context, 2 kv_width). */
struct tw_model_cache {
    void *kv;
    uint32_t used; /* positions filled */
};

struct tw_model_batch {
    const uint32_t
        *tokens; /* (sequences, stride): stride >= context, + 1 where there are targets */
    uint32_t stride, sequences, context;
    struct tw_model_cache *cache; /* NULL, or one sequence that continues this */
    bool is_masked;               /* without a cache: attention sees nothing before the last
                                     `separator` at or before the row */
    uint32_t separator;           /* the token a document begins with */
};

struct tw_model_learn {
    float *gradient; /* (elements): added to, or with is_first overwritten where there is a weight
                        and otherwise added to: give zeros */
    float scale, z_loss; /* of the sum of losses */
    bool is_first;
};

/* What tw_model_init would take. TW_NOMEM. */
enum tw_status tw_model_measure(struct tw_model_bytes *bytes, const struct tw_model_config *config,
                                struct tw_error *err);

/* TW_NOMEM. `team` has config->threads threads. */
enum tw_status tw_model_init(struct tw_model *model, const struct tw_model_config *config,
                             struct tw_thread_pool *team, struct tw_error *err);
void tw_model_deinit(struct tw_model *model);

/* Zeros what tw_model_backward does not overwrite when is_first. */
void tw_model_clear(const struct tw_model *model, float *gradient);

/* Makes the passes that follow use these parameters (elements) as they are now; they must stay
 * until the last of these passes. */
void tw_model_use(struct tw_model *model, const float *params);

/* Activations of the batch up to the last norm. sequences <= config.sequences, context <=
 * shape.context (with a cache: its used + context), tokens < vocab. With a cache, appends to it. */
void tw_model_forward(struct tw_model *model, const struct tw_model_batch *batch);

/* After forward: sum of losses in nats over all rows. */
double tw_model_loss(struct tw_model *model, const struct tw_model_batch *batch);

/* After forward: the same sum, and the gradient of scale * (sum + z_loss sum lse^2). */
double tw_model_backward(struct tw_model *model, const struct tw_model_batch *batch,
                         const struct tw_model_learn *learn);

/* After forward: logits (count, vocab) of rows [first, first + count) of the batch. */
void tw_model_logits(struct tw_model *model, uint32_t first, uint32_t count, float *logits);

/* Bytes of the keys and values of one sequence. */
uint64_t tw_model_cache_bytes(const struct tw_run *run, enum tw_type type);

#endif
