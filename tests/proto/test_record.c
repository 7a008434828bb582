/* Tests of proto/record.c. */
#include "tests/test.h"

#include "base/bytes.h"
#include "tests/proto/sample.h"

enum { SEED = 20311108 };

static struct tw_rng rng;
static struct tw_roster roster;
static struct tw_record sample, back;
static struct tw_error err;
static uint8_t bytes[TW_RECORD_BYTES_MAX];

static int seed(void **state) {
    tw_rng_seed(&rng, SEED);
    return 0;
}

#define FACT(name) TEST_IN(seed, NULL, name)

static void draw(uint32_t members_count) {
    tw_sample_roster(&rng, &roster, members_count);
    tw_sample_close(&rng, &sample, &roster);
}

FACT(manifest_survives_its_bytes) {
    for (unsigned trial = 0; trial < 2000; trial++) {
        draw(1 + trial % TW_MEMBERS_MAX);
        const size_t size = tw_record_encode(&sample, bytes);
        assert_int_equal(tw_record_decode(bytes, size, &back, &err), TW_OK);
        assert_memory_equal(&sample, &back, sizeof(sample));
    }
}

FACT(largest_manifest_fits_its_bound_exactly) {
    tw_sample_close_full(&rng, &sample);
    assert_int_equal(tw_record_encode(&sample, bytes), TW_RECORD_BYTES_MAX);
    assert_int_equal(tw_record_decode(bytes, TW_RECORD_BYTES_MAX, &back, &err), TW_OK);
    assert_memory_equal(&sample, &back, sizeof(sample));
}

FACT(any_other_size_is_refused) {
    draw(5);
    const size_t size = tw_record_encode(&sample, bytes);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(tw_record_decode(bytes, cut, &back, &err), TW_PROTO);
    assert_int_equal(tw_record_decode(NULL, 0, &back, &err), TW_PROTO);
    bytes[size] = 0;
    assert_int_equal(tw_record_decode(bytes, size + 1, &back, &err), TW_PROTO);
    assert_int_equal(tw_record_decode(bytes, TW_RECORD_BYTES_MAX + 1, &back, &err), TW_PROTO);
}

FACT(changed_bytes_are_refused_or_mean_something_else) {
    unsigned refused = 0, accepted = 0;
    draw(5);
    const size_t size = tw_record_encode(&sample, bytes);
    const struct tw_id digest = tw_record_digest(&sample);
    for (size_t i = 0; i < size * 8; i++) {
        uint8_t again[TW_RECORD_BYTES_MAX];
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
        if (tw_record_decode(bytes, size, &back, &err) == TW_OK) {
            const struct tw_id other = tw_record_digest(&back);
            assert_false(tw_id_equal(&digest, &other));
            assert_int_equal(tw_record_encode(&back, again), size);
            assert_memory_equal(again, bytes, size);
            accepted++;
        } else {
            refused++;
        }
        bytes[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    assert_true(refused > 100);
    assert_true(accepted > 100);
}

/* Spoils a valid record with `spoil`, and expects that the check refuses it. */
static void expect_refused(void (*spoil)(struct tw_record *record)) {
    tw_sample_close_full(&rng, &sample);
    assert_int_equal(tw_record_check(&sample, &err), TW_OK);
    spoil(&sample);
    assert_int_equal(tw_record_check(&sample, &err), TW_PROTO);
}

static void no_lineage(struct tw_record *c) {
    memset(&c->lineage, 0, sizeof(c->lineage));
}
static void large_fragment(struct tw_record *c) {
    c->fragment = TW_FRAGMENTS_MAX;
}
static void too_many_contributors(struct tw_record *c) {
    c->contributors_count = TW_MEMBERS_MAX + 1;
}
static void contributor_twice(struct tw_record *c) {
    c->contributors[3].member_idx = c->contributors[2].member_idx;
}
static void contributor_outside(struct tw_record *c) {
    c->contributors[TW_MEMBERS_MAX - 1].member_idx = TW_MEMBERS_MAX;
}
static void too_many_parts(struct tw_record *c) {
    c->parts_count = TW_PARTS_MAX + 1;
}
static void owners_out_of_order(struct tw_record *c) {
    c->parts[1].owner_idx = c->parts[0].owner_idx;
}
static void owner_outside(struct tw_record *c) {
    c->parts[TW_PARTS_MAX - 1].owner_idx = TW_MEMBERS_MAX;
}
static void absent_with_result(struct tw_record *c) {
    c->parts[0].bytes = 0;
    c->parts[0].contributors = 0;
}
static void absent_with_contributors(struct tw_record *c) {
    c->parts[0].bytes = 0;
    memset(&c->parts[0].result, 0, sizeof(c->parts[0].result));
}
static void whole_without_result(struct tw_record *c) {
    memset(&c->parts[0].result, 0, sizeof(c->parts[0].result));
}
static void whole_of_nobody(struct tw_record *c) {
    c->parts[0].contributors = 0;
}
static void large_part(struct tw_record *c) {
    c->parts[0].bytes = (uint32_t)TW_PAYLOAD_BYTES_MAX + 1;
}
static void merged_but_not_listed(struct tw_record *c) {
    c->contributors_count--;
}
static void empty_next(struct tw_record *c) {
    c->next.count = 0;
}
static void large_next(struct tw_record *c) {
    c->next.count = TW_MEMBERS_MAX + 1;
}
static void next_unsorted(struct tw_record *c) {
    c->next.members[1].id = c->next.members[0].id;
}
static void next_skips_a_number(struct tw_record *c) {
    c->next.number = c->roster_number + 2;
}
static void next_goes_back(struct tw_record *c) {
    c->next.number = c->roster_number - 1;
}
static void next_without_a_vote(struct tw_record *c) {
    for (uint32_t i = 0; i < c->next.count; i++) c->next.members[i].lacks_vote = true;
}
static void large_weight(struct tw_record *c) {
    c->next.members[1].weight = (uint32_t)TW_WEIGHT_MAX + 1;
}

FACT(every_broken_rule_is_refused) {
    void (*const spoils[])(struct tw_record *) = {
        no_lineage,
        large_fragment,
        too_many_contributors,
        contributor_twice,
        contributor_outside,
        too_many_parts,
        owners_out_of_order,
        owner_outside,
        absent_with_result,
        absent_with_contributors,
        whole_without_result,
        whole_of_nobody,
        large_part,
        merged_but_not_listed,
        empty_next,
        large_next,
        next_unsorted,
        next_skips_a_number,
        next_goes_back,
        next_without_a_vote,
        large_weight,
    };
    for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) expect_refused(spoils[i]);
}

FACT(contribution_root_depends_on_every_hash_and_their_order) {
    struct tw_id hashes[3] = {tw_sample_id(&rng), tw_sample_id(&rng), tw_sample_id(&rng)};
    const struct tw_id root = tw_contribution_root(hashes, 3);
    const struct tw_id shorter = tw_contribution_root(hashes, 2);
    assert_false(tw_id_equal(&root, &shorter));
    const struct tw_id swap = hashes[0];
    hashes[0] = hashes[1];
    hashes[1] = swap;
    const struct tw_id swapped = tw_contribution_root(hashes, 3);
    assert_false(tw_id_equal(&root, &swapped));
}

/* Token counts of rows in any order, the median of the record before (0: there is none), and the
 * sum that the clock counts for them. */
FACT(clock_counts_a_row_four_medians_at_most) {
    static const struct {
        uint32_t count;
        uint64_t tokens[5], before, sum;
    } cases[] = {
        {0, {0}, 0, 0},
        {1, {1000}, 0, 1000}, /* no usual number */
        {1, {1000}, 50, 800}, /* one of several members, alone in its round */
        {1, {1000}, 500, 1000},
        {2, {10, 1000}, 0, 170},
        {2, {100, 1000}, 1, 1100},
        {3, {10, 1000, 10}, 0, 60},
        {3, {10, 10000, 40}, 0, 210},
        {4, {1000, 10, 12, 10}, 0, 72}, /* the lower median */
        {5, {40, 10, 10, 41, 10}, 0, 110},
        {3, {0, 1000, 0}, 0, 1000}, /* no usual number */
        {3, {0, 1000, 0}, 10, 160},
        {4, {UINT64_C(1) << 48, 5, 5, 5}, 0, 35},
        {2, {UINT64_MAX / 2, UINT64_MAX / 2}, 0, UINT64_MAX - 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tw_record record = {.contributors_count = cases[i].count};
        const struct tw_record tip = {.contributors_count = 1,
                                      .contributors = {{.tokens = cases[i].before}},
                                      .next.count = 5};
        for (uint32_t k = 0; k < cases[i].count; k++)
            record.contributors[k] =
                (struct tw_contributor){.member_idx = k, .tokens = cases[i].tokens[k]};
        assert_true(tw_record_tokens(&record, cases[i].before > 0 ? &tip : NULL) == cases[i].sum);
    }
    /* A founder was never measured by another, nor is a lineage by the one that it left. */
    struct tw_record alone = {.contributors_count = 1, .contributors = {{.tokens = 1000}}};
    struct tw_record tip = {
        .contributors_count = 1, .contributors = {{.tokens = 10}}, .next.count = 1};
    assert_true(tw_record_tokens(&alone, &tip) == 1000);
    tip.next.count = 2;
    alone.lineage.bytes[0] = 1;
    assert_true(tw_record_tokens(&alone, &tip) == 1000);
}

/* A member that merges alone again and again, and claims all tokens that there are: each round
 * counts twice the mean of a round. Once it counted 16 times the claim of the round before. */
FACT(lone_rounds_move_the_clock_by_little) {
    struct tw_record tip = {.contributors_count = 1, .contributors = {{.tokens = 800}}};
    struct tw_record lone = tip;
    tip.round = 99;
    tip.clock_tokens = 100 * 800; /* a hundred rounds */
    tip.next.count = 5;
    lone.contributors[0].tokens = UINT64_C(1) << 48;
    assert_true(tw_record_tokens(&lone, &tip) == 1600);
    for (uint32_t i = 0; i < 100; i++) {
        const uint64_t counted = tw_record_tokens(&lone, &tip);
        tip.contributors[0].tokens = lone.contributors[0].tokens;
        tip.clock_tokens += counted;
        tip.round++;
    }
    assert_in_range(tip.clock_tokens, 2 * 100 * 800, 4 * 100 * 800);
    /* After a round without contributions, too. */
    tip.contributors_count = 0;
    assert_true(tw_record_tokens(&lone, &tip) < 4 * 1600);
}

FACT(part_digest_depends_on_all_but_the_owner) {
    const struct tw_part part = {.bytes = 7, .result = tw_sample_id(&rng), .contributors = 5};
    const struct tw_id digest = tw_part_digest(&part);
    for (uint32_t i = 0; i < 4; i++) {
        struct tw_part other = part;
        if (i == 0) other.owner_idx++;
        if (i == 1) other.bytes++;
        if (i == 2) other.result.bytes[31] ^= 1;
        if (i == 3) other.contributors |= UINT64_C(1) << 63;
        const struct tw_id of_other = tw_part_digest(&other);
        assert_int_equal(tw_id_equal(&digest, &of_other), i == 0);
    }
}

FACT(roster_finds_members_and_no_others) {
    for (uint32_t count = 0; count <= TW_MEMBERS_MAX; count++) {
        tw_sample_roster(&rng, &roster, count);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(tw_roster_find(&roster, &roster.members[i].id), i);
        const struct tw_id stranger = tw_sample_id(&rng);
        assert_int_equal(tw_roster_find(&roster, &stranger), -1);
    }
}

FACT(owners_are_the_first_members_with_weight) {
    uint32_t owners[TW_PARTS_MAX];
    tw_sample_roster(&rng, &roster, TW_MEMBERS_MAX);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) roster.members[i].weight = i % 2;
    assert_int_equal(tw_roster_owners(&roster, owners), TW_PARTS_MAX);
    for (uint32_t k = 0; k < TW_PARTS_MAX; k++) assert_int_equal(owners[k], 2 * k + 1);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) roster.members[i].weight = 0;
    assert_int_equal(tw_roster_owners(&roster, owners), 0);
}

FACT(voters_are_the_members_that_do_not_lack_a_vote) {
    tw_sample_roster(&rng, &roster, TW_MEMBERS_MAX);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) roster.members[i].lacks_vote = i % 3 != 0;
    const uint64_t voters = tw_roster_voters(&roster);
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) assert_int_equal(voters >> i & 1, i % 3 == 0);
    roster.count = 0;
    assert_int_equal(tw_roster_voters(&roster), 0);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
