/* pack.h - outer gradients on a device: Delta, its statistics, and its encoding in the fixed-rate
 * codecs. Functions are queued on a stream and report no errors; pointers are device memory.
 *
 * Nodes must agree on bytes, so the bits are the same as on the host: it rounds as kernels/outer.h
 * and kernels/merge.h do, and writes the bytes of compress/codec_fixed.c, which has the
 * equations. Only sums of squares have another order. */
#ifndef TW_KERNELS_CUDA_PACK_H
#define TW_KERNELS_CUDA_PACK_H

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include <stddef.h>
#include <stdint.h>

#include "kernels/outlier.h"

/* ---- the outer gradient ---- */

struct tw_cuda_delta {
    float *v;              /* (n): phi - theta + ahead + beta * residual */
    float *given;          /* (n): phi - theta + ahead; NULL: skipped */
    const float *phi;      /* (n) */
    const float *theta;    /* (n) */
    const float *ahead;    /* (n); NULL: none */
    const float *residual; /* (n); NULL: none */
    float beta;
    size_t n;
};
void tw_cuda_delta(void *stream, const struct tw_cuda_delta *delta);

/* Computes the energies (TW_OUTLIER_BLOCKS) of the blocks of a fragment v (n), as tw_outlier_add()
 * does. Energies are not finite if an element is not. Their sum is the square of the norm. */
void tw_cuda_energies(void *stream, double *energies, const float *v, size_t n, void *scratch);
/* bytes of scratch, which must be aligned to 16 */
enum { TW_CUDA_ENERGIES_SCRATCH = TW_OUTLIER_BLOCKS * 16 * 8 };

/* x (n) *= factor */
void tw_cuda_scale(void *stream, float *x, float factor, size_t n);

/* ---- encoding ---- */

enum tw_cuda_pack_format {
    TW_CUDA_PACK_BF16,
    TW_CUDA_PACK_INT8,
    TW_CUDA_PACK_INT4,
    TW_CUDA_PACK_E3M0,
    TW_CUDA_PACK_SIGN,
};

/* Returns the encoded bytes of n elements: `bound` of the corresponding codec. */
size_t tw_cuda_pack_bytes(enum tw_cuda_pack_format format, size_t n);

struct tw_cuda_pack {
    enum tw_cuda_pack_format format;
    size_t n;
    const float *v;    /* (n) */
    uint8_t *out;      /* tw_cuda_pack_bytes() bytes, at an even address */
    float *decoded;    /* (n): receives the decoded values D(out); NULL: skipped */
    float *lost;       /* (n): receives the residual v - D(out); NULL: skipped */
    uint32_t *refused; /* set to 1 where the host codec returns TW_CORRUPT, else unchanged; the
                          outputs are then undefined */
};
void tw_cuda_pack(void *stream, const struct tw_cuda_pack *pack);

/* sum (n) += weight * x (n), product and sum each rounded, as in tw_merge_add() of kernels/merge.h.
 */
void tw_cuda_merge_add(void *stream, float *sum, const float *x, float weight, size_t n);

#ifdef __cplusplus
}
#endif

#endif
