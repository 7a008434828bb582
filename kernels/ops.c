/* ops.c - which table of operations this processor can run. */
#include "kernels/ops.h"

#include "kernels/ref.h"

extern const struct tw_ops tw_cpu_base_table;
#ifdef TW_KERNELS_X86
extern const struct tw_ops tw_cpu_avx2_table;
extern const struct tw_ops tw_cpu_avx512_table;
#endif

enum { ATTENTION_ROWS = 32, VECTOR_FLOATS_MAX = 16 };

size_t tw_attention_scratch(const struct tw_attention *shape) {
    const size_t context =
        (shape->context + VECTOR_FLOATS_MAX - 1u) / VECTOR_FLOATS_MAX * VECTOR_FLOATS_MAX;
    const size_t head = shape->width / shape->heads;
    /* two blocks of scores, k and v transposed */
    return 2 * ATTENTION_ROWS * context + 2 * head * context;
}

const struct tw_ops *tw_ops_ref(void) {
    static const struct tw_ops ref = {
        .name = "reference",
        .bias_fill = tw_bias_fill_ref,
        .bias_backward = tw_bias_backward_ref,
        .layernorm = tw_layernorm_ref,
        .layernorm_backward = tw_layernorm_backward_ref,
        .gelu = tw_gelu_ref,
        .gelu_backward = tw_gelu_backward_ref,
        .attention = tw_attention_ref,
        .attention_backward = tw_attention_backward_ref,
        .cross_entropy = tw_cross_entropy_ref,
        .adamw = tw_adamw_ref,
    };
    return &ref;
}

#ifdef TW_KERNELS_X86
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}
#endif

const struct tw_ops *tw_ops_cpu(uint32_t i) {
    const struct tw_ops *found[3];
    uint32_t count = 0;
#ifdef TW_KERNELS_X86
    if (has_avx512()) found[count++] = &tw_cpu_avx512_table;
    if (has_avx2()) found[count++] = &tw_cpu_avx2_table;
#endif
    found[count++] = &tw_cpu_base_table;
    return i < count ? found[i] : NULL;
}
