/* model.h - forward and backward passes of a decoder: pre-norm blocks with causal attention.
 *
 *     x = tokens[token] (+ positions[t])
 *     per layer:  x = x + out(attention(qkv(norm1(x))));  x = x + down(act(up(norm2(x))))
 *     logits = norm_f(x) * head^T
 *
 * Two families, which differ only in struct tw_model_shape: GPT-2 (Radford et al. 2019: LayerNorm,
 * learned positions, biases, GELU) and Llama (arXiv 2302.13971: RMSNorm, rotary positions, shared
 * key/value heads, SwiGLU).
 *
 * All operations except attention and weight gradients are independent per row. A pass is therefore
 * a list of phases, each split into pieces for the thread pool:
 * - a block of TW_MATMUL_ROWS rows goes through all operations between two attentions while it is
 *   in the cache;
 * - attention is split by sequence and key/value head, and by document if documents are masked;
 * - weight gradients are split into tiles.
 *
 * The split depends on shapes alone, and sums across pieces have a fixed order. Results therefore
 * do not depend on the number of threads.
 *
 * Activations have one type, float32 or bf16. `rows` is sequences * context of one pass. */
#ifndef TW_WORKER_ENGINE_MODEL_H
#define TW_WORKER_ENGINE_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/engine/profile.h"
#include "worker/support/thread_pool.h"

#define TW_MODEL_NONE UINT64_MAX /* offset of a tensor that the model does not have */

/* Sizes, and the differences between the families. */
struct tw_model_shape {
    uint32_t layers, width, context, vocab;
    uint32_t heads, kv_heads, group, head_size;
    uint32_t q_width, kv_width, qkv_width;
    uint32_t ffn, up_width; /* feed-forward width after and before the activation; up_width = 2 *
                               ffn for gate | up */
    float eps;
    bool is_rms, has_rope, is_gated, has_qk_norm, is_tied;
    enum tw_matmul_form form; /* layout of the layers' matrices: NN (in, out), NT (out, in) */
};

/* A linear map y (rows, out) = x (rows, in) * W + bias. Offsets are in elements and valid for every
 * per-parameter array. */
struct tw_model_linear {
    uint32_t in, out;
    enum tw_matmul_form form;
    uint64_t weight, bias;              /* bias may be TW_MODEL_NONE */
    struct tw_weight forward, backward; /* W as used in each pass; backward (dx = dy * W^T) only for
                                           learning */
    enum tw_profile_kind time;          /* of the forward product; the kinds of dx and dW follow */
};

struct tw_model_norm {
    uint64_t weight, bias; /* bias may be TW_MODEL_NONE */
};

struct tw_model_layer {
    struct tw_model_norm norm1, norm2, q_norm, k_norm; /* q_norm and k_norm are used only with
                                                          QK-norm */
    struct tw_model_linear qkv, out, up, down;
};

/* Activations that a layer's forward pass stores for its backward pass. Elements per row, in the
 * activations' type: qkv_width + q_width + width + up_width (+ q_width + kv_width with QK-norm). In
 * float32: 4 + heads (+ 2 * (heads + kv_heads) with QK-norm). With recompute, all layers share one
 * slot. */
struct tw_model_slot {
    void *qkv;       /* (rows, qkv_width): q | k | v, after QK-norm and rotation */
    void *qk;        /* (rows, q_width + kv_width): before QK-norm; NULL without QK-norm */
    void *attention; /* (rows, q_width) */
    void *middle;    /* (rows, width): residual stream after attention */
    void *up;        /* (rows, up_width) */
    float *stats1, *stats2, *qk_stats; /* (rows, 2), (rows, 2), (rows, heads + kv_heads, 2) */
    float *lse; /* (sequences, heads, context): log-sum-exp of attention scores */
};

struct tw_model_config {
    const struct tw_run *run;
    const struct tw_layout *layout;
    enum tw_type type;
    const struct tw_ops *ops; /* operators for activations of that type */
    const struct tw_matmul_library *library;
    uint32_t threads;
    uint32_t sequences; /* largest number of sequences in a pass */
    bool is_recomputed; /* layers keep only their input and are run again in the backward pass */
    bool is_learning;   /* the model also runs backward passes */
};

/* Bytes by use. */
struct tw_model_bytes {
    uint64_t weights;     /* packed copies, and copies of one layer in panels */
    uint64_t activations; /* buffers of one forward and backward pass */
    uint64_t logits;
};

struct tw_model {
    struct tw_model_config config;
    struct tw_model_shape shape;
    const struct tw_ops *ops;
    struct tw_thread_pool *team;        /* borrowed */
    struct tw_multiplier **multipliers; /* (threads) */

    uint64_t tokens, positions; /* offsets of the tables (vocab, width) and (context, width), or
                                   TW_MODEL_NONE */
    struct tw_model_norm norm_f;
    struct tw_model_linear head;   /* matrix (vocab, width) in form NT: the token table if tied */
    struct tw_model_layer *layers; /* (layers) */
    const float *params;           /* parameters in use */
    struct tw_weight **weights;    /* weights with a packed copy: at most 8 * layers + 2 */
    uint32_t weights_count;

    struct tw_model_slot *slots; /* (slots_count): layer l uses slot l % slots_count */
    uint32_t slots_count;
    void **x;         /* layers + 1 arrays (rows, width): the input of every layer, then the last
                         output */
    void *norm;       /* (rows, width): output of the last norm */
    float *stats_f;   /* (rows, 2) */
    float *cos, *sin; /* (context, head_size / 2); NULL without rotary positions */

    float *logits; /* (head_rows, logits_stride) */
    void *
        dlogits; /* (head_rows, logits_stride), zeros past vocab; same array as logits in float32 */
    uint32_t head_rows;
    uint32_t logits_stride;
    double *losses; /* one loss per piece of a chunk of rows: pieces are added in a fixed order */
    uint32_t *targets; /* (rows) */

    void *scratch; /* scratch_bytes for each thread */
    size_t scratch_bytes;

    /* Buffers of the backward pass, which handles one layer at a time. */
    void *dx[2];         /* (rows, width): gradient of the residual stream, alternating */
    void *dnorm;         /* (rows, width): gradient of the last norm's output */
    void *norm1, *norm2; /* (rows, width): outputs of the norms, computed again */
    void *act, *dup;     /* (rows, ffn), (rows, up_width) */
    void *dattention;    /* (rows, q_width) */
    void *dqkv[2];       /* (rows, qkv_width): alternating */
    void *dqk;           /* (rows, q_width + kv_width): with QK-norm only */
    float *partial[2];   /* (blocks of rows, 2 * width + 2 * head_size): gradients of norm weights,
                            one row per block */

    struct tw_profile *profile; /* times of the present step, borrowed; NULL: not measured */
    const _Atomic bool *stop;   /* true stops a pass early (tw_engine_watch); may be NULL */

    void *memory; /* all arrays above in one block */
    uint64_t memory_bytes;
};

/* Keys and values of one sequence, layer after layer: (layers, context, 2 * kv_width). */
struct tw_model_cache {
    void *kv;
    uint32_t used; /* positions filled */
};

struct tw_model_batch {
    const uint32_t *tokens; /* (sequences, stride): stride >= context, or >= context + 1 with
                               targets */
    uint32_t stride, sequences, context;
    struct tw_model_cache *cache; /* NULL, or the cached sequence that this batch continues */
    /* documents are masked (only without a cache): a row attends to nothing before the last
     * `separator` at or before it */
    bool is_masked;
    uint32_t separator; /* token that begins a document */
};

struct tw_model_learn {
    float *gradient; /* gradients are added to it (elements). With is_first, weight gradients are
                        overwritten; all others must be zero (tw_model_clear) */
    float scale, z_loss; /* factors of the whole loss, and of the z-loss within it */
    bool is_first;
};

/* Computes the bytes that tw_model_init would allocate. Errors: TW_NOMEM. */
enum tw_status tw_model_measure(struct tw_model_bytes *bytes, const struct tw_model_config *config,
                                struct tw_error *err);

/* Allocates the model's buffers. Borrows `team`, a pool of config->threads threads. Errors:
 * TW_NOMEM. */
enum tw_status tw_model_init(struct tw_model *model, const struct tw_model_config *config,
                             struct tw_thread_pool *team, struct tw_error *err);
void tw_model_deinit(struct tw_model *model);

/* Zeros those parts of the gradient that tw_model_backward adds to even if is_first. */
void tw_model_clear(const struct tw_model *model, float *gradient);

/* Makes the following passes use the present values of these parameters (elements). `params` must
 * stay valid until the last of these passes. */
void tw_model_use(struct tw_model *model, const float *params);

/* Returns true if the caller of the passes no longer wants their results: the rest of a pass is
 * then skipped, and its results are garbage. Once true, it stays true until the pass returns. */
static inline bool tw_model_is_stopped(const struct tw_model *model) {
    return model->stop != NULL && atomic_load_explicit(model->stop, memory_order_relaxed);
}

/* Computes the activations of the batch up to the last norm. sequences <= config.sequences, tokens
 * < vocab, context <= shape.context. With a cache, used + context <= shape.context, and the batch
 * is appended to the cache. */
void tw_model_forward(struct tw_model *model, const struct tw_model_batch *batch);

/* After forward: returns the sum of the losses of all rows, in nats. */
double tw_model_loss(struct tw_model *model, const struct tw_model_batch *batch);

/* After forward: returns the sum of losses like tw_model_loss, and adds the gradient of scale *
 * (sum of losses + z_loss * sum of lse^2). */
double tw_model_backward(struct tw_model *model, const struct tw_model_batch *batch,
                         const struct tw_model_learn *learn);

/* After forward: computes logits (count, vocab) of rows [first, first + count) of the batch. */
void tw_model_logits(struct tw_model *model, uint32_t first, uint32_t count, float *logits);

/* Returns the bytes of the key/value cache of one sequence. */
uint64_t tw_model_cache_bytes(const struct tw_run *run, enum tw_type type);

/* Derives sizes, tensor offsets and rotation tables from a run; private to model_*.c. */

struct tw_model_shape tw_model_shape_of(const struct tw_run *run);

/* Fills the offsets and sizes of all tensors. model->config, shape and layers must already be set.
 */
void tw_model_find(struct tw_model *model);

/* Fills cos and sin for every position of the context. */
void tw_model_fill_rotation(struct tw_model *model);

#endif
