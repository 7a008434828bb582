/* Tests which members move far more of the run clock than others, as decided records count them. */
#include <math.h>
#include <stdbool.h>

#include "tests/test.h"

#include "daemon/api/ledger.h"

enum { ROUNDS = 40 };

static struct tw_clock_shares shares;
static struct tw_record tip;

static struct tw_id id_of(uint32_t node) {
    return (struct tw_id){{0xa0, (uint8_t)node}};
}

static void begin(uint32_t count) {
    memset(&shares, 0, sizeof(shares));
    memset(&tip, 0, sizeof(tip));
    tip.lineage.bytes[0] = 1;
    tip.next.count = count;
    for (uint32_t i = 0; i < count; i++)
        tip.next.members[i] = (struct tw_member){.id = id_of(i), .weight = 1};
    tw_clock_shares_note(&shares, &tip);
}

/* Notes rounds to which all members contribute: member 0 claims `first` tokens, the others 100. */
static void note_rounds(uint32_t rounds, uint64_t first) {
    while (rounds-- > 0) {
        struct tw_record record = {.lineage = tip.lineage,
                                   .parent = tw_record_digest(&tip),
                                   .round = tip.round + 1,
                                   .next = tip.next,
                                   .contributors_count = tip.next.count};
        for (uint32_t i = 0; i < tip.next.count; i++)
            record.contributors[i] =
                (struct tw_contributor){.member_idx = i, .tokens = i == 0 ? first : 100};
        record.clock_tokens = tip.clock_tokens + tw_record_tokens(&record, &tip);
        tip = record;
        tw_clock_shares_note(&shares, &tip);
    }
}

static bool is_high(uint32_t node) {
    const struct tw_id id = id_of(node);
    return tw_clock_share_is_high(&shares, &id);
}

static double share_of(uint32_t node) {
    const struct tw_id id = id_of(node);
    return tw_clock_share(&shares, &id);
}

TEST(equal_members_are_not_named) {
    for (uint32_t count = 1; count <= 16; count++) {
        begin(count);
        assert_true(isnan(share_of(0)));
        note_rounds(ROUNDS, 120);
        for (uint32_t i = 0; i < count; i++) assert_false(is_high(i));
        if (count > 1) assert_true(fabs(share_of(1) - 1 / (count + .2)) < 1e-6);
    }
}

/* The clock counts a claim up to 4 times the median, so its share stays below its claims. */
TEST(member_that_claims_all_tokens_is_named) {
    begin(8);
    note_rounds(ROUNDS, UINT64_C(1) << 40);
    assert_true(is_high(0));
    assert_true(fabs(share_of(0) - 4. / 11) < 1e-6);
    for (uint32_t i = 1; i < 8; i++) assert_false(is_high(i));
    begin(4); /* too few trainers to tell */
    note_rounds(ROUNDS, UINT64_C(1) << 40);
    assert_true(share_of(0) > 0.5);
    assert_false(is_high(0));
}

TEST(old_rounds_count_less_and_less) {
    begin(6);
    note_rounds(ROUNDS, 400);
    assert_true(is_high(0));
    note_rounds(4 * TW_CLOCK_ROUNDS, 100);
    assert_false(is_high(0));
    note_rounds(8 * TW_CLOCK_ROUNDS, 0); /* a member that left has no row in the end */
    assert_true(share_of(0) < 1e-3);
    assert_int_equal(shares.count, 5);
}

TEST(record_after_a_gap_is_not_counted) {
    begin(5);
    note_rounds(3, 100);
    const double before = share_of(0);
    struct tw_record late = tip;
    late.round += 5;
    late.parent.bytes[0] ^= 1;
    late.contributors[0].tokens = 400;
    tw_clock_shares_note(&shares, &late);
    assert_true(fabs(share_of(0) - before) < 1e-9);
    tip = late; /* from here on they are counted again */
    note_rounds(1, 400);
    assert_true(share_of(0) > before);
    late.lineage.bytes[0] ^= 2; /* another lineage begins anew */
    tw_clock_shares_note(&shares, &late);
    assert_true(isnan(share_of(0)));
}
