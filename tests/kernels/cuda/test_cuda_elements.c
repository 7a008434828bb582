/* test_cuda_elements.c - elementwise operations on a device match the reference at any size and
 * alignment. */
#include "kernels/cuda/ops.h"

#include "tests/kernels/cuda/device.h"

static const size_t sizes[] = {1, 2, 7, 8, 31, 33, 127, 1000, 4099};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* One operation y = f(y, x), on the device and in the reference. */
struct pair {
    const char *name;
    void (*on_device)(void *stream, enum tw_type type, void *y, const void *x, size_t n);
    void (*ref)(void *y, const void *x, size_t n);
    double tolerance;
};

/* Runs an operation on y and x, which begin at[0] and at[1] elements into their memory. The memory
 * around them must not change. */
static void check_pair_at(const struct tw_ops *ops, struct tw_rng *rng, const struct pair *pair,
                          size_t n, const size_t at[2]) {
    const size_t all = n + 16, bytes = all * ops->type_bytes;
    char *y = act_new(ops, rng, all, 3.0f), *x = act_new(ops, rng, all, 3.0f);
    char *got = act_copy(ops, y, all), *on_y = device_of(y, bytes), *on_x = device_of(x, bytes);
    const size_t y_at = at[0] * ops->type_bytes, x_at = at[1] * ops->type_bytes;
    pair->on_device(device_stream, ops->type, on_y + y_at, on_x + x_at, n);
    pair->ref(y + y_at, x + x_at, n);
    device_get(got, on_y, bytes);
    assert_as_ref(ops, pair->name, got + y_at, y + y_at, n, pair->tolerance);
    assert_memory_equal(got, y, y_at);
    assert_memory_equal(got + y_at + n * ops->type_bytes, y + y_at + n * ops->type_bytes,
                        bytes - y_at - n * ops->type_bytes);
    device_free(on_y), device_free(on_x);
    free(y), free(x), free(got);
}

static const struct tw_ops *slope_ops; /* table of the function below */

static void gelu_slope_ref(void *dy, const void *x, size_t n) {
    void *y = malloc(n * slope_ops->type_bytes); /* GELU again, which the device does elsewhere */
    assert_non_null(y);
    slope_ops->gelu_backward(dy, y, x, n);
    free(y);
}

static void check_pairs(const struct tw_ops *ops, struct tw_rng *rng) {
    slope_ops = ops;
    const struct pair pairs[] = {{"add", tw_cuda_add, ops->add, 0.0},
                                 {"gelu", tw_cuda_gelu, ops->gelu, 1e-6},
                                 {"gelu_backward", tw_cuda_gelu_backward, gelu_slope_ref, 3e-6}};
    const size_t at[4][2] = {{0, 0}, {1, 1}, {8, 0}, {0, 3}};
    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++) {
        for (size_t s = 0; s < SIZES; s++) {
            for (size_t a = 0; a < 4; a++) check_pair_at(ops, rng, &pairs[p], sizes[s], at[a]);
        }
    }
}

static void check_swiglu_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t rows,
                            uint32_t n) {
    const size_t all = (size_t)rows * n, bytes = all * ops->type_bytes;
    void *x = act_new(ops, rng, 2 * all, 3.0f), *y = act_new(ops, rng, all, 1.0f);
    void *dy = act_new(ops, rng, all, 1.0f), *dx = act_new(ops, rng, 2 * all, 1.0f);
    void *got = act_new(ops, rng, 2 * all, 1.0f);
    void *on_x = device_of(x, 2 * bytes), *on_y = device_new(bytes), *on_dy = device_of(dy, bytes);
    void *on_dx = device_new(2 * bytes);
    tw_cuda_swiglu(device_stream, ops->type, on_y, on_x, rows, n);
    ops->swiglu(y, x, rows, n);
    device_get(got, on_y, bytes);
    assert_as_ref(ops, "swiglu", got, y, all, 1e-6);

    const struct tw_cuda_swiglu_gradients apart = {.dx = on_dx, .dy = on_dy, .x = on_x};
    const struct tw_cuda_swiglu_gradients in_place = {
        .dx = on_x, .dy = on_dy, .x = on_x, .y = on_dy};
    ops->swiglu_backward(dx, dy, x, rows, n);
    tw_cuda_swiglu_backward(device_stream, ops->type, &apart, rows, n);
    device_get(got, on_dx, 2 * bytes);
    assert_as_ref(ops, "swiglu_backward", got, dx, 2 * all, 3e-6);
    tw_cuda_swiglu_backward(device_stream, ops->type, &in_place, rows, n);
    device_get(dx, on_x, 2 * bytes);
    assert_memory_equal(dx, got, 2 * bytes);
    device_get(got, on_dy, bytes);
    assert_as_ref(ops, "swiglu again", got, y, all, 1e-6);
    device_free(on_x), device_free(on_y), device_free(on_dy), device_free(on_dx);
    free(x), free(y), free(dy), free(dx), free(got);
}

static void check_swiglu(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) check_swiglu_of(ops, rng, 5, (uint32_t)sizes[s]);
    check_swiglu_of(ops, rng, 300, 40); /* more than one block */
}

/* Gates, GELU and their slopes on extreme values and NaN. */
static void check_extremes(const struct tw_ops *ops, struct tw_rng *rng) {
    const float values[] = {NAN,    INFINITY, -INFINITY, 3e38f, -3e38f, 1e20f,
                            -1e20f, 100.0f,   -100.0f,   0.0f,  -0.0f,  1e-30f};
    enum { N = sizeof(values) / sizeof(values[0]) };
    const size_t bytes = N * ops->type_bytes;
    void *x = act_new(ops, rng, N, 1.0f), *dy = act_new(ops, rng, N, 1.0f);
    void *y = act_new(ops, rng, N, 1.0f), *got = act_new(ops, rng, N, 1.0f);
    for (size_t i = 0; i < N; i++) act_put(ops, x, i, values[i]), act_put(ops, dy, i, 1.0f);
    void *on_x = device_of(x, bytes), *on_y = device_new(bytes), *on_dy = device_of(dy, bytes);
    tw_cuda_gelu(device_stream, ops->type, on_y, on_x, N);
    ops->gelu(y, x, N);
    device_get(got, on_y, bytes);
    assert_as_ref(ops, "gelu", got, y, N, 1e-6);
    tw_cuda_gelu_backward(device_stream, ops->type, on_dy, on_x, N);
    ops->gelu_backward(dy, y, x, N);
    device_get(got, on_dy, bytes);
    assert_as_ref(ops, "gelu_backward", got, dy, N, 1e-6);
    device_free(on_x), device_free(on_y), device_free(on_dy);
    free(x), free(dy), free(y), free(got);
}

/* Asserts equal bits, except that any NaN equals any other. */
static void assert_same_numbers(const float *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(want[i])) {
            assert_true(isnan(got[i]));
        } else {
            assert_memory_equal(&got[i], &want[i], sizeof(want[i]));
        }
    }
}

/* Every bit pattern of bf16, and the float32 values around each, are converted to the same bits as
 * on the host. */
static void check_convert(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { N = 3 * 65536 + 5 };
    float *from = fill_new(rng, N, 1.0f), *back = fill_copy(from, N);
    for (uint32_t i = 0; i < 3 * 65536; i++) {
        const uint32_t low[3] = {0, 0x8000u, (uint32_t)tw_rng_below(rng, 65536)};
        const uint32_t bits = i / 3 << 16 | low[i % 3];
        memcpy(&from[i], &bits, sizeof(bits));
    }
    void *to = act_new(ops, rng, N, 1.0f), *got = act_new(ops, rng, N, 1.0f);
    float *on_from = device_of(from, N * sizeof(float)), *on_back = device_new(N * sizeof(float));
    void *on_to = device_new(N * ops->type_bytes);
    tw_cuda_from_f32(device_stream, ops->type, on_to, on_from, N);
    tw_cuda_to_f32(device_stream, ops->type, on_back, on_to, N);
    ops->from_f32(to, from, N);
    ops->to_f32(from, to, N);
    device_get(back, on_back, N * sizeof(float));
    assert_same_numbers(back, from, N);
    device_get(got, on_to, N * ops->type_bytes);
    ops->to_f32(back, got, N);
    assert_same_numbers(back, from, N);
    device_free(on_from), device_free(on_back), device_free(on_to);
    free(from), free(back), free(to), free(got);
}

static void check_fill(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s], bytes = (n + 2) * ops->type_bytes;
        char *x = act_new(ops, rng, n + 2, 1.0f), *got = act_copy(ops, x, n + 2);
        char *on_x = device_of(x, bytes);
        tw_cuda_fill(device_stream, ops->type, on_x + ops->type_bytes, -1.5f, n);
        for (size_t i = 1; i <= n; i++) act_put(ops, x, i, -1.5f);
        device_get(got, on_x, bytes);
        assert_memory_equal(got, x, bytes);
        device_free(on_x), free(x), free(got);
    }
}

DEVICE_TEST(elements_are_those_of_the_reference, check_pairs)
DEVICE_TEST(gates_are_those_of_the_reference, check_swiglu)
DEVICE_TEST(extremes_are_those_of_the_reference, check_extremes)
DEVICE_TEST(conversions_have_the_bits_of_the_host, check_convert)
DEVICE_TEST(fill_writes_what_it_should_and_no_more, check_fill)

static void nothing_to_do_is_fine(void **state) {
    tw_cuda_add(device_stream, TW_BF16, NULL, NULL, 0);
    tw_cuda_swiglu(device_stream, TW_F32, NULL, NULL, 0, 8);
    device_finish();
}

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_those_of_the_reference),
        cmocka_unit_test(gates_are_those_of_the_reference),
        cmocka_unit_test(extremes_are_those_of_the_reference),
        cmocka_unit_test(conversions_have_the_bits_of_the_host),
        cmocka_unit_test(fill_writes_what_it_should_and_no_more),
        cmocka_unit_test(nothing_to_do_is_fine),
    };
    return DEVICE_RUN(tests);
}
