/* table.c - the table of operations for one instruction set and activation type. */
#include "kernels/cpu/isa.h"

const struct tw_ops TW_CPU(table) = {
    .name = TW_CPU_NAME,
    .type = TW_ACT_TYPE,
    .type_bytes = sizeof(tw_act),
    .norm = TW_CPU(norm),
    .norm_backward = TW_CPU(norm_backward),
    .add = TW_CPU(add),
    .bias = TW_CPU(bias),
    .bias_backward = TW_CPU(bias_backward),
    .rope = TW_CPU(rope),
    .gelu = TW_CPU(gelu),
    .gelu_backward = TW_CPU(gelu_backward),
    .swiglu = TW_CPU(swiglu),
    .swiglu_backward = TW_CPU(swiglu_backward),
    .attention = TW_CPU(attention),
    .attention_backward = TW_CPU(attention_backward),
    .cross_entropy = TW_CPU(cross_entropy),
    .embedding = TW_CPU(embedding),
    .embedding_backward = TW_CPU(embedding_backward),
    .adamw = TW_CPU(adamw),
    .sum_squares = TW_CPU(sum_squares),
    .from_f32 = TW_CPU(from_f32),
    .to_f32 = TW_CPU(to_f32),
};
