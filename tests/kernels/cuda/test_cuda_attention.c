/* test_cuda_attention.c - both attention passes on a device against the reference: odd lengths,
 * groups, head sizes, documents, caches, both types; memory that must not be read or written; the
 * same bits for any order of threads. Runs on the emulated device, and on a GPU if there is one. */
#include "kernels/cuda/attention.h"

#include "tests/kernels/cuda/device.h"
#ifdef TW_CUDA_EMULATED
#include "tests/emulated/emulation.h"
#endif

enum { SEED = 20261122, EDGE_BYTES = 256, UNTOUCHED = 0x5a, POISON = 0xff };

/* ---- arrays on the device -------------------------------------------------------------------- */

/* Shape (sequences, rows_total, stride) of an array, of which only `rows` rows and `width` columns
 * are used. */
struct geometry {
    size_t sequences, rows, rows_total, width, stride;
    uint32_t element; /* bytes */
};

/* An array between guards. Unused elements are NaN in an input, and must not change in an output.
 */
struct array {
    struct geometry of;
    size_t bytes, begin; /* size in bytes with guards; offset of the data */
    unsigned char *host, *device;
};

static size_t data_bytes(const struct geometry *g) {
    return g->sequences * g->rows_total * g->stride * g->element;
}

/* `shift` is the distance in bytes of the data from a multiple of 16. */
static struct array array_new(struct geometry of, size_t shift, int with) {
    struct array a = {
        .of = of, .bytes = data_bytes(&of) + 2 * EDGE_BYTES, .begin = EDGE_BYTES + shift};
    a.host = malloc(a.bytes);
    assert_non_null(a.host);
    memset(a.host, with, a.bytes);
    a.device = device_new(a.bytes);
    return a;
}

static void array_free(struct array *a) {
    device_free(a->device);
    free(a->host);
}

static bool is_used(const struct geometry *g, size_t element) {
    return element % g->stride < g->width && element / g->stride % g->rows_total < g->rows;
}

/* Fills the array with random numbers of the given type. */
static void array_fill(struct array *a, enum tw_type type, float scale, struct tw_rng *rng) {
    const size_t n = data_bytes(&a->of) / a->of.element;
    float *x = fill_new(rng, n, scale);
    for (size_t i = 0; i < n; i++) {
        if (!is_used(&a->of, i)) continue;
        tw_ops_ref(type)->from_f32(a->host + a->begin + i * a->of.element, x + i, 1);
    }
    free(x);
}

static void array_in(const struct array *a) {
    tw_cuda_copy_in(device, TW_CUDA_COMPUTE, a->device, a->host, a->bytes);
}

/* Returns a copy of the device's array on the heap. */
static unsigned char *array_out(const struct array *a) {
    unsigned char *now = malloc(a->bytes);
    assert_non_null(now);
    device_get(now, a->device, a->bytes);
    return now;
}

static float value_at(const struct array *a, const unsigned char *bytes, size_t i) {
    float value;
    const enum tw_type type = a->of.element == 2 ? TW_BF16 : TW_F32;
    tw_ops_ref(type)->to_f32(&value, bytes + a->begin + i * a->of.element, 1);
    return value;
}

/* Compares the device's array with the expected values in a->host. */
static void assert_near(const char *what, const struct array *a, double slack) {
    unsigned char *got = array_out(a);
    double largest = 0.5, worst = 0.0; /* inputs are about 1 */
    for (size_t i = 0; i < a->bytes; i++) {
        const size_t at = (i - a->begin) / a->of.element;
        if (i >= a->begin && i < a->begin + data_bytes(&a->of) && is_used(&a->of, at)) continue;
        if (got[i] != UNTOUCHED) fail_msg("%s: byte %zu is not its own", what, i);
    }
    for (size_t i = 0; i < data_bytes(&a->of) / a->of.element; i++) {
        if (!is_used(&a->of, i)) continue;
        const double value = (double)value_at(a, got, i), want = (double)value_at(a, a->host, i);
        if (!isfinite(value)) fail_msg("%s: element %zu is not finite", what, i);
        largest = fmax(largest, fabs(want));
        worst = fmax(worst, fabs(value - want));
    }
    free(got);
    if (!(worst <= slack * largest)) fail_msg("%s is off by %g of %g", what, worst, largest);
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* The kernels that the backward and forward passes of a test use. */
static enum tw_cuda_flash flash;
static enum tw_cuda_tile tile;

struct sizes {
    enum tw_type type;
    uint32_t head_size, queries, group, kv_heads, sequences;
    uint32_t past;     /* keys before the first query, as in a cache */
    uint32_t document; /* mean number of rows in a document; 0: no documents */
    uint32_t gap;      /* extra elements between rows */
    uint32_t shift;    /* distance in bytes from a multiple of 16 */
};

enum which { Q, KV, DOUT, OUT, LSE, DQ, DKV, BEGIN, SCRATCH, ARRAYS };

struct batch {
    struct sizes sizes;
    struct tw_cuda_attention shape;
    struct array array[ARRAYS];
};

static bool is_input(enum which which) {
    return which == Q || which == KV || which == DOUT || which == BEGIN;
}

static struct tw_cuda_attention shape_of(const struct sizes *s) {
    const size_t kv_width = (size_t)s->kv_heads * s->head_size;
    return (struct tw_cuda_attention){
        .type = s->type,
        .sequences = s->sequences,
        .queries = s->queries,
        .keys = s->past + s->queries,
        .kv_heads = s->kv_heads,
        .group = s->group,
        .head_size = s->head_size,
        .flash = flash,
        .tile = tile,
        .q_stride = kv_width * s->group + s->gap,
        .kv_stride = 2 * kv_width + s->gap,
        .out_stride = kv_width * s->group + 2 * (size_t)s->gap,
        .kv_rows = s->past + s->queries + (s->past > 0 ? 5 : 0),
    };
}

static struct geometry geometry_of(const struct tw_cuda_attention *s, enum which which) {
    const uint32_t element = tw_type_bytes(s->type);
    const size_t width = (size_t)s->kv_heads * s->head_size, heads = s->kv_heads * s->group;
    if (which == Q || which == DQ) {
        return (struct geometry){s->sequences,     s->queries,  s->queries,
                                 width * s->group, s->q_stride, element};
    }
    if (which == OUT || which == DOUT) {
        return (struct geometry){s->sequences,     s->queries,    s->queries,
                                 width * s->group, s->out_stride, element};
    }
    if (which == KV || which == DKV) {
        return (struct geometry){s->sequences, s->keys,      s->kv_rows,
                                 2 * width,    s->kv_stride, element};
    }
    if (which == SCRATCH) {
        return (struct geometry){1, 1, 1, 0, tw_cuda_attention_scratch(s) / 4, 4};
    }
    return (struct geometry){s->sequences, heads, heads, s->queries, s->queries, 4};
}

/* Makes documents of about `document` rows, different in each sequence. */
static void fill_begin(struct batch *batch, struct tw_rng *rng) {
    uint32_t *begin = (uint32_t *)(void *)(batch->array[BEGIN].host + batch->array[BEGIN].begin);
    const uint32_t queries = batch->sizes.queries, document = batch->sizes.document;
    for (uint32_t s = 0; s < batch->sizes.sequences; s++) {
        for (uint32_t i = 0, first = 0; i < queries; i++) {
            if (i > 0 && tw_rng_unit(rng) * document < 1.0) first = i;
            begin[s * queries + i] = first;
        }
    }
}

static struct batch batch_new(const struct sizes *sizes) {
    struct batch batch = {.sizes = *sizes, .shape = shape_of(sizes)};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (enum which i = 0; i < ARRAYS; i++) {
        const bool is_words = i == LSE || i == BEGIN || i == SCRATCH;
        batch.array[i] = array_new(geometry_of(&batch.shape, i), is_words ? 0 : sizes->shift,
                                   is_input(i) ? POISON : UNTOUCHED);
        if (is_input(i) && i != BEGIN) {
            array_fill(&batch.array[i], sizes->type, i == DOUT ? 1.0f : 1.5f, &rng);
        }
    }
    if (sizes->document > 0) fill_begin(&batch, &rng);
    return batch;
}

static void batch_free(struct batch *batch) {
    for (enum which i = 0; i < ARRAYS; i++) array_free(&batch->array[i]);
}

static void *on_device(const struct batch *batch, enum which which, size_t element) {
    const struct array *a = &batch->array[which];
    return a->device + a->begin + element * a->of.element;
}

/* Runs the forward and the backward pass on the device. */
static void batch_run(const struct batch *batch) {
    const size_t v = (size_t)batch->sizes.kv_heads * batch->sizes.head_size;
    const struct tw_cuda_attention_arrays arrays = {
        .q = on_device(batch, Q, 0),
        .k = on_device(batch, KV, 0),
        .v = on_device(batch, KV, v),
        .out = on_device(batch, OUT, 0),
        .lse = on_device(batch, LSE, 0),
        .begin = batch->sizes.document > 0 ? on_device(batch, BEGIN, 0) : NULL,
        .dout = on_device(batch, DOUT, 0),
        .dq = on_device(batch, DQ, 0),
        .dk = on_device(batch, DKV, 0),
        .dv = on_device(batch, DKV, v),
        .scratch = on_device(batch, SCRATCH, 0),
    };
    for (enum which i = 0; i < ARRAYS; i++) array_in(&batch->array[i]);
    tw_cuda_attention(device_stream, &batch->shape, &arrays);
    tw_cuda_attention_backward(device_stream, &batch->shape, &arrays);
    device_finish();
}

/* ---- the reference --------- ----------------------------------------------------------------- */

static void *on_host(const struct batch *batch, enum which which, size_t element) {
    const struct array *a = &batch->array[which];
    return a->host + a->begin + element * a->of.element;
}

/* The queries [begin, end) of one document or, without documents, of a sequence. */
struct part {
    uint32_t sequence, head, begin, end;
};

static void want_part(const struct batch *batch, const struct part *part) {
    const struct tw_cuda_attention *s = &batch->shape;
    const struct tw_attention shape = {.queries = part->end - part->begin,
                                       .keys = part->end - part->begin + batch->sizes.past,
                                       .group = s->group,
                                       .head_size = s->head_size,
                                       .q_stride = s->q_stride,
                                       .kv_stride = s->kv_stride,
                                       .out_stride = s->out_stride};
    const size_t row = (size_t)part->sequence * s->queries + part->begin;
    const size_t q = (size_t)part->head * s->group * s->head_size;
    const size_t k = (part->sequence * s->kv_rows + part->begin) * s->kv_stride +
                     (size_t)part->head * s->head_size;
    const size_t v = k + (size_t)s->kv_heads * s->head_size;
    float *lse = malloc((size_t)s->group * shape.queries * sizeof(*lse));
    float *scratch = malloc(tw_attention_scratch(&shape) * sizeof(*scratch));
    assert_non_null(lse);
    assert_non_null(scratch);
    const struct tw_attention_arrays arrays = {
        .q = on_host(batch, Q, row * s->q_stride + q),
        .k = on_host(batch, KV, k),
        .v = on_host(batch, KV, v),
        .out = on_host(batch, OUT, row * s->out_stride + q),
        .lse = lse,
        .scratch = scratch,
        .dout = on_host(batch, DOUT, row * s->out_stride + q),
        .dq = on_host(batch, DQ, row * s->q_stride + q),
        .dk = on_host(batch, DKV, k),
        .dv = on_host(batch, DKV, v),
    };
    tw_ops_ref(s->type)->attention(&shape, &arrays);
    tw_ops_ref(s->type)->attention_backward(&shape, &arrays);
    for (size_t g = 0; g < s->group; g++) {
        const size_t head = ((size_t)part->sequence * s->kv_heads + part->head) * s->group + g;
        memcpy(on_host(batch, LSE, head * s->queries + part->begin), lse + g * shape.queries,
               shape.queries * sizeof(*lse));
    }
    free(lse);
    free(scratch);
}

/* Writes the expected outputs to the host's copies of the arrays. */
static void batch_want(const struct batch *batch) {
    const uint32_t queries = batch->sizes.queries;
    for (uint32_t s = 0; s < batch->sizes.sequences; s++) {
        const uint32_t *first = on_host(batch, BEGIN, (size_t)s * queries);
        for (uint32_t begin = 0, end; begin < queries; begin = end) {
            end = begin + 1;
            while (end < queries && (batch->sizes.document == 0 || first[end] == begin)) end++;
            for (uint32_t h = 0; h < batch->sizes.kv_heads; h++) {
                want_part(batch, &(struct part){s, h, begin, end});
            }
        }
    }
}

static void check(const struct sizes *sizes) {
    struct batch batch = batch_new(sizes);
    batch_run(&batch);
    batch_want(&batch);
    const double slack = sizes->type == TW_F32 ? 1e-5 : 1e-2;
    char what[160];
    static const char *const names[ARRAYS] = {
        [OUT] = "out", [LSE] = "lse", [DQ] = "dq", [DKV] = "dk | dv"};
    for (enum which i = 0; i < ARRAYS; i++) {
        if (names[i] == NULL) continue;
        (void)snprintf(what, sizeof(what),
                       "%s of %s heads %u, %u + %u rows, group %u, documents %u", names[i],
                       sizes->type == TW_F32 ? "f32" : "bf16", sizes->head_size, sizes->past,
                       sizes->queries, sizes->group, sizes->document);
        assert_near(what, &batch.array[i], i == LSE ? 1e-5 : slack);
    }
    batch_free(&batch);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const uint32_t lengths[] = {1, 17, 64, 65, 127, 200, 300};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* Returns true if the backward pass uses warpgroup matrix products on the emulated device, which is
 * slow at these. */
static bool is_slow(void) {
#ifdef TW_CUDA_EMULATED
    return flash == TW_CUDA_FLASH_HOPPER;
#else
    return false;
#endif
}

static void each_length(enum tw_type type, uint32_t head_size) {
    for (size_t i = 0; i < LENGTHS; i += is_slow() ? 3 : 1) {
        check(&(struct sizes){.type = type,
                              .head_size = head_size,
                              .queries = lengths[i],
                              .group = 1,
                              .kv_heads = 1,
                              .sequences = 1});
    }
}

static void fast_heads_agree_at_every_length(void **state) {
    each_length(TW_BF16, 64);
    each_length(TW_BF16, 128);
}

static void plain_heads_agree_at_every_length(void **state) {
    each_length(TW_BF16, 32);
    each_length(TW_F32, 64);
}

static void any_size_of_head_agrees(void **state) {
    static const uint32_t sizes[] = {1, 7, 32, 33, 64, 80, 96, 128, 160, 255, 256};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (enum tw_type type = TW_F32; type <= TW_BF16; type++) {
            check(&(struct sizes){.type = type,
                                  .head_size = sizes[i],
                                  .queries = 45,
                                  .group = 2,
                                  .kv_heads = 2,
                                  .sequences = 1,
                                  .gap = 3});
        }
    }
}

static void groups_share_keys(void **state) {
    for (uint32_t group = 1; group <= (is_slow() ? 1 : 8); group *= 2) {
        static const uint32_t sizes[] = {64, 128, 80};
        for (size_t i = 0; i < 3; i++) {
            check(&(struct sizes){.type = TW_BF16,
                                  .head_size = sizes[i],
                                  .queries = 65,
                                  .group = group,
                                  .kv_heads = 2,
                                  .sequences = 2,
                                  .gap = 8});
        }
    }
    /* also with group sizes that are no power of 2 */
    check(&(struct sizes){.type = TW_BF16,
                          .head_size = 64,
                          .queries = 61,
                          .group = 7,
                          .kv_heads = 1,
                          .sequences = 2,
                          .gap = 16});
}

static void documents_do_not_see_each_other(void **state) {
    static const uint32_t documents[] = {1, 5, 40, 150};
    static const struct {
        enum tw_type type;
        uint32_t head_size;
    } kinds[] = {{TW_BF16, 64}, {TW_BF16, 128}, {TW_BF16, 80}, {TW_F32, 64}};
    for (size_t d = is_slow() ? 2 : 0; d < 4; d++) {
        for (size_t i = 0; i < (is_slow() ? 2 : 4); i++) {
            check(&(struct sizes){.type = kinds[i].type,
                                  .head_size = kinds[i].head_size,
                                  .queries = 131 + 60 * (uint32_t)(d % 2),
                                  .group = 1 + (uint32_t)d,
                                  .kv_heads = 1,
                                  .sequences = 2,
                                  .document = documents[d]});
        }
    }
}

static void queries_behind_a_cache_see_all_of_it(void **state) {
    static const uint32_t queries[] = {1, 5, 130};
    for (size_t i = 0; i < 3; i++) {
        static const uint32_t sizes[] = {64, 128, 48};
        for (size_t j = 0; j < 3; j++) {
            check(&(struct sizes){.type = TW_BF16,
                                  .head_size = sizes[j],
                                  .queries = queries[i],
                                  .past = 150,
                                  .group = 2,
                                  .kv_heads = 1,
                                  .sequences = 2,
                                  .gap = 8});
        }
    }
}

/* Arrays that are not aligned to 16 bytes use the plain kernels. */
static void any_alignment_is_fine(void **state) {
    for (uint32_t i = 0; i < 2; i++) {
        check(&(struct sizes){.type = TW_BF16,
                              .head_size = 64,
                              .queries = 70,
                              .group = 2,
                              .kv_heads = 1,
                              .sequences = 2,
                              .gap = i == 0 ? 0 : 1,
                              .shift = i == 0 ? 2 : 0});
    }
}

static void nothing_to_do_is_fine(void **state) {
    struct sizes sizes = {.type = TW_BF16, .head_size = 64, .group = 1, .kv_heads = 1};
    struct tw_cuda_attention shape = shape_of(&sizes);
    shape.sequences = 1;
    const struct tw_cuda_attention_arrays none = {0};
    tw_cuda_attention(NULL, &shape, &none);
    tw_cuda_attention_backward(NULL, &shape, &none);
    shape = (struct tw_cuda_attention){
        .head_size = 64, .queries = 1, .keys = 1, .kv_rows = 1, .group = 1, .kv_heads = 1};
    tw_cuda_attention(NULL, &shape, &none);
    tw_cuda_attention_backward(NULL, &shape, &none);
    assert_int_equal(tw_cuda_attention_scratch(&shape), 0);
}

/* Returns the outputs of a run on the heap, for comparison. */
static void outputs(const struct batch *batch, unsigned char *bytes[ARRAYS]) {
    for (enum which i = OUT; i <= DKV; i++) bytes[i] = array_out(&batch->array[i]);
}

static void outputs_free(unsigned char *bytes[ARRAYS]) {
    for (enum which i = OUT; i <= DKV; i++) free(bytes[i]);
}

/* A window has two documents of at least 128 rows, and the first is all NaN. The second reads only
 * its own tiles, so its results have the same bits as in a window without the first. */
static void hidden_documents_are_not_read(void **state) {
    for (uint32_t head_size = 64; head_size <= 128; head_size *= 2) {
        const struct sizes sizes = {.type = TW_BF16,
                                    .head_size = head_size,
                                    .queries = 300,
                                    .group = 1,
                                    .kv_heads = 1,
                                    .sequences = 1,
                                    .document = 1000};
        struct batch batch = batch_new(&sizes);
        uint32_t *begin = on_host(&batch, BEGIN, 0);
        for (uint32_t i = 0; i < 300; i++) begin[i] = i < 128 ? 0 : 128;
        unsigned char *clean[ARRAYS], *poisoned[ARRAYS];
        batch_run(&batch);
        outputs(&batch, clean);
        for (enum which i = Q; i <= DOUT; i++) {
            const struct geometry *of = &batch.array[i].of;
            memset(on_host(&batch, i, 0), POISON, 128 * of->stride * of->element);
        }
        batch_run(&batch);
        outputs(&batch, poisoned);
        for (enum which i = OUT; i <= DKV; i++) {
            const struct array *a = &batch.array[i];
            const size_t from = a->begin + 128 * a->of.element * (i == LSE ? 1 : a->of.stride);
            assert_memory_equal(clean[i] + from, poisoned[i] + from, a->bytes - from);
        }
        if (isfinite(value_at(&batch.array[OUT], poisoned[OUT], 0))) fail();
        outputs_free(clean);
        outputs_free(poisoned);
        batch_free(&batch);
    }
}

/* A NaN in the last key and query reaches neither the rows of earlier blocks nor their gradients.
 */
static void the_future_is_not_read(void **state) {
    for (uint32_t head_size = 64; head_size <= 128; head_size *= 2) {
        const struct sizes sizes = {.type = TW_BF16,
                                    .head_size = head_size,
                                    .queries = 200,
                                    .group = 1,
                                    .kv_heads = 1,
                                    .sequences = 1};
        struct batch batch = batch_new(&sizes);
        const struct geometry *of = &batch.array[KV].of;
        memset(on_host(&batch, KV, 199 * of->stride), POISON, of->width * of->element);
        batch_run(&batch);
        unsigned char *got[ARRAYS];
        outputs(&batch, got);
        for (size_t i = 0; i < 128 * batch.array[OUT].of.stride; i++) {
            assert_true(isfinite(value_at(&batch.array[OUT], got[OUT], i)));
            assert_true(isfinite(value_at(&batch.array[DQ], got[DQ], i)));
        }
        if (isfinite(value_at(&batch.array[OUT], got[OUT], 199 * head_size))) fail();
        outputs_free(got);
        batch_free(&batch);
    }
}

/* Scores are far apart; the greatest is that of key 0, 80 or 149. */
static void great_scores_do_not_overflow(void **state) {
    for (uint32_t i = 0; i < 3; i++) {
        const struct sizes sizes = {.type = i == 2 ? TW_F32 : TW_BF16,
                                    .head_size = i == 1 ? 128 : 64,
                                    .queries = 150,
                                    .group = 1,
                                    .kv_heads = 1,
                                    .sequences = 1};
        struct batch batch = batch_new(&sizes);
        const struct tw_ops *ops = tw_ops_ref(sizes.type);
        /* elements of keys 0, 80 and 149; scores are proportional */
        const float rows[] = {40.0f, -90.0f, 60.0f};
        for (uint32_t r = 0; r < 3; r++) {
            const size_t at = (r == 0 ? 0 : r == 1 ? 80 : 149) * batch.shape.kv_stride;
            for (uint32_t c = 0; c < sizes.head_size; c++) {
                ops->from_f32(on_host(&batch, KV, at + c), &rows[r], 1);
            }
        }
        batch_run(&batch);
        batch_want(&batch);
        assert_near("out", &batch.array[OUT], 1e-2);
        assert_near("lse", &batch.array[LSE], 1e-5);
        assert_near("dq", &batch.array[DQ], 1e-2);
        assert_near("dk | dv", &batch.array[DKV], 1e-2);
        batch_free(&batch);
    }
}

static void lse_may_be_unwanted(void **state) {
    for (uint32_t head_size = 64; head_size <= 80; head_size += 16) {
        struct batch batch = batch_new(&(struct sizes){.type = TW_BF16,
                                                       .head_size = head_size,
                                                       .queries = 90,
                                                       .group = 1,
                                                       .kv_heads = 1,
                                                       .sequences = 1});
        for (enum which i = 0; i < ARRAYS; i++) array_in(&batch.array[i]);
        const struct tw_cuda_attention_arrays arrays = {.q = on_device(&batch, Q, 0),
                                                        .k = on_device(&batch, KV, 0),
                                                        .v = on_device(&batch, KV, head_size),
                                                        .out = on_device(&batch, OUT, 0)};
        tw_cuda_attention(device_stream, &batch.shape, &arrays);
        batch_want(&batch);
        assert_near("out", &batch.array[OUT], 1e-2);
        batch_free(&batch);
    }
}

static void the_order_of_threads_changes_no_bit(void **state) {
    static const uint32_t sizes[] = {64, 128, 80};
    for (size_t i = 0; i < 3; i++) {
        struct batch batch = batch_new(&(struct sizes){.type = TW_BF16,
                                                       .head_size = sizes[i],
                                                       .queries = 150,
                                                       .group = 2,
                                                       .kv_heads = 1,
                                                       .sequences = 2,
                                                       .document = 90});
        unsigned char *one[ARRAYS], *other[ARRAYS];
        batch_run(&batch);
        outputs(&batch, one);
        for (uint64_t order = 0; order < 3; order++) {
#ifdef TW_CUDA_EMULATED
            tw_emulation_set_order(order == 0 ? TW_EMULATION_DOWN : TW_EMULATION_SHUFFLED, order);
#endif
            batch_run(&batch);
            outputs(&batch, other);
            for (enum which j = OUT; j <= DKV; j++) {
                assert_memory_equal(one[j], other[j], batch.array[j].bytes);
            }
            outputs_free(other);
        }
#ifdef TW_CUDA_EMULATED
        tw_emulation_set_order(TW_EMULATION_UP, 0);
#endif
        outputs_free(one);
        batch_free(&batch);
    }
}

/* Runs on a GPU if TW_CUDA_LARGE is set, with the shapes of GPT-2 124M and of one head group of an
 * 8B model. */
static void real_sizes_agree(void **state) {
    if (getenv("TW_CUDA_LARGE") == NULL) skip();
    check(&(struct sizes){.type = TW_BF16,
                          .head_size = 64,
                          .queries = 1024,
                          .group = 1,
                          .kv_heads = 2,
                          .sequences = 1});
    check(&(struct sizes){.type = TW_BF16,
                          .head_size = 128,
                          .queries = 2048,
                          .group = 2,
                          .kv_heads = 1,
                          .sequences = 1});
    check(&(struct sizes){.type = TW_BF16,
                          .head_size = 64,
                          .queries = 1024,
                          .group = 2,
                          .kv_heads = 1,
                          .sequences = 1,
                          .document = 300});
}

/* Half a tile is in use where a caller asks for it: its sums have another order, so their last bits
 * differ. */
static void each_tile_has_its_own_order_of_sums(void **state) {
    struct batch batch = batch_new(&(struct sizes){.type = TW_BF16,
                                                   .head_size = 128,
                                                   .queries = 300,
                                                   .group = 1,
                                                   .kv_heads = 1,
                                                   .sequences = 1});
    unsigned char *whole[ARRAYS], *half[ARRAYS];
    batch.shape.tile = TW_CUDA_TILE_WHOLE;
    batch_run(&batch);
    outputs(&batch, whole);
    batch.shape.tile = TW_CUDA_TILE_HALF;
    batch_run(&batch);
    outputs(&batch, half);
    assert_memory_not_equal(whole[LSE], half[LSE], batch.array[LSE].bytes);
    outputs_free(whole);
    outputs_free(half);
    batch_free(&batch);
}

/* Multiprocessors of compute capability 8.0, 8.6, 8.7, 8.9, 9.0, 10.0 and 12.0: the smaller ones
 * have room for one block with a whole tile, or two with half a tile. */
static void two_blocks_of_a_tile_fit(void **state) {
    enum { KIB = 1024 };
    static const size_t large[] = {164, 164, 228, 228}, small[] = {100, 100, 100};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tw_cuda_attention_tile(large[i] * KIB, KIB), TW_CUDA_TILE_WHOLE);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(tw_cuda_attention_tile(small[i] * KIB, KIB), TW_CUDA_TILE_HALF);
    assert_int_equal(tw_cuda_attention_tile(130 * KIB, KIB), TW_CUDA_TILE_WHOLE);
    assert_int_equal(tw_cuda_attention_tile(130 * KIB - 1, KIB), TW_CUDA_TILE_HALF);
}

static struct kind {
    enum tw_cuda_flash flash;
    enum tw_cuda_tile tile;
} kinds[] = {{TW_CUDA_FLASH_WARP, TW_CUDA_TILE_WHOLE},
             {TW_CUDA_FLASH_HOPPER, TW_CUDA_TILE_HALF},
             {TW_CUDA_FLASH_WARP, TW_CUDA_TILE_HALF}};

static int choose_kernels(void **state) {
    const struct kind *const kind = *state;
    flash = kind->flash;
    tile = kind->tile;
#ifndef TW_CUDA_EMULATED
    if (flash == TW_CUDA_FLASH_HOPPER && !tw_cuda_attention_has_hopper())
        flash = TW_CUDA_FLASH_BEST;
#endif
    return 0;
}

int main(void) {
    print_message("seed %d\n", SEED);
#define WITH(kind, name)                                                                           \
    { #name " " #kind, name, choose_kernels, NULL, &kinds[kind] }
#define EACH(name) WITH(0, name), WITH(1, name)
    const struct CMUnitTest tests[] = {
        EACH(fast_heads_agree_at_every_length),
        WITH(2, fast_heads_agree_at_every_length),
        WITH(0, two_blocks_of_a_tile_fit),
        WITH(0, each_tile_has_its_own_order_of_sums),
        WITH(0, plain_heads_agree_at_every_length),
        WITH(0, any_size_of_head_agrees),
        EACH(groups_share_keys),
        EACH(documents_do_not_see_each_other),
        EACH(queries_behind_a_cache_see_all_of_it),
        WITH(0, any_alignment_is_fine),
        WITH(0, nothing_to_do_is_fine),
        EACH(hidden_documents_are_not_read),
        EACH(the_future_is_not_read),
        EACH(great_scores_do_not_overflow),
        WITH(0, lse_may_be_unwanted),
        EACH(the_order_of_threads_changes_no_bit),
        EACH(real_sizes_agree),
    };
    return DEVICE_RUN(tests);
}
