/* test_elements.c - number formats of model files: every float16 value, and rounding to nearest
 * even. */
#include "worker/files/tensor_file.h"

#include <math.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "tests/test.h"

static double value_f16(uint32_t bits) {
    const int exponent = (int)(bits >> 10 & 31), rest = (int)(bits & 1023);
    const double size = exponent == 0 ? ldexp(rest, -24) : ldexp(1024 + rest, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

TEST(every_half_is_widened_exactly_and_comes_back) {
    static const enum tw_dtype DTYPES[] = {TW_DTYPE_F16, TW_DTYPE_BF16};
    for (unsigned d = 0; d < 2; d++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint8_t in[2], out[2];
            float wide;
            tw_put_u16(in, (uint16_t)bits);
            const bool is_finite = d == 0 ? (bits >> 10 & 31) != 31 : (bits >> 7 & 255) != 255;
            assert_int_equal(tw_elements_load(DTYPES[d], &wide, in, 1), is_finite ? 1 : 0);
            if (d == 0 && is_finite) assert_true((double)wide == value_f16(bits));
            const bool is_nan = isnan(wide);
            assert_int_equal(tw_elements_store(DTYPES[d], out, &wide, 1), is_finite ? 1 : 0);
            if (!is_nan) assert_int_equal(tw_get_u16(out), bits);
        }
    }
}

/* Halfway between two neighbours rounds to the even one, otherwise to the nearer one. */
TEST(float16_is_rounded_to_nearest_even) {
    for (uint32_t bits = 0; bits < 0x7BFF; bits++) {
        const double low = value_f16(bits), high = value_f16(bits + 1), half = (low + high) / 2;
        const float at[] = {(float)half, nextafterf((float)half, 0), nextafterf((float)half, 1e9f)};
        const uint32_t wanted[] = {bits + bits % 2, bits, bits + 1};
        for (unsigned i = 0; i < 3; i++) {
            uint8_t out[2];
            (void)tw_elements_store(TW_DTYPE_F16, out, &at[i], 1);
            assert_int_equal(tw_get_u16(out), wanted[i]);
        }
    }
}

TEST(bfloat16_is_rounded_to_nearest_even) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 5);
    for (unsigned i = 0; i < 100000; i++) {
        const uint32_t high = (uint32_t)tw_rng_next(&rng) & 0x7F7E;
        const uint32_t bits[] = {high << 16 | 0x8000, high << 16 | 0x7FFF, high << 16 | 0x8001};
        const uint32_t wanted[] = {high, high, high + 1};
        for (unsigned k = 0; k < 3; k++) {
            float value;
            uint8_t out[2];
            memcpy(&value, &bits[k], sizeof(value));
            (void)tw_elements_store(TW_DTYPE_BF16, out, &value, 1);
            assert_int_equal(tw_get_u16(out), wanted[k]);
        }
    }
}

TEST(value_too_large_for_a_type_is_located) {
    const float values[] = {1, 65504, 65519.9f, 65520, 3.4e38f};
    uint8_t out[20];
    float back[5];
    assert_int_equal(tw_elements_store(TW_DTYPE_F16, out, values, 5), 3);
    assert_int_equal(tw_elements_store(TW_DTYPE_BF16, out, values, 5), 4);
    assert_int_equal(tw_elements_store(TW_DTYPE_F32, out, values, 5), 5);
    assert_int_equal(tw_elements_load(TW_DTYPE_F32, back, out, 5), 5);
    assert_memory_equal(values, back, sizeof(values));
}

/* Readers and writers of files convert elements in place, within the memory of the floats. */
TEST(conversion_works_in_place) {
    enum { N = 1000 };
    static float values[N], copy[N];
    for (int i = 0; i < N; i++) values[i] = copy[i] = (float)(i % 200 - 100) * 0.25f;
    for (unsigned d = 0; d < 2; d++) {
        const enum tw_dtype dtype = d == 0 ? TW_DTYPE_F16 : TW_DTYPE_BF16;
        assert_int_equal(tw_elements_store(dtype, (uint8_t *)values, values, N), N);
        uint8_t *const upper = (uint8_t *)values + 2 * N;
        memmove(upper, values, 2 * N);
        assert_int_equal(tw_elements_load(dtype, values, upper, N), N);
        assert_memory_equal(values, copy, sizeof(values));
    }
}
