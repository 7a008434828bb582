/* test_witness.c - a state that one donor offers is loaded only if other voters bear it out. */
#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

enum { BYTES = 2 * TW_CHUNK_BYTES_MAX, LINKED = 4 };

static struct tw_id other, truth, lie, packed;
static struct tw_record tip; /* the newest record of the lineage that the node follows */

static void say_statuses(void) {
    const struct tw_node_view view = view_now();
    for (uint16_t peer = 1; peer <= LINKED; peer++) {
        if (view.peers[peer].is_up) say_status(peer, &other, 50, 9000);
    }
}

static void pass_us(uint64_t for_us) {
    for (uint64_t end_us = now_us + for_us; now_us < end_us;) {
        now_us += SECONDS(1);
        say_statuses();
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
}

/* Makes the node follow a lineage of `voters` voters whose newest record is of the final round
 * `finals`. All of LINKED nodes are in it. */
static void follow_until(uint32_t voters, uint32_t finals, const struct tw_id *base) {
    other = name_of("other");
    truth = name_of("the members' phi");
    lie = name_of("a liar's phi");
    packed = name_of("packed");
    worker_up();
    for (uint16_t peer = 3; peer <= LINKED; peer++) link_up(peer);
    struct tw_record record = start.tip;
    record.lineage = other;
    record.round = 49;
    record.clock_tokens = 9000;
    record.finals = finals;
    record.base = *base;
    record.next.count = voters;
    for (uint32_t i = 0; i < voters; i++)
        record.next.members[i] =
            (struct tw_member){.id = id_of(1 + i), .nonce = 70 + i, .weight = 1};
    say_statuses();
    uint16_t asked = 1;
    while (asked < LINKED && find_message(TW_MSG_LOG_GET, asked) == NULL) asked++;
    prove_lineage(asked, &record);
    tip = record;
    assert_follows(&other);
}

static void follow(uint32_t voters) {
    follow_until(voters, 0, &(struct tw_id){{0}});
}

/* The group decides its next round, whose record names this state, and passes the record on. */
static void decide(uint16_t peer, const struct tw_id *base) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record *record = &message->u.commit.record;
    *record = empty_close(&tip);
    record->base = *base;
    tip = *record;
    say(peer, message);
}

/* The peer that was asked for a state of fragment 0 offers one, and its bytes arrive. */
static void offer(uint16_t peer, const struct tw_id *digest) {
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){
        .lineage = other, .rounds = 50, .digest = *digest, .hash = packed, .bytes = BYTES};
    forget();
    say(peer, message);
}

static void bytes_arrive(uint16_t peer) {
    for (uint32_t idx = 0; idx < 2; idx++) {
        struct tw_event event = {.kind = TW_EV_CHUNK, .peer = peer};
        event.u.chunk.hash = packed;
        event.u.chunk.idx = idx;
        feed(&event);
    }
    struct tw_event verified = {.kind = TW_EV_VERIFIED, .ok = true};
    verified.u.chunk.hash = packed;
    feed(&verified);
}

/* The peer tells which digest it had after round 49. */
static void testify(uint16_t peer, const struct tw_id *digest, uint64_t rounds) {
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){.lineage = other, .rounds = rounds, .digest = *digest};
    say(peer, message);
}

/* The peer tells the digest of a fragment at the end of the run. */
static void tell_end(uint16_t peer, uint32_t fragment, const struct tw_id *digest) {
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){
        .lineage = other, .fragment = fragment, .rounds = 50, .digest = *digest};
    say(peer, message);
}

static bool is_asked_to_testify(uint16_t peer) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_msg_state_get *get = &seen[i].message.u.state_get;
        if (seen[i].action.kind == TW_ACT_SEND && seen[i].message.kind == TW_MSG_STATE_GET &&
            seen[i].action.peer == peer && get->rounds == 50)
            return true;
    }
    return false;
}

static bool is_loaded(const struct tw_id *digest) {
    const struct tw_action *load = find_action(TW_ACT_LOAD);
    return load != NULL && tw_id_equal(&load->u.load.digest, digest);
}

/* Returns the node that was reported for a false state, or NULL. */
static const struct tw_id *accused(void) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *action = &seen[i].action;
        if (action->kind == TW_ACT_REPORT && action->u.report.kind == TW_REPORT_FALSE_STATE)
            return &action->u.report.id;
    }
    return NULL;
}

FACT(state_of_a_liar_is_dropped_and_its_donor_named) {
    follow(4); /* one may lie */
    offer(1, &lie);
    assert_true(is_asked_to_testify(2) && is_asked_to_testify(3) && is_asked_to_testify(4));
    bytes_arrive(1);
    assert_false(is_loaded(&lie));
    testify(2, &truth, 50);
    assert_null(accused()); /* the second might be the liar */
    testify(3, &truth, 50);
    assert_non_null(accused());
    const struct tw_id liar = id_of(1);
    assert_true(tw_id_equal(accused(), &liar));
    assert_false(is_loaded(&lie));
    /* The next question does not go to the liar again. */
    forget();
    pass_us(SECONDS(3));
    assert_null(find_message(TW_MSG_STATE_GET, 1));
}

FACT(state_that_others_bear_out_is_loaded_at_once) {
    follow(4);
    offer(1, &truth);
    bytes_arrive(1);
    assert_false(is_loaded(&truth));
    testify(2, &truth, 50);
    assert_true(is_loaded(&truth));
    assert_null(accused());
}

FACT(word_of_few_or_of_another_round_refutes_nothing) {
    follow(4);
    offer(1, &truth);
    testify(2, &lie, 50);
    testify(2, &lie, 50); /* its first word counts */
    testify(3, &lie, 47); /* of another round */
    bytes_arrive(1);
    assert_null(accused());
    assert_false(is_loaded(&truth));
    testify(4, &truth, 50);
    assert_true(is_loaded(&truth));
}

/* Ids without a seat are free, so however many of them say the same, it is nobody's word. */
FACT(ids_without_a_seat_have_no_word) {
    follow(2);
    offer(3, &lie);
    testify(4, &lie, 50);
    bytes_arrive(3);
    assert_false(is_loaded(&lie));
    testify(1, &truth, 50);
    assert_non_null(accused());
    assert_false(is_loaded(&lie));
}

/* A voter that remembers no such state is silent. The state of another donor may be borne out. */
FACT(state_of_which_nobody_speaks_is_taken_last) {
    follow(4);
    offer(1, &lie);
    bytes_arrive(1);
    pass_us(SECONDS(10));
    forget();
    pass_us(SECONDS(10));
    assert_false(is_loaded(&lie));
    assert_null(accused());
    uint16_t asked = 1;
    while (asked <= LINKED && find_message(TW_MSG_STATE_GET, asked) == NULL) asked++;
    assert_in_range(asked, 2, LINKED);
    offer(asked, &truth);
    bytes_arrive(asked);
    testify(asked == 2 ? 3 : 2, &truth, 50);
    assert_true(is_loaded(&truth));
}

FACT(contested_state_is_not_taken) {
    follow(4);
    offer(1, &lie);
    testify(2, &truth, 50);
    bytes_arrive(1);
    pass_us(SECONDS(20));
    assert_false(is_loaded(&lie));
    assert_non_null(find_message(TW_MSG_STATE_GET, 2)); /* or 3, or 4: another one is asked */
}

/* Nobody can speak of a state after a round that nobody has decided: no witness would object. */
FACT(state_after_a_round_to_come_is_no_offer) {
    follow(4);
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){
        .lineage = other, .rounds = 52, .digest = lie, .hash = packed, .bytes = BYTES};
    say(1, message);
    bytes_arrive(1);
    pass_us(SECONDS(40));
    assert_false(is_loaded(&lie));
    offer(1, &truth);
    assert_true(is_asked_to_testify(2));
}

/* If all voters linked first were liars, they would be one another's witnesses. */
FACT(few_linked_voters_are_waited_for) {
    follow(13); /* four may lie, and no more are linked */
    offer(1, &lie);
    bytes_arrive(1);
    for (uint16_t peer = 2; peer <= LINKED; peer++) testify(peer, &lie, 50);
    pass_us(SECONDS(10));
    assert_false(is_loaded(&lie));
    pass_us(SECONDS(100));
    assert_false(is_loaded(&lie)); /* the record of the next round may prove the state */
    pass_us(SECONDS(20));
    assert_true(is_loaded(&lie)); /* no round was decided for orphan_us */
}

/* The record of the next round shows a lie, even if all linked voters bear it out. */
FACT(decided_record_shows_a_lie_that_all_linked_bear_out) {
    follow(13);
    offer(1, &lie);
    bytes_arrive(1);
    for (uint16_t peer = 2; peer <= LINKED; peer++) testify(peer, &lie, 50);
    const struct tw_id others = name_of("phi of fragment 2");
    decide(2, &others);
    assert_null(accused()); /* the round was of another fragment */
    decide(2, &truth);
    const struct tw_id liar = id_of(1);
    assert_non_null(accused());
    assert_true(tw_id_equal(accused(), &liar));
    pass_us(SECONDS(3));
    assert_false(is_loaded(&lie));
}

FACT(decided_record_proves_a_state_without_witnesses) {
    follow(13);
    offer(1, &truth);
    bytes_arrive(1);
    const struct tw_id others = name_of("phi of fragment 2");
    decide(2, &others);
    assert_false(is_loaded(&truth));
    decide(2, &truth);
    assert_true(is_loaded(&truth));
    assert_null(accused());
}

/* Returns the root of the states at the end of the run. */
static struct tw_id root_of(const struct tw_id *digests) {
    static const char domain[] = "thinwire-state-v1";
    return tw_sha256_pair(domain, sizeof(domain), digests, FRAGMENTS * sizeof(*digests));
}

/* All voters are gone, and all that are left say the same. */
FACT(closing_record_shows_a_lie_about_the_final_model) {
    const struct tw_id ends[FRAGMENTS] = {name_of("end 0"), name_of("end 1"), name_of("end 2")};
    const struct tw_id root = root_of(ends);
    follow_until(13, FRAGMENTS + 1, &root);
    forget();
    offer(1, &lie);
    bytes_arrive(1);
    const uint16_t peer = is_asked_to_testify(1)   ? 1
                          : is_asked_to_testify(2) ? 2
                          : is_asked_to_testify(3) ? 3
                                                   : 4;
    pass_us(SECONDS(1));
    for (uint32_t p = 0; p < FRAGMENTS; p++) tell_end(peer, p, p == 0 ? &lie : &ends[p]);
    const struct tw_id liar = id_of(peer);
    assert_non_null(accused());
    assert_true(tw_id_equal(accused(), &liar));
    pass_us(SECONDS(200));
    assert_false(is_loaded(&lie));
}

FACT(closing_record_proves_the_final_model) {
    truth = name_of("the members' phi");
    const struct tw_id ends[FRAGMENTS] = {truth, name_of("end 1"), name_of("end 2")};
    const struct tw_id root = root_of(ends);
    follow_until(13, FRAGMENTS + 1, &root);
    forget();
    offer(1, &truth);
    bytes_arrive(1);
    for (uint16_t peer = 1; peer <= LINKED; peer++) {
        for (uint32_t p = 0; p < FRAGMENTS; p++) tell_end(peer, p, &ends[p]);
    }
    assert_true(is_loaded(&truth));
    assert_null(accused());
}

/* The word of a link that ended is not that of the node which gets its number. */
FACT(word_ends_with_its_link) {
    follow(4);
    offer(1, &lie);
    testify(2, &truth, 50);
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 2});
    testify(3, &truth, 50);
    assert_null(accused());
    link_up(2);
    say_status(2, &other, 50, 9000);
    testify(2, &truth, 50);
    assert_non_null(accused());
}

/* A member says which states it had, and packs none for it. */
FACT(member_testifies_without_packing) {
    worker_up();
    const struct tw_id before = start.fragment_digests[0], later = name_of("phi of later");
    struct tw_event applied = {.kind = TW_EV_APPLIED, .ok = true};
    applied.u.applied.rounds = ROUNDS + 3;
    applied.u.applied.digest = later;
    feed(&applied);
    struct tw_message *message = message_of(TW_MSG_STATE_GET);
    message->u.state_get = (struct tw_msg_state_get){
        .lineage = start.lineage, .digest = before, .wanted = before, .rounds = ROUNDS + 3};
    forget();
    say(1, message);
    const struct tw_message *answer = find_message(TW_MSG_STATE, 1);
    assert_non_null(answer);
    assert_true(tw_id_equal(&answer->u.state.digest, &later));
    assert_int_equal(answer->u.state.rounds, ROUNDS + 3);
    assert_int_equal(answer->u.state.bytes, 0);
    assert_null(find_action(TW_ACT_EXPORT));
    /* Rounds of other fragments change nothing. */
    forget();
    message->u.state_get.rounds = ROUNDS + 4;
    say(1, message);
    assert_non_null(find_message(TW_MSG_STATE, 1));
    assert_int_equal(find_message(TW_MSG_STATE, 1)->u.state.rounds, ROUNDS + 4);
    forget();
    message->u.state_get.rounds = ROUNDS + 30; /* a state that it never had */
    say(1, message);
    assert_null(find_message(TW_MSG_STATE, 1));
}

/* The peer's contribution starts at the members' anchor. `is_empty`: it sits the round out. */
static void contribute(uint16_t peer, bool is_empty) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    *contrib = (struct tw_msg_contrib){.lineage = start.lineage,
                                       .round = ROUNDS,
                                       .base = truth,
                                       .tokens = 100,
                                       .fragment_tokens = 100,
                                       .fragment_steps = 10,
                                       .parts_count = 3};
    for (uint32_t k = 0; k < 3 && !is_empty; k++) {
        contrib->hashes[k] = name_of("contribution");
        contrib->hashes[k].bytes[0] = (uint8_t)(3 * peer + k);
        contrib->bytes[k] = 100;
    }
    say(peer, message);
}

/* In a group of three a liar's word is enough, but the next contributions show the lie. */
FACT(loaded_lie_is_found_by_the_next_contributions) {
    const uint32_t fragment = ROUNDS % FRAGMENTS;
    truth = name_of("the members' phi");
    lie = name_of("a liar's phi");
    worker_up();
    contribute(2, false);
    contribute(1, true); /* most members have another anchor: this node fetches it */
    now_us += SECONDS(3);
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    start.fragment_digests[fragment] = lie;
    forget();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){.lineage = start.lineage,
                                             .fragment = fragment,
                                             .rounds = ROUNDS,
                                             .digest = lie,
                                             .hash = packed = name_of("packed"),
                                             .bytes = BYTES};
    say(1, message);
    bytes_arrive(1);
    assert_true(is_loaded(&lie));
    struct tw_event applied = {.kind = TW_EV_APPLIED, .ok = true};
    applied.u.applied.fragment = fragment;
    applied.u.applied.rounds = ROUNDS;
    applied.u.applied.digest = lie;
    feed(&applied);
    assert_null(accused());
    contribute(1, false);
    const struct tw_id liar = id_of(1);
    assert_non_null(accused());
    assert_true(tw_id_equal(accused(), &liar));
    for (uint32_t i = 0; i < seen_count; i++) /* this machine is not told that it loses bits */
        assert_false(seen[i].action.kind == TW_ACT_REPORT &&
                     seen[i].action.u.report.kind == TW_REPORT_DIFFERS);
}
