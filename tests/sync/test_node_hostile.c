/* test_node_hostile.c - one node among peers that lie: it neither stops nor is misled. */
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* ---- ballots -------------------------------------------------------------------------------- */

FACT(endless_ballot_does_not_stop_the_node) {
    contribute_as(1);
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    message->u.prepare = (struct tw_msg_prepare){
        .lineage = start.lineage, .round = ROUNDS, .ballot = UINT64_MAX - 1};
    say(1, message);
    wait_us(SECONDS(200));
    message = message_of(TW_MSG_NACK);
    message->u.nack =
        (struct tw_msg_nack){.lineage = start.lineage, .round = ROUNDS, .promised = UINT64_MAX - 1};
    say(1, message);
    wait_us(SECONDS(100));
    assert_non_null(find_message(TW_MSG_PREPARE, 2)); /* the node still proposes */
}

FACT(ballot_belongs_to_its_proposer) {
    uint32_t accepted_count = 0;
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.ballot =
        1; /* the first proposer's ballot: at most one of the two peers is that proposer */
    message->u.propose.record = empty_close(&start.tip);
    for (uint16_t peer = 1; peer <= 2; peer++) {
        say(peer, message);
        accepted_count += find_message(TW_MSG_ACCEPT, peer) != NULL;
    }
    assert_true(accepted_count <= 1);
}

/* The owner invents a result in each ballot. Only results of the newest ballot may take table rows.
 */
FACT(invented_results_leave_room_for_others) {
    worker_up();
    for (uint32_t i = 0; i < 400; i++) {
        struct tw_message *message = message_of(TW_MSG_PROPOSE);
        struct tw_record *record = &message->u.propose.record;
        *record = empty_close(&start.tip);
        record->contributors_count = 1;
        record->contributors[0] = (struct tw_contributor){.member_idx = 1, .root = name_of("root")};
        record->parts_count = 3;
        for (uint32_t k = 0; k < 3; k++) record->parts[k] = (struct tw_part){.owner_idx = k};
        record->parts[1] = (struct tw_part){
            .owner_idx = 1, .bytes = 90, .result = name_of("x"), .contributors = 2};
        memcpy(record->parts[1].result.bytes, &(uint64_t){i}, 8);
        for (uint64_t rank = 0; rank < 3; rank++) {
            message->u.propose.ballot = (i + 1) * UINT64_C(64) + rank;
            say(1, message);
        }
        forget();
    }
    contribute_as(2);
    struct tw_id wanted = name_of("two");
    wanted.bytes[0] = 0;
    bool has_room = false;
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *action = &seen[i].action;
        has_room |= action->kind == TW_ACT_EXPECT && tw_id_equal(&action->u.payload.hash, &wanted);
    }
    assert_true(has_room);
    /* The owner signed many results, so its link is closed. Its invented ballots do not block the
     * lower ballot of an honest proposer. */
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
    say_no_result(2);
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = empty_close(&start.tip);
    for (uint64_t rank = 0; rank < 3; rank++) {
        message->u.propose.ballot = UINT64_C(64) + rank;
        say(2, message);
    }
    assert_null(find_message(TW_MSG_NACK, 2));
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

/* ---- lineages ------------------------------------------------------------------------------- */

FACT(best_lineage_is_followed_in_any_order) {
    /* Peer 1 is in a better lineage than ours, peer 2 in the best one. Their order in the peer
     * table does not matter. */
    const struct tw_id better = name_of("better"), best = name_of("best");
    say_and_prove(2, &best, 50, 9000);
    assert_follows(&best);
    for (uint32_t i = 0; i < 10; i++) { /* peer 1 was asked about the lineage that was left */
        now_us += SECONDS(1);
        say_status(2, &best, 50, 9000);
    }
    say_and_prove(1, &better, 40, 8000);
    assert_follows(&best);
}

static bool has_report(enum tw_report_kind kind, uint16_t peer) {
    const struct tw_id id = id_of(peer);
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *const action = &seen[i].action;
        if (action->kind == TW_ACT_REPORT && action->u.report.kind == kind &&
            tw_id_equal(&action->u.report.id, &id))
            return true;
    }
    return false;
}

FACT(leaving_a_group_that_is_there_is_reported) {
    enum { WHOLE, MOSTLY_GONE, YOUNG, RETURNS, TRIALS };
    for (uint32_t trial = 0; trial < TRIALS; trial++) {
        const struct tw_id better = name_of("better");
        start.tip.next.count =
            2; /* with three members the node would not leave its group, as test_claim.c shows */
        start.first_round = trial == YOUNG ? ROUNDS - 1 : 0;
        start.lineage_parent = trial == RETURNS ? better : (struct tw_id){{0}};
        start_again();
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 2});
        link_up(3);
        forget();
        if (trial == MOSTLY_GONE) feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
        say_and_prove(3, &better, 50, 9000);
        assert_follows(&better);
        assert_int_equal(has_report(TW_REPORT_LEFT, 3), trial == WHOLE);
    }
}

FACT(lineage_without_a_name_is_not_followed) {
    const struct tw_id zero = {{0}};
    say_status(1, &zero, 50, 9000);
    assert_follows(&start.lineage);
}

/* ---- the log -------------------------------------------------------------------------------- */

FACT(rounds_never_go_back) {
    say_status(1, &start.lineage, ROUNDS + 200, 90000);
    struct tw_message *message = message_of(TW_MSG_LOG_NONE);
    message->u.log_none = (struct tw_msg_log_none){
        .lineage = start.lineage, .oldest_round = ROUNDS + 100, .rounds = ROUNDS + 200};
    say(1, message);
    say_status(2, &start.lineage, ROUNDS - 3, 4000);
    message = message_of(TW_MSG_COMMIT); /* peer 2 is behind us */
    message->u.commit.record = start.tip;
    message->u.commit.record.round = ROUNDS - 4;
    message->u.commit.record.fragment = (ROUNDS - 4) % FRAGMENTS;
    say(2, message);
    assert_true(view_now().rounds >= ROUNDS);
}

/* The node lacks more rounds than its peers keep, and fetches the newest record of its lineage. */
FACT(tip_of_an_impossible_fragment_is_refused) {
    say_status(1, &start.lineage, 50, 9000);
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 2});
    struct tw_message *message = message_of(TW_MSG_LOG_NONE);
    message->u.log_none =
        (struct tw_msg_log_none){.lineage = start.lineage, .oldest_round = 40, .rounds = 50};
    say(1, message);
    message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = start.tip;
    message->u.commit.record.round = 49;
    message->u.commit.record.fragment = FRAGMENTS;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS);
    message->u.commit.record.round = UINT64_MAX;
    message->u.commit.record.fragment = (uint32_t)(UINT64_MAX % FRAGMENTS);
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS);
    message->u.commit.record.round = 49;
    message->u.commit.record.fragment = 49 % FRAGMENTS;
    say(1, message);
    assert_int_equal(view_now().rounds, 50);
}

FACT(commit_nobody_could_have_accepted_closes_the_link) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    message->u.commit.record.clock_tokens = UINT64_C(1) << 50; /* would end the run */
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS);
    assert_non_null(find_action(TW_ACT_CLOSE));
}

/* A valid record that no majority has signed is refused from any peer. */
FACT(commit_without_a_majority_of_signatures_is_refused) {
    enum {
        UNSIGNED,
        ONE_VOTE,
        OF_ANOTHER_BALLOT,
        OF_ANOTHER_RECORD,
        OF_STRANGERS,
        OF_THE_FIRST_PHASE,
        CASES
    };
    for (int i = 0; i < CASES; i++) {
        start_again();
        const struct tw_node_view view = view_now();
        struct tw_message *message = message_of(TW_MSG_COMMIT);
        struct tw_msg_commit *commit = &message->u.commit;
        struct tw_roster strangers = view.roster;
        for (uint32_t k = 0; k < strangers.count; k++) strangers.members[k].id.bytes[31] ^= 1;
        const struct tw_id run = {{0}};
        commit->record = empty_close(&start.tip);
        signing_prove(&run, i == OF_STRANGERS ? &strangers : &view.roster,
                      i == OF_THE_FIRST_PHASE ? TW_VOTE_ACCEPT : TW_VOTE_COMMIT, 1, &commit->record,
                      &commit->proof);
        if (i == UNSIGNED) memset(&commit->proof, 0, sizeof(commit->proof));
        if (i == ONE_VOTE) commit->proof.voters = 0x2;
        if (i == OF_ANOTHER_BALLOT) commit->proof.ballot++;
        if (i == OF_ANOTHER_RECORD) commit->record.next.number++;
        say_unsigned(1, message);
        assert_int_equal(view_now().rounds, ROUNDS);
        assert_non_null(find_action(TW_ACT_CLOSE));
        assert_true(has_report(TW_REPORT_FORGED, 1));
    }
    start_again();
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    say(1, message); /* the same record, signed by its roster */
    assert_int_equal(view_now().rounds, ROUNDS + 1);
}

FACT(roster_without_owners_is_refused) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = empty_close(&start.tip);
    for (uint32_t i = 0; i < 3; i++) message->u.commit.record.next.members[i].weight = 0;
    say(1, message);
    assert_int_equal(view_now().rounds, ROUNDS); /* nobody could ever merge again */
}

TEST_IN(set_up_few_judges, tear_down, node_left_alone_by_its_group_trains_on) {
    for (uint32_t k = 1; k <= 2; k++) say_no_result(k);
    /* This node accepted a record of round 10 that drops the other members. Their COMMIT shows that
     * it was decided. */
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.record = empty_close(&start.tip);
    message->u.propose.record.next.count = 1;
    message->u.propose.record.next.number++;
    for (uint16_t peer = 1; peer <= 2; peer++) {
        message->u.propose.ballot = 1;
        say(peer, message);
    }
    assert_true(find_message(TW_MSG_ACCEPT, 1) != NULL || find_message(TW_MSG_ACCEPT, 2) != NULL);
    const struct tw_record record = message->u.propose.record;
    message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = record;
    say(1, message);
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    worker_up();
    struct tw_event applied = {.kind = TW_EV_APPLIED, .ok = true};
    applied.u.applied.fragment = record.fragment;
    applied.u.applied.rounds = ROUNDS + 1;
    feed(&applied);
    for (uint16_t peer = 1; peer <= 2; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    wait_us(SECONDS(10));
    step_to(1100);
    assert_non_null(find_action(TW_ACT_SOLO));
}

/* ---- state ---------------------------------------------------------------------------------- */

/* Makes the node follow the lineage of peer 1 and ask that peer for the state. */
static struct tw_id follow_peer(void) {
    const struct tw_id other = name_of("other");
    worker_up();
    say_and_prove(1, &other, 50, 9000);
    assert_non_null(find_message(TW_MSG_STATE_GET, 1));
    return other;
}

FACT(state_of_an_impossible_round_is_not_loaded) {
    const struct tw_id other = follow_peer();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state.lineage = other;
    message->u.state.digest = start.fragment_digests[0];
    const uint64_t rounds[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 60, 50 + 1000};
    for (uint32_t i = 0; i < 4; i++) {
        message->u.state.rounds = rounds[i];
        say(1, message);
        assert_null(find_action(TW_ACT_LOAD));
    }
    message->u.state.rounds = 50;
    say(1, message);
    assert_non_null(find_action(TW_ACT_LOAD));
}

FACT(state_comes_from_members_of_the_lineage) {
    const struct tw_id other = follow_peer();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state.lineage = other;
    message->u.state.digest = start.fragment_digests[0];
    message->u.state.rounds = 50;
    say(2, message); /* peer 2 is still in the old lineage */
    assert_null(find_action(TW_ACT_LOAD));
}

FACT(false_claim_of_an_equal_state_is_ignored) {
    const struct tw_id other = follow_peer();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state.lineage = other;
    message->u.state.digest = name_of("not ours");
    message->u.state.rounds = 50;
    say(1, message); /* STATE without a payload: "you hold that state already" */
    assert_null(find_action(TW_ACT_LOAD));
}

/* Found by the simulator: after one failed disk write, the membership was never stored, and the
 * node never joined. */
FACT(membership_the_disk_refused_is_written_again) {
    is_disk_full = true;
    const struct tw_id other = follow_peer();
    is_disk_full = false;
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        struct tw_message *message = message_of(TW_MSG_STATE);
        message->u.state.lineage = other;
        message->u.state.fragment = p;
        message->u.state.digest = start.fragment_digests[p];
        message->u.state.rounds = 50;
        say(1, message);
        struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
        event.u.applied.fragment = p;
        event.u.applied.rounds = 50;
        event.u.applied.digest = start.fragment_digests[p];
        feed(&event);
    }
    struct tw_event turned = {.kind = TW_EV_APPLIED, .ok = true};
    turned.u.applied.rounds = 50;
    turned.u.applied.digest = start.fragment_digests[0];
    feed(&turned);
    assert_null(find_message(TW_MSG_JOIN, 1));
    for (uint32_t i = 0; i < 4; i++) {
        now_us += SECONDS(1);
        say_status(1, &other, 50, 9000);
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
    assert_non_null(find_message(TW_MSG_JOIN, 1));
}

FACT(state_ahead_of_the_log_survives_the_worker) {
    (void)state; /* by rounds of other fragments: 48 was the last one of fragment 0 */
    const struct tw_id other = follow_peer();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state.lineage = other;
    message->u.state.digest = start.fragment_digests[0];
    message->u.state.rounds = 51;
    say(1, message);
    assert_non_null(find_action(TW_ACT_LOAD));
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
    event.u.applied.rounds = 51;
    event.u.applied.digest = start.fragment_digests[0];
    feed(&event);
    feed(&(struct tw_event){.kind = TW_EV_WORKER_DOWN});
    start.fragment_rounds[0] = 51;
    worker_up();
    assert_follows(&other);
}

/* ---- payloads ------------------------------------------------------------------------------- */

FACT(chunks_are_taken_only_from_the_peer_asked) {
    worker_up();
    contribute_as(1);
    const struct tw_message *pull = find_message(TW_MSG_PULL, 1);
    assert_non_null(pull);
    struct tw_event chunk = {.kind = TW_EV_CHUNK, .peer = 2};
    chunk.u.chunk.hash = pull->u.pull.hash;
    feed(&chunk);
    assert_null(find_action(TW_ACT_VERIFY));
    chunk.peer = 1;
    feed(&chunk);
    assert_non_null(find_action(TW_ACT_VERIFY));
}

static void assert_merges_ours_alone(void) {
    wait_us(SECONDS(5));
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_non_null(reduce);
    const struct tw_id ours = name_of("a");
    assert_int_equal(reduce->u.reduce.inputs_count, 1);
    assert_memory_equal(&reduce->inputs[0], &ours, sizeof(ours));
}

FACT(part_that_names_another_payload_is_not_merged) {
    worker_up();
    encode_ours();
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] =
            name_of("c"); /* names a verified payload, but of another part and size */
        contrib->bytes[k] = 102;
    }
    say(1, message);
    assert_merges_ours_alone();
}

FACT(part_without_bytes_is_not_waited_for) {
    worker_up();
    encode_ours();
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->parts_count = 3;
    say(1, message);
    assert_merges_ours_alone();
}

/* Delivers the chunk last requested from `peer`, which passes its check. Returns the VERIFY action.
 */
static struct tw_action deliver_from(uint16_t peer) {
    const struct tw_message *pull = find_message(TW_MSG_PULL, peer);
    assert_non_null(pull);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = peer};
    event.u.chunk.hash = pull->u.pull.hash;
    feed(&event);
    const struct tw_action *verify = find_action(TW_ACT_VERIFY);
    assert_non_null(verify);
    const struct tw_action asked = *verify;
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    return asked;
}

static uint16_t sizes[2]; /* of the contributions, as the worker tells them */

static void answer_reduce(uint64_t refused) {
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_non_null(reduce);
    assert_int_equal(reduce->u.reduce.inputs_count, 2);
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = true};
    event.u.reduced.round = ROUNDS;
    event.u.reduced.bytes = 50;
    event.u.reduced.hash = name_of("merged");
    event.u.reduced.refused = refused;
    memcpy(event.u.reduced.sizes, sizes, sizeof(sizes));
    forget();
    feed(&event);
}

static void merge_two(uint64_t refused) {
    worker_up();
    encode_ours();
    contribute_as(1);
    const struct tw_action verify = deliver_from(1);
    assert_int_equal(verify.u.payload.content, TW_CONTENT_DELTA);
    wait_us(SECONDS(5));
    answer_reduce(refused);
}

FACT(refused_contribution_is_not_listed) {
    merge_two(1 << 1);
    const struct tw_message *result = find_message(TW_MSG_RESULT, 2);
    assert_non_null(result);
    assert_int_equal(result->u.result.bytes, 50);
    assert_int_equal(result->u.result.contributors_count, 1);
    assert_int_equal(result->u.result.contributors[0].member_idx, 0);
    const struct tw_id who = id_of(1);
    const struct tw_action *report = find_action(TW_ACT_REPORT);
    assert_non_null(report);
    assert_int_equal(report->u.report.kind, TW_REPORT_REFUSED);
    assert_memory_equal(&report->u.report.id, &who, sizeof(who));
    assert_int_equal(report->u.report.round, ROUNDS);
    assert_int_equal(report->u.report.times, 1);
    assert_int_equal(view_now().peers[1].unmerged, 1);
    assert_int_equal(view_now().peers[2].unmerged, 0);
    assert_int_equal(view_now().unmerged, 1);
}

/* Scaled work is merged. How large it was is counted, and no charge. */
FACT(scaled_contribution_is_listed_and_counted) {
    sizes[0] = 90; /* this node's own, which it does not count */
    sizes[1] = 75;
    merge_two(0);
    sizes[0] = sizes[1] = 0;
    assert_int_equal(find_message(TW_MSG_RESULT, 2)->u.result.contributors_count, 2);
    assert_null(find_action(TW_ACT_REPORT));
    assert_int_equal(view_now().peers[1].large.merges, 1);
    assert_int_equal(view_now().peers[1].large.times, 1);
    assert_int_equal(view_now().peers[1].large.tenths, 75);
    assert_false(view_now().peers[1].large.is_often);
    assert_int_equal(view_now().peers[2].large.merges, 0);
}

FACT(merge_without_inputs_is_absent) {
    merge_two(3);
    const struct tw_message *result = find_message(TW_MSG_RESULT, 2);
    assert_non_null(result);
    assert_int_equal(result->u.result.bytes, 0);
    assert_int_equal(result->u.result.contributors_count, 0);
}

TEST_IN(set_up_two_codecs, tear_down, contribution_in_a_codec_of_its_own_is_no_result) {
    worker_up();
    encode_ours();
    const struct tw_id contribution = name_of("b"), result = name_of("result");
    say_result(&contribution, 101);
    forget();
    say_result(&result, 90); /* the owner may then announce a valid result */
    const struct tw_action verify = deliver_from(1);
    assert_int_equal(verify.u.payload.content, TW_CONTENT_RESULT);
    assert_memory_equal(&verify.u.payload.hash, &result, sizeof(result));
}

TEST_IN(set_up_two_codecs, tear_down, result_in_a_codec_of_its_own_is_no_contribution) {
    worker_up();
    encode_ours();
    const struct tw_id result = name_of("result");
    say_result(&result, 90);
    (void)deliver_from(1);
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] = result;
        contrib->bytes[k] = 90;
    }
    say(2, message);
    assert_merges_ours_alone();
}

FACT(lie_about_a_size_does_not_disturb_the_transfer) {
    worker_up();
    contribute_as(1);
    const struct tw_message *pull = find_message(TW_MSG_PULL, 1);
    assert_non_null(pull);
    const struct tw_id hash = pull->u.pull.hash;
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] = hash;
        contrib->bytes[k] = 99;
    }
    forget();
    say(2, message);
    wait_us(SECONDS(3));
    assert_null(find_action(TW_ACT_DROP));
    assert_null(find_action(TW_ACT_EXPECT));
}

FACT(absurd_tokens_are_not_counted) {
    worker_up();
    encode_ours();
    struct tw_message *message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *result = &message->u.result;
    result->lineage = start.lineage;
    result->round = ROUNDS;
    result->part = 1;
    result->bytes = 10;
    result->hash = name_of("result");
    result->contributors_count = 1;
    result->contributors[0].tokens = UINT64_MAX - 4000; /* 5000 tokens more wrap around */
    result->contributors[0].member_idx = 1;
    say(1, message);
    wait_us(SECONDS(300));
    for (uint32_t i = 0; i < seen_count; i++) {
        if (seen[i].action.kind != TW_ACT_SEND || seen[i].message.kind != TW_MSG_PROPOSE) continue;
        assert_in_range(seen[i].message.u.propose.record.clock_tokens, 5000, 10000);
    }
}

/* ---- old rounds ----------------------------------------------------------------------------- */

static uint32_t count_commits(uint16_t peer) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen_count; i++)
        count += seen[i].action.kind == TW_ACT_SEND && seen[i].action.peer == peer &&
                 seen[i].message.kind == TW_MSG_COMMIT;
    return count;
}

static void prepare_old_round(uint16_t peer, uint32_t times) {
    struct tw_message *message = message_of(TW_MSG_PREPARE);
    message->u.prepare =
        (struct tw_msg_prepare){.lineage = start.lineage, .round = ROUNDS - 1, .ballot = 64};
    for (uint32_t i = 0; i < times; i++) say(peer, message);
}

FACT(old_round_is_answered_once_in_a_while) {
    prepare_old_round(1, 100);
    assert_int_equal(count_commits(1), 1);
    now_us += SECONDS(1);
    prepare_old_round(1, 100);
    assert_int_equal(count_commits(1), 2);
}

FACT(old_round_of_a_node_outside_is_not_answered) {
    link_up(5);
    prepare_old_round(5, 10);
    assert_int_equal(count_commits(5), 0);
    say_status(5, &start.lineage, ROUNDS - 1, 4000); /* node 5 follows the run */
    forget();
    prepare_old_round(5, 10);
    assert_int_equal(count_commits(5), 1);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

/* Sends the message twice: with the largest size that a codec needs, and with one byte more. Only
 * the second closes the link. */
static void say_size(struct tw_message *message, uint32_t *bytes, uint32_t most) {
    *bytes = most;
    say(1, message);
    assert_null(find_action(TW_ACT_CLOSE));
    *bytes = most + 1;
    say(1, message);
    assert_non_null(find_action(TW_ACT_CLOSE));
}

FACT(contribution_above_its_codec_ends_the_link) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->parts_count = 3; /* the last part, which has another owner, is checked too */
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] = name_of("too large");
        contrib->bytes[k] = CODED_MAX;
    }
    say_size(message, &contrib->bytes[2], CODED_MAX);
}

FACT(result_above_its_codec_ends_the_link) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *result = &message->u.result;
    result->lineage = start.lineage;
    result->round = ROUNDS;
    result->part = 1;
    result->hash = name_of("too large");
    result->bytes = CODED_MAX + 1;
    result->contributors_count = 1;
    result->contributors[0].member_idx = 1;
    say(1, message);
    assert_non_null(find_action(TW_ACT_CLOSE));
    assert_null(find_action(TW_ACT_EXPECT));
}

FACT(record_above_the_codec_gets_no_vote) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    struct tw_record *record = &message->u.propose.record;
    *record = empty_close(&start.tip);
    record->contributors_count = 1;
    record->contributors[0] = (struct tw_contributor){.member_idx = 1, .root = name_of("root")};
    record->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++)
        record->parts[k] = (struct tw_part){.owner_idx = k,
                                            .bytes = CODED_MAX + 1,
                                            .result = name_of("too large"),
                                            .contributors = 2};
    for (uint64_t rank = 0; rank < 3; rank++) {
        message->u.propose.ballot = UINT64_C(64) + rank;
        say(1, message);
    }
    assert_null(find_action(TW_ACT_EXPECT));
}

FACT(state_above_its_packing_ends_the_link) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_STATE);
    message->u.state = (struct tw_msg_state){.lineage = start.lineage,
                                             .rounds = ROUNDS,
                                             .digest = name_of("phi"),
                                             .hash = name_of("too large")};
    say_size(message, &message->u.state.bytes, OPAQUE_MAX);
}
