/* gemm.h - matrix products on a device: cuBLASLt, with what follows a product done in it.
 *
 * Each shape gets a plan: the fastest of the algorithms the library proposes, timed once on the
 * device, and kept in a file for the next start, as which one is chosen also decides the last bits.
 * The same plans on the same device give the same bits. Where the library refuses to do what
 * follows in the product, or takes longer than with kernels that do it after, those do it.
 *
 * Products run on the compute stream, one after another: they share the workspace of struct
 * tw_cuda. Under capture of a graph nothing can be timed, so let a step run plainly first.
 *
 * The emulated library has plain loops behind the same functions. */
#ifndef TW_KERNELS_CUDA_GEMM_H
#define TW_KERNELS_CUDA_GEMM_H

#ifdef __cplusplus
extern "C" { /* around the headers of the project, too: they are plain C */
#endif

#include "base/status.h"
#include "kernels/matmul.h"

struct tw_cuda;
struct tw_cuda_products; /* the library, opened, and its plans; one thread at a time */

enum {
    TW_CUDA_GEMM_N_MAX = 1 << 16,  /* of a product with TW_CUDA_BIAS_GRADIENT */
    TW_CUDA_GEMM_PLANS_MAX = 1024, /* shapes; beyond, the oldest makes room */
};

/* What follows a product. p is the sum in float32; a product with bias or pre has count 0 or 1 and,
 * but for TW_CUDA_BIAS_GRADIENT, is not is_added. */
enum tw_cuda_epilogue {
    TW_CUDA_PLAIN,         /* y = p, or y += p */
    TW_CUDA_BIAS,          /* y = p + bias */
    TW_CUDA_BIAS_GELU,     /* pre = p + bias, y = gelu(pre), the tanh form of kernels/ops.h */
    TW_CUDA_GELU_BACKWARD, /* y = p gelu'(pre): p is the gradient of what gelu gave */
    TW_CUDA_BIAS_GRADIENT, /* form TN: y = or += p, and bias_gradient = or += column sums of b */
};

/* Everything here is device memory. Fastest where each row begins at 16 bytes, so in bfloat16 where
 * k and n, or the strides, are multiples of 8. */
struct tw_cuda_gemm {
    /* As kernels/matmul.h says. type BF16: y_type BF16 or F32; type F32: y_type F32, without the
     * shortened factors of TF32. is_added may also be of a bfloat16 y: rounded once. */
    struct tw_matmul shape;
    void *y; /* overlaps nothing else */
    const void *a, *b;
    uint32_t count;                /* products of this shape; 0: 1 */
    size_t a_step, b_step, y_step; /* elements from one to the next; 0 for a or b: all read one */
    enum tw_cuda_epilogue epilogue;
    const void *bias;     /* (n), of y_type: the copy in bfloat16, where y is that */
    void *pre;            /* (m, n), of y_type and with y's stride: written, or read */
    float *bias_gradient; /* (n); n at most TW_CUDA_GEMM_N_MAX */
};

/* Whether products can be opened at all, asked before a device is: TW_DEVICE when cuBLASLt is
 * absent or too old. */
enum tw_status tw_cuda_products_look(struct tw_error *err);

/* plans: a file to keep the plans in, read here and written by close where there are new ones; or a
 * folder, by a '/' at its end, where every kind of device has a file of its own; NULL for none. A
 * file that is damaged, or of another device, driver or library, is not read, and replaced.
 * TW_DEVICE when cuBLASLt is absent, too old or refuses; TW_NOMEM. Borrows cuda. */
enum tw_status tw_cuda_products_open(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                     const char *plans, struct tw_error *err);
/* NULL is fine. What is queued goes on. */
void tw_cuda_products_close(struct tw_cuda_products *products);

/* Writes the plans now: once the first steps have made them. TW_IO. */
enum tw_status tw_cuda_products_save(struct tw_cuda_products *products, struct tw_error *err);

/* Queues the product on `stream` (the compute stream). What fails is told by tw_cuda_finish. */
void tw_cuda_gemm(struct tw_cuda_products *products, void *stream, const struct tw_cuda_gemm *gemm);

#ifdef __cplusplus
}
#endif

#endif
