/* test_sample.c - which tokens are drawn, and how often. */
#include "tests/test.h"
#include "worker/engine/generate.h"

#include <math.h>

enum { VOCAB = 8, DRAWS = 40000 };

/* The probabilities 0.4, 0.3, 0.1, 0.1, 0.05, 0.03, 0.015 and 0.005, in another order. */
static const double SHARES[VOCAB] = {0.1, 0.3, 0.005, 0.4, 0.03, 0.1, 0.015, 0.05};

static void shares_to_logits(float *logits) {
    for (unsigned i = 0; i < VOCAB; i++) logits[i] = (float)log(SHARES[i]) + 3.0f;
}

static void count_draws(struct tw_sample_config config, unsigned *counts) {
    struct tw_candidate candidates[VOCAB];
    struct tw_rng rng;
    float logits[VOCAB];
    shares_to_logits(logits);
    tw_rng_seed(&rng, 7);
    for (unsigned i = 0; i < VOCAB; i++) counts[i] = 0;
    for (unsigned i = 0; i < DRAWS; i++) {
        counts[tw_sample(logits, VOCAB, &config, candidates, &rng)]++;
    }
}

/* Asserts that counts are within five standard deviations of a binomial distribution, and 0 for
 * probability 0. */
static void assert_shares(const unsigned *counts, const double *wanted) {
    for (unsigned i = 0; i < VOCAB; i++) {
        const double mean = wanted[i] * DRAWS, spread = sqrt(mean * (1 - wanted[i]));
        if (wanted[i] == 0) assert_int_equal(counts[i], 0);
        if (fabs(counts[i] - mean) > 5 * spread) {
            fail_msg("token %u came %u times, not about %.0f", i, counts[i], mean);
        }
    }
}

TEST(plain_sampling_follows_the_softmax) {
    unsigned counts[VOCAB];
    count_draws((struct tw_sample_config){.temperature = 1}, counts);
    assert_shares(counts, SHARES);
}

TEST(heat_flattens) {
    unsigned counts[VOCAB];
    double wanted[VOCAB], sum = 0;
    for (unsigned i = 0; i < VOCAB; i++) sum += sqrt(SHARES[i]);
    for (unsigned i = 0; i < VOCAB; i++) wanted[i] = sqrt(SHARES[i]) / sum;
    count_draws((struct tw_sample_config){.temperature = 2}, counts);
    assert_shares(counts, wanted);
}

TEST(only_the_k_likeliest_are_drawn) {
    unsigned counts[VOCAB];
    /* Of the two tokens with probability 0.1, the one with the smaller id is drawn. */
    const double wanted[VOCAB] = {0.1 / 0.8, 0.3 / 0.8, 0, 0.4 / 0.8, 0, 0, 0, 0};
    count_draws((struct tw_sample_config){.temperature = 1, .top_k = 3}, counts);
    assert_shares(counts, wanted);
    count_draws((struct tw_sample_config){.temperature = 1, .top_k = 100}, counts);
    assert_shares(counts, SHARES);
}

TEST(the_nucleus_is_the_fewest_that_reach_p) {
    unsigned counts[VOCAB];
    const double two[VOCAB] = {0, 0.3 / 0.7, 0, 0.4 / 0.7, 0, 0, 0, 0};
    const double three[VOCAB] = {0.1 / 0.8, 0.3 / 0.8, 0, 0.4 / 0.8, 0, 0, 0, 0};
    const double one[VOCAB] = {0, 0, 0, 1, 0, 0, 0, 0};
    count_draws((struct tw_sample_config){.temperature = 1, .top_p = 0.65f}, counts);
    assert_shares(counts, two);
    count_draws((struct tw_sample_config){.temperature = 1, .top_p = 0.75f}, counts);
    assert_shares(counts, three);
    count_draws((struct tw_sample_config){.temperature = 1, .top_p = 0.001f}, counts);
    assert_shares(counts, one);
    count_draws((struct tw_sample_config){.temperature = 1, .top_p = 1}, counts);
    assert_shares(counts, SHARES);
    /* The four likeliest tokens add up to 0.9; 0.7 of that is 0.63, which two tokens reach. */
    count_draws((struct tw_sample_config){.temperature = 1, .top_k = 4, .top_p = 0.7f}, counts);
    assert_shares(counts, two);
}

TEST(zero_heat_takes_the_first_of_the_likeliest) {
    struct tw_candidate candidates[VOCAB];
    struct tw_rng rng, before;
    const float logits[VOCAB] = {0, 1, 5, 2, 5, 5, -1, 0};
    tw_rng_seed(&rng, 1);
    before = rng;
    const struct tw_sample_config greedy = {.temperature = 0};
    assert_int_equal(tw_sample(logits, VOCAB, &greedy, candidates, &rng), 2);
    assert_memory_equal(&rng, &before, sizeof(rng));
}

TEST(recent_tokens_become_less_likely_once) {
    float logits[VOCAB] = {4, -4, 4, 0, 0, 0, 0, 0};
    const uint32_t recent[] = {0, 1, 0, 0, 1000};
    tw_sample_penalise(logits, VOCAB, recent, 5, 2.0f);
    assert_true(logits[0] == 2.0f && logits[1] == -8.0f && logits[2] == 4.0f);
    tw_sample_penalise(logits, VOCAB, recent, 5, 1.0f);
    tw_sample_penalise(logits, VOCAB, recent, 5, 0.0f);
    assert_true(logits[0] == 2.0f);
}
