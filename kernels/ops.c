/* ops.c - the operations of a decoder: tables that this processor can run, its best type of
 * activation, and the arrays of attention passes. */
#include "kernels/ops.h"

#ifdef TW_KERNELS_X86
#include <cpuid.h>
#include <stdatomic.h>
#endif

/* ---- the processor -------------------------------------------------------------------------- */

#ifdef TW_KERNELS_X86

/* Checks the features of x86-64-v3 that compilers use but clang 14 has no names for. On processors
 * without LZCNT, its opcode runs as another instruction, with wrong results. */
static bool has_more(void) {
    const unsigned more = bit_MOVBE | bit_F16C;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & more) != more) return false;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT) != 0;
}

/* Caches the answer, because codecs ask for every block and CPUID takes 5 us (microseconds) in a
 * virtual machine. */
static bool has_more_kept(void) {
    enum { UNKNOWN, YES, NO };
    static _Atomic int kept = UNKNOWN;
    int has = atomic_load_explicit(&kept, memory_order_relaxed);
    if (has == UNKNOWN) {
        has = has_more() ? YES : NO;
        atomic_store_explicit(&kept, has, memory_order_relaxed);
    }
    return has == YES;
}

bool tw_cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_more_kept();
}

bool tw_cpu_has_avx512(void) {
    return tw_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

#else
bool tw_cpu_has_avx2(void) {
    return false;
}

bool tw_cpu_has_avx512(void) {
    return false;
}

#endif

/* ---- tables --------------------------------------------------------------------------------- */

extern const struct tw_ops tw_ref_f32_table, tw_ref_bf16_table;
extern const struct tw_ops tw_base_f32_table, tw_base_bf16_table;
#ifdef TW_KERNELS_X86
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

/* ---- attention ------------------------------------------------------------------------------ */

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The fast tables need up to five arrays of all keys, and ten arrays of 64 rows of the head or of
 * scores. The reference needs two floats per query. */
size_t tw_attention_scratch(const struct tw_attention *shape) {
    const size_t width = round_up(shape->head_size, 16), keys = round_up(shape->keys, 64);
    const size_t fast = 5 * keys * width + 10 * 64 * (width + 64) + 64;
    const size_t plain = 2 * (size_t)shape->group * shape->queries;
    return fast > plain ? fast : plain;
}

/* Returns the address of row `begin`. NULL stands for an array that the pass does not use, and
 * stays NULL. */
static void *row(const void *x, size_t begin, size_t stride, uint32_t type_bytes) {
    return x == NULL ? NULL : (uint8_t *)(uintptr_t)x + begin * stride * type_bytes;
}

struct tw_attention_arrays tw_attention_document(const struct tw_attention *shape,
                                                 const struct tw_attention_arrays *window,
                                                 uint32_t type_bytes, uint32_t begin) {
    const size_t q = shape->q_stride, kv = shape->kv_stride, out = shape->out_stride;
    return (struct tw_attention_arrays){
        .q = row(window->q, begin, q, type_bytes),
        .k = row(window->k, begin, kv, type_bytes),
        .v = row(window->v, begin, kv, type_bytes),
        .out = row(window->out, begin, out, type_bytes),
        .lse = row(window->lse, begin, shape->group, sizeof(float)),
        .scratch = window->scratch,
        .dout = row(window->dout, begin, out, type_bytes),
        .dq = row(window->dq, begin, q, type_bytes),
        .dk = row(window->dk, begin, kv, type_bytes),
        .dv = row(window->dv, begin, kv, type_bytes),
    };
}
