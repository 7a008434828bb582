/* test_round.c - one round as a member sees it: opening it, voting in it, and learning how long
 * rounds take. */
#include "sync/core/state.h"
#include "sync/round/result.h"
#include "tests/sync/lone_node.h"
#include "tests/sync/signing.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* The owner of `part` announces that it had nothing to merge. */
static void say_nothing_as(uint16_t peer, uint32_t part) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    message->u.result.lineage = start.lineage;
    message->u.result.round = ROUNDS;
    message->u.result.part = part;
    say(peer, message);
}

static struct tw_record absent_record(void) {
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    return record;
}

static void commit(const struct tw_record *record) {
    struct tw_message *message = message_of(TW_MSG_COMMIT);
    message->u.commit.record = *record;
    say(1, message);
    assert_int_equal(view_now().rounds, record->round + 1);
}

/* ---- opening --------------------------------------------------------------------------------- */

FACT(restarted_node_opens_no_round_for_a_period) {
    worker_up(); /* the worker is at step 1000 and has sent nothing since the restart */
    step_to(1005);
    wait_us(SECONDS(5));
    assert_null(find_action(TW_ACT_ENCODE));
    step_to(1010);
    assert_non_null(find_action(TW_ACT_ENCODE));
}

FACT(restarted_node_joins_rounds_that_others_open) {
    worker_up();
    step_to(1002);
    assert_null(find_action(TW_ACT_ENCODE));
    contribute_as(1);
    assert_non_null(find_action(TW_ACT_ENCODE));
}

TEST_IN(set_up_follower, tear_down, follower_says_that_it_contributes_nothing) {
    worker_up();
    wait_us(SECONDS(30));
    assert_null(find_message(TW_MSG_CONTRIB, 2)); /* it begins no round */
    contribute_as(1);
    assert_null(find_action(TW_ACT_ENCODE));
    const struct tw_message *message = find_message(TW_MSG_CONTRIB, 2);
    assert_non_null(message);
    assert_int_equal(message->u.contrib.round, ROUNDS);
    assert_int_equal(message->u.contrib.parts_count, 3);
    for (uint32_t k = 0; k < 3; k++) assert_int_equal(message->u.contrib.bytes[k], 0);
}

/* Alerts fire on rounds that a node missed. */
TEST_IN(set_up_follower, tear_down, follower_misses_no_round) {
    worker_up();
    contribute_as(1);
    const struct tw_record record = absent_record();
    commit(&record);
    assert_int_equal(view_now().rounds_missed, 0);
}

FACT(trainer_misses_a_round_without_its_work) {
    worker_up();
    contribute_as(1);
    const struct tw_record record = absent_record();
    commit(&record);
    assert_int_equal(view_now().rounds_missed, 1);
}

/* ---- alone ----------------------------------------------------------------------------------- */

static void say_join(void) {
    struct tw_message *message = message_of(TW_MSG_JOIN);
    const struct tw_node_view view = view_now();
    message->u.join = (struct tw_msg_join){
        .lineage = view.lineage, .rounds = view.rounds, .nonce = 99, .weight = 1};
    say(1, message);
}

static void become_alone(void) {
    worker_up();
    for (uint16_t peer = 1; peer <= 2; peer++) say(peer, message_of(TW_MSG_LEAVE));
    say_join(); /* this JOIN was sent before the GOODBYE, and comes late */
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
    link_up(1);
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    now_us += SECONDS(6);
    forget();
}

/* Found by the simulator: with a slow uplink and many nodes asking for the state, each request let
 * the next solo round through. That made the state in transfer useless to all of them. */
FACT(state_that_is_being_copied_stays_as_it_is) {
    become_alone();
    struct tw_message *message = message_of(TW_MSG_STATE_GET);
    message->u.state_get.lineage = view_now().lineage;
    say(1, message);
    struct tw_event packed = {.kind = TW_EV_EXPORTED, .ok = true};
    packed.u.exported.hash = name_of("packed");
    packed.u.exported.bytes = 1000;
    feed(&packed);
    message = message_of(TW_MSG_PULL);
    message->u.pull = (struct tw_msg_pull){.hash = name_of("packed"), .count = 1};
    say(1, message);
    now_us += SECONDS(1);
    message = message_of(TW_MSG_STATE_GET);
    message->u.state_get.lineage = view_now().lineage;
    message->u.state_get.fragment = 1;
    say(1, message);
    now_us += SECONDS(28);
    step_to(1010);
    assert_null(find_action(TW_ACT_SOLO));
    now_us += SECONDS(2);
    step_to(1020);
    assert_non_null(find_action(TW_ACT_SOLO));
}

static void ask_for_our_state(void) {
    struct tw_message *message = message_of(TW_MSG_STATE_GET);
    message->u.state_get.lineage = view_now().lineage;
    say(1, message);
}

static void join_in_another_round(void) {
    struct tw_message *message = message_of(TW_MSG_JOIN);
    message->u.join = (struct tw_msg_join){
        .lineage = view_now().lineage, .rounds = ROUNDS + 77, .nonce = 99, .weight = 1};
    say(1, message);
}

static void relink_one(void) {
    feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = 1});
    link_up(1);
}

/* A peer asks every four seconds, for ever, and never acts on the answer. */
FACT(questions_do_not_keep_a_lone_node_from_its_rounds) {
    void (*const questions[])(void) = {ask_for_our_state, join_in_another_round, relink_one};
    for (uint32_t k = 0; k < 3; k++) {
        become_alone();
        for (uint64_t step = 1010; step < 1010 + 600 && find_action(TW_ACT_SOLO) == NULL;
             step += 10) {
            questions[k]();
            now_us += SECONDS(4);
            step_to(step);
        }
        assert_non_null(find_action(TW_ACT_SOLO));
        (void)tear_down(state);
        (void)set_up(state);
    }
}

static uint64_t ahead_rounds; /* lead of the receivers over this node */

/* The peer reports that it is fetching the state. */
static void say_receiver(uint16_t peer, uint64_t nonce) {
    struct tw_message *message = message_of(TW_MSG_STATUS);
    message->u.status.state = TW_STATE_RECEIVER;
    message->u.status.lineage = start.lineage;
    message->u.status.rounds = ROUNDS + ahead_rounds;
    message->u.status.nonce = nonce;
    say(peer, message);
}

static enum tw_node_state state_after(uint64_t for_us, uint64_t nonce_1, uint64_t nonce_2) {
    const uint64_t end_us = now_us + for_us;
    while (now_us < end_us) {
        say_receiver(1, nonce_1);
        say_receiver(2, nonce_2);
        now_us += SECONDS(1) / 4;
        feed(&(struct tw_event){.kind = TW_EV_TICK});
    }
    return view_now().state;
}

/* Two of three members lost their stored votes. Their seats can never vote again, so no round
 * can be decided. */
FACT(seats_whose_votes_are_lost_are_not_waited_for) {
    worker_up();
    for (uint16_t peer = 1; peer <= 2; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    now_us += SECONDS(10);
    for (uint16_t peer = 1; peer <= 2; peer++) link_up(peer);
    assert_int_equal(state_after(SECONDS(60), 8, 9),
                     TW_STATE_MEMBER); /* the seats' nonces in the roster */
    assert_int_equal(state_after(SECONDS(60), 8, 99), TW_STATE_MEMBER);
    assert_int_equal(state_after(SECONDS(1), 98, 99), TW_STATE_MEMBER); /* too early to tell */
    assert_int_equal(state_after(SECONDS(2), 98, 99), TW_STATE_SOLO);
}

/* Both other members were admitted again. The record that admits them has not reached this node
 * yet. */
FACT(reassigned_seats_do_not_end_the_lineage) {
    worker_up();
    link_up(3);
    say_status(3, &start.lineage, ROUNDS + 5, 6000);
    assert_int_equal(state_after(SECONDS(4), 98, 99), TW_STATE_MEMBER);
    assert_follows(&start.lineage);
}

/* Both other members came back without their stored votes. They fetch a round decided after this
 * node's newest one, so the lineage goes on. */
FACT(receiver_of_a_later_round_shows_that_it_was_decided) {
    worker_up();
    ahead_rounds = 1;
    assert_int_equal(state_after(SECONDS(10), 98, 99), TW_STATE_MEMBER);
    assert_follows(&start.lineage);
    ahead_rounds = 0;
}

/* The worker may have applied a solo round and died before reporting it. A joiner, which takes the
 * round as empty, would then have another phi. */
FACT(lone_node_decides_nothing_without_a_worker) {
    become_alone();
    step_to(1010);
    const struct tw_action *solo = find_action(TW_ACT_SOLO);
    assert_non_null(solo);
    const uint32_t fragment = solo->u.solo.fragment;
    const struct tw_id lineage = view_now().lineage;
    say_join();
    forget();
    feed(&(struct tw_event){.kind = TW_EV_WORKER_DOWN});
    for (uint32_t i = 0; i < 10; i++) {
        now_us += SECONDS(1);
        say_join();
        assert_null(find_action(TW_ACT_STORE_VOTE));
    }
    start.fragment_rounds[fragment] = ROUNDS + 1;
    worker_up();
    const struct tw_node_view view = view_now();
    assert_memory_not_equal(&view.lineage, &lineage, sizeof(lineage));
    assert_int_equal(view.rounds, ROUNDS);
    /* With a worker, the node decides again. */
    struct tw_event done = {.kind = TW_EV_APPLIED, .ok = true};
    done.u.applied.fragment = fragment;
    done.u.applied.rounds = ROUNDS;
    feed(&done);
    say_join();
    assert_int_equal(view_now().roster_count, 2);
}

/* The budget was spent in a round whose state this node never received, so the node must train on.
 */
FACT(node_back_below_the_budget_trains_on) {
    worker_up();
    struct tw_record record = absent_record();
    record.contributors_count = 2; /* a lone one would hardly move the clock */
    for (uint32_t i = 0; i < 2; i++)
        record.contributors[i] =
            (struct tw_contributor){.member_idx = 1 + i, .tokens = UINT64_C(1) << 40};
    record.clock_tokens += tw_record_tokens(&record, &start.tip);
    commit(&record);
    const struct tw_action *finish = find_action(TW_ACT_FINISH);
    assert_non_null(finish);
    assert_false(finish->u.finish.goes_on);
    struct tw_event applied = {.kind = TW_EV_APPLIED, .ok = false};
    applied.u.applied.fragment = record.fragment;
    applied.u.applied.rounds = ROUNDS;
    feed(&applied);
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
    forget();
    for (uint16_t peer = 1; peer <= 2; peer++)
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = peer});
    wait_us(SECONDS(121));
    assert_int_equal(view_now().state, TW_STATE_SOLO);
    assert_int_equal(view_now().clock_tokens, start.tip.clock_tokens);
    assert_non_null(find_action(TW_ACT_LOAD));
    assert_null(find_action(TW_ACT_FINISH)); /* not before its state is loaded */
    applied.ok = true;
    feed(&applied);
    finish = find_action(TW_ACT_FINISH);
    assert_non_null(finish);
    assert_true(finish->u.finish.goes_on);
}

/* ---- patience -------------------------------------------------------------------------------- */

FACT(empty_round_leaves_patience_unchanged) {
    const uint64_t before_us = node->pace.patience_us;
    say_nothing_as(1, 1);
    wait_us(SECONDS(50));
    const struct tw_record record = absent_record();
    commit(&record);
    assert_int_equal(node->pace.patience_us, before_us);
}

FACT(round_already_decided_leaves_patience_unchanged) {
    const uint64_t before_us = node->pace.patience_us;
    const struct tw_record record = absent_record();
    commit(&record);
    assert_int_equal(node->pace.patience_us, before_us);
}

FACT(late_contribution_doubles_patience) {
    const uint64_t before_us = node->pace.patience_us;
    contribute_as(2);
    say_nothing_as(1, 1); /* the contribution was too late for this owner */
    wait_us(SECONDS(50));
    const struct tw_record record = absent_record();
    commit(&record);
    assert_int_equal(node->pace.patience_us, 2 * before_us);
}

/* ---- listed contributors --------------------------------------------------------------------- */

/* Returns the root of the contribution that contribute_as(2) sends. */
static struct tw_id root_of_two(void) {
    struct tw_id hashes[3];
    for (uint32_t k = 0; k < 3; k++) {
        hashes[k] = name_of("two");
        hashes[k].bytes[0] = (uint8_t)k;
    }
    return tw_contribution_root(hashes, 3);
}

enum forgery { TRUE_ROW, UNSIGNED, OTHER_TOKENS, OTHER_STEPS, OTHER_ROOT, OTHER_MEMBER, FORGERIES };

/* Returns member 2's contributor row for contribute_as(2), changed after the member signed it. */
static struct tw_contributor row_of_two(enum forgery how) {
    const struct tw_id run = {{0}}, signer = id_of(how == OTHER_MEMBER ? 1 : 2);
    struct tw_contributor row = {.member_idx = 2,
                                 .tokens = 100,
                                 .fragment_tokens = 100,
                                 .fragment_steps = 10,
                                 .root = root_of_two()};
    signing_row(&run, &start.lineage, ROUNDS, &signer, &row);
    if (how == UNSIGNED) memset(row.signature, 1, sizeof(row.signature));
    if (how == OTHER_TOKENS) row.fragment_tokens = 101;
    if (how == OTHER_STEPS) row.fragment_steps = 9;
    if (how == OTHER_ROOT) row.root.bytes[0] ^= 1;
    return row;
}

/* Delivers a valid result of part 1, merged from member 2 alone. The first proposer then proposes
 * it. */
static void propose_with_two(enum forgery how) {
    const struct tw_id result = name_of("result");
    say_result_of(2, &result, 90);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 1};
    event.u.chunk.hash = result;
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    struct tw_message *message = message_of(TW_MSG_PROPOSE);
    message->u.propose.ballot = 1;
    struct tw_record *record = &message->u.propose.record;
    *record = absent_record();
    record->contributors_count = 1;
    record->contributors[0] = row_of_two(how);
    record->clock_tokens += 100;
    record->parts[1].bytes = 90;
    record->parts[1].result = result;
    record->parts[1].contributors = 1 << 2;
    record->next.members[1].merges++;
    record->next.members[2].merges++;
    assert_true(node->round.rank[0] > 0);
    say((uint16_t)node->round.rank[0], message);
}

static bool has_accepted(void) {
    return find_message(TW_MSG_ACCEPT, (uint16_t)node->round.rank[0]) != NULL;
}

static void sit_out_as(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    message->u.contrib.lineage = start.lineage;
    message->u.contrib.round = ROUNDS;
    message->u.contrib.base = start.fragment_digests[ROUNDS % FRAGMENTS];
    message->u.contrib.parts_count = 3;
    say(peer, message);
}

/* With or without the true CONTRIB, nobody can list work that the member did not sign. */
FACT(contribution_that_its_member_did_not_sign_gets_no_vote) {
    for (uint32_t i = 0; i < 2 * FORGERIES; i++) {
        const enum forgery how = (enum forgery)(i / 2);
        if (i > 0) start_again();
        worker_up();
        if (i % 2 == 0) contribute_as(2);
        propose_with_two(how);
        wait_us(SECONDS(1));
        assert_int_equal(has_accepted(), how == TRUE_ROW);
    }
}

FACT(forged_contribution_closes_the_link) {
    worker_up();
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    message->u.contrib.lineage = start.lineage;
    message->u.contrib.round = ROUNDS;
    message->u.contrib.base = start.fragment_digests[ROUNDS % FRAGMENTS];
    message->u.contrib.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) message->u.contrib.bytes[k] = 100;
    say_unsigned(2, message);
    assert_non_null(find_action(TW_ACT_CLOSE));
}

/* This node has no link to member 2. The owner that merged member 2's contribution passes its
 * signature on. */
FACT(signature_of_a_member_without_a_link_comes_with_the_result) {
    const struct tw_contributor row = row_of_two(TRUE_ROW), forged = row_of_two(OTHER_TOKENS);
    struct tw_contributor bare = row;
    memset(bare.signature, 0, sizeof(bare.signature));
    worker_up();
    say_result_of_row(&bare);
    assert_false(tw_result_is_provable(node, 1));
    contribute_as(2); /* member 2's own link came late */
    assert_true(tw_result_is_provable(node, 1));
    start_again();
    worker_up();
    say_result_of_row(&row);
    assert_true(tw_result_is_provable(node, 1));
    start_again();
    worker_up();
    say_result_of_row(&forged);
    assert_non_null(find_action(TW_ACT_CLOSE));
}

/* This node is the only contributor, and merges its own contribution. */
static void merge_ours(void) {
    worker_up();
    encode_ours();
    sit_out_as(1);
    sit_out_as(2);
    if (find_action(TW_ACT_REDUCE) == NULL) return;
    struct tw_event reduced = {.kind = TW_EV_REDUCED, .ok = true};
    reduced.u.reduced.round = ROUNDS;
    reduced.u.reduced.bytes = 50;
    reduced.u.reduced.hash = name_of("merged");
    feed(&reduced);
}

/* Two signed results of one part would ban their owner. So the owner stores that it has signed one
 * before it announces it. */
FACT(result_is_announced_once_the_disk_says_so) {
    is_disk_full = true;
    merge_ours();
    assert_non_null(find_action(TW_ACT_STORE_VOTE));
    assert_null(find_message(TW_MSG_RESULT, 1));
    is_disk_full = false;
    wait_us(SECONDS(5));
    const struct tw_message *result = find_message(TW_MSG_RESULT, 1);
    assert_non_null(result);
    const struct tw_id run = {{0}}, self = id_of(0);
    const struct tw_roster roster = view_now().roster;
    struct tw_msg_result again = result->u.result;
    signing_result(&run, &roster, &self, &again);
    assert_memory_equal(again.signature, result->u.result.signature, TW_SIGNATURE_BYTES);
}

/* After a restart the node might merge other contributions, so it may not sign a second result. */
FACT(owner_signs_no_second_result_after_a_restart) {
    merge_ours();
    assert_true(find_message(TW_MSG_RESULT, 1)->u.result.bytes > 0);
    start_with_vote();
    merge_ours();
    wait_us(SECONDS(5));
    assert_null(find_action(TW_ACT_REDUCE));
    const struct tw_message *result = find_message(TW_MSG_RESULT, 1);
    assert_true(result != NULL && result->u.result.bytes == 0);
}

/* Every result has arrived, but the first proposer lists a contribution that its member never made.
 */
FACT(proposer_that_lists_a_forged_contribution_is_passed_over) {
    merge_ours();
    assert_non_null(find_action(TW_ACT_REDUCE));
    propose_with_two(OTHER_ROOT);
    say_nothing_as(2, 2);
    assert_int_equal(node->round.self_rank, 1);
    forget();
    wait_us(SECONDS(1));
    assert_null(find_action(TW_ACT_STORE_VOTE));
    wait_us(SECONDS(3));
    assert_non_null(find_message(TW_MSG_PREPARE, 2));
}

/* ---- a full roster --------------------------------------------------------------------------- */

static uint32_t reports_of_full(const struct tw_id *id) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen_count; i++) {
        const struct tw_action *action = &seen[i].action;
        count += action->kind == TW_ACT_REPORT && action->u.report.kind == TW_REPORT_FULL &&
                 tw_id_equal(&action->u.report.id, id);
    }
    return count;
}

static void ask_for_a_seat_as(uint16_t peer) {
    struct tw_message *message = message_of(TW_MSG_JOIN);
    message->u.join =
        (struct tw_msg_join){.lineage = start.lineage, .rounds = ROUNDS, .nonce = 99, .weight = 1};
    say(peer, message);
}

FACT(request_to_a_full_group_is_reported_once_in_a_while) {
    const struct tw_id id = id_of(5), member = id_of(2);
    link_up(5);
    node->cfg.members_max = 4;
    ask_for_a_seat_as(5);
    assert_int_equal(reports_of_full(&id), 0); /* the fourth seat is free */
    node->cfg.members_max = 3;
    for (uint32_t i = 0; i < 5; i++) {
        ask_for_a_seat_as(5);
        ask_for_a_seat_as(2); /* peer 2 has a seat and asks for one under a new nonce */
        now_us += SECONDS(1);
    }
    assert_int_equal(reports_of_full(&id), 1);
    assert_int_equal(reports_of_full(&member), 0);
    now_us += FULL_US;
    ask_for_a_seat_as(5);
    assert_int_equal(reports_of_full(&id), 2);
    assert_false(view_now().is_shut_out);
}

FACT(node_without_a_seat_says_so_until_it_has_one) {
    const struct tw_id self = id_of(0);
    for (uint32_t i = 0; i < 3; i++) start.tip.next.members[i].id = id_of(i + 1);
    start_again();
    node->cfg.members_max = 3;
    worker_up();
    assert_int_equal(view_now().state, TW_STATE_RECEIVER);
    wait_us(SECONDS(5));
    assert_non_null(find_message(TW_MSG_JOIN, 1));
    assert_int_equal(reports_of_full(&self), 1);
    assert_true(view_now().is_shut_out);
    node->cfg.members_max = 4;
    wait_us(SECONDS(2));
    assert_false(view_now().is_shut_out);
    node->cfg.members_max = 3;
    wait_us(SECONDS(2));
    assert_true(view_now().is_shut_out);
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    record.next.members[0] = (struct tw_member){.id = self, .nonce = node->at.nonce, .weight = 0};
    record.next.number++;
    commit(&record);
    wait_us(SECONDS(1));
    assert_int_equal(view_now().state, TW_STATE_MEMBER);
    assert_false(view_now().is_shut_out);
    assert_int_equal(reports_of_full(&self), 2);
}

/* ---- before there are results --------------------------------------------------------------- */

/* Peer 2 sends the message in every ballot of the first attempt, one of which is peer 2's own. */
static void say_in_all_ballots(enum tw_message_kind kind, const struct tw_record *record) {
    for (uint64_t rank = 0; rank < 3; rank++) {
        struct tw_message *message = message_of(kind);
        const uint64_t ballot = TW_MEMBERS_MAX + rank;
        if (kind == TW_MSG_PROPOSE) {
            message->u.propose = (struct tw_msg_propose){.ballot = ballot, .record = *record};
        } else {
            message->u.prepare = (struct tw_msg_prepare){
                .lineage = record->lineage, .round = record->round, .ballot = ballot};
        }
        say(2, message);
    }
}

FACT(empty_round_waits_for_pending_results) {
    const struct tw_record record = empty_close(&start.tip);
    say_in_all_ballots(TW_MSG_PROPOSE, &record);
    wait_us(SECONDS(3));
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    assert_null(find_message(TW_MSG_PREPARE, 2)); /* the proposal is not suspicious yet */
    say_no_result(1);
    assert_non_null(find_message(TW_MSG_ACCEPT, 2)); /* one of the two results may be late */
}

FACT(patience_ends_the_wait_for_pending_results) {
    const struct tw_record record = empty_close(&start.tip);
    say_in_all_ballots(TW_MSG_PROPOSE, &record);
    wait_us(SECONDS(5));
    assert_null(find_message(TW_MSG_ACCEPT, 2));
    wait_us(SECONDS(60));
    assert_non_null(find_message(TW_MSG_ACCEPT, 2));
}

FACT(no_promise_while_the_round_is_empty) {
    const struct tw_record record = empty_close(&start.tip);
    say_in_all_ballots(TW_MSG_PREPARE, &record);
    wait_us(SECONDS(1));
    assert_null(find_message(TW_MSG_PROMISE, 2));
    say_no_result(1);
    assert_non_null(find_message(TW_MSG_PROMISE, 2));
}

/* ---- the rest of a refused proposal ---------------------------------------------------------- */

/* The result of `part` is announced, arrives and passes its check. */
static void deliver_result(uint32_t part) {
    struct tw_message *message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *said = &message->u.result;
    said->lineage = start.lineage;
    said->round = ROUNDS;
    said->part = part;
    said->bytes = 90;
    said->hash = name_of(part == 1 ? "result" : "second");
    said->contributors_count = 1;
    said->contributors[0].member_idx = part;
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = (uint16_t)part, .ok = true};
    event.u.chunk.hash = said->hash;
    say((uint16_t)part, message);
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    feed(&event);
}

/* The first proposer is gone, so it is this node's turn. `peer` promises its ballot and gets the
 * proposal. Returns the ballot. */
static uint64_t propose_ours(uint16_t peer) {
    const uint64_t ballot = wait_for_prepare(peer, 60);
    say(peer, promise_with_lock(NULL, 0, ballot));
    assert_non_null(find_message(TW_MSG_PROPOSE, peer));
    forget();
    return ballot;
}

/* Others compute the time left from it. */
FACT(node_that_takes_no_steps_announces_no_speed) {
    worker_up();
    for (uint64_t step = 1001; step <= 1020; step++) {
        now_us += SECONDS(1);
        step_to(step);
    }
    wait_us(SECONDS(3));
    forget();
    wait_us(SECONDS(2));
    const struct tw_message *said = find_message(TW_MSG_STATUS, 1);
    assert_non_null(said);
    assert_in_range(said->u.status.tokens_per_s, 1, 1000);
    assert_int_equal(said->u.status.tokens_per_s, view_now().tokens_per_s);
    wait_us(SECONDS(60)); /* a pause */
    forget();
    wait_us(SECONDS(2));
    said = find_message(TW_MSG_STATUS, 1);
    assert_non_null(said);
    assert_int_equal(said->u.status.tokens_per_s, 0);
    assert_int_equal(view_now().tokens_per_s, 0);
}

FACT(rest_of_a_refused_proposal_is_proposed_at_once) {
    for (uint32_t refused_count = 1; refused_count <= 2; refused_count++) {
        if (refused_count == 2) start_again();
        const uint16_t first = (uint16_t)node->round.rank[0], peer = first == 1 ? 2 : 1;
        worker_up();
        for (uint32_t part = 1; part <= 2; part++) deliver_result(part);
        wait_us(SECONDS(90)); /* the part that this node owns has no contribution */
        feed(&(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = first});
        const uint64_t ballot = propose_ours(peer);
        struct tw_message *message = message_of(TW_MSG_NACK);
        message->u.nack = (struct tw_msg_nack){.lineage = start.lineage,
                                               .round = ROUNDS,
                                               .promised = ballot,
                                               .refused_parts = refused_count == 1 ? 2 : 6};
        say(peer, message);
        assert_non_null(find_message(TW_MSG_PREPARE, peer));
        assert_true(propose_ours(peer) > ballot);
    }
}
