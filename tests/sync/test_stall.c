/* test_stall.c - how much one member or one path can slow a group down.
 *
 * A healthy group commits once a second. With one member that lies, or that receives or delivers
 * nothing, the group soon commits nearly as often. */

#include "sync/core/state.h"
#include "sync/transfer/payload.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)
#define MINUTES(n) (60 * SECONDS(n))

enum { HEALTHY = 60 }; /* commits a minute */

static struct mesh mesh;
static bool is_on;       /* whether the fault or the lie is active */
static uint32_t culprit; /* the last node */

static void open_group(uint32_t nodes_count) {
    is_on = false;
    culprit = nodes_count - 1;
    mesh_init(&mesh, nodes_count, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, MINUTES(1));
    is_on = true;
}

/* Asserts that node 0 commits at least `percent` of the healthy number of merges. A merge counts if
 * it lists more than half of the nodes. Closed links are reopened. */
static void expect_merges(uint32_t minutes, uint32_t percent) {
    const uint64_t end_us = mesh.now_us + MINUTES(minutes);
    const uint32_t before = mesh.merged[0], commits_before = mesh.commits[0];
    while (mesh.now_us < end_us) {
        mesh_run(&mesh, SECONDS(5));
        mesh_link_all(&mesh);
    }
    const uint32_t count = mesh.merged[0] - before;
    printf("%u merges of %u, %u commits\n", count, minutes * HEALTHY,
           mesh.commits[0] - commits_before);
    assert_true(100 * count >= percent * minutes * HEALTHY);
}

static void close_group(void) {
    for (uint32_t i = 1; i < culprit; i++) assert_true(mesh_agree(&mesh, 0, i));
    mesh_deinit(&mesh);
}

TEST(healthy_group_commits_once_a_second) {
    open_group(5);
    expect_merges(3, 99);
    close_group();
}

/* ---- paths ---------------------------------------------------------------------------------- */

static bool is_culprits(const struct mesh *world, uint32_t from, const struct tw_id *hash,
                        enum tw_content content) {
    if (!is_on || from != culprit) return false;
    const struct payload *payload = tw_payload_find(world->nodes[from], hash);
    return payload != NULL && payload->content == content;
}

static bool gives_no_contribution(struct mesh *world, uint32_t from, uint32_t to,
                                  const struct tw_id *hash) {
    return !is_culprits(world, from, hash, TW_CONTENT_DELTA);
}

/* All messages arrive, but the contributions of one member do not. */
TEST(member_whose_contributions_never_arrive_is_waited_for_ever_less) {
    open_group(5);
    mesh.gives = gives_no_contribution;
    expect_merges(10, 45);
    expect_merges(5, 75);
    close_group();
}

static bool gives_node_0_nothing(struct mesh *world, uint32_t from, uint32_t to,
                                 const struct tw_id *hash) {
    return !is_on || from != culprit || to != 0;
}

/* No chunk of one member reaches node 0; the other members receive theirs. */
TEST(dead_path_between_two_holds_up_neither) {
    open_group(5);
    mesh.gives = gives_node_0_nothing;
    expect_merges(10, 45);
    expect_merges(5, 75);
    is_on = false; /* the member's path works again */
    expect_merges(5, 90);
    close_group();
}

/* ---- lies ------------------------------------------------------------------------------------ */

/* Returns true and sets the ballot if the message asks for a vote. */
static bool is_asking(const struct tw_message *said, struct tw_msg_prepare *ballot) {
    if (said->kind == TW_MSG_PREPARE) *ballot = said->u.prepare;
    if (said->kind == TW_MSG_PROPOSE)
        *ballot = (struct tw_msg_prepare){.lineage = said->u.propose.record.lineage,
                                          .round = said->u.propose.record.round,
                                          .ballot = said->u.propose.ballot};
    return said->kind == TW_MSG_PREPARE || said->kind == TW_MSG_PROPOSE;
}

static bool is_vote(const struct tw_message *said) {
    return said->kind == TW_MSG_PROMISE || said->kind == TW_MSG_ACCEPT;
}

/* The culprit never proposes or votes, and always claims that it has promised a higher ballot. */
static bool says_no(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    if (!is_on || (from != culprit && to != culprit)) return true;
    if (from == culprit) return !is_vote(said) && !is_asking(said, &asked);
    if (!is_asking(said, &asked)) return true;
    struct tw_message no = {.kind = TW_MSG_NACK};
    no.u.nack = (struct tw_msg_nack){
        .lineage = asked.lineage, .round = asked.round, .promised = asked.ballot + TW_MEMBERS_MAX};
    mesh_say(world, culprit, from, &no);
    return false;
}

TEST(claimed_promise_ends_no_ballot) {
    open_group(5);
    mesh.says = says_no;
    expect_merges(5, 75);
    close_group();
}

/* Returns the lowest ballot of the culprit above `ballot`. */
static uint64_t ballot_above(const struct mesh *world, uint64_t ballot) {
    const uint64_t rank = (uint64_t)world->nodes[culprit]->round.self_rank;
    return (ballot / TW_MEMBERS_MAX + 1) * TW_MEMBERS_MAX + rank;
}

static void say_to_all(struct mesh *world, const struct tw_message *message) {
    for (uint32_t i = 0; i < culprit; i++) mesh_say(world, culprit, i, message);
}

static void prepare_above(struct mesh *world, const struct tw_msg_prepare *asked) {
    struct tw_message message = {.kind = TW_MSG_PREPARE, .u.prepare = *asked};
    message.u.prepare.ballot = ballot_above(world, asked->ballot);
    say_to_all(world, &message);
}

/* The culprit answers each request for a vote by asking all members for a promise of a higher
 * ballot. */
static bool interrupts(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    if (!is_on || (from != culprit && to != culprit)) return true;
    if (from == culprit) return !is_vote(said) && !is_asking(said, &asked);
    if (!is_asking(said, &asked)) return true;
    prepare_above(world, &asked);
    return false;
}

TEST(member_that_prepares_and_never_proposes_is_put_off) {
    for (uint32_t nodes_count = 3; nodes_count <= 5; nodes_count += 2) {
        open_group(nodes_count);
        mesh.says = interrupts;
        expect_merges(5, 75);
        close_group();
    }
}

/* The culprit answers a proposal with an empty one in a higher ballot. */
static bool robs(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    if (!is_on || (from != culprit && to != culprit)) return true;
    if (from == culprit) return !is_vote(said) && !is_asking(said, &asked);
    if (said->kind != TW_MSG_PROPOSE) return true;
    struct tw_record *record = &said->u.propose.record;
    said->u.propose.ballot = ballot_above(world, said->u.propose.ballot);
    for (uint32_t i = 0; i < record->contributors_count; i++)
        record->clock_tokens -= record->contributors[i].tokens;
    record->contributors_count = 0;
    for (uint32_t k = 0; k < record->parts_count; k++)
        record->parts[k] = (struct tw_part){.owner_idx = record->parts[k].owner_idx};
    say_to_all(world, said);
    return false;
}

static bool asks_and_robs(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    if (is_on && from != culprit && to == culprit && said->kind == TW_MSG_PROPOSE &&
        is_asking(said, &asked))
        prepare_above(world, &asked);
    return robs(world, from, to, said);
}

TEST(proposal_is_not_ended_by_another) {
    open_group(5);
    mesh.says = robs;
    expect_merges(5, 75);
    close_group();
    open_group(5);
    mesh.says = asks_and_robs;
    expect_merges(5, 88);
    close_group();
}

/* Writes the culprit's proposal of an empty round, in the lowest ballot that it may use. */
static void write_empty_round(struct mesh *world, struct tw_msg_propose *propose) {
    const struct tw_node *node = world->nodes[culprit];
    const uint64_t rank = (uint64_t)node->round.self_rank;
    struct tw_record *record = &propose->record;
    propose->ballot = rank == 0 ? 1 : TW_MEMBERS_MAX + rank;
    *record = (struct tw_record){.lineage = node->at.lineage,
                                 .parent = node->tip_digest,
                                 .round = node->at.rounds,
                                 .fragment = (uint32_t)(node->at.rounds % 3),
                                 .roster_number = node->roster.number,
                                 .clock_tokens = node->at.tip.clock_tokens,
                                 .parts_count = node->round.owners_count,
                                 .next = node->roster};
    for (uint32_t k = 0; k < record->parts_count; k++)
        record->parts[k].owner_idx = node->round.owners[k];
}

static bool asks_first;       /* whether the culprit sends PREPARE in ballots that need promises */
static uint64_t hasty_rounds; /* first round in which the culprit has not acted yet */

/* As soon as a round begins, the culprit proposes an empty record. */
static bool is_hasty(struct mesh *world, uint32_t from, uint32_t to, struct tw_message *said) {
    struct tw_msg_prepare asked;
    static struct tw_message nothing;
    if (!is_on || (from != culprit && to != culprit)) return true;
    if (from == culprit) return !is_vote(said) && !is_asking(said, &asked);
    nothing.kind = TW_MSG_PROPOSE;
    write_empty_round(world, &nothing.u.propose);
    const bool is_new = nothing.u.propose.record.round >= hasty_rounds;
    const bool is_promise = said->kind == TW_MSG_PROMISE;
    if (!is_new && !is_promise) return true;
    hasty_rounds = nothing.u.propose.record.round + 1;
    if (asks_first && !is_promise && nothing.u.propose.ballot > 1) {
        (void)is_asking(&nothing, &asked);
        nothing.kind = TW_MSG_PREPARE;
        nothing.u.prepare = asked;
    }
    say_to_all(world, &nothing);
    return true;
}

/* In this run, rounds start at fixed times. One member begins each round long before it is due. */
TEST(early_member_is_not_merged_alone) {
    culprit = 4;
    mesh_init(&mesh, 5, 3);
    mesh.config.pace_us = SECONDS(30);
    for (uint32_t i = 0; i < 5; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
    mesh_link_all(&mesh);
    mesh_run(&mesh, MINUTES(3));
    struct tw_position position;
    tw_node_position(mesh.nodes[culprit], &position);
    mesh_kill(&mesh, culprit);
    mesh_run(&mesh, SECONDS(1));
    mesh.config.pace_us = SECONDS(1) / 10;
    mesh_start(&mesh, culprit, &position);
    mesh_link_all(&mesh);
    const uint32_t before = mesh.commits[0], merged_before = mesh.merged[0];
    mesh_run(&mesh, MINUTES(10));
    printf("%u commits, %u merges of most\n", mesh.commits[0] - before,
           mesh.merged[0] - merged_before);
    assert_in_range(mesh.commits[0] - before, 18, 22);
    assert_in_range(mesh.merged[0] - merged_before, 18, 22);
    close_group();
}

/* The culprit never proposes, and claims in every promise that it has a lock on an empty round. */
static bool claims_empty_round(struct mesh *world, uint32_t from, uint32_t to,
                               struct tw_message *said) {
    struct tw_msg_prepare asked;
    static struct tw_msg_propose nothing;
    if (!is_on || from != culprit) return true;
    if (said->kind == TW_MSG_PROMISE) {
        write_empty_round(world, &nothing);
        said->u.promise.lock = (struct tw_proof){.ballot = 1, .voters = (1 << 5) - 1};
        said->u.promise.locked = nothing.record;
    }
    return !is_asking(said, &asked);
}

TEST(claimed_empty_round_is_not_carried_on) {
    open_group(5);
    mesh.says = claims_empty_round;
    expect_merges(5, 75);
    close_group();
}

TEST(empty_round_gets_no_votes_while_results_may_come) {
    for (uint32_t how = 0; how < 4; how++) {
        open_group(how % 2 == 0 ? 5 : 3);
        asks_first = how >= 2;
        hasty_rounds = 0;
        mesh.says = is_hasty;
        expect_merges(5, 90);
        close_group();
    }
}

/* The culprit votes but never proposes. */
static bool says_nothing_as_a_proposer(struct mesh *world, uint32_t from, uint32_t to,
                                       struct tw_message *said) {
    struct tw_msg_prepare asked;
    return !is_on || from != culprit || !is_asking(said, &asked);
}

TEST(silent_proposer_is_passed_over_from_its_second_turn_on) {
    open_group(5);
    mesh.says = says_nothing_as_a_proposer;
    expect_merges(5, 90);
    close_group();
}

static bool says_no_result(struct mesh *world, uint32_t from, uint32_t to,
                           struct tw_message *said) {
    return !is_on || from != culprit || said->kind != TW_MSG_RESULT;
}

TEST(silent_owner_is_waited_for_twice) {
    open_group(5);
    mesh.says = says_no_result;
    expect_merges(10, 60);
    expect_merges(5, 75);
    assert_true(mesh_view(&mesh, 0).peers[culprit].owner_stall_us > 0); /* shown to the operator */
    close_group();
}

static bool gives_no_result(struct mesh *world, uint32_t from, uint32_t to,
                            const struct tw_id *hash) {
    return !is_culprits(world, from, hash, TW_CONTENT_RESULT);
}

TEST(owner_that_announces_but_never_delivers_is_waited_for_twice) {
    open_group(5);
    mesh.gives = gives_no_result;
    expect_merges(10, 75);
    expect_merges(5, 75);
    assert_true(mesh_view(&mesh, 0).peers[culprit].owner_stall_us > 0);
    close_group();
}
