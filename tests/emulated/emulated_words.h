/* emulated_words.h - parts of CUDA that involve only one thread: types, intrinsics, atomics (blocks
 * and threads of emulated.h run one after the other). C++, tests only; device.cuh includes it. */
#ifndef TW_TESTS_EMULATED_EMULATED_WORDS_H
#define TW_TESTS_EMULATED_EMULATED_WORDS_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {
    }
};

#define TW_EMULATED_VECTORS(type, name, bytes)                                                     \
    struct alignas(2 * bytes) name##2 {                                                            \
        type x, y;                                                                                 \
    };                                                                                             \
    struct alignas(4 * bytes) name##4 {                                                            \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(type x, type y) {                                         \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                         \
        return name##4 {x, y, z, w};                                                               \
    }
TW_EMULATED_VECTORS(float, float, 4)
TW_EMULATED_VECTORS(int, int, 4)
TW_EMULATED_VECTORS(unsigned, uint, 4)
#undef TW_EMULATED_VECTORS

struct double2 {
    alignas(16) double x;
    double y;
};

#define TW_EMULATED_LESS(type)                                                                     \
    static inline type min(type a, type b) {                                                       \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b) {                                                       \
        return a < b ? b : a;                                                                      \
    }
TW_EMULATED_LESS(int)
TW_EMULATED_LESS(unsigned)
TW_EMULATED_LESS(long)
TW_EMULATED_LESS(unsigned long)
TW_EMULATED_LESS(long long)
TW_EMULATED_LESS(unsigned long long)
#undef TW_EMULATED_LESS
/* Like fmin and fmax: if one argument is a NaN, returns the other. */
static inline float min(float a, float b) {
    return fminf(a, b);
}
static inline float max(float a, float b) {
    return fmaxf(a, b);
}
static inline double min(double a, double b) {
    return fmin(a, b);
}
static inline double max(double a, double b) {
    return fmax(a, b);
}

/* Compiled without contraction to FMA: every operation is rounded separately. */
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
static inline float __frcp_rn(float a) {
    return 1.0f / a;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dsub_rn(double a, double b) {
    return a - b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}
static inline double __dsqrt_rn(double a) {
    return sqrt(a);
}
static inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}
static inline float __double2float_rn(double a) {
    return (float)a;
}
static inline int __float2int_rn(float a) {
    return (int)nearbyintf(a);
}
static inline int __float2int_rz(float a) {
    return (int)a;
}
static inline float __int2float_rn(int a) {
    return (float)a;
}

/* These are approximations on a device, and accurate in the emulation. (The C library declares
 * functions of the first three names.) */
#define __expf expf
#define __logf logf
#define __powf powf
static inline float __fdividef(float a, float b) {
    return a / b;
}
static inline float rsqrtf(float a) {
    return 1.0f / sqrtf(a);
}
static inline double rsqrt(double a) {
    return 1.0 / sqrt(a);
}

static inline uint32_t __float_as_uint(float a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof(bits));
    return bits;
}
static inline float __uint_as_float(uint32_t bits) {
    float a;
    memcpy(&a, &bits, sizeof(a));
    return a;
}
static inline int __float_as_int(float a) {
    return (int)__float_as_uint(a);
}
static inline float __int_as_float(int bits) {
    return __uint_as_float((uint32_t)bits);
}

static inline int __popc(unsigned a) {
    return __builtin_popcount(a);
}
static inline int __popcll(unsigned long long a) {
    return __builtin_popcountll(a);
}
static inline int __clz(int a) {
    return a == 0 ? 32 : __builtin_clz((unsigned)a);
}
static inline int __clzll(long long a) {
    return a == 0 ? 64 : __builtin_clzll((unsigned long long)a);
}
static inline int __ffs(int a) {
    return __builtin_ffs(a);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}

template <typename T> static inline T __ldg(const T *from) {
    return *from;
}
template <typename T> static inline T __ldcs(const T *from) {
    return *from;
}
template <typename T> static inline void __stcs(T *to, T value) {
    *to = value;
}
static inline void __threadfence() {
}
static inline void __threadfence_block() {
}

#define TW_EMULATED_ATOMICS(type)                                                                  \
    static inline type atomicAdd(type *at, type value) {                                           \
        const type before = *at;                                                                   \
        *at = before + value;                                                                      \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicMax(type *at, type value) {                                           \
        const type before = *at;                                                                   \
        *at = max(before, value);                                                                  \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicMin(type *at, type value) {                                           \
        const type before = *at;                                                                   \
        *at = min(before, value);                                                                  \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicOr(type *at, type value) {                                            \
        const type before = *at;                                                                   \
        *at = before | value;                                                                      \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicExch(type *at, type value) {                                          \
        const type before = *at;                                                                   \
        *at = value;                                                                               \
        return before;                                                                             \
    }                                                                                              \
    static inline type atomicCAS(type *at, type expected, type value) {                            \
        const type before = *at;                                                                   \
        if (before == expected) *at = value;                                                       \
        return before;                                                                             \
    }
TW_EMULATED_ATOMICS(int)
TW_EMULATED_ATOMICS(unsigned)
TW_EMULATED_ATOMICS(unsigned long long)
#undef TW_EMULATED_ATOMICS
static inline float atomicAdd(float *at, float value) {
    const float before = *at;
    *at = before + value;
    return before;
}

#endif
