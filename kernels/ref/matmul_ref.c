/* matmul_ref.c - the specification of matrix products: by their definition, in float64, slow. The
 * packed form is bf16, transposed (columns, k), padded with zeros in both dimensions. */
#include <stdlib.h>
#include <string.h>

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

static size_t padded_k(uint32_t k) {
    return ((size_t)k + TW_MATMUL_PAD_K - 1) / TW_MATMUL_PAD_K * TW_MATMUL_PAD_K;
}

static size_t packed_bytes(uint32_t k, uint32_t columns, enum tw_type type) {
    const size_t padded = ((size_t)columns + TW_MATMUL_PAD_N - 1) / TW_MATMUL_PAD_N;
    if (type == TW_F32) return 0;
    return padded_k(k) * padded * TW_MATMUL_PAD_N * tw_type_bytes(type);
}

static void pack(struct tw_multiplier *multiplier, void *packed,
                 const struct tw_weight_panel *panel) {
    const size_t stride = padded_k(panel->k), master_stride = panel->master_stride;
    uint16_t *to = packed;
    (void)multiplier;
    memset(packed, 0, packed_bytes(panel->k, panel->columns, panel->type));
    for (size_t j = 0; j < panel->columns; j++) {
        for (size_t l = 0; l < panel->k; l++) {
            const size_t at =
                panel->form == TW_MATMUL_NT ? j * master_stride + l : l * master_stride + j;
            to[j * stride + l] = tw_bf16_from_f32(panel->master[at]);
        }
    }
}

static void multiply_packed(struct tw_multiplier *multiplier, void *y, const void *a,
                            const void *packed, const struct tw_matmul *shape) {
    struct tw_matmul plain = *shape;
    plain.form = TW_MATMUL_NT;
    plain.b_stride = padded_k(shape->k);
    multiply(multiplier, y, a, packed, &plain);
}

const struct tw_matmul_library tw_matmul_ref = {.name = "reference",
                                                .has = has,
                                                .create = create,
                                                .destroy = destroy,
                                                .multiply = multiply,
                                                .packed_bytes = packed_bytes,
                                                .pack = pack,
                                                .multiply_packed = multiply_packed};
