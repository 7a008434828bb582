/* gemm_cublas.c - GEMMs by cuBLASLt, which is column-major. Row-major y = a * b is column-major y^T
 * = b^T * a^T, so the library's A is our b, its B our a, and its m and n our n and m. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cuda/gemm_after.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/runtime.h"

enum {
    TRIED = 8, /* algorithms timed */
    TIMES = 5, /* timed runs per algorithm; the median counts */
    COLUMNS_BYTES = TW_CUDA_GEMM_N_MAX *
                    (int)sizeof(float), /* bytes for column sums, at the end of the workspace */
    ALIGN_MAX = 256,
    MAJOR_FUSING = 9, /* least major compute capability on which untimed epilogues are fused */
};

/* The library's descriptors for one plan, created on first use. */
struct prepared {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, y; /* a, b, y in our notation */
};

struct tw_cuda_products {
    struct tw_cuda *cuda;
    const struct tw_gemm_library *library;
    cublasLtHandle_t handle;
    char *path; /* owned path of the plan file; NULL: plans are not saved */
    void *workspace;
    size_t workspace_bytes; /* part of the workspace that the library may use; column sums are
                               stored behind it */
    struct tw_gemm_plans plans;
    struct prepared prepared[TW_CUDA_GEMM_PLANS_MAX];
};

/* One GEMM to run, with its plan. */
struct product {
    struct tw_cuda_products *products;
    const struct tw_cuda_gemm *gemm;
    const struct prepared *prepared;
    const struct tw_gemm_plan *plan;
    void *stream, *y;
};

/* ---- addresses ----------------------------------------------------------------------------- */

static size_t or_dense(size_t stride, size_t cols) {
    return stride == 0 ? cols : stride;
}

static size_t a_stride(const struct tw_matmul *shape) {
    return or_dense(shape->a_stride, shape->form == TW_MATMUL_TN ? shape->m : shape->k);
}

static size_t b_stride(const struct tw_matmul *shape) {
    return or_dense(shape->b_stride, shape->form == TW_MATMUL_NT ? shape->k : shape->n);
}

static size_t y_stride(const struct tw_matmul *shape) {
    return or_dense(shape->y_stride, shape->n);
}

static uint32_t count_of(const struct tw_cuda_gemm *gemm) {
    return gemm->count == 0 ? 1 : gemm->count;
}

/* Returns the largest power of two, up to ALIGN_MAX, that divides all addresses and steps. */
static uint32_t align_of(const struct tw_cuda_gemm *gemm) {
    const struct tw_matmul *const shape = &gemm->shape;
    const size_t in = tw_type_bytes(shape->type), out = tw_type_bytes(shape->y_type);
    const uintptr_t all = (uintptr_t)gemm->y | (uintptr_t)gemm->a | (uintptr_t)gemm->b |
                          (uintptr_t)gemm->bias | (uintptr_t)gemm->pre | gemm->a_step * in |
                          gemm->b_step * in | gemm->y_step * out | ALIGN_MAX;
    return (uint32_t)(all & (~all + 1));
}

static bool has_epilogue(const struct tw_cuda_gemm *gemm) {
    return gemm->epilogue != TW_CUDA_PLAIN;
}

static void check(const struct tw_cuda_gemm *gemm) {
    const struct tw_matmul *const shape = &gemm->shape;
    TW_ASSERT(shape->m > 0 && shape->k > 0 && shape->n > 0);
    TW_ASSERT(shape->type == TW_BF16 || shape->y_type == TW_F32);
    TW_ASSERT(!has_epilogue(gemm) || count_of(gemm) == 1);
    if (gemm->epilogue == TW_CUDA_BIAS_GRADIENT) {
        TW_ASSERT(shape->form == TW_MATMUL_TN && shape->n <= TW_CUDA_GEMM_N_MAX);
    } else {
        TW_ASSERT(!has_epilogue(gemm) || !shape->is_added);
    }
}

/* ---- descriptors ------------ -------------------------------------------------------------- */

static cudaDataType_t type_of(enum tw_type type) {
    return type == TW_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(enum tw_cuda_epilogue epilogue) {
    switch (epilogue) {
    case TW_CUDA_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    case TW_CUDA_BIAS_GELU: return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case TW_CUDA_GELU_BACKWARD: return CUBLASLT_EPILOGUE_DGELU;
    case TW_CUDA_BIAS_GRADIENT: return CUBLASLT_EPILOGUE_BGRADA;
    case TW_CUDA_PLAIN: break;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

static void unprepare(const struct tw_gemm_library *library, struct prepared *prepared) {
    if (prepared->op != NULL) (void)library->desc_destroy(prepared->op);
    if (prepared->a != NULL) (void)library->layout_destroy(prepared->a);
    if (prepared->b != NULL) (void)library->layout_destroy(prepared->b);
    if (prepared->y != NULL) (void)library->layout_destroy(prepared->y);
    memset(prepared, 0, sizeof(*prepared));
}

static float *columns_of(const struct tw_cuda_products *products) {
    return (float *)((char *)products->workspace + products->workspace_bytes);
}

#define SET(what, attribute, value)                                                                \
    library->desc_set(what, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))

/* Sets the pointers that the epilogue uses. */
static cublasStatus_t set_addresses(const struct tw_cuda_products *products,
                                    const struct tw_cuda_gemm *gemm, cublasLtMatmulDesc_t op) {
    const struct tw_gemm_library *const library = products->library;
    const void *const columns = columns_of(products);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (gemm->epilogue == TW_CUDA_BIAS || gemm->epilogue == TW_CUDA_BIAS_GELU)
        status = SET(op, BIAS_POINTER, gemm->bias);
    if (gemm->epilogue == TW_CUDA_BIAS_GRADIENT) status = SET(op, BIAS_POINTER, columns);
    if (status != CUBLAS_STATUS_SUCCESS || gemm->pre == NULL) return status;
    return SET(op, EPILOGUE_AUX_POINTER, gemm->pre);
}

static cublasStatus_t set_op(const struct tw_cuda_products *products,
                             const struct tw_cuda_gemm *gemm, bool is_fused,
                             cublasLtMatmulDesc_t op) {
    const struct tw_gemm_library *const library = products->library;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const int64_t aux_stride = (int64_t)y_stride(&gemm->shape);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (gemm->shape.form == TW_MATMUL_NT) status = SET(op, TRANSA, transposed);
    if (gemm->shape.form == TW_MATMUL_TN) status = SET(op, TRANSB, transposed);
    if (status != CUBLAS_STATUS_SUCCESS || !is_fused || !has_epilogue(gemm)) return status;
    const cublasLtEpilogue_t epilogue = epilogue_of(gemm->epilogue);
    status = SET(op, EPILOGUE, epilogue);
    if (status == CUBLAS_STATUS_SUCCESS && gemm->pre != NULL)
        status = SET(op, EPILOGUE_AUX_LD, aux_stride);
    return status != CUBLAS_STATUS_SUCCESS ? status : set_addresses(products, gemm, op);
}

struct matrix {
    enum tw_type type;
    /* in the library's notation, where elements of a column are adjacent in memory */
    uint64_t rows, cols;
    size_t stride, step;
    int32_t count;
};

static cublasStatus_t make_layout(const struct tw_gemm_library *library,
                                  cublasLtMatrixLayout_t *layout, struct matrix matrix) {
    const int64_t step = (int64_t)matrix.step;
    cublasStatus_t status = library->layout_create(layout, type_of(matrix.type), matrix.rows,
                                                   matrix.cols, (int64_t)matrix.stride);
    if (status != CUBLAS_STATUS_SUCCESS || matrix.count == 1) return status;
    status = library->layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrix.count,
                                 sizeof(matrix.count));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return library->layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                               sizeof(step));
}

static cublasStatus_t prepare(const struct tw_cuda_products *products,
                              const struct tw_cuda_gemm *gemm, bool is_fused,
                              struct prepared *prepared) {
    const struct tw_gemm_library *const library = products->library;
    const struct tw_matmul *const s = &gemm->shape;
    const int32_t count = (int32_t)count_of(gemm);
    const bool is_tn = s->form == TW_MATMUL_TN, is_nt = s->form == TW_MATMUL_NT;
    const struct matrix a = {s->type,     is_tn ? s->m : s->k, is_tn ? s->k : s->m,
                             a_stride(s), gemm->a_step,        count};
    const struct matrix b = {s->type,     is_nt ? s->k : s->n, is_nt ? s->n : s->k,
                             b_stride(s), gemm->b_step,        count};
    const struct matrix y = {s->y_type, s->n, s->m, y_stride(s), gemm->y_step, count};
    cublasStatus_t status = library->desc_create(&prepared->op, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS) status = set_op(products, gemm, is_fused, prepared->op);
    if (status == CUBLAS_STATUS_SUCCESS) status = make_layout(library, &prepared->a, a);
    if (status == CUBLAS_STATUS_SUCCESS) status = make_layout(library, &prepared->b, b);
    if (status == CUBLAS_STATUS_SUCCESS) status = make_layout(library, &prepared->y, y);
    if (status != CUBLAS_STATUS_SUCCESS) unprepare(library, prepared);
    return status;
}

static cublasStatus_t run(void *context) {
    const struct product *const p = context;
    const struct tw_cuda_products *const products = p->products;
    const float one = 1.0f, beta = p->gemm->shape.is_added ? 1.0f : 0.0f;
    cublasLtMatmulAlgo_t algo;
    _Static_assert(sizeof(algo) == sizeof(p->plan->algo), "a plan holds an algorithm");
    memcpy(&algo, p->plan->algo, sizeof(algo));
    return products->library->matmul(
        products->handle, p->prepared->op, &one, p->gemm->b, p->prepared->b, p->gemm->a,
        p->prepared->a, &beta, p->y, p->prepared->y, p->y, p->prepared->y, &algo,
        products->workspace, p->plan->workspace_bytes, (cudaStream_t)p->stream);
}

/* Runs the part of the epilogue that follows the GEMM. If it is not fused, this is all of it, as
 * separate kernels. If it is fused, only the column sums of TW_CUDA_BIAS_GRADIENT are copied from
 * the workspace to bias_gradient. */
static void follow(const struct product *p, const struct tw_cuda_gemm *gemm) {
    const struct tw_cuda_products *const products = p->products;
    if (p->plan->is_fused == 0) {
        tw_gemm_after(gemm, products->workspace, products->workspace_bytes / sizeof(float),
                      p->stream);
    } else if (gemm->epilogue == TW_CUDA_BIAS_GRADIENT) {
        tw_gemm_after_columns(gemm->bias_gradient, columns_of(products), gemm->shape.n,
                              gemm->shape.is_added, p->stream);
    }
}

/* Runs the GEMM with its epilogue, for timing. Column sums are written to scratch, so that timing
 * does not change bias_gradient. */
static cublasStatus_t run_whole(void *context) {
    const struct product *const p = context;
    const struct tw_cuda_products *const products = p->products;
    struct tw_cuda_gemm gemm = *p->gemm;
    const cublasStatus_t status = run(context);
    if (status != CUBLAS_STATUS_SUCCESS || !has_epilogue(&gemm)) return status;
    gemm.y = p->y;
    gemm.bias_gradient = p->plan->is_fused != 0 ? products->workspace : columns_of(products);
    follow(p, &gemm);
    return status;
}

/* ---- plans --------------------------------------------------------------------------------- */

static cublasStatus_t set_preference(const struct tw_cuda_products *products, uint32_t align,
                                     cublasLtMatmulPreference_t preference) {
    const struct tw_gemm_library *const library = products->library;
    const uint64_t workspace = products->workspace_bytes;
    /* Partial sums are added in float32, so y is rounded once. */
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t status = library->preference_set(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                         &reduction, sizeof(reduction));
    for (unsigned i = 0; status == CUBLAS_STATUS_SUCCESS && i < 4; i++)
        status = library->preference_set(preference, aligned[i], &align, sizeof(align));
    return status;
}

/* Returns the number of algorithms that the library proposes, best first; 0 if it proposes none or
 * refuses. */
static int propose(const struct tw_cuda_products *products, const struct prepared *prepared,
                   uint32_t align, cublasLtMatmulHeuristicResult_t proposed[TRIED]) {
    const struct tw_gemm_library *const library = products->library;
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0, kept = 0;
    if (library->preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return 0;
    cublasStatus_t status = set_preference(products, align, preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library->heuristic(products->handle, prepared->op, prepared->b, prepared->a,
                                    prepared->y, prepared->y, preference, TRIED, proposed, &count);
    (void)library->preference_destroy(preference);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (proposed[i].state != CUBLAS_STATUS_SUCCESS ||
            proposed[i].workspaceSize > products->workspace_bytes)
            continue;
        proposed[kept++] = proposed[i];
    }
    return kept;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median time in us (microseconds), or a negative number if a run fails. The first run
 * is not measured, because it may load code. */
static double time_plan(struct product *product) {
    const struct tw_gemm_library *const library = product->products->library;
    double us[TIMES + 1];
    for (int i = 0; i < TIMES + 1; i++) {
        us[i] = library->time_us(product->stream, run_whole, product);
        if (us[i] < 0.0) return -1.0;
    }
    qsort(us + 1, TIMES, sizeof(us[0]), by_value);
    return us[1 + TIMES / 2];
}

static struct tw_gemm_plan plan_of(const cublasLtMatmulHeuristicResult_t *proposed, bool is_fused) {
    struct tw_gemm_plan plan = {.workspace_bytes = proposed->workspaceSize, .is_fused = is_fused};
    memcpy(plan.algo, &proposed->algo, sizeof(plan.algo));
    return plan;
}

/* Chooses the fastest of the proposed algorithms. Returns its time, or a negative number if none
 * can run. */
static double choose(struct product *product, int count, bool is_fused,
                     const cublasLtMatmulHeuristicResult_t proposed[TRIED],
                     struct tw_gemm_plan *best) {
    double best_us = -1.0;
    for (int i = 0; i < count; i++) {
        const struct tw_gemm_plan plan = plan_of(&proposed[i], is_fused);
        product->plan = &plan;
        const double us = time_plan(product);
        if (us < 0.0 || (best_us >= 0.0 && us >= best_us)) continue;
        *best = plan;
        best_us = us;
    }
    return best_us;
}

static size_t y_bytes(const struct tw_cuda_gemm *gemm) {
    const struct tw_matmul *const shape = &gemm->shape;
    const size_t last = (count_of(gemm) - 1) * gemm->y_step + (shape->m - 1) * y_stride(shape);
    return (last + shape->n) * tw_type_bytes(shape->y_type);
}

/* A candidate plan with its descriptors and time. */
struct way {
    struct prepared prepared;
    struct tw_gemm_plan plan;
    double us; /* negative: not timed */
};

/* Finds memory as large as y that timing may overwrite: the caller's, or memory that the caller of
 * this function frees, stored in *allocated. Returns NULL if there is none. */
static void *find_spare(struct tw_cuda *cuda, const struct tw_cuda_gemm *gemm, void **allocated) {
    const size_t bytes = y_bytes(gemm);
    if (gemm->spare != NULL && gemm->spare_bytes >= bytes) return gemm->spare;
    (void)tw_cuda_alloc(cuda, allocated, bytes, "products to be timed", NULL);
    return *allocated;
}

/* Times the proposed algorithms, which write to y itself, or to spare memory if y is added to. Uses
 * the first proposal untimed if there is no spare memory. Returns false if none can run. */
static bool tune(struct product *product, int count, bool is_fused,
                 const cublasLtMatmulHeuristicResult_t proposed[TRIED], struct way *way) {
    struct tw_cuda *const cuda = product->products->cuda;
    void *allocated = NULL;
    way->plan = plan_of(&proposed[0], is_fused);
    way->us = -1.0;
    if (product->products->library->is_capturing(product->stream)) return true;
    if (product->gemm->shape.is_added) {
        product->y = find_spare(cuda, product->gemm, &allocated);
        if (product->y == NULL) {
            product->y = product->gemm->y;
            return true;
        }
    }
    way->us = choose(product, count, is_fused, proposed, &way->plan);
    product->y = product->gemm->y;
    if (allocated != NULL) tw_cuda_free(cuda, allocated);
    return way->us >= 0.0;
}

/* Returns whether the epilogue may be fused. GELU's argument has the layout of y, and the library
 * needs its row stride to be a multiple of 8. The library does not specify the accuracy of its
 * GELU, which is good enough for results rounded to bfloat16. */
static bool may_fuse(const struct tw_cuda_gemm *gemm) {
    if (gemm->pre == NULL) return true;
    return gemm->shape.y_type == TW_BF16 && y_stride(&gemm->shape) % 8 == 0;
}

static void give_up(struct tw_cuda_products *products, const struct tw_cuda_gemm *gemm,
                    cublasStatus_t status) {
    static const char *const forms[] = {
        [TW_MATMUL_NN] = "NN", [TW_MATMUL_NT] = "NT", [TW_MATMUL_TN] = "TN"};
    const struct tw_matmul *const s = &gemm->shape;
    char doing[TW_CUDA_REASON_BYTES], reason[TW_CUDA_REASON_BYTES];
    (void)snprintf(doing, sizeof(doing), "a product %s (%u, %u, %u) of %s", forms[s->form], s->m,
                   s->k, s->n, s->type == TW_BF16 ? "bfloat16" : "float32");
    (void)snprintf(reason, sizeof(reason), "cuBLASLt says %s",
                   products->library->status_name(status));
    tw_cuda_fault(products->cuda, doing, reason);
}

/* Finds the best plan for the GEMM, with the epilogue fused or as separate kernels. */
static cublasStatus_t find_way(struct product *product, bool is_fused, uint32_t align,
                               struct way *way) {
    struct tw_cuda_products *const products = product->products;
    cublasLtMatmulHeuristicResult_t proposed[TRIED];
    memset(way, 0, sizeof(*way));
    cublasStatus_t status = prepare(products, product->gemm, is_fused, &way->prepared);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const int count = propose(products, &way->prepared, align, proposed);
    product->prepared = &way->prepared;
    if (count == 0) {
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    } else if (!tune(product, count, is_fused, proposed, way)) {
        status = CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (status != CUBLAS_STATUS_SUCCESS) unprepare(products->library, &way->prepared);
    return status;
}

/* Makes a plan for a shape that has none. Returns its index, or TW_CUDA_GEMM_PLANS_MAX on failure.
 * The epilogue is fused unless separate kernels are faster. If nothing can be timed, it is fused on
 * Hopper and later devices; on earlier ones a fused GELU is often slower. */
static uint32_t make_plan(struct product *product, const struct tw_gemm_key *key, uint32_t align) {
    struct tw_cuda_products *const products = product->products;
    const struct tw_cuda_gemm *const gemm = product->gemm;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    struct way best = {.us = -1.0};
    bool is_found = false;
    const bool is_fusing_fast = tw_cuda_info_of(products->cuda)->major >= MAJOR_FUSING;
    for (int is_fused = has_epilogue(gemm) && may_fuse(gemm); is_fused >= 0; is_fused--) {
        struct way way;
        if (is_found && best.us < 0.0 && is_fusing_fast) break;
        status = find_way(product, is_fused != 0, align, &way);
        if (status != CUBLAS_STATUS_SUCCESS) continue;
        const bool is_better =
            !is_found || (way.us >= 0.0 && way.us < best.us) || (way.us < 0.0 && best.us < 0.0);
        unprepare(products->library, is_better ? &best.prepared : &way.prepared);
        if (is_better) best = way;
        is_found = true;
    }
    if (!is_found) {
        give_up(products, gemm, status);
        return TW_CUDA_GEMM_PLANS_MAX;
    }
    best.plan.is_timed = best.us >= 0.0;
    const uint32_t slot = tw_gemm_plans_put(&products->plans, key, &best.plan);
    unprepare(products->library, &products->prepared[slot]);
    products->prepared[slot] = best.prepared;
    return slot;
}

/* Prepares a plan that was read from a file. Returns false if the library does not accept it. */
static bool revive(struct tw_cuda_products *products, const struct tw_cuda_gemm *gemm,
                   uint32_t slot) {
    const struct tw_gemm_plan *const plan = &products->plans.plans[slot];
    struct prepared *const prepared = &products->prepared[slot];
    cublasLtMatmulHeuristicResult_t result = {0};
    cublasLtMatmulAlgo_t algo;
    if (prepared->op != NULL) return true;
    if ((plan->is_fused != 0 && !may_fuse(gemm)) ||
        plan->workspace_bytes > products->workspace_bytes ||
        prepare(products, gemm, plan->is_fused != 0, prepared) != CUBLAS_STATUS_SUCCESS)
        return false;
    memcpy(&algo, plan->algo, sizeof(algo));
    const cublasStatus_t status =
        products->library->check(products->handle, prepared->op, prepared->b, prepared->a,
                                 prepared->y, prepared->y, &algo, &result);
    if (status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= plan->workspace_bytes)
        return true;
    unprepare(products->library, prepared);
    return false;
}

/* ---- products ------------------------------------------------------------------------------ */

void tw_cuda_gemm(struct tw_cuda_products *products, void *stream,
                  const struct tw_cuda_gemm *gemm) {
    check(gemm);
    struct product product = {.products = products, .gemm = gemm, .stream = stream, .y = gemm->y};
    const uint32_t align = align_of(gemm);
    const struct tw_gemm_key key = tw_gemm_key(gemm, align);
    uint32_t slot = tw_gemm_plans_find(&products->plans, &key);
    if (slot == TW_CUDA_GEMM_PLANS_MAX || !revive(products, gemm, slot))
        slot = make_plan(&product, &key, align);
    if (slot == TW_CUDA_GEMM_PLANS_MAX) return;
    product.plan = &products->plans.plans[slot];
    product.prepared = &products->prepared[slot];
    const bool is_fused = product.plan->is_fused != 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (is_fused) status = set_addresses(products, gemm, product.prepared->op);
    if (status == CUBLAS_STATUS_SUCCESS) status = run(&product);
    if (status != CUBLAS_STATUS_SUCCESS) {
        give_up(products, gemm, status);
    } else if (has_epilogue(gemm)) {
        follow(&product, gemm);
    }
}

/* ---- open and close ----------------------------------------------------------------------- */

static enum tw_status fill(struct tw_cuda_products *products, const char *path,
                           struct tw_error *err) {
    const struct tw_gemm_library *const library = products->library;
    const struct tw_cuda_info *const info = tw_cuda_info_of(products->cuda);
    char owner[TW_GEMM_OWNER_BYTES];
    size_t bytes = 0;
    products->workspace = tw_cuda_workspace(products->cuda, &bytes);
    TW_ASSERT(bytes > COLUMNS_BYTES);
    products->workspace_bytes = bytes - COLUMNS_BYTES;
    (void)snprintf(owner, sizeof(owner), "%s, %d.%d, %d processors, driver %d, cuBLASLt %zu",
                   info->name, info->major, info->minor, info->processors, info->driver,
                   library->version());
    tw_gemm_plans_init(&products->plans, owner);
    const cublasStatus_t status = library->create(&products->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        products->handle = NULL;
        return tw_fail(err, TW_DEVICE, "cuBLASLt %zu does not start on %s: %s", library->version(),
                       info->name, library->status_name(status));
    }
    if (path == NULL) return TW_OK;
    products->path = tw_gemm_plans_path(path, info->name);
    if (products->path == NULL) return tw_fail(err, TW_NOMEM, "no memory for a file's name");
    (void)tw_gemm_plans_read(&products->plans, products->path);
    return TW_OK;
}

enum tw_status tw_gemm_products_create(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                       const struct tw_gemm_library *library, const char *plans,
                                       struct tw_error *err) {
    *products = NULL;
    struct tw_cuda_products *const made = calloc(1, sizeof(*made));
    if (made == NULL) return tw_fail(err, TW_NOMEM, "no memory for the plans of matrix products");
    made->cuda = cuda;
    made->library = library;
    const enum tw_status status = fill(made, plans, err);
    if (status != TW_OK) {
        tw_cuda_products_close(made);
        return status;
    }
    *products = made;
    return TW_OK;
}

enum tw_status tw_cuda_products_save(struct tw_cuda_products *products, struct tw_error *err) {
    if (products->path == NULL || !products->plans.is_changed) return TW_OK;
    return tw_gemm_plans_write(&products->plans, products->path, err);
}

void tw_cuda_products_close(struct tw_cuda_products *products) {
    if (products == NULL) return;
    (void)tw_cuda_products_save(products, NULL);
    for (uint32_t i = 0; i < TW_CUDA_GEMM_PLANS_MAX; i++)
        unprepare(products->library, &products->prepared[i]);
    if (products->handle != NULL) (void)products->library->destroy(products->handle);
    free(products->path);
    free(products);
}
