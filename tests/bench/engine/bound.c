/* bound.c - times only the matrix products of a step, each computed in several ways. */
#include "tests/bench/engine/bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/engine/whole.h"
#include "worker/support/thread_pool.h"

enum { SHAPES_MAX = 32, TRIES = 3, ALIGN = 4096 };

/* Ways to compute one matrix product with all threads. */
enum way { WHOLE, WHOLE_PACKED, SHARED, WAYS };
static const char *const way_names[] = {"whole matrix", "whole, packed", "shared pieces"};

/* A matrix product that a step computes `count` times, with different matrices. */
struct shape {
    char name[16];
    struct tw_matmul product; /* b is a weight unless form is TN */
    uint32_t count;
    void **a, **b, **y, **packed; /* (count) */
    /* a SHARED weight with the fields of b; packed and master are set later */
    struct tw_weight weight;
    struct whole *whole[2]; /* plain, packed; NULL if not available */
    double seconds[WAYS];   /* best time of one product, or 0 if not available */
    enum way way;
};

struct bound {
    enum tw_type type;
    uint64_t rows;
    uint32_t threads;
    struct tw_thread_pool *team;
    const struct tw_matmul_library *library;
    struct tw_multiplier **multipliers; /* (threads) */
    uint32_t shapes_count;
    struct shape shapes[SHAPES_MAX];
};

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the products of a step ---------------------------------------------------------------- */

static void add_shape(struct bound *bound, const char *name, struct tw_matmul product,
                      uint32_t count) {
    struct shape *shape = &bound->shapes[bound->shapes_count++];
    (void)snprintf(shape->name, sizeof(shape->name), "%s", name);
    product.type = bound->type;
    product.y_type = product.form == TW_MATMUL_TN ? TW_F32 : bound->type;
    product.is_added = product.form == TW_MATMUL_TN;
    product.a_stride = product.form == TW_MATMUL_TN ? product.m : product.k;
    product.b_stride = product.form == TW_MATMUL_NT ? product.k : product.n;
    product.y_stride = product.n;
    shape->product = product;
    shape->count = count;
}

/* Adds y (rows, out) = x (rows, in) * W, dx and dW. `form` is that of the forward pass. */
static void add_linear(struct bound *bound, const char *name, uint32_t in, uint32_t out,
                       enum tw_matmul_form form, uint32_t count) {
    const uint32_t rows = (uint32_t)bound->rows;
    const bool is_nt = form == TW_MATMUL_NT;
    char text[16];
    (void)snprintf(text, sizeof(text), "%s", name);
    add_shape(bound, text, (struct tw_matmul){.m = rows, .k = in, .n = out, .form = form}, count);
    (void)snprintf(text, sizeof(text), "%s dx", name);
    add_shape(bound, text,
              (struct tw_matmul){
                  .m = rows, .k = out, .n = in, .form = is_nt ? TW_MATMUL_NN : TW_MATMUL_NT},
              count);
    (void)snprintf(text, sizeof(text), "%s dW", name);
    add_shape(bound, text,
              (struct tw_matmul){
                  .m = is_nt ? out : in, .k = rows, .n = is_nt ? in : out, .form = TW_MATMUL_TN},
              count);
}

static void add_step(struct bound *bound, const struct tw_run *run) {
    const struct tw_run_shape shape = tw_run_shape(run);
    const bool is_llama = run->model.family == TW_FAMILY_LLAMA;
    const enum tw_matmul_form form = is_llama ? TW_MATMUL_NT : TW_MATMUL_NN;
    const uint32_t width = run->model.width, layers = run->model.layers;
    add_linear(bound, "qkv", width, shape.q_width + 2 * shape.kv_width, form, layers);
    add_linear(bound, "out", shape.q_width, width, form, layers);
    add_linear(bound, "up", width, is_llama ? 2 * shape.ffn : shape.ffn, form, layers);
    add_linear(bound, "down", shape.ffn, width, form, layers);
    add_linear(bound, "head", width, run->model.vocab, TW_MATMUL_NT, 1);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Returns small nonzero numbers, because some processors multiply zeros faster. */
static void *matrix_new(size_t elements, enum tw_type type) {
    const size_t bytes = (elements * tw_type_bytes(type) + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, bytes);
    uint32_t state = 1;
    if (memory == NULL) return NULL;
    for (size_t i = 0; i < elements; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) * 0x1p-24f - 0.5f;
        if (type == TW_F32)
            ((float *)memory)[i] = x;
        else
            ((uint16_t *)memory)[i] = tw_bf16_from_f32(x);
    }
    return memory;
}

static bool shape_alloc(struct bound *bound, struct shape *shape) {
    const struct tw_matmul *p = &shape->product;
    const size_t a = (size_t)p->m * p->k, b = (size_t)p->k * p->n, y = (size_t)p->m * p->n;
    const bool is_weight = p->form != TW_MATMUL_TN;
    void ***arrays[] = {&shape->a, &shape->b, &shape->y, &shape->packed};
    shape->weight = (struct tw_weight){.k = p->k, .n = p->n, .form = p->form, .type = p->type};
    const size_t packed = is_weight ? tw_weight_bytes(bound->library, &shape->weight) : 0;
    for (int i = 0; i < 4; i++) {
        *arrays[i] = calloc(shape->count, sizeof(void *));
        if (*arrays[i] == NULL) return false;
    }
    for (uint32_t i = 0; i < shape->count; i++) {
        shape->a[i] = matrix_new(a, p->type);
        shape->b[i] = matrix_new(b, p->type);
        shape->y[i] = matrix_new(y, p->y_type);
        if (shape->a[i] == NULL || shape->b[i] == NULL || shape->y[i] == NULL) return false;
        if (packed == 0) continue;
        float *master = matrix_new(b, TW_F32); /* only the packed copy is kept */
        shape->packed[i] = aligned_alloc(ALIGN, (packed + ALIGN - 1) / ALIGN * ALIGN);
        shape->weight.master = master;
        shape->weight.packed = shape->packed[i];
        if (master == NULL || shape->packed[i] == NULL) return false;
        for (uint32_t panel = 0; panel < tw_weight_panels(&shape->weight); panel++) {
            tw_weight_pack(bound->multipliers[0], &shape->weight, panel);
        }
        free(master);
    }
    for (int packed_too = 0; packed_too < (is_weight ? 2 : 1); packed_too++) {
        shape->whole[packed_too] = whole_create(p, packed_too != 0, bound->threads);
    }
    return true;
}

static void shape_free(struct shape *shape) {
    void **arrays[] = {shape->a, shape->b, shape->y, shape->packed};
    for (int i = 0; i < 4; i++) {
        for (uint32_t j = 0; arrays[i] != NULL && j < shape->count; j++) free(arrays[i][j]);
        free(arrays[i]);
    }
    whole_destroy(shape->whole[0]);
    whole_destroy(shape->whole[1]);
}

/* ---- running ------------------------------------------------------------------------------- */

struct job {
    const struct bound *bound;
    const struct shape *shape;
    uint32_t i;
};

static uint32_t cut(uint32_t n, uint32_t piece) {
    return n / piece + (n % piece != 0);
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Multiplies one block of rows, over all columns. */
static void weight_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const struct tw_matmul *p = &job->shape->product;
    const uint32_t first = piece * TW_MATMUL_ROWS, rows = least(p->m - first, TW_MATMUL_ROWS);
    struct tw_weight weight = job->shape->weight;
    const struct tw_weight_product product = {.rows = rows, .y_type = p->y_type};
    weight.packed = job->shape->packed[job->i];
    weight.master = job->shape->b[job->i];
    tw_multiply_weight(
        job->bound->multipliers[thread],
        (char *)job->shape->y[job->i] + (size_t)first * p->n * tw_type_bytes(p->y_type),
        (const char *)job->shape->a[job->i] + (size_t)first * p->k * tw_type_bytes(p->type),
        &weight, &product);
}

static void gradient_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct job *job = context;
    const struct tw_matmul *p = &job->shape->product;
    const uint32_t rows = tw_matmul_tile(p->m, TW_MATMUL_TILE_M);
    const uint32_t columns = tw_matmul_tile(p->n, TW_MATMUL_TILE_N);
    const uint32_t across = cut(p->n, columns);
    const uint32_t i = piece / across * rows, j = piece % across * columns;
    struct tw_matmul tile = *p;
    tile.m = least(p->m - i, rows);
    tile.n = least(p->n - j, columns);
    tw_multiply(job->bound->multipliers[thread],
                (float *)job->shape->y[job->i] + (size_t)i * p->n + j,
                (const char *)job->shape->a[job->i] + i * tw_type_bytes(p->type),
                (const char *)job->shape->b[job->i] + j * tw_type_bytes(p->type), &tile);
}

static void run_way(const struct bound *bound, const struct shape *shape, enum way way,
                    uint32_t count) {
    const struct tw_matmul *p = &shape->product;
    for (uint32_t i = 0; i < count; i++) {
        struct job job = {.bound = bound, .shape = shape, .i = i};
        if (way != SHARED) {
            whole_run(shape->whole[way == WHOLE_PACKED], shape->y[i], shape->a[i], shape->b[i]);
        } else if (p->form == TW_MATMUL_TN) {
            tw_thread_pool_run(bound->team,
                               tw_matmul_tiles(p->m, TW_MATMUL_TILE_M) *
                                   tw_matmul_tiles(p->n, TW_MATMUL_TILE_N),
                               gradient_piece, &job);
        } else {
            tw_thread_pool_run(bound->team, cut(p->m, TW_MATMUL_ROWS), weight_piece, &job);
        }
    }
}

static double flops_of(const struct shape *shape) {
    const struct tw_matmul *p = &shape->product;
    return 2.0 * p->m * p->k * p->n;
}

static void choose(const struct bound *bound, struct shape *shape) {
    const uint32_t count = least(shape->count, 4);
    for (int way = 0; way < WAYS; way++) {
        if (way != SHARED && shape->whole[way] == NULL) continue;
        run_way(bound, shape, (enum way)way, 1); /* prepares the shape */
        for (int i = 0; i < TRIES; i++) {
            const double start = now_s();
            run_way(bound, shape, (enum way)way, count);
            const double seconds = (now_s() - start) / count;
            if (i == 0 || seconds < shape->seconds[way]) shape->seconds[way] = seconds;
        }
    }
    shape->way = SHARED;
    for (int way = 0; way < WAYS; way++) {
        if (shape->seconds[way] > 0.0 && shape->seconds[way] < shape->seconds[shape->way]) {
            shape->way = (enum way)way;
        }
    }
}

enum tw_status bound_create(struct bound **bound_out, const struct tw_run *run, uint64_t rows,
                            enum tw_type type, uint32_t threads, struct tw_error *err) {
    struct bound *bound = calloc(1, sizeof(*bound));
    *bound_out = bound;
    if (bound == NULL) return tw_fail(err, TW_NOMEM, "no memory for the bound");
    bound->type = type;
    bound->rows = rows;
    bound->threads = threads;
    bound->library = tw_matmul_library_get(TW_MATMUL_AUTO);
    bound->multipliers = calloc(threads, sizeof(struct tw_multiplier *));
    if (bound->multipliers == NULL) return tw_fail(err, TW_NOMEM, "no memory for the bound");
    if (!tw_matmul_library_has(bound->library, type)) {
        return tw_fail(err, TW_CONFIG, "%s does not multiply bf16 here: use --compute fp32",
                       tw_matmul_library_name(bound->library));
    }
    TW_TRY(tw_thread_pool_create(&bound->team, threads, err));
    for (uint32_t i = 0; i < threads; i++) {
        TW_TRY(tw_multiplier_create(&bound->multipliers[i], bound->library, err));
    }
    add_step(bound, run);
    for (uint32_t i = 0; i < bound->shapes_count; i++) {
        if (!shape_alloc(bound, &bound->shapes[i])) {
            return tw_fail(err, TW_NOMEM, "no memory for the matrices of a step");
        }
    }
    for (uint32_t i = 0; i < bound->shapes_count; i++) choose(bound, &bound->shapes[i]);
    return TW_OK;
}

void bound_destroy(struct bound *bound) {
    if (bound == NULL) return;
    for (uint32_t i = 0; i < bound->shapes_count; i++) shape_free(&bound->shapes[i]);
    for (uint32_t i = 0; bound->multipliers != NULL && i < bound->threads; i++) {
        tw_multiplier_destroy(bound->multipliers[i]);
    }
    free(bound->multipliers);
    tw_thread_pool_destroy(bound->team);
    free(bound);
}

double bound_round(struct bound *bound) {
    const double start = now_s();
    for (uint32_t i = 0; i < bound->shapes_count; i++) {
        run_way(bound, &bound->shapes[i], bound->shapes[i].way, bound->shapes[i].count);
    }
    return now_s() - start;
}

double bound_flops(const struct bound *bound) {
    double flops = 0.0;
    for (uint32_t i = 0; i < bound->shapes_count; i++) {
        flops += flops_of(&bound->shapes[i]) * bound->shapes[i].count;
    }
    return flops;
}

double bound_peak(const struct bound *bound) {
    double peak = 0.0;
    for (uint32_t i = 0; i < bound->shapes_count; i++) {
        const struct shape *shape = &bound->shapes[i];
        peak = fmax(peak, flops_of(shape) / shape->seconds[shape->way]);
    }
    return peak;
}

void bound_print(const struct bound *bound) {
    (void)printf("%-9s %7s %7s %7s  GFLOP/s:", "product", "m", "k", "n");
    for (int way = 0; way < WAYS; way++) (void)printf(" %14s", way_names[way]);
    (void)printf("\n");
    for (uint32_t i = 0; i < bound->shapes_count; i++) {
        const struct shape *shape = &bound->shapes[i];
        const struct tw_matmul *p = &shape->product;
        (void)printf("%-9s %7u %7u %7u          ", shape->name, p->m, p->k, p->n);
        for (int way = 0; way < WAYS; way++) {
            const double rate = flops_of(shape) / shape->seconds[way] * 1e-9;
            if (shape->seconds[way] == 0.0)
                (void)printf(" %14s", "-");
            else
                (void)printf(" %13.0f%s", rate, shape->way == (enum way)way ? "*" : " ");
        }
        (void)printf("\n");
    }
}
