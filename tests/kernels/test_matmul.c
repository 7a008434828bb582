/* test_matmul.c - every library computes matrix products correctly, in every form, type and layout.
 */
#include "kernels/matmul.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#ifdef TW_HAVE_ONEDNN
#include "kernels/cpu/onednn.h"
#endif

#include "tests/kernels/fill.h"

enum { SEED = 71, THREADS = 4, GAP = 5 };

/* ---- a product and its expected value ------------------------------------------------------ */

struct product {
    struct tw_matmul shape;
    struct tw_rng rng;
    void *a, *b, *y;
    size_t a_rows, b_rows; /* rows in memory */
    double *want;          /* (m, y_stride) */
};

static double at(const void *x, enum tw_type type, size_t i) {
    if (type == TW_F32) return (double)((const float *)x)[i];
    return (double)tw_bf16_to_f32(((const uint16_t *)x)[i]);
}

static void put(void *x, enum tw_type type, size_t i, float value) {
    if (type == TW_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = tw_bf16_from_f32(value);
}

static void *random_of(struct tw_rng *rng, size_t n, enum tw_type type) {
    float *values = fill_new(rng, n, 1.0f);
    void *x = malloc(n * tw_type_bytes(type));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) put(x, type, i, values[i]);
    free(values);
    return x;
}

/* Computes y = a * b in float64 from the stored elements. Elements outside the matrix must not
 * change. */
static void product_init(struct product *p, struct tw_matmul shape, uint64_t seed) {
    const bool is_tn = shape.form == TW_MATMUL_TN, is_nt = shape.form == TW_MATMUL_NT;
    *p = (struct product){.shape = shape};
    p->a_rows = is_tn ? shape.k : shape.m;
    p->b_rows = is_nt ? shape.n : shape.k;
    tw_rng_seed(&p->rng, seed);
    p->a = random_of(&p->rng, p->a_rows * shape.a_stride, shape.type);
    p->b = random_of(&p->rng, p->b_rows * shape.b_stride, shape.type);
    p->y = random_of(&p->rng, shape.m * shape.y_stride, shape.y_type);
    p->want = malloc(shape.m * shape.y_stride * sizeof(double));
    assert_non_null(p->want);
    for (size_t i = 0; i < shape.m; i++) {
        for (size_t j = 0; j < shape.y_stride; j++) {
            const size_t to = i * shape.y_stride + j;
            double sum = j >= shape.n || shape.is_added ? at(p->y, shape.y_type, to) : 0.0;
            for (size_t l = 0; j < shape.n && l < shape.k; l++) {
                sum +=
                    at(p->a, shape.type, is_tn ? l * shape.a_stride + i : i * shape.a_stride + l) *
                    at(p->b, shape.type, is_nt ? j * shape.b_stride + l : l * shape.b_stride + j);
            }
            p->want[to] = sum;
        }
    }
}

static void product_check(const struct product *p, const char *who) {
    const struct tw_matmul *s = &p->shape;
    double size = 0.0;
    for (size_t i = 0; i < s->m * s->y_stride; i++) size = fmax(size, fabs(p->want[i]));
    for (size_t i = 0; i < s->m; i++) {
        for (size_t j = 0; j < s->y_stride; j++) {
            const size_t to = i * s->y_stride + j;
            const double got = at(p->y, s->y_type, to), want = p->want[to];
            const double bound =
                j >= s->n ? 0.0
                          : 2e-6 * (1.0 + size) + (s->y_type == TW_BF16 ? fabs(want) / 256 : 0.0);
            if (fabs(got - want) <= bound) continue;
            fail_msg("%s: %ux%ux%u form %d type %d y_type %d added %d: (%zu, %zu) is %.9g, "
                     "expected %.9g",
                     who, s->m, s->k, s->n, (int)s->form, (int)s->type, (int)s->y_type, s->is_added,
                     i, j, got, want);
        }
    }
}

static void product_free(struct product *p) {
    free(p->a), free(p->b), free(p->y), free(p->want);
}

/* ---- every library and type of this build -------------------------------------------------- */

typedef void check_fn(const struct tw_matmul_library *library, enum tw_type type);

static void for_each_library(check_fn *check) {
    for (int i = TW_MATMUL_ONEDNN; i <= TW_MATMUL_REF; i++) {
        const struct tw_matmul_library *library = tw_matmul_library_get((enum tw_matmul_backend)i);
        if (library == NULL) continue;
        assert_true(tw_matmul_library_has(library, TW_F32));
        for (int type = TW_F32; type <= TW_BF16; type++) {
            if (!tw_matmul_library_has(library, (enum tw_type)type)) continue;
            print_message("%s, %s\n", tw_matmul_library_name(library),
                          type == TW_F32 ? "float32" : "bf16");
            check(library, (enum tw_type)type);
        }
    }
}

static struct tw_multiplier *multiplier_of(const struct tw_matmul_library *library) {
    struct tw_multiplier *multiplier;
    struct tw_error err;
    assert_int_equal(tw_multiplier_create(&multiplier, library, &err), TW_OK);
    return multiplier;
}

static const uint32_t sizes[][3] = {{1, 1, 1},     {1, 64, 64},   {5, 7, 3},     {2, 1, 9},
                                    {64, 128, 96}, {33, 200, 61}, {17, 31, 130}, {130, 33, 1}};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Sets form, y_type, is_added and strides from the bits of `variant`. Returns false if the
 * combination does not exist. */
enum { VARIANTS = 3 * 2 * 2 * 2 };
static bool shape_of(struct tw_matmul *shape, const uint32_t *size, enum tw_type type,
                     uint32_t variant) {
    const bool has_gap = variant % 2 != 0;
    *shape = (struct tw_matmul){.m = size[0], .k = size[1], .n = size[2], .type = type};
    shape->is_added = variant / 2 % 2 != 0;
    shape->y_type = variant / 4 % 2 != 0 ? TW_BF16 : TW_F32;
    shape->form = (enum tw_matmul_form)(variant / 8);
    const uint32_t gap = has_gap ? GAP : 0;
    shape->a_stride = (shape->form == TW_MATMUL_TN ? shape->m : shape->k) + gap;
    shape->b_stride = (shape->form == TW_MATMUL_NT ? shape->k : shape->n) + gap;
    shape->y_stride = shape->n + gap;
    return (shape->y_type == TW_F32 || (type == TW_BF16 && !shape->is_added));
}

static void check_products(const struct tw_matmul_library *library, enum tw_type type) {
    struct tw_multiplier *multiplier = multiplier_of(library);
    for (uint32_t s = 0; s < SIZES; s++) {
        for (uint32_t variant = 0; variant < VARIANTS; variant++) {
            struct tw_matmul shape, asked;
            struct product p;
            if (!shape_of(&shape, sizes[s], type, variant)) continue;
            product_init(&p, shape, SEED + s);
            asked = shape;
            if (variant % 2 == 0) asked.a_stride = asked.b_stride = asked.y_stride = 0;
            tw_multiply(multiplier, p.y, p.a, p.b, &asked);
            product_check(&p, tw_matmul_library_name(library));
            product_free(&p);
        }
    }
    tw_multiplier_destroy(multiplier);
}

static void products_are_right(void **state) {
    for_each_library(check_products);
    tw_multiplier_destroy(NULL);
}

/* The product of a (2, 3) and b (3, 2), worked by hand, in all three forms. */
static void the_reference_is_right_by_hand(void **state) {
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {7, 8, 9, 10, 11, 12};
    const float b_t[] = {7, 9, 11, 8, 10, 12}, a_t[] = {1, 4, 2, 5, 3, 6};
    const float want[] = {58, 64, 139, 154};
    struct tw_multiplier *ref = multiplier_of(tw_matmul_library_get(TW_MATMUL_REF));
    struct tw_matmul shape = {.m = 2, .k = 3, .n = 2, .form = TW_MATMUL_NN};
    float y[4];
    tw_multiply(ref, y, a, b, &shape);
    assert_memory_equal(y, want, sizeof(want));
    shape.form = TW_MATMUL_NT;
    tw_multiply(ref, y, a, b_t, &shape);
    assert_memory_equal(y, want, sizeof(want));
    shape.form = TW_MATMUL_TN;
    tw_multiply(ref, y, a_t, b, &shape);
    assert_memory_equal(y, want, sizeof(want));
    tw_multiplier_destroy(ref);
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Returns the float32 master of a weight: p->b, rounded to p's type. */
static float *master_of(const struct product *p) {
    const size_t n = (size_t)p->shape.k * p->shape.n;
    float *master = malloc(n * sizeof(*master));
    assert_non_null(master);
    for (size_t i = 0; i < n; i++) master[i] = (float)at(p->b, p->shape.type, i);
    return master;
}

static void check_weight(struct tw_multiplier *multiplier, const struct tw_matmul_library *library,
                         struct tw_matmul shape, uint64_t seed) {
    struct product p;
    product_init(&p, shape, seed);
    float *master = master_of(&p);
    struct tw_weight weight = {.k = shape.k, .n = shape.n, .form = shape.form, .type = shape.type};
    const struct tw_weight_product all = {.rows = shape.m,
                                          .y_type = shape.y_type,
                                          .is_added = shape.is_added,
                                          .a_stride = shape.a_stride,
                                          .y_stride = shape.y_stride};
    const size_t bytes = tw_weight_bytes(library, &weight);
    const uint32_t panels = tw_weight_panels(&weight);
    weight.master = master;
    if (bytes != 0) assert_int_equal(posix_memalign(&weight.packed, 64, bytes), 0);
    assert_int_equal(tw_weight_column(&weight, 0), 0);
    assert_int_equal(tw_weight_column(&weight, panels), shape.n);
    for (uint32_t i = 0; i < panels; i++) tw_weight_pack(multiplier, &weight, i);

    void *before = malloc(shape.m * shape.y_stride * tw_type_bytes(shape.y_type));
    assert_non_null(before);
    memcpy(before, p.y, shape.m * shape.y_stride * tw_type_bytes(shape.y_type));
    tw_multiply_weight(multiplier, p.y, p.a, &weight, &all);
    product_check(&p, "weight");

    memcpy(p.y, before, shape.m * shape.y_stride * tw_type_bytes(shape.y_type));
    for (uint32_t i = panels; i-- > 0;) {
        struct tw_weight_product part = all;
        part.panel_first = i;
        part.panels = 1;
        tw_multiply_weight(multiplier, p.y, p.a, &weight, &part);
    }
    product_check(&p, "weight by panels");

    if (tw_weight_has_copy(library, &weight)) {
        struct tw_weight_product copied = all;
        copied.is_copied = true;
        memcpy(p.y, before, shape.m * shape.y_stride * tw_type_bytes(shape.y_type));
        weight.panels = malloc((size_t)shape.k * shape.n * sizeof(float));
        assert_non_null(weight.panels);
        for (uint32_t i = 0; i < panels; i++) tw_weight_copy(&weight, i);
        memset(master, 0, (size_t)shape.k * shape.n * sizeof(float)); /* is not read any more */
        tw_multiply_weight(multiplier, p.y, p.a, &weight, &copied);
        product_check(&p, "weight copied in panels");
    }
    free(before), free(master), free(weight.packed), free(weight.panels);
    product_free(&p);
}

static void check_weights(const struct tw_matmul_library *library, enum tw_type type) {
    struct tw_multiplier *multiplier = multiplier_of(library);
    for (uint32_t s = 0; s < SIZES; s++) {
        for (uint32_t variant = 0; variant < VARIANTS; variant++) {
            struct tw_matmul shape;
            if (!shape_of(&shape, sizes[s], type, variant)) continue;
            if (shape.form == TW_MATMUL_TN) continue;
            shape.b_stride = shape.form == TW_MATMUL_NT ? shape.k : shape.n;
            check_weight(multiplier, library, shape, SEED + s);
        }
    }
    /* several panels, the last one narrow */
    struct tw_matmul wide = {.m = 3,
                             .k = 40,
                             .n = 2077,
                             .form = TW_MATMUL_NT,
                             .type = type,
                             .a_stride = 40,
                             .b_stride = 40,
                             .y_stride = 2080};
    check_weight(multiplier, library, wide, SEED);
    wide.form = TW_MATMUL_NN;
    wide.b_stride = wide.n;
    check_weight(multiplier, library, wide, SEED);
    tw_multiplier_destroy(multiplier);
}

static void products_with_weights_are_right(void **state) {
    for_each_library(check_weights);
}

/* ---- prepared shapes, threads -------------------------------------------------------------- */

static void check_many_shapes(const struct tw_matmul_library *library, enum tw_type type) {
    struct tw_multiplier *multiplier = multiplier_of(library);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t m = 1; m <= TW_MATMUL_SHAPES_MAX + 40; m += round == 0 ? 1 : 37) {
            struct product p;
            product_init(&p,
                         (struct tw_matmul){.m = m,
                                            .k = 4,
                                            .n = 3,
                                            .form = TW_MATMUL_NT,
                                            .type = type,
                                            .a_stride = 4,
                                            .b_stride = 4,
                                            .y_stride = 3},
                         SEED + m);
            tw_multiply(multiplier, p.y, p.a, p.b, &p.shape);
            product_check(&p, tw_matmul_library_name(library));
            product_free(&p);
        }
    }
    tw_multiplier_destroy(multiplier);
}

static void more_shapes_than_are_kept_are_right(void **state) {
    for_each_library(check_many_shapes);
}

static uint32_t threads_of_process(void) {
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) return 0;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.') count++;
    }
    (void)closedir(tasks);
    return count;
}

struct thread_job {
    const struct tw_matmul_library *library;
    enum tw_type type;
    uint64_t seed;
};

static void *multiply_in_thread(void *argument) {
    const struct thread_job *job = argument;
    check_weights(job->library, job->type);
    return NULL;
}

static void *do_nothing(void *argument) {
    return argument;
}

/* Counts the process's threads after running one: a sanitizer starts its own with the first. */
static uint32_t threads_before(void) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return threads_of_process();
}

static void check_threads(const struct tw_matmul_library *library, enum tw_type type) {
    struct thread_job job = {.library = library, .type = type};
    const uint32_t before = threads_before();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, multiply_in_thread, &job), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    /* No library has started a thread pool: only joined threads may remain for a moment. */
    for (int i = 0; i < 10000 && threads_of_process() > before; i++) (void)sched_yield();
    assert_int_equal(threads_of_process(), before);
}

static void threads_multiply_at_the_same_time(void **state) {
    for_each_library(check_threads);
}

/* ---- no memory ----------------------------------------------------------------------------- */

#ifdef TW_HAVE_ONEDNN
/* --wrap redirects calls of matmul_onednn.c to these functions, which fail one call in several. */
enum fault {
    ALIGNED_ALLOC,
    ATTRIBUTES,
    POST_OPS,
    LAYOUT,
    DESCRIBE,
    REORDER,
    MEMORY,
    SCRATCH,
    PRIMITIVE,
    SGEMM,
    ALL
};
static uint32_t faults_every[ALL], calls, faults;

static bool fails(enum fault fault) {
    if (faults_every[fault] == 0 || ++calls % faults_every[fault] != 0) return false;
    faults++;
    return true;
}

#define WRAP(fault, type, failed, name, parameters, arguments)                                     \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        return fails(fault) ? (failed) : __real_##name arguments;                                  \
    }
WRAP(ALIGNED_ALLOC, void *, NULL, aligned_alloc, (size_t align, size_t n), (align, n))
WRAP(ATTRIBUTES, dnnl_status_t, dnnl_out_of_memory, dnnl_primitive_attr_create,
     (dnnl_primitive_attr_t * attr), (attr))
WRAP(POST_OPS, dnnl_status_t, dnnl_out_of_memory, dnnl_post_ops_create, (dnnl_post_ops_t * post),
     (post))
WRAP(LAYOUT, dnnl_status_t, dnnl_out_of_memory, tw_onednn_layout_strided,
     (struct tw_onednn_layout * layout, const dnnl_dims_t dims, dnnl_data_type_t type,
      const dnnl_dims_t strides),
     (layout, dims, type, strides))
WRAP(DESCRIBE, dnnl_status_t, dnnl_unimplemented, tw_onednn_describe_matmul,
     (dnnl_primitive_desc_t * primitive, dnnl_engine_t engine, const struct tw_onednn_layout *a,
      const struct tw_onednn_layout *b, const struct tw_onednn_layout *y,
      const_dnnl_primitive_attr_t attributes),
     (primitive, engine, a, b, y, attributes))
WRAP(REORDER, dnnl_status_t, dnnl_out_of_memory, tw_onednn_describe_reorder,
     (dnnl_primitive_desc_t * primitive, dnnl_engine_t engine, const struct tw_onednn_layout *from,
      const struct tw_onednn_layout *to, const_dnnl_primitive_attr_t attributes),
     (primitive, engine, from, to, attributes))
WRAP(MEMORY, dnnl_status_t, dnnl_out_of_memory, tw_onednn_memory,
     (dnnl_memory_t * memory, dnnl_engine_t engine, const struct tw_onednn_layout *layout),
     (memory, engine, layout))
WRAP(SCRATCH, dnnl_status_t, dnnl_out_of_memory, tw_onednn_memory_of,
     (dnnl_memory_t * memory, size_t *bytes, dnnl_engine_t engine,
      const_dnnl_primitive_desc_t primitive, dnnl_query_t argument),
     (memory, bytes, engine, primitive, argument))
WRAP(PRIMITIVE, dnnl_status_t, dnnl_runtime_error, dnnl_primitive_create,
     (dnnl_primitive_t * primitive, const_dnnl_primitive_desc_t desc), (primitive, desc))
WRAP(SGEMM, dnnl_status_t, dnnl_out_of_memory, dnnl_sgemm,
     (char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a,
      dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc),
     (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))

static void check_faults(const struct tw_matmul_library *library, enum tw_type type) {
    if (library != tw_matmul_library_get(TW_MATMUL_ONEDNN)) return;
    for (int fault = 0; fault < ALL; fault++) {
        const bool is_called = type == TW_BF16 ? fault != SGEMM : fault != REORDER;
        const uint32_t every_max = fault == ALIGNED_ALLOC || fault == MEMORY ? 2 : 1;
        for (uint32_t every = 1; every <= every_max; every++) {
            calls = faults = 0;
            faults_every[fault] = every;
            check_products(library, type);
            check_weights(library, type);
            faults_every[fault] = 0;
            if (every == 1 && is_called) print_message("call %d failed %u times\n", fault, faults);
            /* oneDNN's float32 kernels may need no scratch memory. */
            if (is_called && (fault != ALIGNED_ALLOC || type == TW_BF16)) assert_true(faults > 0);
        }
    }
}

static void products_without_memory_are_right(void **state) {
    for_each_library(check_faults);
}
#endif

static void tiles_of_a_gradient_cover_it(void **state) {
    (void)state;
    for (uint32_t size = 1; size < 60000; size = size * 9 / 8 + 1) {
        const uint32_t tile = tw_matmul_tile(size, TW_MATMUL_TILE_M);
        const uint32_t tiles = tw_matmul_tiles(size, TW_MATMUL_TILE_M);
        assert_true((uint64_t)tiles * tile >= size && (tiles - 1) * tile < size);
        assert_true(tiles == 1 || tile >= TW_MATMUL_TILE_M);
        assert_true(tile < 2 * TW_MATMUL_TILE_M + 16);
    }
    assert_int_equal(tw_matmul_tiles(768, TW_MATMUL_TILE_M), 1);
    assert_int_equal(tw_matmul_tile(3072, TW_MATMUL_TILE_N), 768);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_is_right_by_hand),
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(products_with_weights_are_right),
        cmocka_unit_test(more_shapes_than_are_kept_are_right),
        cmocka_unit_test(threads_multiply_at_the_same_time),
        cmocka_unit_test(tiles_of_a_gradient_cover_it),
#ifdef TW_HAVE_ONEDNN
        cmocka_unit_test(products_without_memory_are_right),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
