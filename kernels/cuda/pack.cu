/* pack.cu - computes Delta, its energies and its encoding. Each operation is rounded separately, as
 * on the host. */
#include "kernels/cuda/pack.h"

#include <math.h>

#include "kernels/cuda/device.cuh"

enum { THREADS = 256, BLOCKS_MAX = 2048, ENERGY_PARTS = 16 };

#define EACH(i, n)                                                                                 \
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < (n); i += gridDim.x * THREADS)

static unsigned blocks_for(size_t n) {
    return (unsigned)min((n + THREADS - 1) / THREADS, (size_t)BLOCKS_MAX);
}

/* ---- Delta ---- */

static __global__ void make_delta(struct tw_cuda_delta d) {
    EACH(i, d.n) {
        float value = __fsub_rn(d.phi[i], d.theta[i]);
        if (d.ahead != nullptr) value = __fadd_rn(value, d.ahead[i]);
        if (d.given != nullptr) d.given[i] = value;
        if (d.residual != nullptr) value = __fadd_rn(value, __fmul_rn(d.beta, d.residual[i]));
        d.v[i] = value;
    }
}

static __global__ void multiply(float *x, float factor, size_t n) {
    EACH(i, n) x[i] = __fmul_rn(x[i], factor);
}

/* Computes parts (TW_OUTLIER_BLOCKS, ENERGY_PARTS): the energy of part blockIdx.x of block
 * blockIdx.y of v. */
static __global__ void energy_parts(double *parts, const float *v, size_t n) {
    const size_t begin = n * blockIdx.y / TW_OUTLIER_BLOCKS,
                 end = n * (blockIdx.y + 1) / TW_OUTLIER_BLOCKS;
    double sum = 0.0;
    for (size_t i = begin + blockIdx.x * THREADS + threadIdx.x; i < end;
         i += ENERGY_PARTS * THREADS)
        sum += (double)v[i] * (double)v[i];
    sum = tw_block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * ENERGY_PARTS + blockIdx.x] = sum;
}

static __global__ void energy_sums(double *energies, const double *parts) {
    double sum = 0.0;
    for (int part = 0; part < ENERGY_PARTS; part++) sum += parts[threadIdx.x * ENERGY_PARTS + part];
    energies[threadIdx.x] = sum;
}

extern "C" void tw_cuda_delta(void *stream, const struct tw_cuda_delta *delta) {
    if (delta->n == 0) return;
    TW_LAUNCH(make_delta, blocks_for(delta->n), THREADS, 0, stream, *delta);
}

extern "C" void tw_cuda_scale(void *stream, float *x, float factor, size_t n) {
    if (n == 0) return;
    TW_LAUNCH(multiply, blocks_for(n), THREADS, 0, stream, x, factor, n);
}

extern "C" void tw_cuda_energies(void *stream, double *energies, const float *v, size_t n,
                                 void *scratch) {
    static_assert(TW_CUDA_ENERGIES_SCRATCH >= TW_OUTLIER_BLOCKS * ENERGY_PARTS * sizeof(double),
                  "scratch of energies");
    TW_LAUNCH(energy_parts, dim3(ENERGY_PARTS, TW_OUTLIER_BLOCKS), THREADS, 0, stream,
              (double *)scratch, v, n);
    TW_LAUNCH(energy_sums, 1, TW_OUTLIER_BLOCKS, 0, stream, energies, (const double *)scratch);
}

static __global__ void merge_add(float *sum, const float *x, float weight, size_t n) {
    EACH(i, n) sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, x[i]));
}

extern "C" void tw_cuda_merge_add(void *stream, float *sum, const float *x, float weight,
                                  size_t n) {
    if (n == 0) return;
    TW_LAUNCH(merge_add, blocks_for(n), THREADS, 0, stream, sum, x, weight, n);
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* The encoders of pack.h. A warp encodes a block of elements: lane l has elements
 * l, l + 32, ... The digits of the block form eight words (compress/codec_fixed.c). Lane l has only
 * digits of word l mod 8, so four lanes assemble a word. */

enum {
    encode_THREADS = 128,
    encode_WARPS = encode_THREADS / 32,
    BF16_BLOCKS_MAX = 2048,
    E3M0_ZERO = 120, /* float32 exponents 121 to 127 are levels 1 to 7 */
};

#define TOO_LARGE 0x7E800000u /* bits of 2^126; every magnitude must be smaller */
#define NOT_FINITE 0x7F800000u

static __host__ __device__ constexpr uint32_t elements_of(enum tw_cuda_pack_format format) {
    return format == TW_CUDA_PACK_INT8 || format == TW_CUDA_PACK_SIGN ? 256 : 64;
}

static __host__ __device__ constexpr uint32_t bits_of(enum tw_cuda_pack_format format) {
    return format == TW_CUDA_PACK_INT8 ? 8 : format == TW_CUDA_PACK_SIGN ? 1 : 4;
}

/* ---- scales: as in compress/codec_row.h ---- */

static __device__ uint32_t magnitude(float x) {
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

static __device__ uint32_t warp_max(uint32_t x) {
    for (int by = 16; by > 0; by /= 2) x = max(x, __shfl_xor_sync(TW_ALL_LANES, x, by));
    return x;
}

static __device__ uint32_t scale_up(uint32_t max, float top) {
    const uint32_t scale = (__float_as_uint(__fdiv_rn(__uint_as_float(max), top)) + 0xFFFFu) >> 16;
    return max != 0 && scale == 0 ? 1 : scale;
}

static __device__ float scale_value(uint32_t scale) {
    return __uint_as_float(scale << 16);
}

struct factor {
    float lift, inverse;
};

static __device__ struct factor factor_of(uint32_t max, uint32_t scale) {
    const float lift = max < 0x0D800000u /* 2^-100 */ ? 18446744073709551616.0f : 1.0f;
    const float inverse = scale == 0 ? 0.0f : __fdiv_rn(1.0f, __fmul_rn(scale_value(scale), lift));
    return {lift, inverse};
}

static __device__ float quotient(float x, struct factor by) {
    return __fmul_rn(__fmul_rn(x, by.lift), by.inverse);
}

/* Returns the mean magnitude of the elements. Sums 2^21 * y as integers, where y is |x| divided by
 * the power of two in the block's maximum. */
template <int PER> static __device__ float mean(const float *x, uint32_t max, uint32_t count) {
    const float one = 2097152.0f; /* 2^21 */
    const uint32_t exponent = max >> 23 == 0 ? 1 : max >> 23;
    const float into = __uint_as_float((254 - exponent) << 23);
    const float back = __uint_as_float(exponent << 23);
    uint32_t sum = 0;
    for (int t = 0; t < PER; t++) {
        const float y = __fmul_rn(__uint_as_float(magnitude(x[t])), into);
        sum += __float_as_uint(__fadd_rn(__fmul_rn(y, one), 8388608.0f)) & 0x7FFFFFu;
    }
    sum = tw_warp_sum(sum);
    return __fmul_rn(__fdiv_rn((float)sum, __fmul_rn((float)count, one)), back);
}

/* ---- digits ---- */

static __device__ uint32_t e3m0_digit(float value) {
    const uint32_t bits = __float_as_uint(value);
    const int32_t size = (int32_t)(bits & 0x7FFFFFFFu);
    /* 1.5 * 2^e is the midpoint between 2^e and 2^(e + 1). */
    const int32_t level = ((size + (1 << 22)) >> 23) - E3M0_ZERO;
    const int32_t least = size >= E3M0_ZERO << 23;
    return (uint32_t)max(level, least) | bits >> 31 << 3;
}

/* Computes the block's scale, and a digit per element. */
template <enum tw_cuda_pack_format F, int PER>
static __device__ uint32_t quantise(uint32_t *digits, const float *x, uint32_t max,
                                    uint32_t count) {
    if constexpr (F == TW_CUDA_PACK_SIGN) {
        for (int t = 0; t < PER; t++) digits[t] = __float_as_uint(x[t]) >> 31;
        return tw_bf16_of(mean<PER>(x, max, count)).bits;
    } else {
        const float top = F == TW_CUDA_PACK_INT8 ? 127.0f : F == TW_CUDA_PACK_INT4 ? 7.0f : 1.0f;
        const uint32_t scale = scale_up(max, top);
        const struct factor by = factor_of(max, scale);
        for (int t = 0; t < PER; t++) {
            const float value = quotient(x[t], by);
            if constexpr (F == TW_CUDA_PACK_E3M0) {
                digits[t] = e3m0_digit(value);
            } else { /* adding 1.5 * 2^23 rounds to nearest even */
                digits[t] = __float_as_uint(__fadd_rn(value, 12582912.0f)) &
                            (F == TW_CUDA_PACK_INT8 ? 255u : 15u);
            }
        }
        return scale;
    }
}

/* Returns the decoded value D of a digit. */
template <enum tw_cuda_pack_format F> static __device__ float level(uint32_t digit, float scale) {
    if constexpr (F == TW_CUDA_PACK_INT8) return __fmul_rn(scale, (float)(int8_t)digit);
    if constexpr (F == TW_CUDA_PACK_INT4) return __fmul_rn(scale, (float)((int)(digit ^ 8u) - 8));
    if constexpr (F == TW_CUDA_PACK_E3M0) {
        const uint32_t l = digit & 7u, size = l == 0 ? 0 : (E3M0_ZERO + l) << 23;
        return __fmul_rn(scale, __uint_as_float(size | digit >> 3 << 31));
    }
    return __uint_as_float(__float_as_uint(scale) | digit << 31);
}

/* ---- bytes of a block ---- */

/* Writes the words of a block. Digit t of lane l is number 4 * t + l / 8 of word l mod 8. Words are
 * written as halves, because they are only 2-byte aligned. */
template <enum tw_cuda_pack_format F, int PER>
static __device__ void store_words(uint8_t *to, const uint32_t *digits, uint32_t lane) {
    constexpr uint32_t BITS = bits_of(F);
    static_assert(elements_of(F) / 8 * BITS == 32, "as compress/codec_fixed.c has it");
    uint32_t word = 0;
    for (int t = 0; t < PER; t++) word |= digits[t] << ((4 * t + lane / 8) * BITS);
    word |= __shfl_xor_sync(TW_ALL_LANES, word, 8);
    word |= __shfl_xor_sync(TW_ALL_LANES, word, 16);
    word = __shfl_sync(TW_ALL_LANES, word, (int)(lane / 2) % 8);
    uint16_t *const halves = reinterpret_cast<uint16_t *>(to);
    if (lane < 16) halves[lane] = (uint16_t)(word >> (lane % 2 * 16));
}

template <enum tw_cuda_pack_format F> static __global__ void encode_blocks(struct tw_cuda_pack p) {
    constexpr uint32_t ELEMENTS = elements_of(F);
    constexpr int PER = ELEMENTS / 32;
    const size_t blocks = (p.n + ELEMENTS - 1) / ELEMENTS;
    const size_t b = (size_t)blockIdx.x * encode_WARPS + threadIdx.x / 32, begin = b * ELEMENTS;
    const uint32_t lane = threadIdx.x % 32;
    if (b >= blocks) return;
    const uint32_t count = (uint32_t)min((size_t)ELEMENTS, p.n - begin);
    float x[PER];
    uint32_t digits[PER], most = 0;
    for (int t = 0; t < PER; t++) {
        x[t] = lane + 32 * t < count ? p.v[begin + lane + 32 * t] : 0.0f;
        most = max(most, magnitude(x[t]));
    }
    most = warp_max(most);
    if (most >= TOO_LARGE) {
        *p.refused = 1;
        return;
    }
    const uint32_t scale = quantise<F, PER>(digits, x, most, count);
    if (lane == 0) reinterpret_cast<uint16_t *>(p.out)[b] = (uint16_t)scale;
    uint8_t *const codes = p.out + 2 * blocks;
    for (int t = 0; t < PER; t++) {
        const uint32_t i = lane + 32 * t;
        if (i >= count) {
            digits[t] = 0; /* padding */
            continue;
        }
        const float decoded = level<F>(digits[t], scale_value(scale));
        if (F == TW_CUDA_PACK_INT8) codes[begin + i] = (uint8_t)digits[t];
        if (p.decoded != nullptr) p.decoded[begin + i] = decoded;
        if (p.lost != nullptr) p.lost[begin + i] = __fsub_rn(x[t], decoded);
    }
    if constexpr (F != TW_CUDA_PACK_INT8)
        store_words<F, PER>(codes + b * (ELEMENTS * bits_of(F) / 8), digits, lane);
}

static __global__ void encode_bf16(struct tw_cuda_pack p) {
    for (size_t i = (size_t)blockIdx.x * encode_THREADS + threadIdx.x; i < p.n;
         i += gridDim.x * encode_THREADS) {
        const uint32_t bits = __float_as_uint(p.v[i]);
        const uint32_t half = ((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16) & 0xFFFFu;
        const float decoded = __uint_as_float(half << 16);
        if ((bits & NOT_FINITE) == NOT_FINITE || (half << 16 & NOT_FINITE) == NOT_FINITE)
            *p.refused = 1;
        reinterpret_cast<uint16_t *>(p.out)[i] = (uint16_t)half;
        if (p.decoded != nullptr) p.decoded[i] = decoded;
        if (p.lost != nullptr) p.lost[i] = __fsub_rn(p.v[i], decoded);
    }
}

/* ---- from the host ---- */

extern "C" size_t tw_cuda_pack_bytes(enum tw_cuda_pack_format format, size_t n) {
    if (format == TW_CUDA_PACK_BF16) return 2 * n;
    const size_t elements = elements_of(format), blocks = n / elements + (n % elements != 0);
    if (format == TW_CUDA_PACK_INT8) return n + 2 * blocks;
    return blocks * (2 + elements * bits_of(format) / 8);
}

template <enum tw_cuda_pack_format F>
static void encode_launch(void *stream, const struct tw_cuda_pack *pack) {
    const size_t of_launch = (size_t)encode_WARPS * elements_of(F);
    TW_LAUNCH(encode_blocks<F>, (unsigned)((pack->n + of_launch - 1) / of_launch), encode_THREADS,
              0, stream, *pack);
}

extern "C" void tw_cuda_pack(void *stream, const struct tw_cuda_pack *pack) {
    if (pack->n == 0) return;
    switch (pack->format) {
    case TW_CUDA_PACK_BF16: {
        const size_t blocks = (pack->n + encode_THREADS - 1) / encode_THREADS;
        TW_LAUNCH(encode_bf16, (unsigned)min(blocks, (size_t)BF16_BLOCKS_MAX), encode_THREADS, 0,
                  stream, *pack);
        break;
    }
    case TW_CUDA_PACK_INT8: encode_launch<TW_CUDA_PACK_INT8>(stream, pack); break;
    case TW_CUDA_PACK_INT4: encode_launch<TW_CUDA_PACK_INT4>(stream, pack); break;
    case TW_CUDA_PACK_E3M0: encode_launch<TW_CUDA_PACK_E3M0>(stream, pack); break;
    case TW_CUDA_PACK_SIGN: encode_launch<TW_CUDA_PACK_SIGN>(stream, pack); break;
    }
}
