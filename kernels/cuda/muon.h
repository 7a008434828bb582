/* muon.h - Muon's step (kernels/muon.h) on a device. */
#ifndef TW_KERNELS_CUDA_MUON_H
#define TW_KERNELS_CUDA_MUON_H

#ifdef __cplusplus
extern "C" { /* around the headers of the project, too: they are plain C */
#endif

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/gemm.h"
#include "kernels/type.h"

/* A matrix in each of theta, m and gradient, that many elements from their beginning. */
struct tw_cuda_muon_matrix {
    uint64_t begin;
    uint32_t rows, cols;
    size_t stride; /* elements between rows, at least cols */
};

struct tw_cuda_step; /* kernels/cuda/ops.h */

struct tw_cuda_muon {
    /* Device memory: lr, decay, momentum, gradient_scale; where is_skipped, nothing changes. */
    const struct tw_cuda_step *step;
    enum tw_type type; /* of the products */
    void *theta_act;   /* NULL, or like theta in bfloat16: the copy, to be renewed */
    struct tw_cuda_products *products;
};

/* Matrices of one size that are next to each other in a list are worked on together, so many at
 * most and less of large ones. */
enum { TW_CUDA_MUON_BATCH = 8 };

/* Bytes of device scratch for that list, wanted at an alignment of 256. */
size_t tw_cuda_muon_scratch(const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                            enum tw_type type);

/* One step on each matrix, queued on `stream`; theta, m: in/out, gradient: in, float32 device
 * memory. Same inputs and same plans of products, same bits. A gradient that is not finite makes
 * all of its theta not finite; one of zeros steps nowhere. */
void tw_cuda_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                       const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                       const struct tw_cuda_muon *cfg, void *stream);

#ifdef __cplusplus
}
#endif

#endif
