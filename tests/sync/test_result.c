/* test_result.c - results with missing signatures, and late results. Members 0 to 2 of four own the
 * parts. This node is member 0; it is linked to the others. */
#include "sync/core/penalty.h"
#include "sync/core/state.h"
#include "sync/round/result.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

static const struct tw_id run;

static int set_up_four(void **state) {
    const int status = set_up_few_judges(state);
    struct tw_roster *const roster = &start.tip.next;
    roster->members[3] = (struct tw_member){.id = id_of(3), .nonce = 10};
    roster->count = 4;
    start_again();
    link_up(3);
    say_status(3, &start.lineage, start.rounds, start.tip.clock_tokens);
    wait_us(SECONDS(1));
    worker_up();
    encode_ours(); /* the round begins */
    forget();
    return status;
}

#define FACT(name) TEST_IN(set_up_four, tear_down, name)

/* ---- signatures ------------------------------------------------------------------------------ */

/* Returns the contributor row of member 2, whose contribution this node has not received. */
static struct tw_contributor row_of_two(void) {
    const struct tw_id signer = id_of(2);
    struct tw_contributor row = {.member_idx = 2,
                                 .tokens = 100,
                                 .fragment_tokens = 100,
                                 .fragment_steps = 10,
                                 .root = name_of("hidden")};
    signing_row(&run, &start.lineage, ROUNDS, &signer, &row);
    return row;
}

static struct tw_contributor without_signature(struct tw_contributor row) {
    memset(row.signature, 0, sizeof(row.signature));
    return row;
}

static void propose_first(void) {
    node->round.rank[0] = 0;
    node->round.self_rank = 0;
}

/* Waits while the proposers before this node are silent. This node asks shortly before its own
 * ballot. */
static const struct tw_msg_nack *wait_for_question(void) {
    for (uint32_t second = 0; find_message(TW_MSG_NACK, 1) == NULL; second++) {
        assert_true(second < 300);
        wait_us(SECONDS(1));
    }
    return &find_message(TW_MSG_NACK, 1)->u.nack;
}

/* A lying member sent its CONTRIB to the owner, but not to this node. */
FACT(proposer_asks_the_owner_for_missing_signatures) {
    const struct tw_contributor row = row_of_two(), bare = without_signature(row);
    say_result_of_row(&bare);
    const struct tw_msg_nack *nack = wait_for_question();
    assert_int_equal(nack->promised, 0);
    assert_int_equal(nack->refused_parts, 1u << 1);
    assert_int_equal(nack->round, ROUNDS);
    assert_null(find_message(TW_MSG_NACK, 2));
    assert_false(tw_result_is_provable(node, 1));
    say_result_of_row(&row);
    assert_true(tw_result_is_provable(node, 1));
    forget();
    wait_us(SECONDS(200));
    assert_null(find_message(TW_MSG_NACK, 1));
}

FACT(owner_is_asked_once) {
    const struct tw_contributor bare = without_signature(row_of_two());
    say_result_of_row(&bare);
    (void)wait_for_question();
    forget();
    say_result_of_row(&bare);
    wait_us(SECONDS(60));
    assert_null(find_message(TW_MSG_NACK, 1));
    assert_false(tw_result_is_provable(node, 1));
}

static void commit(struct tw_record *record) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = *record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
}

/* Ends the round after the question, with or without an answer. Returns member 1's owner stalls. */
static uint32_t stalls_after_question(bool has_answer) {
    const struct tw_contributor row = row_of_two(), bare = without_signature(row);
    const struct tw_id one = id_of(1);
    propose_first();
    contribute_as(1);
    say_result_of_row(&bare);
    (void)wait_for_question();
    if (has_answer) say_result_of_row(&row);
    wait_us(SECONDS(3));
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    commit(&record);
    const struct tw_penalty *const stalls =
        tw_penalty_find(node->penalties.owner_stalls, TW_MEMBERS_MAX, &one);
    return stalls == NULL ? 0 : stalls->count;
}

FACT(owner_that_withholds_signatures_stalls) {
    assert_int_equal(stalls_after_question(false), 1);
}

FACT(owner_that_answers_does_not_stall) {
    assert_int_equal(stalls_after_question(true), 0);
}

/* Returns whether this node begins a ballot within a second of its question to member 1. */
static bool begins_after_question(uint32_t stalls) {
    const struct tw_id one = id_of(1);
    const struct tw_contributor bare = without_signature(row_of_two());
    propose_first();
    struct tw_penalty *const row =
        tw_penalty_take(node->penalties.owner_stalls, TW_MEMBERS_MAX, &one);
    for (uint32_t i = 0; i < stalls; i++) tw_penalty_add(row, TW_PENALTY_STALL_OWNER, now_us);
    say_no_result(2);
    node->round.results[0].has = true;
    node->round.results[0].announced_us = now_us;
    say_result_of_row(&bare);
    (void)wait_for_question();
    wait_us(SECONDS(1));
    assert_false(tw_result_is_provable(node, 1));
    return node->round.phase != PROPOSER_IDLE;
}

FACT(owner_is_waited_for_after_the_question) {
    assert_false(begins_after_question(0));
}

FACT(stalled_owner_is_not_waited_for) {
    assert_true(begins_after_question(2)); /* the first stall has no penalty */
}

FACT(no_owner_is_asked_for_signatures_that_are_here) {
    const struct tw_contributor row = row_of_two();
    say_result_of_row(&row);
    (void)wait_for_prepare(1, 300);
    assert_null(find_message(TW_MSG_NACK, 1));
}

/* The owner answers with an invalid signature, or with another row. */
FACT(false_signature_closes_the_link) {
    for (uint32_t how = 0; how < 2; how++) {
        struct tw_contributor row = row_of_two();
        const struct tw_contributor bare = without_signature(row);
        if (how > 0) (void)set_up_four(state);
        say_result_of_row(&bare);
        (void)wait_for_question();
        if (how == 0) row.signature[0] ^= 1;
        if (how == 1) {
            const struct tw_id signer = id_of(2);
            row = bare;
            row.root = name_of("another");
            signing_row(&run, &start.lineage, ROUNDS, &signer, &row);
        }
        forget();
        say_result_of_row(&row);
        assert_non_null(find_action(TW_ACT_CLOSE));
        assert_false(tw_result_is_provable(node, 1));
        if (how == 0) (void)tear_down(state);
    }
}

/* This node, member 0, merges the contribution of member 2, which all members receive. */
static void merge_two(void) {
    contribute_as(2);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 2};
    event.u.chunk.hash = name_of("two");
    event.u.chunk.hash.bytes[0] = 0;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    wait_us(SECONDS(90));
    assert_non_null(find_action(TW_ACT_REDUCE));
    struct tw_event reduced = {.kind = TW_EV_REDUCED, .ok = true};
    reduced.u.reduced.round = ROUNDS;
    reduced.u.reduced.bytes = 50;
    reduced.u.reduced.hash = name_of("merged");
    feed(&reduced);
}

static void ask(uint16_t peer, uint64_t round, uint32_t parts) {
    struct tw_message *message = message_of(TW_MSG_NACK);
    message->u.nack =
        (struct tw_msg_nack){.lineage = start.lineage, .round = round, .refused_parts = parts};
    say(peer, message);
}

static bool has_signatures(const struct tw_msg_result *result) {
    static const uint8_t none[TW_SIGNATURE_BYTES];
    assert_int_equal(result->contributors_count, 2);
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        if (memcmp(result->contributors[i].signature, none, sizeof(none)) == 0) return false;
    }
    return true;
}

FACT(owner_shows_all_signatures_once_to_each_member) {
    merge_two();
    assert_non_null(find_message(TW_MSG_RESULT, 1));
    assert_false(has_signatures(&find_message(TW_MSG_RESULT, 1)->u.result));
    forget();
    ask(1, ROUNDS, 1u << 1); /* the part of another owner */
    ask(1, ROUNDS - 1, 1);   /* an old round */
    assert_null(find_message(TW_MSG_RESULT, 1));
    for (uint16_t peer = 1; peer <= 3; peer++) {
        ask(peer, ROUNDS, 1);
        assert_non_null(find_message(TW_MSG_RESULT, peer));
        assert_true(has_signatures(&find_message(TW_MSG_RESULT, peer)->u.result));
        forget();
        ask(peer, ROUNDS, 1);
        assert_null(find_message(TW_MSG_RESULT, peer));
    }
}

/* ---- late results ---------------------------------------------------------------------------- */

/* Each of the four members owns a part. This node has begun the round. */
static void begin_with_four_parts(void) {
    start.tip.next.members[3].weight = 1;
    start_again();
    link_up(3);
    say_status(3, &start.lineage, start.rounds, start.tip.clock_tokens);
    worker_up();
    step_to(1010);
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = ROUNDS;
    event.u.encoded.step = event.u.encoded.tokens = 1010;
    event.u.encoded.parts_count = 4;
    for (uint32_t k = 0; k < 4; k++) {
        event.u.encoded.hashes[k] = name_of("ours");
        event.u.encoded.hashes[k].bytes[0] = (uint8_t)k;
        event.u.encoded.bytes[k] = 100;
    }
    feed(&event);
    for (uint16_t peer = 1; peer <= 3; peer++) {
        struct tw_message *message = message_of(TW_MSG_CONTRIB);
        struct tw_msg_contrib *contrib = &message->u.contrib;
        contrib->lineage = start.lineage;
        contrib->round = ROUNDS;
        contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
        contrib->tokens = contrib->fragment_tokens = 100;
        contrib->fragment_steps = 10;
        contrib->parts_count = 4;
        for (uint32_t k = 0; k < 4; k++) {
            contrib->hashes[k] = name_of("theirs");
            contrib->hashes[k].bytes[0] = (uint8_t)(4 * peer + k);
            contrib->bytes[k] = 100;
        }
        say(peer, message);
    }
}

/* All owners except member 2 announce their results. */
static void announce_others(void) {
    say_no_result(1);
    say_no_result(3);
    node->round.results[0].has = true;
    node->round.results[0].announced_us = now_us;
}

/* Without this limit, lying members could hold up each round for twice the patience, which is one
 * minute here. */
FACT(owner_that_takes_much_longer_is_not_waited_for) {
    begin_with_four_parts();
    propose_first();
    wait_us(SECONDS(18));
    assert_int_equal(tw_result_due_us(node, 2), UINT64_MAX);
    announce_others();
    const uint64_t took_us = now_us - node->round.active_us;
    assert_true(took_us >= SECONDS(18));
    assert_int_equal(tw_result_due_us(node, 2), now_us + took_us);
    wait_us(took_us - SECONDS(1));
    assert_int_equal(node->round.phase, PROPOSER_IDLE);
    wait_us(SECONDS(2));
    assert_int_not_equal(node->round.phase, PROPOSER_IDLE);
}

/* One of three parts is a third of the fragment, for which acceptors want to wait. */
FACT(owner_of_a_third_is_waited_for) {
    say_no_result(1);
    node->round.results[0].has = true;
    node->round.results[0].announced_us = now_us;
    assert_int_equal(tw_result_due_us(node, 2), UINT64_MAX);
}

/* Ends the round `late_us` after the other results, with or without member 2's result. Returns
 * member 2's count of owner stalls. */
static uint32_t stalls_of_two(uint64_t late_us, bool has_result) {
    const struct tw_id two = id_of(2);
    begin_with_four_parts();
    wait_us(SECONDS(1));
    announce_others();
    wait_us(late_us);
    if (has_result) say_no_result(2);
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 4;
    for (uint32_t k = 0; k < 4; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    commit(&record);
    const struct tw_penalty *stalls =
        tw_penalty_find(node->penalties.owner_stalls, TW_MEMBERS_MAX, &two);
    return stalls == NULL ? 0 : stalls->count;
}

FACT(owner_that_is_much_later_than_others_stalls) {
    assert_int_equal(stalls_of_two(SECONDS(3), false), 1);
}

FACT(late_result_counts_as_a_stall) {
    assert_int_equal(stalls_of_two(SECONDS(3), true), 1);
}

FACT(owner_that_is_little_later_does_not_stall) {
    assert_int_equal(stalls_of_two(SECONDS(1), true), 0);
}

/* A member that owns no part never sees how long contributions take, so it learns from results. */
FACT(member_without_a_part_learns_patience_from_results) {
    static const char *const names[] = {"x", "y", "z"};
    start.tip.next.members[0].weight = 0;
    start.tip.next.members[3].weight = 1;
    start_again();
    link_up(3);
    say_status(3, &start.lineage, start.rounds, start.tip.clock_tokens);
    worker_up();
    encode_ours();
    contribute_as(1);
    const uint64_t before_us = node->pace.patience_us;
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 3;
    record.contributors_count = 1;
    record.contributors[0] = (struct tw_contributor){
        .member_idx = 1, .tokens = 100, .fragment_tokens = 100, .fragment_steps = 10};
    record.clock_tokens += 100;
    for (uint32_t k = 0; k < 3; k++) {
        const struct tw_id owner = id_of(k + 1);
        const struct tw_roster roster = view_now().roster;
        struct tw_message *message = message_of(TW_MSG_RESULT);
        message->u.result = (struct tw_msg_result){.lineage = start.lineage,
                                                   .round = ROUNDS,
                                                   .part = k,
                                                   .bytes = 90,
                                                   .hash = name_of(names[k]),
                                                   .contributors_count = 1,
                                                   .contributors = {record.contributors[0]}};
        signing_result(&run, &roster, &owner, &message->u.result);
        record.parts[k] = tw_result_part(&message->u.result);
        record.parts[k].owner_idx = k + 1;
        say((uint16_t)(k + 1), message);
    }
    commit(&record);
    assert_true(node->pace.patience_us < before_us);
    /* Patience moves only a quarter of the way to the new measurement. */
    assert_true(node->pace.patience_us >= before_us / 2);
}
