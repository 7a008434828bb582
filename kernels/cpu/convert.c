/* convert.c - conversion between float32 and the type of activations. */
#include "kernels/cpu/vec.h"

void TW_CPU(from_f32)(void *to, const float *from, size_t n) {
    tw_act *y = to;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(y + i, tw_vec_load(from + i));
    for (; i < n; i++) tw_act_put(y + i, from[i]);
}

void TW_CPU(to_f32)(float *to, const void *from, size_t n) {
    const tw_act *x = from;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_vec_store(to + i, tw_act_load(x + i));
    for (; i < n; i++) to[i] = tw_act_get(x + i);
}
