/* gpu_peak.c - measures the GEMM rate of a device. Square matrices grow until one GEMM takes long
 * enough to be timed from the host; the best of a few tries counts. */
#include <time.h>

#include "base/rng.h"
#include "worker/engine/cuda/gpu_model.h"

enum { SIZE_FIRST = 256, SIZE_MOST = 8192, TRIES = 5, PATTERN = 32768 };
static const double LONG_S = 0.002;

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fills the block with numbers of all signs and mantissas, none far from 1. With zeros a card draws
 * less power and would reach a rate that no training reaches. */
static enum tw_status fill_block(struct tw_cuda *cuda, uint8_t *block, size_t bytes,
                                 enum tw_type type, struct tw_error *err) {
    static uint32_t pattern[PATTERN];
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    for (uint32_t i = 0; i < PATTERN; i++) {
        const uint32_t bits = (uint32_t)tw_rng_next(&rng);
        pattern[i] =
            type == TW_BF16 ? (bits & 0x80ff80ff) | 0x3f003f00 : (bits & 0x80ffffff) | 0x3f000000;
    }
    size_t done = bytes < sizeof(pattern) ? bytes : sizeof(pattern);
    tw_cuda_copy_in(cuda, TW_CUDA_COMPUTE, block, pattern, done);
    while (done < bytes) {
        const size_t more = bytes - done < done ? bytes - done : done;
        tw_cuda_copy(cuda, TW_CUDA_COMPUTE, block + done, block, more);
        done += more;
    }
    return tw_cuda_finish(cuda, TW_CUDA_COMPUTE, err);
}

/* Times a GEMM of this size. Allocates memory for this size only, because three matrices of
 * SIZE_MOST could use memory that a training needs. */
static enum tw_status time_products(struct tw_cuda *cuda, struct tw_cuda_products *products,
                                    enum tw_type type, uint32_t size, double *best_s,
                                    struct tw_error *err) {
    const size_t bytes = (size_t)size * size * tw_type_bytes(type);
    void *block = NULL;
    TW_TRY(tw_cuda_alloc(cuda, &block, 3 * bytes, "timing products", err));
    const struct tw_cuda_gemm gemm = {
        .shape =
            {.m = size, .k = size, .n = size, .form = TW_MATMUL_NN, .type = type, .y_type = type},
        .y = block,
        .a = (uint8_t *)block + bytes,
        .b = (uint8_t *)block + 2 * bytes};
    enum tw_status status = fill_block(cuda, block, 3 * bytes, type, err);
    for (uint32_t i = 0; i < TRIES && status == TW_OK; i++) {
        const double begin_s = now_s();
        tw_cuda_gemm(products, tw_cuda_stream(cuda, TW_CUDA_COMPUTE), &gemm);
        status = tw_cuda_finish(cuda, TW_CUDA_COMPUTE, err);
        const double took_s = now_s() - begin_s;
        if (i == 0 || took_s < *best_s) *best_s = took_s; /* the first try includes autotuning */
        if (took_s > 100 * LONG_S) break;
    }
    tw_cuda_free(cuda, block);
    return status;
}

static enum tw_status measure_sizes(struct tw_cuda *cuda, const struct tw_engine_plan *plan,
                                    double *flops_s, struct tw_error *err) {
    struct tw_cuda_products *products = NULL;
    TW_TRY(tw_cuda_products_open(&products, cuda, NULL, err));
    enum tw_status status = TW_OK;
    *flops_s = 0;
    for (uint32_t size = SIZE_FIRST; size <= SIZE_MOST && status == TW_OK; size *= 2) {
        double best_s = 0;
        status = time_products(cuda, products, plan->type, size, &best_s, err);
        if (status == TW_OK) *flops_s = 2.0 * size * size * size / (best_s + 1e-9);
        if (best_s > LONG_S) break;
    }
    /* If memory is too small for the next size, the result for the smaller sizes is used. */
    if (status == TW_NOMEM && *flops_s > 0) status = TW_OK;
    tw_cuda_products_close(products);
    return status;
}

enum tw_status tw_gpu_peak(const struct tw_engine_plan *plan, double *flops_s,
                           struct tw_error *err) {
    struct tw_cuda *cuda = NULL;
    TW_TRY(tw_cuda_open(&cuda, (int)plan->ordinal, 0, err));
    const enum tw_status status = measure_sizes(cuda, plan, flops_s, err);
    tw_cuda_close(cuda);
    return status;
}
