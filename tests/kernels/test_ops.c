/* test_ops.c - the tables are complete, and their shorter operations match double arithmetic: sums
 * and biases, rotary embedding, embeddings, conversions, AdamW. */
#include "tests/kernels/tables.h"

static const uint32_t sizes[] = {1, 3, 17, 65, 127, 128, 333};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROWS = 5 };

static void check_whole(const struct tw_ops *ops, struct tw_rng *rng) {
    print_message("table: %s, %s\n", ops->name, ops->type == TW_BF16 ? "bf16" : "float32");
    assert_int_equal(ops->type_bytes, tw_type_bytes(ops->type));
    assert_true(ops->norm != NULL && ops->norm_backward != NULL);
    assert_true(ops->add != NULL && ops->bias != NULL && ops->bias_backward != NULL);
    assert_true(ops->rope != NULL && ops->gelu != NULL && ops->gelu_backward != NULL);
    assert_true(ops->swiglu != NULL && ops->swiglu_backward != NULL);
    assert_true(ops->attention != NULL && ops->attention_backward != NULL);
    assert_true(ops->cross_entropy != NULL && ops->adamw != NULL && ops->sum_squares != NULL);
    assert_true(ops->embedding != NULL && ops->embedding_backward != NULL);
    assert_true(ops->from_f32 != NULL && ops->to_f32 != NULL);
}

static void every_type_has_its_tables(void **state) {
    for (int type = TW_F32; type <= TW_BF16; type++) {
        assert_int_equal(tw_ops_ref((enum tw_type)type)->type, type);
        assert_non_null(tw_ops_cpu((enum tw_type)type, 0));
        for (uint32_t i = 0; tw_ops_cpu((enum tw_type)type, i) != NULL; i++) {
            assert_int_equal(tw_ops_cpu((enum tw_type)type, i)->type, type);
        }
    }
    const enum tw_type best = tw_ops_best_type();
    print_message("best type: %s\n", best == TW_BF16 ? "bf16" : "float32");
    assert_true(best == TW_F32 || best == TW_BF16);
}

static void check_bias(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s], stride = n + 7;
        float *bias = fill_new(rng, n, 1.0f), *sum = fill_copy(bias, n);
        void *y = act_new(ops, rng, ROWS * n, 1.0f), *x = act_new(ops, rng, ROWS * n, 1.0f);
        void *y_before = act_copy(ops, y, ROWS * n), *dy = act_new(ops, rng, ROWS * stride, 1.0f);
        ops->bias(y, bias, ROWS, (uint32_t)n);
        for (size_t i = 0; i < ROWS * n; i++) {
            assert_act(ops, "bias", y, i, act_get(ops, y_before, i) + (double)bias[i % n], 0, 0);
        }
        void *before = act_copy(ops, y, ROWS * n);
        ops->add(y, x, ROWS * n);
        for (size_t i = 0; i < ROWS * n; i++) {
            assert_act(ops, "add", y, i, act_get(ops, before, i) + act_get(ops, x, i), 0, 0);
        }
        ops->bias_backward(sum, dy, stride, ROWS, (uint32_t)n);
        for (size_t i = 0; i < n; i++) {
            double want = (double)bias[i];
            for (size_t r = 0; r < ROWS; r++) want += act_get(ops, dy, r * stride + i);
            assert_close(ops, "dbias", i, (double)sum[i], want, 1e-6, 5.0);
        }
        /* Splitting by columns and by rows gives the same bits. */
        float *pieces = fill_copy(bias, n);
        const uint32_t cut = (uint32_t)(n * 2 / 3), rest = (uint32_t)n - cut;
        ops->bias_backward(pieces, dy, stride, ROWS, cut);
        ops->bias_backward(pieces + cut, act_at(ops, dy, cut), stride, 2, rest);
        ops->bias_backward(pieces + cut, act_at(ops, dy, 2 * stride + cut), stride, ROWS - 2, rest);
        assert_memory_equal(pieces, sum, n * sizeof(float));
        free(bias), free(sum), free(y), free(x), free(y_before), free(dy), free(before);
        free(pieces);
    }
}

static void check_rope(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t heads_of[] = {1, 2, 3, 1}, size_of[] = {2, 6, 34, 128};
    for (size_t s = 0; s < 4; s++) {
        const size_t half = size_of[s] / 2, wide = heads_of[s] * size_of[s], stride = wide + 3;
        float *cosines = fill_new(rng, ROWS * half, 1.0f),
              *sines = fill_new(rng, ROWS * half, 1.0f);
        for (size_t i = 0; i < ROWS * half; i++) {
            const double angle = 7.0 * tw_rng_unit(rng);
            cosines[i] = (float)cos(angle), sines[i] = (float)sin(angle);
        }
        const struct tw_rope rope = {
            .heads = heads_of[s], .head_size = size_of[s], .cos = cosines, .sin = sines};
        void *x = act_new(ops, rng, ROWS * stride, 1.0f), *before = act_copy(ops, x, ROWS * stride);
        ops->rope(x, stride, ROWS, &rope, false);
        void *turned = act_copy(ops, x, ROWS * stride);
        ops->rope(x, stride, ROWS, &rope, true);
        for (size_t r = 0; r < ROWS; r++) {
            for (size_t i = 0; i < stride; i++) {
                const size_t at = r * stride + i, in_head = i % size_of[s], pair = in_head % half;
                const double c = (double)cosines[r * half + pair];
                const double n = (double)sines[r * half + pair];
                const double a = act_get(ops, before, at);
                double want = a;
                if (i < wide && in_head < half) {
                    want = a * c - act_get(ops, before, at + half) * n;
                } else if (i < wide) {
                    want = a * c + act_get(ops, before, at - half) * n;
                }
                assert_act(ops, "rope", turned, at, want, 1e-6, 3.0);
                const double slack = ops->type == TW_BF16 ? 0.02 : 2e-6;
                assert_close(ops, "rope back", at, act_get(ops, x, at), a, slack, 3.0);
            }
        }
        free(cosines), free(sines), free(x), free(before), free(turned);
    }
}

static void check_embedding(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { VOCAB = 11, CONTEXT = 6, SEQUENCES = 3, STRIDE = CONTEXT + 1, FIRST = 4, PLACE = 2 };
    enum { ALL = SEQUENCES * CONTEXT - FIRST };
    uint32_t tokens[SEQUENCES * STRIDE];
    for (size_t i = 0; i < SEQUENCES * STRIDE; i++) tokens[i] = (uint32_t)tw_rng_below(rng, VOCAB);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        float *wte = fill_new(rng, VOCAB * n, 1.0f), *dwte = fill_copy(wte, VOCAB * n);
        float *wpe = fill_new(rng, (PLACE + CONTEXT) * n, 1.0f);
        float *dwpe = fill_copy(wpe, (PLACE + CONTEXT) * n);
        void *x = act_new(ops, rng, ALL * n, 1.0f), *alone = act_new(ops, rng, ALL * n, 1.0f);
        struct tw_embedding in = {.row_first = FIRST,
                                  .rows = ALL,
                                  .context = CONTEXT,
                                  .width = (uint32_t)n,
                                  .position_first = PLACE,
                                  .tokens = tokens,
                                  .token_stride = STRIDE};
        ops->embedding(x, wte, wpe, &in);
        ops->embedding(alone, wte, NULL, &in);
        double *dwte_want = calloc(VOCAB * n, sizeof(double));
        double *dwpe_want = calloc((PLACE + CONTEXT) * n, sizeof(double));
        assert_true(dwte_want != NULL && dwpe_want != NULL);
        for (size_t i = 0; i < ALL * n; i++) {
            const size_t row = FIRST + i / n, t = row % CONTEXT;
            const size_t token = tokens[row / CONTEXT * STRIDE + t] * n + i % n;
            const size_t place = (PLACE + t) * n + i % n;
            assert_act(ops, "x", x, i, (double)wte[token] + (double)wpe[place], 0.0, 0.0);
            assert_act(ops, "x without positions", alone, i, (double)wte[token], 0.0, 0.0);
            dwte_want[token] += act_get(ops, x, i);
            dwpe_want[place] += act_get(ops, x, i);
        }
        in.columns = (uint32_t)(n / 3); /* split by columns, as between threads */
        ops->embedding_backward(dwte, dwpe, x, &in);
        in.column_first = in.columns, in.columns = (uint32_t)n - in.columns;
        ops->embedding_backward(dwte, dwpe, x, &in);
        for (size_t i = 0; i < VOCAB * n; i++) {
            assert_close(ops, "dwte", i, (double)dwte[i], (double)wte[i] + dwte_want[i], 1e-6, 9.0);
        }
        for (size_t i = 0; i < (PLACE + CONTEXT) * n; i++) {
            assert_close(ops, "dwpe", i, (double)dwpe[i], (double)wpe[i] + dwpe_want[i], 1e-6, 9.0);
        }
        in.column_first = 0, in.columns = (uint32_t)n;
        ops->embedding_backward(dwte, NULL, x, &in);
        for (size_t i = 0; i < VOCAB * n; i++) {
            assert_close(ops, "dwte", i, (double)dwte[i], (double)wte[i] + 2.0 * dwte_want[i], 1e-6,
                         9.0);
        }
        free(wte), free(dwte), free(wpe), free(dwpe), free(x), free(alone);
        free(dwte_want), free(dwpe_want);
    }
}

/* Returns the bf16 nearest to x, or the even one of two that are equally near. */
static float nearest_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1u);
    const double down = fabs((double)x - (double)tw_bf16_to_f32(below));
    const double up = fabs((double)tw_bf16_to_f32(above) - (double)x);
    if (isinf(tw_bf16_to_f32(above))) { /* rounds as if the exponent were unlimited */
        return (bits & 0xffffu) >= 0x8000u ? tw_bf16_to_f32(above) : tw_bf16_to_f32(below);
    }
    if (up == down) return tw_bf16_to_f32(below % 2 == 0 ? below : above);
    return tw_bf16_to_f32(up < down ? above : below);
}

static void check_convert(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { N = 1001 };
    float *from = fill_new(rng, N, 1.0f), *back = fill_copy(from, N);
    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)tw_rng_next(rng);
        if (i % 4 == 1) bits = (bits & 0xffff0000u) | 0x8000u; /* halfway */
        if (i % 4 == 2) bits = (bits & 0xffff0000u) | 0x7fffu;
        if ((bits & 0x7f800000u) == 0x7f800000u) bits &= 0xbfffffffu;
        memcpy(&from[i], &bits, sizeof(bits));
    }
    const uint32_t odd_bits[] = {0x7f7fffffu, 0xff7fffffu, 0x7f7f8000u, 0x7f7f7fffu,
                                 0x00000001u, 0x80000000u, 0x00008001u};
    memcpy(from, odd_bits, sizeof(odd_bits));
    void *to = act_new(ops, rng, N, 1.0f);
    ops->from_f32(to, from, N);
    ops->to_f32(back, to, N);
    for (size_t i = 0; i < N; i++) {
        const float want = ops->type == TW_BF16 ? nearest_bf16(from[i]) : from[i];
        if (memcmp(&back[i], &want, sizeof(want)) == 0) continue;
        if (ops->type == TW_BF16 && fabsf(from[i]) < 1.1754944e-38f && back[i] == 0.0f) continue;
        fail_msg("%s: %a becomes %a, expected %a", ops->name, (double)from[i], (double)back[i],
                 (double)want);
    }
    const uint32_t nan_bits[] = {0x7fc00000u, 0xffffffffu, 0x7f800001u, 0x7fffffffu, 0xff80ffffu};
    for (size_t i = 0; i < N; i++) memcpy(&from[i], &nan_bits[i % 5], sizeof(float));
    ops->from_f32(to, from, N);
    ops->to_f32(back, to, N);
    for (size_t i = 0; i < N; i++) assert_true(isnan(back[i]));
    free(from), free(back), free(to);
}

static void check_sum_squares(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        float *x = fill_new(rng, n, 1.0f);
        double want = 0.0;
        for (size_t i = 0; i < n; i++) want += (double)x[i] * (double)x[i];
        assert_close(ops, "sum of squares", 0, ops->sum_squares(x, n), want, 1e-12, want);
        for (size_t i = 0; i < n; i++) x[i] = 3e38f;
        assert_true(isfinite(ops->sum_squares(x, n)));
        x[n - 1] = NAN;
        assert_true(!isfinite(ops->sum_squares(x, n)));
        x[n - 1] = 0.0f, x[n / 2] = -INFINITY;
        assert_true(!isfinite(ops->sum_squares(x, n)));
        free(x);
    }
}

static void check_adamw(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { N = 333 };
    const struct tw_adamw cfg = {.lr = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .decay = 0.1f,
                                 .correction1 = 0.19f,
                                 .correction2 = 0.0975f,
                                 .gradient_scale = 0.5f};
    float *gradient = fill_new(rng, N, 1.0f), *theta = fill_new(rng, N, 1.0f);
    float *m = fill_new(rng, N, 1.0f), *v = fill_new(rng, N, 1.0f);
    for (size_t i = 0; i < N; i++) v[i] *= v[i];
    float *theta_0 = fill_copy(theta, N), *m_0 = fill_copy(m, N), *v_0 = fill_copy(v, N);
    ops->adamw(theta, m, v, gradient, N, &cfg);
    for (size_t i = 0; i < N; i++) {
        const double g = (double)gradient[i] * 0.5;
        const double m_1 = 0.9 * (double)m_0[i] + 0.1 * g;
        const double v_1 = 0.95 * (double)v_0[i] + 0.05 * g * g;
        const double step = m_1 / 0.19 / (sqrt(v_1 / 0.0975) + 1e-8) + 0.1 * (double)theta_0[i];
        assert_close(ops, "m", i, (double)m[i], m_1, 1e-6, 1.0);
        assert_close(ops, "v", i, (double)v[i], v_1, 1e-6, 1.0);
        assert_close(ops, "theta", i, (double)theta[i], (double)theta_0[i] - 0.01 * step, 1e-6,
                     1.0 + fabs(step));
    }
    gradient[N - 1] = NAN;
    ops->adamw(theta, m, v, gradient, N, &cfg);
    assert_true(isnan(theta[N - 1]) && isfinite(theta[N - 2]));
    free(gradient), free(theta), free(m), free(v), free(theta_0), free(m_0), free(v_0);
}

TABLES_TEST(every_table_has_every_operation, check_whole)
TABLES_TEST(bias_add_and_column_sums_are_what_double_says, check_bias)
TABLES_TEST(rope_turns_halves_and_back, check_rope)
TABLES_TEST(embedding_gathers_and_scatters, check_embedding)
TABLES_TEST(conversion_is_to_nearest_even_and_keeps_nan, check_convert)
TABLES_TEST(sum_of_squares_sees_what_is_not_finite, check_sum_squares)
TABLES_TEST(adamw_is_what_double_says, check_adamw)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_tables),
        cmocka_unit_test(every_table_has_every_operation),
        cmocka_unit_test(bias_add_and_column_sums_are_what_double_says),
        cmocka_unit_test(rope_turns_halves_and_back),
        cmocka_unit_test(embedding_gathers_and_scatters),
        cmocka_unit_test(conversion_is_to_nearest_even_and_keeps_nan),
        cmocka_unit_test(sum_of_squares_sees_what_is_not_finite),
        cmocka_unit_test(adamw_is_what_double_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
