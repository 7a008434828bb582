/* swiglu_ref.c - SwiGLU: silu(gate) * up. */
#include <math.h>

#include "kernels/ref/ref.h"

void TW_REF(swiglu)(void *y, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const double gate = tw_ref_get(x, 2 * r * n + i);
            const double up = tw_ref_get(x, (2 * r + 1) * n + i);
            tw_ref_put(y, r * n + i, gate / (1.0 + exp(-gate)) * up);
        }
    }
}

/* With s = 1 / (1 + e^-gate): silu = gate * s, silu' = s * (1 + gate * (1 - s)). */
void TW_REF(swiglu_backward)(void *dx, const void *dy, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const size_t at_gate = 2 * r * n + i, at_up = at_gate + n;
            const double gate = tw_ref_get(x, at_gate), up = tw_ref_get(x, at_up);
            const double s = 1.0 / (1.0 + exp(-gate)), d = tw_ref_get(dy, r * n + i);
            tw_ref_put(dx, at_gate, d * up * s * (1.0 + gate * (1.0 - s)));
            tw_ref_put(dx, at_up, d * gate * s);
        }
    }
}
