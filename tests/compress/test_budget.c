/* test_budget.c - bytes are distributed optimally, compared with all possible choices and with
 * L-GreCo's dynamic program. */
#include "compress/codec_auto.h"

#include "tests/kernels/fill.h"

enum { SEED = 6161, PIECES = 6, RUNGS = 4, INSTANCES = 200, BUCKETS = 10000 };

/* Draws pieces whose errors decrease as bytes increase, but are otherwise arbitrary. Some choices
 * (rungs) are off the convex hull. */
static void instance(struct tw_rng *rng, struct tw_budget_piece pieces[PIECES]) {
    for (unsigned i = 0; i < PIECES; i++) {
        double error = 1.0 + 100.0 * tw_rng_unit(rng) * tw_rng_unit(rng);
        uint32_t bytes = 1 + (uint32_t)tw_rng_below(rng, 5);
        for (unsigned r = 0; r < RUNGS; r++) {
            pieces[i].error[r] = error;
            pieces[i].bytes[r] = bytes;
            error *= 0.1 + 0.8 * tw_rng_unit(rng);
            bytes += 1 + (uint32_t)tw_rng_below(rng, 20);
        }
    }
}

static double error_of(const struct tw_budget_piece *pieces, size_t count) {
    double error = 0.0;
    for (size_t i = 0; i < count; i++) error += pieces[i].error[pieces[i].rung];
    return error;
}

static uint64_t bytes_of(const struct tw_budget_piece *pieces, size_t count) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += pieces[i].bytes[pieces[i].rung];
    return bytes;
}

static uint64_t bytes_at(const struct tw_budget_piece pieces[PIECES], unsigned rung) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < PIECES; i++) bytes += pieces[i].bytes[rung];
    return bytes;
}

/* Returns the smallest error within bytes_max, found by trying all 4^6 choices. */
static double least_error(const struct tw_budget_piece pieces[PIECES], uint64_t bytes_max) {
    double least = INFINITY;
    for (unsigned choice = 0; choice < 1u << (2 * PIECES); choice++) {
        double error = 0.0;
        uint64_t bytes = 0;
        for (unsigned i = 0; i < PIECES; i++) {
            error += pieces[i].error[choice >> (2 * i) & 3];
            bytes += pieces[i].bytes[choice >> (2 * i) & 3];
        }
        if (bytes <= bytes_max && error < least) least = error;
    }
    return least;
}

/* Returns the largest error reduction that one piece allows. The multiplier can miss the optimum by
 * at most that much. */
static double largest_step(const struct tw_budget_piece pieces[PIECES]) {
    double most = 0.0;
    for (unsigned i = 0; i < PIECES; i++) {
        const double step = pieces[i].error[0] - pieces[i].error[RUNGS - 1];
        if (step > most) most = step;
    }
    return most;
}

TEST(bytes_are_kept_to_with_nearly_the_least_error) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned t = 0; t < INSTANCES; t++) {
        struct tw_budget_piece pieces[PIECES];
        instance(&rng, pieces);
        const uint64_t low = bytes_at(pieces, 0), high = bytes_at(pieces, RUNGS - 1);
        for (uint64_t bytes_max = low; bytes_max <= high; bytes_max += 3) {
            const uint64_t bytes = tw_budget_choose(pieces, PIECES, RUNGS, bytes_max);
            assert_int_equal(bytes, bytes_of(pieces, PIECES));
            assert_true(bytes <= bytes_max);
            const double error = error_of(pieces, PIECES);
            /* For the bytes that it used, the choice is optimal. */
            assert_true(error <= least_error(pieces, bytes) * (1 + 1e-12));
            assert_true(error <= least_error(pieces, bytes_max) + largest_step(pieces));
        }
        (void)tw_budget_choose(pieces, PIECES, RUNGS, high);
        for (unsigned i = 0; i < PIECES; i++) assert_int_equal(pieces[i].rung, RUNGS - 1);
    }
}

/* L-GreCo's dynamic program, with squared errors. Returns the fewest bytes for an error of at most
 * `target`, which is divided into buckets. */
static uint64_t fewest_bytes(const struct tw_budget_piece pieces[PIECES], double target) {
    static uint64_t best[BUCKETS + 1], next[BUCKETS + 1];
    const double width = target / BUCKETS;
    memset(best, 0, sizeof(best));
    for (unsigned i = 0; i < PIECES; i++) {
        for (size_t b = 0; b <= BUCKETS; b++) {
            next[b] = UINT32_MAX;
            for (unsigned r = 0; r < RUNGS; r++) {
                const double buckets = fmax(1.0, ceil(pieces[i].error[r] / width));
                if (buckets > (double)b) continue;
                const uint64_t bytes = best[b - (size_t)buckets] + pieces[i].bytes[r];
                if (bytes < next[b]) next[b] = bytes;
            }
        }
        memcpy(best, next, sizeof(best));
    }
    return best[BUCKETS];
}

TEST(the_dynamic_program_finds_nothing_smaller) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED + 1);
    unsigned same = 0;
    for (unsigned t = 0; t < INSTANCES; t++) {
        struct tw_budget_piece pieces[PIECES];
        instance(&rng, pieces);
        const uint64_t low = bytes_at(pieces, 0), high = bytes_at(pieces, RUNGS - 1);
        const uint64_t bytes =
            tw_budget_choose(pieces, PIECES, RUNGS, low + tw_rng_below(&rng, high - low));
        const double error = error_of(pieces, PIECES);
        /* Buckets round errors up. Just below the error there is no smaller solution. With room for
         * the rounding, the program finds the multiplier's choice, or one that uses that room. */
        assert_true(fewest_bytes(pieces, error * 0.9999) >= bytes);
        const uint64_t found = fewest_bytes(pieces, error * BUCKETS / (BUCKETS - PIECES));
        assert_true(found <= bytes);
        same += found == bytes;
    }
    assert_true(same >= INSTANCES * 95 / 100);
}

TEST(more_bytes_never_mean_a_larger_error) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED + 2);
    for (unsigned t = 0; t < INSTANCES; t++) {
        struct tw_budget_piece pieces[PIECES];
        instance(&rng, pieces);
        for (unsigned i = 2; i < 5 && t % 2 == 0; i++) pieces[i] = pieces[1]; /* ties */
        double last = INFINITY;
        uint64_t last_bytes = 0;
        const uint64_t end = bytes_at(pieces, RUNGS - 1) + 2;
        for (uint64_t bytes_max = bytes_at(pieces, 0); bytes_max < end; bytes_max++) {
            const uint64_t bytes = tw_budget_choose(pieces, PIECES, RUNGS, bytes_max);
            const double error = error_of(pieces, PIECES);
            assert_true(bytes >= last_bytes && error <= last * (1 + 1e-12));
            last = error;
            last_bytes = bytes;
        }
    }
}

TEST(equal_pieces_share_the_bytes) {
    struct tw_budget_piece pieces[PIECES];
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = (struct tw_budget_piece){.error = {8, 2}, .bytes = {10, 20}};
    }
    assert_int_equal(tw_budget_choose(pieces, PIECES, 2, 95), 90); /* three of the six */
    assert_int_equal(pieces[2].rung, 1);
    assert_int_equal(pieces[3].rung, 0);
}

TEST(out_of_reach_is_the_smallest_of_all) {
    struct tw_budget_piece pieces[2] = {{.error = {1, 2, 3}, .bytes = {30, 20, 10}},
                                        {.error = {0, 0, 0}, .bytes = {7, 5, 6}}};
    assert_int_equal(tw_budget_choose(pieces, 2, 3, 14), 15);
    assert_int_equal(pieces[0].rung, 2);
    assert_int_equal(pieces[1].rung, 1);
    assert_int_equal(tw_budget_choose(pieces, 0, 3, 0), 0);
    assert_int_equal(tw_budget_choose(pieces, 2, 3, 1000),
                     35); /* no byte is spent without reducing the error */
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
