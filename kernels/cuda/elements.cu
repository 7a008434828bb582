/* elements.cu - elementwise operations and the rotary embedding, limited by memory bandwidth. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

/* ---- y = f(y, x) ---- */

struct add {
    enum { READS_Y = 1, READS_X = 1 };
    __device__ __forceinline__ float of(float y, float x) const {
        return y + x;
    }
};

struct copy {
    enum { READS_Y = 0, READS_X = 1 };
    __device__ __forceinline__ float of(float, float x) const {
        return x;
    }
};

struct fill {
    enum { READS_Y = 0, READS_X = 0 };
    float value;
    __device__ __forceinline__ float of(float, float) const {
        return value;
    }
};

/* gelu(x) = x * s, s = 1 / (1 + e^(-2 * z)), z = sqrt(2 / pi) * (x + 0.044715 * x^3): the tanh form
 * with (1 + tanh z) / 2 = s. Beyond 30, s is 0 or 1, and the square of a larger x could overflow.
 */
struct gelu_slope {
    float s, dz; /* 2 dz/dx */
    __device__ __forceinline__ gelu_slope(float x) {
        const float twice = 1.59576912160573071f, t = fminf(fmaxf(x, -30.0f), 30.0f);
        s = __fdividef(1.0f, 1.0f + __expf(-twice * (t + 0.044715f * t * t * t)));
        dz = twice * (1.0f + 3.0f * 0.044715f * t * t);
    }
};

struct gelu {
    enum { READS_Y = 0, READS_X = 1 };
    __device__ __forceinline__ float of(float, float x) const {
        return x * gelu_slope(x).s;
    }
};

struct gelu_backward {
    enum { READS_Y = 1, READS_X = 1 };
    __device__ __forceinline__ float of(float dy, float x) const {
        const gelu_slope g(x);
        return dy * (g.s + x * g.s * (1.0f - g.s) * g.dz);
    }
};

template <typename Y, typename X, typename F>
static __global__ void map(Y *y, const X *x, size_t n, bool is_octets, F f) {
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const size_t threads = (size_t)gridDim.x * blockDim.x, whole = is_octets ? n / 8 * 8 : 0;
    for (size_t i = first * 8; i < whole; i += threads * 8) {
        float a[8] = {0}, b[8] = {0};
        if (F::READS_Y) tw_vec8_load(a, y + i);
        if (F::READS_X) tw_vec8_load(b, x + i);
        for (int j = 0; j < 8; j++) a[j] = f.of(a[j], b[j]);
        tw_vec8_store(y + i, a);
    }
    for (size_t i = whole + first; i < n; i += threads) {
        const float a = F::READS_Y ? tw_load_f32(y, i) : 0.0f;
        tw_store_f32(y, i, f.of(a, F::READS_X ? tw_load_f32(x, i) : 0.0f));
    }
}

template <typename Y, typename X, typename F>
static void launch_map(void *stream, Y *y, const X *x, size_t n, F f) {
    const bool is_octets = tw_is_octets(y) && tw_is_octets(x);
    if (n == 0) return;
    TW_LAUNCH((map<Y, X, F>), tw_stream_blocks(is_octets ? n / 8 + 7 : n), TW_STREAM_THREADS, 0,
              stream, y, x, n, is_octets, f);
}

extern "C" void tw_cuda_add(void *stream, enum tw_type type, void *y, const void *x, size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, (T *)y, (const T *)x, n, add{}));
}

extern "C" void tw_cuda_gelu(void *stream, enum tw_type type, void *y, const void *x, size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, (T *)y, (const T *)x, n, gelu{}));
}

extern "C" void tw_cuda_gelu_backward(void *stream, enum tw_type type, void *dy, const void *x,
                                      size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, (T *)dy, (const T *)x, n, gelu_backward{}));
}

extern "C" void tw_cuda_from_f32(void *stream, enum tw_type type, void *to, const float *from,
                                 size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, (T *)to, from, n, copy{}));
}

extern "C" void tw_cuda_to_f32(void *stream, enum tw_type type, float *to, const void *from,
                               size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, to, (const T *)from, n, copy{}));
}

extern "C" void tw_cuda_fill(void *stream, enum tw_type type, void *x, float value, size_t n) {
    TW_BY_TYPE(type, T, launch_map(stream, (T *)x, (const T *)NULL, n, fill{value}));
}

/* ---- SwiGLU: rows of gate | up ---- */

/* Returns s = 1 / (1 + e^-g); silu(g) = g * s. */
static __device__ __forceinline__ float sigmoid(float g) {
    return __fdividef(1.0f, 1.0f + __expf(-g));
}

/* Replaces gate and up by their gradients, and dy by y = silu(gate) * up. */
static __device__ __forceinline__ void backward_of(float *gate, float *up, float *dy) {
    const float g = *gate, s = sigmoid(g), u = *up, d = *dy;
    *gate = d * u * s * (1.0f + g * (1.0f - s));
    *up = d * g * s;
    *dy = g * s * u;
}

/* Loads WIDTH elements of a row: 8, or 1 if rows are not aligned. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void load(float v[8], const T *p) {
    if constexpr (WIDTH == 8) {
        tw_vec8_load(v, p);
    } else {
        v[0] = tw_load_f32(p, 0);
    }
}
template <typename T, int WIDTH>
static __device__ __forceinline__ void store(T *p, const float v[8]) {
    if constexpr (WIDTH == 8) {
        tw_vec8_store(p, v);
    } else {
        tw_store_f32(p, 0, v[0]);
    }
}

template <typename T, int WIDTH>
static __global__ void swiglu(T *y, const T *x, uint32_t rows, uint32_t n) {
    const size_t pieces = n / WIDTH, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * pieces;
         i += threads) {
        const size_t row = i / pieces, at = i % pieces * WIDTH;
        float gate[8], up[8];
        load<T, WIDTH>(gate, x + row * 2 * n + at);
        load<T, WIDTH>(up, x + row * 2 * n + n + at);
        for (int j = 0; j < WIDTH; j++) gate[j] = gate[j] * sigmoid(gate[j]) * up[j];
        store<T, WIDTH>(y + row * n + at, gate);
    }
}

template <typename T, int WIDTH>
static __global__ void swiglu_backward(T *dx, const T *dy, const T *x, T *y, uint32_t rows,
                                       uint32_t n) {
    const size_t pieces = n / WIDTH, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * pieces;
         i += threads) {
        const size_t row = i / pieces, at = i % pieces * WIDTH;
        float gate[8], up[8], d[8];
        load<T, WIDTH>(gate, x + row * 2 * n + at);
        load<T, WIDTH>(up, x + row * 2 * n + n + at);
        load<T, WIDTH>(d, dy + row * n + at);
        for (int j = 0; j < WIDTH; j++) backward_of(&gate[j], &up[j], &d[j]);
        store<T, WIDTH>(dx + row * 2 * n + at, gate);
        store<T, WIDTH>(dx + row * 2 * n + n + at, up);
        if (y != NULL) store<T, WIDTH>(y + row * n + at, d);
    }
}

template <typename T>
static void launch_swiglu(void *stream, T *y, const T *x, uint32_t rows, uint32_t n) {
    const size_t all = (size_t)rows * n;
    if (all == 0) return;
    if (tw_is_octets(x, n) && tw_is_octets(y)) {
        TW_LAUNCH((swiglu<T, 8>), tw_stream_blocks(all / 8), TW_STREAM_THREADS, 0, stream, y, x,
                  rows, n);
    } else {
        TW_LAUNCH((swiglu<T, 1>), tw_stream_blocks(all), TW_STREAM_THREADS, 0, stream, y, x, rows,
                  n);
    }
}

extern "C" void tw_cuda_swiglu(void *stream, enum tw_type type, void *y, const void *x,
                               uint32_t rows, uint32_t n) {
    TW_BY_TYPE(type, T, launch_swiglu(stream, (T *)y, (const T *)x, rows, n));
}

template <typename T>
static void launch_swiglu_backward(void *stream, const struct tw_cuda_swiglu_gradients *g,
                                   uint32_t rows, uint32_t n) {
    T *const dx = (T *)g->dx, *const y = (T *)g->y;
    const T *const dy = (const T *)g->dy, *const x = (const T *)g->x;
    const size_t all = (size_t)rows * n;
    if (all == 0) return;
    if (tw_is_octets(x, n) && tw_is_octets(dx) && tw_is_octets(dy) && tw_is_octets(y)) {
        TW_LAUNCH((swiglu_backward<T, 8>), tw_stream_blocks(all / 8), TW_STREAM_THREADS, 0, stream,
                  dx, dy, x, y, rows, n);
    } else {
        TW_LAUNCH((swiglu_backward<T, 1>), tw_stream_blocks(all), TW_STREAM_THREADS, 0, stream, dx,
                  dy, x, y, rows, n);
    }
}

extern "C" void tw_cuda_swiglu_backward(void *stream, enum tw_type type,
                                        const struct tw_cuda_swiglu_gradients *gradients,
                                        uint32_t rows, uint32_t n) {
    TW_BY_TYPE(type, T, launch_swiglu_backward<T>(stream, gradients, rows, n));
}

/* ---- rotary embedding, arXiv 2104.09864 ----------------------------------------------------- */

/* In place; the elements of a pair are half a head apart. */

enum : unsigned {
    rope_THREADS_WANTED = 1 << 18, /* enough for the largest devices */
    GROUPS_MAX = 65535,            /* most blocks in a grid's second dimension */
};

template <int WIDTH, typename T>
static __device__ __forceinline__ void rope_load(float *v, const T *p) {
    if constexpr (WIDTH == 8) {
        tw_vec8_load(v, p);
    } else {
        v[0] = tw_load_f32(p, 0);
    }
}

template <int WIDTH, typename T>
static __device__ __forceinline__ void rope_store(T *p, const float *v) {
    if constexpr (WIDTH == 8) {
        tw_vec8_store(p, v);
    } else {
        tw_store_f32(p, 0, v[0]);
    }
}

/* Blocks are (pieces of half a head, rows). A thread turns its piece of every gridDim.y-th head, so
 * it reads the angles once, and divides once. */
template <typename T, int WIDTH> static __global__ void rope_turn(T *x, struct tw_cuda_rope r) {
    const uint32_t half = r.rope.head_size / 2;
    const size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= r.rows) return;
    const size_t angles = ((size_t)r.position_first + (uint32_t)row % r.context) * half;
    for (uint32_t at = threadIdx.x * WIDTH; at < half; at += blockDim.x * WIDTH) {
        float c[WIDTH], s[WIDTH];
        rope_load<WIDTH>(c, r.rope.cos + angles + at);
        rope_load<WIDTH>(s, r.rope.sin + angles + at);
        for (int j = 0; j < WIDTH; j++) s[j] = r.is_inverse ? -s[j] : s[j];
        for (uint32_t head = blockIdx.y; head < r.rope.heads; head += gridDim.y) {
            T *const first = x + row * r.x_stride + (size_t)head * r.rope.head_size + at;
            float a[WIDTH], b[WIDTH];
            rope_load<WIDTH>(a, first);
            rope_load<WIDTH>(b, first + half);
            for (int j = 0; j < WIDTH; j++) {
                const float turned = a[j] * c[j] - b[j] * s[j];
                b[j] = b[j] * c[j] + a[j] * s[j];
                a[j] = turned;
            }
            rope_store<WIDTH>(first, a);
            rope_store<WIDTH>(first + half, b);
        }
    }
}

template <typename T, int WIDTH>
static void rope_launch_turn(void *stream, const struct tw_cuda_rope *rope, T *x) {
    const unsigned pieces = rope->rope.head_size / 2 / WIDTH;
    const unsigned wide = pieces < TW_STREAM_THREADS ? pieces : (unsigned)TW_STREAM_THREADS;
    const unsigned high = TW_STREAM_THREADS / wide;
    const unsigned blocks = (unsigned)(((size_t)rope->rows + high - 1) / high);
    /* Few rows: their heads are divided among several blocks. */
    const size_t groups = rope_THREADS_WANTED / ((size_t)blocks * wide * high) + 1;
    const size_t most = rope->rope.heads < GROUPS_MAX ? rope->rope.heads : (unsigned)GROUPS_MAX;
    TW_LAUNCH((rope_turn<T, WIDTH>), dim3(blocks, (unsigned)(groups < most ? groups : most)),
              dim3(wide, high), 0, stream, x, *rope);
}

template <typename T> static void rope_launch(void *stream, const struct tw_cuda_rope *rope, T *x) {
    if (rope->rows == 0 || rope->rope.heads == 0 || rope->rope.head_size < 2) return;
    if (rope->rope.head_size % 16 == 0 && tw_is_octets(x, rope->x_stride) &&
        tw_is_octets(rope->rope.cos) && tw_is_octets(rope->rope.sin)) {
        rope_launch_turn<T, 8>(stream, rope, x);
    } else {
        rope_launch_turn<T, 1>(stream, rope, x);
    }
}

extern "C" void tw_cuda_rope(void *stream, const struct tw_cuda_rope *rope, void *x) {
    TW_BY_TYPE(rope->type, T, rope_launch(stream, rope, (T *)x));
}
