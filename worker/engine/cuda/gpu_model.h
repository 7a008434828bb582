/* gpu_model.h - an engine's state on a device, and the parts of a pass. Private to gpu_*.c.
 *
 * A pass is one list of operations in the compute stream (model.h has the equations). A buffer is
 * reused as soon as the operation that needs it has been queued:
 *
 *     forward   narrow  output of a norm, unless it is kept
 *               wide    output of the activation, unless it is kept
 *     backward  stream  gradient of the residual stream, in place from the last layer to the first
 *               narrow  gradient of a norm's output, or of the attention's output
 *               wide    gradient of the activation's output
 *               broad   gradient of the activation's input, later of q | k | v
 *
 * The other inputs of a pass lie in `inputs`, one block at a fixed place. Passes of the same number
 * of sequences are thus the same operations on the same pointers and can be replayed as a graph.
 *
 * The gradient is not zeroed before a step: the first pass overwrites it (is_first), which saves a
 * write and a read of every parameter. 0 + x is x, except that a product of -0 stays -0, as on the
 * CPU: at most the sign of a zero differs. */
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
    TW_GPU_STAGED = 4, /* largest number of passes whose inputs are in flight to the device */
    TW_GPU_GRAPHS = 3, /* kinds of passes with a graph: a step's first, later ones of the same size,
                          and the remainder of a batch */
    TW_GPU_PLAIN_STEPS = 2,      /* passes of a kind that run without a graph, to autotune, before
                                    it is captured */
    TW_GPU_WORKSPACE = 64 << 20, /* bytes of GEMM workspace */
};

/* Inputs of one pass, uint32_t words, on the device or staged on the host. */
struct tw_gpu_inputs {
    uint32_t *tokens;  /* (sequences, context + 1) */
    uint32_t *targets; /* (rows) */
    uint32_t *order;   /* (rows): rows sorted by token; only in a pass that learns */
    uint32_t *begin;   /* (rows): first row that each row attends to; only with masked documents */
};

/* Activations of a layer in device memory. All layers share norm1, norm2 and act, unless the plan
 * keeps them for the backward pass, which then need not compute them again. */
struct tw_gpu_slot {
    void *qkv;       /* (rows, qkv_width): q | k | v, after QK-norm and rotation */
    void *qk;        /* (rows, q_width + kv_width): before QK-norm; NULL without QK-norm */
    void *attention; /* (rows, q_width) */
    void *middle;    /* (rows, width): residual stream after attention */
    void *up;        /* (rows, up_width) */
    float *stats1, *stats2, *qk_stats; /* (rows, 2), (rows, 2), (rows, heads + kv_heads, 2) */
    float *lse;          /* (sequences, heads, context): log-sum-exp of attention scores */
    void *norm1, *norm2; /* (rows, width): outputs of the norms; if shared, in arrays.narrow */
    void *act;           /* (rows, ffn): output of the activation; if shared, in arrays.wide */
};

/* Activations of one pass in device memory. */
struct tw_gpu_arrays {
    struct tw_gpu_slot *slots; /* (slots_count), host: layer l uses slot l % slots_count */
    void **x;                  /* (layers + 1), host: (rows, width) each */
    void *narrow;              /* (rows, the larger of width and q_width) */
    void *wide;                /* (rows, ffn) */
    void *norm;                /* (rows, width): output of the last norm */
    float *stats_f;            /* (rows, 2) */
    float *cos, *sin;          /* (context, head_size / 2) */
    float *losses;             /* (rows) */
    struct tw_gpu_inputs inputs;
    uint32_t input_words; /* words of all inputs of a full pass */
    void *logits;         /* a chunk of logits, in rows of logits_stride, float32 or bf16 */
    uint64_t logits_bytes;
    uint32_t logits_stride;
    void *stream; /* (rows, width) */
    void *broad;  /* (rows, the larger of up_width and qkv_width) */
    uint64_t broad_bytes;
    void *scratch;
};

struct tw_gpu_graph {
    uint32_t sequences; /* 0: unused */
    bool is_first;      /* of a step's first passes */
    uint32_t plain;     /* passes of this kind so far without a graph */
    struct tw_cuda_graph *graph;
};

/* Inputs of the next step's first pass, prepared while a step runs (tw_engine_look_ahead). */
struct tw_gpu_ahead {
    uint32_t *block;    /* page-locked: the pass's inputs */
    uint32_t sequences; /* number of sequences of the pass; 0: nothing is prepared */
    bool is_there;      /* the device's inputs are these, not those of a pass in between */
    uint64_t event;     /* passed once `block` has been copied */
};

struct tw_gpu_ranges;  /* work lists of AdamW and Muon, in gpu_engine.c */
struct tw_gpu_vectors; /* gpu_vectors.c */

struct tw_gpu {
    struct tw_engine *engine; /* borrowed, for its run, layout, plan, mirrors and counters */
    struct tw_cuda *cuda;
    struct tw_cuda_products *products;
    void *pinned;         /* mirrors, if page-locked; else NULL */
    bool has_plans;       /* autotuned GEMM plans are cached on disk */
    void *queue;          /* the compute stream */
    struct tw_model map;  /* shape and tensor offsets; the other members are unused */
    uint32_t sequences;   /* largest number of sequences in a pass */
    uint64_t logits_most; /* bytes of logits in memory at a time; more if these are too few rows */
    uint32_t slots_count;
    bool keeps_attention; /* each slot has its own attention and lse; all other arrays are shared */
    bool keeps_outputs;   /* each slot has its own norm1, norm2 and act */
    bool is_learning;

    float *theta, *gradient, *m, *v; /* (elements); gradient, m and v are NULL without learning */
    bool is_padded;                  /* the gradient's padding between fragments is zero */
    uint16_t *copy;      /* (elements): bf16 copy of the parameters in use; NULL in float32 */
    const float *params; /* parameters in use: theta, or gradient while it holds other parameters */
    bool is_copied;      /* true if `copy` matches `params` */
    bool is_foreign;   /* only without learning: theta's memory holds other parameters than theta */
    const float *held; /* host parameters promised not to change (tw_engine_hold); NULL: none */
    bool has_held;     /* `held` is in use */
    uint64_t uses;     /* times that parameters were set; lets a cache notice a change */
    struct tw_gpu_arrays arrays;
    void *block; /* memory of all device arrays */
    struct tw_cuda_step *step;
    struct tw_cuda_step *step_host; /* page-locked */

    uint32_t *staged[TW_GPU_STAGED], *swap; /* staged: page-locked; swap: (rows), for sorting */
    uint64_t staged_event[TW_GPU_STAGED];
    uint32_t staged_next;
    struct tw_gpu_ahead ahead;
    struct tw_gpu_graph graphs[TW_GPU_GRAPHS];
    struct tw_gpu_ranges *ranges;
    struct tw_gpu_vectors *vectors; /* NULL until tw_gpu_vectors_open */
};

/* One pass: sequences of `context` tokens each. */
struct tw_gpu_pass {
    struct tw_gpu *gpu;
    uint32_t sequences, context, rows;
    uint32_t position_first; /* position of the first token, for a sequence continued from kv */
    void *kv;         /* NULL, or (layers, shape.context, 2 * kv_width): cached keys and values */
    bool is_masked;   /* documents are masked, by inputs.begin */
    bool is_learning; /* stores the activations that a backward pass needs */
    /* the step's first pass: overwrites the gradient, in which an untied token table and the
     * padding between fragments must be zero */
    bool is_first;
    float scale, z_loss; /* only if is_learning */
};

/* ---- memory: gpu_memory.c -------------------------------------------------------------------- */

/* Computes the bytes that tw_gpu_arrays_open would allocate. map, sequences, slots_count and
 * is_learning must be set. */
void tw_gpu_arrays_measure(struct tw_model_bytes *bytes, const struct tw_gpu *gpu);
enum tw_status tw_gpu_arrays_open(struct tw_gpu *gpu, struct tw_error *err);
void tw_gpu_arrays_close(struct tw_gpu *gpu);

/* Fills gpu->map with the run's shape and tensor offsets, and decides the size of passes. Errors:
 * TW_NOMEM. */
enum tw_status tw_gpu_map_open(struct tw_gpu *gpu, const struct tw_engine_config *config,
                               const struct tw_engine_plan *plan, struct tw_error *err);
void tw_gpu_map_close(struct tw_gpu *gpu);

/* ---- inputs: gpu_pass.c ---------------------------------------------------------------------- */

enum tw_status tw_gpu_inputs_open(struct tw_gpu *gpu, struct tw_error *err);
void tw_gpu_inputs_close(struct tw_gpu *gpu);

/* Queues the copy of this pass's tokens (sequences, stride) to the device. With has_targets, stride
 * > context. Waits if all staging blocks are in use. */
void tw_gpu_inputs_put(const struct tw_gpu_pass *pass, const uint32_t *tokens, uint32_t stride,
                       bool has_targets);

/* Does this for the first pass of the next step, which `pass` must equal if its tokens do. */
void tw_gpu_inputs_ahead(const struct tw_gpu_pass *pass, const uint32_t *tokens);

/* ---- passes, queued: gpu_pass.c -------------------------------------------------------------- */

/* Input and output gradient of a linear layer. */
struct tw_gpu_linear_rows {
    const void *x, *dy; /* (rows, in), (rows, out) */
    size_t dy_stride;   /* elements between rows of dy; 0: contiguous */
    uint32_t rows;
    bool is_first; /* gradients are overwritten instead of added to */
    void *spare;   /* device memory that nothing needs now, for autotuning (kernels/cuda/gemm.h) */
    uint64_t spare_bytes;
};

struct tw_cuda_norm tw_gpu_norm_of(const struct tw_gpu *gpu, const struct tw_model_norm *norm,
                                   uint32_t rows);

/* Describes the per-head norm of q (which = 0) or k (which = 1). dx_stride is the row stride of
 * dqkv. */
struct tw_cuda_norm tw_gpu_head_norm_of(const struct tw_gpu *gpu,
                                        const struct tw_model_layer *layer, uint32_t rows,
                                        uint32_t which);
struct tw_cuda_attention tw_gpu_attention_of(const struct tw_gpu_pass *pass);

/* Computes activations up to the last norm. */
void tw_gpu_forward(const struct tw_gpu_pass *pass);

/* After forward: adds the rows' losses to step->loss. With is_learning, also adds the head's
 * gradient and leaves the gradient of the residual stream in arrays.stream. */
void tw_gpu_head(const struct tw_gpu_pass *pass);

/* Writes logits (count, vocab) of rows [first, first + count) to arrays.logits, as `type`, in rows
 * of logits_stride elements. count is at most tw_gpu_head_rows. */
void tw_gpu_logits_of(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count,
                      enum tw_type type);
uint32_t tw_gpu_head_rows(const struct tw_gpu *gpu, enum tw_type type);

/* Returns the rows of each chunk but the last, so that `rows` are split evenly. */
uint32_t tw_gpu_head_chunk(const struct tw_gpu *gpu, enum tw_type type, uint32_t rows);

/* After tw_gpu_head with is_learning: adds all other gradients. */
void tw_gpu_backward(const struct tw_gpu_pass *pass);

/* ---- parameters: gpu_engine.c ---------------------------------------------------------------- */

/* Makes the following passes use these parameters, a host array or the live ones. Parameters other
 * than the live ones overwrite the gradient, which no later step needs. Without learning they
 * overwrite theta on the device, of which the host mirror is a full copy. */
void tw_gpu_use(struct tw_gpu *gpu, const float *params);

/* After a write of theta [begin, begin + n) on the device: updates the bf16 copy, if there is one.
 */
void tw_gpu_written(struct tw_gpu *gpu, uint64_t begin, uint64_t n);

/* ---- sync: gpu_vectors.c --------------------------------------------------------------------- */

/* Frees everything that tw_gpu_vectors_open allocated; does nothing if it was not called. */
void tw_gpu_vectors_close(struct tw_gpu *gpu);

/* ---- helpers --------------------------------------------------------------------------------- */

static inline void *tw_gpu_at(const struct tw_gpu *gpu, const void *base, size_t elements) {
    return (uint8_t *)(uintptr_t)base + elements * tw_type_bytes(gpu->map.config.type);
}

/* Returns the address of a weight tensor in the data type that GEMMs use. */
static inline const void *tw_gpu_weight(const struct tw_gpu *gpu, uint64_t offset) {
    if (gpu->copy == NULL) return gpu->params + offset;
    return gpu->copy + offset;
}

/* Returns the address of a parameter, or NULL for TW_MODEL_NONE and while only sizes are computed.
 */
static inline const float *tw_gpu_param(const struct tw_gpu *gpu, uint64_t offset) {
    return offset == TW_MODEL_NONE || gpu->params == NULL ? NULL : gpu->params + offset;
}

static inline float *tw_gpu_grad(const struct tw_gpu *gpu, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : gpu->gradient + offset;
}

static inline const struct tw_gpu_slot *tw_gpu_slot(const struct tw_gpu *gpu, uint32_t layer) {
    return &gpu->arrays.slots[layer % gpu->slots_count];
}

#endif
