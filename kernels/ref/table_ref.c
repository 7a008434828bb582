/* table_ref.c - the table of reference operations for one activation type. */
#include "kernels/ref/ref.h"

const struct tw_ops TW_REF(table) = {
    .name = "reference",
    .type = TW_ACT_TYPE,
    .type_bytes = sizeof(tw_act),
    .norm = TW_REF(norm),
    .norm_backward = TW_REF(norm_backward),
    .add = TW_REF(add),
    .bias = TW_REF(bias),
    .bias_backward = TW_REF(bias_backward),
    .rope = TW_REF(rope),
    .gelu = TW_REF(gelu),
    .gelu_backward = TW_REF(gelu_backward),
    .swiglu = TW_REF(swiglu),
    .swiglu_backward = TW_REF(swiglu_backward),
    .attention = TW_REF(attention),
    .attention_backward = TW_REF(attention_backward),
    .cross_entropy = TW_REF(cross_entropy),
    .embedding = TW_REF(embedding),
    .embedding_backward = TW_REF(embedding_backward),
    .adamw = TW_REF(adamw),
    .sum_squares = TW_REF(sum_squares),
    .from_f32 = TW_REF(from_f32),
    .to_f32 = TW_REF(to_f32),
};
