/* act.h - tw_act, the type of one activation in memory, for files that are compiled once per type
 * (with or without TW_ACT_BF16). Such files name no activation type themselves. */
#ifndef TW_KERNELS_ACT_H
#define TW_KERNELS_ACT_H

#include <stddef.h>

#include "kernels/type.h"

#ifdef TW_ACT_BF16
typedef uint16_t tw_act;
#define TW_ACT_TYPE TW_BF16
#define TW_ACT_NAME(isa, op) tw_##isa##_bf16_##op

static inline float tw_act_get(const tw_act *from) {
    return tw_bf16_to_f32(*from);
}

static inline void tw_act_put(tw_act *to, float value) {
    *to = tw_bf16_from_f32(value);
}
#else
typedef float tw_act;
#define TW_ACT_TYPE TW_F32
#define TW_ACT_NAME(isa, op) tw_##isa##_f32_##op

static inline float tw_act_get(const tw_act *from) {
    return *from;
}

static inline void tw_act_put(tw_act *to, float value) {
    *to = value;
}
#endif

#endif
