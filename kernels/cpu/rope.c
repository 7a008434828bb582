/* rope.c - rotary position embedding, in place. */
#include "kernels/cpu/vec.h"

/* Rotates the two halves of one head by the angles of the row. */
static void turn(tw_act *x, const float *cos, const float *sin, size_t half, float sign) {
    size_t i = 0;
    for (; i + TW_VEC <= half; i += TW_VEC) {
        const tw_vec a = tw_act_load(x + i), b = tw_act_load(x + half + i);
        const tw_vec c = tw_vec_load(cos + i), s = tw_vec_load(sin + i) * sign;
        tw_act_store(x + i, a * c - b * s);
        tw_act_store(x + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        const float a = tw_act_get(x + i), b = tw_act_get(x + half + i), s = sin[i] * sign;
        tw_act_put(x + i, a * cos[i] - b * s);
        tw_act_put(x + half + i, b * cos[i] + a * s);
    }
}

void TW_CPU(rope)(void *x, size_t x_stride, uint32_t rows, const struct tw_rope *rope,
                  bool is_inverse) {
    const size_t half = rope->head_size / 2;
    for (size_t r = 0; r < rows; r++) {
        tw_act *row = (tw_act *)x + r * x_stride;
        for (size_t h = 0; h < rope->heads; h++) {
            turn(row + h * rope->head_size, rope->cos + r * half, rope->sin + r * half, half,
                 is_inverse ? -1.0f : 1.0f);
        }
    }
}
