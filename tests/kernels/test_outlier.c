/* test_outlier.c - results far larger than earlier merges are detected; results of honest runs are
 * not. */
#include "kernels/outlier.h"

#include "tests/kernels/fill.h"

enum { N = 1000, ROUNDS = 40 };

static float values[N];

static struct tw_outlier_sizes sizes_of(float value, size_t begin, size_t n) {
    struct tw_outlier_sizes sizes = {.count = {0}};
    for (size_t i = 0; i < n; i++) values[i] = (i & 1) != 0 ? value : -value;
    tw_outlier_add(&sizes, values, begin, n, N);
    return sizes;
}

static void note_own(struct tw_outlier *outlier, float value) {
    const struct tw_outlier_sizes sizes = sizes_of(value, 0, N);
    tw_outlier_note_own(outlier, &sizes);
}

static void note_merge(struct tw_outlier *outlier, float value) {
    const struct tw_outlier_sizes sizes = sizes_of(value, 0, N);
    tw_outlier_note_merge(outlier, &sizes, N);
}

static bool check(struct tw_outlier *outlier, float value, size_t begin, size_t n) {
    const struct tw_outlier_sizes sizes = sizes_of(value, begin, n);
    return tw_outlier_check(outlier, &sizes) <= 1;
}

TEST(sizes_add_up_however_the_fragment_is_cut) {
    struct tw_outlier_sizes cut = sizes_of(2, 0, N);
    double count = 0, energy = 0;
    cut = (struct tw_outlier_sizes){.count = {0}};
    tw_outlier_add(&cut, values, 0, 333, N);
    tw_outlier_add(&cut, values + 333, 333, N - 333, N);
    for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        count += cut.count[b];
        energy += cut.energy[b];
        assert_true(cut.energy[b] == 4 * cut.count[b]);
    }
    assert_true(count == N);
    assert_true(energy == 4 * N);
    cut = (struct tw_outlier_sizes){.count = {0}};
    tw_outlier_add(&cut, values, 3, 1, 5); /* fewer elements than blocks */
    tw_outlier_add(&cut, values, 5, 0, 5);
    count = 0;
    for (unsigned b = 0; b < TW_OUTLIER_BLOCKS; b++) count += cut.count[b];
    assert_true(count == 1);
}

TEST(nothing_known_makes_no_outlier) {
    struct tw_outlier outlier = {.checked = 0};
    assert_true(check(&outlier, 1e30f, 0, N));
    note_own(&outlier, 0); /* all zero, so there is no scale */
    assert_true(check(&outlier, 1, 0, N));
}

TEST(own_size_and_merges_judge_together) {
    struct tw_outlier outlier = {.checked = 0};
    note_own(&outlier, 1);
    /* Its own Delta alone says little: it may just have joined. */
    assert_true(check(&outlier, 8, 100, 300));
    assert_false(check(&outlier, 8.1f, 100, 300));
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) note_merge(&outlier, 1);
    note_own(&outlier, 0.05f); /* a slow node: merges are larger than its own outer gradient */
    assert_true(check(&outlier, 4, 100, 300));
    assert_false(check(&outlier, 4.2f, 100, 300));
    note_own(&outlier, 50); /* a warm-up: everything is larger than before */
    assert_true(check(&outlier, 99, 100, 300));
    assert_false(check(&outlier, 101, 100, 300));
}

/* The limit of an extreme result is four times that of an outlier; doubt raises both. */
TEST(extreme_is_four_times_an_outlier) {
    struct tw_outlier outlier = {.checked = 0};
    struct tw_outlier_sizes sizes = sizes_of(1e30f, 0, N);
    assert_true(tw_outlier_check(&outlier, &sizes) == 0); /* nothing is known */
    outlier.checked = 0;
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) note_merge(&outlier, 1);
    sizes = sizes_of(15.9f, 0, N);
    const double below = tw_outlier_check(&outlier, &sizes);
    assert_true(below > 1 && below <= TW_OUTLIER_EXTREME);
    sizes = sizes_of(16.1f, 0, N);
    assert_true(tw_outlier_check(&outlier, &sizes) > TW_OUTLIER_EXTREME);
    note_own(&outlier, 0.5f); /* this node's own Delta was an outlier too, so all limits rise */
    sizes = sizes_of(63, 0, N);
    const double doubted = tw_outlier_check(&outlier, &sizes);
    assert_true(doubted > 1 && doubted <= TW_OUTLIER_EXTREME);
}

/* Contributions are compared with merges, or with the node's own outer gradient if that is larger.
 * Before the first merges they are not judged: a slow node's own outer gradient says little about a
 * fast node's. */
TEST(excess_is_relative_to_merged_blocks) {
    struct tw_outlier outlier = {.checked = 0};
    struct tw_outlier_sizes sizes = sizes_of(100, 0, N);
    note_own(&outlier, 1);
    assert_true(tw_outlier_excess(&outlier, &sizes) == 0);
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) {
        sizes = sizes_of(1, 0, N / 2);
        tw_outlier_note_merge(&outlier, &sizes, N);
    }
    sizes = sizes_of(100, N / 2 + 20, 300); /* elements that were never merged */
    assert_true(tw_outlier_excess(&outlier, &sizes) == 0);
    sizes = sizes_of(6, 100, 300);
    assert_true(fabs(tw_outlier_excess(&outlier, &sizes) - 1.5) < 1e-6);
    note_own(&outlier, 6);
    assert_true(fabs(tw_outlier_excess(&outlier, &sizes) - 0.5) < 1e-6);
    const struct tw_outlier before = outlier;
    (void)tw_outlier_excess(&outlier, &sizes);
    assert_memory_equal(&outlier, &before, sizeof(outlier));
}

TEST(few_outlier_merges_do_not_become_usual) {
    struct tw_outlier outlier = {.checked = 0};
    for (unsigned i = 0; i < TW_OUTLIER_KEPT; i++) note_merge(&outlier, i % 3 == 2 ? 100 : 1);
    assert_false(check(&outlier, 5, 0, N));
    assert_true(check(&outlier, 3, 0, N));
}

TEST(parts_differ_in_size_and_owners_change) {
    struct tw_outlier outlier = {.checked = 0};
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) {
        struct tw_outlier_sizes sizes = sizes_of(10, 0, N / 2);
        tw_outlier_note_merge(&outlier, &sizes, N); /* the other half is absent */
        sizes = sizes_of(0.1f, N / 2, N / 2);
        tw_outlier_note_merge(&outlier, &sizes, N);
    }
    assert_true(check(&outlier, 30, 0, N / 4));
    assert_false(check(&outlier, 30, N / 2, N / 4));
    assert_false(check(&outlier, 1, 3 * N / 4, N / 4));
}

/* If all results are larger than before, no node lies: the training has changed. After a few rounds
 * of doubt everything is accepted. */
TEST(no_node_refuses_for_ever) {
    struct tw_outlier outlier = {.checked = 0};
    unsigned rounds = 0;
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) note_merge(&outlier, 1e-3f);
    for (; rounds < ROUNDS; rounds++) {
        unsigned taken = 0;
        for (size_t k = 0; k < 4; k++) taken += check(&outlier, 1, k * N / 4, N / 4);
        if (taken == 4) break;
        note_own(&outlier, 1e-3f);
    }
    assert_in_range(rounds, 1, 6);
    note_own(&outlier, 1e-3f); /* all were accepted, so no doubt is left */
    assert_false(check(&outlier, 1, 0, N));
}

/* One liar among four owners gives no reason for doubt. */
TEST(liar_raises_no_doubt) {
    struct tw_outlier outlier = {.checked = 0};
    for (unsigned i = 0; i < TW_OUTLIER_LEAST; i++) note_merge(&outlier, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        assert_true(check(&outlier, 1, 0, N / 4));
        assert_true(check(&outlier, 1, N / 4, N / 4));
        assert_false(check(&outlier, 10, N / 2, N / 4));
        note_own(&outlier, 1);
    }
}
