#include "kernels/processor.h"

#ifdef TW_KERNELS_X86
#include <cpuid.h>
#include <stdatomic.h>

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
