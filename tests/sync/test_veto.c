/* test_veto.c - results that a node does not take: it votes for none, and applies what was
 * decided. */
#include "tests/sync/lone_node.h"

/* The round as its first or a later proposer may propose it: nothing but the result of part 1. */
static struct tw_record close_with(const struct tw_id *hash, uint32_t bytes) {
    struct tw_record record = empty_close(&start.tip);
    record.contributors_count = 1;
    record.contributors[0] = (struct tw_contributor){.member_idx = 1, .root = name_of("root")};
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    record.parts[1].bytes = bytes;
    record.parts[1].result = *hash;
    record.parts[1].contributors = 1 << 1;
    return record;
}

/* In the ballots of all ranks: one of them is that of the peer. What it leaves out is not to come.
 */
static void propose_at(uint64_t attempt, uint16_t peer, const struct tw_record *record) {
    for (uint32_t k = 1; k < 3; k++) {
        if (k >= record->parts_count || record->parts[k].bytes == 0) say_no_result(k);
    }
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = *record;
    for (uint64_t rank = 0; rank < 12; rank++) {
        message->u.propose.ballot = attempt * TW_MEMBERS_MAX + rank;
        say(peer, message);
    }
}

static void propose_from(uint16_t peer, const struct tw_record *record) {
    propose_at(1, peer, record);
}

/* The result of part 1 comes from its owner, and the worker finds that of it. */
static struct tw_id result_judged_by(const struct tw_contributor *by, bool ok,
                                     enum tw_sanity sanity) {
    const struct tw_id result = name_of("result");
    worker_up();
    encode_ours();
    say_result_by(by, &result, 90);
    const struct tw_message *pull = find_message(TW_MSG_PULL, 1);
    assert_non_null(pull);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 1};
    event.u.chunk.hash = result;
    feed(&event);
    const struct tw_action *verify = find_action(TW_ACT_VERIFY);
    assert_non_null(verify);
    assert_int_equal(verify->u.payload.fragment, ROUNDS % FRAGMENTS);
    assert_true(verify->u.payload.begin > 0);
    forget();
    event.kind = TW_EV_VERIFIED;
    event.ok = ok;
    event.u.chunk.sanity = sanity;
    event.u.chunk.is_unfit = !ok;
    feed(&event);
    return result;
}

static struct tw_id result_judged(bool ok, enum tw_sanity sanity) {
    const struct tw_contributor by = {.member_idx = 1, .root = name_of("root")};
    return result_judged_by(&by, ok, sanity);
}

/* So many are in the roster and here; those beyond three own nothing. */
static void begin_with(uint32_t members_count) {
    struct tw_roster *const roster = &start.tip.next;
    for (; roster->count < members_count; roster->count++) {
        roster->members[roster->count] =
            (struct tw_member){.id = id_of(roster->count), .nonce = 7 + roster->count};
    }
    start_again();
    for (uint16_t peer = 3; peer < members_count; peer++) link_up(peer);
    wait_us(SECONDS(1));
    forget();
}

static void insane_result_gets_no_vote_and_is_applied_when_it_is_decided(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    const struct tw_message *nack = find_message(TW_MSG_NACK, 1);
    assert_non_null(nack);
    assert_int_equal(nack->u.nack.refused_parts, 1 << 1);
    assert_true(nack->u.nack.promised >= TW_MEMBERS_MAX);
    const struct tw_action *report = find_action(TW_ACT_REPORT);
    assert_non_null(report);
    assert_int_equal(report->u.report.kind, TW_REPORT_INSANE);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_non_null(find_action(TW_ACT_APPLY));
}

static void same_manifest_without_it_is_voted_for(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    struct tw_record record = close_with(&result, 90);
    record.parts[1] = (struct tw_part){.owner_idx = 1};
    record.contributors_count = 0;
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
}

/* Of three, one that is new makes a merge insane; none honest makes it wild. */
static void few_members_refuse_what_is_wild_alone(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_NACK, 1));
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
}

static void wild_result_gets_no_vote_of_few_members(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_EXTREME);
    struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    const struct tw_message *nack = find_message(TW_MSG_NACK, 1);
    assert_non_null(nack);
    assert_int_equal(nack->u.nack.refused_parts, 1 << 1);
    struct tw_message *message = message_of(TW_MSG_COMMIT); /* and is applied, as any other */
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_non_null(find_action(TW_ACT_APPLY));
}

static void owner_whose_result_is_left_out_is_struck(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    assert_int_equal(view_now().peers[1].strike.count, 0);
    message->u.commit.record = close_with(&result, 90);
    message->u.commit.record.parts[1] = (struct tw_part){.owner_idx = 1};
    message->u.commit.record.contributors_count = 0;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    const struct tw_node_view view = view_now();
    assert_int_equal(view.peers[1].strike.count, 1);
    assert_int_equal(view.peers[1].strike.round, ROUNDS);
    assert_int_equal(view.peers[1].strike.part, 1);
    assert_false(view.peers[1].strike.is_false);
    assert_int_equal(view.peers[2].strike.count, 0); /* absent too, and said nothing */
    wait_us(SECONDS(601));
    assert_int_equal(view_now().peers[1].strike.count, 0);
}

/* The next round of three, of which 2 owns all and has its result. Do we close it at once? */
static bool closes_next(struct tw_record *record) {
    struct tw_message *message;
    forget();
    *record = empty_close(record);
    for (uint16_t peer = 1; peer < 3; peer++) {
        message = message_of(TW_MSG_CONTRIB);
        message->u.contrib =
            (struct tw_msg_contrib){.lineage = start.lineage,
                                    .round = record->round,
                                    .base = start.fragment_digests[record->fragment],
                                    .tokens = 100,
                                    .fragment_tokens = 100,
                                    .fragment_steps = 10,
                                    .parts_count = 1};
        message->u.contrib.hashes[0] = name_of(peer == 1 ? "one" : "two");
        message->u.contrib.bytes[0] = 300;
        say(peer, message);
    }
    message = message_of(TW_MSG_RESULT);
    message->u.result = (struct tw_msg_result){.lineage = start.lineage,
                                               .round = record->round,
                                               .bytes = 90,
                                               .hash = name_of("all"),
                                               .contributors_count = 1};
    message->u.result.contributors[0] =
        (struct tw_contributor){.member_idx = 1, .root = name_of("root")};
    say(2, message);
    wait_us(1000);
    const bool does = find_message(TW_MSG_PROPOSE, 2) != NULL ||
                      find_message(TW_MSG_PREPARE, 2) != NULL ||
                      find_action(TW_ACT_STORE_VOTE) != NULL;
    message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = *record;
    say(2, message);
    return does;
}

/* A bit for each of the next rounds that we close at once, 1 having been struck or not. */
static uint32_t closed_at_once(bool is_struck) {
    const struct tw_id result = result_judged(true, is_struck ? TW_SANITY_EXTREME : TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record record = close_with(&result, 90);
    uint32_t rounds = 0;
    if (is_struck) {
        record.parts[1] = (struct tw_part){.owner_idx = 1};
        record.contributors_count = 0;
    }
    for (uint32_t i = 0; i < 3; i++) record.next.members[i].weight = i == 2;
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().peers[1].strike.count, is_struck);
    for (uint32_t i = 0; i < 16; i++) rounds |= (uint32_t)closes_next(&record) << i;
    assert_int_equal(view_now().rounds, ROUNDS + 17);
    return rounds;
}

static void opinion_of_one_takes_no_turn(void **state) {
    const uint32_t before = closed_at_once(false);
    tear_down(state);
    set_up_few_judges(state);
    const uint32_t few = closed_at_once(true);
    tear_down(state);
    set_up(state);
    const uint32_t many = closed_at_once(true);
    assert_int_equal(few, before);
    assert_true((many & before) == before && many != before);
}

/* What decodes to nothing does so for everybody. */
static void owner_of_what_is_nothing_is_proven_false(void **state) {
    (void)state;
    const struct tw_id result = result_judged(false, TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = close_with(&result, 90);
    message->u.commit.record.parts[1] = (struct tw_part){.owner_idx = 1};
    message->u.commit.record.contributors_count = 0;
    say(1, message);
    assert_int_equal(view_now().peers[1].strike.count, 1);
    assert_true(view_now().peers[1].strike.is_false);
}

/* Of a round it does not know, and of one that it cannot do again: nothing comes of either. */
static void accusation_alone_strikes_nobody(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = close_with(&result, 90);
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    message = message_of(TW_MSG_ACCUSE);
    message->u.accuse = (struct tw_msg_accuse){.lineage = start.lineage, .round = 3, .part = 1};
    say(2, message);
    message->u.accuse.round = ROUNDS;
    say(2, message);
    wait_us(SECONDS(5));
    assert_int_equal(view_now().peers[1].strike.count, 0);
}

static void result_that_is_nothing_is_asked_for_once(void **state) {
    (void)state;
    const struct tw_id result = result_judged(false, TW_SANITY_FAIR);
    assert_non_null(find_action(TW_ACT_DROP));
    const struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    assert_non_null(find_message(TW_MSG_NACK, 1));
    forget();
    wait_us(SECONDS(30));
    for (uint32_t i = 0; i < seen_count; i++) {
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_PULL) continue;
        assert_memory_not_equal(&seen[i].message.u.pull.hash, &result, sizeof(result));
    }
}

static void second_manifest_of_a_ballot_is_not_accepted(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
    forget();
    record.parts[1] = (struct tw_part){.owner_idx = 1};
    record.contributors_count = 0;
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
}

/* Member 2 has accepted it, and promises whatever we ask for. */
static void promise_as_two(const struct tw_record *accepted, uint64_t ballot) {
    struct tw_message *message = message_of(TW_MSG_PROMISE);
    message->u.promise.lineage = start.lineage;
    message->u.promise.round = ROUNDS;
    message->u.promise.ballot = ballot;
    message->u.promise.has_accepted = 1;
    message->u.promise.accepted_ballot = TW_MEMBERS_MAX;
    message->u.promise.accepted = *accepted;
    say(2, message);
}

static void who_refuses_what_is_carried_on_asks_why(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = close_with(&result, 90);
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_NACK, 1));
    wait_us(SECONDS(3));
    const struct tw_message *prepare = find_message(TW_MSG_PREPARE, 2);
    assert_non_null(prepare);
    const uint64_t ballot = prepare->u.prepare.ballot;
    promise_as_two(&record, ballot);
    wait_us(SECONDS(6)); /* 1 is here, and does not say whether it has accepted it */
    const struct tw_message *propose = find_message(TW_MSG_PROPOSE, 2);
    assert_non_null(propose);
    assert_int_equal(propose->u.propose.record.parts[1].bytes, 90);
    struct tw_message *message = message_of(TW_MSG_ACCEPT);
    message->u.accept = (struct tw_msg_accept){.lineage = start.lineage,
                                               .round = ROUNDS,
                                               .ballot = ballot,
                                               .digest = tw_record_digest(&record)};
    say(2, message); /* with our own vote these are two of three */
    assert_int_equal(view_now().rounds, ROUNDS + 1);
}

/* ---- rosters of liars ------------------------------------------------------------------------ */

/* The bytes of that name come, and are what they should be. */
static void bytes_come(const struct tw_id *hash) {
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 1};
    event.u.chunk.hash = *hash;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
}

static const struct tw_id *hashes_of_one(void) {
    static struct tw_id hashes[3];
    for (uint32_t k = 0; k < 3; k++) {
        hashes[k] = name_of("one");
        hashes[k].bytes[0] = (uint8_t)k;
    }
    return hashes;
}

/* The row of contribute_as(1). */
static struct tw_contributor contribution_of_one(void) {
    return (struct tw_contributor){.member_idx = 1,
                                   .fragment_steps = 10,
                                   .tokens = 100,
                                   .fragment_tokens = 100,
                                   .root = tw_contribution_root(hashes_of_one(), 3)};
}

/* Member 1 merged `told`, as it says; its own contribution, as the manifest says that is committed.
 * 2 says that this is false. */
static struct tw_record one_is_accused(const struct tw_contributor *told) {
    const struct tw_id result = result_judged_by(told, true, TW_SANITY_FAIR);
    contribute_as(1);
    struct tw_record record = close_with(&result, 90);
    record.contributors[0] = contribution_of_one();
    record.clock_tokens += 100;
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    message = message_of(TW_MSG_ACCUSE);
    message->u.accuse =
        (struct tw_msg_accuse){.lineage = start.lineage, .round = ROUNDS, .part = 1};
    say(2, message);
    return record;
}

/* Whose list a proposer made up, or another owner's word for the same contributor has displaced. */
static void owner_is_not_judged_by_a_list_it_never_told(void **state) {
    (void)state;
    struct tw_contributor told = contribution_of_one();
    told.root = name_of("what it said to others before a restart");
    (void)one_is_accused(&told);
    bytes_come(&hashes_of_one()[1]);
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_true(reduce == NULL || !reduce->u.reduce.is_audit);
    wait_us(SECONDS(5));
    assert_int_equal(view_now().peers[1].strike.count, 0);
}

/* And it is false. Returns what a proposer may propose then: nothing in it, parts of the next round
 * for all. */
static struct tw_record one_found_false(void) {
    const struct tw_contributor told = contribution_of_one();
    const struct tw_record record = one_is_accused(&told);
    bytes_come(&hashes_of_one()[1]);
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_non_null(reduce);
    assert_true(reduce->u.reduce.is_audit);
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = true};
    event.u.reduced.round = ROUNDS;
    event.u.reduced.part = 1;
    event.u.reduced.is_audit = true;
    event.u.reduced.hash = name_of("merge");
    event.u.reduced.bytes = 90;
    feed(&event);
    const struct tw_node_view view = view_now();
    assert_int_equal(view.peers[1].strike.count, 1);
    assert_true(view.peers[1].strike.is_false);
    forget();
    struct tw_record next = empty_close(&record);
    next.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) next.parts[k] = (struct tw_part){.owner_idx = k};
    return next;
}

/* The first `owners_count` members own as much each, but for member 1. */
static void divide(struct tw_record *record, uint32_t owners_count, uint32_t weight_of_one) {
    for (uint32_t i = 0; i < record->next.count; i++)
        record->next.members[i].weight = i < owners_count;
    record->next.members[1].weight = weight_of_one;
}

static void assert_vote(struct tw_record *record, bool is_wanted) {
    static uint64_t attempt;
    propose_at(++attempt, 2, record);
    assert_int_equal(find_message(TW_MSG_ACCEPT, 2) != NULL, is_wanted);
    forget();
}

static void nobody_votes_for_a_round_of_liars_alone(void **state) {
    (void)state;
    begin_with(8);
    struct tw_record record = one_found_false();
    divide(&record, 0, 1);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    wait_us(SECONDS(3)); /* and sees to it that another one is proposed */
    assert_non_null(find_message(TW_MSG_PREPARE, 2));
    wait_us(SECONDS(60)); /* but findings of one node hold nothing up for ever */
    propose_at(500, 2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

static void liar_owns_an_eighth_at_most(void **state) {
    (void)state;
    begin_with(8);
    struct tw_record record = one_found_false();
    divide(&record, 8, 2);
    assert_vote(&record, false);
    divide(&record, 8, 1);
    assert_vote(&record, true);
}

static void few_members_vote_for_whatever_roster(void **state) {
    (void)state;
    struct tw_record record = one_found_false();
    record.next.members[0].weight = record.next.members[2].weight = 0;
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* ---- proposers that lie ------------------------------------------------------------------------
 */

/* The findings behind it are one node's: they hold nothing up for ever. */
static void assert_taken_in_the_end(const struct tw_record *record) {
    wait_us(SECONDS(61));
    propose_at(500, 2, record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

static void assert_part_is_refused(void) {
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    const struct tw_message *nack = find_message(TW_MSG_NACK, 2);
    assert_non_null(nack);
    assert_int_equal(nack->u.nack.refused_parts, 1 << 1);
    forget();
}

/* Bytes that are no larger than a merge, in place of what the owner of part 1 made. */
static void result_its_owner_never_told_gets_no_vote(void **state) {
    (void)state;
    (void)result_judged(true, TW_SANITY_FAIR);
    const struct tw_id other = name_of("other");
    const struct tw_record record = close_with(&other, 90);
    propose_from(2, &record);
    assert_part_is_refused();
}

/* Whose work is in a result and not listed would be merged again, and its owner be found false. */
static void contributors_its_owner_did_not_tell_get_no_vote(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = close_with(&result, 90);
    record.contributors[0].member_idx = 2;
    record.parts[1].contributors = 1 << 2;
    propose_from(2, &record);
    assert_part_is_refused();
    record.contributors[0].member_idx = 1;
    record.contributors[1] = (struct tw_contributor){.member_idx = 2, .root = name_of("root")};
    record.contributors_count = 2;
    record.parts[1].contributors = 1 << 1 | 1 << 2;
    propose_at(2, 2, &record);
    assert_part_is_refused();
}

static void result_that_is_not_told_yet_is_waited_for(void **state) {
    (void)state;
    worker_up();
    encode_ours();
    const struct tw_id result = name_of("result");
    const struct tw_record record = close_with(&result, 90);
    propose_from(2, &record);
    bytes_come(&result);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    say_result(&result, 90);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* Of an owner that is not here nothing can be told. */
static void result_of_who_is_gone_is_voted_for(void **state) {
    (void)state;
    worker_up();
    encode_ours();
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
    const struct tw_id result = name_of("result");
    const struct tw_record record = close_with(&result, 90);
    propose_from(2, &record);
    const struct tw_message *pull = find_message(TW_MSG_PULL, 2);
    assert_non_null(pull);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 2};
    event.u.chunk.hash = result;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* A round of nothing, after which there is nobody in the roster but these. */
static struct tw_record close_for(const uint32_t *members, uint32_t count) {
    struct tw_record record = empty_close(&start.tip);
    record.next.number++;
    record.next.count = count;
    for (uint32_t i = 0; i < count; i++)
        record.next.members[i] =
            (struct tw_member){.id = id_of(members[i]), .nonce = 7 + members[i], .weight = 1};
    return record;
}

static void nobody_votes_itself_out(void **state) {
    (void)state;
    const uint32_t others[] = {1, 2};
    const struct tw_record record = close_for(others, 2);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    wait_us(SECONDS(3)); /* and asks whether it has to be */
    assert_non_null(find_message(TW_MSG_PREPARE, 2));
    assert_taken_in_the_end(&record);
}

/* Under its id, as a member that has lost its vote: out all the same. */
static void nobody_votes_for_another_seat_of_its_own(void **state) {
    (void)state;
    const uint32_t all[] = {0, 1, 2};
    struct tw_record record = close_for(all, 3);
    record.next.members[0].nonce++;
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
}

static void who_is_here_is_not_voted_out(void **state) {
    (void)state;
    const uint32_t two[] = {0, 2};
    const struct tw_record record = close_for(two, 2);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1}); /* and now it is not */
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

static void strangers_are_not_voted_in(void **state) {
    (void)state;
    const uint32_t four[] = {0, 1, 2, 3};
    const struct tw_record record = close_for(four, 4);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = 3};
    event.u.id = id_of(3);
    feed(&event); /* a stranger no more */
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* The owner of part 2 is here, so are its bytes, and nothing is wrong with them. */
static void second_result_comes(void) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *said = &message->u.result;
    said->lineage = start.lineage;
    said->round = ROUNDS;
    said->part = 2;
    said->bytes = 80;
    said->hash = name_of("second");
    said->contributors_count = 1;
    said->contributors[0].member_idx = 2;
    const struct tw_id second = said->hash;
    say(2, message);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 2};
    event.u.chunk.hash = second;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    forget();
}

static void round_of_nothing_is_not_voted_for_where_there_is_something(void **state) {
    (void)state;
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    second_result_comes();
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    assert_taken_in_the_end(&record);
}

static void third_of_a_round_is_not_left_out_by_five(void **state) {
    (void)state;
    begin_with(5);
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    assert_taken_in_the_end(&record);
}

/* Of three results one is here: the proposer may have had less luck. */
static void round_of_nothing_is_voted_for_where_there_is_little(void **state) {
    (void)state;
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* For what others need not have found: an even share is let pass. */
static void who_was_struck_has_no_large_share(void **state) {
    (void)state;
    begin_with(12);
    (void)result_judged(true, TW_SANITY_OUTLIER);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    message->u.commit.record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++)
        message->u.commit.record.parts[k] = (struct tw_part){.owner_idx = k};
    struct tw_record record = empty_close(&message->u.commit.record);
    say(1, message);
    assert_int_equal(view_now().peers[1].strike.count, 1);
    divide(&record, 12, 2);
    assert_vote(&record, false);
    divide(&record, 12, 1);
    assert_vote(&record, true);
}

static void owner_has_no_giant_share(void **state) {
    (void)state;
    begin_with(8);
    struct tw_record record = empty_close(&start.tip);
    const uint32_t giants[] = {5, UINT32_MAX / 3 + 1, UINT32_MAX};
    for (uint32_t i = 0; i < 3; i++) {
        divide(&record, 8, giants[i]);
        assert_vote(&record, false);
    }
    divide(&record, 8, 2);
    assert_vote(&record, true);
}

static void third_of_the_owners_may_be_left_out(void **state) {
    (void)state;
    begin_with(9);
    struct tw_record record = empty_close(&start.tip);
    divide(&record, 5, 1);
    assert_vote(&record, false);
    divide(&record, 6, 1);
    assert_vote(&record, true);
}

/* Who is gone since can own nothing. */
static void who_is_gone_may_be_left_out(void **state) {
    (void)state;
    begin_with(9);
    struct tw_record record = empty_close(&start.tip);
    for (uint16_t peer = 5; peer < 9; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    divide(&record, 2, 1);
    assert_vote(&record, false);
    divide(&record, 5, 1);
    assert_vote(&record, true);
}

/* One that says it uploads much to some, and little to others: an even share is let pass. */
static void upload_is_what_it_tells_each(void **state) {
    (void)state;
    begin_with(8);
    struct tw_record record = empty_close(&start.tip);
    for (uint16_t peer = 1; peer < 8; peer++) {
        struct tw_message *message = message_of(TW_MSG_STATUS);
        message->u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                                   .lineage = start.lineage,
                                                   .rounds = ROUNDS,
                                                   .clock_tokens = 5000,
                                                   .upload_kib_s = peer == 1 ? 10000 : 100};
        say(peer, message);
    }
    divide(&record, 8, 1);
    assert_vote(&record, true);
}

/* By the manifest itself nobody contributed but member 1. */
static void who_was_late_owns_nothing(void **state) {
    (void)state;
    begin_with(8);
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = close_with(&result, 90);
    divide(&record, 1, 1);
    assert_vote(&record, false);
    divide(&record, 0, 1);
    assert_vote(&record, true);
}

/* Of so few each may see others than the rest does. */
static void few_members_vote_anybody_out(void **state) {
    (void)state;
    const uint32_t others[] = {1, 2};
    const struct tw_record record = close_for(others, 2);
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* Both others take nothing that we carry on. */
static void refused_proposer_makes_way_for_longer_each_time(void **state) {
    (void)state;
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    const struct tw_record record = close_with(&result, 90);
    uint64_t ballot = 0, ballots_count = 0;
    for (uint32_t second = 0; second < 600; second++) {
        wait_us(SECONDS(1));
        const struct tw_message *prepare = find_message(TW_MSG_PREPARE, 2);
        if (prepare != NULL && prepare->u.prepare.ballot > ballot) {
            ballot = prepare->u.prepare.ballot;
            ballots_count++;
            promise_as_two(&record, ballot);
        }
        const struct tw_message *propose = find_message(TW_MSG_PROPOSE, 2);
        if (propose == NULL || propose->u.propose.ballot != ballot) continue;
        forget();
        struct tw_message *message = message_of(TW_MSG_NACK);
        message->u.nack = (struct tw_msg_nack){
            .lineage = start.lineage, .round = ROUNDS, .promised = ballot, .refused_parts = 1 << 1};
        say(1, message);
        say(2, message);
    }
    assert_in_range(ballots_count, 3, 12);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(insane_result_gets_no_vote_and_is_applied_when_it_is_decided),
        TEST(same_manifest_without_it_is_voted_for),
        cmocka_unit_test_setup_teardown(few_members_refuse_what_is_wild_alone, set_up_few_judges,
                                        tear_down),
        cmocka_unit_test_setup_teardown(wild_result_gets_no_vote_of_few_members, set_up_few_judges,
                                        tear_down),
        TEST(owner_whose_result_is_left_out_is_struck),
        cmocka_unit_test_setup_teardown(opinion_of_one_takes_no_turn, set_up_few_judges, tear_down),
        TEST(owner_of_what_is_nothing_is_proven_false),
        TEST(accusation_alone_strikes_nobody),
        TEST(nobody_votes_for_a_round_of_liars_alone),
        TEST(liar_owns_an_eighth_at_most),
        TEST(owner_is_not_judged_by_a_list_it_never_told),
        cmocka_unit_test_setup_teardown(few_members_vote_for_whatever_roster, set_up_few_judges,
                                        tear_down),
        TEST(result_its_owner_never_told_gets_no_vote),
        TEST(contributors_its_owner_did_not_tell_get_no_vote),
        TEST(result_that_is_not_told_yet_is_waited_for),
        TEST(result_of_who_is_gone_is_voted_for),
        TEST(nobody_votes_itself_out),
        TEST(nobody_votes_for_another_seat_of_its_own),
        TEST(who_is_here_is_not_voted_out),
        TEST(strangers_are_not_voted_in),
        TEST(round_of_nothing_is_not_voted_for_where_there_is_something),
        TEST(third_of_a_round_is_not_left_out_by_five),
        TEST(round_of_nothing_is_voted_for_where_there_is_little),
        TEST(who_was_struck_has_no_large_share),
        TEST(owner_has_no_giant_share),
        TEST(third_of_the_owners_may_be_left_out),
        TEST(who_is_gone_may_be_left_out),
        TEST(upload_is_what_it_tells_each),
        TEST(who_was_late_owns_nothing),
        cmocka_unit_test_setup_teardown(few_members_vote_anybody_out, set_up_few_judges, tear_down),
        TEST(result_that_is_nothing_is_asked_for_once),
        TEST(second_manifest_of_a_ballot_is_not_accepted),
        TEST(who_refuses_what_is_carried_on_asks_why),
        TEST(refused_proposer_makes_way_for_longer_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
