#include "kernels/processor.h"

#ifdef TW_KERNELS_X86
bool tw_cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool tw_cpu_has_avx512(void) {
    return tw_cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

bool tw_cpu_has_avx512_vbmi2(void) {
    return tw_cpu_has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vbmi2");
}
#else
bool tw_cpu_has_avx2(void) {
    return false;
}

bool tw_cpu_has_avx512(void) {
    return false;
}

bool tw_cpu_has_avx512_vbmi2(void) {
    return false;
}
#endif
