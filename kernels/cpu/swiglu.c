/* swiglu.c - SwiGLU: silu(gate) * up, with one exponential per element. */
#include "kernels/cpu/exp.h"

void TW_CPU(swiglu)(void *y, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        const tw_act *gates = (const tw_act *)x + 2 * r * n, *ups = gates + n;
        tw_act *to = (tw_act *)y + r * n;
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            const tw_vec gate = tw_act_load(gates + i);
            tw_act_store(to + i, gate * tw_vec_logistic(gate) * tw_act_load(ups + i));
        }
        if (i == n) continue;
        const tw_vec gate = tw_act_load_part(gates + i, n - i);
        const tw_vec up = tw_act_load_part(ups + i, n - i);
        tw_act_store_part(to + i, gate * tw_vec_logistic(gate) * up, n - i);
    }
}

struct pair {
    tw_vec gate, up;
};

/* With s = 1 / (1 + e^-gate): silu = gate * s, silu' = s * (1 + gate * (1 - s)). */
TW_INLINE struct pair slopes(tw_vec gate, tw_vec up, tw_vec d) {
    const tw_vec s = tw_vec_logistic(gate);
    return (struct pair){.gate = d * up * (s * (1.0f + gate * (1.0f - s))), .up = d * (gate * s)};
}

void TW_CPU(swiglu_backward)(void *dx, const void *dy, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        const tw_act *gates = (const tw_act *)x + 2 * r * n, *ups = gates + n;
        const tw_act *d = (const tw_act *)dy + r * n;
        tw_act *to = (tw_act *)dx + 2 * r * n;
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            const struct pair out =
                slopes(tw_act_load(gates + i), tw_act_load(ups + i), tw_act_load(d + i));
            tw_act_store(to + i, out.gate);
            tw_act_store(to + n + i, out.up);
        }
        if (i == n) continue;
        const size_t left = n - i;
        const struct pair out =
            slopes(tw_act_load_part(gates + i, left), tw_act_load_part(ups + i, left),
                   tw_act_load_part(d + i, left));
        tw_act_store_part(to + i, out.gate, left);
        tw_act_store_part(to + n + i, out.up, left);
    }
}
