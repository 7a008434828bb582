/* gemm_library.h - the functions of cuBLASLt that GEMMs need, found at run time. Types and
 * constants are from the toolkit's header, the library is the machine's. */
#ifndef TW_KERNELS_CUDA_GEMM_LIBRARY_H
#define TW_KERNELS_CUDA_GEMM_LIBRARY_H

#include <cublasLt.h>
#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda/gemm.h"

enum { TW_GEMM_LIBRARY_LEAST = 120000 }; /* version 12.0 in the format of cublasLtGetVersion */

/* X(member, name of the function in the library) */
#define TW_GEMM_LIBRARY_LIST(X)                                                                    \
    X(version, cublasLtGetVersion)                                                                 \
    X(status_name, cublasLtGetStatusName)                                                          \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(desc_create, cublasLtMatmulDescCreate)                                                       \
    X(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(layout_set, cublasLtMatrixLayoutSetAttribute)                                                \
    X(preference_create, cublasLtMatmulPreferenceCreate)                                           \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)                                         \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)                                        \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    X(check, cublasLtMatmulAlgoCheck)                                                              \
    X(matmul, cublasLtMatmul)

/* A function that queues work on a stream, to be timed. */
typedef cublasStatus_t tw_gemm_work(void *context);

struct tw_gemm_library {
#define X(member, symbol) __typeof__(symbol) *member;
    TW_GEMM_LIBRARY_LIST(X)
#undef X
    /* Not part of cuBLASLt. Returns true while a graph is captured, when no call may wait. */
    bool (*is_capturing)(void *stream);
    /* Returns the time that the work takes on the device in us (microseconds), or a negative number
     * if it fails. */
    double (*time_us)(void *stream, tw_gemm_work *work, void *context);
};

/* Returns the library of this process, opened once and kept open. Returns TW_DEVICE if it is
 * absent, too old or incomplete. */
enum tw_status tw_gemm_library_get(const struct tw_gemm_library **library, struct tw_error *err);

/* Works like tw_cuda_products_open, with the given library functions. */
enum tw_status tw_gemm_products_create(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                       const struct tw_gemm_library *library, const char *plans,
                                       struct tw_error *err);

#endif
