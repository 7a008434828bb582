/* rope_ref.c - rotary embedding: rotates pairs by an angle proportional to the position. */
#include "kernels/ref/ref.h"

void TW_REF(rope)(void *x, size_t x_stride, uint32_t rows, const struct tw_rope *rope,
                  bool is_inverse) {
    const size_t half = rope->head_size / 2;
    for (size_t r = 0; r < rows; r++) {
        for (size_t h = 0; h < rope->heads; h++) {
            for (size_t i = 0; i < half; i++) {
                const size_t at = r * x_stride + h * rope->head_size + i;
                const double a = tw_ref_get(x, at), b = tw_ref_get(x, at + half);
                const double cos = (double)rope->cos[r * half + i];
                const double sin = (double)rope->sin[r * half + i] * (is_inverse ? -1.0 : 1.0);
                tw_ref_put(x, at, a * cos - b * sin);
                tw_ref_put(x, at + half, b * cos + a * sin);
            }
        }
    }
}
