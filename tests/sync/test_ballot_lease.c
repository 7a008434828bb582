/* test_ballot_lease.c - distrusted proposers, whose ballot lease nobody waits for
 * (vote/acceptor.c). The node is member 0 of seven, of which two may lie. */
#include "sync/vote/acceptor.h"

#include "sync/core/conduct.h"
#include "sync/core/state.h"
#include "tests/sync/lone_node.h"

enum { MEMBERS = 7 };

static int set_up_seven(void **state) {
    const int status = set_up(state);
    struct tw_roster *const roster = &start.tip.next;
    for (; roster->count < MEMBERS; roster->count++)
        roster->members[roster->count] =
            (struct tw_member){.id = id_of(roster->count), .nonce = 7 + roster->count};
    start_again();
    for (uint16_t peer = 3; peer < MEMBERS; peer++) {
        link_up(peer);
        say_status(peer, &start.lineage, start.rounds, start.tip.clock_tokens);
    }
    wait_us(SECONDS(1));
    return status;
}

#define FACT(name) TEST_IN(set_up_seven, tear_down, name)

static void stall(uint32_t member, uint32_t times) {
    const struct tw_id id = id_of(member);
    for (uint32_t i = 0; i < times; i++) tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &id);
}

FACT(no_more_are_distrusted_than_may_lie) {
    for (uint32_t member = 1; member < MEMBERS; member++) stall(member, 2);
    stall(3, 1);
    stall(5, 2);
    for (uint32_t member = 1; member < MEMBERS; member++)
        assert_int_equal(tw_lease_is_distrusted(node, member), member == 3 || member == 5);
}

/* Without this rule, liars that take turns hold a round up for as long as they like. */
FACT(distrusted_holder_holds_no_trusted_proposer_up) {
    stall(2, 2);
    stall(3, 2);
    tw_lease_take(node, 2, TW_MEMBERS_MAX);
    assert_false(tw_lease_is_others(node, 4));
    assert_true(tw_lease_is_others(node, 3));
    tw_lease_take(node, 4, 2 * TW_MEMBERS_MAX);
    assert_true(tw_lease_is_others(node, 5));
    assert_true(tw_lease_is_others(node, 3));
}

FACT(wait_of_distrusted_proposers_doubles) {
    static const uint64_t waits_s[] = {5, 10, 20, 40, 40};
    stall(2, 5);
    stall(3, 5);
    for (uint32_t i = 0; i < 5; i++) {
        const uint64_t since_us = node->now_us;
        node->lease.is_taken = false;
        node->now_us = since_us + SECONDS(waits_s[i]) - 1;
        assert_true(tw_lease_must_wait(node, 3, since_us));
        node->now_us++;
        assert_false(tw_lease_must_wait(node, 3, since_us));
        node->lease.is_taken = false;
        tw_lease_take(node, i % 2 == 0 ? 2 : 3, (i + 1) * TW_MEMBERS_MAX);
    }
    tw_lease_clear(&node->lease); /* the next round */
    assert_true(tw_lease_must_wait(node, 3, node->now_us));
    assert_false(tw_lease_must_wait(node, 3, node->now_us - SECONDS(5)));
}
