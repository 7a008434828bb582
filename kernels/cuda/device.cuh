/* device.cuh - the header of all kernels: CUDA, or its emulation on a CPU (TW_CUDA_EMULATED), and
 * helpers for both. Sources launch kernels only with TW_LAUNCH and keep no state on the device.
 *
 * Sums have a fixed order, so the same inputs give the same bits on one device. Kernels used in
 * training must not add floats atomically. */
#ifndef TW_KERNELS_CUDA_DEVICE_CUH
#define TW_KERNELS_CUDA_DEVICE_CUH

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef TW_CUDA_EMULATED
#include "tests/emulated/emulated.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

/* Stores the first launch that CUDA refused; tw_cuda_finish() reports it (runtime.cu). */
void tw_cuda_launch_failed(const char *kernel, cudaError_t status);

/* TW_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...) queues a kernel. grid and
 * block are numbers or dim3. A kernel name with commas needs parentheses: ((k<float, 64>), ...). */
#define TW_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    do {                                                                                           \
        const size_t tw_launch_bytes = (shared_bytes);                                             \
        cudaError_t tw_launch_status = cudaSuccess;                                                \
        /* Static arrays count towards the shared-memory limit too, so it is raised early. */      \
        if (tw_launch_bytes > 40u << 10) {                                                         \
            tw_launch_status = cudaFuncSetAttribute(                                               \
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)tw_launch_bytes);        \
        }                                                                                          \
        if (tw_launch_status == cudaSuccess) {                                                     \
            kernel<<<grid, block, tw_launch_bytes, (cudaStream_t)(stream)>>>(__VA_ARGS__);         \
            tw_launch_status = cudaGetLastError();                                                 \
        }                                                                                          \
        if (tw_launch_status != cudaSuccess) tw_cuda_launch_failed(#kernel, tw_launch_status);     \
    } while (0)

/* TW_SHARED(float, tile, 32 * 33) declares an array in the block's shared memory, uninitialised. */
#define TW_SHARED(type, name, count) __shared__ type name[count]
/* Declares the array of the launch's shared_bytes, aligned to 128 bytes; one per kernel. */
#define TW_SHARED_DYNAMIC(type, name)                                                              \
    extern __shared__ __align__(128) unsigned char tw_shared_dynamic[];                            \
    type *const name = reinterpret_cast<type *>(tw_shared_dynamic)
#endif

#define TW_ALL_LANES 0xffffffffu

/* ---- activations: float, or bf16 of kernels/type.h ---- */

struct tw_bf16 {
    uint16_t bits;
};

/* Returns the same bits as tw_bf16_from_f32(), also for a NaN. */
static __device__ __forceinline__ tw_bf16 tw_bf16_of(float x) {
    const uint32_t bits = __float_as_uint(x);
    if (x != x) return tw_bf16{(uint16_t)(bits >> 16 | 0x40u)};
    return tw_bf16{(uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
static __device__ __forceinline__ float tw_f32_of(tw_bf16 x) {
    return __uint_as_float((uint32_t)x.bits << 16);
}
static __device__ __forceinline__ float tw_f32_of(float x) {
    return x;
}

static __device__ __forceinline__ float tw_load_f32(const float *p, size_t i) {
    return p[i];
}
static __device__ __forceinline__ float tw_load_f32(const tw_bf16 *p, size_t i) {
    return tw_f32_of(p[i]);
}
static __device__ __forceinline__ void tw_store_f32(float *p, size_t i, float value) {
    p[i] = value;
}
static __device__ __forceinline__ void tw_store_f32(tw_bf16 *p, size_t i, float value) {
    p[i] = tw_bf16_of(value);
}

/* Returns two bf16 in one register, `low` in the lower half: an operand of tw_mma_bf16(). The bits
 * are the same as of tw_bf16_of(), except for NaN, whose payload differs on a GPU. */
static __device__ __forceinline__ uint32_t tw_bf16_pair(float low, float high) {
#ifdef TW_CUDA_EMULATED
    return (uint32_t)tw_bf16_of(low).bits | (uint32_t)tw_bf16_of(high).bits << 16;
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/* Accesses memory in units of 16 bytes; addresses must be multiples of 16. */
template <typename T> struct alignas(16) tw_pack {
    enum { COUNT = 16 / sizeof(T) };
    T v[COUNT];

    static __device__ __forceinline__ tw_pack load(const T *p) {
        tw_pack pack;
        memcpy(&pack, __builtin_assume_aligned(p, 16), sizeof(pack)); /* one load */
        return pack;
    }
    __device__ __forceinline__ void store(T *p) const {
        memcpy(__builtin_assume_aligned(p, 16), this, sizeof(*this));
    }
    __device__ __forceinline__ float get(int i) const {
        return tw_load_f32(v, (size_t)i);
    }
    __device__ __forceinline__ void set(int i, float value) {
        tw_store_f32(v, (size_t)i, value);
    }
};

/* ---- sums and maxima of all lanes of a warp, and of all threads of a block ---- */

/* Every lane gets the same bits. */
template <typename T> static __device__ __forceinline__ T tw_warp_sum(T x) {
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(TW_ALL_LANES, x, by);
    return x;
}
/* NaN if a or b is. */
static __device__ __forceinline__ float tw_max_or_nan(float a, float b) {
    return a > b || a != a ? a : b;
}
static __device__ __forceinline__ float tw_warp_max(float x) {
    for (int by = 16; by > 0; by /= 2) {
        x = tw_max_or_nan(x, __shfl_xor_sync(TW_ALL_LANES, x, by));
    }
    return x;
}

/* For blocks with whole warps in x only: every thread gets the same bits. All threads of the block
 * must call; each function begins and ends with a barrier. */
template <typename T> static __device__ __forceinline__ T tw_block_sum(T x) {
    TW_SHARED(T, sums, 32);
    const unsigned warps = blockDim.x / 32;
    x = tw_warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = sums[0];
    for (unsigned i = 1; i < warps; i++) sum += sums[i];
    return sum;
}
static __device__ __forceinline__ float tw_block_max(float x) {
    TW_SHARED(float, maxima, 32);
    const unsigned warps = blockDim.x / 32;
    x = tw_warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = x;
    __syncthreads();
    float most = maxima[0];
    for (unsigned i = 1; i < warps; i++) most = tw_max_or_nan(most, maxima[i]);
    return most;
}

/* ---- tensor cores and asynchronous copies (sm_80 and newer) ---- */

#ifdef TW_CUDA_EMULATED
#define TW_HERE_AS_DEFAULT , TW_HERE
#else
#define TW_HERE_AS_DEFAULT
#endif

/* d (16, 8) += a (16, 16) * b (16, 8), distributed over a warp as in PTX's mma.m16n8k16. With row =
 * lane / 4 and pair = 2 * (lane % 4), registers hold these elements, the lower half first:
 *     a[0] = A[row][pair, pair + 1], a[1] = A[row + 8][..], a[2] = A[row][pair + 8, pair + 9],
 *     a[3] = A[row + 8][pair + 8, ..];   b[0] = B[pair, pair + 1][row], b[1] = B[pair + 8, ..][row]
 *     d[0], d[1] = D[row][pair, pair + 1],   d[2], d[3] = D[row + 8][pair, pair + 1] */
static __device__ __forceinline__ void tw_mma_bf16(float d[4], const uint32_t a[4],
                                                   const uint32_t b[2] TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_mma_bf16(d, a, b, file, line);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#ifndef TW_CUDA_EMULATED
static __device__ __forceinline__ uint32_t tw_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}
#endif

/* Loads four matrices (8, 8) of bf16 from shared memory. Lane l passes the address of row l % 8 of
 * matrix l / 8: 16 bytes, aligned to 16. In r[i] it gets the elements [lane / 4][2 * (lane % 4), +
 * 1] of matrix i; transposed: [2 * (lane % 4), + 1][lane / 4]. */
static __device__ __forceinline__ void tw_ldmatrix_x4(uint32_t r[4],
                                                      const void *shared_row TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_ldmatrix_x4(r, shared_row, false, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tw_shared_address(shared_row))
                 : "memory");
#endif
}
static __device__ __forceinline__ void
tw_ldmatrix_x4_trans(uint32_t r[4], const void *shared_row TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_ldmatrix_x4(r, shared_row, true, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(tw_shared_address(shared_row))
                 : "memory");
#endif
}

/* Copies 16 bytes from global to shared memory, both aligned to 16 bytes. If !is_valid, writes
 * zeros without reading global memory. The copying thread sees the data after tw_copy_wait, other
 * threads of the block after a further __syncthreads(). */
static __device__ __forceinline__ void tw_copy_async16(void *shared, const void *global,
                                                       bool is_valid) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_copy_async16(shared, global, is_valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tw_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(is_valid ? 16 : 0)
                 : "memory");
#endif
}
/* Groups the thread's copies since its last commit. */
static __device__ __forceinline__ void tw_copy_commit() {
#ifdef TW_CUDA_EMULATED
    tw_emulated_copy_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most the N newest of the thread's groups are in flight. */
template <int N> static __device__ __forceinline__ void tw_copy_wait() {
#ifdef TW_CUDA_EMULATED
    tw_emulated_copy_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#undef TW_HERE_AS_DEFAULT

#endif
