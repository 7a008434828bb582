/* test_penalty.c - penalties double, expire, and make room for new ones. */
#include "sync/core/penalty.h"
#include "tests/test.h"

enum { ROWS = 3 };

#define MINUTE_US UINT64_C(60000000)

static struct tw_penalty rows[ROWS];

static struct tw_id id_of(uint8_t number) {
    return (struct tw_id){.bytes = {number}};
}

static uint64_t punish(uint8_t number, enum tw_penalty_kind kind, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    tw_penalty_add(tw_penalty_take(rows, ROWS, &id), kind, now_us);
    return tw_penalty_left_us(rows, ROWS, &id, now_us);
}

static int clear(void **state) {
    for (unsigned i = 0; i < ROWS; i++) rows[i] = (struct tw_penalty){.count = 0};
    return 0;
}

#define FACT(name) TEST_IN(clear, NULL, name)

FACT(penalty_doubles_up_to_its_maximum) {
    uint64_t now_us = 7;
    for (unsigned offence = 0; offence < 10; offence++) {
        const uint64_t doublings = offence < 6 ? offence : 6;
        const uint64_t left_us = punish(1, TW_PENALTY_STRIKE, now_us);
        assert_true(left_us == 10 * MINUTE_US << doublings);
        now_us += left_us + 1000 * MINUTE_US; /* a strike is never forgotten */
    }
}

FACT(first_stall_is_an_accident) {
    assert_true(punish(1, TW_PENALTY_STALL_OWNER, 7) == 0);
    assert_true(punish(1, TW_PENALTY_STALL_OWNER, 7) == MINUTE_US);
    assert_true(punish(1, TW_PENALTY_STALL_OWNER, 7) == 2 * MINUTE_US);
}

FACT(stalls_are_forgotten) {
    punish(1, TW_PENALTY_STALL_PROPOSER, 7);
    assert_true(punish(1, TW_PENALTY_STALL_PROPOSER, 7) == MINUTE_US);
    const uint64_t end_us = 7 + MINUTE_US;
    assert_true(punish(1, TW_PENALTY_STALL_PROPOSER, end_us + 10 * MINUTE_US) == 0);
    assert_true(punish(1, TW_PENALTY_STALL_PROPOSER, end_us + 10 * MINUTE_US) == MINUTE_US);
}

FACT(unmerged_is_only_counted) {
    const struct tw_id id = id_of(1);
    assert_true(punish(1, TW_PENALTY_UNMERGED, 7) == 0);
    assert_true(punish(1, TW_PENALTY_UNMERGED, 8) == 0);
    assert_int_equal(tw_penalty_find(rows, ROWS, &id)->count, 2);
}

FACT(full_table_drops_the_penalty_that_ends_first) {
    punish(1, TW_PENALTY_STRIKE, 300);
    punish(2, TW_PENALTY_STRIKE, 100);
    punish(3, TW_PENALTY_STRIKE, 200);
    punish(4, TW_PENALTY_STRIKE, 400);
    const struct tw_id dropped = id_of(2);
    assert_null(tw_penalty_find(rows, ROWS, &dropped));
    for (uint8_t number = 1; number <= 4; number++) {
        const struct tw_id id = id_of(number);
        if (number != 2) assert_int_equal(tw_penalty_find(rows, ROWS, &id)->count, 1);
    }
}

FACT(full_table_drops_the_fewest_offences_where_none_has_an_end) {
    for (uint8_t number = 1; number <= 3; number++) {
        for (unsigned times = 0; times < (number == 2 ? 1 : 3); times++)
            punish(number, TW_PENALTY_UNMERGED, 7);
    }
    punish(4, TW_PENALTY_UNMERGED, 7);
    const struct tw_id dropped = id_of(2);
    assert_null(tw_penalty_find(rows, ROWS, &dropped));
}
