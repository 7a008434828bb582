/* gemm_after.h - epilogues as separate kernels, for GEMMs whose epilogue the library does not fuse.
 */
#ifndef TW_KERNELS_CUDA_GEMM_AFTER_H
#define TW_KERNELS_CUDA_GEMM_AFTER_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda/gemm.h"

/* Runs the epilogue of a GEMM whose sums p are already in y, rounded. scratch is device memory,
 * used only by TW_CUDA_BIAS_GRADIENT: the larger of n and 2^18 floats. */
void tw_gemm_after(const struct tw_cuda_gemm *gemm, float *scratch, size_t scratch_floats,
                   void *stream);

/* Copies columns (n) to `to` (n), or adds them if is_added. */
void tw_gemm_after_columns(float *to, const float *columns, uint32_t n, bool is_added,
                           void *stream);

#ifdef __cplusplus
}
#endif

#endif
