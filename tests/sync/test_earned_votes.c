/* test_earned_votes.c - in runs without certificates, votes are earned by merged work: which next
 * rosters a voter accepts. */
#include "tests/sync/lone_node.h"

enum { MEMBERS = 8, VOTERS = 5, OLD = TW_MERGES_MAX };

/* Members 0 to 4 vote, and have this many merges; members 5 to 7 have none. */
static void begin(uint8_t merges) {
    struct tw_roster *const roster = &start.tip.next;
    roster->count = MEMBERS;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        roster->members[i] = (struct tw_member){.id = id_of(i),
                                                .nonce = 7 + i,
                                                .weight = i < 3,
                                                .lacks_vote = i >= VOTERS,
                                                .merges = i < VOTERS ? merges : 0};
    }
}

/* Starts the node in this roster, linked to all, and returns an empty round in which nothing about
 * the members changes. All own parts of the next one. */
static struct tw_record open_round(void) {
    start_again();
    for (uint16_t peer = 3; peer < MEMBERS + 3; peer++) link_up(peer);
    wait_us(SECONDS(1));
    forget();
    struct tw_record record = empty_close(&start.tip);
    for (uint32_t i = 0; i < record.next.count; i++) record.next.members[i].weight = 1;
    return record;
}

/* Proposes the record in the ballots of all ranks. Returns whether the node votes for it. */
static bool is_voted_for(struct tw_record *record) {
    static uint64_t attempt;
    attempt++;
    forget();
    record->next.number = record->roster_number + 1;
    for (uint32_t k = 1; k < 3; k++) say_no_result(k);
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = *record;
    for (uint64_t rank = 0; rank < MEMBERS; rank++) {
        message->u.propose.ballot = attempt * TW_MEMBERS_MAX + rank;
        say(2, message);
    }
    return find_message(TW_MSG_ACCEPT, 2) != NULL;
}

static void add_newcomers(struct tw_record *record, uint32_t count, bool lacks_vote) {
    for (; count > 0; count--) {
        const uint32_t i = record->next.count++;
        record->next.members[i] =
            (struct tw_member){.id = id_of(i), .nonce = 7 + i, .lacks_vote = lacks_vote};
    }
}

static int set_up_votes(void **state) {
    has_rights = false;
    voteless_peers = 0;
    return set_up(state);
}

#define FACT(name) TEST_IN(set_up_votes, tear_down, name)

FACT(members_without_votes_keep_their_seats) {
    begin(OLD);
    struct tw_record record = open_round();
    assert_true(is_voted_for(&record));
}

FACT(before_the_first_merge_all_vote_at_once) {
    begin(0);
    for (uint32_t i = 0; i < MEMBERS; i++) start.tip.next.members[i].lacks_vote = false;
    struct tw_record record = open_round();
    add_newcomers(&record, 3, false);
    assert_true(is_voted_for(&record));
    for (uint32_t i = MEMBERS; i < record.next.count; i++) record.next.members[i].lacks_vote = true;
    assert_false(is_voted_for(&record));
}

/* Half of the age, rounded up, 64 at most: neither sooner nor later. */
FACT(vote_comes_with_half_of_the_groups_merges) {
    static const struct {
        uint8_t age, merges;
        bool is_due;
    } cases[] = {{1, 0, false}, {1, 1, true},    {2, 1, true},   {3, 1, false},    {9, 4, false},
                 {9, 5, true},  {40, 19, false}, {40, 20, true}, {OLD, 63, false}, {OLD, 64, true}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t is_given = 0; is_given < 2; is_given++) {
            begin(1);
            start.tip.next.members[3].merges = cases[i].age; /* the oldest voter */
            start.tip.next.members[6].merges = cases[i].merges;
            struct tw_record record = open_round();
            record.next.members[6].lacks_vote = is_given == 0;
            assert_int_equal(is_voted_for(&record), cases[i].is_due == (is_given == 1));
        }
    }
}

/* A member without a vote makes no group old. */
FACT(age_is_that_of_voters) {
    begin(4);
    start.tip.next.members[5].merges = 1;
    start.tip.next.members[6].merges = OLD;
    struct tw_record record = open_round();
    record.next.members[6].lacks_vote = false;
    assert_true(is_voted_for(&record));
}

/* Of five voters one may lie. The member with most merges comes first, then the smaller id. */
FACT(as_many_get_a_vote_as_may_lie) {
    for (uint32_t set = 0; set < 8; set++) {
        begin(OLD);
        start.tip.next.members[5].merges = 70;
        start.tip.next.members[6].merges = start.tip.next.members[7].merges = 80;
        struct tw_record record = open_round();
        for (uint32_t i = 0; i < 3; i++)
            record.next.members[VOTERS + i].lacks_vote = (set >> i & 1) == 0;
        assert_int_equal(is_voted_for(&record), set == 1 << 1);
    }
}

FACT(old_group_seats_as_many_as_may_lie) {
    for (uint32_t count = 1; count < 4; count++) {
        begin(TW_VOTES_YOUNG);
        struct tw_record record = open_round();
        add_newcomers(&record, count, true);
        assert_int_equal(is_voted_for(&record), count == 1);
        begin(TW_VOTES_YOUNG - 1);
        record = open_round();
        add_newcomers(&record, count, true);
        assert_true(is_voted_for(&record));
    }
}

/* No member has a vote because a proposer says so, or merges that no record has. */
FACT(newcomer_brings_no_merges) {
    begin(OLD);
    struct tw_record record = open_round();
    add_newcomers(&record, 1, true);
    for (uint32_t lie = 1; lie < 4; lie++) { /* in the last one, it passes for a former voter */
        record.next.members[MEMBERS].lacks_vote = lie == 1;
        record.next.members[MEMBERS].merges = lie == 1 ? 1 : lie == 2 ? 0 : OLD;
        assert_false(is_voted_for(&record));
    }
    record.next.members[MEMBERS].merges = 0;
    record.next.members[MEMBERS].lacks_vote = true;
    assert_true(is_voted_for(&record));
}

FACT(merges_follow_from_the_record) {
    for (uint32_t i = 0; i < MEMBERS; i++) {
        begin(20);
        struct tw_record record = open_round();
        record.next.members[i].merges++; /* an empty round merges nobody's work */
        assert_false(is_voted_for(&record));
        record.next.members[i].merges--;
        assert_true(is_voted_for(&record));
    }
}

/* A node that lost its vote on disk returns under its id with a new nonce. */
FACT(vote_stays_with_the_id) {
    for (uint32_t is_taken = 0; is_taken < 2; is_taken++) {
        begin(OLD);
        struct tw_record record = open_round();
        struct tw_message *message = message_of(TW_MSG_STATUS);
        message->u.status = (struct tw_msg_status){.state = TW_STATE_RECEIVER,
                                                   .lineage = start.lineage,
                                                   .rounds = ROUNDS,
                                                   .nonce = start.tip.next.members[4].nonce + 1};
        say(4, message);
        record.next.members[4].nonce++;
        record.next.members[4].lacks_vote = is_taken == 1;
        assert_int_equal(is_voted_for(&record), is_taken == 0);
    }
}

/* Where certificates give votes, nobody counts merges. */
FACT(certificates_need_no_merges) {
    has_rights = true;
    begin(0);
    for (uint32_t i = 0; i < MEMBERS; i++) start.tip.next.members[i].lacks_vote = false;
    struct tw_record record = open_round();
    assert_true(is_voted_for(&record));
    record.next.members[1].merges = 1;
    assert_false(is_voted_for(&record));
}
