/* ref.h - the reference operations, compiled once per type of activation; callers use tw_ops_ref().
 * They compute in double and round on storing. */
#ifndef TW_KERNELS_REF_REF_H
#define TW_KERNELS_REF_REF_H

#include "kernels/act.h"
#include "kernels/ops.h"

/* names such as tw_ref_f32_gelu and tw_ref_bf16_gelu */
#define TW_REF(op) TW_ACT_NAME(ref, op)

/* Declares a function of the type of member `op` of struct tw_ops. */
#define TW_REF_DECLARE(op) __typeof__(*((const struct tw_ops *)0)->op) TW_REF(op)

TW_REF_DECLARE(norm);
TW_REF_DECLARE(norm_backward);
TW_REF_DECLARE(add);
TW_REF_DECLARE(bias);
TW_REF_DECLARE(bias_backward);
TW_REF_DECLARE(rope);
TW_REF_DECLARE(gelu);
TW_REF_DECLARE(gelu_backward);
TW_REF_DECLARE(swiglu);
TW_REF_DECLARE(swiglu_backward);
TW_REF_DECLARE(attention);
TW_REF_DECLARE(attention_backward);
TW_REF_DECLARE(cross_entropy);
TW_REF_DECLARE(embedding);
TW_REF_DECLARE(embedding_backward);
TW_REF_DECLARE(adamw);
TW_REF_DECLARE(sum_squares);
TW_REF_DECLARE(from_f32);
TW_REF_DECLARE(to_f32);
extern const struct tw_ops TW_REF(table);

/* Reads x[i] as a double, or stores it rounded. */
static inline double tw_ref_get(const void *x, size_t i) {
    return (double)tw_act_get((const tw_act *)x + i);
}

static inline void tw_ref_put(void *x, size_t i, double value) {
    tw_act_put((tw_act *)x + i, (float)value);
}

#endif
