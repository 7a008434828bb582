/* normalise.c - LayerNorm and RMSNorm: a few passes over a row in the first-level cache. */
#include <math.h>

#include "kernels/cpu/vec.h"

enum { CHAINS = 4 }; /* independent partial sums, to hide the latency of an addition */

/* Adds the residual to the row, rounded as it is stored. */
static void add_residual(tw_act *row, const tw_act *residual, size_t width) {
    size_t i = 0;
    for (; i + TW_VEC <= width; i += TW_VEC) {
        tw_act_store(row + i, tw_act_load(row + i) + tw_act_load(residual + i));
    }
    for (; i < width; i++) tw_act_put(row + i, tw_act_get(row + i) + tw_act_get(residual + i));
}

static float row_sum(const tw_act *x, size_t width) {
    tw_vec sum[CHAINS] = {{0}};
    size_t i = 0;
    for (; i + CHAINS * TW_VEC <= width; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) sum[j] += tw_act_load(x + i + j * TW_VEC);
    }
    for (; i + TW_VEC <= width; i += TW_VEC) sum[0] += tw_act_load(x + i);
    if (i < width) sum[1] += tw_act_load_part(x + i, width - i);
    return tw_vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* sum (x - mean)^2 */
static float row_squares(const tw_act *x, size_t width, float mean) {
    tw_vec sum[CHAINS] = {{0}};
    size_t i = 0;
    for (; i + CHAINS * TW_VEC <= width; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) {
            const tw_vec d = tw_act_load(x + i + j * TW_VEC) - mean;
            sum[j] += d * d;
        }
    }
    for (; i + TW_VEC <= width; i += TW_VEC) {
        const tw_vec d = tw_act_load(x + i) - mean;
        sum[0] += d * d;
    }
    float rest = 0.0f;
    for (; i < width; i++) rest += (tw_act_get(x + i) - mean) * (tw_act_get(x + i) - mean);
    return tw_vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* Computes y = (x - mean) * rstd * weight + bias. */
static void row_output(tw_act *y, const tw_act *x, float mean, float rstd,
                       const struct tw_norm *norm) {
    const float *weight = norm->weight, *bias = norm->bias;
    const size_t width = norm->width;
    size_t i = 0;
    for (; i + TW_VEC <= width; i += TW_VEC) {
        tw_vec out = (tw_act_load(x + i) - mean) * rstd * tw_vec_load(weight + i);
        if (bias != NULL) out += tw_vec_load(bias + i);
        tw_act_store(y + i, out);
    }
    for (; i < width; i++) {
        const float normal = (tw_act_get(x + i) - mean) * rstd;
        tw_act_put(y + i, normal * weight[i] + (bias != NULL ? bias[i] : 0.0f));
    }
}

void TW_CPU(norm)(void *y, void *x, const void *residual, float *stats,
                  const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows; r++) {
        tw_act *row = (tw_act *)x + r * width;
        if (residual != NULL) add_residual(row, (const tw_act *)residual + r * width, width);
        const float mean = norm->is_rms ? 0.0f : row_sum(row, width) / (float)width;
        const float rstd = 1.0f / sqrtf(row_squares(row, width, mean) / (float)width + norm->eps);
        row_output((tw_act *)y + r * width, row, mean, rstd, norm);
        if (stats == NULL) continue;
        stats[2 * r] = mean;
        stats[2 * r + 1] = rstd;
    }
}

/* ---- backward, a few rows at a time, to reuse weights and their gradients ----- */

enum { ROWS = 4 };

struct block {
    tw_act *dx;
    const tw_act *dy, *x;
    const float *stats;
    float *dweight, *dbias;
    const struct tw_norm *norm;
    float g_mean[ROWS], g_normal_mean[ROWS];
};

/* Computes the means of g and of g * normal for each row, with g = dy * weight and normal = (x -
 * mean) * rstd. Adds to dweight and dbias. rows must be a literal. */
TW_INLINE void block_means(struct block *b, const size_t rows) {
    const size_t width = b->norm->width;
    tw_vec g_sum[ROWS] = {{0}}, g_normal_sum[ROWS] = {{0}};
    for (size_t i = 0; i < width; i += TW_VEC) {
        const size_t count = width - i < TW_VEC ? width - i : TW_VEC;
        const bool is_whole = count == TW_VEC;
        const tw_vec zero = {0};
        const float *weight_at = b->norm->weight + i;
        const tw_vec weight =
            is_whole ? tw_vec_load(weight_at) : tw_vec_load_part(weight_at, count);
        tw_vec dweight = zero, dbias = zero;
        if (b->dweight != NULL) {
            dweight =
                is_whole ? tw_vec_load(b->dweight + i) : tw_vec_load_part(b->dweight + i, count);
        }
        if (b->dbias != NULL) {
            dbias = is_whole ? tw_vec_load(b->dbias + i) : tw_vec_load_part(b->dbias + i, count);
        }
        for (size_t r = 0; r < rows; r++) {
            const tw_act *x_at = b->x + r * width + i, *dy_at = b->dy + r * width + i;
            const tw_vec x = is_whole ? tw_act_load(x_at) : tw_act_load_part(x_at, count);
            const tw_vec dy = is_whole ? tw_act_load(dy_at) : tw_act_load_part(dy_at, count);
            const tw_vec normal = (x - b->stats[2 * r]) * b->stats[2 * r + 1];
            const tw_vec g = dy * weight;
            g_sum[r] += g;
            g_normal_sum[r] += g * normal;
            dweight += dy * normal;
            dbias += dy;
        }
        if (b->dweight != NULL && is_whole) tw_vec_store(b->dweight + i, dweight);
        if (b->dweight != NULL && !is_whole) tw_vec_store_part(b->dweight + i, dweight, count);
        if (b->dbias != NULL && is_whole) tw_vec_store(b->dbias + i, dbias);
        if (b->dbias != NULL && !is_whole) tw_vec_store_part(b->dbias + i, dbias, count);
    }
    for (size_t r = 0; r < rows; r++) {
        b->g_mean[r] = b->norm->is_rms ? 0.0f : tw_vec_sum(g_sum[r]) / (float)width;
        b->g_normal_mean[r] = tw_vec_sum(g_normal_sum[r]) / (float)width;
    }
}

/* Computes dx += rstd * (g - g_mean - normal * g_normal_mean). */
static void block_dx(const struct block *b, size_t rows) {
    const size_t width = b->norm->width;
    const float *weight = b->norm->weight;
    for (size_t r = 0; r < rows; r++) {
        const tw_act *x = b->x + r * width, *dy = b->dy + r * width;
        tw_act *dx = b->dx + r * width;
        const float mean = b->stats[2 * r], rstd = b->stats[2 * r + 1];
        const float g_mean = b->g_mean[r], slope = b->g_normal_mean[r];
        size_t i = 0;
        for (; i + TW_VEC <= width; i += TW_VEC) {
            const tw_vec g = tw_act_load(dy + i) * tw_vec_load(weight + i);
            const tw_vec normal = (tw_act_load(x + i) - mean) * rstd;
            tw_act_store(dx + i, tw_act_load(dx + i) + rstd * (g - g_mean - normal * slope));
        }
        for (; i < width; i++) {
            const float g = tw_act_get(dy + i) * weight[i];
            const float normal = (tw_act_get(x + i) - mean) * rstd;
            tw_act_put(dx + i, tw_act_get(dx + i) + rstd * (g - g_mean - normal * slope));
        }
    }
}

void TW_CPU(norm_backward)(void *dx, float *dweight, float *dbias, const void *dy, const void *x,
                           const float *stats, const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows;) {
        struct block b = {.dx = (tw_act *)dx + r * width,
                          .dy = (const tw_act *)dy + r * width,
                          .x = (const tw_act *)x + r * width,
                          .stats = stats + 2 * r,
                          .dweight = dweight,
                          .dbias = dbias,
                          .norm = norm};
        const size_t rows = norm->rows - r >= ROWS ? ROWS : 1;
        if (rows == ROWS) block_means(&b, ROWS);
        if (rows == 1) block_means(&b, 1);
        block_dx(&b, rows);
        r += rows;
    }
}
