/* bench_gemm.c - thinwire-gemm-bench: a layer's matrix products on a device. Each is timed with its
 * epilogue as planned (kernels/cuda/gemm.h), and as a plain product followed by a separate kernel.
 * Rounds of the two alternate, so that a change of the device's speed affects both. The last line
 * is JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_after.h"
#include "kernels/cuda/runtime.h"
#include "kernels/type.h"

enum { ROUNDS = 7, SIZE_MAX_ROWS = 1 << 20, SIZE_MAX_WIDTH = 1 << 14 };

struct bench {
    int ordinal;
    uint32_t rows, width, repeats;
    struct tw_cuda *cuda;
    struct tw_cuda_products *products;
    void *queue;
    void *narrow, *wide, *pre; /* bfloat16: (rows, width), and twice (rows, 4 * width) */
    void *weight, *bias;       /* bfloat16: (width, 4 * width), (4 * width) */
    float *gradient, *sums;    /* (width, 4 * width), (4 * width) */
};

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- the products ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum tw_cuda_epilogue epilogue;
} kinds[] = {{"bias", TW_CUDA_BIAS},
             {"bias_gelu", TW_CUDA_BIAS_GELU},
             {"gelu_backward", TW_CUDA_GELU_BACKWARD},
             {"bias_gradient", TW_CUDA_BIAS_GRADIENT}};

/* Makes a matrix product of a feed-forward layer, whose weight is (width, 4 * width): the forward
 * pass or a gradient. */
static struct tw_cuda_gemm gemm_of(const struct bench *bench, enum tw_cuda_epilogue epilogue) {
    const uint32_t rows = bench->rows, width = bench->width;
    struct tw_cuda_gemm gemm = {.shape = {.m = rows,
                                          .k = width,
                                          .n = 4 * width,
                                          .form = TW_MATMUL_NN,
                                          .type = TW_BF16,
                                          .y_type = TW_BF16},
                                .y = bench->wide,
                                .a = bench->narrow,
                                .b = bench->weight,
                                .epilogue = epilogue};
    if (epilogue == TW_CUDA_BIAS || epilogue == TW_CUDA_BIAS_GELU) gemm.bias = bench->bias;
    if (epilogue == TW_CUDA_BIAS_GELU || epilogue == TW_CUDA_GELU_BACKWARD) gemm.pre = bench->pre;
    if (epilogue != TW_CUDA_BIAS_GRADIENT) return gemm;
    gemm.shape.form = TW_MATMUL_TN;
    gemm.shape.m = width, gemm.shape.k = rows;
    gemm.shape.y_type = TW_F32;
    gemm.shape.is_added = true;
    gemm.y = bench->gradient;
    gemm.b = bench->wide;
    gemm.bias_gradient = bench->sums;
    return gemm;
}

/* Queues the product without a fused epilogue: a plain product, then the epilogue's kernel. */
static void queue_apart(const struct bench *bench, const struct tw_cuda_gemm *gemm) {
    struct tw_cuda_gemm plain = *gemm;
    size_t bytes = 0;
    float *const scratch = tw_cuda_workspace(bench->cuda, &bytes);
    plain.epilogue = TW_CUDA_PLAIN;
    plain.bias = plain.pre = NULL;
    plain.bias_gradient = NULL;
    tw_cuda_gemm(bench->products, bench->queue, &plain);
    tw_gemm_after(gemm, scratch, bytes / sizeof(float), bench->queue);
}

/* Measures the seconds of one product, fused or, if is_apart, separate. */
static enum tw_status take(const struct bench *bench, const struct tw_cuda_gemm *gemm,
                           bool is_apart, double *took_s, struct tw_error *err) {
    const double begin_s = now_s();
    for (uint32_t i = 0; i < bench->repeats; i++) {
        if (is_apart) {
            queue_apart(bench, gemm);
        } else {
            tw_cuda_gemm(bench->products, bench->queue, gemm);
        }
    }
    TW_TRY(tw_cuda_finish(bench->cuda, TW_CUDA_COMPUTE, err));
    *took_s = (now_s() - begin_s) / bench->repeats;
    return TW_OK;
}

static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum tw_status compare(const struct bench *bench, enum tw_cuda_epilogue epilogue,
                              double medians_s[2], struct tw_error *err) {
    const struct tw_cuda_gemm gemm = gemm_of(bench, epilogue);
    double took_s[2][ROUNDS];
    /* the first round does not count: it makes the plans */
    for (int round = -1; round < ROUNDS; round++) {
        for (int is_apart = 0; is_apart < 2; is_apart++) {
            double *const to = &took_s[is_apart][round < 0 ? 0 : round];
            TW_TRY(take(bench, &gemm, is_apart != 0, to, err));
        }
    }
    for (int i = 0; i < 2; i++) {
        qsort(took_s[i], ROUNDS, sizeof(double), order);
        medians_s[i] = took_s[i][ROUNDS / 2];
    }
    return TW_OK;
}

/* ---- a device -------------------------------------------------------------------------------- */

static enum tw_status get(struct bench *bench, void **array, uint64_t bytes, struct tw_error *err) {
    TW_TRY(tw_cuda_alloc(bench->cuda, array, bytes, "a bench of products", err));
    tw_cuda_zero(bench->cuda, TW_CUDA_COMPUTE, *array, bytes);
    return TW_OK;
}

/* Random bfloat16 numbers. With zeros, a GPU uses less power and runs at higher clocks: its
 * products were 13 % faster. */
static enum tw_status get_random(struct bench *bench, void **array, uint64_t bytes,
                                 struct tw_error *err) {
    static uint16_t numbers[1 << 16];
    struct tw_rng rng;
    tw_rng_seed(&rng, bytes);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        numbers[i] = tw_bf16_from_f32((float)(2.0 * tw_rng_unit(&rng) - 1.0));
    TW_TRY(get(bench, array, bytes, err));
    for (uint64_t at = 0; at < bytes; at += sizeof(numbers)) {
        const uint64_t left = bytes - at;
        tw_cuda_copy_in(bench->cuda, TW_CUDA_COMPUTE, (uint8_t *)*array + at, numbers,
                        left < sizeof(numbers) ? left : sizeof(numbers));
    }
    return tw_cuda_finish(bench->cuda, TW_CUDA_COMPUTE, err);
}

static enum tw_status open_bench(struct bench *bench, struct tw_error *err) {
    const uint64_t rows = bench->rows, width = bench->width, half = sizeof(uint16_t);
    void *gradient = NULL, *sums = NULL;
    TW_TRY(tw_cuda_open(&bench->cuda, bench->ordinal, 0, err));
    bench->queue = tw_cuda_stream(bench->cuda, TW_CUDA_COMPUTE);
    TW_TRY(tw_cuda_products_open(&bench->products, bench->cuda, NULL, err));
    TW_TRY(get_random(bench, &bench->narrow, rows * width * half, err));
    TW_TRY(get_random(bench, &bench->wide, rows * 4 * width * half, err));
    TW_TRY(get_random(bench, &bench->pre, rows * 4 * width * half, err));
    TW_TRY(get_random(bench, &bench->weight, width * 4 * width * half, err));
    TW_TRY(get_random(bench, &bench->bias, 4 * width * half, err));
    TW_TRY(get(bench, &gradient, width * 4 * width * sizeof(float), err));
    TW_TRY(get(bench, &sums, 4 * width * sizeof(float), err));
    bench->gradient = gradient;
    bench->sums = sums;
    return tw_cuda_finish(bench->cuda, TW_CUDA_COMPUTE, err);
}

static enum tw_status run(struct bench *bench, struct tw_error *err) {
    char json[512];
    int used = 0;
    TW_TRY(open_bench(bench, err));
    (void)printf("%-14s %12s %16s\n", "epilogue", "as planned", "kernel after it");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        double s[2];
        TW_TRY(compare(bench, kinds[i].epilogue, s, err));
        (void)printf("%-14s %9.1f us %13.1f us\n", kinds[i].name, 1e6 * s[0], 1e6 * s[1]);
        used += snprintf(json + used, sizeof(json) - (size_t)used,
                         ", \"%s_s\": %.4g, \"%s_apart_s\": %.4g", kinds[i].name, s[0],
                         kinds[i].name, s[1]);
    }
    (void)printf("{\"rows\": %u, \"width\": %u%s}\n", bench->rows, bench->width, json);
    return TW_OK;
}

static enum tw_status read_options(struct bench *bench, int argc, char **argv,
                                   struct tw_error *err) {
    for (int i = 1; i < argc; i += 2) {
        const unsigned long value = i + 1 < argc ? strtoul(argv[i + 1], NULL, 10) : 0;
        if (strcmp(argv[i], "--device") == 0 && value < TW_CUDA_DEVICES_MAX) {
            bench->ordinal = (int)value;
        } else if (strcmp(argv[i], "--rows") == 0 && value > 0 && value <= SIZE_MAX_ROWS) {
            bench->rows = (uint32_t)value;
        } else if (strcmp(argv[i], "--width") == 0 && value > 0 && value <= SIZE_MAX_WIDTH) {
            bench->width = (uint32_t)value;
        } else if (strcmp(argv[i], "--repeats") == 0 && value > 0 && value <= 1000) {
            bench->repeats = (uint32_t)value;
        } else {
            return tw_fail(err, TW_CONFIG,
                           "usage: thinwire-gemm-bench [--device N] [--rows N] [--width N] "
                           "[--repeats N]");
        }
    }
    return TW_OK;
}

int main(int argc, char **argv) {
    struct bench bench = {.rows = 32768, .width = 768, .repeats = 20};
    struct tw_error err;
    enum tw_status status = read_options(&bench, argc, argv, &err);
    if (status == TW_OK) status = run(&bench, &err);
    if (status != TW_OK) (void)fprintf(stderr, "thinwire-gemm-bench: %s\n", err.message);
    tw_cuda_products_close(bench.products);
    tw_cuda_close(bench.cuda);
    return status == TW_OK ? 0 : status == TW_CONFIG ? 2 : 1;
}
