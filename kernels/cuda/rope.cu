/* rope.cu - rotary embedding in place, arXiv 2104.09864; the elements of a pair are half a head
 * apart. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

enum : unsigned {
    THREADS_WANTED = 1 << 18, /* enough for the largest devices */
    GROUPS_MAX = 65535,       /* most blocks in a grid's second dimension */
};

template <int WIDTH, typename T> static __device__ __forceinline__ void load(float *v, const T *p) {
    if constexpr (WIDTH == 8) {
        tw_vec8_load(v, p);
    } else {
        v[0] = tw_load_f32(p, 0);
    }
}

template <int WIDTH, typename T>
static __device__ __forceinline__ void store(T *p, const float *v) {
    if constexpr (WIDTH == 8) {
        tw_vec8_store(p, v);
    } else {
        tw_store_f32(p, 0, v[0]);
    }
}

/* Blocks are (pieces of half a head, rows). A thread turns its piece of every gridDim.y-th head, so
 * it reads the angles once, and divides once. */
template <typename T, int WIDTH> static __global__ void turn(T *x, struct tw_cuda_rope r) {
    const uint32_t half = r.rope.head_size / 2;
    const size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= r.rows) return;
    const size_t angles = ((size_t)r.position_first + (uint32_t)row % r.context) * half;
    for (uint32_t at = threadIdx.x * WIDTH; at < half; at += blockDim.x * WIDTH) {
        float c[WIDTH], s[WIDTH];
        load<WIDTH>(c, r.rope.cos + angles + at);
        load<WIDTH>(s, r.rope.sin + angles + at);
        for (int j = 0; j < WIDTH; j++) s[j] = r.is_inverse ? -s[j] : s[j];
        for (uint32_t head = blockIdx.y; head < r.rope.heads; head += gridDim.y) {
            T *const first = x + row * r.x_stride + (size_t)head * r.rope.head_size + at;
            float a[WIDTH], b[WIDTH];
            load<WIDTH>(a, first);
            load<WIDTH>(b, first + half);
            for (int j = 0; j < WIDTH; j++) {
                const float turned = a[j] * c[j] - b[j] * s[j];
                b[j] = b[j] * c[j] + a[j] * s[j];
                a[j] = turned;
            }
            store<WIDTH>(first, a);
            store<WIDTH>(first + half, b);
        }
    }
}

template <typename T, int WIDTH>
static void launch_turn(void *stream, const struct tw_cuda_rope *rope, T *x) {
    const unsigned pieces = rope->rope.head_size / 2 / WIDTH;
    const unsigned wide = pieces < TW_STREAM_THREADS ? pieces : (unsigned)TW_STREAM_THREADS;
    const unsigned high = TW_STREAM_THREADS / wide;
    const unsigned blocks = (unsigned)(((size_t)rope->rows + high - 1) / high);
    /* Few rows: their heads are divided among several blocks. */
    const size_t groups = THREADS_WANTED / ((size_t)blocks * wide * high) + 1;
    const size_t most = rope->rope.heads < GROUPS_MAX ? rope->rope.heads : (unsigned)GROUPS_MAX;
    TW_LAUNCH((turn<T, WIDTH>), dim3(blocks, (unsigned)(groups < most ? groups : most)),
              dim3(wide, high), 0, stream, x, *rope);
}

template <typename T> static void launch(void *stream, const struct tw_cuda_rope *rope, T *x) {
    if (rope->rows == 0 || rope->rope.heads == 0 || rope->rope.head_size < 2) return;
    if (rope->rope.head_size % 16 == 0 && tw_is_octets(x, rope->x_stride) &&
        tw_is_octets(rope->rope.cos) && tw_is_octets(rope->rope.sin)) {
        launch_turn<T, 8>(stream, rope, x);
    } else {
        launch_turn<T, 1>(stream, rope, x);
    }
}

extern "C" void tw_cuda_rope(void *stream, const struct tw_cuda_rope *rope, void *x) {
    TW_BY_TYPE(rope->type, T, launch(stream, rope, (T *)x));
}
