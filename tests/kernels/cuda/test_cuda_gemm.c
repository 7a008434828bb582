/* test_cuda_gemm.c - matrix products on a device, with their epilogues, match double arithmetic in
 * every form, type, size, stride and count. They write nothing else. */
#include "kernels/cuda/gemm.h"

#include "tests/kernels/cuda/card.h"

enum { SEED = 51107, GAP = 3 };

static struct tw_cuda_products *products;

/* ---- one product, host and device -------------------------------------------------------------
 */

struct sizes {
    uint32_t m, k, n;
};

/* Activations as stored on the device, and their values. */
struct array {
    size_t count;
    enum tw_type type;
    void *bytes;
    float *values;
};

static struct array array_new(struct tw_rng *rng, size_t count, enum tw_type type) {
    struct array a = {.count = count, .type = type, .values = fill_new(rng, count, 1.0f)};
    a.bytes = malloc(count * tw_type_bytes(type));
    assert_non_null(a.bytes);
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = tw_bf16_from_f32(a.values[i]);
        if (type == TW_BF16) {
            ((uint16_t *)a.bytes)[i] = half;
            a.values[i] = tw_bf16_to_f32(half);
        } else {
            ((float *)a.bytes)[i] = a.values[i];
        }
    }
    return a;
}

static void array_free(struct array *a) {
    free(a->bytes), free(a->values);
}

static void *array_card(const struct array *a) {
    return card_new(a->bytes, a->count * tw_type_bytes(a->type));
}

/* Reads back the array from the device. */
static void array_read(struct array *a, const void *device) {
    card_read(a->bytes, device, a->count * tw_type_bytes(a->type));
    for (size_t i = 0; i < a->count; i++) {
        a->values[i] = a->type == TW_BF16 ? tw_bf16_to_f32(((const uint16_t *)a->bytes)[i])
                                          : ((const float *)a->bytes)[i];
    }
}

/* All data of a matrix product on the host. */
struct work {
    struct tw_cuda_gemm gemm;
    struct array a, b, y, bias, pre, sums;
};

static size_t columns_of_a(const struct tw_matmul *s) {
    return s->form == TW_MATMUL_TN ? s->m : s->k;
}

static size_t columns_of_b(const struct tw_matmul *s) {
    return s->form == TW_MATMUL_NT ? s->k : s->n;
}

static size_t stride_of(size_t stride, size_t columns) {
    return stride == 0 ? columns : stride;
}

static struct work work_new(struct tw_rng *rng, struct tw_cuda_gemm gemm) {
    struct tw_matmul *const s = &gemm.shape;
    const size_t count = gemm.count == 0 ? 1 : gemm.count;
    const size_t a_rows = s->form == TW_MATMUL_TN ? s->k : s->m;
    const size_t b_rows = s->form == TW_MATMUL_NT ? s->n : s->k;
    const size_t a = a_rows * stride_of(s->a_stride, columns_of_a(s));
    const size_t b = b_rows * stride_of(s->b_stride, columns_of_b(s));
    const size_t y = s->m * stride_of(s->y_stride, s->n);
    if (count > 1) gemm.a_step = a + GAP, gemm.y_step = y + GAP;
    /* with an odd count, all products share b */
    if (count > 1 && count % 2 == 0) gemm.b_step = b + GAP;
    return (struct work){.gemm = gemm,
                         .a = array_new(rng, count * (a + GAP), s->type),
                         .b = array_new(rng, count * (b + GAP), s->type),
                         .y = array_new(rng, count * (y + GAP), s->y_type),
                         .bias = array_new(rng, s->n, s->y_type),
                         .pre = array_new(rng, y, s->y_type),
                         .sums = array_new(rng, s->n, TW_F32)};
}

static void work_free(struct work *work) {
    array_free(&work->a), array_free(&work->b), array_free(&work->y);
    array_free(&work->bias), array_free(&work->pre), array_free(&work->sums);
}

static double product(const struct work *w, size_t z, size_t i, size_t j, double *size) {
    const struct tw_matmul *const s = &w->gemm.shape;
    const size_t a_stride = stride_of(s->a_stride, columns_of_a(s));
    const size_t b_stride = stride_of(s->b_stride, columns_of_b(s));
    double sum = 0.0;
    *size = 0.0;
    for (size_t l = 0; l < s->k; l++) {
        const size_t at = s->form == TW_MATMUL_TN ? l * a_stride + i : i * a_stride + l;
        const size_t bt = s->form == TW_MATMUL_NT ? j * b_stride + l : l * b_stride + j;
        const double term = (double)w->a.values[z * w->gemm.a_step + at] *
                            (double)w->b.values[z * w->gemm.b_step + bt];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double gelu(double t) {
    return 0.5 * t * (1.0 + tanh(0.79788456080286536 * (t + 0.044715 * t * t * t)));
}

static double gelu_slope(double t) {
    const double h = tanh(0.79788456080286536 * (t + 0.044715 * t * t * t));
    const double dh = (1.0 - h * h) * 0.79788456080286536 * (1.0 + 0.134145 * t * t);
    return 0.5 * (1.0 + h) + 0.5 * t * dh;
}

/* Compares a stored value with `want`. Tolerates the rounding when it is stored, one earlier
 * rounding at magnitude `mid`, and the error of a sum of magnitude `size`. */
static void near(const char *what, enum tw_type type, double got, double want, double mid,
                 double size) {
    const double half_ulp = type == TW_BF16 ? 0x1p-8 : 0x1p-24;
    const double slack = 1.02 * half_ulp * (fabs(want) + fabs(mid)) + 2e-6 * size;
    if (fabs(got - want) <= slack) return;
    fail_msg("%s is %.9g, expected %.9g", what, got, want);
}

/* Checks one element of y, given the data before and after the product. */
static void check_element(const struct work *before, const struct work *after, size_t i, size_t j) {
    const struct tw_cuda_gemm *const gemm = &before->gemm;
    const enum tw_type type = gemm->shape.y_type;
    const size_t at = i * stride_of(gemm->shape.y_stride, gemm->shape.n) + j;
    double size, p = product(before, 0, i, j, &size);
    const double bias = (double)before->bias.values[j], got = (double)after->y.values[at];
    const double alone = p; /* the product may be rounded before y is added */
    if (gemm->shape.is_added) p += (double)before->y.values[at];
    if (gemm->epilogue == TW_CUDA_BIAS) near("y", type, got, p + bias, p, size + fabs(bias));
    if (gemm->epilogue == TW_CUDA_BIAS_GELU) {
        near("pre", type, (double)after->pre.values[at], p + bias, p, size + fabs(bias));
        /* The slope of GELU is at most 1.13. */
        const double mid = 1.13 * (fabs(p) + fabs(p + bias));
        near("y", type, got, gelu(p + bias), mid, size + fabs(bias));
    }
    if (gemm->epilogue == TW_CUDA_GELU_BACKWARD) {
        const double slope = gelu_slope((double)before->pre.values[at]);
        near("y", type, got, p * slope, p * slope, size);
        assert_true(after->pre.values[at] == before->pre.values[at]);
    }
    if (gemm->epilogue == TW_CUDA_PLAIN || gemm->epilogue == TW_CUDA_BIAS_GRADIENT)
        near("y", type, got, p, gemm->shape.is_added ? alone : 0.0, size + fabs(p));
}

static void check_sums(const struct work *before, const struct work *after) {
    const struct tw_matmul *const s = &before->gemm.shape;
    for (size_t j = 0; j < s->n; j++) {
        double want = s->is_added ? (double)before->sums.values[j] : 0.0, size = fabs(want);
        for (size_t l = 0; l < s->k; l++) {
            const double x = (double)before->b.values[l * stride_of(s->b_stride, s->n) + j];
            want += x, size += fabs(x);
        }
        near("bias_gradient", TW_F32, (double)after->sums.values[j], want, 0.0, size);
    }
}

/* Memory between rows and after the last one is unchanged. */
static void check_gaps(const struct work *before, const struct work *after) {
    const struct tw_cuda_gemm *const gemm = &before->gemm;
    const size_t stride = stride_of(gemm->shape.y_stride, gemm->shape.n);
    const size_t count = gemm->count == 0 ? 1 : gemm->count;
    for (size_t i = 0; i < before->y.count; i++) {
        const size_t z = gemm->y_step == 0 ? 0 : i / gemm->y_step, at = i - z * gemm->y_step;
        if (z < count && at < gemm->shape.m * stride && at % stride < gemm->shape.n) continue;
        assert_true(after->y.values[i] == before->y.values[i]);
    }
}

static void run(struct work *after) {
    struct tw_cuda_gemm gemm = after->gemm;
    const bool has_pre =
        gemm.epilogue == TW_CUDA_BIAS_GELU || gemm.epilogue == TW_CUDA_GELU_BACKWARD;
    void *const y = array_card(&after->y), *const pre = array_card(&after->pre);
    float *const sums = array_card(&after->sums);
    gemm.a = array_card(&after->a), gemm.b = array_card(&after->b), gemm.y = y;
    if (gemm.epilogue == TW_CUDA_BIAS || gemm.epilogue == TW_CUDA_BIAS_GELU)
        gemm.bias = array_card(&after->bias);
    if (has_pre) gemm.pre = pre;
    if (gemm.epilogue == TW_CUDA_BIAS_GRADIENT) gemm.bias_gradient = sums;
    tw_cuda_gemm(products, tw_cuda_stream(card, TW_CUDA_COMPUTE), &gemm);
    array_read(&after->y, y);
    array_read(&after->pre, pre);
    array_read(&after->sums, sums);
    card_free_all();
}

/* Copies all arrays. */
static struct work work_copy(const struct work *work) {
    struct work copy = *work;
    struct array *const arrays[] = {&copy.a, &copy.b, &copy.y, &copy.bias, &copy.pre, &copy.sums};
    for (size_t i = 0; i < 6; i++) {
        const size_t bytes = arrays[i]->count * tw_type_bytes(arrays[i]->type);
        void *const of = arrays[i]->bytes;
        arrays[i]->bytes = malloc(bytes);
        assert_non_null(arrays[i]->bytes);
        memcpy(arrays[i]->bytes, of, bytes);
        arrays[i]->values = fill_copy(arrays[i]->values, arrays[i]->count);
    }
    return copy;
}

static void check(struct tw_rng *rng, struct tw_cuda_gemm gemm) {
    struct work before = work_new(rng, gemm), after = work_copy(&before),
                again = work_copy(&before);
    const size_t count = gemm.count == 0 ? 1 : gemm.count;
    const size_t stride = stride_of(gemm.shape.y_stride, gemm.shape.n);
    run(&after);
    for (size_t i = 0; i < gemm.shape.m; i++) {
        for (size_t j = 0; j < gemm.shape.n; j++) {
            check_element(&before, &after, i, j);
            for (size_t z = 1; z < count; z++) {
                double size, p = product(&before, z, i, j, &size);
                const size_t at = z * before.gemm.y_step + i * stride + j;
                const double alone = gemm.shape.is_added ? p : 0.0;
                if (gemm.shape.is_added) p += (double)before.y.values[at];
                near("y", gemm.shape.y_type, (double)after.y.values[at], p, alone, size);
            }
        }
    }
    check_gaps(&before, &after);
    if (gemm.epilogue == TW_CUDA_BIAS_GRADIENT) check_sums(&before, &after);
    run(&again); /* the same bits */
    assert_memory_equal(again.y.bytes, after.y.bytes, after.y.count * tw_type_bytes(after.y.type));
    assert_memory_equal(again.sums.bytes, after.sums.bytes, after.sums.count * sizeof(float));
    work_free(&before), work_free(&after), work_free(&again);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const struct sizes shapes[] = {{1, 1, 1},   {2, 31, 33},  {33, 2, 1},     {127, 33, 31},
                                      {8, 64, 16}, {64, 40, 72}, {17, 300, 260}, {130, 96, 128}};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static const struct {
    enum tw_type in, out;
} types[] = {{TW_F32, TW_F32}, {TW_BF16, TW_F32}, {TW_BF16, TW_BF16}};

enum { TYPES = sizeof(types) / sizeof(types[0]) };

static struct tw_cuda_gemm gemm_of(size_t shape, size_t type, enum tw_matmul_form form) {
    return (struct tw_cuda_gemm){.shape = {.m = shapes[shape].m,
                                           .k = shapes[shape].k,
                                           .n = shapes[shape].n,
                                           .form = form,
                                           .type = types[type].in,
                                           .y_type = types[type].out}};
}

static void products_are_those_of_double_arithmetic(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SHAPES; s++) {
        for (size_t t = 0; t < TYPES; t++) {
            for (int form = TW_MATMUL_NN; form <= TW_MATMUL_TN; form++) {
                struct tw_cuda_gemm gemm = gemm_of(s, t, (enum tw_matmul_form)form);
                gemm.shape.is_added = (s + t + (size_t)form) % 2 == 1;
                check(&rng, gemm);
            }
        }
    }
}

static void rows_may_lie_apart(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 1; s < SHAPES; s++) {
        for (int form = TW_MATMUL_NN; form <= TW_MATMUL_TN; form++) {
            struct tw_cuda_gemm gemm = gemm_of(s, s % TYPES, (enum tw_matmul_form)form);
            gemm.shape.a_stride = columns_of_a(&gemm.shape) + 5;
            gemm.shape.b_stride = columns_of_b(&gemm.shape) + 8;
            gemm.shape.y_stride = gemm.shape.n + (s % 2 == 0 ? 8 : 1);
            gemm.shape.is_added = s % 3 == 0;
            check(&rng, gemm);
        }
    }
}

static void several_products_are_done_at_once(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 1; s < SHAPES; s++) {
        for (int form = TW_MATMUL_NN; form <= TW_MATMUL_TN; form++) {
            struct tw_cuda_gemm gemm = gemm_of(s, (s + 1) % TYPES, (enum tw_matmul_form)form);
            gemm.count = 2 + (uint32_t)form;
            gemm.shape.is_added = s % 2 == 0;
            check(&rng, gemm);
        }
    }
}

static void epilogues_are_computed(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const enum tw_cuda_epilogue epilogues[] = {TW_CUDA_BIAS, TW_CUDA_BIAS_GELU,
                                               TW_CUDA_GELU_BACKWARD};
    for (size_t s = 0; s < SHAPES; s++) {
        for (size_t t = 0; t < TYPES; t++) {
            for (size_t e = 0; e < 3; e++) {
                struct tw_cuda_gemm gemm = gemm_of(s, t, (enum tw_matmul_form)((s + e) % 2));
                gemm.epilogue = epilogues[e];
                if (s % 3 == 2) gemm.shape.y_stride = gemm.shape.n + 8;
                check(&rng, gemm);
            }
        }
    }
}

static void biases_get_their_gradient(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SHAPES; s++) {
        for (size_t t = 0; t < 2; t++) {
            struct tw_cuda_gemm gemm = gemm_of(s, t, TW_MATMUL_TN);
            gemm.epilogue = TW_CUDA_BIAS_GRADIENT;
            gemm.shape.is_added = (s + t) % 2 == 0;
            if (s % 3 == 1) gemm.shape.b_stride = gemm.shape.n + 8;
            check(&rng, gemm);
        }
    }
}

/* ---- real sizes: on a GPU, if TW_CUDA_LARGE is set ------------------------------------------- */

/* The matrix products of a step of GPT-2 124M with 32768 rows. The head is computed in chunks of
 * 5376 rows. */
enum { ROWS = 32768, CHUNK = 5376, WIDTH = 768, WIDE = 3072, VOCAB = 50304, SAMPLES = 200 };

static const struct tw_cuda_gemm real[] = {
    {.shape = {.m = ROWS, .k = WIDTH, .n = 3 * WIDTH}, .epilogue = TW_CUDA_BIAS},
    {.shape = {.m = ROWS, .k = WIDTH, .n = WIDE}, .epilogue = TW_CUDA_BIAS_GELU},
    {.shape = {.m = ROWS, .k = WIDE, .n = WIDTH}, .epilogue = TW_CUDA_BIAS},
    {.shape = {.m = ROWS, .k = WIDTH, .n = WIDE, .form = TW_MATMUL_NT},
     .epilogue = TW_CUDA_GELU_BACKWARD},
    {.shape = {.m = ROWS, .k = 3 * WIDTH, .n = WIDTH, .form = TW_MATMUL_NT}},
    {.shape = {.m = WIDTH, .k = ROWS, .n = 3 * WIDTH, .form = TW_MATMUL_TN, .is_added = true},
     .epilogue = TW_CUDA_BIAS_GRADIENT},
    {.shape = {.m = WIDE, .k = ROWS, .n = WIDTH, .form = TW_MATMUL_TN, .is_added = true},
     .epilogue = TW_CUDA_BIAS_GRADIENT},
    {.shape = {.m = CHUNK, .k = WIDTH, .n = VOCAB, .form = TW_MATMUL_NT}},
    {.shape = {.m = CHUNK, .k = VOCAB - 47, .n = WIDTH, .a_stride = VOCAB}},
    {.shape = {.m = VOCAB - 47,
               .k = CHUNK,
               .n = WIDTH,
               .form = TW_MATMUL_TN,
               .a_stride = VOCAB,
               .is_added = true}},
};

static void products_of_real_sizes_agree_where_sampled(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    if (getenv("TW_CUDA_LARGE") == NULL) skip();
    for (size_t s = 0; s < sizeof(real) / sizeof(real[0]); s++) {
        struct tw_cuda_gemm gemm = real[s];
        gemm.shape.type = TW_BF16;
        gemm.shape.y_type = gemm.shape.form == TW_MATMUL_TN ? TW_F32 : TW_BF16;
        struct work before = work_new(&rng, gemm), after = work_copy(&before);
        run(&after);
        for (unsigned i = 0; i < SAMPLES; i++)
            check_element(&before, &after, (size_t)tw_rng_below(&rng, gemm.shape.m),
                          (size_t)tw_rng_below(&rng, gemm.shape.n));
        check_gaps(&before, &after);
        if (gemm.epilogue == TW_CUDA_BIAS_GRADIENT) check_sums(&before, &after);
        work_free(&before), work_free(&after);
    }
}

int main(void) {
    struct tw_error err = {0};
    if (!card_open()) return CARD_SKIPPED;
    print_message("seed %d\n", SEED);
    if (tw_cuda_products_open(&products, card, NULL, &err) != TW_OK) {
        print_message("%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_double_arithmetic),
        cmocka_unit_test(rows_may_lie_apart),
        cmocka_unit_test(several_products_are_done_at_once),
        cmocka_unit_test(epilogues_are_computed),
        cmocka_unit_test(biases_get_their_gradient),
        cmocka_unit_test(products_of_real_sizes_agree_where_sampled),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tw_cuda_products_close(products);
    tw_cuda_close(card);
    return failed;
}
