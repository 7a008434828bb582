/* muon.h - Muon's step (kernels/muon.h) on a device. */
#ifndef TW_KERNELS_CUDA_MUON_H
#define TW_KERNELS_CUDA_MUON_H

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/gemm.h"
#include "kernels/type.h"

/* A matrix that starts `begin` elements into each of theta, m and gradient. */
struct tw_cuda_muon_matrix {
    uint64_t begin;
    uint32_t rows, cols;
    size_t stride; /* elements between rows, at least cols */
};

struct tw_cuda_step; /* kernels/cuda/ops.h */

struct tw_cuda_muon {
    /* Device memory with lr, decay, momentum and gradient_scale. If is_skipped, nothing changes. */
    const struct tw_cuda_step *step;
    enum tw_type type; /* operand type of the products */
    void *theta_act;   /* NULL, or the bfloat16 copy of theta to update */
    struct tw_cuda_products *products;
};

/* Consecutive matrices of equal size are processed together: at most this many, fewer if they are
 * large. */
enum { TW_CUDA_MUON_BATCH = 8 };

/* Bytes of device scratch for this list of matrices, to be aligned to 256. */
size_t tw_cuda_muon_scratch(const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                            enum tw_type type);

/* One step on each matrix, queued on `stream`. theta, m: in/out; gradient: in; float32 device
 * memory. Same inputs and same GEMM plans, same bits. A gradient that is not finite makes all of
 * its theta not finite. A zero gradient changes nothing. */
void tw_cuda_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                       const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                       const struct tw_cuda_muon *cfg, void *stream);

#ifdef __cplusplus
}
#endif

#endif
