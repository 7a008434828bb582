/* test_veto.c - a node votes for no record that it refuses, but applies any decided record. */
#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Returns a valid record of the open round that lists a result of part 1 only. */
static struct tw_record record_with(const struct tw_id *hash, uint32_t bytes) {
    struct tw_record record = empty_close(&start.tip);
    record.contributors_count = 1;
    record.contributors[0] = (struct tw_contributor){.member_idx = 1, .root = name_of("root")};
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    record.parts[1].bytes = bytes;
    record.parts[1].result = *hash;
    record.parts[1].contributors = 1 << 1;
    record.next.members[1].merges++;
    return record;
}

/* Proposes the record in the ballots of all ranks. Other parts have no result. */
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

/* Delivers the result of part 1 from its owner; the worker then returns this verdict on it. */
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

/* Restarts with `members_count` members, all linked. Members beyond the first three own no part. */
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

/* The state that a record names is the voter's own, or it gets no vote. */
FACT(record_that_names_another_state_gets_no_vote) {
    worker_up();
    struct tw_record record = empty_close(&start.tip);
    record.base = name_of("a liar's phi");
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    wait_us(SECONDS(100));
    assert_null(find_message(TW_MSG_ACCEPT, 1)); /* not later either */
    record.base = start.fragment_digests[ROUNDS % FRAGMENTS];
    propose_at(3, 1, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
}

/* A node whose own state is not the one that a decided record names fetches the others'. */
FACT(state_that_a_decided_record_refutes_is_fetched_again) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    message->u.commit.record.base = name_of("the members' phi");
    forget();
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_null(find_action(TW_ACT_APPLY));
    wait_us(SECONDS(1));
    assert_true(find_message(TW_MSG_STATE_GET, 1) != NULL ||
                find_message(TW_MSG_STATE_GET, 2) != NULL);
}

FACT(outlier_result_gets_no_vote_but_is_applied_once_decided) {
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = record_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    const struct tw_message *nack = find_message(TW_MSG_NACK, 1);
    assert_non_null(nack);
    assert_int_equal(nack->u.nack.refused_parts, 1 << 1);
    assert_true(nack->u.nack.promised >= TW_MEMBERS_MAX);
    assert_int_equal(find_action(TW_ACT_REPORT)->u.report.kind, TW_REPORT_INSANE);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_non_null(find_action(TW_ACT_APPLY));
    assert_int_equal(find_action(TW_ACT_REPORT)->u.report.kind, TW_REPORT_OUTLIER);
}

FACT(record_without_the_refused_result_is_voted_for) {
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    struct tw_record record = record_with(&result, 90);
    record.parts[1] = (struct tw_part){.owner_idx = 1};
    record.contributors_count = 0;
    record.next.members[1].merges = 0;
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
}

/* Of three members, an honest new one can make a merge an outlier, but never extreme. */
TEST_IN(set_up_few_judges, tear_down, small_group_votes_for_an_outlier_result) {
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = record_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_NACK, 1));
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
}

TEST_IN(set_up_few_judges, tear_down, small_group_refuses_an_extreme_result) {
    const struct tw_id result = result_judged(true, TW_SANITY_EXTREME);
    struct tw_record record = record_with(&result, 90);
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
    const struct tw_message *nack = find_message(TW_MSG_NACK, 1);
    assert_non_null(nack);
    assert_int_equal(nack->u.nack.refused_parts, 1 << 1);
    struct tw_message *message = message_of(
        TW_MSG_COMMIT); /* this node voted against the record, but applies it once it is decided */
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_non_null(find_action(TW_ACT_APPLY));
}

FACT(owner_of_a_refused_result_gets_a_strike) {
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    assert_int_equal(view_now().peers[1].strike.count, 0);
    message->u.commit.record = record_with(&result, 90);
    message->u.commit.record.parts[1] = (struct tw_part){.owner_idx = 1};
    message->u.commit.record.contributors_count = 0;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    const struct tw_node_view view = view_now();
    assert_int_equal(view.peers[1].strike.count, 1);
    assert_int_equal(view.peers[1].strike.round, ROUNDS);
    assert_int_equal(view.peers[1].strike.part, 1);
    assert_false(view.peers[1].strike.is_false);
    assert_int_equal(view.peers[2].strike.count,
                     0); /* the part of this member is absent too, but it announced no result */
    wait_us(SECONDS(601));
    assert_int_equal(view_now().peers[1].strike.count, 0);
}

/* Plays a round in which member 2 merges all parts. Returns whether this node proposes at once. */
static bool proposes_next(struct tw_record *record) {
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

/* Returns the bit set of those of 16 rounds in which this node proposes at once. */
static uint32_t rounds_proposed_at_once(bool is_struck) {
    const struct tw_id result = result_judged(true, is_struck ? TW_SANITY_EXTREME : TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_record record = record_with(&result, 90);
    uint32_t rounds = 0;
    if (is_struck) {
        record.parts[1] = (struct tw_part){.owner_idx = 1};
        record.contributors_count = 0;
    }
    for (uint32_t i = 0; i < 3; i++) record.next.members[i].weight = i == 2;
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().peers[1].strike.count, is_struck);
    for (uint32_t i = 0; i < 16; i++) rounds |= (uint32_t)proposes_next(&record) << i;
    assert_int_equal(view_now().rounds, ROUNDS + 17);
    return rounds;
}

TEST_IN(set_up_few_judges, tear_down, strike_of_one_node_takes_no_turn_in_a_small_group) {
    const uint32_t before = rounds_proposed_at_once(false);
    tear_down(state);
    set_up_few_judges(state);
    const uint32_t few = rounds_proposed_at_once(true);
    tear_down(state);
    set_up(state);
    const uint32_t many = rounds_proposed_at_once(true);
    assert_int_equal(few, before);
    assert_true((many & before) == before && many != before);
}

/* If one node cannot decode a result, no node can, so the owner is proven false. */
FACT(owner_of_an_undecodable_result_is_proven_false) {
    const struct tw_id result = result_judged(false, TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record_with(&result, 90);
    message->u.commit.record.parts[1] = (struct tw_part){.owner_idx = 1};
    message->u.commit.record.contributors_count = 0;
    say(1, message);
    assert_int_equal(view_now().peers[1].strike.count, 1);
    assert_true(view_now().peers[1].strike.is_false);
}

/* An accusation has no effect if the round is unknown or cannot be merged again. */
FACT(accusation_alone_strikes_nobody) {
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record_with(&result, 90);
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

FACT(undecodable_result_is_fetched_once) {
    const struct tw_id result = result_judged(false, TW_SANITY_FAIR);
    assert_non_null(find_action(TW_ACT_DROP));
    const struct tw_record record = record_with(&result, 90);
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

FACT(second_record_of_a_ballot_is_not_accepted) {
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = record_with(&result, 90);
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 1));
    forget();
    record.parts[1] = (struct tw_part){.owner_idx = 1};
    record.contributors_count = 0;
    propose_from(1, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 1));
}

FACT(locked_record_is_carried_on_by_a_node_that_refused_it) {
    const struct tw_id result = result_judged(true, TW_SANITY_OUTLIER);
    const struct tw_record record = record_with(&result, 90);
    propose_from(1, &record);
    assert_non_null(find_message(TW_MSG_NACK, 1));
    const uint64_t ballot = wait_for_prepare(2, 300);
    say(2, promise_with_lock(&record, TW_MEMBERS_MAX, ballot));
    const struct tw_message *propose = find_message(TW_MSG_PROPOSE, 2);
    assert_non_null(propose);
    assert_int_equal(propose->u.propose.record.parts[1].bytes, 90);
    assert_int_equal(propose->u.propose.lock.ballot, TW_MEMBERS_MAX);
    assert_null(find_message(TW_MSG_LOCK, 2));
    say(2, accept_of(&record, ballot,
                     TW_VOTE_COMMIT)); /* out of turn: the voter cannot have the lock yet */
    assert_null(find_message(TW_MSG_LOCK, 2));
    /* A vote without a signature does not count. */
    say_unsigned(2, accept_of(&record, ballot, TW_VOTE_ACCEPT));
    assert_true(find_message(TW_MSG_LOCK, 2) == NULL && find_action(TW_ACT_CLOSE) != NULL);
    say(2, accept_of(&record, ballot, TW_VOTE_ACCEPT)); /* with this node's vote, two of three */
    assert_non_null(find_message(TW_MSG_LOCK, 2));
    assert_int_equal(view_now().rounds, ROUNDS);
    say(2, accept_of(&record, ballot, TW_VOTE_COMMIT));
    assert_int_equal(view_now().rounds, ROUNDS + 1);
}

/* ---- rosters of liars ------------------------------------------------------------------------ */

/* Delivers the payload and its successful check. */
static void deliver_payload(const struct tw_id *hash) {
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

/* Returns the record's contributor row for contribute_as(1). */
static struct tw_contributor contribution_of_one(void) {
    return (struct tw_contributor){.member_idx = 1,
                                   .fragment_steps = 10,
                                   .tokens = 100,
                                   .fragment_tokens = 100,
                                   .root = tw_contribution_root(hashes_of_one(), 3)};
}

/* Member 1 announces a result merged from `told`. The committed record lists the row of
 * contribution_of_one() instead, and member 2 accuses member 1. */
static struct tw_record accuse_one(const struct tw_contributor *told) {
    const struct tw_id result = result_judged_by(told, true, TW_SANITY_FAIR);
    contribute_as(1);
    struct tw_record record = record_with(&result, 90);
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

/* The proposer invented the list, or took the contributor's row at another owner. */
FACT(owner_is_not_judged_by_a_list_it_never_announced) {
    struct tw_contributor told = contribution_of_one();
    told.root = name_of("what it said to others before a restart");
    (void)accuse_one(&told);
    deliver_payload(&hashes_of_one()[1]);
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_true(reduce == NULL || !reduce->u.reduce.is_audit);
    wait_us(SECONDS(5));
    assert_int_equal(view_now().peers[1].strike.count, 0);
}

/* Ends this node's audit of member 1's result, which it finds far larger than the usual ones. The
 * record lists the result or leaves it out. */
static void audit_outlier(bool is_listed, bool is_true) {
    const struct tw_contributor told = contribution_of_one();
    const struct tw_id result = result_judged_by(&told, true, TW_SANITY_OUTLIER);
    contribute_as(1);
    struct tw_record record = record_with(&result, 90);
    record.contributors[0] = told;
    record.clock_tokens += 100;
    if (!is_listed) {
        record = record_with(&result, 90);
        record.parts[1] = (struct tw_part){.owner_idx = 1};
        record.contributors_count = 0;
    }
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    assert_int_equal(view_now().peers[1].strike.count, !is_listed);
    deliver_payload(&hashes_of_one()[1]);
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_non_null(reduce);
    assert_true(reduce->u.reduce.is_audit);
    assert_int_equal(reduce->u.reduce.round, ROUNDS);
    assert_int_equal(reduce->u.reduce.part, 1);
    forget();
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = true};
    event.u.reduced.round = ROUNDS;
    event.u.reduced.part = 1;
    event.u.reduced.is_audit = true;
    event.u.reduced.hash = is_true ? result : name_of("merge");
    event.u.reduced.sizes[0] = 61;
    event.u.reduced.bytes = 90;
    feed(&event);
}

/* Whether the report is about member 1, and charges it. */
static bool is_one_charged(void) {
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *action = &seen[i].action;
        const struct tw_id one = id_of(1);
        if (action->kind == TW_ACT_REPORT && tw_report_is_charge(&action->u.report) &&
            tw_id_equal(&action->u.report.id, &one))
            return true;
    }
    return false;
}

FACT(large_result_is_audited_and_its_honest_owner_cleared) {
    for (int is_listed = 0; is_listed < 2; is_listed++) {
        if (is_listed) {
            tear_down(state);
            set_up(state);
        }
        audit_outlier(is_listed, true);
        assert_false(is_one_charged());
        assert_int_equal(view_now().peers[1].strike.count, 0);
        assert_null(find_message(TW_MSG_ACCUSE, 2));
        /* The only contributor made it large. */
        assert_int_equal(find_action(TW_ACT_REPORT)->u.report.kind, TW_REPORT_LARGE);
    }
}

/* A result that the record does not list can be audited by those alone that refused it. */
FACT(large_result_that_is_no_merge_charges_its_owner) {
    for (int is_listed = 0; is_listed < 2; is_listed++) {
        if (is_listed) {
            tear_down(state);
            set_up(state);
        }
        audit_outlier(is_listed, false);
        assert_true(is_one_charged());
        assert_int_equal(view_now().peers[1].strike.count, 1);
        assert_true(view_now().peers[1].strike.is_false);
        assert_int_equal(find_message(TW_MSG_ACCUSE, 2) != NULL, is_listed);
    }
}

/* The audit proves member 1's result false. Returns a valid empty record of the next round. */
static struct tw_record convict_one(void) {
    const struct tw_contributor told = contribution_of_one();
    const struct tw_record record = accuse_one(&told);
    deliver_payload(&hashes_of_one()[1]);
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

/* Gives the first `owners_count` members weight 1, and member 1 weight_of_one. */
static void divide_weights(struct tw_record *record, uint32_t owners_count,
                           uint32_t weight_of_one) {
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

/* The peer asks for a promise. A round begins with the third member that sends a message about it.
 */
static void prepare_as(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    for (uint64_t rank = 0; rank < 12; rank++) {
        message->u.prepare = (struct tw_msg_prepare){.lineage = start.lineage,
                                                     .round = view_now().rounds,
                                                     .ballot = 2 * TW_MEMBERS_MAX + rank};
        say(peer, message);
    }
}

FACT(roster_of_proven_liars_gets_no_vote) {
    begin_with(8);
    struct tw_record record = convict_one();
    divide_weights(&record, 0, 1);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    prepare_as(3);
    prepare_as(4);
    wait_us(SECONDS(63)); /* but one node's findings do not block a record for ever */
    propose_at(500, 2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

FACT(liar_owns_an_eighth_at_most) {
    begin_with(8);
    struct tw_record record = convict_one();
    divide_weights(&record, 8, 2);
    assert_vote(&record, false);
    divide_weights(&record, 8, 1);
    assert_vote(&record, true);
}

TEST_IN(set_up_few_judges, tear_down, small_group_votes_for_any_roster) {
    struct tw_record record = convict_one();
    record.next.members[0].weight = record.next.members[2].weight = 0;
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* ---- proposers that lie ---------------------------------------------------------------------- */

/* One node's findings do not block a record for ever. */
static void assert_accepted_in_the_end(const struct tw_record *record) {
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

/* The proposer names other bytes of a plausible size in place of the owner's result. */
FACT(result_its_owner_never_announced_gets_no_vote) {
    (void)result_judged(true, TW_SANITY_FAIR);
    const struct tw_id other = name_of("other");
    const struct tw_record record = record_with(&other, 90);
    propose_from(2, &record);
    assert_part_is_refused();
}

/* If a contribution were merged but not listed, an audit would wrongly convict an honest owner. */
FACT(contributors_its_owner_did_not_announce_get_no_vote) {
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = record_with(&result, 90);
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

/* The proposal carries the owner's signature. */
FACT(result_not_yet_announced_needs_no_wait) {
    worker_up();
    encode_ours();
    const struct tw_id result = name_of("result");
    const struct tw_record record = record_with(&result, 90);
    propose_from(2, &record);
    deliver_payload(&result);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* An absent owner cannot announce its result to this node. */
FACT(result_of_an_absent_owner_is_voted_for) {
    worker_up();
    encode_ours();
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
    const struct tw_id result = name_of("result");
    const struct tw_record record = record_with(&result, 90);
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

/* An empty round whose next roster has these members only. */
static struct tw_record record_for(const uint32_t *members, uint32_t count) {
    struct tw_record record = empty_close(&start.tip);
    record.next.number++;
    record.next.count = count;
    for (uint32_t i = 0; i < count; i++)
        record.next.members[i] =
            (struct tw_member){.id = id_of(members[i]), .nonce = 7 + members[i], .weight = 1};
    return record;
}

FACT(nobody_votes_itself_out) {
    const uint32_t others[] = {1, 2};
    const struct tw_record record = record_for(others, 2);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    wait_us(SECONDS(180)); /* the node insists on missing members until shortly before a fork */
    assert_accepted_in_the_end(&record);
}

/* With another nonce, the seat is not the node's own: accepting it would vote the node out. */
FACT(nobody_votes_for_another_seat_of_its_own) {
    const uint32_t all[] = {0, 1, 2};
    struct tw_record record = record_for(all, 3);
    record.next.members[0].nonce++;
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
}

FACT(present_member_is_not_voted_out) {
    const uint32_t two[] = {0, 2};
    const struct tw_record record = record_for(two, 2);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1}); /* now it is absent */
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

FACT(strangers_are_not_voted_in) {
    const uint32_t four[] = {0, 1, 2, 3};
    const struct tw_record record = record_for(four, 4);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = 3};
    event.u.id = id_of(3);
    feed(&event); /* no longer a stranger */
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* The result of part 2 is announced, arrives and passes its check. */
static void deliver_second_result(void) {
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

FACT(empty_round_gets_no_vote_when_two_results_are_here) {
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    deliver_second_result();
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    assert_accepted_in_the_end(&record);
}

FACT(group_of_five_leaves_out_no_third_of_a_round) {
    begin_with(5);
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    propose_from(2, &record);
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    assert_accepted_in_the_end(&record);
}

/* This voter has one result of three, but the proposer may have received none. */
FACT(empty_round_is_voted_for_when_one_result_is_here) {
    const struct tw_record record = empty_close(&start.tip);
    (void)result_judged(true, TW_SANITY_FAIR);
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* Other members may not know the reason for the strike, so an even share is accepted. */
FACT(struck_member_gets_no_large_share) {
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
    divide_weights(&record, 12, 2);
    assert_vote(&record, false);
    divide_weights(&record, 12, 1);
    assert_vote(&record, true);
}

FACT(owner_has_no_giant_share) {
    begin_with(8);
    struct tw_record record = empty_close(&start.tip);
    const uint32_t giants[] = {5, TW_WEIGHT_MAX / 3 + 1, TW_WEIGHT_MAX};
    for (uint32_t i = 0; i < 3; i++) {
        divide_weights(&record, 8, giants[i]);
        assert_vote(&record, false);
    }
    divide_weights(&record, 8, 2);
    assert_vote(&record, true);
}

FACT(third_of_the_owners_may_be_left_out) {
    begin_with(9);
    struct tw_record record = empty_close(&start.tip);
    divide_weights(&record, 5, 1);
    assert_vote(&record, false);
    divide_weights(&record, 6, 1);
    assert_vote(&record, true);
}

/* An absent member can own no part. */
FACT(absent_owner_may_be_left_out) {
    begin_with(9);
    struct tw_record record = empty_close(&start.tip);
    for (uint16_t peer = 5; peer < 9; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    divide_weights(&record, 2, 1);
    assert_vote(&record, false);
    divide_weights(&record, 5, 1);
    assert_vote(&record, true);
}

/* A member may claim a high upload rate to some peers and a low one to others. */
FACT(even_share_is_accepted_whatever_upload_is_claimed) {
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
    divide_weights(&record, 8, 1);
    assert_vote(&record, true);
}

/* The record itself shows that only member 1 contributed. */
FACT(late_member_owns_no_part) {
    begin_with(8);
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    struct tw_record record = record_with(&result, 90);
    divide_weights(&record, 1, 1);
    assert_vote(&record, false);
    divide_weights(&record, 0, 1);
    assert_vote(&record, true);
}

/* In a small group, each member may be linked to other peers than the rest. */
TEST_IN(set_up_few_judges, tear_down, small_group_may_vote_any_member_out) {
    const uint32_t others[] = {1, 2};
    const struct tw_record record = record_for(others, 2);
    propose_from(2, &record);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* This node must propose the record of its lock again, but both other members refuse it each time.
 */
FACT(refused_proposer_pauses_longer_each_time) {
    const struct tw_id result = result_judged(true, TW_SANITY_FAIR);
    const struct tw_record record = record_with(&result, 90);
    uint64_t ballot = 0, ballots_count = 0;
    for (uint32_t second = 0; second < 600; second++) {
        wait_us(SECONDS(1));
        const struct tw_message *prepare = find_message(TW_MSG_PREPARE, 2);
        if (prepare != NULL && prepare->u.prepare.ballot > ballot) {
            ballot = prepare->u.prepare.ballot;
            ballots_count++;
            say(2, promise_with_lock(&record, TW_MEMBERS_MAX, ballot));
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
