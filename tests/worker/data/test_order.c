/* test_order.c - the order in which windows are drawn (bijections, mixtures, competence), and
 * streams. */

#include "tests/test.h"

#include <math.h>
#include <stdbool.h>

#include "worker/data/stream.h"

TEST(a_permutation_visits_everything_once) {
    static bool is_seen[5000];
    for (uint64_t count = 1; count < 5000; count = count < 40 ? count + 1 : count * 3 / 2) {
        for (uint64_t key = 0; key < 3; key++) {
            memset(is_seen, 0, sizeof(is_seen));
            for (uint64_t i = 0; i < count; i++) {
                const uint64_t at = tw_order_permute(key, count, i);
                assert_true(at < count);
                assert_false(is_seen[at]);
                is_seen[at] = true;
            }
        }
    }
    const uint64_t large = (uint64_t)1 << 62;
    assert_true(tw_order_permute(7, large, large - 1) < large);
}

/* The chi-squared statistic of the first hundredth of an order has 99 degrees of freedom: one key
 * in 10000 exceeds 160. */
TEST(any_part_of_an_order_is_spread_evenly) {
    enum { COUNT = 1000003, DRAWN = COUNT / 100 };
    for (uint64_t key = 1; key <= 4; key++) {
        double bins[100] = {0}, statistic = 0;
        uint64_t near = 0, last = 0;
        for (uint64_t i = 0; i < DRAWN; i++) {
            const uint64_t at = tw_order_permute(key, COUNT, i);
            bins[at * 100 / COUNT]++;
            near += at == last + 1;
            last = at;
        }
        for (unsigned i = 0; i < 100; i++) statistic += pow(bins[i] - DRAWN / 100.0, 2);
        assert_true(statistic / (DRAWN / 100.0) < 160);
        assert_true(near < 5); /* consecutive draws are rarely neighbours */
    }
}

TEST(orders_of_other_keys_are_others) {
    unsigned same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same += tw_order_permute(1, 100000, i) == tw_order_permute(2, 100000, i);
    }
    assert_true(same < 5);
    assert_true(tw_order_key(1, 2, 3) != tw_order_key(1, 3, 2));
    assert_true(tw_order_key(1, 2, 3) != tw_order_key(2, 2, 3));
}

TEST(every_block_has_the_exact_counts) {
    const struct {
        uint32_t weights[4], count, wanted[4];
    } rows[] = {
        {{700000, 300000}, 2, {7000, 3000}},
        {{1000000}, 1, {10000}},
        {{1, 1, 1}, 3, {3334, 3333, 3333}},
        {{999999, 1}, 2, {9999, 1}}, /* a hundredth of a place is rounded up to one */
        {{500000, 250001, 249999}, 3, {5000, 2500, 2500}},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        struct tw_order_mixture mixture;
        static bool is_seen[4][20000];
        memset(is_seen, 0, sizeof(is_seen));
        tw_order_mix(&mixture, rows[r].weights, rows[r].count);
        for (uint64_t block = 0; block < 2; block++) {
            uint32_t counts[4] = {0}, runs = 0, last = 9;
            for (uint64_t i = 0; i < TW_ORDER_BLOCK; i++) {
                const struct tw_order_place place =
                    tw_order_place(&mixture, 5, block * TW_ORDER_BLOCK + i);
                counts[place.source]++;
                runs += place.source != last;
                last = place.source;
                assert_false(is_seen[place.source][place.rank]);
                is_seen[place.source][place.rank] = true;
            }
            for (uint32_t s = 0; s < rows[r].count; s++) {
                assert_int_equal(counts[s], rows[r].wanted[s]);
                /* ranks continue where the previous block ended */
                for (uint64_t i = 0; i < counts[s]; i++) {
                    assert_true(is_seen[s][block * counts[s] + i]);
                }
            }
            /* changes of source: 2 * 0.7 * 0.3 of 10000 places */
            if (r == 0) assert_in_range(runs, 4000, 4400);
        }
    }
}

TEST(competence_is_the_paper_s) {
    const uint64_t planned[] = {1, 1000, 123456789, (uint64_t)1 << 50};
    for (size_t p = 0; p < sizeof(planned) / sizeof(planned[0]); p++) {
        uint32_t before = 0;
        for (unsigned i = 0; i < 100; i++) {
            const uint64_t done = planned[p] / 100 * i;
            const double t = (double)done / (double)planned[p];
            const uint32_t share = tw_order_competence(done, planned[p]);
            assert_true(fabs(share / 1e6 - sqrt(t * (1 - 0.01) + 0.01)) < 2e-5);
            assert_true(share >= before);
            before = share;
        }
    }
    assert_int_equal(tw_order_competence(0, 10), 100000);
}

/* ---- streams --------------------------------------------------------------------------------- */

enum { CONTEXT = 10 };

TEST(every_epoch_visits_every_window_once) {
    struct tw_stream stream = {.context = CONTEXT};
    const uint64_t counts[] = {105, 11, 10, 1000, 29, 30};
    uint64_t windows = 0;
    static bool is_token_seen[6][1000];
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(tw_stream_add(&stream, 0, i, 0, counts[i], NULL), TW_OK);
        stream.stretches[i].is_here = true;
        windows += stream.stretches[i].windows;
    }
    assert_int_equal(tw_stream_finish(&stream, NULL, NULL), TW_OK);
    assert_int_equal(windows, 9 + 1 + 0 + 99 + 1 + 2);
    bool are_orders_equal = true;
    for (uint64_t epoch = 0; epoch < 200; epoch++) {
        static bool is_seen[6][100];
        memset(is_seen, 0, sizeof(is_seen));
        for (uint64_t i = 0; i < windows; i++) {
            const struct tw_window window = tw_stream_window(&stream, 3, epoch * windows + i);
            const struct tw_window other = tw_stream_window(&stream, 3, i);
            const uint64_t first = tw_stream_first(&stream, &window);
            assert_false(is_seen[window.stretch][window.index]);
            is_seen[window.stretch][window.index] = true;
            assert_true(first + CONTEXT < counts[window.stretch]);
            for (uint64_t k = 0; k <= CONTEXT; k++) {
                is_token_seen[window.stretch][first + k] = true;
            }
            are_orders_equal = are_orders_equal && other.index == window.index;
        }
    }
    assert_false(are_orders_equal);
    for (uint32_t f = 0; f < 6; f++) {
        for (uint64_t i = 0; i < counts[f]; i++) {
            assert_int_equal(is_token_seen[f][i], counts[f] > CONTEXT);
        }
    }
    tw_stream_deinit(&stream);
}

TEST(missing_windows_are_replaced_and_the_rest_stays) {
    struct tw_stream stream = {.context = CONTEXT};
    uint32_t missing = 0, hits[4] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(tw_stream_add(&stream, i / 2, i, 0, 2000, NULL), TW_OK);
        stream.stretches[i].is_here = true;
    }
    const uint32_t weights[] = {500000, 500000};
    assert_int_equal(tw_stream_finish(&stream, weights, NULL), TW_OK);
    struct tw_window whole[2000];
    for (uint64_t n = 0; n < 2000; n++) whole[n] = tw_stream_window(&stream, 1, n);
    stream.stretches[1].is_here = false;
    tw_stream_update(&stream);
    for (uint64_t n = 0; n < 2000; n++) {
        const struct tw_window window = tw_stream_window(&stream, 1, n);
        if (whole[n].stretch == 1) {
            missing++;
            assert_int_equal(window.stretch, 0); /* same source */
        } else {
            assert_int_equal(window.stretch, whole[n].stretch);
            assert_int_equal(window.index, whole[n].index);
        }
    }
    assert_in_range(missing, 400, 600);
    /* no stretch of this source is present, so other sources are drawn */
    stream.stretches[0].is_here = false;
    tw_stream_update(&stream);
    for (uint64_t n = 0; n < 2000; n++) hits[tw_stream_window(&stream, 1, n).stretch]++;
    assert_int_equal(hits[0] + hits[1], 0);
    assert_in_range(hits[2], 800, 1200);
    tw_stream_deinit(&stream);
}

TEST(the_easy_part_is_drawn_evenly_and_nothing_else) {
    struct tw_stream stream = {.context = CONTEXT};
    assert_int_equal(tw_stream_add(&stream, 0, 0, 0, 2010, NULL), TW_OK); /* 200 windows */
    stream.stretches[0].is_here = true;
    assert_int_equal(tw_stream_finish(&stream, NULL, NULL), TW_OK);
    uint32_t hits[200] = {0};
    for (uint64_t n = 0; n < 10000; n++) {
        hits[tw_stream_easy_window(&stream, 9, n, 100000).index]++;
    }
    for (unsigned i = 0; i < 200; i++) {
        if (i < 20) assert_in_range(hits[i], 380, 640);
        if (i >= 20) assert_int_equal(hits[i], 0);
    }
    tw_stream_deinit(&stream);
}

/* A file is split into several stretches, whose windows follow without a gap. */
TEST(long_files_are_cut_into_stretches) {
    struct tw_stream stream = {.context = CONTEXT};
    const uint64_t tokens = 2 * (uint64_t)TW_STRETCH_TOKENS_MAX + 500;
    assert_int_equal(tw_stream_add(&stream, 0, 0, 7, tokens, NULL), TW_OK);
    assert_int_equal(stream.stretches_count, 3);
    assert_int_equal(stream.stretches[2].first, 7 + 2 * (uint64_t)TW_STRETCH_TOKENS_MAX);
    assert_int_equal(stream.stretches[2].count, 500);
    assert_int_equal(stream.stretches[2].before,
                     stream.stretches[0].windows + stream.stretches[1].windows);
    for (uint32_t i = 0; i < 3; i++) stream.stretches[i].is_here = true;
    assert_int_equal(tw_stream_finish(&stream, NULL, NULL), TW_OK);
    for (uint64_t n = 0; n < 1000; n++) {
        const struct tw_window window = tw_stream_window(&stream, 2, n);
        const struct tw_stretch *const stretch = &stream.stretches[window.stretch];
        const uint64_t first = tw_stream_first(&stream, &window);
        assert_true(window.index < stretch->windows);
        assert_true(first >= stretch->first);
        assert_true(first + CONTEXT < stretch->first + stretch->count);
    }
    tw_stream_deinit(&stream);
}
