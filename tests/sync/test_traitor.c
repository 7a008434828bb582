/* test_traitor.c - one of four or more members lies, and no other member believes it alone. It lies
 * about the next roster, the log, the beginning of a round, or hides a result. */
#include "sync/core/state.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

/* Restarts as member 0 of `members_count`, linked to all. Members beyond the first three own no
 * part. */
static void begin_with(uint32_t members_count) {
    struct tw_roster *const roster = &start.tip.next;
    for (; roster->count < members_count; roster->count++) {
        roster->members[roster->count] =
            (struct tw_member){.id = id_of(roster->count), .nonce = 7 + roster->count};
    }
    start_again();
    for (uint16_t peer = 3; peer < members_count; peer++) {
        link_up(peer);
        say_status(peer, &start.lineage, start.rounds, start.tip.clock_tokens);
    }
    wait_us(SECONDS(1));
    forget();
}

static int set_up_four(void **state) {
    const int status = set_up_few_judges(state);
    begin_with(4);
    return status;
}

#define FACT(name) TEST_IN(set_up_four, tear_down, name)

/* The peer proposes the record in one of its ballots. */
static void propose(uint64_t attempt, uint16_t peer, const struct tw_record *record) {
    for (uint64_t rank = 0; rank < start.tip.next.count; rank++) {
        struct tw_message *message = message_of(TW_MSG_PROPOSE);
        message->u.propose.record = *record;
        message->u.propose.ballot = attempt * TW_MEMBERS_MAX + rank;
        say(peer, message);
    }
}

/* Returns an empty round record. Every owner has announced that it has nothing to merge. */
static struct tw_record empty_round(void) {
    for (uint32_t k = 1; k <= 2; k++) say_no_result(k);
    return empty_close(&start.tip);
}

static void assert_vote(const struct tw_record *record, bool is_wanted) {
    static uint64_t attempt;
    propose(++attempt, 2, record);
    assert_int_equal(find_message(TW_MSG_ACCEPT, 2) != NULL, is_wanted);
}

/* ---- the next roster ------------------------------------------------------------------------ */

static void remove_third(struct tw_record *record) {
    record->next.number++;
    record->next.count = 3;
}

/* Without member 3, the group would be two honest members and a liar, too few to withstand a liar.
 */
FACT(group_of_four_votes_no_member_out) {
    struct tw_record record = empty_round();
    remove_third(&record);
    assert_vote(&record, false);
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 3}); /* now it is absent */
    assert_vote(&record, true);
}

/* A seat under another nonce is lost to its member, whose votes would no longer count. */
FACT(seat_of_a_present_member_keeps_its_nonce) {
    struct tw_record record = empty_round();
    record.next.number++;
    record.next.members[3].nonce++;
    assert_vote(&record, false);
}

FACT(all_parts_do_not_go_to_one_member) {
    struct tw_record record = empty_round();
    record.next.members[0].weight = record.next.members[1].weight = 0;
    assert_vote(&record, false);
}

static void say_links_to(uint16_t peer, uint32_t other) {
    struct tw_message *message = message_of(TW_MSG_LINKS);
    message->u.links.direct_count = 1;
    message->u.links.direct[0] = id_of(other);
    say(peer, message);
}

FACT(stranger_needs_the_word_of_two_of_four) {
    struct tw_record record = empty_round();
    record.next.number++;
    record.next.members[record.next.count++] = (struct tw_member){.id = id_of(4), .nonce = 99};
    say_links_to(2, 4);
    assert_vote(&record, false);
    wait_us(SECONDS(400)); /* however long the round stays open */
    assert_vote(&record, false);
}

/* The liar gives seats to nodes that all members know, but that did not ask for one, or asked in
 * another round or under another nonce. Nobody would vote in these seats. */
FACT(seat_needs_the_request_of_its_node) {
    enum { ASKED, NONE, OF_ANOTHER_ROUND, OF_ANOTHER_NONCE, OF_ANOTHER_NODE, ONE_TOO_MANY, CASES };
    const struct tw_id run = {{0}};
    link_up(4);
    say_status(4, &start.lineage, start.rounds, start.tip.clock_tokens);
    struct tw_record record = empty_round();
    record.next.number++;
    struct tw_member *const member = &record.next.members[record.next.count++];
    *member = (struct tw_member){.id = id_of(4), .nonce = 99};
    for (int i = CASES; i-- > 0;) {
        struct tw_message *message = message_of(TW_MSG_PROPOSE);
        struct tw_msg_propose *propose = &message->u.propose;
        struct tw_member asker = *member;
        if (i == OF_ANOTHER_NONCE) asker.nonce++;
        if (i == OF_ANOTHER_NODE) asker.id = id_of(3);
        propose->record = record;
        propose->joins_count = i == NONE ? 0 : i == ONE_TOO_MANY ? 2 : 1;
        for (uint32_t k = 0; k < propose->joins_count; k++)
            signing_join(&run, &start.lineage, ROUNDS - (i == OF_ANOTHER_ROUND), &asker,
                         propose->joins[k]);
        for (uint64_t rank = 0; rank < start.tip.next.count; rank++) {
            propose->ballot = (uint64_t)(1 + CASES - i) * TW_MEMBERS_MAX + rank;
            propose->promises.voters = 0;
            signing_justify(&run, &start.tip.next, 0, 0, propose);
            say_unsigned(2, message);
        }
        assert_int_equal(find_message(TW_MSG_ACCEPT, 2) != NULL, i == ASKED);
    }
}

FACT(node_that_two_members_know_is_voted_in) {
    struct tw_record record = empty_round();
    record.next.number++;
    record.next.members[record.next.count++] = (struct tw_member){.id = id_of(4), .nonce = 99};
    say_links_to(2, 4);
    say_links_to(1, 4);
    assert_vote(&record, true);
}

/* ---- the log -------------------------------------------------------------------------------- */

static void say_far_behind(uint16_t peer) {
    say_status(peer, &start.lineage, ROUNDS + 100, 90000);
    struct tw_message *message = message_of(TW_MSG_LOG_NONE);
    message->u.log_none = (struct tw_msg_log_none){
        .lineage = start.lineage, .oldest_round = ROUNDS + 50, .rounds = ROUNDS + 100};
    say(peer, message);
}

/* If it believed one liar, the node would drop its state and load the liar's. */
FACT(one_member_makes_nobody_a_receiver) {
    say_far_behind(1);
    assert_int_equal(view_now().state, TW_STATE_MEMBER);
    say_far_behind(2);
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
}

FACT(one_member_gives_no_tip) {
    say_far_behind(1);
    say_far_behind(2);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record *record = &message->u.commit.record;
    *record = empty_close(&start.tip);
    record->round = ROUNDS + 99;
    record->fragment = (ROUNDS + 99) % FRAGMENTS;
    const struct tw_id tip = tw_record_digest(record);
    const struct tw_message commit = *message;
    say_unsigned(1, &commit);
    assert_int_equal(view_now().rounds, ROUNDS);
    for (uint16_t peer = 1; peer <= 2; peer++) { /* two members claim this round as their newest */
        struct tw_message *status = message_of(TW_MSG_STATUS);
        status->u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                                  .lineage = start.lineage,
                                                  .tip = tip,
                                                  .rounds = ROUNDS + 100,
                                                  .clock_tokens = 90000};
        say(peer, status);
    }
    say_unsigned(1, &commit);
    assert_int_equal(view_now().rounds, ROUNDS + 100);
}

/* Members 1 and 2 are gone. For a long time, the liar has been the only peer linked to this node.
 */
FACT(member_that_sees_one_other_believes_nothing) {
    for (uint16_t peer = 1; peer <= 2; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    wait_us(SECONDS(60));
    say_far_behind(3);
    assert_int_equal(view_now().state, TW_STATE_MEMBER);
    wait_us(SECONDS(120)); /* the node trains alone, and follows the others' log by its proofs */
    assert_int_equal(view_now().state, TW_STATE_SOLO);
}

/* Two members report that records are missing, but neither names the newest record. */
FACT(receiver_without_a_tip_goes_alone) {
    worker_up();
    say_far_behind(1);
    say_far_behind(2);
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
    for (uint32_t k = 0; k < 300 && view_now().state == TW_STATE_RECEIVER; k++) {
        for (uint16_t peer = 1; peer <= 3; peer++)
            say_status(peer, &start.lineage, ROUNDS + 100, 90000);
        now_us += SECONDS(1);
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
    assert_int_equal(view_now().state, TW_STATE_SOLO);
}

/* The sender is not treated as a forger: when it returned alone, liars may have given it their
 * records. */
FACT(node_with_another_history_is_no_forger) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    message->u.commit.record.parent = name_of("another record");
    say(3, message);
    assert_null(find_action(TW_ACT_CLOSE));
    assert_null(find_action(TW_ACT_REPORT));
    assert_int_equal(view_now().rounds, ROUNDS);
}

static const struct tw_message *ask_log(uint16_t peer, const struct tw_id *lineage,
                                        uint64_t round) {
    struct tw_message *message = message_of(TW_MSG_LOG_GET);
    message->u.log_get = (struct tw_msg_log_get){.lineage = *lineage, .round = round};
    forget();
    say(peer, message);
    return find_message(TW_MSG_COMMIT, peer);
}

/* A lone node follows any peer that proves a lineage. If the proof was a lie, an honest node would
 * find the record forged and blame this node, so the record is not passed on. */
FACT(record_that_came_with_a_claim_is_not_handed_on) {
    struct tw_record tip = start.tip;
    tip.lineage = name_of("the lineage of a liar");
    tip.clock_tokens = 90000;
    tip.round = ROUNDS + 20;
    tip.fragment = (uint32_t)(tip.round % FRAGMENTS);
    for (uint16_t peer = 1; peer <= 3; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    wait_us(SECONDS(125));
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    link_up(3);
    say_status(3, &tip.lineage, tip.round + 1, tip.clock_tokens);
    prove_lineage(3, &tip);
    assert_follows(&tip.lineage);
    assert_null(ask_log(3, &tip.lineage, tip.round));
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&tip); /* decided after the node began to follow */
    say(3, message);
    assert_int_equal(view_now().rounds, tip.round + 2);
    assert_null(ask_log(3, &tip.lineage, tip.round));
    assert_non_null(ask_log(3, &tip.lineage, tip.round + 1));
}

/* ---- the round ------------------------------------------------------------------------------ */

static void ask_for_promise(uint16_t peer) {
    for (uint64_t rank = 0; rank < start.tip.next.count; rank++) {
        struct tw_message *message = message_of(TW_MSG_PREPARE);
        message->u.prepare = (struct tw_msg_prepare){
            .lineage = start.lineage, .round = ROUNDS, .ballot = TW_MEMBERS_MAX + rank};
        say(peer, message);
    }
}

/* If one member could begin a round, the patience (pace.patience_us) would run out before other
 * members have trained their steps. */
FACT(one_member_begins_no_round) {
    worker_up();
    ask_for_promise(1);
    wait_us(SECONDS(5));
    assert_int_equal(view_now().open_us, 0);
    ask_for_promise(2);
    wait_us(SECONDS(5));
    assert_true(view_now().open_us >= SECONDS(4));
}

/* Members 1 to 4 own the parts; this node owns none. */
static void begin_without_own_part(void) {
    start.tip.next.members[0].weight = 0;
    for (uint32_t i = 1; i < 5; i++)
        start.tip.next.members[i] = (struct tw_member){.id = id_of(i), .nonce = 7 + i, .weight = 1};
    start.tip.next.count = 5;
    begin_with(5);
    worker_up();
}

static void announce_nothing(uint32_t owner) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    message->u.result =
        (struct tw_msg_result){.lineage = start.lineage, .round = ROUNDS, .part = owner - 1};
    say((uint16_t)owner, message);
}

/* Returns a record with the result of owner 4 only. */
static struct tw_record round_of_fourth(const struct tw_id *result) {
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 4;
    for (uint32_t k = 0; k < 4; k++) record.parts[k] = (struct tw_part){.owner_idx = k + 1};
    record.parts[3] = (struct tw_part){
        .owner_idx = 4, .bytes = 90, .result = *result, .contributors = UINT64_C(1) << 4};
    record.contributors_count = 1;
    record.contributors[0] = (struct tw_contributor){
        .member_idx = 4, .tokens = 100, .fragment_tokens = 100, .fragment_steps = 10};
    record.clock_tokens += 100;
    record.next.members[4].merges++;
    for (uint32_t i = 1; i < 4; i++) record.next.members[i].weight = 0; /* not punctual */
    for (uint32_t owner = 1; owner < 4; owner++) announce_nothing(owner);
    return record;
}

static void deliver(const struct tw_id *result) {
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 4};
    event.u.chunk.hash = *result;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
}

/* An owner announces its result to the other members only. The proposal carries its signature. */
FACT(result_hidden_from_this_node_is_voted_for) {
    begin_without_own_part();
    const struct tw_id result = name_of("result");
    const struct tw_record record = round_of_fourth(&result);
    propose(1, 2, &record);
    assert_non_null(find_action(TW_ACT_EXPECT));
    deliver(&result);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* The proposer invents a result, or attaches the owner's signature for other bytes. */
FACT(result_that_its_owner_did_not_sign_gets_no_vote) {
    const struct tw_id run = {{0}}, result = name_of("result");
    for (uint32_t other = 0; other < 2; other++) {
        begin_without_own_part();
        const struct tw_record record = round_of_fourth(&result);
        const struct tw_roster roster = view_now().roster;
        struct tw_message *message = message_of(TW_MSG_PROPOSE);
        struct tw_msg_propose *propose = &message->u.propose;
        propose->record = record;
        propose->record.parts[3].bytes += other;
        if (other != 0) signing_results(&run, &roster, propose);
        propose->record.parts[3].bytes = record.parts[3].bytes;
        signing_rows(&run, &roster, &record.lineage, record.round, propose->record.contributors, 1);
        for (uint64_t rank = 0; rank < roster.count; rank++) {
            propose->ballot = TW_MEMBERS_MAX + rank;
            propose->promises.voters = 0;
            signing_justify(&run, &roster, 0, 0, propose);
            say_unsigned(2, message);
        }
        deliver(&result);
        const struct tw_action *report = find_action(TW_ACT_REPORT);
        assert_true(report != NULL && report->u.report.kind == TW_REPORT_MISBEHAVED);
        wait_us(SECONDS(300));
        assert_null(find_message(TW_MSG_ACCEPT, 2));
    }
}

FACT(proposer_that_keeps_its_votes_is_passed_over) {
    begin_without_own_part();
    for (uint32_t owner = 1; owner < 5; owner++) announce_nothing(owner);
    const struct tw_record record = empty_close(&start.tip);
    propose(1, 2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
    forget();
    (void)wait_for_prepare(1, 60); /* less than twice the patience, which would be 120 s */
}
