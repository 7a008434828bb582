/* bias.c - adding a residual, adding a bias, and column sums (the gradient of a bias). */
#include "kernels/cpu/vec.h"

void TW_CPU(add)(void *y, const void *x, size_t n) {
    tw_act *to = y;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_act_store(to + i, tw_act_load(to + i) + tw_act_load(from + i));
    }
    for (; i < n; i++) tw_act_put(to + i, tw_act_get(to + i) + tw_act_get(from + i));
}

void TW_CPU(bias)(void *y, const float *bias, uint32_t rows, uint32_t n) {
    tw_act *row = y;
    for (size_t r = 0; r < rows; r++, row += n) {
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            tw_act_store(row + i, tw_act_load(row + i) + tw_vec_load(bias + i));
        }
        for (; i < n; i++) tw_act_put(row + i, tw_act_get(row + i) + bias[i]);
    }
}

/* The sums of a group of columns stay in registers across all rows. */
void TW_CPU(bias_backward)(float *dbias, const void *dy, size_t dy_stride, uint32_t rows,
                           uint32_t n) {
    enum { STRIP = 8 };
    const tw_act *from = dy;
    size_t i = 0;
    for (; i + STRIP * TW_VEC <= n; i += STRIP * TW_VEC) {
        tw_vec sum[STRIP];
        for (size_t j = 0; j < STRIP; j++) sum[j] = tw_vec_load(dbias + i + j * TW_VEC);
        for (size_t r = 0; r < rows; r++) {
            for (size_t j = 0; j < STRIP; j++) {
                sum[j] += tw_act_load(from + r * dy_stride + i + j * TW_VEC);
            }
        }
        for (size_t j = 0; j < STRIP; j++) tw_vec_store(dbias + i + j * TW_VEC, sum[j]);
    }
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_vec sum = tw_vec_load(dbias + i);
        for (size_t r = 0; r < rows; r++) sum += tw_act_load(from + r * dy_stride + i);
        tw_vec_store(dbias + i, sum);
    }
    for (; i < n; i++) {
        for (size_t r = 0; r < rows; r++) dbias[i] += tw_act_get(from + r * dy_stride + i);
    }
}
