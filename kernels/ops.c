/* ops.c - lists the tables of operations that this processor can run, and chooses its best type. */
#include "kernels/ops.h"

#include "kernels/processor.h"

extern const struct tw_ops tw_ref_f32_table, tw_ref_bf16_table;
extern const struct tw_ops tw_base_f32_table, tw_base_bf16_table;
#ifdef TW_KERNELS_X86
#include <cpuid.h>

extern const struct tw_ops tw_avx2_f32_table, tw_avx2_bf16_table;
#endif
#ifdef TW_KERNELS_AVX512 /* AVX-512 tables are built in addition to AVX2 tables */
extern const struct tw_ops tw_avx512_f32_table, tw_avx512_bf16_table, tw_avx512bf16_bf16_table;
#endif

const struct tw_ops *tw_ops_ref(enum tw_type type) {
    return type == TW_BF16 ? &tw_ref_bf16_table : &tw_ref_f32_table;
}

#ifdef TW_KERNELS_X86
/* Reads bits of CPUID leaf 7 that older compilers do not name. AMX is usable only if the operating
 * system saves the tiles: state components 17 and 18 of XCR0. */
static bool has_amx_bf16(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & 1u << 27) == 0) return false; /* OSXSAVE */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 3u << 17) != 3u << 17) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22) != 0 && (d & 1u << 24) != 0;
}

static bool has_avx512_bf16(void) {
    unsigned a, b, c, d;
    return tw_cpu_has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5) != 0;
}

/* Intel processors run vdpbf16ps at half the rate of float32 products (only their AMX is fast), AMD
 * processors at twice that rate. */
static bool has_fast_avx512_bf16(void) {
    return has_avx512_bf16() && __builtin_cpu_is("amd");
}
#endif

const struct tw_ops *tw_ops_cpu(enum tw_type type, uint32_t i) {
    const bool is_bf16 = type == TW_BF16;
    const struct tw_ops *found[4];
    uint32_t count = 0;
#ifdef TW_KERNELS_AVX512
    if (is_bf16 && has_fast_avx512_bf16()) found[count++] = &tw_avx512bf16_bf16_table;
    if (tw_cpu_has_avx512())
        found[count++] = is_bf16 ? &tw_avx512_bf16_table : &tw_avx512_f32_table;
#endif
#ifdef TW_KERNELS_X86
    if (tw_cpu_has_avx2()) found[count++] = is_bf16 ? &tw_avx2_bf16_table : &tw_avx2_f32_table;
#endif
    found[count++] = is_bf16 ? &tw_base_bf16_table : &tw_base_f32_table;
    return i < count ? found[i] : NULL;
}

enum tw_type tw_ops_best_type(void) {
#ifdef TW_KERNELS_X86
    if (has_amx_bf16()) return TW_BF16;
    if (has_fast_avx512_bf16()) return TW_BF16;
#endif
    return TW_F32;
}
