/* vec8.cuh - loads and stores of eight elements as floats, for kernels that stream through float or
 * bf16 arrays. */
#ifndef TW_KERNELS_CUDA_VEC8_CUH
#define TW_KERNELS_CUDA_VEC8_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/type.h"

enum { TW_VEC8 = 8 };

/* Loads eight elements; p is a multiple of 16 bytes. */
static __device__ __forceinline__ void tw_vec8_load(float v[8], const float *p) {
    const float4 low = reinterpret_cast<const float4 *>(p)[0];
    const float4 high = reinterpret_cast<const float4 *>(p)[1];
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}
static __device__ __forceinline__ void tw_vec8_load(float v[8], const tw_bf16 *p) {
    const uint4 words = *reinterpret_cast<const uint4 *>(p);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 4; i++) {
        v[2 * i] = __uint_as_float(pairs[i] << 16);
        v[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ void tw_vec8_store(float *p, const float v[8]) {
    reinterpret_cast<float4 *>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
static __device__ __forceinline__ void tw_vec8_store(tw_bf16 *p, const float v[8]) {
    *reinterpret_cast<uint4 *>(p) = make_uint4(tw_bf16_pair(v[0], v[1]), tw_bf16_pair(v[2], v[3]),
                                               tw_bf16_pair(v[4], v[5]), tw_bf16_pair(v[6], v[7]));
}

/* ---- host ---- */

/* Returns true if rows of an array at p, `stride` elements apart, can be accessed in groups of
 * eight. Also true for NULL. */
static inline bool tw_is_octets(const void *p, size_t stride = 0) {
    return (uintptr_t)p % 16 == 0 && stride % TW_VEC8 == 0;
}

enum : unsigned { TW_STREAM_THREADS = 256, TW_STREAM_BLOCKS = 2048 };

/* Returns the number of blocks of TW_STREAM_THREADS for `pieces` of work. Each of the n threads
 * processes every n-th piece. */
static inline unsigned tw_stream_blocks(size_t pieces) {
    const size_t wanted = (pieces + TW_STREAM_THREADS - 1) / TW_STREAM_THREADS;
    return wanted < TW_STREAM_BLOCKS ? (unsigned)wanted : TW_STREAM_BLOCKS;
}

/* TW_BY_TYPE(type, T, statement) runs the statement with T as float or tw_bf16. */
#define TW_BY_TYPE(type, T, ...)                                                                   \
    do {                                                                                           \
        if ((type) == TW_BF16) {                                                                   \
            using T = tw_bf16;                                                                     \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            using T = float;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

#endif
