/* vec8.cuh - loads and stores of eight elements of either type as floats, for kernels that stream
 * through memory. */
#ifndef TW_KERNELS_CUDA_VEC8_CUH
#define TW_KERNELS_CUDA_VEC8_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/type.h"

enum { TW_VEC8 = 8 };

/* p is on a multiple of 16 bytes. */
template <typename T> static __device__ __forceinline__ void tw_vec8_load(float v[8], const T *p) {
    enum { COUNT = tw_pack<T>::COUNT };
    for (int i = 0; i < TW_VEC8; i += COUNT) {
        const tw_pack<T> pack = tw_pack<T>::load(p + i);
        for (int j = 0; j < COUNT; j++) v[i + j] = pack.get(j);
    }
}

template <typename T> static __device__ __forceinline__ void tw_vec8_store(T *p, const float v[8]) {
    enum { COUNT = tw_pack<T>::COUNT };
    for (int i = 0; i < TW_VEC8; i += COUNT) {
        tw_pack<T> pack;
        for (int j = 0; j < COUNT; j++) pack.set(j, v[i + j]);
        pack.store(p + i);
    }
}

/* ---- host ---- */

/* True if rows of an array at p, `stride` elements apart, can be accessed in groups of eight. True
 * for NULL. */
static inline bool tw_is_octets(const void *p, size_t stride = 0) {
    return (uintptr_t)p % 16 == 0 && stride % TW_VEC8 == 0;
}

enum : unsigned { TW_STREAM_THREADS = 256, TW_STREAM_BLOCKS = 2048 };

/* Number of blocks of TW_STREAM_THREADS for `pieces` of work; each thread takes every n-th piece.
 */
static inline unsigned tw_stream_blocks(size_t pieces) {
    const size_t wanted = (pieces + TW_STREAM_THREADS - 1) / TW_STREAM_THREADS;
    return wanted < TW_STREAM_BLOCKS ? (unsigned)wanted : TW_STREAM_BLOCKS;
}

/* TW_BY_TYPE(type, T, statement): the statement with T as float or tw_bf16. */
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
