/* test_claim.c - peers that claim to be in a better lineage: which of them a node follows. */
#include "base/rng.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

static const struct tw_id run = {{0}};
static struct tw_id other;

/* Links peers [3, 3 + count), which report the other lineage at round 50 and this clock. */
static void meet_others(uint32_t count, uint64_t clock_tokens) {
    for (uint16_t peer = 3; peer < 3 + count; peer++) link_up(peer);
    for (uint16_t peer = 3; peer < 3 + count; peer++) say_status(peer, &other, 50, clock_tokens);
}

/* Returns a node's id. Ids of any number of nodes sort in the order of the nodes. */
static struct tw_id many_id_of(uint32_t member) {
    return member < 14 ? id_of(member) : (struct tw_id){{0xF0, (uint8_t)member}};
}

/* Returns the tip of the other lineage. Its roster is nodes [first, first + count). */
static struct tw_record *tip_of(uint32_t first, uint32_t count, uint64_t clock_tokens) {
    static struct tw_record tip;
    tip = start.tip;
    tip.lineage = other;
    tip.round = 49;
    tip.clock_tokens = clock_tokens;
    tip.next.count = count;
    for (uint32_t i = 0; i < count; i++)
        tip.next.members[i] =
            (struct tw_member){.id = many_id_of(first + i), .nonce = i + 1, .weight = 1};
    return &tip;
}

static bool was_sent(enum tw_action_kind kind, uint16_t peer) {
    for (uint32_t i = 0; i < seen_count; i++) {
        if (seen[i].action.kind == kind && seen[i].action.peer == peer) return true;
    }
    return false;
}

/* Lets time pass. Peers 1 and 2 stay in the node's lineage; peer 3 repeats its claim. */
static void repeat_claim_us(uint64_t for_us, uint64_t clock_tokens) {
    const uint64_t end_us = now_us + for_us;
    while (now_us < end_us) {
        now_us += SECONDS(1);
        const struct tw_node_view view = view_now();
        for (uint16_t peer = 1; peer < 3; peer++) {
            if (view.peers[peer].is_up) say_status(peer, &start.lineage, ROUNDS, 5000);
        }
        if (view.peers[3].is_up) say_status(3, &other, 50, clock_tokens);
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
}

/* Takes down the links to all other nodes. */
static void cut_off(void) {
    for (uint16_t peer = 1; peer < 3; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
}

/* The node restarts as the only member of its lineage. */
static void start_alone(void) {
    start.tip.next.count = 1;
    start_again();
    cut_off();
}

/* ---- lies ----------------------------------------------------------------------------------- */

static int begin(void **state) {
    other = name_of("other");
    return set_up(state);
}

#define FACT(name) TEST_IN(begin, tear_down, name)

/* One STATUS with a huge run clock must not take a member out of its group. */
FACT(clock_in_a_status_draws_nobody) {
    worker_up();
    meet_others(1, UINT64_C(1) << 40);
    assert_non_null(find_message(TW_MSG_LOG_GET, 3));
    repeat_claim_us(SECONDS(100), UINT64_C(1) << 40);
    assert_follows(&start.lineage);
    assert_int_equal(view_now().state, TW_STATE_MEMBER);
    start_alone(); /* a node without a group follows no claim */
    const struct tw_id own = view_now().lineage;
    link_up(3);
    repeat_claim_us(SECONDS(100), UINT64_C(1) << 40);
    assert_follows(&own);
}

FACT(one_signer_draws_no_group_of_three) {
    meet_others(1, UINT64_C(1) << 40);
    prove_lineage(3, tip_of(3, 1, UINT64_C(1) << 40));
    assert_follows(&start.lineage);
    assert_false(was_sent(TW_ACT_CLOSE, 3)); /* the claim is true: peer 3 is in that lineage */
}

/* Keys cost nothing: nodes that this node has never met do not outweigh its group. */
FACT(invented_signers_draw_no_group) {
    meet_others(1, UINT64_C(1) << 40);
    prove_lineage(3, tip_of(3, 60, UINT64_C(1) << 40));
    assert_follows(&start.lineage);
}

/* Signatures do not age. A linked node that reports another lineage lends no support by its
 * signature on an old record. */
FACT(old_signatures_of_linked_nodes_do_not_count) {
    const struct tw_id third = name_of("a third");
    for (uint16_t peer = 3; peer < 12; peer++) {
        link_up(peer);
        if (peer > 3) say_status(peer, &third, 0, 0);
    }
    say_status(3, &other, 50, 9000);
    prove_lineage(3, tip_of(3, 9, 9000));
    assert_follows(&start.lineage);
}

/* Peer 3 sends a proof that is wrong in one of several ways. */
FACT(false_proof_ends_the_link_and_the_questions) {
    enum { UNSIGNED, UNCHAINED, OUT_OF_TURN, CASES };
    for (int trial = 0; trial < CASES; trial++) {
        start_again();
        forget();
        meet_others(1, 9000);
        const struct tw_record *tip = tip_of(3, 1, 9000);
        struct tw_id parent = {{0}};
        for (uint64_t round = find_message(TW_MSG_LOG_GET, 3)->u.log_get.round; round < 46;
             round++) {
            struct tw_message *message = message_of(TW_MSG_COMMIT);
            struct tw_record *record = &message->u.commit.record;
            const bool is_last = round == 45;
            *record = *tip;
            record->round = round;
            record->fragment = (uint32_t)(round % FRAGMENTS);
            record->parent = parent;
            if (is_last && trial == UNCHAINED) record->parent = name_of("another record");
            if (is_last && trial == OUT_OF_TURN)
                record->fragment = (record->fragment + 1) % FRAGMENTS;
            signing_prove(&run, &tip->next, TW_VOTE_COMMIT, 1, record, &message->u.commit.proof);
            if (is_last && trial == UNSIGNED) message->u.commit.proof.signatures[0][0] ^= 1;
            parent = tw_record_digest(record);
            assert_false(was_sent(TW_ACT_CLOSE, 3));
            say_unsigned(3, message);
        }
        assert_true(was_sent(TW_ACT_CLOSE, 3));
        assert_int_equal(find_action(TW_ACT_REPORT)->u.report.kind, TW_REPORT_FORGED);
        assert_follows(&start.lineage);
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 3});
        forget();
        meet_others(1, 9000); /* the peer links again */
        repeat_claim_us(SECONDS(50), 9000);
        assert_null(find_message(TW_MSG_LOG_GET, 3));
        repeat_claim_us(SECONDS(15), 9000);
        assert_non_null(find_message(TW_MSG_LOG_GET, 3));
    }
}

/* A node that does not answer holds up no other claim for long. */
FACT(silent_claimant_does_not_hide_others) {
    meet_others(7, 9000);
    assert_non_null(find_message(TW_MSG_LOG_GET, 3));
    repeat_claim_us(SECONDS(3), 9000);
    assert_non_null(find_message(TW_MSG_LOG_GET, 4));
    prove_lineage(4, tip_of(3, 7, 9000));
    assert_follows(&other);
}

/* A lone node believes any clock that is proven. A lineage that then delivers no state holds the
 * node up for a while, and not again at once. */
FACT(lineage_that_gives_nothing_is_left) {
    start_alone();
    worker_up();
    meet_others(1, UINT64_C(1) << 40);
    prove_lineage(3, tip_of(3, 1, UINT64_C(1) << 40));
    assert_follows(&other);
    repeat_claim_us(SECONDS(239), UINT64_C(1) << 40);
    assert_follows(&other);
    repeat_claim_us(SECONDS(2), UINT64_C(1) << 40);
    const struct tw_id own = view_now().lineage;
    assert_memory_not_equal(&own, &other, sizeof(own));
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    forget();
    repeat_claim_us(SECONDS(50), UINT64_C(1) << 40);
    assert_null(find_message(TW_MSG_LOG_GET, 3));
}

/* Answers the newest LOG_GET to this peer with records of changing rosters. One in 16 is invalid.
 */
static void answer_somehow(struct tw_rng *rng, uint16_t peer) {
    const struct tw_message *asked = find_message(TW_MSG_LOG_GET, peer);
    if (asked == NULL) return;
    const struct tw_msg_log_get get = asked->u.log_get;
    other = get.lineage;
    struct tw_record before = *tip_of(1, 1 + (uint32_t)tw_rng_below(rng, 9), 5000);
    const uint64_t rounds = view_now().peers[peer].status.rounds;
    for (uint64_t round = get.round; round < rounds && round < get.round + 16; round++) {
        const bool is_spoilt = tw_rng_below(rng, 16) == 0, is_changed = tw_rng_below(rng, 4) == 0;
        struct tw_message *message = message_of(TW_MSG_COMMIT);
        struct tw_record *record = &message->u.commit.record;
        *record = before;
        if (is_changed)
            *record = *tip_of((uint32_t)tw_rng_below(rng, 3), 1 + (uint32_t)tw_rng_below(rng, 9),
                              tw_rng_below(rng, 9000));
        record->round = round;
        record->fragment = (uint32_t)(round % FRAGMENTS) + (is_spoilt && round % 2 != 0);
        record->parent = tw_record_digest(&before);
        record->roster_number = before.next.number;
        record->next.number = record->roster_number + is_changed;
        record->contributors_count = (uint32_t)tw_rng_below(rng, 3);
        for (uint32_t i = 0; i < record->contributors_count; i++)
            record->contributors[i].member_idx = i * (1 + 40 * (uint32_t)tw_rng_below(rng, 2));
        signing_prove(&run, is_spoilt ? &record->next : &before.next, TW_VOTE_COMMIT, 1, record,
                      &message->u.commit.proof);
        before = *record;
        say_unsigned(peer, message);
    }
}

/* Peers connect, disconnect, claim and answer at random. The node keeps working. */
FACT(claims_of_any_shape_break_nothing) {
    struct tw_rng rng;
    struct tw_id lineage_before = start.lineage;
    uint32_t changes = 0;
    tw_rng_seed(&rng, 11);
    for (uint32_t i = 0; i < 6000; i++) {
        const uint16_t peer = (uint16_t)(1 + tw_rng_below(&rng, 8));
        const uint64_t act = tw_rng_below(&rng, 16), lineage = tw_rng_below(&rng, 4);
        if (i % 100 == 0)
            start_again(); /* the node starts anew, or it would soon disbelieve all its peers */
        if (i % 100 == 0) worker_up();
        other = name_of(lineage == 0 ? "lineage" : lineage == 1 ? "another" : "a third");
        now_us += tw_rng_below(&rng, SECONDS(1));
        if (!view_now().peers[peer].is_up) {
            link_up(peer);
        } else if (act == 0) {
            feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
        } else if (act < 4) {
            say_status(peer, &other, tw_rng_below(&rng, 60), tw_rng_below(&rng, 9000));
        } else if (act == 4) {
            struct tw_message *message = message_of(TW_MSG_LOG_NONE);
            message->u.log_none = (struct tw_msg_log_none){other, tw_rng_below(&rng, 60), 60};
            say(peer, message);
        } else {
            answer_somehow(&rng, peer);
        }
        feed(&(struct tw_event){.kind = TW_EV_TICK});
        assert_true(tw_node_deadline(node) > now_us);
        const struct tw_id now = view_now().lineage;
        changes += !tw_id_equal(&now, &lineage_before);
        lineage_before = now;
    }
    assert_true(changes > 10);
}

/* ---- honest lineages ------------------------------------------------------------------------ */

/* After a partition, the smaller side follows the larger one, even at a smaller run clock. */
FACT(larger_group_is_followed_at_a_smaller_clock) {
    meet_others(9, 4000);
    prove_lineage(3, tip_of(3, 9, 4000));
    assert_follows(&other);
    assert_int_equal(view_now().rounds, 50);
    assert_int_equal(view_now().clock_tokens, 4000);
}

FACT(groups_of_about_one_size_go_by_the_clock) {
    for (uint32_t trial = 0; trial < 2; trial++) {
        start_again();
        meet_others(4, 4999 + 2 * trial);
        prove_lineage(3, tip_of(3, 4, 4999 + 2 * trial));
        assert_follows(trial == 0 ? &start.lineage : &other);
    }
}

/* A node behind NAT is linked to one node of a large group, and has trained longer than the group.
 */
FACT(lone_node_follows_a_group_by_one_link) {
    start_alone();
    meet_others(1, 100);
    prove_lineage(3, tip_of(3, 6, 100));
    assert_follows(&other);
}

/* The other members of the node's group are in the other lineage already, so the group has no
 * majority. */
FACT(node_follows_its_group_into_another_lineage) {
    say_status(2, &other, 50, 9000);
    say_status(1, &other, 50, 9000);
    prove_lineage(2, tip_of(1, 2, 9000));
    assert_follows(&other);
}

/* After all its members restart, a group has only its newest record, and proves its lineage by it.
 */
FACT(restarted_group_is_followed_by_its_newest_record) {
    meet_others(9, 4000);
    struct tw_message *message = message_of(TW_MSG_LOG_NONE);
    message->u.log_none =
        (struct tw_msg_log_none){.lineage = other, .oldest_round = 49, .rounds = 50};
    say(3, message);
    assert_int_equal(find_message(TW_MSG_LOG_GET, 3)->u.log_get.round, 49);
    prove_lineage(3, tip_of(3, 9, 4000));
    assert_follows(&other);
}

/* A larger group draws a follower out of a smaller one, but not the other way round. */
FACT(follower_counts_with_the_group_that_it_follows) {
    const struct tw_id third = name_of("a third");
    meet_others(9, 4000);
    prove_lineage(3, tip_of(3, 9, 4000));
    assert_follows(&other);
    repeat_claim_us(SECONDS(5), 4000); /* peers 1 and 2 do not answer */
    forget();
    link_up(12);
    say_status(12, &third, 50, 90000);
    other = third;
    prove_lineage(12, tip_of(12, 1, 90000));
    other = name_of("other");
    assert_follows(&other);
}
