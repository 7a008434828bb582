/* attention_backward.cuh - the elementwise part of the backward pass of attention, on register
 * fragments of matrix products: P, dS, and the mask of keys that rows do not attend to. Used by the
 * kernels of attention_flash_backward.cu and attention_hopper_backward.cu.
 *
 * A block's own rows are either keys or queries. With IS_KEYS they are keys, the columns are
 * queries, and the data of queries is in shared memory. Otherwise they are queries, with their data
 * in registers. */
#ifndef TW_KERNELS_CUDA_ATTENTION_BACKWARD_CUH
#define TW_KERNELS_CUDA_ATTENTION_BACKWARD_CUH

#include "kernels/cuda/attention_tile.cuh"

/* Data of the own rows that one lane works on: rows 8 * i + lane / 4 of the warp's 16 * M rows. */
template <int M> struct tw_attention_own {
    float lse[M][2], delta[M][2]; /* lse in base 2 */

    /* Reads the lane's rows. `rows` points to the warp's first row; `most` is the last valid index.
     */
    __device__ __forceinline__ void read(const tw_attention_row *rows, uint32_t most) {
#pragma unroll
        for (uint32_t i = 0; i < M * 2; i++) {
            const tw_attention_row &row = rows[min(i * 8 + tw_lane() / 4, most)];
            lse[i / 2][i % 2] = row.lse * TW_LOG2_E;
            delta[i / 2][i % 2] = row.delta;
        }
    }
};

/* Turns scores into P. If the own rows are keys, `rows` has the data of the columns. */
template <int SIZE, bool IS_KEYS, int M, int N>
static __device__ __forceinline__ void tw_attention_soften(float (&s)[M][N][4],
                                                           const tw_attention_own<M> &own,
                                                           const tw_attention_row *rows) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        const tw_attention_row *row = rows + n * 8 + tw_lane() % 4 * 2;
        const float lse[2] = {IS_KEYS ? row[0].lse * TW_LOG2_E : 0.0f,
                              IS_KEYS ? row[1].lse * TW_LOG2_E : 0.0f};
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float of_row = IS_KEYS ? lse[i % 2] : own.lse[m][i / 2];
                s[m][n][i] =
                    tw_exp2(fmaf(s[m][n][i], TW_ATTENTION_SCALE<SIZE> * TW_LOG2_E, -of_row));
            }
        }
    }
}

/* Turns dp into dS. */
template <bool IS_KEYS, int M, int N>
static __device__ __forceinline__ void
tw_attention_differentiate(float (&dp)[M][N][4], const float (&p)[M][N][4],
                           const tw_attention_own<M> &own, const tw_attention_row *rows) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        const tw_attention_row *row = rows + n * 8 + tw_lane() % 4 * 2;
        const float delta[2] = {IS_KEYS ? row[0].delta : 0.0f, IS_KEYS ? row[1].delta : 0.0f};
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float of_row = IS_KEYS ? delta[i % 2] : own.delta[m][i / 2];
                dp[m][n][i] = p[m][n][i] * (dp[m][n][i] - of_row);
            }
        }
    }
}

/* Sets P, and with it dS, to 0 where the row does not attend to the key. `rows` are the rows of the
 * tile (kernel of keys), or begin at this warp's first own row. `key` is the first key of the warp,
 * or of the tile. `most` is the last valid index of `rows`. */
template <bool IS_KEYS, int M, int N>
static __device__ __forceinline__ void
tw_attention_hide(float (&p)[M][N][4], const tw_attention_row *rows, uint32_t most, uint32_t key) {
    const uint32_t lane = tw_lane();
#pragma unroll
    for (uint32_t m = 0; m < M; m++) {
#pragma unroll
        for (uint32_t n = 0; n < N; n++) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t own = m * 16 + i / 2 * 8 + lane / 4;
                const uint32_t other = n * 8 + lane % 4 * 2 + i % 2;
                const uint32_t at = key + (IS_KEYS ? own : other);
                const tw_attention_row *row = rows + min(IS_KEYS ? other : own, most);
                if (at < row->begin || at >= row->end) p[m][n][i] = 0.0f;
            }
        }
    }
}

/* Two ranges of keys for the rows of a warp or tile. At least one row attends to each key in [least
 * begin, most end); all rows attend to the keys in [most begin, least end). Both bounds of a row's
 * range only grow from row to row. */
struct tw_attention_keys_seen {
    uint32_t least_begin, most_begin, least_end, most_end;

    __device__ __forceinline__ tw_attention_keys_seen(const tw_attention_row *rows, uint32_t last)
        : least_begin(rows[0].begin), most_begin(rows[last].begin), least_end(rows[0].end),
          most_end(rows[last].end) {
    }
    __device__ __forceinline__ bool has_none(uint32_t key, uint32_t count) const {
        return key >= most_end || key + count <= least_begin;
    }
    __device__ __forceinline__ bool has_all(uint32_t key, uint32_t count) const {
        return key >= most_begin && key + count <= least_end;
    }
};

#endif
