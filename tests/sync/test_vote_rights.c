/* test_vote_rights.c - certificates decide which proposals a voter accepts, if these give votes or
 * take them away, and which proofs. */
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

enum { MEMBERS = 8 };

/* Members 0 to 4 vote. Peer 3's certificate gives no vote any more; that of peer 5 does by now. */
static void begin(bool with_rights) {
    struct tw_roster *const roster = &start.tip.next;
    for (; roster->count < MEMBERS; roster->count++) {
        roster->members[roster->count] =
            (struct tw_member){.id = id_of(roster->count), .nonce = 7 + roster->count};
    }
    for (uint32_t i = 5; i < MEMBERS; i++) roster->members[i].lacks_vote = with_rights;
    has_rights = with_rights;
    voteless_peers = with_rights ? 1 << 3 | 1 << 6 | 1 << 7 : 0;
    start_again();
    for (uint16_t peer = 3; peer < MEMBERS; peer++) link_up(peer);
    wait_us(SECONDS(1));
    forget();
}

static int set_up_voters(void **state) {
    has_rights = false;
    voteless_peers = 0;
    return set_up(state);
}

#define FACT(name) TEST_IN(set_up_voters, tear_down, name)

/* Proposes the record in the ballots of all ranks. Returns whether the node votes for it. */
static bool is_voted_for(uint16_t peer, const struct tw_record *record) {
    static uint64_t attempt;
    attempt++;
    forget();
    for (uint32_t k = 1; k < 3; k++) say_no_result(k);
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = *record;
    for (uint64_t rank = 0; rank < MEMBERS; rank++) {
        message->u.propose.ballot = attempt * TW_MEMBERS_MAX + rank;
        say(peer, message);
    }
    return find_message(TW_MSG_ACCEPT, peer) != NULL;
}

/* An empty round; all members own parts of the next one. */
static struct tw_record next_record(void) {
    struct tw_record record = empty_close(&start.tip);
    for (uint32_t i = 0; i < record.next.count; i++) record.next.members[i].weight = 1;
    return record;
}

static struct tw_record record_with_vote(uint32_t member, bool lacks_vote) {
    struct tw_record record = next_record();
    record.next.members[member].lacks_vote = lacks_vote;
    record.next.number++;
    return record;
}

FACT(votes_follow_certificates) {
    static const struct {
        uint32_t member;
        bool lacks_vote, is_right;
    } cases[] = {
        {6, false, false}, /* its certificate gives none */
        {2, true, false},  /* its certificate gives one */
        {0, true, false},  /* this node itself */
        {3, true, true},   /* it has a new certificate */
        {5, false, true},  /* so has this one */
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(true);
        const struct tw_record record = record_with_vote(cases[i].member, cases[i].lacks_vote);
        assert_int_equal(is_voted_for(2, &record), cases[i].is_right);
    }
}

FACT(votes_stay_where_nothing_changes) {
    begin(true);
    const struct tw_record record = next_record();
    assert_true(is_voted_for(2, &record));
}

/* A member without a link may be anybody. */
FACT(new_member_with_a_vote_must_be_linked) {
    for (uint32_t round = 0; round < 3; round++) {
        begin(true);
        struct tw_record record = next_record();
        record.next.members[record.next.count++] = (struct tw_member){
            .id = id_of(MEMBERS), .nonce = 7 + MEMBERS, .lacks_vote = round == 1};
        record.next.number++;
        if (round == 2) link_up(MEMBERS);
        assert_int_equal(is_voted_for(2, &record), round == 2);
    }
}

FACT(all_vote_without_certificates) {
    begin(false);
    struct tw_record record = next_record();
    assert_true(is_voted_for(2, &record));
    begin(false);
    record = record_with_vote(6, true);
    assert_false(is_voted_for(2, &record));
}

FACT(proposal_of_a_member_without_a_vote_is_ignored) {
    begin(true);
    const struct tw_record record = next_record();
    assert_false(is_voted_for(6, &record));
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    for (uint64_t rank = 0; rank < MEMBERS; rank++) {
        message->u.prepare = (struct tw_msg_prepare){.lineage = start.lineage,
                                                     .round = view_now().rounds,
                                                     .ballot = 900 * TW_MEMBERS_MAX + rank};
        say(6, message);
    }
    wait_us(SECONDS(10));
    assert_null(find_message(TW_MSG_PROMISE, 6));
}

/* Delivers a COMMIT that these members signed. Returns whether the node takes the round as
 * decided. */
static bool is_committed(uint64_t signers) {
    const uint64_t rounds = view_now().rounds;
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = next_record();
    const struct tw_id run = {{0}};
    struct tw_roster signing = start.tip.next;
    for (uint32_t i = 0; i < signing.count; i++)
        signing.members[i].lacks_vote = (signers >> i & 1) == 0;
    signing_prove(&run, &signing, TW_VOTE_COMMIT, 1, &message->u.commit.record,
                  &message->u.commit.proof);
    say_unsigned(2, message);
    return view_now().rounds == rounds + 1;
}

FACT(votes_without_a_right_prove_nothing) {
    begin(true);
    assert_false(is_committed(0xE3)); /* members 0, 1, 5, 6, 7 */
    begin(true);
    assert_false(is_committed(0x3F)); /* enough voters, and one more member */
    begin(true);
    assert_false(is_committed(0x07)); /* too few voters */
    begin(true);
    assert_true(is_committed(0x1E)); /* four of five voters */
}
