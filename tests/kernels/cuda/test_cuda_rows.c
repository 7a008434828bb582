/* test_cuda_rows.c - biases, rotation and embeddings on a device match the reference. */
#include "kernels/cuda/ops.h"

#include "tests/kernels/cuda/device.h"

static const uint32_t sizes[] = {1, 2, 31, 33, 64, 127, 1000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void check_bias_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t rows, uint32_t n,
                          size_t apart) {
    const size_t stride = n + apart, all = rows * stride, bytes = all * ops->type_bytes;
    struct tw_cuda_bias shape = {.type = ops->type, .rows = rows, .n = n, .stride = stride};
    float *bias = fill_new(rng, n, 1.0f), *sums = fill_new(rng, n, 1.0f);
    void *y = act_new(ops, rng, all, 1.0f), *got = act_copy(ops, y, all);
    void *on_y = device_of(y, bytes), *scratch = device_new(tw_cuda_bias_backward_scratch(&shape));
    float *on_bias = device_of(bias, n * sizeof(float));
    tw_cuda_bias(device_stream, &shape, on_y, on_bias);
    for (size_t r = 0; r < rows; r++)
        ops->bias((char *)y + r * stride * ops->type_bytes, bias, 1, n);
    device_get(got, on_y, bytes);
    /* exact: one addition, rounded once; gaps between rows are unchanged */
    assert_memory_equal(got, y, bytes);
    tw_cuda_bias_backward(device_stream, &shape, on_bias, on_y, scratch);
    ops->bias_backward(bias, y, stride, rows, n);
    device_get(sums, on_bias, n * sizeof(float));
    fill_assert_near("dbias", sums, bias, n, 1e-5);
    shape.is_first = true;
    tw_cuda_bias_backward(device_stream, &shape, on_bias, on_y, scratch);
    memset(bias, 0, n * sizeof(float));
    ops->bias_backward(bias, y, stride, rows, n);
    device_get(sums, on_bias, n * sizeof(float));
    fill_assert_near("first dbias", sums, bias, n, 1e-5);
    device_free(on_y), device_free(on_bias), device_free(scratch);
    free(bias), free(sums), free(y), free(got);
}

static void check_bias(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        check_bias_of(ops, rng, 5, sizes[s], 0);
        check_bias_of(ops, rng, 5, sizes[s], 7);
        check_bias_of(ops, rng, 5, sizes[s], 8);
    }
    check_bias_of(ops, rng, 333, 40, 0); /* more than one chunk of rows */
    check_bias_of(ops, rng, 1, 2100, 0);
}

static void check_rope_of(const struct tw_ops *ops, struct tw_rng *rng, const uint32_t shape[5]) {
    enum { CONTEXT = 5, FIRST = 3, PLACES = CONTEXT + FIRST };
    const uint32_t heads = shape[0], size = shape[1], half = size / 2, rows = shape[4];
    const size_t stride = (size_t)heads * size + shape[2], bytes = rows * stride * ops->type_bytes;
    float *cosines = fill_new(rng, (size_t)PLACES * half, 1.0f);
    float *sines = fill_new(rng, (size_t)PLACES * half, 1.0f);
    for (size_t i = 0; i < (size_t)PLACES * half; i++) {
        const double angle = 7.0 * tw_rng_unit(rng);
        cosines[i] = (float)cos(angle), sines[i] = (float)sin(angle);
    }
    void *x = act_new(ops, rng, rows * stride, 1.0f), *got = act_copy(ops, x, rows * stride);
    void *on_x = device_of(x, bytes);
    const size_t table = (size_t)PLACES * half * sizeof(float);
    const struct tw_cuda_rope rope = {
        .type = ops->type,
        .rope = {heads, size, device_of(cosines, table), device_of(sines, table)},
        .rows = rows,
        .context = CONTEXT,
        .position_first = FIRST,
        .x_stride = stride,
        .is_inverse = shape[3] != 0};
    tw_cuda_rope(device_stream, &rope, on_x);
    for (size_t r = 0; r < rows; r++) {
        const size_t at = (FIRST + r % CONTEXT) * half;
        const struct tw_rope row = {heads, size, cosines + at, sines + at};
        ops->rope((char *)x + r * stride * ops->type_bytes, stride, 1, &row, shape[3] != 0);
    }
    device_get(got, on_x, bytes);
    assert_as_ref(ops, "rope", got, x, rows * stride, 3e-7);
    device_free(on_x), device_free((void *)rope.rope.cos), device_free((void *)rope.rope.sin);
    free(cosines), free(sines), free(x), free(got);
}

static void check_rope(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t shapes[][5] = {
        /* heads, size, apart, inverse, rows */
        {1, 2, 0, 0, 14},     {2, 6, 3, 1, 14},   {3, 34, 0, 0, 14},
        {2, 64, 0, 0, 14},    {1, 128, 5, 1, 14}, {2, 128, 8, 1, 14},
        {3, 16, 0, 0, 14},    {2, 258, 0, 1, 5}, /* few rows a block */
        {1, 1026, 0, 0, 3},                      /* more pairs than threads of a block */
        {3, 2, 1, 0, 140000}, /* so many rows that a thread turns several heads */
        {1, 2, 0, 0, 270000}, /* more rows than threads are wanted */
    };
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        check_rope_of(ops, rng, shapes[s]);
}

/* If `vocab` is small, each token is frequent, and its rows spread over many chunks. */
static void check_embedding_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t vocab,
                               uint32_t width, uint32_t first) {
    enum { CONTEXT = 37, SEQUENCES = 8, STRIDE = CONTEXT + 1, PLACE = 2 };
    const uint32_t rows = SEQUENCES * CONTEXT - first;
    uint32_t tokens[SEQUENCES * STRIDE], order[SEQUENCES * CONTEXT], swap[SEQUENCES * CONTEXT];
    for (size_t i = 0; i < SEQUENCES * STRIDE; i++) tokens[i] = (uint32_t)tw_rng_below(rng, vocab);
    for (size_t i = 60; i < 200; i++) tokens[i] = vocab - 1;
    const size_t table = (size_t)vocab * width, places = (size_t)(PLACE + CONTEXT) * width;
    float *wte = fill_new(rng, table, 1.0f), *wpe = fill_new(rng, places, 1.0f);
    float *got_te = fill_copy(wte, table), *got_pe = fill_copy(wpe, places);
    const size_t n = (size_t)rows * width;
    void *x = act_new(ops, rng, n, 1.0f), *got = act_new(ops, rng, n, 1.0f);
    const struct tw_embedding in = {.row_first = first,
                                    .rows = rows,
                                    .context = CONTEXT,
                                    .width = width,
                                    .position_first = PLACE,
                                    .tokens = tokens,
                                    .token_stride = STRIDE,
                                    .columns = width};
    struct tw_embedding on = in;
    on.tokens = device_of(tokens, sizeof(tokens));
    float *on_wte = device_of(wte, table * sizeof(float));
    float *on_wpe = device_of(wpe, places * sizeof(float));
    void *on_x = device_new(n * ops->type_bytes);
    tw_cuda_embedding(device_stream, ops->type, on_x, on_wte, NULL, &on);
    ops->embedding(x, wte, NULL, &in);
    device_get(got, on_x, n * ops->type_bytes);
    assert_memory_equal(got, x, n * ops->type_bytes);
    tw_cuda_embedding(device_stream, ops->type, on_x, on_wte, on_wpe, &on);
    ops->embedding(x, wte, wpe, &in);
    device_get(got, on_x, n * ops->type_bytes);
    assert_as_ref(ops, "embedding", got, x, n, 0.0);

    tw_cuda_embedding_order(order, swap, &in);
    struct tw_cuda_embedding_gradients gradients = {
        .dwte = on_wte,
        .dx = on_x,
        .order = device_of(order, rows * sizeof(*order)),
        .scratch = device_new(tw_cuda_embedding_backward_scratch(&in))};
    tw_cuda_embedding_backward(device_stream, ops->type, &on, &gradients);
    gradients.dwpe = on_wpe;
    tw_cuda_embedding_backward(device_stream, ops->type, &on, &gradients);
    ops->embedding_backward(wte, NULL, got, &in);
    ops->embedding_backward(wte, wpe, got, &in);
    device_get(got_te, on_wte, table * sizeof(float));
    device_get(got_pe, on_wpe, places * sizeof(float));
    fill_assert_near("dwte", got_te, wte, table, 3e-6);
    fill_assert_near("dwpe", got_pe, wpe, places, 3e-6);
    /* The first of a step overwrites the places of the batch, not the table of tokens. */
    gradients.is_first = true;
    tw_cuda_embedding_backward(device_stream, ops->type, &on, &gradients);
    memset(wpe + (size_t)PLACE * width, 0, (size_t)CONTEXT * width * sizeof(float));
    ops->embedding_backward(wte, wpe, got, &in);
    device_get(got_te, on_wte, table * sizeof(float));
    device_get(got_pe, on_wpe, places * sizeof(float));
    fill_assert_near("dwte", got_te, wte, table, 3e-6);
    fill_assert_near("first dwpe", got_pe, wpe, places, 3e-6);
    device_free((void *)on.tokens), device_free(on_wte), device_free(on_wpe), device_free(on_x);
    device_free((void *)gradients.order), device_free(gradients.scratch);
    free(wte), free(wpe), free(got_te), free(got_pe), free(x), free(got);
}

static void check_embedding(const struct tw_ops *ops, struct tw_rng *rng) {
    check_embedding_of(ops, rng, 1, 8, 0);
    check_embedding_of(ops, rng, 2, 33, 5);
    check_embedding_of(ops, rng, 300, 40, 4);
    check_embedding_of(ops, rng, 100000, 3, 0);
    check_embedding_of(ops, rng, 11, 130, 37);
}

static void rows_are_put_in_order_of_their_tokens(void **state) {
    enum { ROWS = 1000 };
    uint32_t tokens[ROWS], order[ROWS], swap[ROWS];
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    for (size_t i = 0; i < ROWS; i++)
        tokens[i] = (uint32_t)(tw_rng_next(&rng) >> (i % 2 == 0 ? 33 : 60)); /* bit 31 is a mark */
    const struct tw_embedding in = {
        .rows = ROWS, .context = 10, .token_stride = 10, .tokens = tokens};
    tw_cuda_embedding_order(order, swap, &in);
    for (size_t i = 1; i < ROWS; i++) {
        const uint32_t a = order[i - 1], b = order[i];
        assert_true(tokens[a] < tokens[b] || (tokens[a] == tokens[b] && a < b));
    }
}

DEVICE_TEST(biases_are_those_of_the_reference, check_bias)
DEVICE_TEST(rotation_is_that_of_the_reference, check_rope)
DEVICE_TEST(embeddings_are_those_of_the_reference, check_embedding)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(biases_are_those_of_the_reference),
        cmocka_unit_test(rotation_is_that_of_the_reference),
        cmocka_unit_test(embeddings_are_those_of_the_reference),
        cmocka_unit_test(rows_are_put_in_order_of_their_tokens),
    };
    return DEVICE_RUN(tests);
}
