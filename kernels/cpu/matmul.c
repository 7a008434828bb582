/* matmul.c - matrix products by a library: the one file that knows oneDNN and OpenBLAS.
 *
 * Both are called through their plain sgemm: oneDNN keeps its generated kernels by itself, and its
 * sgemm is the same in versions 2 and 3. */
#include "kernels/ops.h"

#ifdef TW_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
/* oneDNN's threads are OpenMP's. Declared here because clang ships no omp.h of gcc's runtime. */
void omp_set_num_threads(int threads);
#endif
#ifdef TW_HAVE_OPENBLAS
#include <cblas.h>
#endif

#include "base/assert.h"

#ifdef TW_HAVE_ONEDNN
static void matmul_onednn(float *y, const float *a, const float *b, struct tw_matmul shape) {
    const bool is_ta = shape.form == TW_MATMUL_TN, is_tb = shape.form == TW_MATMUL_NT;
    const dnnl_dim_t m = shape.m, k = shape.k, n = shape.n;
    const dnnl_status_t status =
        dnnl_sgemm(is_ta ? 'T' : 'N', is_tb ? 'T' : 'N', m, n, k, 1.0f, a, is_ta ? m : k, b,
                   is_tb ? k : n, shape.is_added ? 1.0f : 0.0f, y, n);
    TW_ASSERT(status == dnnl_success); /* it refuses wrong arguments only */
}
#endif

#ifdef TW_HAVE_OPENBLAS
static void matmul_openblas(float *y, const float *a, const float *b, struct tw_matmul shape) {
    const bool is_ta = shape.form == TW_MATMUL_TN, is_tb = shape.form == TW_MATMUL_NT;
    const int m = (int)shape.m, k = (int)shape.k, n = (int)shape.n;
    cblas_sgemm(CblasRowMajor, is_ta ? CblasTrans : CblasNoTrans, is_tb ? CblasTrans : CblasNoTrans,
                m, n, k, 1.0f, a, is_ta ? m : k, b, is_tb ? k : n, shape.is_added ? 1.0f : 0.0f, y,
                n);
}
#endif

tw_matmul_fn *tw_matmul_get(enum tw_matmul_backend backend) {
    tw_matmul_fn *onednn = NULL, *openblas = NULL;
#ifdef TW_HAVE_ONEDNN
    onednn = matmul_onednn;
#endif
#ifdef TW_HAVE_OPENBLAS
    openblas = matmul_openblas;
#endif
    switch (backend) {
    case TW_MATMUL_ONEDNN: return onednn;
    case TW_MATMUL_OPENBLAS: return openblas;
    case TW_MATMUL_REF: return tw_matmul_ref;
    case TW_MATMUL_AUTO: break;
    }
    if (onednn != NULL) return onednn;
    return openblas != NULL ? openblas : tw_matmul_ref;
}

const char *tw_matmul_name(tw_matmul_fn *fn) {
    if (fn == tw_matmul_ref) return "reference";
    return fn == tw_matmul_get(TW_MATMUL_ONEDNN) ? "oneDNN" : "OpenBLAS";
}

void tw_matmul_set_threads(uint32_t threads) {
    TW_ASSERT(threads > 0);
#ifdef TW_HAVE_ONEDNN
    omp_set_num_threads((int)threads);
#endif
#ifdef TW_HAVE_OPENBLAS
    openblas_set_num_threads((int)threads);
#endif
}
