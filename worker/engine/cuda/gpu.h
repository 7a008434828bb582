/* gpu.h - the engine on a CUDA device. engine*.c calls these functions if a device was chosen.
 * Model, optimizer and the effect of every function are the same as on the CPU: engine.h is the
 * contract.
 *
 * The device holds theta, gradient, m and v in float32; activations; logits; and, with bf16
 * products, one bf16 copy of the parameters at the same offsets. The host holds mirrors of theta, m
 * and v, which only push and pull touch.
 *
 * Each GEMM shape is autotuned once, and the algorithm chosen determines the last bits of its
 * result. The choices are cached on disk: plans_folder.h says where, gemm.h for which GPU and
 * library.
 *
 * Implemented twice: gpu_*.c over kernels/cuda, and gpu_none.c in a build without CUDA, where no
 * device is ever found. Every function may fail with TW_DEVICE: the device's content is then lost,
 * and only tw_gpu_destroy may follow. */
#ifndef TW_WORKER_ENGINE_CUDA_GPU_H
#define TW_WORKER_ENGINE_CUDA_GPU_H

#include "worker/engine/engine.h"
#include "worker/engine/vectors.h"

struct tw_gpu;

/* Works like tw_engine_plan_make, for this device, which must be usable. */
enum tw_status tw_gpu_plan(struct tw_engine_plan *plan, const struct tw_engine_config *config,
                           int ordinal, struct tw_error *err);

/* The engine's theta, m and v must exist: they become the mirrors. The device's copies start as
 * zeros. */
enum tw_status tw_gpu_create(struct tw_gpu **gpu_out, const struct tw_engine_config *config,
                             struct tw_engine *engine, struct tw_error *err);
void tw_gpu_destroy(struct tw_gpu *gpu); /* NULL is allowed */

enum tw_status tw_gpu_pull(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);
enum tw_status tw_gpu_push(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);

/* One inner step. Here and below, tokens must be in the vocabulary. */
enum tw_status tw_gpu_step(struct tw_gpu *gpu, const uint32_t *tokens, float lr,
                           struct tw_step_result *result, struct tw_error *err);

/* As tw_engine_hold. */
void tw_gpu_hold(struct tw_gpu *gpu, const float *params);

/* Computes the sum of the losses of sequences_count sequences. */
enum tw_status tw_gpu_loss(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                           uint32_t sequences_count, double *loss, struct tw_error *err);

/* Computes logits (count - first, vocab) of rows [first, count) of one sequence, without a document
 * mask. */
enum tw_status tw_gpu_logits(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                             uint32_t first, uint32_t count, float *logits, struct tw_error *err);

/* Keys and values of one sequence, on the device. */
struct tw_gpu_cache;
enum tw_status tw_gpu_cache_create(struct tw_gpu_cache **cache_out, struct tw_gpu *gpu,
                                   struct tw_error *err);
void tw_gpu_cache_destroy(struct tw_gpu_cache *cache); /* NULL is allowed */
/* Appends tokens (count) after the first `used` tokens and returns the logits (vocab) of the token
 * after the last one. */
enum tw_status tw_gpu_cache_extend(struct tw_gpu_cache *cache, const float *params,
                                   const uint32_t *tokens, uint32_t used, uint32_t count,
                                   float *logits, struct tw_error *err);

/* Fills *vectors with the device's arithmetic for merging (gpu_vectors.c). *vectors is valid until
 * tw_gpu_destroy; free everything allocated through it first. Needs tw_gpu_vectors_bytes() of
 * device memory for itself. Errors: TW_NOMEM, TW_DEVICE. */
enum tw_status tw_gpu_vectors_open(struct tw_gpu *gpu, struct tw_vectors *vectors,
                                   struct tw_error *err);
uint64_t tw_gpu_vectors_bytes(const struct tw_layout *layout);

/* Works like tw_engine_peak, for a plan on a device. */
enum tw_status tw_gpu_peak(const struct tw_engine_plan *plan, double *flops_s,
                           struct tw_error *err);

#endif
