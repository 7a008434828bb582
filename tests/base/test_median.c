/* test_median.c - numbers are sorted in place, and the upper middle one is the median. */
#include "base/median.h"
#include "base/rng.h"
#include "tests/test.h"

TEST(values_are_sorted) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    for (uint32_t count = 0; count <= 64; count++) {
        uint64_t values[64], sum = 0;
        for (uint32_t i = 0; i < count; i++) sum += values[i] = tw_rng_below(&rng, 40);
        tw_sort_u64(values, count);
        for (uint32_t i = 0; i < count; i++) {
            if (i > 0) assert_true(values[i - 1] <= values[i]);
            sum -= values[i];
        }
        assert_int_equal(sum, 0);
    }
}

TEST(median_of_an_even_count_is_the_upper_one) {
    uint64_t values[] = {7, UINT64_MAX, 0, 3};
    assert_int_equal(tw_median_u64(values, 4), 7);
    assert_int_equal(tw_median_u64(values, 3), 3); /* of 0, 3, 7, sorted in place */
    assert_int_equal(tw_median_u64(values, 1), 0);
}

TEST(median_of_nothing_is_zero) {
    uint64_t value = 5;
    assert_int_equal(tw_median_u64(&value, 0), 0);
}
