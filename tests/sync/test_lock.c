/* test_lock.c - the two phases of a ballot: locks, and the promises that a proposal needs. */
#include "sync/round/round.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

static const struct tw_id run = {{0}};

/* Returns one of two records of round ROUNDS without results. Members may vote for it at once. */
static struct tw_record record_of(uint32_t number) {
    struct tw_record record = empty_close(&start.tip);
    record.next.members[2].weight += number;
    for (uint32_t k = 1; k <= 2; k++) say_no_result(k);
    return record;
}

/* Returns a ballot in which this member is the proposer. */
static uint64_t ballot_of(uint32_t member, uint64_t attempt) {
    uint64_t rank = 0;
    while (node->round.rank[rank] != member) rank++;
    return attempt * TW_MEMBERS_MAX + rank;
}

static struct tw_message *proposal(uint32_t member, uint64_t attempt,
                                   const struct tw_record *record) {
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.ballot = ballot_of(member, attempt);
    message->u.propose.record = *record;
    return message;
}

static void say_lock(uint16_t peer, uint64_t ballot, const struct tw_record *record) {
    const struct tw_roster roster = view_now().roster;
    struct tw_message *message = message_of(TW_MSG_LOCK);
    message->u.lock = (struct tw_msg_lock){
        .lineage = start.lineage, .round = ROUNDS, .digest = tw_record_digest(record)};
    signing_prove(&run, &roster, TW_VOTE_ACCEPT, ballot, record, &message->u.lock.proof);
    say(peer, message);
}

/* Returns the vote that this node last sent to the peer, if it was in this phase, or NULL. */
static const struct tw_msg_accept *vote_in(enum tw_vote_phase phase, uint16_t peer) {
    const struct tw_message *message = find_message(TW_MSG_ACCEPT, peer);
    return message != NULL && message->u.accept.phase == phase ? &message->u.accept : NULL;
}

static const struct tw_msg_promise *promise_to(uint16_t peer, uint64_t attempt) {
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    message->u.prepare = (struct tw_msg_prepare){
        .lineage = start.lineage, .round = ROUNDS, .ballot = ballot_of(peer, attempt)};
    say(peer, message);
    const struct tw_message *promise = find_message(TW_MSG_PROMISE, peer);
    assert_non_null(promise);
    return &promise->u.promise;
}

/* ---- proposals ------------------------------------------------------------------------------ */

FACT(proposal_above_the_lowest_ballot_needs_promises) {
    enum { RIGHT, NONE, TOO_FEW, OF_ANOTHER_BALLOT, OF_STRANGERS, LATER_LOCK, CASES };
    for (int i = 0; i < CASES; i++) {
        start_again();
        const struct tw_record record = record_of(0);
        struct tw_roster roster = view_now().roster;
        struct tw_message *message = proposal(1, 1, &record);
        struct tw_msg_propose *propose = &message->u.propose;
        if (i == OF_ANOTHER_BALLOT) propose->ballot++;
        for (uint32_t k = 0; i == OF_STRANGERS && k < roster.count; k++)
            roster.members[k].id.bytes[31] ^= 1;
        signing_justify(&run, &roster, 1, i == LATER_LOCK ? 1 : 0, propose);
        propose->ballot = ballot_of(1, 1);
        if (i == NONE) memset(&propose->promises, 0, sizeof(propose->promises));
        if (i == TOO_FEW) propose->promises.voters = 0x4;
        say_unsigned(1, message);
        assert_int_equal(vote_in(TW_VOTE_ACCEPT, 1) != NULL, i == RIGHT);
    }
}

/* Some member has a lock. The proposal must be of the locked record, and carry the lock. */
FACT(proposal_carries_the_newest_lock_on) {
    enum { RIGHT, OTHER_RECORD, FORGED, OF_THE_SAME_BALLOT, OLDER, CASES };
    for (int i = 0; i < CASES; i++) {
        start_again();
        const struct tw_record record = record_of(0), other = record_of(1);
        const struct tw_roster roster = view_now().roster;
        const uint64_t lock_ballot = i == OF_THE_SAME_BALLOT ? ballot_of(1, 2) : ballot_of(2, 1);
        struct tw_message *message = proposal(1, 2, i == OTHER_RECORD ? &other : &record);
        struct tw_msg_propose *propose = &message->u.propose;
        signing_justify(&run, &roster, 1, lock_ballot, propose);
        signing_prove(&run, &roster, TW_VOTE_ACCEPT, i == OLDER ? 1 : lock_ballot, &record,
                      &propose->lock);
        if (i == FORGED) memset(propose->lock.signatures, 0, sizeof(propose->lock.signatures));
        say_unsigned(1, message);
        assert_int_equal(vote_in(TW_VOTE_ACCEPT, 1) != NULL, i == RIGHT);
    }
}

/* A lying proposer has two sets of promises for one ballot: one without a lock, and one with it. A
 * member votes once in a ballot, or two records could be locked at that ballot. */
FACT(second_record_of_a_ballot_gets_no_vote) {
    const struct tw_record record = record_of(0), other = record_of(1);
    const struct tw_roster roster = view_now().roster;
    say(1, proposal(1, 2, &record));
    assert_non_null(vote_in(TW_VOTE_ACCEPT, 1));
    forget();
    struct tw_message *message = proposal(1, 2, &other);
    struct tw_msg_propose *propose = &message->u.propose;
    signing_justify(&run, &roster, 1, ballot_of(2, 1), propose);
    signing_prove(&run, &roster, TW_VOTE_ACCEPT, ballot_of(2, 1), &other, &propose->lock);
    say_unsigned(1, message);
    assert_null(vote_in(TW_VOTE_ACCEPT, 1));
    propose->ballot = ballot_of(1, 3);
    memset(&propose->promises, 0, sizeof(propose->promises));
    signing_justify(&run, &roster, 1, ballot_of(2, 1), propose);
    say_unsigned(1, message);
    assert_non_null(vote_in(TW_VOTE_ACCEPT, 1));
}

/* ---- locks ---------------------------------------------------------------------------------- */

FACT(lock_is_kept_and_reported) {
    const struct tw_record record = record_of(0);
    const uint64_t ballot = ballot_of(1, 1);
    say(1, proposal(1, 1, &record));
    assert_non_null(vote_in(TW_VOTE_ACCEPT, 1));
    assert_true(promise_to(2, 2)->lock.ballot ==
                0); /* no majority of accept votes has arrived: no lock */
    forget();
    start_again();
    (void)record_of(0);
    say(1, proposal(1, 1, &record));
    forget();
    say_lock(1, ballot, &record);
    const struct tw_action *store = find_action(TW_ACT_STORE_VOTE);
    assert_true(store != NULL && store->u.store.vote->lock.ballot == ballot);
    assert_non_null(vote_in(TW_VOTE_COMMIT, 1));
    const struct tw_msg_promise *promise = promise_to(2, 2);
    assert_true(promise->lock.ballot == ballot);
    const struct tw_id before = tw_record_digest(&record);
    const struct tw_id now = tw_record_digest(&promise->locked);
    assert_memory_equal(&before, &now, sizeof(now));
}

FACT(lock_without_enough_votes_closes_the_link) {
    enum { NO_VOTES, ONE_VOTE, OF_PHASE_TWO, CASES };
    for (int i = 0; i < CASES; i++) {
        start_again();
        const struct tw_record record = record_of(0);
        const struct tw_roster roster = view_now().roster;
        const uint64_t ballot = ballot_of(1, 1);
        say(1, proposal(1, 1, &record));
        struct tw_message *message = message_of(TW_MSG_LOCK);
        message->u.lock = (struct tw_msg_lock){
            .lineage = start.lineage, .round = ROUNDS, .digest = tw_record_digest(&record)};
        struct tw_proof *proof = &message->u.lock.proof;
        signing_prove(&run, &roster, i == OF_PHASE_TWO ? TW_VOTE_COMMIT : TW_VOTE_ACCEPT, ballot,
                      &record, proof);
        if (i == NO_VOTES) memset(proof->signatures, 0, sizeof(proof->signatures));
        if (i == ONE_VOTE) proof->voters = 0x2;
        say(1, message);
        assert_null(vote_in(TW_VOTE_COMMIT, 1));
        assert_non_null(find_action(TW_ACT_CLOSE));
    }
}

/* A lock below the promised ballot comes too late: the promise reported that there was none. */
FACT(lock_below_the_promise_gets_no_vote) {
    const struct tw_record record = record_of(0);
    say(1, proposal(1, 1, &record));
    assert_true(promise_to(2, 2)->lock.ballot == 0);
    say_lock(1, ballot_of(1, 1), &record);
    assert_null(vote_in(TW_VOTE_COMMIT, 1));
    assert_non_null(find_message(TW_MSG_NACK, 1));
}

/* Enough members promised a later ballot without the lock, so its record cannot be decided. */
FACT(vote_for_another_record_ends_the_lock) {
    const struct tw_record record = record_of(0), other = record_of(1);
    say(1, proposal(1, 1, &record));
    say_lock(1, ballot_of(1, 1), &record);
    assert_non_null(vote_in(TW_VOTE_COMMIT, 1));
    forget();
    say(2, proposal(2, 2, &other));
    wait_us(
        SECONDS(60)); /* until the lease of member 1 ends; meanwhile this node also tries ballots */
    (void)promise_to(2, 30);
    say(2, proposal(2, 30, &other));
    assert_non_null(vote_in(TW_VOTE_ACCEPT, 2));
    assert_true(promise_to(1, 40)->lock.ballot == 0);
}

/* ---- promises to this node ------------------------------------------------------------------ */

FACT(promise_with_a_forged_lock_closes_the_link) {
    for (uint32_t i = 0; i < 3; i++) {
        start_again();
        const struct tw_record record = record_of(0);
        worker_up();
        const uint64_t ballot = wait_for_prepare(2, 300);
        struct tw_message *message = promise_with_lock(&record, 1, ballot);
        struct tw_proof *lock = &message->u.promise.lock;
        if (i == 1) memset(lock->signatures, 0, sizeof(lock->signatures));
        if (i == 2) lock->voters = 0x2;
        say(2, message);
        assert_int_equal(find_message(TW_MSG_PROPOSE, 2) != NULL, i == 0);
        assert_int_equal(find_action(TW_ACT_CLOSE) != NULL, i != 0);
    }
}
