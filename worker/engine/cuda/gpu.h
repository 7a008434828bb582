/* gpu.h - the engine on a CUDA device: what engine*.c hands over where a device was chosen. The
 * same model, optimizer and meaning of every function as on the CPU; engine.h has the contract.
 *
 * On the device: theta, gradient, m and v in float32, one copy of the parameters in bfloat16 where
 * products are (of all of them, at the same offsets), activations, logits. On the host: mirrors of
 * theta, m and v, which only push and pull touch.
 *
 * Which algorithm a product takes is timed once a shape, and decides the last bits. The choices are
 * kept from start to start: plans_folder.h says where, gemm.h for whom.
 *
 * Implemented twice: gpu_*.c over kernels/cuda, and gpu_none.c in a build without, where no device
 * is ever found. Every function may fail with TW_DEVICE: what the device holds is then
 * lost, and nothing but tw_gpu_destroy may follow. */
#ifndef TW_WORKER_ENGINE_CUDA_GPU_H
#define TW_WORKER_ENGINE_CUDA_GPU_H

#include "worker/engine/engine.h"
#include "worker/engine/vectors.h"

struct tw_gpu;

/* As tw_engine_plan_make, for that device, which can be used. */
enum tw_status tw_gpu_plan(struct tw_engine_plan *plan, const struct tw_engine_config *config,
                           int ordinal, struct tw_error *err);

/* theta, m and v of the engine, which are its mirrors, are there; on the device all are zero. */
enum tw_status tw_gpu_create(struct tw_gpu **gpu_out, const struct tw_engine_config *config,
                             struct tw_engine *engine, struct tw_error *err);
void tw_gpu_destroy(struct tw_gpu *gpu); /* NULL is fine */

enum tw_status tw_gpu_pull(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);
enum tw_status tw_gpu_push(struct tw_gpu *gpu, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);

/* tokens are in the vocabulary, and so below. */
enum tw_status tw_gpu_step(struct tw_gpu *gpu, const uint32_t *tokens, float lr,
                           struct tw_step_result *result, struct tw_error *err);

/* As tw_engine_hold. */
void tw_gpu_hold(struct tw_gpu *gpu, const float *params);

/* Sum of losses of sequences_count sequences. */
enum tw_status tw_gpu_loss(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                           uint32_t sequences_count, double *loss, struct tw_error *err);

/* Logits (count - first, vocab) of rows [first, count) of one sequence, without a mask. */
enum tw_status tw_gpu_logits(struct tw_gpu *gpu, const float *params, const uint32_t *tokens,
                             uint32_t first, uint32_t count, float *logits, struct tw_error *err);

/* Keys and values of one sequence, on the device. */
struct tw_gpu_cache;
enum tw_status tw_gpu_cache_create(struct tw_gpu_cache **cache_out, struct tw_gpu *gpu,
                                   struct tw_error *err);
void tw_gpu_cache_destroy(struct tw_gpu_cache *cache); /* NULL is fine */
/* Appends tokens (count) after the first `used`, and gives the logits (vocab) after the last. */
enum tw_status tw_gpu_cache_extend(struct tw_gpu_cache *cache, const float *params,
                                   const uint32_t *tokens, uint32_t used, uint32_t count,
                                   float *logits, struct tw_error *err);

/* The arithmetic of a sync on the device, of an engine that learns: gpu_vectors.c. Good until
 * tw_gpu_destroy; whatever its alloc gave is freed before. Takes tw_gpu_vectors_bytes() of the
 * device's memory for itself. TW_NOMEM, TW_DEVICE. */
enum tw_status tw_gpu_vectors_open(struct tw_gpu *gpu, struct tw_vectors *vectors,
                                   struct tw_error *err);
uint64_t tw_gpu_vectors_bytes(const struct tw_layout *layout);

/* As tw_engine_peak, of a plan for a device. */
enum tw_status tw_gpu_peak(const struct tw_engine_plan *plan, double *flops_s,
                           struct tw_error *err);

#endif
