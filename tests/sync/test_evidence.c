/* test_evidence.c - evidence: two statements of one member about one ballot that exclude each other
 * are found, checked, and passed on once. */
#include "sync/vote/evidence.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

static const struct tw_id run = {{0}};

/* Returns evidence that the node voted for two records in one ballot. */
static struct tw_message *evidence_against(uint32_t node_idx) {
    struct tw_message *message = message_of(TW_MSG_EVIDENCE);
    message->u.evidence = (struct tw_msg_evidence){.author = id_of(node_idx),
                                                   .lineage = start.lineage,
                                                   .nonce = 7 + node_idx,
                                                   .round = ROUNDS,
                                                   .ballot = 64,
                                                   .phase = TW_VOTE_ACCEPT,
                                                   .first.digest = name_of("one"),
                                                   .second.digest = name_of("two")};
    signing_evidence(&run, &message->u.evidence);
    return message;
}

static bool is_convicted(uint32_t node_idx) {
    const struct tw_id id = id_of(node_idx);
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *action = &seen[i].action;
        if (action->kind == TW_ACT_REPORT && action->u.report.kind == TW_REPORT_TWO_FACED &&
            tw_id_equal(&action->u.report.id, &id))
            return true;
    }
    return false;
}

static bool is_closed(uint16_t peer) {
    for (uint32_t i = 0; i < seen_count; i++) {
        if (seen[i].action.kind == TW_ACT_CLOSE && seen[i].action.peer == peer) return true;
    }
    return false;
}

/* ---- the message ---------------------------------------------------------------------------- */

FACT(evidence_is_checked_and_passed_on_once) {
    link_up(3);
    say(1, evidence_against(2));
    assert_true(is_convicted(2) && is_closed(2));
    assert_non_null(find_message(TW_MSG_EVIDENCE, 3));
    assert_null(find_message(TW_MSG_EVIDENCE, 1)); /* peer 1 sent this evidence itself */
    assert_null(find_message(TW_MSG_EVIDENCE, 2));
    forget();
    now_us += 1000;
    say(3, evidence_against(2));
    assert_null(find_message(TW_MSG_EVIDENCE, 1));
    assert_false(is_convicted(2));
}

FACT(false_evidence_ends_the_link_of_its_sender) {
    struct tw_message *message = evidence_against(2);
    message->u.evidence.second.signature[0] ^= 1;
    say(1, message);
    assert_false(is_convicted(2) || is_closed(2));
    assert_true(is_closed(1));
}

/* Keys cost nothing, so evidence against strangers would be a flood. This node does not ban itself
 * either. */
FACT(evidence_against_strangers_is_ignored) {
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t author = i == 0 ? 9 : 0;
        say(1, evidence_against(author));
        assert_false(is_convicted(author) || is_closed(1));
        assert_null(find_message(TW_MSG_EVIDENCE, 2));
    }
}

/* ---- where evidence is found ---------------------------------------------------------------- */

/* A lying proposer shows one member's promise without a lock, then its promise with a lock. */
FACT(promises_of_two_proposals_are_compared) {
    const struct tw_roster roster = view_now().roster;
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    struct tw_msg_propose *propose = &message->u.propose;
    propose->record = empty_close(&start.tip);
    for (uint64_t rank = 0; rank < 3; rank++) { /* one of the ranks is peer 2's */
        propose->ballot = 2 * TW_MEMBERS_MAX + rank;
        propose->lock = (struct tw_proof){.ballot = 0};
        propose->promises = (struct tw_promises){.voters = 0};
        signing_justify(&run, &roster, 1, 0, propose);
        say_unsigned(2, message);
        assert_false(is_convicted(1));
        propose->promises = (struct tw_promises){.voters = 0};
        signing_justify(&run, &roster, 1, TW_MEMBERS_MAX, propose);
        signing_prove(&run, &roster, TW_VOTE_ACCEPT, TW_MEMBERS_MAX, &propose->record,
                      &propose->lock);
        say_unsigned(2, message);
        if (is_convicted(1)) break;
    }
    assert_true(is_convicted(1) && !is_convicted(2));
    const struct tw_message *evidence = find_message(TW_MSG_EVIDENCE, 2);
    assert_non_null(evidence);
    assert_int_equal(evidence->u.evidence.second.lock_ballot, TW_MEMBERS_MAX);
}

/* This node is the proposer and receives one member's votes for two records. */
FACT(votes_for_two_records_are_compared) {
    worker_up();
    contribute_as(1);
    for (uint32_t k = 1; k <= 2; k++) say_no_result(k);
    const uint64_t ballot = wait_for_prepare(2, 300);
    struct tw_record record = empty_close(&start.tip);
    say(2, promise_with_lock(&record, 0, ballot));
    const struct tw_message *propose = find_message(TW_MSG_PROPOSE, 2);
    assert_non_null(propose);
    const struct tw_record proposed = propose->u.propose.record;
    say(2, accept_of(&proposed, ballot, TW_VOTE_ACCEPT));
    assert_false(is_convicted(2));
    record = proposed;
    record.next.members[0].weight++;
    say_unsigned(2, accept_of(&record, ballot, TW_VOTE_ACCEPT)); /* without a signature */
    assert_false(is_convicted(2));
    say(2, accept_of(&record, ballot, TW_VOTE_ACCEPT));
    assert_true(is_convicted(2));
}

/* The owner of part 1 announces one result to this node. It announces another one over the same
 * link, or to the proposer. */
FACT(results_for_two_members_are_compared) {
    enum { SAME, SAID_TWICE, PROPOSED, CASES };
    for (int i = 0; i < CASES; i++) {
        start_again();
        worker_up();
        const struct tw_id one = name_of("result"), two = name_of("another");
        const struct tw_contributor by = {.member_idx = 1, .tokens = 100, .fragment_tokens = 100};
        say_result_by(&by, &one, 90);
        if (i == SAID_TWICE) say_result_by(&by, &two, 90);
        struct tw_message *message = message_of(TW_MSG_PROPOSE);
        struct tw_record *record = &message->u.propose.record;
        *record = empty_close(&start.tip);
        record->parts_count = 3;
        for (uint32_t k = 0; k < 3; k++) record->parts[k] = (struct tw_part){.owner_idx = k};
        record->parts[1] = (struct tw_part){
            .owner_idx = 1, .bytes = 90, .result = one, .contributors = UINT64_C(1) << 1};
        if (i == PROPOSED) record->parts[1].result = two;
        record->contributors_count = 1;
        record->contributors[0] = by;
        record->clock_tokens += 100;
        for (uint64_t rank = 0; rank < 3; rank++) {
            message->u.propose.ballot = TW_MEMBERS_MAX + rank;
            say(2, message);
        }
        assert_int_equal(is_convicted(1), i != SAME);
        assert_int_equal(find_message(TW_MSG_EVIDENCE, 2) != NULL, i != SAME);
        assert_false(is_convicted(2));
    }
}

/* Two records of one round are decided, because one of three members voted for both. */
FACT(fork_names_the_member_that_made_it) {
    static struct tw_msg_commit theirs;
    const struct tw_roster roster = view_now().roster;
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    struct tw_msg_commit *commit = &message->u.commit;
    commit->record = empty_close(&start.tip);
    theirs.record = commit->record;
    theirs.record.next.members[1].weight++;
    signing_prove(&run, &roster, TW_VOTE_COMMIT, 1, &commit->record, &commit->proof);
    signing_prove(&run, &roster, TW_VOTE_COMMIT, 1, &theirs.record, &theirs.proof);
    commit->proof.voters = 0x5; /* voters: this node and node 2 */
    theirs.proof.voters = 0x6;
    say_unsigned(2, message);
    assert_int_equal(view_now().rounds, ROUNDS + 1);
    forget();
    message = message_of(TW_MSG_STATUS);
    message->u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                               .lineage = start.lineage,
                                               .rounds = ROUNDS + 1,
                                               .tip = tw_record_digest(&theirs.record)};
    say(1, message);
    const struct tw_message *asked = find_message(TW_MSG_LOG_GET, 1);
    assert_true(asked != NULL && asked->u.log_get.round == ROUNDS);
    message = message_of(TW_MSG_COMMIT);
    message->u.commit = theirs;
    say_unsigned(1, message);
    assert_true(is_convicted(2) && !is_convicted(1));
    assert_non_null(find_message(TW_MSG_EVIDENCE, 1));
}

/* ---- votes of an honest node ---------------------------------------------------------------- */

/* The node votes for an empty record of the open round, at the ballot of attempt 1 of peer 2. */
static struct tw_statement vote_of_node(uint64_t *ballot) {
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = empty_close(&start.tip);
    uint64_t rank = 0;
    while (node->round.rank[rank] != 2) rank++;
    *ballot = message->u.propose.ballot = TW_MEMBERS_MAX + rank;
    struct tw_message propose = *message;
    for (uint32_t k = 1; k <= 2; k++) say_no_result(k);
    say(2, &propose);
    const struct tw_message *accept = find_message(TW_MSG_ACCEPT, 2);
    assert_non_null(accept);
    struct tw_statement statement = {.digest = accept->u.accept.digest};
    memcpy(statement.signature, accept->u.accept.signature, sizeof(statement.signature));
    return statement;
}

/* An honest node may vote in two histories of its lineage. Either a liar shows a false history to a
 * node that is alone, or members fork and the node loses its stored vote. It joins twice, under two
 * nonces. */
FACT(vote_in_a_second_history_is_no_evidence) {
    const uint64_t nonces[] = {start.nonce, 99};
    struct tw_msg_evidence evidence = {
        .author = id_of(0), .lineage = start.lineage, .round = ROUNDS, .phase = TW_VOTE_ACCEPT};
    const struct tw_position first = start;
    evidence.first = vote_of_node(&evidence.ballot);
    uint64_t ballot;
    start.tip.clock_tokens++;
    start.tip.next.members[0].nonce = nonces[1];
    start_as(0);
    evidence.second = vote_of_node(&ballot);
    assert_int_equal(ballot, evidence.ballot);
    assert_memory_not_equal(&evidence.first.digest, &evidence.second.digest, sizeof(struct tw_id));
    for (uint32_t i = 0; i < 2; i++) {
        start = first;
        start_as(1);
        struct tw_message *message = message_of(TW_MSG_EVIDENCE);
        message->u.evidence = evidence;
        message->u.evidence.nonce = nonces[i];
        say(2, message);
        assert_false(is_convicted(0));
    }
}

/* In another history, a round can have another roster. Statements of its members are not compared
 * with statements of the members that had the same places. */
FACT(statements_of_another_history_are_forgotten) {
    struct tw_msg_accept accept = {.lineage = start.lineage,
                                   .round = ROUNDS,
                                   .ballot = 1,
                                   .phase = TW_VOTE_ACCEPT,
                                   .digest = name_of("one")};
    tw_evidence_vote(node, 1, &accept, true);
    node->tip_digest = name_of("another parent");
    node->roster.members[1].id = id_of(3);
    accept.digest = name_of("two");
    tw_evidence_vote(node, 1, &accept, true);
    assert_int_equal(node->evidence.liars_count, 0);
    accept.digest = name_of("three");
    tw_evidence_vote(node, 1, &accept, true);
    assert_int_equal(node->evidence.liars_count, 1);
}
