/* test_matmul.c - every library's product is the product. */
#include "kernels/ops.h"

#include "tests/kernels/fill.h"

enum { SEED = 71 };

static void check_backend(tw_matmul_fn *multiply, struct tw_matmul shape) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t y_count = (size_t)shape.m * shape.n;
    float *a = fill_new(&rng, (size_t)shape.m * shape.k, 1.0f);
    float *b = fill_new(&rng, (size_t)shape.k * shape.n, 1.0f);
    float *y = fill_new(&rng, y_count, 1.0f), *want = fill_copy(y, y_count);
    multiply(y, a, b, shape);
    tw_matmul_ref(want, a, b, shape);
    fill_assert_near(tw_matmul_name(multiply), y, want, y_count, 1e-5);
    free(a), free(b), free(y), free(want);
}

static void every_backend_agrees_with_the_reference(void **state) {
    (void)state;
    const uint32_t sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {64, 128, 384}, {33, 200, 61}};
    tw_matmul_set_threads(1);
    for (int backend = TW_MATMUL_AUTO; backend <= TW_MATMUL_REF; backend++) {
        tw_matmul_fn *multiply = tw_matmul_get((enum tw_matmul_backend)backend);
        if (multiply == NULL) continue;
        print_message("%s\n", tw_matmul_name(multiply));
        for (size_t s = 0; s < 4; s++) {
            for (int form = TW_MATMUL_NN; form <= TW_MATMUL_TN; form++) {
                for (int is_added = 0; is_added < 2; is_added++) {
                    check_backend(multiply, (struct tw_matmul){.m = sizes[s][0],
                                                               .k = sizes[s][1],
                                                               .n = sizes[s][2],
                                                               .form = (enum tw_matmul_form)form,
                                                               .is_added = is_added != 0});
                }
            }
        }
    }
}

/* a (2, 3) b (3, 2), worked by hand, in the three forms. */
static void reference_is_right_by_hand(void **state) {
    (void)state;
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12};
    const float b_t[] = {7, 9, 11, 8, 10, 12}, a_t[] = {1, 4, 2, 5, 3, 6};
    const float want[] = {58, 64, 139, 154};
    float y[4];
    tw_matmul_ref(y, a, b, (struct tw_matmul){.m = 2, .k = 3, .n = 2, .form = TW_MATMUL_NN});
    assert_memory_equal(y, want, sizeof(want));
    tw_matmul_ref(y, a, b_t, (struct tw_matmul){.m = 2, .k = 3, .n = 2, .form = TW_MATMUL_NT});
    assert_memory_equal(y, want, sizeof(want));
    tw_matmul_ref(y, a_t, b, (struct tw_matmul){.m = 2, .k = 3, .n = 2, .form = TW_MATMUL_TN});
    assert_memory_equal(y, want, sizeof(want));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_right_by_hand),
        cmocka_unit_test(every_backend_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
