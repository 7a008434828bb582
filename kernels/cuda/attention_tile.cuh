/* attention_tile.cuh - tiles of bfloat16 in shared memory, and their products on tensor cores.
 *
 * A tile is rows of SIZE elements in chunks of 16 bytes. Row r stores chunk c at position c ^ (r %
 * 8), so that one chunk of eight rows, which ldmatrix reads at once, lies in different banks. A
 * warp works on 16 * M rows of the product. Fragments are those of PTX's mma.m16n8k16: of a block
 * of 16 by 8, lane l holds rows l / 4 and l / 4 + 8, columns 2 * (l % 4) and the next. */
#ifndef TW_KERNELS_CUDA_ATTENTION_TILE_CUH
#define TW_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention_view.cuh"

static __device__ __forceinline__ uint32_t tw_lane() {
    return threadIdx.x % 32;
}

/* 1 / sqrt(size) */
template <int SIZE> constexpr float TW_ATTENTION_SCALE = 0.0f;
template <> constexpr float TW_ATTENTION_SCALE<64> = 0.125f;
template <> constexpr float TW_ATTENTION_SCALE<128> = 0.08838834764831845f;
constexpr float TW_LOG2_E = 1.4426950408889634f;

/* Returns 2^x, or 0 below the least normal number. */
static __device__ __forceinline__ float tw_exp2(float x) {
#ifdef TW_CUDA_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

template <int SIZE>
static __device__ __forceinline__ tw_bf16 *tw_tile_at(tw_bf16 *tile, uint32_t row, uint32_t chunk) {
    return tile + row * SIZE + (chunk ^ row % 8) * 8;
}

template <int SIZE>
static __device__ __forceinline__ const tw_bf16 *tw_tile_at(const tw_bf16 *tile, uint32_t row,
                                                            uint32_t chunk) {
    return tile + row * SIZE + (chunk ^ row % 8) * 8;
}

/* Starts copying rows [begin, begin + ROWS) of `from` into a tile. Rows beyond the last become
 * zeros. */
template <int SIZE, int ROWS, int THREADS>
static __device__ __forceinline__ void
tw_tile_load(tw_bf16 *tile, const tw_attention_rows<const tw_bf16> &from, uint32_t begin) {
    constexpr uint32_t CHUNKS = SIZE / 8;
    static_assert(ROWS * CHUNKS % THREADS == 0, "every thread copies as much");
#pragma unroll
    for (uint32_t i = 0; i < ROWS * CHUNKS / THREADS; i++) {
        const uint32_t at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        const bool is_valid = begin + row < from.count;
        tw_copy_async16(tw_tile_at<SIZE>(tile, row, chunk),
                        from.at(is_valid ? begin + row : 0) + chunk * 8, is_valid);
    }
}

/* Computes d (16 * M, 8 * N) += (rows [row, row + 16 * M) of tile a) * (the 8 * N rows of tile
 * b)^T. */
template <int SIZE, int M, int N>
static __device__ __forceinline__ void
tw_tile_product_transposed(float (&d)[M][N][4], const tw_bf16 *a, uint32_t row, const tw_bf16 *b) {
    const uint32_t lane = tw_lane();
#pragma unroll
    for (uint32_t step = 0; step < SIZE / 16; step++) {
        uint32_t left[M][4];
#pragma unroll
        for (uint32_t m = 0; m < M; m++) {
            tw_ldmatrix_x4(left[m],
                           tw_tile_at<SIZE>(a, row + m * 16 + lane % 16, step * 2 + lane / 16));
        }
#pragma unroll
        for (uint32_t n = 0; n < N; n += 2) {
            uint32_t right[4];
            tw_ldmatrix_x4(right, tw_tile_at<SIZE>(b, n * 8 + lane / 16 * 8 + lane % 8,
                                                   step * 2 + lane / 8 % 2));
#pragma unroll
            for (uint32_t m = 0; m < M; m++) {
                tw_mma_bf16(d[m][n], left[m], right);
                tw_mma_bf16(d[m][n + 1], left[m], right + 2);
            }
        }
    }
}

/* Computes d (16 * M, SIZE) += a (16 * M, 16 * K) * the 16 * K rows of tile b. */
template <int SIZE, int M, int K>
static __device__ __forceinline__ void
tw_tile_product(float (&d)[M][SIZE / 8][4], const uint32_t (&a)[M][K][4], const tw_bf16 *b) {
    const uint32_t lane = tw_lane();
#pragma unroll
    for (uint32_t k = 0; k < K; k++) {
#pragma unroll
        for (uint32_t n = 0; n < SIZE / 8; n += 2) {
            uint32_t right[4];
            tw_ldmatrix_x4_trans(right, tw_tile_at<SIZE>(b, k * 16 + lane % 16, n + lane / 16));
#pragma unroll
            for (uint32_t m = 0; m < M; m++) {
                tw_mma_bf16(d[m][n], a[m][k], right);
                tw_mma_bf16(d[m][n + 1], a[m][k], right + 2);
            }
        }
    }
}

/* Rounds a product to bf16, as the left factor of the next product. Each lane already holds the
 * right elements. */
template <int M, int N>
static __device__ __forceinline__ void tw_tile_round(uint32_t (&a)[M][N / 2][4],
                                                     const float (&d)[M][N][4]) {
#pragma unroll
    for (uint32_t m = 0; m < M; m++) {
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
            a[m][n / 2][n % 2 * 2] = tw_bf16_pair(d[m][n][0], d[m][n][1]);
            a[m][n / 2][n % 2 * 2 + 1] = tw_bf16_pair(d[m][n][2], d[m][n][3]);
        }
    }
}

/* Writes the warp's d, each row multiplied by its scale, to rows [begin + row, ...) of `to`. Rows
 * [row, row + 16 * M) of `tile`, which no other warp uses, serve as buffer. */
template <int SIZE, int M>
static __device__ __forceinline__ void
tw_tile_store(const tw_attention_rows<tw_bf16> &to, uint32_t begin, tw_bf16 *tile, uint32_t row,
              const float (&d)[M][SIZE / 8][4], const float (&scale)[M][2]) {
    constexpr uint32_t CHUNKS = SIZE / 8;
    const uint32_t lane = tw_lane();
#pragma unroll
    for (uint32_t m = 0; m < M; m++) {
#pragma unroll
        for (uint32_t n = 0; n < CHUNKS; n++) {
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                tw_bf16 *at = tw_tile_at<SIZE>(tile, row + m * 16 + half * 8 + lane / 4, n);
                *(uint32_t *)(at + lane % 4 * 2) = tw_bf16_pair(
                    d[m][n][half * 2] * scale[m][half], d[m][n][half * 2 + 1] * scale[m][half]);
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < M * 16 * CHUNKS / 32; i++) {
        const uint32_t at = row + (i * 32 + lane) / CHUNKS, chunk = (i * 32 + lane) % CHUNKS;
        if (begin + at < to.count) {
            *(uint4 *)(to.at(begin + at) + chunk * 8) =
                *(const uint4 *)tw_tile_at<SIZE>(tile, at, chunk);
        }
    }
}

#endif
