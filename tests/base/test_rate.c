/* Tests of base/rate.c: the upload cap. */
#include "base/limits.h"
#include "base/rate.h"
#include "tests/test.h"

static const uint64_t S = 1000 * 1000;
enum { CAP = 625 * 1000 }; /* 5 Mbit/s in bytes per second */

TEST(full_bucket_lets_a_burst_through_and_then_waits) {
    struct tw_rate rate;
    const uint64_t burst = tw_rate_burst_bytes(CAP);
    tw_rate_init(&rate, CAP, burst, 7);
    assert_int_equal(tw_rate_wait_us(&rate, burst, 7), 0);
    tw_rate_spend(&rate, burst, 7);
    assert_true(tw_rate_wait_us(&rate, 1, 7) > 0);
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 100, 7), 10000);
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 100, 7 + 10000), 0);
}

/* With any pattern of TLS records, no time window carries more than rate * window + burst bytes. */
TEST(long_run_obeys_the_cap_in_every_window) {
    struct tw_rate rate;
    static uint64_t at_us[4096], sent[4096];
    const uint64_t burst = tw_rate_burst_bytes(CAP);
    uint64_t now_us = 0, total = 0;
    unsigned count = 0;
    tw_rate_init(&rate, CAP, burst, now_us);
    for (; count < 4096 && now_us < 60 * S; count++) {
        const uint64_t bytes = count % 7 == 0 ? 300 : TW_TLS_RECORD_BYTES_MAX;
        now_us += tw_rate_wait_us(&rate, bytes, now_us);
        tw_rate_spend(&rate, bytes, now_us);
        total += bytes;
        at_us[count] = now_us;
        sent[count] = total;
        if (count % 100 == 50) now_us += 3 * S; /* a pause saves no more than one burst */
    }
    for (unsigned i = 0; i + 1 < count; i += 5) {
        for (unsigned k = i + 1; k < count; k += 3) {
            const uint64_t window_us = at_us[k] - at_us[i];
            assert_true(sent[k] - sent[i] <= CAP * window_us / S + burst + 1);
        }
    }
}

TEST(one_megabyte_takes_as_long_as_the_cap_says) {
    struct tw_rate rate;
    const uint64_t burst = tw_rate_burst_bytes(CAP);
    uint64_t now_us = 0, left = 1000 * 1000;
    tw_rate_init(&rate, CAP, burst, now_us);
    while (left > 0) {
        const uint64_t bytes = left < TW_TLS_RECORD_BYTES_MAX ? left : TW_TLS_RECORD_BYTES_MAX;
        now_us += tw_rate_wait_us(&rate, bytes, now_us);
        tw_rate_spend(&rate, bytes, now_us);
        left -= bytes;
    }
    const uint64_t exact_us = (1000 * 1000 - burst) * S / CAP;
    assert_in_range(now_us, exact_us - 1, exact_us + 100);
}

TEST(traffic_never_delayed_is_paid_for_by_the_rest) {
    struct tw_rate rate;
    tw_rate_init(&rate, CAP, tw_rate_burst_bytes(CAP), 0);
    tw_rate_spend(&rate, tw_rate_burst_bytes(CAP) + 2 * CAP, 0); /* control, far over the cap */
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 1000, 0), 2 * S + 1000);
    assert_true(tw_rate_wait_us(&rate, 1, 2 * S - 1) > 0);
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 1000, 2 * S + 1000), 0);
}

TEST(debt_is_two_seconds_at_most) {
    struct tw_rate rate;
    tw_rate_init(&rate, CAP, tw_rate_burst_bytes(CAP), 0);
    for (unsigned i = 0; i < 1000; i++) tw_rate_owe(&rate, 1u << 30, 0);
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 1000, 0), 2 * S + 1000);
    tw_rate_set(&rate, CAP / 100, CAP / 100, 0); /* the debt is clamped to the lower rate */
    assert_true(tw_rate_wait_us(&rate, 1, 0) < 3 * S);
    tw_rate_init(&rate, 100, 50, 0);
    for (unsigned i = 0; i < 100; i++) tw_rate_spend(&rate, 1000, 0);
    /* One piece that waited may exceed two seconds: 1000 bytes at 100 bytes per second. */
    assert_int_equal(tw_rate_wait_us(&rate, 1, 0), 10 * S + 10000);
    tw_rate_owe(&rate, 1000, 0);
    assert_int_equal(tw_rate_wait_us(&rate, 1, 0), 10 * S + 10000); /* and no more is added */
}

TEST(no_cap_never_waits) {
    struct tw_rate rate;
    tw_rate_init(&rate, 0, tw_rate_burst_bytes(0), 0);
    for (unsigned i = 0; i < 1000; i++) {
        tw_rate_spend(&rate, 1u << 30, 0);
        assert_int_equal(tw_rate_wait_us(&rate, 1u << 30, 0), 0);
    }
}

TEST(piece_larger_than_the_bucket_passes_when_it_is_full) {
    struct tw_rate rate;
    tw_rate_init(&rate, 100, 50, 0);
    assert_int_equal(tw_rate_wait_us(&rate, 1000, 0), 0);
    tw_rate_spend(&rate, 1000, 0);
    assert_int_equal(tw_rate_wait_us(&rate, 1000, 0), 10 * S);
}

TEST(cap_can_change_while_running) {
    struct tw_rate rate;
    tw_rate_init(&rate, CAP, tw_rate_burst_bytes(CAP), 0);
    tw_rate_spend(&rate, tw_rate_burst_bytes(CAP), 0);
    tw_rate_set(&rate, 2 * CAP, tw_rate_burst_bytes(2 * CAP), 0);
    assert_int_equal(tw_rate_wait_us(&rate, CAP / 50, 0), 10000);
    tw_rate_set(&rate, 0, tw_rate_burst_bytes(0), 0);
    assert_int_equal(tw_rate_wait_us(&rate, CAP, 0), 0);
    tw_rate_set(&rate, CAP, tw_rate_burst_bytes(CAP), 1);
    assert_true(tw_rate_wait_us(&rate, 10 * CAP, 1) <= S);
}

TEST(clocks_and_sums_do_not_overflow) {
    struct tw_rate rate;
    tw_rate_init(&rate, UINT64_MAX, UINT64_MAX, 0);
    for (unsigned i = 0; i < 100; i++) tw_rate_spend(&rate, 1u << 30, i);
    assert_true(tw_rate_wait_us(&rate, 1u << 30, 100) < S);
    tw_rate_init(&rate, 1, 1, 0);
    for (unsigned i = 0; i < 2000; i++) tw_rate_spend(&rate, 1u << 30, 0);
    assert_true(tw_rate_wait_us(&rate, 1, 0) > S);
    assert_int_equal(tw_rate_wait_us(&rate, 1, UINT64_MAX), 0);
    assert_int_equal(tw_rate_wait_us(&rate, 1, 5), 0); /* a clock that went back changes nothing */
}

TEST(turns_go_round_without_leaving_one_out) {
    const uint64_t wanting = UINT64_C(1) << 0 | UINT64_C(1) << 5 | UINT64_C(1) << 63;
    uint16_t turn = 0;
    unsigned counts[64] = {0};
    for (unsigned i = 0; i < 300; i++) counts[tw_turn_next(&turn, wanting)]++;
    assert_int_equal(counts[0], 100);
    assert_int_equal(counts[5], 100);
    assert_int_equal(counts[63], 100);
    turn = 63;
    assert_int_equal(tw_turn_next(&turn, UINT64_C(1) << 63), 63);
}
