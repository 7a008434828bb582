/* Tests which generation is kept after a model becomes worse. Times are in seconds. */
#include "tests/test.h"

#include <math.h>

#include "daemon/store/generations.h"

TEST(a_generation_is_good_once_a_later_model_was) {
    struct tw_generations g = {0};
    assert_false(tw_generations_is_older_good(&g, true)); /* nobody has looked */
    tw_generations_judge(&g, 3.0f, false, 10);
    /* both generations are older than this start */
    assert_true(tw_generations_is_older_good(&g, true));
    tw_generations_saved(&g, 20, false);
    tw_generations_saved(&g, 30, false);
    tw_generations_judge(&g, 2.9f, false, 40);
    /* The state evaluated at 40 may be as old as the evaluation at 10, so generation 20 is not
     * proved. */
    assert_false(tw_generations_is_older_good(&g, true));
    tw_generations_judge(&g, 2.9f, false, 50);
    assert_true(tw_generations_is_older_good(&g, true));
}

TEST(spoilt_generations_are_not_kept) {
    struct tw_generations g = {0};
    tw_generations_judge(&g, 3.0f, false, 10);
    tw_generations_judge(&g, 3.0f, false, 20);
    tw_generations_saved(&g, 30, false); /* the last good one: the model becomes worse at 31 */
    tw_generations_saved(&g, 32, false);
    tw_generations_judge(&g, 9.0f, false, 40);
    tw_generations_judge(&g, INFINITY, false, 50);
    assert_false(tw_generations_is_older_good(&g, true));
    tw_generations_saved(&g, 60, false);
    tw_generations_judge(&g, NAN, false, 65); /* not measured, so no evidence */
    assert_false(tw_generations_is_older_good(&g, true));
    tw_generations_judge(&g, 3.1f, true, 70); /* the loss is low again, but merging is harmful */
    tw_generations_judge(&g, 3.1f, true, 80);
    assert_false(tw_generations_is_older_good(&g, true));
    tw_generations_judge(&g, 3.1f, false, 90);
    /* The model recovered by itself. So generation 32 is good: it is older than the evaluation
     * at 80. */
    assert_true(tw_generations_is_older_good(&g, true));
}

TEST(a_wild_result_marks_all_before_it) {
    struct tw_generations g = {0};
    tw_generations_saved(&g, 10, false);
    tw_generations_saved(&g, 20, false);
    tw_generations_wild(&g, 25);
    assert_true(tw_generations_is_older_good(&g, true));
    tw_generations_saved(&g, 30, false);
    assert_true(tw_generations_is_older_good(&g, true)); /* of 20 */
    /* A second extreme result proves nothing about generations saved after the first. */
    tw_generations_wild(&g, 35);
    tw_generations_saved(&g, 40, false);
    assert_false(tw_generations_is_older_good(&g, true));
}

TEST(without_evaluations_all_is_well_until_a_wild_result) {
    struct tw_generations g = {0};
    tw_generations_saved(&g, 10, false);
    tw_generations_saved(&g, 20, false);
    assert_true(tw_generations_is_older_good(&g, false));
    tw_generations_wild(&g, 25);
    tw_generations_saved(&g, 30, false);
    tw_generations_saved(&g, 40, false);
    assert_false(tw_generations_is_older_good(&g, false));
}

/* Checkpoints every 2 minutes, evaluations every 10: the generation that an evaluation can judge
 * waits for it, and is then kept. */
TEST(rare_evaluations_still_find_a_good_generation) {
    struct tw_generations g = {0};
    const uint64_t minute = 60 * 1000000;
    uint32_t pinned = 0;
    tw_generations_judge(&g, 3.0f, false, minute);
    for (uint64_t m = 2; m <= 60; m += 2) {
        const bool is_older_kept = tw_generations_awaits_judgement(&g, true, m * minute);
        pinned += !is_older_kept && tw_generations_is_older_good(&g, true);
        tw_generations_saved(&g, m * minute, is_older_kept);
        if (m % 10 == 0) tw_generations_judge(&g, 2.9f, false, m * minute + 1);
    }
    assert_true(pinned >= 3);
    assert_false(tw_generations_awaits_judgement(&g, false, 62 * minute));
    assert_false(tw_generations_awaits_judgement(&g, true, 180 * minute)); /* nobody evaluates */
    tw_generations_wild(&g, 62 * minute);
    assert_false(tw_generations_awaits_judgement(&g, true, 63 * minute));
}

/* After a restart, the first loss of a bad model must not become the standard for later ones. */
TEST(restart_takes_no_spoilt_model_for_a_good_one) {
    struct tw_generations before = {0}, after = {0};
    tw_generations_judge(&before, 3.0f, false, 10);
    tw_generations_judge(&before, 9.0f, false, 20);
    tw_generations_resume(&after, before.least_e6, before.is_wild);
    tw_generations_judge(&after, 9.0f, false, 30);
    tw_generations_judge(&after, 9.0f, false, 40);
    assert_false(tw_generations_is_older_good(&after, true));
    tw_generations_judge(&after, 3.2f, false, 50);
    assert_true(tw_generations_is_older_good(&after, true));
    tw_generations_wild(&before, 30);
    after = (struct tw_generations){0};
    tw_generations_resume(&after, before.least_e6, before.is_wild);
    assert_false(tw_generations_is_older_good(&after, false));
}

TEST(any_loss_is_taken) {
    static const float losses[] = {0.0f, -1.0f, 1e-30f, 1e30f, INFINITY, -INFINITY, NAN};
    for (uint32_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        struct tw_generations g = {0};
        tw_generations_judge(&g, losses[i], false, 10);
        assert_int_equal(g.is_bad, i == 3 || i == 4);
        assert_true(g.is_bad || i == 6 || g.least_e6 == 1);
    }
    struct tw_generations g = {0};
    tw_generations_resume(&g, UINT64_MAX, false);
    tw_generations_judge(&g, 1.0f, false, 10);
    assert_int_equal(g.least_e6, 1000000);
}
