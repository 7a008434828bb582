/* matmul_ref.c - the matrix products as their indices say, in float64: slow, and the specification.
 * Packed panels are bf16 matrices (k, columns). */
#include <stdlib.h>

#include "kernels/matmul_library.h"

static double element(const void *x, enum tw_type type, size_t i) {
    if (type == TW_F32) return (double)((const float *)x)[i];
    return (double)tw_bf16_to_f32(((const uint16_t *)x)[i]);
}

static void multiply(struct tw_multiplier *multiplier, void *y, const void *a, const void *b,
                     const struct tw_matmul *s) {
    const bool is_tn = s->form == TW_MATMUL_TN, is_nt = s->form == TW_MATMUL_NT;
    const size_t a_row = is_tn ? 1 : s->a_stride, a_column = is_tn ? s->a_stride : 1;
    const size_t b_row = is_nt ? 1 : s->b_stride, b_column = is_nt ? s->b_stride : 1;
    (void)multiplier;
    for (size_t i = 0; i < s->m; i++) {
        for (size_t j = 0; j < s->n; j++) {
            const size_t at = i * s->y_stride + j;
            double sum = s->is_added ? element(y, TW_F32, at) : 0.0;
            for (size_t l = 0; l < s->k; l++) {
                sum += element(a, s->type, i * a_row + l * a_column) *
                       element(b, s->type, l * b_row + j * b_column);
            }
            if (s->y_type == TW_F32)
                ((float *)y)[at] = (float)sum;
            else
                ((uint16_t *)y)[at] = tw_bf16_from_f32((float)sum);
        }
    }
}

static bool has(enum tw_type type) {
    (void)type;
    return true;
}

static struct tw_multiplier *create(void) {
    return calloc(1, sizeof(struct tw_multiplier));
}

static void destroy(struct tw_multiplier *multiplier) {
    free(multiplier);
}

static size_t panel_bytes(const struct tw_weight_panel *panel) {
    if (panel->type == TW_F32) return 0;
    return (size_t)panel->k * panel->columns * tw_type_bytes(panel->type);
}

static void pack(struct tw_multiplier *multiplier, void *packed,
                 const struct tw_weight_panel *panel) {
    const bool is_nt = panel->form == TW_MATMUL_NT;
    uint16_t *to = packed;
    (void)multiplier;
    for (size_t l = 0; l < panel->k; l++) {
        for (size_t j = 0; j < panel->columns; j++) {
            const size_t at = is_nt ? j * panel->master_stride + l : l * panel->master_stride + j;
            to[l * panel->columns + j] = tw_bf16_from_f32(panel->master[at]);
        }
    }
}

static void multiply_packed(struct tw_multiplier *multiplier, void *y, const void *a,
                            const void *packed, const struct tw_matmul *shape) {
    struct tw_matmul plain = *shape;
    plain.b_stride = shape->n;
    multiply(multiplier, y, a, packed, &plain);
}

const struct tw_matmul_library tw_matmul_ref = {.name = "reference",
                                                .has = has,
                                                .create = create,
                                                .destroy = destroy,
                                                .multiply = multiply,
                                                .panel_bytes = panel_bytes,
                                                .pack = pack,
                                                .multiply_packed = multiply_packed};
