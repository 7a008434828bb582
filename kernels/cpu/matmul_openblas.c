/* matmul_openblas.c - float32 GEMMs by OpenBLAS, which only this file uses. Weights are used in
 * place; usual builds of OpenBLAS have no bf16 interface. */
#include <cblas.h>
#include <stdlib.h>

#include "kernels/matmul_library.h"

static bool has(enum tw_type type) {
    return type == TW_F32;
}

static struct tw_multiplier *create(void) {
    openblas_set_num_threads(1); /* for the whole process: OpenBLAS then computes in the calling
                                    thread */
    return calloc(1, sizeof(struct tw_multiplier));
}

static void destroy(struct tw_multiplier *multiplier) {
    free(multiplier);
}

static void multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                     const struct tw_matmul *s) {
    (void)multiplier;
    cblas_sgemm(CblasRowMajor, s->form == TW_MATMUL_TN ? CblasTrans : CblasNoTrans,
                s->form == TW_MATMUL_NT ? CblasTrans : CblasNoTrans, (blasint)s->m, (blasint)s->n,
                (blasint)s->k, 1.0f, a, (blasint)s->a_stride, b, (blasint)s->b_stride,
                s->is_added ? 1.0f : 0.0f, y, (blasint)s->y_stride);
}

static size_t packed_bytes(uint32_t k, uint32_t columns, enum tw_type type) {
    (void)k, (void)columns, (void)type;
    return 0;
}

const struct tw_matmul_library tw_matmul_openblas = {.name = "OpenBLAS",
                                                     .has = has,
                                                     .create = create,
                                                     .destroy = destroy,
                                                     .multiply = multiply,
                                                     .packed_bytes = packed_bytes};
