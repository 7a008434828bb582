/* test_merge_health.c - series of losses that nodes of real runs measured. Healthy nodes raise
 * no finding. Faulty nodes raise one within two evaluations if several cycles lie between
 * evaluations. */
#include "daemon/api/health.h"

#include <math.h>

#include "tests/test.h"

struct point {
    float live, anchor;
};

struct look {
    uint64_t rounds; /* rounds merged so far, over all fragments of the anchor */
    struct point losses;
};

static void assert_no_finding(const struct look *looks, size_t count, uint32_t fragments) {
    struct tw_merge_health health = {.is_bad = false};
    for (size_t i = 0; i < count; i++)
        assert_false(tw_merge_health_note(&health, looks[i].losses.live, looks[i].losses.anchor,
                                          looks[i].rounds, fragments));
}

/* Evaluates a series of losses, one evaluation every `rounds` rounds of 3 fragments. Returns the
 * number of the evaluation at which the finding began, or 0 if it never did. */
static unsigned first_finding(const struct point *points, unsigned count, unsigned rounds) {
    struct tw_merge_health health = {.is_bad = false};
    for (unsigned i = 0; i < count; i++) {
        const bool is_changed = tw_merge_health_note(&health, points[i].live, points[i].anchor,
                                                     (uint64_t)i * rounds, 3);
        assert_int_equal(is_changed, health.is_bad);
        if (is_changed) return i + 1;
    }
    return 0;
}

/* Losses (live, anchor) every 100 steps of a run that merges well. They were measured at a node
 * behind NAT, in a group of one public node and three behind NAT. */
TEST(healthy_run_raises_nothing) {
    static const struct point points[] = {
        {5.54f, 5.54f}, {2.64f, 3.05f}, {2.41f, 2.38f}, {2.32f, 2.31f}, {2.22f, 2.14f},
        {2.06f, 2.03f}, {1.97f, 1.94f}, {1.92f, 1.88f}, {1.87f, 1.83f}, {1.82f, 1.79f},
        {1.77f, 1.77f}, {1.75f, 1.75f}, {1.74f, 1.74f}};
    assert_int_equal(first_finding(points, 13, 7), 0);
}

/* With long periods the anchor lags by a period and catches up in steps. */
TEST(anchor_that_lags_and_follows_raises_nothing) {
    static const struct point points[] = {{5.54f, 5.54f}, {3.00f, 5.54f}, {2.60f, 3.40f},
                                          {2.40f, 3.00f}, {2.30f, 2.70f}, {2.20f, 2.50f},
                                          {2.15f, 2.35f}, {2.10f, 2.25f}, {2.08f, 2.19f}};
    assert_int_equal(first_finding(points, 9, 3), 0);
    /* a third as many merges between evaluations */
    assert_int_equal(first_finding(points, 9, 1), 0);
}

/* Measured at a slow node of three with preset sparseloco and a small model. There is one
 * fragment, a round every one or two evaluations, and an anchor whose loss falls in leaps. */
TEST(anchor_that_follows_in_leaps_raises_nothing) {
    static const struct look looks[] = {
        {0, {5.539f, 5.539f}},  {1, {2.685f, 5.131f}},  {3, {2.559f, 4.159f}},
        {3, {2.461f, 4.159f}},  {5, {2.424f, 3.433f}},  {6, {2.371f, 3.239f}},
        {7, {2.334f, 3.096f}},  {9, {2.315f, 2.980f}},  {10, {2.290f, 2.968f}},
        {11, {2.263f, 2.923f}}, {12, {2.243f, 2.574f}}, {13, {2.210f, 2.473f}},
        {15, {2.157f, 2.411f}}, {15, {2.136f, 2.411f}}, {16, {2.126f, 2.348f}},
        {18, {2.111f, 2.324f}}, {19, {2.090f, 2.310f}}, {20, {2.083f, 2.263f}},
        {22, {2.075f, 2.209f}}, {23, {2.032f, 2.171f}}, {24, {2.020f, 2.136f}},
        {25, {2.027f, 2.123f}}, {26, {2.006f, 2.123f}}, {28, {2.008f, 2.091f}}};
    assert_no_finding(looks, sizeof(looks) / sizeof(looks[0]), 1);
}

/* The same node, if its anchor had almost stopped improving. After enough cycles without
 * progress, the finding begins. */
TEST(anchor_that_stands_is_found) {
    static const struct point points[] = {{5.54f, 5.54f}, {2.40f, 3.40f}, {2.35f, 3.10f},
                                          {2.30f, 3.05f}, {2.28f, 3.04f}, {2.26f, 3.03f},
                                          {2.25f, 3.02f}, {2.24f, 3.01f}, {2.23f, 3.00f}};
    assert_int_equal(first_finding(points, 9, 12), 5); /* four cycles between evaluations */
    assert_int_equal(first_finding(points, 9, 6), 6);
    assert_int_equal(first_finding(points, 9, 3), 9); /* the signs settle */
}

/* Measured at two nodes behind NAT with broken merging: the anchor's loss fell, then stalled,
 * then rose. */
TEST(anchor_that_rises_is_found_within_two_evaluations) {
    static const struct point points[] = {{5.54f, 5.54f},  {2.70f, 3.10f}, {2.45f, 2.60f},
                                          {2.30f, 2.40f},  {2.15f, 2.30f}, {2.05f, 2.26f},
                                          {1.95f, 2.252f}, {1.90f, 2.27f}, {1.859f, 2.29f}};
    const unsigned found = first_finding(points, 9, 7);
    assert_in_range(found, 6, 8);
}

/* The anchor of a healthy run was poisoned between two evaluations. */
TEST(poisoned_anchor_is_found_within_two_evaluations) {
    static const struct point points[] = {{5.54f, 5.54f}, {2.20f, 2.19f}, {2.10f, 2.09f},
                                          {2.05f, 4.80f}, {2.02f, 4.70f}, {2.00f, 4.60f}};
    assert_int_equal(first_finding(points, 6, 6), 5);
    static const struct point broken[] = {
        {5.54f, 5.54f}, {2.20f, 2.19f}, {2.10f, NAN}, {2.05f, NAN}};
    assert_int_equal(first_finding(broken, 4, 6), 4);
}

TEST(finding_ends_when_the_anchor_is_as_good_again) {
    struct tw_merge_health health = {.is_bad = false};
    (void)tw_merge_health_note(&health, 2.0f, 2.0f, 3, 3);
    assert_false(tw_merge_health_note(&health, 1.9f, 2.5f, 6, 3));
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 12, 3));
    /* no full cycle of merges since */
    assert_false(tw_merge_health_note(&health, 1.8f, 2.5f, 13, 3));
    assert_true(health.is_bad);
    /* better, but still too far from the live loss */
    assert_false(tw_merge_health_note(&health, 1.8f, 2.1f, 15, 3));
    assert_true(health.is_bad);
    /* ends without a full cycle of merges */
    assert_true(tw_merge_health_note(&health, 1.8f, 1.82f, 16, 3));
    assert_false(health.is_bad);
}

TEST(finding_ends_with_the_lineage) {
    struct tw_merge_health health = {.is_bad = false};
    (void)tw_merge_health_note(&health, 2.0f, 2.0f, 30, 3);
    (void)tw_merge_health_note(&health, 1.9f, 2.5f, 36, 3);
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 42, 3));
    /* fewer rounds: another lineage */
    assert_true(tw_merge_health_note(&health, 1.8f, 2.5f, 2, 3));
    assert_false(health.is_bad);
    assert_false(tw_merge_health_note(&health, 1.8f, 2.5f, 5, 3));
    assert_false(health.is_bad);
}

/* Measured at the first of two nodes, with two fragments. The second node returned after 13 s in
 * which nothing was merged, and the momentum of its large step made the anchor overshoot. */
TEST(anchor_that_momentum_takes_too_far_raises_nothing) {
    static const struct look looks[] = {
        {40, {1.811f, 1.766f}}, {42, {1.789f, 1.763f}}, {42, {1.624f, 1.763f}},
        {44, {1.620f, 1.795f}}, {46, {1.630f, 1.690f}}, {48, {1.625f, 1.715f}},
        {50, {1.650f, 1.879f}}, {52, {1.677f, 1.833f}}, {54, {1.663f, 1.679f}},
        {58, {1.620f, 1.633f}}, {60, {1.611f, 1.610f}}};
    assert_no_finding(looks, sizeof(looks) / sizeof(looks[0]), 2);
}

/* A node that trains alone has no anchor merged with others, and a NaN live loss is no evidence. */
TEST(node_without_rounds_is_not_judged) {
    struct tw_merge_health health = {.is_bad = false};
    for (unsigned i = 0; i < 20; i++) {
        assert_false(tw_merge_health_note(&health, 2.0f, 5.5f, 0, 3));
        assert_false(tw_merge_health_note(&health, NAN, 5.5f, 3 * i, 3));
    }
    assert_false(health.is_bad);
}

TEST(noise_near_zero_is_no_sign) {
    struct tw_merge_health health = {.is_bad = false};
    for (uint64_t i = 1; i < 20; i++)
        assert_false(tw_merge_health_note(&health, 0.03f, 0.06f + 0.001f * (float)i, 3 * i, 3));
}
