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

/* A matrix that starts at element `begin` of theta, m and gradient. */
struct tw_cuda_muon_matrix {
    uint64_t begin;
    uint32_t rows, cols;
    size_t stride; /* elements between rows, at least cols */
};

struct tw_cuda_step; /* kernels/cuda/ops.h */

struct tw_cuda_muon {
    /* Device memory with lr, decay, momentum and gradient_scale. If is_skipped, nothing changes. */
    const struct tw_cuda_step *step;
    enum tw_type type; /* data type of GEMM operands */
    void *theta_act;   /* bfloat16 copy of theta, which is updated too; may be NULL */
    struct tw_cuda_products *products;
    void *spare; /* device memory that may be overwritten, as in struct tw_cuda_gemm; may be NULL */
    size_t spare_bytes;
};

/* Most matrices that are processed together. They are consecutive and of equal size; large matrices
 * are processed in smaller groups. */
enum { TW_CUDA_MUON_BATCH = 8 };

/* Returns the bytes of device scratch for this list of matrices. Scratch must be aligned to 256
 * bytes. */
size_t tw_cuda_muon_scratch(const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                            enum tw_type type);

/* Queues one step on each matrix on `stream`. theta, m: in/out; gradient: in; float32 device
 * memory. The same inputs and GEMM plans give the same bits. A gradient that is not finite makes
 * all of its theta not finite. A zero gradient changes nothing. */
void tw_cuda_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                       const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                       const struct tw_cuda_muon *cfg, void *stream);

#ifdef __cplusplus
}
#endif

#endif
