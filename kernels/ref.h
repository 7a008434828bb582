/* ref.h - prototypes of the reference operations; callers use tw_ops_ref(). */
#ifndef TW_KERNELS_REF_H
#define TW_KERNELS_REF_H

#include "kernels/ops.h"

/* A function with the type of that member of struct tw_ops. */
#define TW_REF(op) __typeof__(*((const struct tw_ops *)0)->op) tw_##op##_ref

TW_REF(bias_fill);
TW_REF(bias_backward);
TW_REF(layernorm);
TW_REF(layernorm_backward);
TW_REF(gelu);
TW_REF(gelu_backward);
TW_REF(attention);
TW_REF(attention_backward);
TW_REF(cross_entropy);
TW_REF(adamw);

#endif
