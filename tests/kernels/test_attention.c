/* test_attention.c - attention of every table and both types against a float64 twin, whose
 * gradients are checked by finite differences. */
#include "kernels/ops.h"

#include "tests/kernels/fill.h"

enum { SEED = 20250301, GUARD = 37 };

/* ---- the twin ------------------------------------------------------------------------------- */

/* All arrays are dense: q, out (queries, group, size), k, v (keys, size), lse (group, queries). */
struct twin {
    size_t queries, keys, group, size;
    const uint32_t *first; /* first key of each query (queries), or NULL if all are 0 */
    double *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
    double *p; /* (keys) */
};

static double *doubles(size_t n) {
    double *x = calloc(n, sizeof(*x));
    assert_non_null(x);
    return x;
}

static struct twin twin_new(struct tw_rng *rng, const struct tw_attention *shape) {
    struct twin t = {shape->queries, shape->keys, shape->group, shape->head_size,
                     .p = doubles(shape->keys)};
    const size_t many = t.queries * t.group * t.size, kv = t.keys * t.size;
    double **all[] = {&t.q, &t.out, &t.dout, &t.dq, &t.k, &t.v, &t.dk, &t.dv};
    for (size_t i = 0; i < 8; i++) {
        const size_t n = i < 4 ? many : kv;
        *all[i] = doubles(n);
        for (size_t j = 0; j < n; j++) (*all[i])[j] = 2.0 * tw_rng_unit(rng) - 1.0;
    }
    for (size_t j = 0; j < many; j++) t.q[j] *= 4.0;
    t.lse = doubles(t.group * t.queries);
    return t;
}

static void twin_free(struct twin *t) {
    double *all[] = {t->q, t->k, t->v, t->out, t->lse, t->dout, t->dq, t->dk, t->dv, t->p};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) free(all[i]);
}

static size_t twin_first(const struct twin *t, size_t i) {
    return t->first == NULL ? 0 : t->first[i];
}

/* Computes p[s] = exp(score - lse) of one query. Returns the end of the keys that it attends to. */
static size_t twin_softmax(struct twin *t, size_t g, size_t i) {
    const size_t first = twin_first(t, i), seen = t->keys - t->queries + i + 1;
    const double *q = t->q + (i * t->group + g) * t->size;
    double max = -INFINITY, sum = 0.0;
    for (size_t s = first; s < seen; s++) {
        double dot = 0.0;
        for (size_t c = 0; c < t->size; c++) dot += q[c] * t->k[s * t->size + c];
        t->p[s] = dot / sqrt((double)t->size);
        max = fmax(max, t->p[s]);
    }
    for (size_t s = first; s < seen; s++) sum += exp(t->p[s] - max);
    t->lse[g * t->queries + i] = max + log(sum);
    for (size_t s = first; s < seen; s++) t->p[s] = exp(t->p[s] - max) / sum;
    return seen;
}

static void twin_forward(struct twin *t) {
    for (size_t g = 0; g < t->group; g++) {
        for (size_t i = 0; i < t->queries; i++) {
            const size_t seen = twin_softmax(t, g, i);
            double *out = t->out + (i * t->group + g) * t->size;
            for (size_t c = 0; c < t->size; c++) out[c] = 0.0;
            for (size_t s = twin_first(t, i); s < seen; s++) {
                for (size_t c = 0; c < t->size; c++) out[c] += t->p[s] * t->v[s * t->size + c];
            }
        }
    }
}

static void twin_backward(struct twin *t) {
    memset(t->dq, 0, t->queries * t->group * t->size * sizeof(double));
    memset(t->dk, 0, t->keys * t->size * sizeof(double));
    memset(t->dv, 0, t->keys * t->size * sizeof(double));
    for (size_t g = 0; g < t->group; g++) {
        for (size_t i = 0; i < t->queries; i++) {
            const size_t seen = twin_softmax(t, g, i), at = (i * t->group + g) * t->size;
            double mean = 0.0; /* sum of p * dp over the keys */
            for (size_t c = 0; c < t->size; c++) mean += t->dout[at + c] * t->out[at + c];
            for (size_t s = twin_first(t, i); s < seen; s++) {
                double dp = 0.0;
                for (size_t c = 0; c < t->size; c++) dp += t->dout[at + c] * t->v[s * t->size + c];
                const double ds = t->p[s] * (dp - mean) / sqrt((double)t->size);
                for (size_t c = 0; c < t->size; c++) {
                    t->dv[s * t->size + c] += t->p[s] * t->dout[at + c];
                    t->dq[at + c] += ds * t->k[s * t->size + c];
                    t->dk[s * t->size + c] += ds * t->q[at + c];
                }
            }
        }
    }
}

/* Returns the sum of dout * out. */
static double twin_loss(struct twin *t) {
    double loss = 0.0;
    twin_forward(t);
    for (size_t i = 0; i < t->queries * t->group * t->size; i++) loss += t->dout[i] * t->out[i];
    return loss;
}

static void check_differences(const uint32_t *first) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const struct tw_attention shape = {.queries = 5, .keys = 8, .group = 2, .head_size = 6};
    struct twin t = twin_new(&rng, &shape);
    t.first = first;
    twin_forward(&t);
    twin_backward(&t);
    double *inputs[] = {t.q, t.k, t.v}, *gradients[] = {t.dq, t.dk, t.dv};
    for (size_t a = 0; a < 3; a++) {
        for (size_t i = 0; i < (a == 0 ? 5u * 2u : 8u) * 6u; i++) {
            const double x = inputs[a][i], h = 1e-5;
            inputs[a][i] = x + h;
            const double above = twin_loss(&t);
            inputs[a][i] = x - h;
            const double below = twin_loss(&t);
            inputs[a][i] = x;
            assert_true(fabs((above - below) / (2.0 * h) - gradients[a][i]) <= 1e-8);
        }
    }
    twin_free(&t);
}

static void twin_agrees_with_finite_differences(void **state) {
    const uint32_t first[] = {1, 1, 5, 6, 6};
    check_differences(NULL);
    check_differences(first);
}

/* ---- arrays of a table's type --------------------------------------------------------------- */

/* Rows of `width` elements, `stride` apart, with guards between rows and at the end. */
struct rows {
    const struct tw_ops *ops;
    size_t count, width, stride;
    unsigned char *memory;
};

static struct rows rows_new(const struct tw_ops *ops, size_t count, size_t width, size_t gap) {
    struct rows rows = {ops, count, width, width + gap, NULL};
    const size_t bytes = (count * rows.stride + GUARD) * ops->type_bytes;
    rows.memory = malloc(bytes);
    assert_non_null(rows.memory);
    memset(rows.memory, 0x5a, bytes);
    return rows;
}

static float rows_get(const struct rows *rows, size_t r, size_t c) {
    float value;
    rows->ops->to_f32(&value, rows->memory + (r * rows->stride + c) * rows->ops->type_bytes, 1);
    return value;
}

/* Stores x, rounded to the table's type, and sets x to the stored values. */
static struct rows rows_of(const struct tw_ops *ops, double *x, size_t count, size_t width,
                           size_t gap) {
    struct rows rows = rows_new(ops, count, width, gap);
    for (size_t i = 0; i < count * width; i++) {
        const size_t at = i / width * rows.stride + i % width;
        const float value = (float)x[i];
        ops->from_f32(rows.memory + at * ops->type_bytes, &value, 1);
        x[i] = (double)rows_get(&rows, i / width, i % width);
    }
    return rows;
}

static void rows_assert_guards(const struct rows *rows) {
    const size_t bytes = rows->ops->type_bytes, end = rows->count * rows->stride + GUARD;
    for (size_t i = 0; i < end; i++) {
        const bool is_inside = i < rows->count * rows->stride && i % rows->stride < rows->width;
        for (size_t b = 0; b < bytes && !is_inside; b++) {
            assert_int_equal(rows->memory[i * bytes + b], 0x5a);
        }
    }
}

/* Asserts that no difference exceeds `slack` times the largest expected value, or times 0.1 if that
 * is larger. */
static void assert_near(const char *what, const struct rows *got, const double *want,
                        double slack) {
    double largest = 0.1, worst = 0.0;
    for (size_t i = 0; i < got->count * got->width; i++) {
        const double value = (double)rows_get(got, i / got->width, i % got->width);
        assert_true(isfinite(value));
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(value - want[i]));
    }
    if (!(worst <= slack * largest)) {
        print_error("%s, table %s: off by %g of %g\n", what, got->ops->name, worst, largest);
        fail();
    }
}

/* Returns the tolerance, relative to the largest element. A float32 table computes in float32
 * throughout. A bf16 table rounds results, and perhaps P and dS before, to 8 bits. */
static double slack_of(const struct tw_ops *ops) {
    return ops->type == TW_F32 ? 1e-5 : 1e-2;
}

static float *scratch_new(const struct tw_attention *shape) {
    const size_t n = tw_attention_scratch(shape);
    float *scratch = malloc((n + 2) * sizeof(*scratch));
    assert_non_null(scratch);
    for (size_t i = 0; i < n + 2; i++) scratch[i] = NAN;
    scratch[n + 1] = 1234.5f;
    return scratch + 1; /* not aligned to a cache line */
}

static void scratch_free(float *scratch, const struct tw_attention *shape) {
    assert_true(scratch[tw_attention_scratch(shape)] == 1234.5f);
    free(scratch - 1);
}

/* ---- each table, each shape ----------------------------------------------------------------- */

static void each_table(void (*check)(const struct tw_ops *ops, struct tw_rng *rng)) {
    const enum tw_type types[] = {TW_F32, TW_BF16};
    for (size_t t = 0; t < 2; t++) {
        struct tw_rng rng;
        tw_rng_seed(&rng, SEED);
        check(tw_ops_ref(types[t]), &rng);
        for (uint32_t i = 0; tw_ops_cpu(types[t], i) != NULL; i++) {
            tw_rng_seed(&rng, SEED);
            check(tw_ops_cpu(types[t], i), &rng);
        }
    }
}

/* Runs one pass over all rows or, if `first` masks documents, one pass per document. */
static void pass(const struct tw_ops *ops, const struct tw_attention *window,
                 const struct tw_attention_arrays *arrays, const uint32_t *first,
                 bool is_backward) {
    const uint32_t queries = window->queries;
    for (uint32_t begin = 0, end; begin < queries; begin = end) {
        struct tw_attention_arrays part = *arrays;
        struct tw_attention shape = *window;
        end = begin + 1;
        while (end < queries && (first == NULL || first[end] == begin)) end++;
        if (first != NULL) {
            shape.queries = shape.keys = end - begin;
            part = tw_attention_document(&shape, arrays, ops->type_bytes, begin);
        }
        if (is_backward) {
            ops->attention_backward(&shape, &part);
        } else {
            ops->attention(&shape, &part);
        }
    }
}

/* Returns the twin's lse at an index of the passes, which store (group, queries) of one document
 * after another. */
static double lse_at(const struct twin *t, size_t at) {
    size_t begin = at / t->group, end; /* at first, begin is any query of the document */
    if (t->first == NULL) return t->lse[at];
    for (begin = t->first[begin], end = begin + 1; end < t->queries && t->first[end] == begin;)
        end++;
    at -= t->group * begin;
    return t->lse[at / (end - begin) * t->queries + begin + at % (end - begin)];
}

/* `first` is NULL or the mask of a window of documents. */
static void check_masked(const struct tw_ops *ops, struct tw_rng *rng, struct tw_attention shape,
                         const uint32_t *first) {
    struct twin t = twin_new(rng, &shape);
    t.first = first;
    const size_t wide = t.group * t.size;
    const struct rows q = rows_of(ops, t.q, t.queries, wide, 5);
    const struct rows k = rows_of(ops, t.k, t.keys, t.size, 3),
                      v = rows_of(ops, t.v, t.keys, t.size, 3);
    const struct rows dout = rows_of(ops, t.dout, t.queries, wide, 1);
    const struct rows out = rows_new(ops, t.queries, wide, 1),
                      dq = rows_new(ops, t.queries, wide, 5);
    const struct rows dk = rows_new(ops, t.keys, t.size, 3), dv = rows_new(ops, t.keys, t.size, 3);
    float *lse = fill_new(rng, t.group * t.queries + 1, 1.0f), *scratch = scratch_new(&shape);
    lse[t.group * t.queries] = 7.0f;
    shape.q_stride = q.stride, shape.kv_stride = k.stride, shape.out_stride = out.stride;

    twin_forward(&t);
    const struct tw_attention_arrays arrays = {.q = q.memory,
                                               .k = k.memory,
                                               .v = v.memory,
                                               .out = out.memory,
                                               .lse = lse,
                                               .scratch = scratch,
                                               .dout = dout.memory,
                                               .dq = dq.memory,
                                               .dk = dk.memory,
                                               .dv = dv.memory};
    pass(ops, &shape, &arrays, first, false);
    assert_near("out", &out, t.out, slack_of(ops));
    for (size_t i = 0; i < t.group * t.queries; i++) {
        const double want = lse_at(&t, i);
        assert_true(fabs((double)lse[i] - want) <= 1e-5 * (1.0 + fabs(want)));
    }
    assert_true(lse[t.group * t.queries] == 7.0f);

    for (size_t i = 0; i < t.queries * wide; i++)
        t.out[i] = (double)rows_get(&out, i / wide, i % wide);
    twin_backward(&t);
    pass(ops, &shape, &arrays, first, true);
    assert_near("dq", &dq, t.dq, slack_of(ops));
    assert_near("dk", &dk, t.dk, slack_of(ops));
    assert_near("dv", &dv, t.dv, slack_of(ops));

    const struct rows all[] = {q, k, v, dout, out, dq, dk, dv};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rows_assert_guards(&all[i]);
        free(all[i].memory);
    }
    scratch_free(scratch, &shape);
    free(lse);
    twin_free(&t);
}

static void check_shape(const struct tw_ops *ops, struct tw_rng *rng, struct tw_attention shape) {
    check_masked(ops, rng, shape, NULL);
}

static void check_documents(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { WINDOW = 273 };
    const uint32_t lengths[] = {1, 70, 3, 64, 1, 1, 5, 128}; /* lengths of consecutive documents */
    const uint32_t sizes[] = {7, 32, 64}, groups[] = {1, 3};
    uint32_t first[WINDOW], begin = 0;
    for (size_t d = 0; d < sizeof(lengths) / sizeof(lengths[0]); begin += lengths[d++]) {
        for (uint32_t i = begin; i < begin + lengths[d]; i++) first[i] = begin;
    }
    assert_int_equal(begin, WINDOW);
    for (size_t s = 0; s < 6; s++) {
        const struct tw_attention shape = {
            .queries = WINDOW, .keys = WINDOW, .group = groups[s % 2], .head_size = sizes[s / 2]};
        check_masked(ops, rng, shape, first);
    }
}

static void check_lengths(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t lengths[][2] = {{1, 1},    {2, 2},    {31, 31}, {64, 64}, {65, 65},  {129, 129},
                                   {1, 129},  {1, 64},   {3, 70},  {5, 64},  {17, 100}, {64, 65},
                                   {65, 129}, {16, 144}, {4, 200}, {70, 262}};
    const uint32_t sizes[] = {8, 16, 64, 80, 128}, groups[] = {1, 3, 4};
    size_t turn = 0; /* every length with every size; groups alternate */
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (size_t s = 0; s < 5; s++, turn++) {
            const struct tw_attention shape = {.queries = lengths[l][0],
                                               .keys = lengths[l][1],
                                               .group = groups[turn % 3],
                                               .head_size = sizes[s]};
            check_shape(ops, rng, shape);
        }
    }
}

static void check_odd_sizes(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t sizes[] = {1, 2, 3, 7, 17, 33, 65};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const struct tw_attention shape = {
            .queries = 67, .keys = 67, .group = 2, .head_size = sizes[s]};
        check_shape(ops, rng, shape);
        const struct tw_attention few = {
            .queries = 2, .keys = 67, .group = 3, .head_size = sizes[s]};
        check_shape(ops, rng, few);
    }
}

/* ---- other properties ----- ------------------------------------------------------------- */

struct inputs {
    struct rows q, k, v;
    struct tw_attention shape;
};

static struct inputs inputs_new(const struct tw_ops *ops, struct tw_rng *rng, uint32_t length) {
    struct inputs in = {.shape = {.queries = length, .keys = length, .group = 2, .head_size = 32}};
    struct twin t = twin_new(rng, &in.shape);
    in.q = rows_of(ops, t.q, length, 64, 0);
    in.k = rows_of(ops, t.k, length, 32, 0);
    in.v = rows_of(ops, t.v, length, 32, 0);
    in.shape.q_stride = 64, in.shape.kv_stride = 32, in.shape.out_stride = 64;
    twin_free(&t);
    return in;
}

/* Returns the arrays of a forward pass. */
static struct tw_attention_arrays arrays_of(const struct inputs *in, const struct rows *out,
                                            float *lse, float *scratch) {
    return (struct tw_attention_arrays){.q = in->q.memory,
                                        .k = in->k.memory,
                                        .v = in->v.memory,
                                        .out = out->memory,
                                        .lse = lse,
                                        .scratch = scratch};
}

static void inputs_free(struct inputs *in) {
    free(in->q.memory), free(in->k.memory), free(in->v.memory);
}

static void check_pieces(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { LENGTH = 200 };
    struct inputs in = inputs_new(ops, rng, LENGTH);
    const struct rows whole = rows_new(ops, LENGTH, 64, 0), pieces = rows_new(ops, LENGTH, 64, 0);
    float *scratch = scratch_new(&in.shape);
    struct tw_attention_arrays arrays = arrays_of(&in, &whole, NULL, scratch);
    ops->attention(&in.shape, &arrays);
    const uint32_t cuts[] = {1, 64, 65, 70, 71, 72, 135, 190, 193, LENGTH};
    uint32_t done = 0;
    for (size_t c = 0; c < sizeof(cuts) / sizeof(cuts[0]); c++) {
        struct tw_attention shape = in.shape;
        shape.queries = cuts[c] - done, shape.keys = cuts[c];
        const size_t at = (size_t)done * 64 * ops->type_bytes;
        arrays.q = in.q.memory + at, arrays.out = pieces.memory + at;
        ops->attention(&shape, &arrays);
        done = cuts[c];
    }
    double *want = doubles(LENGTH * 64);
    for (size_t i = 0; i < LENGTH * 64; i++) want[i] = (double)rows_get(&whole, i / 64, i % 64);
    assert_near("pieces", &pieces, want, slack_of(ops));
    scratch_free(scratch, &in.shape);
    free(whole.memory), free(pieces.memory), free(want);
    inputs_free(&in);
}

static void check_causal(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { LENGTH = 150, CHANGED = 75 };
    struct inputs in = inputs_new(ops, rng, LENGTH);
    const struct rows before = rows_new(ops, LENGTH, 64, 0), after = rows_new(ops, LENGTH, 64, 0);
    float lse[2][2 * LENGTH], *scratch = scratch_new(&in.shape);
    const struct tw_attention_arrays arrays = arrays_of(&in, &before, lse[0], scratch);
    ops->attention(&in.shape, &arrays);
    for (size_t i = CHANGED * 32; i < LENGTH * 32; i++) {
        const float value = 9.0f;
        ops->from_f32(in.k.memory + i * ops->type_bytes, &value, 1);
        ops->from_f32(in.v.memory + i * ops->type_bytes, &value, 1);
    }
    const struct tw_attention_arrays again = arrays_of(&in, &after, lse[1], scratch);
    ops->attention(&in.shape, &again);
    const size_t same = CHANGED * 64u * ops->type_bytes;
    assert_memory_equal(before.memory, after.memory, same);
    assert_memory_equal(lse[0], lse[1], CHANGED * sizeof(float));
    assert_memory_not_equal(before.memory + same, after.memory + same, 64u * ops->type_bytes);
    scratch_free(scratch, &in.shape);
    free(before.memory), free(after.memory);
    inputs_free(&in);
}

static void check_large_scores(const struct tw_ops *ops, struct tw_rng *rng) {
    struct inputs in = inputs_new(ops, rng, 70);
    for (size_t i = 0; i < 70 * 32; i++) { /* scores of thousands: one key has all the weight */
        const float value = 64.0f * rows_get(&in.k, i / 32, i % 32);
        ops->from_f32(in.k.memory + i * ops->type_bytes, &value, 1);
    }
    const struct rows out = rows_new(ops, 70, 64, 0);
    float lse[140], *scratch = scratch_new(&in.shape);
    const struct tw_attention_arrays arrays = arrays_of(&in, &out, lse, scratch);
    ops->attention(&in.shape, &arrays);
    for (size_t i = 0; i < 70 * 64; i++) {
        assert_true(fabsf(rows_get(&out, i / 64, i % 64)) <= 1.01f);
    }
    for (size_t i = 0; i < 140; i++) assert_true(isfinite(lse[i]));
    const float bad = NAN;
    ops->from_f32(in.k.memory + (size_t)40 * 32 * ops->type_bytes, &bad, 1);
    ops->attention(&in.shape, &arrays);
    for (size_t i = 0; i < 70; i++) assert_true(isnan(rows_get(&out, i, 0)) == (i >= 40));
    scratch_free(scratch, &in.shape);
    free(out.memory);
    inputs_free(&in);
}

#define ROW(name, check)                                                                           \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        each_table(check);                                                                         \
    }
ROW(attention_agrees_with_its_twin_forward_and_backward, check_lengths)
ROW(any_head_size_is_right, check_odd_sizes)
ROW(documents_see_themselves_alone, check_documents)
ROW(pieces_with_a_cache_make_the_whole, check_pieces)
ROW(attention_never_looks_ahead, check_causal)
ROW(large_scores_stay_finite_and_nan_stays_nan, check_large_scores)

int main(void) {
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twin_agrees_with_finite_differences),
        cmocka_unit_test(attention_agrees_with_its_twin_forward_and_backward),
        cmocka_unit_test(any_head_size_is_right),
        cmocka_unit_test(documents_see_themselves_alone),
        cmocka_unit_test(pieces_with_a_cache_make_the_whole),
        cmocka_unit_test(attention_never_looks_ahead),
        cmocka_unit_test(large_scores_stay_finite_and_nan_stays_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
