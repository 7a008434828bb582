#include "worker/engine/peak.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "worker/support/thread_pool.h"

enum {
    SIZE_SLOW = 128, /* matrix size for the slow reference library, which does about 1e9 operations
                        per second */
    PIECES = 4,      /* products per thread in each try */
    TRIES_MAX = 10,
};
/* Sizes of the square weight matrix to try. The fastest size depends on caches and library. Larger
 * sizes come last, when the clock frequency has had time to rise. */
static const uint32_t SIZES[] = {256, 512, 1024};
static const double TRYING_S = 0.06; /* seconds spent on each size */

struct peak {
    struct tw_multiplier **multipliers; /* (threads) */
    float *memory; /* master weight, packed weight, then the input and output rows of each thread */
    struct tw_weight weight;
    char *rows; /* input and output of each thread: (threads, 2, TW_MATMUL_ROWS * size) */
    size_t rows_bytes;
    double *best_s; /* each thread's shortest time for a product; 0 before its first */
};

static double now_s(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Times one product by the thread's CPU clock, which leaves out the time of other processes. */
static void multiply_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct peak *const peak = context;
    char *const a = peak->rows + 2 * thread * peak->rows_bytes;
    const struct tw_weight_product product = {.rows = TW_MATMUL_ROWS, .y_type = peak->weight.type};
    (void)piece;
    const double begin_s = now_s(CLOCK_THREAD_CPUTIME_ID);
    tw_multiply_weight(peak->multipliers[thread], a + peak->rows_bytes, a, &peak->weight, &product);
    const double took_s = fmax(now_s(CLOCK_THREAD_CPUTIME_ID) - begin_s, 1e-9);
    if (peak->best_s[thread] == 0 || took_s < peak->best_s[thread]) peak->best_s[thread] = took_s;
}

/* Allocates one block for the master weight, its packed copy and the rows. All values are zero,
 * because products of zeros take as long as others. */
static enum tw_status alloc_peak(struct peak *peak, const struct tw_matmul_library *library,
                                 uint32_t size, uint32_t threads, struct tw_error *err) {
    const size_t master_bytes = (size_t)size * size * sizeof(float);
    const size_t packed_bytes = (tw_weight_bytes(library, &peak->weight) + 63) / 64 * 64;
    peak->rows_bytes = (size_t)TW_MATMUL_ROWS * size * (peak->weight.type == TW_F32 ? 4 : 2);
    const size_t bytes = master_bytes + packed_bytes + 2 * threads * peak->rows_bytes;
    peak->memory = aligned_alloc(64, bytes);
    peak->multipliers = calloc(threads, sizeof(struct tw_multiplier *));
    peak->best_s = calloc(threads, sizeof(double));
    if (peak->memory == NULL || peak->multipliers == NULL || peak->best_s == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory to measure the speed of matrix products");
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++) peak->memory[i] = 0;
    char *const at = (char *)peak->memory + master_bytes;
    peak->weight.master = peak->memory;
    peak->weight.packed = packed_bytes > 0 ? at : NULL;
    peak->rows = at + packed_bytes;
    for (uint32_t i = 0; i < threads; i++) {
        TW_TRY(tw_multiplier_create(&peak->multipliers[i], library, err));
    }
    for (uint32_t i = 0; packed_bytes > 0 && i < tw_weight_panels(&peak->weight); i++) {
        tw_weight_pack(peak->multipliers[0], &peak->weight, i);
    }
    return TW_OK;
}

/* Returns the sum of the threads' best rates. A thread that received no piece counts as the fastest
 * one. */
static double sum_rates(struct peak *peak, struct tw_thread_pool *team, uint32_t size) {
    const uint32_t threads = tw_thread_pool_threads(team);
    const double operations = 2.0 * TW_MATMUL_ROWS * (double)size * (double)size;
    const double begin_s = now_s(CLOCK_MONOTONIC);
    double fastest = 0, sum = 0;
    for (unsigned i = 0; i < TRIES_MAX && (i < 2 || now_s(CLOCK_MONOTONIC) < begin_s + TRYING_S);
         i++) {
        tw_thread_pool_run(team, PIECES * threads, multiply_piece, peak);
    }
    for (uint32_t i = 0; i < threads; i++) {
        if (peak->best_s[i] > 0) fastest = fmax(fastest, operations / peak->best_s[i]);
    }
    for (uint32_t i = 0; i < threads; i++) {
        sum += peak->best_s[i] > 0 ? operations / peak->best_s[i] : fastest;
    }
    return sum;
}

/* Raises *flops_s to the GEMM rate with a weight of this size, if that rate is higher. */
static enum tw_status measure_size(const struct tw_matmul_library *library, enum tw_type type,
                                   struct tw_thread_pool *team, uint32_t size, double *flops_s,
                                   struct tw_error *err) {
    struct peak peak = {.weight = {.k = size, .n = size, .form = TW_MATMUL_NN, .type = type}};
    const uint32_t threads = tw_thread_pool_threads(team);
    const enum tw_status status = alloc_peak(&peak, library, size, threads, err);
    if (status == TW_OK) tw_peak_raise(flops_s, sum_rates(&peak, team, size));
    for (uint32_t i = 0; peak.multipliers != NULL && i < threads; i++) {
        tw_multiplier_destroy(peak.multipliers[i]);
    }
    free(peak.multipliers);
    free(peak.best_s);
    free(peak.memory);
    return status;
}

enum tw_status tw_peak_measure(const struct tw_matmul_library *library, enum tw_type type,
                               uint32_t threads, double *flops_s, struct tw_error *err) {
    const bool is_slow = library == tw_matmul_library_get(TW_MATMUL_REF);
    const uint32_t *const sizes = is_slow ? &(const uint32_t){SIZE_SLOW} : SIZES;
    const size_t sizes_count = is_slow ? 1 : sizeof(SIZES) / sizeof(SIZES[0]);
    struct tw_thread_pool *team = NULL;
    TW_ASSERT(tw_matmul_library_has(library, type));
    TW_TRY(tw_thread_pool_create(&team, threads, err));
    enum tw_status status = TW_OK;
    *flops_s = 0;
    for (size_t i = 0; status == TW_OK && i < sizes_count; i++) {
        status = measure_size(library, type, team, sizes[i], flops_s, err);
    }
    tw_thread_pool_destroy(team);
    return status;
}

void tw_peak_raise(double *flops_s, double reached) {
    if (reached > *flops_s && isfinite(reached)) *flops_s = reached;
}
