/* gpu_model.h - inside gpu_*.c: what an engine owns on a device, and how a pass is put together.
 *
 * A pass is one list of operations in the compute stream (model.h has the equations), so buffers
 * are shared wherever one operation is done with them when the next begins:
 *
 *     forward     narrow  output of a norm            wide  output of the activation
 *     backward    stream  gradient of the residual stream, in place from the last layer to the
 * first narrow  of a norm's output, of the attention's; wide  of the activation broad   of what
 * goes into the activation, then of q | k | v
 *
 * What a pass reads besides lies in `inputs`, one block of fixed places: a pass of as many
 * sequences is the same list with the same pointers, and can be replayed as a graph. */
#ifndef TW_WORKER_ENGINE_CUDA_GPU_MODEL_H
#define TW_WORKER_ENGINE_CUDA_GPU_MODEL_H

#include "kernels/cuda/attention.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/muon.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime.h"
#include "worker/engine/cuda/gpu.h"
#include "worker/engine/engine_memory.h"
#include "worker/engine/model.h"

enum {
    TW_GPU_STAGED = 4, /* passes whose inputs may be on their way to the device */
    TW_GPU_GRAPHS = 2, /* sizes of a pass that are kept: the usual one, and the rest of a batch */
    TW_GPU_PLAIN_STEPS =
        2, /* passes of a size before it is made a graph: plans of products first */
    TW_GPU_WORKSPACE = 64 << 20, /* of products, as runtime.h takes it */
};

/* Words (uint32_t) that one pass reads, on the device and, staged, on the host. */
struct tw_gpu_inputs {
    uint32_t *tokens;  /* (sequences, context + 1) */
    uint32_t *targets; /* (rows) */
    uint32_t *order;   /* (rows): by token, of a pass that learns */
    uint32_t *begin;   /* (rows): first key each row sees, in a run with masked documents */
};

/* Activations of one pass, device memory; of slots (struct tw_model_slot) qkv holds q and k after
 * their norms, qk before. */
struct tw_gpu_arrays {
    struct tw_model_slot *slots; /* (slots_count), host: layer l has slot l % slots_count */
    void **x;                    /* (layers + 1), host: (rows, width) each */
    void *narrow;                /* (rows, the larger of width and q_width) */
    void *wide;                  /* (rows, ffn) */
    void *norm;                  /* (rows, width): output of the last norm */
    float *stats_f;              /* (rows, 2) */
    float *cos, *sin;            /* (context, head_size / 2) */
    float *losses;               /* (rows) */
    struct tw_gpu_inputs inputs;
    uint32_t input_words; /* of a full pass */
    void *logits;         /* logits_bytes: chunks of rows of logits_stride, of either type */
    uint64_t logits_bytes;
    uint32_t logits_stride;
    void *stream; /* (rows, width) */
    void *broad;  /* (rows, the larger of up_width and qkv_width) */
    void *scratch;
};

struct tw_gpu_graph {
    uint32_t sequences; /* 0: none yet */
    uint32_t plain;     /* passes of this size so far */
    struct tw_cuda_graph *graph;
};

struct tw_gpu_ranges;  /* of AdamW and Muon: gpu_update.c */
struct tw_gpu_vectors; /* gpu_vectors.c */

struct tw_gpu {
    struct tw_engine *engine; /* borrowed: run, layout, plan, mirrors and counters */
    struct tw_cuda *cuda;
    struct tw_cuda_products *products;
    void *pinned;        /* mirrors that copies reach without a detour; NULL: they do not */
    bool has_plans;      /* of products, kept from start to start */
    void *queue;         /* the compute stream */
    struct tw_model map; /* shape, and where tensors lie; nothing else of it is used */
    uint32_t sequences;  /* of a pass at most */
    uint32_t slots_count;
    bool is_learning;

    float *theta, *gradient, *m, *v; /* (elements); all but theta NULL without learning */
    uint16_t *copy;      /* (elements): bf16 of the parameters in use; NULL in float32 */
    const float *params; /* in use: theta, or gradient with others in its place */
    bool is_copied;      /* copy is of params */
    bool is_foreign;     /* without learning: other parameters lie in theta's place */
    const float *held;   /* parameters of the host that do not change; NULL: none */
    bool has_held;       /* they are those in use */
    uint64_t uses;       /* how often parameters were given */
    struct tw_gpu_arrays arrays;
    void *block; /* arrays, in one */
    struct tw_cuda_step *step;
    struct tw_cuda_step *step_host; /* page-locked */

    uint32_t *staged[TW_GPU_STAGED], *swap; /* page-locked; (rows) for sorting */
    uint64_t staged_event[TW_GPU_STAGED];
    uint32_t staged_next;
    struct tw_gpu_graph graphs[TW_GPU_GRAPHS];
    struct tw_gpu_ranges *ranges;
    struct tw_gpu_vectors *vectors; /* NULL: no sync has asked for it */
};

/* One pass: sequences of `context` tokens each. */
struct tw_gpu_pass {
    struct tw_gpu *gpu;
    uint32_t sequences, context, rows;
    uint32_t position_first; /* of a sequence that goes on: in kv */
    void *kv;            /* NULL, or (layers, shape.context, 2 kv_width): keys and values so far */
    bool is_masked;      /* inputs.begin counts */
    bool is_learning;    /* leaves what a backward pass needs */
    float scale, z_loss; /* of one that learns */
};

/* ---- memory: gpu_memory.c ---- */

/* What tw_gpu_arrays_open would take. map, sequences, slots_count and is_learning are set. */
void tw_gpu_arrays_measure(struct tw_model_bytes *bytes, const struct tw_gpu *gpu);
enum tw_status tw_gpu_arrays_open(struct tw_gpu *gpu, struct tw_error *err);
void tw_gpu_arrays_close(struct tw_gpu *gpu);

/* Shape and tensors of the run into gpu->map, and how passes are cut. TW_NOMEM. */
enum tw_status tw_gpu_map_open(struct tw_gpu *gpu, const struct tw_engine_config *config,
                               const struct tw_engine_plan *plan, struct tw_error *err);
void tw_gpu_map_close(struct tw_gpu *gpu);

/* ---- inputs: gpu_inputs.c ---- */

enum tw_status tw_gpu_inputs_open(struct tw_gpu *gpu, struct tw_error *err);
void tw_gpu_inputs_close(struct tw_gpu *gpu);
/* Tokens (sequences, stride) of this pass to the device. has_targets: stride > context. TW_DEVICE
 * where room had to be waited for. */
enum tw_status tw_gpu_inputs_put(const struct tw_gpu_pass *pass, const uint32_t *tokens,
                                 uint32_t stride, bool has_targets, struct tw_error *err);

/* ---- passes, queued: gpu_linear.c, gpu_forward.c, gpu_backward.c, gpu_head.c ---- */

/* y (rows, out) = x W + bias. pre: also what GELU is taken of, and y what it gives; or NULL. */
void tw_gpu_linear(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *y,
                   const void *x, uint32_t rows, void *pre);
/* dx (rows, in) = dy W^T, times gelu'(pre) where there is one. */
void tw_gpu_linear_dx(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *dx,
                      const void *dy, uint32_t rows, void *pre);
/* Adds the gradients of weight and bias. Rows of dy lie dy_stride elements apart; 0: touch. */
void tw_gpu_linear_dw(const struct tw_gpu *gpu, const struct tw_model_linear *linear, const void *x,
                      const void *dy, size_t dy_stride, uint32_t rows);

struct tw_cuda_norm tw_gpu_norm_of(const struct tw_gpu *gpu, const struct tw_model_norm *norm,
                                   uint32_t rows);
/* Norms over heads: which 0 q, 1 k; dx_stride is that of dqkv. */
struct tw_cuda_norm tw_gpu_head_norm_of(const struct tw_gpu *gpu,
                                        const struct tw_model_layer *layer, uint32_t rows,
                                        uint32_t which);
void tw_gpu_rotate(const struct tw_gpu_pass *pass, void *qkv, bool is_inverse);
struct tw_cuda_attention tw_gpu_attention_of(const struct tw_gpu_pass *pass);
void tw_gpu_activate(const struct tw_gpu *gpu, void *y, const void *up, uint32_t rows);

/* Parts of a layer: norm1 to attention, then output matrix to `up` and, but when it is run again,
 * on to the input of the next layer. */
void tw_gpu_attend(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again);
void tw_gpu_feed(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again);

/* Activations up to the last norm. */
void tw_gpu_forward(const struct tw_gpu_pass *pass);
/* After forward: losses of the rows, added to step->loss. With is_learning also the gradients, and
 * that of the residual stream in arrays.stream. */
void tw_gpu_head(const struct tw_gpu_pass *pass);
/* Logits (count, vocab), float32 with rows of logits_stride, of rows [first, first + count) into
 * arrays.logits; count is at most tw_gpu_head_rows. */
void tw_gpu_logits_of(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count,
                      enum tw_type type);
uint32_t tw_gpu_head_rows(const struct tw_gpu *gpu, enum tw_type type);
/* After tw_gpu_head with is_learning: adds all other gradients. */
void tw_gpu_backward(const struct tw_gpu_pass *pass);

/* ---- parameters: gpu_engine.c ---- */

/* Makes the passes that follow use these, of the host or live. Others than the live ones go in the
 * place of the gradient, of which a step needs nothing; without learning in that of theta, whose
 * mirror has all of it. */
void tw_gpu_use(struct tw_gpu *gpu, const float *params);

/* theta [begin, begin + n) on the device has changed: so has the copy of it, where there is one. */
void tw_gpu_written(struct tw_gpu *gpu, uint64_t begin, uint64_t n);

/* ---- a sync: gpu_vectors.c ---- */

/* What tw_gpu_vectors_open took; nothing where it was not called. */
void tw_gpu_vectors_close(struct tw_gpu *gpu);

/* ---- the update: gpu_update.c ---- */

/* Bytes of device memory for Muon. */
uint64_t tw_gpu_muon_bytes(const struct tw_run *run, const struct tw_layout *layout,
                           enum tw_type type);
enum tw_status tw_gpu_ranges_open(struct tw_gpu *gpu, struct tw_error *err);
void tw_gpu_ranges_close(struct tw_gpu *gpu);
/* Queues norm, decision and update of a step whose gradient is complete. */
void tw_gpu_update(struct tw_gpu *gpu);

/* ---- helpers ---- */

static inline void *tw_gpu_at(const struct tw_gpu *gpu, const void *base, size_t elements) {
    return (uint8_t *)(uintptr_t)base + elements * tw_type_bytes(gpu->map.config.type);
}

/* A tensor as products want it. */
static inline const void *tw_gpu_weight(const struct tw_gpu *gpu, uint64_t offset) {
    if (gpu->copy == NULL) return gpu->params + offset;
    return gpu->copy + offset;
}

/* NULL for TW_MODEL_NONE, and while nothing but sizes is asked for. */
static inline const float *tw_gpu_param(const struct tw_gpu *gpu, uint64_t offset) {
    return offset == TW_MODEL_NONE || gpu->params == NULL ? NULL : gpu->params + offset;
}

static inline float *tw_gpu_grad(const struct tw_gpu *gpu, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : gpu->gradient + offset;
}

static inline const struct tw_model_slot *tw_gpu_slot(const struct tw_gpu *gpu, uint32_t layer) {
    return &gpu->arrays.slots[layer % gpu->slots_count];
}

#endif
