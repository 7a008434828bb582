/* bench_attention.c - speed of attention, in GFLOP/s of a causal pass. A query costs 4 * head_size
 * FLOP forward and 10 * head_size backward for each key that it attends to. The float32 rate of one
 * core is measured between the rows and printed next to them, because clocks and other load change.
 *
 *     thinwire-attention-bench            the tables chosen on this machine, one thread
 *     thinwire-attention-bench --all      every table, including the reference
 *
 * Also measures the time that masking documents in a window saves, alternating with the whole
 * window. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/ops.h"

/* Returns the CPU time of this thread, which depends less on other load. */
static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- peak ----------------------------------------------------------------------------------- */

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 20")
#endif

/* Defines a function that returns the GFLOP/s of multiply-adds `lanes` wide, with twenty
 * independent sums. */
#define PEAK(name, lanes, ...)                                                                     \
    typedef float name##_vec __attribute__((vector_size(lanes * 4)));                              \
    __VA_ARGS__ static double name(void) {                                                         \
        enum { LOOPS = 2000000, SUMS = 20 };                                                       \
        static volatile float input = 0.5f;                                                        \
        static volatile float output;                                                              \
        const name##_vec a = (name##_vec){0} + input, b = a + input;                               \
        name##_vec sum[SUMS];                                                                      \
        UNROLL for (int j = 0; j < SUMS; j++) sum[j] = a * (float)j;                               \
        const double start = now_s();                                                              \
        for (int i = 0; i < LOOPS; i++) {                                                          \
            UNROLL for (int j = 0; j < SUMS; j++) sum[j] = sum[j] * a + b;                         \
        }                                                                                          \
        const double took_s = now_s() - start;                                                     \
        UNROLL for (int j = 1; j < SUMS; j++) sum[0] += sum[j];                                    \
        output = sum[0][0];                                                                        \
        (void)output;                                                                              \
        return LOOPS * 2.0 * SUMS * lanes / took_s * 1e-9;                                         \
    }
#if defined(__x86_64__)
PEAK(peak_avx512, 16, __attribute__((target("avx512f,fma"))))
PEAK(peak_avx2, 8, __attribute__((target("avx2,fma"))))
#endif
PEAK(peak_base, 4, )

static double peak_gflops(void) {
    double best = 0.0;
    for (int i = 0; i < 3; i++) {
#if defined(__x86_64__)
        const double peak = __builtin_cpu_supports("avx512f") ? peak_avx512()
                            : __builtin_cpu_supports("avx2")  ? peak_avx2()
                                                              : peak_base();
#else
        const double peak = peak_base();
#endif
        if (peak > best) best = peak;
    }
    return best;
}

/* ---- attention ------------------------------------------------------------------------------ */

static void *activations(const struct tw_ops *ops, size_t n) {
    float *x = malloc(n * sizeof(*x));
    void *to = malloc(n * ops->type_bytes);
    struct tw_rng rng;
    if (x == NULL || to == NULL) exit(1);
    tw_rng_seed(&rng, 1);
    for (size_t i = 0; i < n; i++) x[i] = (float)tw_rng_unit(&rng) - 0.5f;
    ops->from_f32(to, x, n);
    free(x);
    return to;
}

static float *floats(size_t n) {
    float *x = aligned_alloc(64, (n * sizeof(*x) + 63) / 64 * 64);
    if (x == NULL) exit(1);
    return x;
}

/* q, k and v are columns of one matrix, as in a model with 12 heads. */
static struct tw_attention_arrays arrays_new(const struct tw_ops *ops,
                                             const struct tw_attention *shape) {
    const size_t q = shape->queries * shape->q_stride, k = shape->keys * shape->kv_stride;
    const size_t out = shape->queries * shape->out_stride;
    return (struct tw_attention_arrays){.q = activations(ops, q),
                                        .k = activations(ops, k),
                                        .v = activations(ops, k),
                                        .out = activations(ops, out),
                                        .dout = activations(ops, out),
                                        .dq = activations(ops, q),
                                        .dk = activations(ops, k),
                                        .dv = activations(ops, k),
                                        .lse = floats((size_t)shape->group * shape->queries),
                                        .scratch = floats(tw_attention_scratch(shape))};
}

static void arrays_free(struct tw_attention_arrays *a) {
    free((void *)a->q), free((void *)a->k), free((void *)a->v), free(a->out);
    free((void *)a->dout), free(a->dq), free(a->dk), free(a->dv), free(a->lse), free(a->scratch);
}

static void do_pass(const struct tw_ops *ops, const struct tw_attention_arrays *a,
                    const struct tw_attention *shape, bool is_backward) {
    if (is_backward) {
        ops->attention_backward(shape, a);
    } else {
        ops->attention(shape, a);
    }
}

/* Returns the median seconds of one pass, measured for about a third of a second. */
static double time_pass(const struct tw_ops *ops, const struct tw_attention_arrays *a,
                        const struct tw_attention *shape, bool is_backward) {
    enum { TIMES = 400 };
    double took_s[TIMES], start = now_s();
    int count = 0;
    do {
        const double begin = now_s();
        do_pass(ops, a, shape, is_backward);
        took_s[count++] = now_s() - begin;
        for (int i = count - 1; i > 0 && took_s[i] < took_s[i - 1]; i--) {
            const double swap = took_s[i];
            took_s[i] = took_s[i - 1];
            took_s[i - 1] = swap;
        }
    } while (count < TIMES && now_s() - start < 0.1);
    return took_s[count / 2];
}

static struct tw_attention window_of(uint32_t length, uint32_t head_size) {
    return (struct tw_attention){.queries = length,
                                 .keys = length,
                                 .group = 1,
                                 .head_size = head_size,
                                 .q_stride = 36 * 64,
                                 .kv_stride = 36 * 64,
                                 .out_stride = 12 * 64};
}

static void bench_training(const struct tw_ops *ops, uint32_t length, uint32_t head_size) {
    const struct tw_attention shape = window_of(length, head_size);
    struct tw_attention_arrays a = arrays_new(ops, &shape);
    const double pairs = 0.5 * length * (length + 1.0) * head_size * 1e-9;
    const double before = peak_gflops();
    const double forward_s = time_pass(ops, &a, &shape, false);
    const double backward_s = time_pass(ops, &a, &shape, true);
    const double after = peak_gflops(), peak = before > after ? before : after;
    const double forward = 4.0 * pairs / forward_s, backward = 10.0 * pairs / backward_s;
    printf(
        "%-13s %-4s  T %4u  head %3u  forward %7.1f GFLOP/s (%5.1f %%)  backward %7.1f (%5.1f %%)"
        "  of %.0f float32\n",
        ops->name, ops->type == TW_F32 ? "f32" : "bf16", length, head_size, forward,
        100.0 * forward / peak, backward, 100.0 * backward / peak, peak);
    fflush(stdout);
    arrays_free(&a);
}

/* Lowers *best_s to the seconds of both passes over a window that is split into documents of
 * `length`. */
static void time_documents(const struct tw_ops *ops, const struct tw_attention_arrays *a,
                           const struct tw_attention *window, uint32_t length, double *best_s) {
    struct tw_attention shape = *window;
    const double start = now_s();
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t begin = 0; begin < window->queries; begin += length) {
            const uint32_t left = window->queries - begin;
            shape.queries = shape.keys = left < length ? left : length;
            const struct tw_attention_arrays document =
                tw_attention_document(&shape, a, ops->type_bytes, begin);
            do_pass(ops, &document, &shape, pass == 1);
        }
    }
    const double took_s = now_s() - start;
    if (took_s < *best_s) *best_s = took_s;
}

static void bench_documents(const struct tw_ops *ops, uint32_t length) {
    enum { WINDOW = 1024, ROUNDS = 15 };
    const struct tw_attention window = window_of(WINDOW, 64);
    struct tw_attention_arrays a = arrays_new(ops, &window);
    double whole_s = 1e9, masked_s = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        time_documents(ops, &a, &window, WINDOW, &whole_s);
        time_documents(ops, &a, &window, length, &masked_s);
    }
    printf("%-13s %-4s  T %4u  head  64  in documents of %4u: %7.1f us of %7.1f, %4.1f times as "
           "fast\n",
           ops->name, ops->type == TW_F32 ? "f32" : "bf16", WINDOW, length, masked_s * 1e6,
           whole_s * 1e6, whole_s / masked_s);
    fflush(stdout);
    arrays_free(&a);
}

/* Times one new token of a head. Its cache was last used one layer earlier, so reads come from
 * memory or L3. */
static void bench_decoding(const struct tw_ops *ops, uint32_t keys, uint32_t group,
                           size_t kv_stride) {
    enum { LAYERS = 12, STEPS = 20 };
    const struct tw_attention shape = {.queries = 1,
                                       .keys = keys,
                                       .group = group,
                                       .head_size = 64,
                                       .q_stride = 64 * (size_t)group,
                                       .kv_stride = kv_stride,
                                       .out_stride = 64 * (size_t)group};
    struct tw_attention_arrays a[LAYERS];
    for (int i = 0; i < LAYERS; i++) a[i] = arrays_new(ops, &shape);
    double best_s = 1e9;
    for (int step = 0; step < STEPS; step++) {
        const double start = now_s();
        for (int i = 0; i < LAYERS; i++) ops->attention(&shape, &a[i]);
        const double took_s = (now_s() - start) / LAYERS;
        if (took_s < best_s) best_s = took_s;
    }
    printf("%-13s %-4s  decode, %4u keys %4zu apart, group %u: %7.1f us, %5.1f GB/s of k and v\n",
           ops->name, ops->type == TW_F32 ? "f32" : "bf16", keys, kv_stride, group, best_s * 1e6,
           2.0 * keys * 64.0 * ops->type_bytes / best_s * 1e-9);
    for (int i = 0; i < LAYERS; i++) arrays_free(&a[i]);
}

static void bench_table(const struct tw_ops *ops, bool is_reference) {
    const uint32_t lengths[] = {256, 1024, 2048}, sizes[] = {64, 128};
    for (size_t s = 0; s < 2; s++) {
        for (size_t l = 0; l < (is_reference ? 1 : 3); l++) {
            bench_training(ops, lengths[l], sizes[s]);
        }
    }
    const uint32_t documents[] = {1, 16, 100, 256, 700};
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        bench_documents(ops, documents[i]);
    }
    const size_t strides[] = {64, 12 * 64}; /* the cache holds this head only, or twelve heads */
    for (size_t s = 0; s < 2; s++) {
        bench_decoding(ops, 1024, 1, strides[s]);
        bench_decoding(ops, 4096, 1, strides[s]);
        bench_decoding(ops, 1024, 4, strides[s]);
    }
}

int main(int argc, char **argv) {
    const bool is_all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const enum tw_type types[] = {TW_F32, TW_BF16};
    for (size_t t = 0; t < 2; t++) {
        for (uint32_t i = 0; tw_ops_cpu(types[t], i) != NULL && (is_all || i == 0); i++) {
            bench_table(tw_ops_cpu(types[t], i), false);
        }
        if (is_all) bench_table(tw_ops_ref(types[t]), true);
    }
    return 0;
}
