/* gemm_emulated.c - GEMMs of the emulated device: plain loops, sums in float32 in the order of k,
 * and epilogues by the kernels of gemm_after.h. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_after.h"
#include "kernels/cuda/runtime.h"
#include "tests/emulated/emulation.h"

struct tw_cuda_products {
    struct tw_cuda *cuda;
};

enum { ROWS = 8, COLUMNS = 256 }; /* block of y computed at a time */

/* Distances in elements between two rows, and between two columns. */
struct lines {
    size_t row, column;
};

static size_t or_dense(size_t stride, size_t cols) {
    return stride == 0 ? cols : stride;
}

static float load(const void *x, size_t i, enum tw_type type) {
    return type == TW_BF16 ? tw_bf16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* Loads line (count) = x[at], x[at + step], ... */
static void load_line(float *line, const void *x, size_t at, size_t step, uint32_t count,
                      enum tw_type type) {
    for (uint32_t i = 0; i < count; i++) line[i] = load(x, at + i * step, type);
}

/* One GEMM of tw_cuda_gemm, with its strides filled in. */
struct work {
    struct tw_matmul shape;
    void *y;
    const void *a, *b;
};

/* Computes sums (ROWS, COLUMNS) = a * b from row `top` and column `left` on. */
static void multiply(float sums[ROWS][COLUMNS], const struct work *w, uint32_t top, uint32_t left) {
    const struct tw_matmul *const s = &w->shape;
    const bool is_tn = s->form == TW_MATMUL_TN, is_nt = s->form == TW_MATMUL_NT;
    const struct lines a = {is_tn ? 1 : s->a_stride, is_tn ? s->a_stride : 1};
    const struct lines b = {is_nt ? 1 : s->b_stride, is_nt ? s->b_stride : 1};
    const uint32_t rows = s->m - top < ROWS ? s->m - top : ROWS;
    const uint32_t columns = s->n - left < COLUMNS ? s->n - left : COLUMNS;
    float line[COLUMNS];
    memset(sums, 0, ROWS * COLUMNS * sizeof(float));
    for (uint32_t l = 0; l < s->k; l++) {
        load_line(line, w->b, l * b.row + left * b.column, b.column, columns, s->type);
        for (uint32_t i = 0; i < rows; i++) {
            const float x = load(w->a, (top + i) * a.row + l * a.column, s->type);
            for (uint32_t j = 0; j < columns; j++) sums[i][j] += x * line[j];
        }
    }
}

static void store(const struct work *w, float sums[ROWS][COLUMNS], uint32_t top, uint32_t left) {
    const struct tw_matmul *const s = &w->shape;
    for (uint32_t i = 0; i < ROWS && top + i < s->m; i++) {
        for (uint32_t j = 0; j < COLUMNS && left + j < s->n; j++) {
            const size_t at = (top + i) * s->y_stride + left + j;
            const float sum = s->is_added ? load(w->y, at, s->y_type) + sums[i][j] : sums[i][j];
            if (s->y_type == TW_BF16) {
                ((uint16_t *)w->y)[at] = tw_bf16_from_f32(sum);
            } else {
                ((float *)w->y)[at] = sum;
            }
        }
    }
}

static void run(const void *arguments) {
    const struct work *const w = arguments;
    float sums[ROWS][COLUMNS];
    for (uint32_t top = 0; top < w->shape.m; top += ROWS) {
        for (uint32_t left = 0; left < w->shape.n; left += COLUMNS) {
            multiply(sums, w, top, left);
            store(w, sums, top, left);
        }
    }
}

/* Memory that autotuning may overwrite. */
struct spare {
    void *memory;
    size_t bytes;
};

/* Overwrites spare memory before every GEMM, as autotuning does before some. A caller that lends
 * memory in use thus gets NaN. */
static void overwrite(const void *arguments) {
    const struct spare *const spare = arguments;
    memset(spare->memory, 0xff, spare->bytes);
}

static void check(const struct tw_cuda_gemm *gemm) {
    const struct tw_matmul *const shape = &gemm->shape;
    TW_ASSERT(shape->m > 0 && shape->k > 0 && shape->n > 0);
    TW_ASSERT(shape->type == TW_BF16 || shape->y_type == TW_F32);
    if (gemm->epilogue == TW_CUDA_PLAIN) return;
    TW_ASSERT(gemm->count <= 1);
    if (gemm->epilogue == TW_CUDA_BIAS_GRADIENT) {
        TW_ASSERT(shape->form == TW_MATMUL_TN && shape->n <= TW_CUDA_GEMM_N_MAX);
    } else {
        TW_ASSERT(!shape->is_added);
    }
}

void tw_cuda_gemm(struct tw_cuda_products *products, void *stream,
                  const struct tw_cuda_gemm *gemm) {
    struct work work = {.shape = gemm->shape};
    struct tw_matmul *const s = &work.shape;
    const size_t in = tw_type_bytes(s->type), out = tw_type_bytes(s->y_type);
    const size_t count = gemm->count == 0 ? 1 : gemm->count;
    size_t bytes = 0;
    float *const workspace = tw_cuda_workspace(products->cuda, &bytes);
    check(gemm);
    s->a_stride = or_dense(s->a_stride, s->form == TW_MATMUL_TN ? s->m : s->k);
    s->b_stride = or_dense(s->b_stride, s->form == TW_MATMUL_NT ? s->k : s->n);
    s->y_stride = or_dense(s->y_stride, s->n);
    if (s->is_added && gemm->spare != NULL) {
        const struct spare spare = {gemm->spare, gemm->spare_bytes};
        tw_emulation_submit(stream, "products to be timed", overwrite, &spare, sizeof(spare));
    }
    for (size_t z = 0; z < count; z++) {
        work.y = (char *)gemm->y + z * gemm->y_step * out;
        work.a = (const char *)gemm->a + z * gemm->a_step * in;
        work.b = (const char *)gemm->b + z * gemm->b_step * in;
        tw_emulation_submit(stream, "a product", run, &work, sizeof(work));
    }
    tw_gemm_after(gemm, workspace, bytes / sizeof(float), stream);
}

/* ---- open and close ----------------------------------------------------------------------- */

enum tw_status tw_cuda_products_look(struct tw_error *err) {
    (void)err;
    return TW_OK;
}

enum tw_status tw_cuda_products_open(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                     const char *plans, struct tw_error *err) {
    (void)plans;
    *products = malloc(sizeof(**products));
    if (*products == NULL) return tw_fail(err, TW_NOMEM, "no memory for matrix products");
    (*products)->cuda = cuda;
    return TW_OK;
}

void tw_cuda_products_close(struct tw_cuda_products *products) {
    free(products);
}

enum tw_status tw_cuda_products_save(struct tw_cuda_products *products, struct tw_error *err) {
    (void)products, (void)err;
    return TW_OK;
}
