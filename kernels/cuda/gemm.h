/* gemm.h - matrix products (GEMM) on a device: cuBLASLt, with fused epilogues.
 *
 * Each shape is autotuned once on the device: its plan is the fastest algorithm that the library
 * proposes. GEMMs that differ only in is_added share a plan, so 0 + x and x have the same bits.
 * Plans are kept in a file for the next start, because the algorithm also decides the last bits:
 * the same plans on the same device give the same bits. If the library refuses to fuse an epilogue,
 * or is slower with it fused, separate kernels compute the epilogue.
 *
 * GEMMs run on the compute stream, one after another, and share the workspace of struct tw_cuda.
 * Nothing can be timed while a graph is captured, so run a step uncaptured first.
 *
 * The emulated library implements the same functions with plain loops. */
#ifndef TW_KERNELS_CUDA_GEMM_H
#define TW_KERNELS_CUDA_GEMM_H

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include "base/status.h"
#include "kernels/matmul.h"

struct tw_cuda;
struct tw_cuda_products; /* the opened library and its plans, for one thread at a time */

enum {
    TW_CUDA_GEMM_N_MAX = 1 << 16, /* largest n of a GEMM with TW_CUDA_BIAS_GRADIENT */
    /* largest number of plans; the oldest plan is then replaced */
    TW_CUDA_GEMM_PLANS_MAX = 1024,
};

/* Epilogues; p is the GEMM's sum in float32. A GEMM with bias or pre must have count 0 or 1 and,
 * except for TW_CUDA_BIAS_GRADIENT, is_added false. */
enum tw_cuda_epilogue {
    TW_CUDA_PLAIN,         /* y = p, or y += p */
    TW_CUDA_BIAS,          /* y = p + bias */
    TW_CUDA_BIAS_GELU,     /* pre = p + bias, y = gelu(pre), the tanh form of kernels/ops.h */
    TW_CUDA_GELU_BACKWARD, /* y = p * gelu'(pre), where p is the gradient of gelu's output */
    TW_CUDA_BIAS_GRADIENT, /* form TN: y = or += p, and bias_gradient = or += column sums of b */
};

/* All pointers are device memory. GEMMs are fastest if each row begins at a multiple of 16 bytes:
 * in bfloat16, if k and n, or the strides, are multiples of 8. */
struct tw_cuda_gemm {
    /* The shape, as in kernels/matmul.h. With type BF16, y_type is BF16 or F32. With type F32,
     * y_type is F32, and TF32 is not used. A bfloat16 y may be added to, but the library may then
     * round the product before the sum. */
    struct tw_matmul shape;
    void *y; /* output; must not overlap other arrays */
    const void *a, *b;
    uint32_t count; /* number of GEMMs of this shape; 0 means 1 */
    size_t a_step, b_step,
        y_step; /* elements from one GEMM's array to the next's; 0 for a or b: shared by all */
    enum tw_cuda_epilogue epilogue;
    const void *bias; /* (n), of y_type: for a bfloat16 y, the bias's bfloat16 copy */
    void *pre;        /* (m, n), of y_type and with y's stride; written or read by the epilogue */
    float *bias_gradient; /* (n); n at most TW_CUDA_GEMM_N_MAX */
    /* Device memory, aligned to 256 bytes, that is overwritten if this GEMM must be autotuned and
     * is_added: timing must not change y. NULL, or smaller than y: memory is allocated for the
     * time; if there is none, the library's first proposal is used until the next start. */
    void *spare;
    size_t spare_bytes;
};

/* Checks, before a device is opened, whether tw_cuda_products_open can succeed. Returns TW_DEVICE
 * if cuBLASLt is absent or too old. */
enum tw_status tw_cuda_products_look(struct tw_error *err);

/* Opens the library. `plans` is a file that is read now, and written by close if there are new
 * plans. It may also be a folder, ending in '/', with one file per kind of device, or NULL. A file
 * that is damaged, or of another device, driver or library, is ignored and replaced. Borrows cuda.
 * Returns TW_DEVICE if cuBLASLt is absent, too old or refuses, or TW_NOMEM. */
enum tw_status tw_cuda_products_open(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                     const char *plans, struct tw_error *err);
/* Accepts NULL. Queued work continues. */
void tw_cuda_products_close(struct tw_cuda_products *products);

/* Writes new plans to the file now, for callers that may be killed before close. Errors: TW_IO. */
enum tw_status tw_cuda_products_save(struct tw_cuda_products *products, struct tw_error *err);

/* Queues the GEMM on `stream` (the compute stream). tw_cuda_finish reports failures. */
void tw_cuda_gemm(struct tw_cuda_products *products, void *stream, const struct tw_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
