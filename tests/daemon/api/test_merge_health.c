/* test_merge_health.c - series of losses as nodes of real runs had them: healthy ones raise no
 * finding, and sick ones raise it within two evaluations. */
#include "daemon/api/merge_health.h"

#include <math.h>

#include "tests/test.h"

struct point {
    float live, anchor;
};

/* Looks at a series, one evaluation every `rounds` rounds of 3 fragments. Returns the number of the
 * evaluation at which the finding began; 0: never. */
static unsigned first_finding(const struct point *points, unsigned count, unsigned rounds) {
    struct tw_merge_health health = {.has_anchor = false};
    for (unsigned i = 0; i < count; i++) {
        const bool is_changed = tw_merge_health_note(&health, points[i].live, points[i].anchor,
                                                     (uint64_t)i * rounds, 3);
        assert_int_equal(is_changed, health.is_bad);
        if (is_changed) return i + 1;
    }
    return 0;
}

/* Losses (live, anchor) every 100 steps, measured at a node behind NAT in a group of one public
 * node and three behind NAT, which merges well. */
static void healthy_run_raises_nothing(void **state) {
    (void)state;
    static const struct point points[] = {
        {5.54f, 5.54f}, {2.64f, 3.05f}, {2.41f, 2.38f}, {2.32f, 2.31f}, {2.22f, 2.14f},
        {2.06f, 2.03f}, {1.97f, 1.94f}, {1.92f, 1.88f}, {1.87f, 1.83f}, {1.82f, 1.79f},
        {1.77f, 1.77f}, {1.75f, 1.75f}, {1.74f, 1.74f}};
    assert_int_equal(first_finding(points, 13, 7), 0);
}

/* Long periods: the anchor is a period behind and follows in steps. */
static void anchor_that_lags_and_follows_raises_nothing(void **state) {
    (void)state;
    static const struct point points[] = {{5.54f, 5.54f}, {3.00f, 5.54f}, {2.60f, 3.40f},
                                          {2.40f, 3.00f}, {2.30f, 2.70f}, {2.20f, 2.50f},
                                          {2.15f, 2.35f}, {2.10f, 2.25f}, {2.08f, 2.19f}};
    assert_int_equal(first_finding(points, 9, 3), 0);
    assert_int_equal(first_finding(points, 9, 1), 0); /* a third of the merges between two looks */
}

/* Measured at two nodes behind NAT with broken merging: the anchor fell, stood still and rose. */
static void anchor_that_rises_is_found_within_two_evaluations(void **state) {
    (void)state;
    static const struct point points[] = {{5.54f, 5.54f},  {2.70f, 3.10f}, {2.45f, 2.60f},
                                          {2.30f, 2.40f},  {2.15f, 2.30f}, {2.05f, 2.26f},
                                          {1.95f, 2.252f}, {1.90f, 2.27f}, {1.859f, 2.29f}};
    const unsigned found = first_finding(points, 9, 7);
    assert_in_range(found, 6, 8);
}

/* The anchor was poisoned between two evaluations of a run that was well. */
static void poisoned_anchor_is_found_within_two_evaluations(void **state) {
    (void)state;
    static const struct point points[] = {{5.54f, 5.54f}, {2.20f, 2.19f}, {2.10f, 2.09f},
                                          {2.05f, 4.80f}, {2.02f, 4.70f}, {2.00f, 4.60f}};
    assert_int_equal(first_finding(points, 6, 6), 5);
    static const struct point broken[] = {
        {5.54f, 5.54f}, {2.20f, 2.19f}, {2.10f, NAN}, {2.05f, NAN}};
    assert_int_equal(first_finding(broken, 4, 6), 4);
}

static void finding_ends_when_the_anchor_is_as_good_again(void **state) {
    (void)state;
    struct tw_merge_health health = {.has_anchor = false};
    (void)tw_merge_health_note(&health, 2.0f, 2.0f, 3, 3);
    assert_false(tw_merge_health_note(&health, 1.9f, 2.5f, 6, 3));
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 9, 3));
    assert_false(tw_merge_health_note(&health, 1.8f, 2.5f, 10, 3)); /* nothing merged since */
    assert_true(health.is_bad);
    assert_false(tw_merge_health_note(&health, 1.8f, 2.1f, 12, 3)); /* better, still too far */
    assert_true(health.is_bad);
    assert_true(tw_merge_health_note(&health, 1.8f, 1.82f, 13, 3)); /* ends without a merge */
    assert_false(health.is_bad);
}

static void finding_ends_with_the_lineage(void **state) {
    (void)state;
    struct tw_merge_health health = {.has_anchor = false};
    (void)tw_merge_health_note(&health, 2.0f, 2.0f, 30, 3);
    (void)tw_merge_health_note(&health, 1.9f, 2.5f, 36, 3);
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 39, 3));
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 2, 3)); /* fewer rounds: another one */
    assert_false(health.is_bad);
    assert_false(tw_merge_health_note(&health, 1.8f, 2.5f, 5, 3));
    assert_false(health.is_bad);
}

/* A node alone has no anchor of others, and a live loss that is no number says nothing. */
static void node_without_rounds_is_not_judged(void **state) {
    (void)state;
    struct tw_merge_health health = {.has_anchor = false};
    for (unsigned i = 0; i < 20; i++) {
        assert_false(tw_merge_health_note(&health, 2.0f, 5.5f, 0, 3));
        assert_false(tw_merge_health_note(&health, NAN, 5.5f, 3 * i, 3));
    }
    assert_false(health.is_bad);
}

static void noise_near_zero_is_no_sign(void **state) {
    (void)state;
    struct tw_merge_health health = {.has_anchor = false};
    for (uint64_t i = 1; i < 20; i++)
        assert_false(tw_merge_health_note(&health, 0.03f, 0.06f + 0.001f * (float)i, 3 * i, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_near_zero_is_no_sign),
        cmocka_unit_test(healthy_run_raises_nothing),
        cmocka_unit_test(anchor_that_lags_and_follows_raises_nothing),
        cmocka_unit_test(anchor_that_rises_is_found_within_two_evaluations),
        cmocka_unit_test(poisoned_anchor_is_found_within_two_evaluations),
        cmocka_unit_test(finding_ends_when_the_anchor_is_as_good_again),
        cmocka_unit_test(finding_ends_with_the_lineage),
        cmocka_unit_test(node_without_rounds_is_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
