/* convert_ref.c - conversion between float32 and the type of activations. */
#include "kernels/ref/ref.h"

void TW_REF(from_f32)(void *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) tw_act_put((tw_act *)to + i, from[i]);
}

void TW_REF(to_f32)(float *to, const void *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = tw_act_get((const tw_act *)from + i);
}
