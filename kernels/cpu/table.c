/* table.c - the operations of one instruction set. */
#include "kernels/cpu/isa.h"

const struct tw_ops TW_CPU(table) = {
    .name = TW_CPU_NAME,
    .bias_fill = TW_CPU(bias_fill),
    .bias_backward = TW_CPU(bias_backward),
    .layernorm = TW_CPU(layernorm),
    .layernorm_backward = TW_CPU(layernorm_backward),
    .gelu = TW_CPU(gelu),
    .gelu_backward = TW_CPU(gelu_backward),
    .attention = TW_CPU(attention),
    .attention_backward = TW_CPU(attention_backward),
    .cross_entropy = TW_CPU(cross_entropy),
    .adamw = TW_CPU(adamw),
};
