/* adamw.h - AdamW on a CUDA device; the equation is in kernels/ops.h.
 *
 * Callable from C. Exists only where TW_CUDA found a toolkit. */
#ifndef TW_KERNELS_CUDA_ADAMW_H
#define TW_KERNELS_CUDA_ADAMW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* around the headers of the project, too: they are plain C */
#endif

#include "base/status.h"
#include "kernels/ops.h"

/* theta, m, v (n): in/out, gradient (n): in; device memory, must not overlap. Queued on `stream` (a
 * cudaStream_t; NULL is the default stream) and done when the stream is. Every element is worked on
 * by itself in float32 without contraction: the same bits at any n and on any device.
 * TW_DEVICE when the device refuses the launch. */
enum tw_status tw_cuda_adamw(float *theta, float *m, float *v, const float *gradient, size_t n,
                             const struct tw_adamw *cfg, void *stream, struct tw_error *err);

#ifdef __cplusplus
}
#endif

#endif
