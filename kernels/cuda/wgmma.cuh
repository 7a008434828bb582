/* wgmma.cuh - matrix products of a warpgroup on Hopper's tensor cores: PTX's wgmma.mma_async, whose
 * factors are read from shared memory. sm_90a only. A warpgroup is four warps, the first with an
 * index that is a multiple of four.
 *
 * A factor is stored in panels: 64 columns of all ROWS rows, 128 bytes per row. Row r of a panel
 * stores its chunk c of 16 bytes at c ^ (r % 8), which is the hardware's 128-byte swizzle, if the
 * panel begins at a multiple of 1024 bytes.
 *
 * The 64 rows of a result are distributed over the warps as in mma.m16n8k16. Warp w holds rows 16 *
 * w to 16 * w + 15. Of a block of 16 by 8, lane l holds rows l / 4 and l / 4 + 8, columns 2 * (l %
 * 4) and the next. Products are asynchronous: between tw_wg_begin() and tw_wg_wait() no thread may
 * touch their results, or the registers of a left factor. */
#ifndef TW_KERNELS_CUDA_WGMMA_CUH
#define TW_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/device.cuh"

enum : uint32_t {
    TW_WG_THREADS = 128,
    TW_WG_ROWS = 64,
    TW_PANEL_COLUMNS = 64,
    TW_PANEL_ALIGN = 1024, /* bytes; also the size of eight rows of a panel */
};

#ifdef TW_CUDA_EMULATED
#define TW_HERE_AS_DEFAULT , TW_HERE
#define TW_HERE_PASSED , file, line
#else
#define TW_HERE_AS_DEFAULT
#define TW_HERE_PASSED
#endif

template <int ROWS>
static __device__ __forceinline__ tw_bf16 *tw_panel_at(tw_bf16 *tile, uint32_t row,
                                                       uint32_t chunk) {
    return tile + (chunk / 8 * ROWS + row) * TW_PANEL_COLUMNS + (chunk % 8 ^ row % 8) * 8;
}

/* A factor of one instruction, sixteen elements deep. */
struct tw_wg_factor {
    const tw_bf16 *at;
    uint32_t panel_bytes;
    bool is_transposed; /* true if depth runs over rows of the tile instead of columns */
};

/* Returns the factor made of the tile's rows from `row` on, columns [16 * step, 16 * step + 16). */
template <int ROWS>
static __device__ __forceinline__ tw_wg_factor tw_wg_rows(const tw_bf16 *tile, uint32_t row,
                                                          uint32_t step) {
    return {tile + (step / 4 * ROWS + row) * TW_PANEL_COLUMNS + step % 4 * 16,
            ROWS * TW_PANEL_COLUMNS * (uint32_t)sizeof(tw_bf16), false};
}

/* Returns the factor made of all columns of the tile, rows [16 * step, 16 * step + 16). */
template <int ROWS>
static __device__ __forceinline__ tw_wg_factor tw_wg_columns(const tw_bf16 *tile, uint32_t step) {
    return {tile + step * 16 * TW_PANEL_COLUMNS,
            ROWS * TW_PANEL_COLUMNS * (uint32_t)sizeof(tw_bf16), true};
}

#ifndef TW_CUDA_EMULATED
/* Returns PTX's matrix descriptor: address, bytes from panel to panel, bytes from eight rows to the
 * next eight, and the 128-byte swizzle. All but the last are in units of 16 bytes. */
static __device__ __forceinline__ uint64_t tw_wg_descriptor(const tw_wg_factor &factor) {
    const uint64_t address = (tw_shared_address(factor.at) & 0x3ffffu) >> 4;
    return address | (uint64_t)(factor.panel_bytes >> 4) << 16 |
           (uint64_t)(TW_PANEL_ALIGN >> 4) << 32 | (uint64_t)1 << 62;
}
#endif

/* Call before the first product, and after registers of results or factors were touched. */
static __device__ __forceinline__ void tw_wg_begin() {
#ifndef TW_CUDA_EMULATED
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/* Groups the products since the last commit. */
static __device__ __forceinline__ void tw_wg_commit() {
#ifndef TW_CUDA_EMULATED
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Waits until at most the N newest groups are in flight. */
template <int N> static __device__ __forceinline__ void tw_wg_wait() {
#ifndef TW_CUDA_EMULATED
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/* Makes the thread's own writes to shared memory, including those by tw_copy_async16, visible to
 * products. A barrier must follow, so that products of other threads see them too. */
static __device__ __forceinline__ void tw_wg_show_shared() {
#ifndef TW_CUDA_EMULATED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Keeps the compiler from reading a result before the wait that precedes this call, and from
 * reusing its registers. */
template <int N> static __device__ __forceinline__ void tw_wg_settle(float (&d)[N][4]) {
#ifdef TW_CUDA_EMULATED
    (void)d;
#else
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(d[n][i])::"memory");
    }
#endif
}
template <int K> static __device__ __forceinline__ void tw_wg_settle(uint32_t (&a)[K][4]) {
#ifdef TW_CUDA_EMULATED
    (void)a;
#else
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+r"(a[k][i])::"memory");
    }
#endif
}

#define TW_WG_D4(how, d, n) how(d[n][0]), how(d[n][1]), how(d[n][2]), how(d[n][3])
#define TW_WG_D16(how, d, n)                                                                       \
    TW_WG_D4(how, d, n), TW_WG_D4(how, d, n + 1), TW_WG_D4(how, d, n + 2), TW_WG_D4(how, d, n + 3)
#define TW_WG_D32(how, d, n) TW_WG_D16(how, d, n), TW_WG_D16(how, d, n + 4)

#define TW_WG_32_REGISTERS                                                                         \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "            \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "

/* Starts d (64, 64) = a (64, 16) * b (64, 16)^T, or d += the same if KEEPS_D. Both factors are rows
 * of tiles. The first product of a sum must only write d, because an old value would have to be
 * moved into place between products. */
template <bool KEEPS_D>
static __device__ __forceinline__ void tw_wg_product_64(float (&d)[8][4], const tw_wg_factor &a,
                                                        const tw_wg_factor &b TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_wgmma({&d[0][0], 64, KEEPS_D}, nullptr, &a, &b, file, line);
#else
    if constexpr (KEEPS_D) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TW_WG_32_REGISTERS
                     "%32, %33, 1, 1, 1, 0, 0;"
                     : TW_WG_D32("+f", d, 0)
                     : "l"(tw_wg_descriptor(a)), "l"(tw_wg_descriptor(b)));
    } else {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TW_WG_32_REGISTERS
                     "%32, %33, 0, 1, 1, 0, 0;"
                     : TW_WG_D32("=f", d, 0)
                     : "l"(tw_wg_descriptor(a)), "l"(tw_wg_descriptor(b)));
    }
#endif
}

/* Starts d (64, 64) = a (64, 16) * the 16 rows b (16, 64), plus d if keeps_d. In each warp, a has
 * the layout of mma.m16n8k16. */
static __device__ __forceinline__ void tw_wg_product_of(float (&d)[8][4], const uint32_t (&a)[4],
                                                        const tw_wg_factor &b,
                                                        bool keeps_d TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_wgmma({&d[0][0], 64, keeps_d}, a, nullptr, &b, file, line);
#else
    asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TW_WG_32_REGISTERS
                 "{%32, %33, %34, %35}, %36, keeps, 1, 1, 1;\n}"
                 : TW_WG_D32("+f", d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tw_wg_descriptor(b)),
                   "r"((int)keeps_d));
#endif
}
/* Like the function above, for d (64, 128) and b (16, 128). */
static __device__ __forceinline__ void tw_wg_product_of(float (&d)[16][4], const uint32_t (&a)[4],
                                                        const tw_wg_factor &b,
                                                        bool keeps_d TW_HERE_AS_DEFAULT) {
#ifdef TW_CUDA_EMULATED
    tw_emulated_wgmma({&d[0][0], 128, keeps_d}, a, nullptr, &b, file, line);
#else
    asm volatile("{\n.reg .pred keeps;\nsetp.ne.b32 keeps, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
                 "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
                 "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, keeps, 1, 1, 1;\n}"
                 : TW_WG_D32("+f", d, 0), TW_WG_D32("+f", d, 8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tw_wg_descriptor(b)),
                   "r"((int)keeps_d));
#endif
}

#undef TW_WG_D4
#undef TW_WG_D16
#undef TW_WG_D32
#undef TW_WG_32_REGISTERS
#undef TW_HERE_AS_DEFAULT
#undef TW_HERE_PASSED

#endif
