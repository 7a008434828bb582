/* test_cuda_gemm_cublas.c - calls to cuBLASLt give the matrix products of gemm.h. On the emulated
 * device, a fake library computes each product that it is asked for, in column-major order. Plans
 * are timed once, cached, checked, and replaced by separate kernels if the library refuses. */
#include "kernels/cuda/gemm_library.h"

#include <unistd.h>

#include "tests/kernels/cuda/card.h"

enum { SEED = 90210, PROPOSED = 3, HANDLE = 77 };

/* ---- the library ----------------------------------------------------------------------------- */

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, step;
    int32_t count;
};

struct op {
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const void *bias, *aux;
    int64_t aux_ld;
};

/* Behaviour of the fake library, and the calls it has seen. */
static struct {
    bool has_no_epilogues, proposes_nothing, refuses_plans, fuses_badly, fuses_slowly,
        fails_to_start, is_capturing;
    unsigned broken; /* bit set of the algorithms that fail */
    int proposals;   /* at most PROPOSED */
    int fastest;     /* index among the proposed algorithms */
    int created, timed, proposed, checked, multiplied, algo;
    uint32_t align;
    struct op op; /* the last product */
} fake;

static size_t fake_version(void) {
    return 130100;
}

static const char *fake_status_name(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "something else";
}

static cublasStatus_t fake_create(cublasLtHandle_t *handle) {
    static int it = HANDLE;
    *handle = (cublasLtHandle_t)(void *)&it;
    return fake.fails_to_start ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_destroy(cublasLtHandle_t handle) {
    assert_int_equal(*(const int *)(const void *)handle, HANDLE);
    return CUBLAS_STATUS_SUCCESS;
}

static void *made(size_t bytes) {
    void *const it = calloc(1, bytes);
    assert_non_null(it);
    fake.created++;
    return it;
}

static cublasStatus_t unmade(void *it) {
    free(it);
    fake.created--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_desc_create(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                       cudaDataType_t scale) {
    assert_int_equal(compute, CUBLAS_COMPUTE_32F); /* no TF32 */
    assert_int_equal(scale, CUDA_R_32F);
    struct op *const op = made(sizeof(*op));
    op->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    op->a = op->b = CUBLAS_OP_N;
    *desc = (cublasLtMatmulDesc_t)(void *)op;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_desc_destroy(cublasLtMatmulDesc_t desc) {
    return unmade(desc);
}

static cublasStatus_t fake_desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                    const void *value, size_t bytes) {
    struct op *const op = (struct op *)(void *)desc;
    const struct {
        cublasLtMatmulDescAttributes_t what;
        void *to;
        size_t bytes;
    } known[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &op->a, sizeof(op->a)},
                 {CUBLASLT_MATMUL_DESC_TRANSB, &op->b, sizeof(op->b)},
                 {CUBLASLT_MATMUL_DESC_EPILOGUE, &op->epilogue, sizeof(op->epilogue)},
                 {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &op->bias, sizeof(op->bias)},
                 {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &op->aux, sizeof(op->aux)},
                 {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &op->aux_ld, sizeof(op->aux_ld)}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].what != what) continue;
        assert_int_equal(bytes, known[i].bytes);
        memcpy(known[i].to, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    fail_msg("attribute %d of a product", (int)what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                         uint64_t rows, uint64_t cols, int64_t ld) {
    struct layout *const it = made(sizeof(*it));
    assert_true(ld >= (int64_t)rows);
    *it = (struct layout){type, rows, cols, ld, 0, 1};
    *layout = (cublasLtMatrixLayout_t)(void *)it;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t layout) {
    return unmade(layout);
}

static cublasStatus_t fake_layout_set(cublasLtMatrixLayout_t layout,
                                      cublasLtMatrixLayoutAttribute_t what, const void *value,
                                      size_t bytes) {
    struct layout *const it = (struct layout *)(void *)layout;
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
        assert_int_equal(bytes, sizeof(it->count));
        memcpy(&it->count, value, bytes);
    } else {
        assert_int_equal(what, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
        assert_int_equal(bytes, sizeof(it->step));
        memcpy(&it->step, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_create(cublasLtMatmulPreference_t *preference) {
    *preference = made(sizeof(cublasLtMatmulPreferenceOpaque_t));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_preference_destroy(cublasLtMatmulPreference_t preference) {
    return unmade(preference);
}

static cublasStatus_t fake_preference_set(cublasLtMatmulPreference_t preference,
                                          cublasLtMatmulPreferenceAttributes_t what,
                                          const void *value, size_t bytes) {
    assert_non_null(preference);
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        assert_int_equal(bytes, sizeof(uint64_t));
    } else {
        assert_int_equal(bytes, sizeof(uint32_t));
        if (what == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) memcpy(&fake.align, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                     cublasLtMatmulPreference_t preference, int most,
                                     cublasLtMatmulHeuristicResult_t results[], int *count) {
    const struct op *const op = (const struct op *)(const void *)desc;
    assert_true(handle != NULL && a != NULL && b != NULL && c == d && preference != NULL);
    assert_true(most >= PROPOSED);
    memset(results, 0, (size_t)most * sizeof(results[0]));
    fake.proposed++;
    *count = 0;
    if (fake.proposes_nothing) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fake.has_no_epilogues && op->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *count < fake.proposals; ++*count) {
        results[*count].algo.data[0] = (uint64_t)*count;
        results[*count].workspaceSize = 64;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 const cublasLtMatmulAlgo_t *algo,
                                 cublasLtMatmulHeuristicResult_t *result) {
    assert_true(handle != NULL && desc != NULL && a != NULL && b != NULL && c == d);
    assert_true(algo->data[0] < PROPOSED);
    fake.checked++;
    result->workspaceSize = 64;
    result->state = CUBLAS_STATUS_SUCCESS;
    return fake.refuses_plans ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

/* ---- its arithmetic -------------------------------------------------------------------------- */

static size_t size_of(cudaDataType_t type) {
    return type == CUDA_R_16BF ? 2 : 4;
}

static float get(const void *x, size_t i, cudaDataType_t type) {
    return type == CUDA_R_16BF ? tw_bf16_to_f32(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static void put(void *x, size_t i, cudaDataType_t type, double value) {
    if (type == CUDA_R_16BF) ((uint16_t *)x)[i] = tw_bf16_from_f32((float)value);
    if (type == CUDA_R_32F) ((float *)x)[i] = (float)value;
}

static double gelu(double t) {
    return 0.5 * t * (1.0 + tanh(0.79788456080286536 * (t + 0.044715 * t * t * t)));
}

/* Copies a matrix from the device to the host. */
static void *brought(const void *device, const struct layout *l, int32_t z) {
    const size_t size = size_of(l->type);
    const size_t bytes = ((size_t)l->ld * (l->cols - 1) + l->rows) * size;
    void *const host = malloc(bytes);
    assert_non_null(host);
    card_read(host, (const char *)device + (size_t)(z * l->step) * size, bytes);
    return host;
}

static void taken(void *device, void *host, const struct layout *l, int32_t z) {
    const size_t size = size_of(l->type);
    const size_t bytes = ((size_t)l->ld * (l->cols - 1) + l->rows) * size;
    tw_cuda_copy_in(card, TW_CUDA_COMPUTE, (char *)device + (size_t)(z * l->step) * size, host,
                    bytes);
    card_finish();
    free(host);
}

/* Returns element (row, col) of a matrix, transposed if `op` says so. */
static double element(const void *x, const struct layout *l, cublasOperation_t op, uint64_t row,
                      uint64_t col) {
    const size_t at = op == CUBLAS_OP_T ? row * (size_t)l->ld + col : col * (size_t)l->ld + row;
    return (double)get(x, at, l->type);
}

/* Computes d = a * b + beta * d for one product. The bias is per row of d, as in cuBLASLt's manual.
 */
static void multiply(const struct op *op, const struct layout *la, const void *a,
                     const struct layout *lb, const void *b, const struct layout *ld, void *d,
                     float beta) {
    const uint64_t depth = op->a == CUBLAS_OP_T ? la->rows : la->cols;
    assert_int_equal(op->a == CUBLAS_OP_T ? la->cols : la->rows, ld->rows);
    assert_int_equal(op->b == CUBLAS_OP_T ? lb->cols : lb->rows, depth);
    assert_int_equal(op->b == CUBLAS_OP_T ? lb->rows : lb->cols, ld->cols);
    struct layout lv = {.type = ld->type, .rows = ld->rows, .cols = 1, .ld = (int64_t)ld->rows};
    const bool has_bias =
        op->epilogue == CUBLASLT_EPILOGUE_BIAS || op->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    void *const bias = has_bias ? brought(op->bias, &lv, 0) : NULL;
    struct layout lx = *ld;
    lx.ld = op->aux_ld;
    const bool has_aux =
        op->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || op->epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (has_aux) assert_true(op->aux_ld % 8 == 0 && op->aux_ld >= (int64_t)ld->rows);
    void *const aux = has_aux ? brought(op->aux, &lx, 0) : NULL;
    for (uint64_t j = 0; j < ld->cols; j++) {
        for (uint64_t i = 0; i < ld->rows; i++) {
            const size_t at = j * (size_t)ld->ld + i, xt = j * (size_t)lx.ld + i;
            double sum = beta == 0.0f ? 0.0 : (double)(beta * get(d, at, ld->type));
            for (uint64_t l = 0; l < depth; l++)
                sum += element(a, la, op->a, i, l) * element(b, lb, op->b, l, j);
            if (has_bias) sum += (double)get(bias, i, ld->type);
            if (op->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                put(aux, xt, ld->type, sum);
                sum = gelu(sum);
            }
            if (op->epilogue == CUBLASLT_EPILOGUE_DGELU) {
                const double x = (double)get(aux, xt, ld->type), step = 1e-4;
                sum *= (gelu(x + step) - gelu(x - step)) / (2.0 * step);
            }
            put(d, at, ld->type, sum);
        }
    }
    if (op->epilogue == CUBLASLT_EPILOGUE_BGRADA) { /* sums of the rows of a, in the type of d */
        void *const sums = brought(op->bias, &lv, 0);
        for (uint64_t i = 0; i < ld->rows; i++) {
            double sum = 0.0;
            for (uint64_t l = 0; l < depth; l++) sum += element(a, la, op->a, i, l);
            put(sums, i, ld->type, sum);
        }
        taken((void *)(uintptr_t)op->bias, sums, &lv, 0);
    }
    if (op->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        taken((void *)(uintptr_t)op->aux, aux, &lx, 0);
    } else {
        free(aux);
    }
    free(bias);
}

static cublasStatus_t fake_matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                  const void *alpha, const void *a, cublasLtMatrixLayout_t a_desc,
                                  const void *b, cublasLtMatrixLayout_t b_desc, const void *beta,
                                  const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                                  cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo,
                                  void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    const struct layout *const la = (const void *)a_desc, *const lb = (const void *)b_desc;
    const struct layout *const ld = (const void *)d_desc;
    const struct op *const op = (const void *)desc;
    assert_true(handle != NULL && c == d && c_desc == d_desc && workspace != NULL);
    assert_true(*(const float *)alpha == 1.0f && workspace_bytes == 64);
    assert_ptr_equal(stream, tw_cuda_stream(card, TW_CUDA_COMPUTE));
    fake.multiplied++;
    fake.algo = (int)algo->data[0];
    fake.op = *op;
    if ((fake.broken >> fake.algo & 1) != 0 ||
        (fake.fuses_badly && op->epilogue != CUBLASLT_EPILOGUE_DEFAULT))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    for (int32_t z = 0; z < ld->count; z++) {
        void *const on_a = brought(a, la, z), *const on_b = brought(b, lb, z);
        void *const on_d = brought(d, ld, z);
        multiply(op, la, on_a, lb, on_b, ld, on_d, *(const float *)beta);
        taken(d, on_d, ld, z);
        free(on_a), free(on_b);
    }
    unsigned char used[64];
    memset(used, 0xff, sizeof(used));
    tw_cuda_copy_in(card, TW_CUDA_COMPUTE, workspace, used, sizeof(used));
    card_finish();
    return CUBLAS_STATUS_SUCCESS;
}

static bool fake_is_capturing(void *stream) {
    assert_non_null(stream);
    return fake.is_capturing;
}

static double fake_time_us(void *stream, tw_gemm_work *work, void *context) {
    assert_non_null(stream);
    fake.timed++;
    if (work(context) != CUBLAS_STATUS_SUCCESS) return -1.0;
    if (fake.fuses_slowly && fake.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return 10.0;
    return fake.algo == fake.fastest ? 1.0 : 2.0 + (double)(fake.timed % 3);
}

static const struct tw_gemm_library library = {.version = fake_version,
                                               .status_name = fake_status_name,
                                               .create = fake_create,
                                               .destroy = fake_destroy,
                                               .desc_create = fake_desc_create,
                                               .desc_destroy = fake_desc_destroy,
                                               .desc_set = fake_desc_set,
                                               .layout_create = fake_layout_create,
                                               .layout_destroy = fake_layout_destroy,
                                               .layout_set = fake_layout_set,
                                               .preference_create = fake_preference_create,
                                               .preference_destroy = fake_preference_destroy,
                                               .preference_set = fake_preference_set,
                                               .heuristic = fake_heuristic,
                                               .check = fake_check,
                                               .matmul = fake_matmul,
                                               .is_capturing = fake_is_capturing,
                                               .time_us = fake_time_us};

/* ---- products -------------------------------------------------------------------------------- */

static char folder[] = "/tmp/thinwire-cublas-XXXXXX";
static char path[64];

static struct tw_cuda_products *products_new(const char *plans) {
    struct tw_error err = {0};
    struct tw_cuda_products *products = NULL;
    if (tw_gemm_products_create(&products, card, &library, plans, &err) != TW_OK)
        fail_msg("%s", err.message);
    return products;
}

static int set_up(void **state) {
    (void)remove(path);
    memset(&fake, 0, sizeof(fake));
    fake.fastest = 2;
    fake.proposals = PROPOSED;
    return 0;
}

/* Checks that all objects of the library were destroyed. */
static int tear_down(void **state) {
    card_free_all();
    return fake.created == 0 ? 0 : -1;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

enum { M = 5, K = 7, N = 16, BATCH = 2, ALL = 2 * BATCH * 24 * 24 };

/* Strides of the rows of a, b and y in elements, larger than their widths. */
static const size_t a_row = 11, b_row = 20, y_row = 24;

struct inputs {
    float a[ALL], b[ALL], y[ALL], bias[N], pre[ALL], sums[N];
};

static struct inputs inputs_of(uint64_t seed) {
    struct tw_rng rng;
    struct inputs in;
    float *const arrays[] = {in.a, in.b, in.y, in.bias, in.pre, in.sums};
    const size_t counts[] = {ALL, ALL, ALL, N, ALL, N};
    tw_rng_seed(&rng, seed);
    for (size_t i = 0; i < 6; i++) {
        float *const x = fill_new(&rng, counts[i], 1.0f);
        memcpy(arrays[i], x, counts[i] * sizeof(float));
        free(x);
    }
    return in;
}

static double p_of(const struct inputs *in, const struct tw_cuda_gemm *gemm, size_t z, size_t i,
                   size_t j) {
    const float *const a = in->a + z * gemm->a_step, *const b = in->b + z * gemm->b_step;
    double sum = 0.0;
    for (size_t l = 0; l < K; l++) {
        const float x = a[gemm->shape.form == TW_MATMUL_TN ? l * a_row + i : i * a_row + l];
        const float y = b[gemm->shape.form == TW_MATMUL_NT ? j * b_row + l : l * b_row + j];
        sum += (double)x * (double)y;
    }
    const size_t at = z * gemm->y_step + i * y_row + j;
    return gemm->shape.is_added ? sum + (double)in->y[at] : sum;
}

static struct tw_cuda_gemm gemm_of(enum tw_matmul_form form, enum tw_cuda_epilogue epilogue) {
    return (struct tw_cuda_gemm){.shape = {.m = M,
                                           .k = K,
                                           .n = N,
                                           .form = form,
                                           .a_stride = a_row,
                                           .b_stride = b_row,
                                           .y_stride = y_row},
                                 .epilogue = epilogue};
}

/* Runs a product and compares everything that it wrote with the definitions of gemm.h. Lends
 * gemm.spare_bytes bytes, if any, between guards. */
static void check(struct tw_cuda_products *products, struct tw_cuda_gemm gemm, uint64_t seed) {
    struct inputs in = inputs_of(seed), out;
    const size_t count = gemm.count == 0 ? 1 : gemm.count;
    if (gemm.spare_bytes > 0) gemm.spare = card_new(NULL, gemm.spare_bytes);
    gemm.y = card_new(in.y, sizeof(in.y));
    gemm.a = card_new(in.a, sizeof(in.a)), gemm.b = card_new(in.b, sizeof(in.b));
    if (gemm.epilogue == TW_CUDA_BIAS || gemm.epilogue == TW_CUDA_BIAS_GELU)
        gemm.bias = card_new(in.bias, sizeof(in.bias));
    if (gemm.epilogue == TW_CUDA_BIAS_GELU || gemm.epilogue == TW_CUDA_GELU_BACKWARD)
        gemm.pre = card_new(in.pre, sizeof(in.pre));
    if (gemm.epilogue == TW_CUDA_BIAS_GRADIENT)
        gemm.bias_gradient = card_new(in.sums, sizeof(in.sums));
    tw_cuda_gemm(products, tw_cuda_stream(card, TW_CUDA_COMPUTE), &gemm);
    out = in;
    card_read(out.y, gemm.y, sizeof(out.y));
    if (gemm.pre != NULL) card_read(out.pre, gemm.pre, sizeof(out.pre));
    if (gemm.bias_gradient != NULL) card_read(out.sums, gemm.bias_gradient, sizeof(out.sums));
    card_free_all();
    for (size_t z = 0; z < count; z++) {
        for (size_t i = 0; i < M; i++) {
            for (size_t j = 0; j < N; j++) {
                const size_t at = z * gemm.y_step + i * y_row + j;
                double want = p_of(&in, &gemm, z, i, j);
                if (gemm.bias != NULL) want += (double)in.bias[j];
                if (gemm.epilogue == TW_CUDA_BIAS_GELU) {
                    assert_true(fabs((double)out.pre[at] - want) <= 1e-4);
                    want = gelu(want);
                }
                if (gemm.epilogue == TW_CUDA_GELU_BACKWARD) {
                    const double x = (double)in.pre[at];
                    want *= (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
                }
                assert_true(fabs((double)out.y[at] - want) <= 1e-4);
                in.y[at] = out.y[at]; /* all other elements must be unchanged */
            }
        }
    }
    assert_memory_equal(out.y, in.y, sizeof(in.y));
    for (size_t j = 0; j < N && gemm.bias_gradient != NULL; j++) {
        double want = gemm.shape.is_added ? (double)in.sums[j] : 0.0;
        for (size_t l = 0; l < K; l++) want += (double)in.b[l * b_row + j];
        assert_true(fabs((double)out.sums[j] - want) <= 1e-4);
    }
}

/* Runs GELU in bfloat16 with all inputs 0.5, so that all of y has one value. The product is p =
 * 0.25 * K. */
static void run_bf16(struct tw_cuda_products *products, enum tw_cuda_epilogue epilogue) {
    struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_NT, epilogue);
    uint16_t halves[ALL], y[ALL];
    for (size_t i = 0; i < ALL; i++) halves[i] = tw_bf16_from_f32(0.5f);
    gemm.shape.type = gemm.shape.y_type = TW_BF16;
    gemm.y = card_new(halves, sizeof(halves));
    gemm.a = card_new(halves, sizeof(halves)), gemm.b = card_new(halves, sizeof(halves));
    if (epilogue == TW_CUDA_BIAS_GELU) gemm.bias = card_new(halves, sizeof(halves));
    gemm.pre = card_new(halves, sizeof(halves));
    tw_cuda_gemm(products, tw_cuda_stream(card, TW_CUDA_COMPUTE), &gemm);
    card_read(y, gemm.y, sizeof(y));
    card_free_all();
    const double p = 0.25 * K;
    const double want = epilogue == TW_CUDA_BIAS_GELU
                            ? gelu(p + 0.5)
                            : p * (gelu(0.5 + 1e-4) - gelu(0.5 - 1e-4)) / 2e-4;
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++)
            assert_true(fabs((double)tw_bf16_to_f32(y[i * y_row + j]) - want) <= 0.02);
}

/* ---- tests ----------------------------------------------------------------------------------- */

FACT(products_are_those_of_rows) {
    struct tw_cuda_products *const products = products_new(NULL);
    for (int form = TW_MATMUL_NN; form <= TW_MATMUL_TN; form++) {
        for (int is_added = 0; is_added < 2; is_added++) {
            struct tw_cuda_gemm gemm = gemm_of((enum tw_matmul_form)form, TW_CUDA_PLAIN);
            gemm.shape.is_added = is_added != 0;
            check(products, gemm, SEED);
            gemm.count = BATCH, gemm.a_step = ALL / 2, gemm.y_step = ALL / 2;
            gemm.b_step = is_added != 0 ? ALL / 2 : 0;
            check(products, gemm, SEED + 1);
        }
    }
    tw_cuda_products_close(products);
}

FACT(epilogues_are_fused) {
    struct tw_cuda_products *const products = products_new(NULL);
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_BIAS), SEED);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_BIAS);
    /* For a float32 y, GELU is not fused, because the library's accuracy is not specified. */
    check(products, gemm_of(TW_MATMUL_NT, TW_CUDA_BIAS_GELU), SEED);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    check(products, gemm_of(TW_MATMUL_NT, TW_CUDA_GELU_BACKWARD), SEED);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    run_bf16(products, TW_CUDA_BIAS_GELU);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    run_bf16(products, TW_CUDA_GELU_BACKWARD);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DGELU);
    for (int is_added = 1; is_added >= 0; is_added--) { /* both have the plan of the first */
        struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_TN, TW_CUDA_BIAS_GRADIENT);
        gemm.shape.is_added = is_added != 0;
        check(products, gemm, SEED);
        assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_BGRADA);
    }
    /* A plan also serves arrays at other addresses. */
    const int proposed = fake.proposed;
    void *first = NULL; /* shifts the addresses of the following arrays */
    assert_int_equal(tw_cuda_alloc(card, &first, 4096, "a test", NULL), TW_OK);
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_BIAS), SEED + 1);
    assert_int_equal(fake.proposed, proposed);
    tw_cuda_free(card, first);
    tw_cuda_products_close(products);
}

FACT(refused_epilogues_run_as_kernels) {
    struct tw_cuda_products *const products = products_new(NULL);
    fake.has_no_epilogues = true;
    for (int e = TW_CUDA_BIAS; e <= TW_CUDA_BIAS_GRADIENT; e++) {
        const bool is_last = e == TW_CUDA_BIAS_GRADIENT;
        check(products, gemm_of(is_last ? TW_MATMUL_TN : TW_MATMUL_NT, (enum tw_cuda_epilogue)e),
              SEED);
        assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    }
    tw_cuda_products_close(products);
}

/* Timing must not change a y to which the product is added: check() compares y. */
FACT(slow_epilogues_run_as_kernels) {
    struct tw_cuda_products *const products = products_new(NULL);
    fake.fuses_slowly = true;
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_BIAS), SEED);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    assert_int_equal(fake.proposed, 2);
    run_bf16(products, TW_CUDA_BIAS_GELU);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    run_bf16(products, TW_CUDA_GELU_BACKWARD);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    for (int is_added = 1; is_added >= 0; is_added--) { /* both have the plan of the first */
        struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_TN, TW_CUDA_BIAS_GRADIENT);
        gemm.shape.is_added = is_added != 0;
        check(products, gemm, SEED);
        assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    }
    tw_cuda_products_close(products);
}

FACT(the_fastest_is_chosen_once) {
    struct tw_cuda_products *const products = products_new(NULL);
    struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_NN, TW_CUDA_PLAIN);
    check(products, gemm, SEED);
    assert_int_equal(fake.algo, 2);
    /* per algorithm one untimed run and five timed ones */
    assert_int_equal(fake.timed, 6 * PROPOSED);
    assert_int_equal(fake.multiplied, 6 * PROPOSED + 1);
    assert_int_equal(fake.align, 256);
    check(products, gemm, SEED);
    assert_int_equal(fake.timed, 6 * PROPOSED);
    assert_int_equal(fake.proposed, 1);
    fake.fastest = 1;
    gemm.shape.form = TW_MATMUL_NT;
    check(products, gemm, SEED);
    assert_int_equal(fake.algo, 1);
    tw_cuda_products_close(products);
}

FACT(an_algorithm_that_fails_leads_to_the_next) {
    struct tw_cuda_products *const products = products_new(NULL);
    fake.broken = 1u << 2 | 1u << 0; /* the fastest algorithm and the first */
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_PLAIN), SEED);
    assert_int_equal(fake.algo, 1);
    fake.broken = 0;
    fake.fuses_badly = true;
    for (fake.proposals = 1; fake.proposals <= PROPOSED; fake.proposals += PROPOSED - 1) {
        struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_NN, TW_CUDA_BIAS);
        gemm.shape.form = fake.proposals == 1 ? TW_MATMUL_NN : TW_MATMUL_NT;
        check(products, gemm, SEED);
        assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    }
    tw_cuda_products_close(products);
}

/* While a graph is captured, a plan is a guess, which is not cached for the next start. The fake
 * device is older than Hopper, so a guess has no fused epilogue. */
FACT(nothing_is_timed_while_a_graph_is_made) {
    struct tw_cuda_products *products = products_new(path);
    fake.is_capturing = true;
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_PLAIN), SEED);
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_BIAS), SEED);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    assert_int_equal(fake.timed, 0);
    assert_int_equal(fake.algo, 0);
    tw_cuda_products_close(products);
    fake.is_capturing = false;
    products = products_new(path);
    check(products, gemm_of(TW_MATMUL_NN, TW_CUDA_PLAIN), SEED);
    assert_true(fake.timed > 0);
    tw_cuda_products_close(products);
}

/* Timing must not change a y to which the product is added: check() compares y. If neither the
 * caller lends enough memory nor the device has any left, the plan is a guess. */
FACT(added_products_are_timed_in_spare_memory) {
    enum { Y_BYTES = ((M - 1) * 24 + N) * sizeof(float) };
    static const struct {
        size_t lent, left;
        bool is_timed;
    } cases[] = {{0, Y_BYTES - 1, false},
                 {0, Y_BYTES, true},
                 {Y_BYTES - 1, Y_BYTES - 1, false},
                 {Y_BYTES - 1, Y_BYTES, true},
                 {Y_BYTES, 0, true}};
    struct tw_cuda *const whole = card;
    size_t workspace;
    (void)tw_cuda_workspace(whole, &workspace);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tw_error err = {0};
        uint64_t limit =
            workspace + cases[i].left + 3 * (uint64_t)(ALL * sizeof(float) + 2 * CARD_GUARD_BYTES);
        if (cases[i].lent > 0) limit += cases[i].lent + 2 * CARD_GUARD_BYTES;
        assert_int_equal(tw_cuda_open(&card, 0, limit, &err), TW_OK);
        struct tw_cuda_products *products = products_new(path);
        struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_TN, TW_CUDA_PLAIN);
        gemm.shape.is_added = true;
        gemm.spare_bytes = cases[i].lent;
        fake.timed = 0;
        check(products, gemm, SEED);
        assert_int_equal(fake.timed, cases[i].is_timed ? 6 * PROPOSED : 0);
        assert_int_equal(fake.algo, cases[i].is_timed ? 2 : 0);
        tw_cuda_products_close(products);
        assert_int_equal(access(path, F_OK), cases[i].is_timed ? 0 : -1);
        (void)remove(path);
        tw_cuda_close(card);
        card = whole;
    }
}

/* The first of the products that are added to y is usually not added, so timing needs no memory. */
FACT(an_added_product_has_the_plan_of_one_that_is_not) {
    struct tw_cuda_products *const products = products_new(NULL);
    struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_TN, TW_CUDA_BIAS_GRADIENT);
    check(products, gemm, SEED);
    const int timed = fake.timed;
    assert_true(timed > 0);
    gemm.shape.is_added = true;
    check(products, gemm, SEED);
    assert_int_equal(fake.timed, timed);
    assert_int_equal(fake.algo, 2);
    tw_cuda_products_close(products);
}

FACT(plans_come_back_and_are_checked) {
    struct tw_error err = {0};
    struct tw_cuda_products *products = products_new(path);
    const struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_NT, TW_CUDA_BIAS);
    check(products, gemm, SEED);
    assert_int_equal(tw_cuda_products_save(products, &err), TW_OK);
    tw_cuda_products_close(products);
    fake.timed = fake.proposed = 0;
    products = products_new(path);
    check(products, gemm, SEED);
    check(products, gemm, SEED);
    assert_int_equal(fake.timed, 0);
    assert_int_equal(fake.proposed, 0);
    assert_int_equal(fake.checked, 1); /* once */
    assert_int_equal(fake.algo, 2);
    assert_int_equal(fake.op.epilogue, CUBLASLT_EPILOGUE_BIAS);
    tw_cuda_products_close(products);
    /* The library refuses cached plans of another version, so matrix products are timed again. */
    fake.refuses_plans = true;
    products = products_new(path);
    check(products, gemm, SEED);
    assert_int_equal(fake.proposed, 2); /* once for the fused epilogue, once for the separate one */
    tw_cuda_products_close(products);
}

/* If the path of the plans is a folder, the file of this kind of device in it is used. */
FACT(a_folder_has_a_file_per_kind_of_device) {
    char in_folder[64], file[96];
    const struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_NT, TW_CUDA_BIAS);
    (void)snprintf(in_folder, sizeof(in_folder), "%s/", folder);
    (void)snprintf(file, sizeof(file), "%s/emulated.plans", folder);
    struct tw_cuda_products *products = products_new(in_folder);
    check(products, gemm, SEED);
    tw_cuda_products_close(products);
    fake.timed = 0;
    products = products_new(file);
    check(products, gemm, SEED);
    assert_int_equal(fake.timed, 0);
    tw_cuda_products_close(products);
    assert_int_equal(remove(file), 0);
}

FACT(a_library_that_does_not_start_is_named) {
    struct tw_error err = {0};
    struct tw_cuda_products *products;
    fake.fails_to_start = true;
    assert_int_equal(tw_gemm_products_create(&products, card, &library, NULL, &err), TW_DEVICE);
    assert_null(products);
    assert_non_null(strstr(err.message, "cuBLASLt 130100 does not start"));
}

/* Must be the last test, because a fault is permanent. */
FACT(a_product_that_cannot_be_done_is_a_fault) {
    struct tw_error err = {0};
    struct tw_cuda_products *const products = products_new(NULL);
    struct tw_cuda_gemm gemm = gemm_of(TW_MATMUL_TN, TW_CUDA_PLAIN);
    void *const y = card_new(NULL, ALL * sizeof(float));
    gemm.y = y, gemm.a = gemm.b = card_new(NULL, ALL * sizeof(float));
    card_free_all();
    fake.proposes_nothing = true;
    tw_cuda_gemm(products, tw_cuda_stream(card, TW_CUDA_COMPUTE), &gemm);
    assert_int_equal(tw_cuda_finish(card, TW_CUDA_COMPUTE, &err), TW_DEVICE);
    assert_non_null(strstr(err.message, "a product TN (5, 7, 16) of float32"));
    assert_non_null(strstr(err.message, "cuBLASLt says not supported"));
    tw_cuda_products_close(products);
}

int main(void) {
    if (!card_open()) return CARD_SKIPPED;
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof(path), "%s/plans", folder);
    print_message("seed %d\n", SEED);
    const int failed = test_run(NULL, NULL);
    tw_cuda_close(card);
    (void)remove(path);
    (void)rmdir(folder);
    return failed;
}
