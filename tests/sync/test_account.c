/* test_account.c - the token and step counts of a contribution, for the run clock and for its
 * fragment. */
#include <math.h>

#include "kernels/merge.h"
#include "kernels/outlier.h"
#include "sync/core/state.h"
#include "sync/round/proposal.h"
#include "sync/round/round.h"
#include "tests/sync/lone_node.h"

/* ---- four fragments, one of which is due every STRIDE steps ---------------------------------- */

enum { P = 4, STRIDE = 10, TOKENS_PER_STEP = 16, ROUNDS_TRAINED = 40 };

static struct tw_node *alone; /* a node of which only the token counts are used */
static uint64_t trained;      /* tokens listed so far */

static int open_books(void **state) {
    alone = aligned_alloc(64, (tw_node_bytes() + 63) / 64 * 64);
    TW_ASSERT(alone != NULL);
    memset(alone, 0, tw_node_bytes());
    alone->cfg.fragments_count = P;
    alone->cfg.self = id_of(1);
    alone->worker.is_up = true;
    alone->roster.count = 2;
    alone->roster.members[0].id = id_of(0);
    alone->roster.members[1].id = id_of(1);
    alone->round.self_idx = 1;
    trained = 0;
    return 0;
}

static int close_books(void **state) {
    free(alone);
    return 0;
}

#define FACT(name) TEST_IN(open_books, close_books, name)

/* Plays the round that is due after `round` + 1 strides. Returns the contributor row that the node
 * announces. is_listed: whether the round record lists that row. */
static struct tw_contributor play_round(uint64_t round, bool is_listed) {
    struct tw_contributor row = {.member_idx = 1};
    alone->worker.step = (round + 1) * STRIDE;
    alone->worker.tokens = alone->worker.step * TOKENS_PER_STEP;
    alone->round.own = OWN_SENT;
    alone->round.own_step = alone->worker.step;
    alone->round.own_tokens = alone->worker.tokens;
    const struct tw_record record = {.round = round,
                                     .fragment = (uint32_t)(round % P),
                                     .contributors_count = 1,
                                     .parts_count = 1,
                                     .contributors = {{.member_idx = is_listed ? 1 : 0}}};
    tw_account_row(alone, record.fragment, &row);
    if (is_listed) trained += row.tokens;
    assert_int_equal(tw_account_commit(alone, &record), is_listed);
    return row;
}

static void assert_row(const struct tw_contributor *row, uint64_t strides, uint32_t held) {
    assert_int_equal(row->tokens, strides * STRIDE * TOKENS_PER_STEP);
    assert_int_equal(row->fragment_steps, held * STRIDE);
    assert_int_equal(row->fragment_tokens, held * STRIDE * TOKENS_PER_STEP);
}

/* Computes the guard's factor and the merge weight of this row, among seven nodes that missed no
 * round. The row's Delta is as long as its steps allow. */
static void judge(const struct tw_contributor *row, float *factor, float *weight) {
    enum { NODES = 8 };
    double norms[NODES];
    uint32_t steps[NODES];
    uint64_t tokens[NODES];
    float factors[NODES], weights[NODES];
    for (uint32_t i = 0; i < NODES; i++) {
        steps[i] = P * STRIDE;
        tokens[i] = P * STRIDE * TOKENS_PER_STEP;
        norms[i] = P * STRIDE;
    }
    steps[3] = row->fragment_steps;
    tokens[3] = row->fragment_tokens;
    norms[3] = row->fragment_steps; /* all steps went the same way */
    assert_int_equal(tw_guard(factors, norms, steps, NODES), 0);
    tw_merge_weights_tokens(weights, tokens, NODES);
    tw_merge_weights_bound(weights, NODES);
    *factor = factors[3];
    *weight = weights[3] / weights[0];
}

FACT(contribution_holds_a_cycle_of_rounds) {
    for (uint64_t round = 0; round < ROUNDS_TRAINED; round++) {
        const struct tw_contributor row = play_round(round, true);
        assert_row(&row, 1, round < P ? (uint32_t)round + 1 : P);
    }
    assert_int_equal(trained, alone->worker.tokens);
}

FACT(one_missed_round_doubles_one_fragment_and_no_other) {
    float factor, weight;
    for (uint64_t round = 0; round < ROUNDS_TRAINED; round++) {
        const bool is_missed = round == 21;
        const struct tw_contributor row = play_round(round, !is_missed);
        if (round < P) continue;
        judge(&row, &factor, &weight);
        assert_row(&row, round == 22 ? 2 : 1, round == 25 ? 2 * P : P);
        assert_true(factor == 1.0f);
        assert_float_equal(weight, round == 25 ? 2.0f : 1.0f, 1e-6);
    }
    assert_int_equal(trained, alone->worker.tokens); /* each token once */
}

FACT(five_missed_rounds_weigh_by_the_steps_of_each_fragment) {
    float factor, weight;
    for (uint64_t round = 0; round < ROUNDS_TRAINED; round++) {
        const bool is_missed = round >= 20 && round < 25;
        const struct tw_contributor row = play_round(round, !is_missed);
        if (round < 25) continue;
        /* Rounds 20 and 24 merged fragment 0, rounds 21 to 23 the other fragments. */
        const uint32_t cycles = round == 28 ? 3 : round < 28 ? 2 : 1;
        judge(&row, &factor, &weight);
        assert_row(&row, round == 25 ? 6 : 1, cycles * P);
        assert_true(factor == 1.0f);
        assert_float_equal(weight, (float)cycles, 1e-6);
    }
    assert_int_equal(trained, alone->worker.tokens);
}

FACT(step_count_saturates) {
    struct tw_contributor row;
    alone->round.own_step = UINT64_C(1) << 40;
    tw_account_row(alone, 2, &row);
    assert_int_equal(row.fragment_steps, UINT32_MAX);
    alone->at.delta_steps[2] = UINT64_MAX; /* the steps are unknown, so none are claimed */
    tw_account_row(alone, 2, &row);
    assert_int_equal(row.fragment_steps, 0);
}

FACT(tokens_listed_without_a_worker_end_where_the_next_worker_begins) {
    for (uint64_t round = 0; round < 2 * P; round++) (void)play_round(round, true);
    const struct tw_record record = {
        .fragment = 1, .contributors_count = 1, .contributors = {{.member_idx = 1}}};
    alone->worker.is_up = false;
    alone->round.own = OWN_IDLE; /* the contribution was sent before a restart */
    assert_true(tw_account_commit(alone, &record));
    assert_int_equal(alone->at.tokens_listed, UINT64_MAX);
    assert_int_equal(alone->at.delta_steps[1], UINT64_MAX);
    assert_int_equal(alone->at.delta_steps[2], 7 * STRIDE);
    alone->worker.is_up = true;
    alone->worker.step = 73;
    alone->worker.tokens = 73 * TOKENS_PER_STEP;
    tw_account_greet(alone);
    assert_int_equal(alone->at.tokens_listed, 73 * TOKENS_PER_STEP);
    assert_int_equal(alone->at.delta_steps[1], 73);
    assert_int_equal(alone->at.delta_tokens[1], 73 * TOKENS_PER_STEP);
    assert_int_equal(alone->at.delta_steps[2], 7 * STRIDE);
    assert_int_equal(alone->at.delta_steps[3],
                     73); /* the worker went back before the last listed step */
}

/* The worker went back to a snapshot while the round was open. */
FACT(delta_never_begins_in_the_future) {
    for (uint64_t round = 0; round < P; round++) (void)play_round(round, true);
    const struct tw_record record = {
        .fragment = 0, .contributors_count = 1, .contributors = {{.member_idx = 1}}};
    alone->round.own_step = 50;
    alone->round.own_tokens = 50 * TOKENS_PER_STEP;
    alone->worker.step = 44;
    alone->worker.tokens = 44 * TOKENS_PER_STEP;
    assert_true(tw_account_commit(alone, &record));
    assert_int_equal(alone->at.tokens_listed,
                     50 * TOKENS_PER_STEP); /* tokens that the run clock counts */
    assert_int_equal(alone->at.delta_steps[0], 44);
    assert_int_equal(alone->at.delta_tokens[0], 44 * TOKENS_PER_STEP);
}

/* The record lists this node under a former nonce, so theta is shifted, not mixed. Delta keeps the
 * work, and the point where it starts does not move. The run clock counts the tokens. */
FACT(delta_listed_under_an_old_membership_stays_whole) {
    for (uint64_t round = 0; round < P; round++) (void)play_round(round, true);
    const struct tw_record record = {
        .fragment = 0, .contributors_count = 1, .contributors = {{.member_idx = 1}}};
    alone->round.self_idx = -1;
    alone->worker.tokens = 50 * TOKENS_PER_STEP;
    assert_false(tw_account_commit(alone, &record));
    assert_int_equal(alone->at.tokens_listed, 50 * TOKENS_PER_STEP);
    assert_int_equal(alone->at.delta_steps[0], STRIDE);
}

/* ---- in the core ----------------------------------------------------------------------------- */

TEST_IN(set_up, tear_down, contribution_announces_both_counts) {
    start.tokens_listed = 900;
    for (uint32_t p = 0; p < FRAGMENTS; p++) start.delta_tokens[p] = start.delta_steps[p] = 700 + p;
    start_again();
    worker_up();
    encode_ours(); /* at 1010 */
    const struct tw_message *message = find_message(TW_MSG_CONTRIB, 1);
    assert_non_null(message);
    assert_int_equal(message->u.contrib.tokens, 110);
    assert_int_equal(message->u.contrib.fragment_tokens, 310 - ROUNDS % FRAGMENTS);
    assert_int_equal(message->u.contrib.fragment_steps, 310 - ROUNDS % FRAGMENTS);
}

TEST_IN(set_up, tear_down, merge_weighs_by_the_tokens_of_the_fragment) {
    worker_up();
    encode_ours();
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->lineage = start.lineage;
    contrib->round = ROUNDS;
    contrib->base = start.fragment_digests[ROUNDS % FRAGMENTS];
    contrib->tokens = 60;
    contrib->fragment_tokens = 180;
    contrib->fragment_steps = 18;
    contrib->parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) {
        contrib->hashes[k] = name_of("twice");
        contrib->bytes[k] = 100;
    }
    say(2, message);
    struct tw_event event = {.kind = TW_EV_CHUNK, .peer = 2};
    event.u.chunk.hash = name_of("twice");
    feed(&event);
    event.kind = TW_EV_VERIFIED;
    event.ok = true;
    feed(&event);
    wait_us(SECONDS(5));
    const struct tw_action *reduce = find_action(TW_ACT_REDUCE);
    assert_non_null(reduce);
    assert_int_equal(reduce->u.reduce.inputs_count, 2);
    assert_int_equal(reduce->u.reduce.inputs[1].tokens, 180);
    assert_int_equal(reduce->u.reduce.inputs[1].steps, 18);
    struct tw_event reduced = {.kind = TW_EV_REDUCED, .ok = true};
    reduced.u.reduced.round = ROUNDS;
    reduced.u.reduced.bytes = 50;
    reduced.u.reduced.hash = name_of("merged");
    feed(&reduced);
    const struct tw_message *result = find_message(TW_MSG_RESULT, 1);
    assert_non_null(result);
    assert_int_equal(result->u.result.contributors[1].tokens, 60);
    assert_int_equal(result->u.result.contributors[1].fragment_tokens, 180);
    assert_int_equal(result->u.result.contributors[1].fragment_steps, 18);
}

/* A CONTRIB for the open round, of zero bytes. */
static struct tw_message *contribution_of_nothing(void) {
    struct tw_message *message = message_of(TW_MSG_CONTRIB);
    message->u.contrib.lineage = start.lineage;
    message->u.contrib.round = ROUNDS;
    message->u.contrib.parts_count = 3;
    return message;
}

/* Returns a record of the open round that lists member 0, and all of whose parts are absent. */
static struct tw_record record_of_one(void) {
    struct tw_record record = empty_close(&start.tip);
    record.parts_count = 3;
    for (uint32_t k = 0; k < 3; k++) record.parts[k] = (struct tw_part){.owner_idx = k};
    record.contributors_count = 1;
    return record;
}

TEST_IN(set_up, tear_down, absurd_fragment_tokens_are_ignored) {
    worker_up();
    struct tw_message *message = contribution_of_nothing();
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->fragment_tokens = TOKENS_MAX + 1;
    say(2, message);
    assert_false(node->round.contributions[2].has);
    contrib->fragment_tokens = TOKENS_MAX;
    say(2, message);
    assert_true(node->round.contributions[2].has);

    message = message_of(TW_MSG_RESULT);
    struct tw_msg_result *result = &message->u.result;
    result->lineage = start.lineage;
    result->round = ROUNDS;
    result->part = 1;
    result->bytes = 10;
    result->hash = name_of("result");
    result->contributors_count = 1;
    result->contributors[0].member_idx = 1;
    result->contributors[0].fragment_tokens = TOKENS_MAX + 1;
    say(1, message);
    assert_false(node->round.results[1].has);

    struct tw_record record = record_of_one();
    record.contributors[0].fragment_tokens = TOKENS_MAX;
    assert_true(tw_record_is_sound(node, &record));
    record.contributors[0].fragment_tokens++;
    assert_false(tw_record_is_sound(node, &record));
}

/* A member that claims far more tokens than anybody can have trained must not end the run. */
TEST_IN(set_up, tear_down, row_counts_64_planned_periods_at_most) {
    const uint64_t most = (uint64_t)64 * FRAGMENTS * node->cfg.period_steps * 512;
    node->cfg.step_tokens = 512;
    assert_true(tw_account_tokens_max(node) == most);
    worker_up();
    struct tw_message *message = contribution_of_nothing();
    struct tw_msg_contrib *contrib = &message->u.contrib;
    contrib->tokens = most + 1;
    say(2, message);
    assert_false(node->round.contributions[2].has);
    assert_non_null(find_action(TW_ACT_REPORT));
    contrib->tokens = most;
    say(2, message);
    assert_true(node->round.contributions[2].has);

    struct tw_record record = record_of_one();
    record.contributors[0].tokens = most;
    record.clock_tokens += tw_record_tokens(&record, &start.tip);
    assert_true(tw_record_is_sound(node, &record));
    record.contributors[0].tokens++;
    assert_false(tw_record_is_sound(node, &record));

    /* The node's own row keeps to the limit too, however long the node trained alone. */
    struct tw_contributor row;
    node->round.own_tokens = 3 * most;
    node->at.tokens_listed = 0;
    tw_account_row(node, 0, &row);
    assert_true(row.tokens == most);
    node->cfg.step_tokens = 0;
    assert_true(tw_account_tokens_max(node) == TOKENS_MAX);
}

/* All steps train the same number of tokens. A row whose token count is no multiple of that number
 * is refused by the owner, and gets no votes. */
TEST_IN(set_up, tear_down, tokens_are_those_of_the_steps) {
    enum { STEP = 512, STEPS = 18 };
    const uint64_t most = (uint64_t)64 * FRAGMENTS * node->cfg.period_steps * STEP;
    const struct tw_contributor true_row = {
        .tokens = 6 * STEP, .fragment_tokens = STEPS * STEP, .fragment_steps = STEPS};
    struct tw_contributor rows[6];
    for (uint32_t i = 0; i < 6; i++) rows[i] = true_row;
    rows[0].fragment_tokens--;
    rows[1].fragment_steps++;
    rows[2].fragment_steps = 0;
    rows[3].tokens++;
    rows[4].fragment_tokens = most; /* the count of an honest node that trained alone for long */
    rows[5].fragment_steps = UINT32_MAX;
    node->cfg.step_tokens = STEP;
    worker_up();
    struct tw_message *message = contribution_of_nothing();
    struct tw_msg_contrib *contrib = &message->u.contrib;
    for (uint32_t i = 0; i < 6; i++) {
        struct tw_record record = record_of_one();
        record.contributors[0].fragment_tokens = rows[i].fragment_tokens;
        record.contributors[0].fragment_steps = rows[i].fragment_steps;
        record.contributors[0].tokens = rows[i].tokens;
        record.clock_tokens += rows[i].tokens;
        assert_false(tw_record_is_sound(node, &record));
        contrib->tokens = rows[i].tokens;
        contrib->fragment_tokens = rows[i].fragment_tokens;
        contrib->fragment_steps = rows[i].fragment_steps;
        forget();
        say(2, message);
        assert_false(node->round.contributions[2].has);
        const struct tw_action *report = find_action(TW_ACT_REPORT);
        assert_non_null(report);
        assert_int_equal(report->u.report.kind, TW_REPORT_MISBEHAVED);
    }
    rows[4].fragment_steps = UINT32_MAX;
    assert_true(tw_account_is_possible(node, &rows[4], 1));
    node->cfg.has_own_start = true; /* another trainer supplies the counts, so any are possible */
    for (uint32_t i = 0; i < 6; i++) assert_true(tw_account_is_possible(node, &rows[i], 1));
    node->cfg.has_own_start = false;
    contrib->tokens = true_row.tokens;
    contrib->fragment_tokens = true_row.fragment_tokens;
    contrib->fragment_steps = true_row.fragment_steps;
    say(2, message);
    assert_true(node->round.contributions[2].has);
    node->cfg.step_tokens = 0;
}

/* A liar that keeps to the limit of 64 periods and signs its row may be listed by anyone. That does
 * not end the run: the clock counts the row like four others. */
TEST_IN(set_up, tear_down, row_of_a_liar_moves_the_clock_like_four_others) {
    struct tw_record record = record_of_one();
    const uint64_t before = start.tip.clock_tokens;
    record.contributors_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        record.contributors[i] = (struct tw_contributor){
            .member_idx = i, .tokens = i == 2 ? UINT64_C(1) << 41 : 100, .root = name_of("root")};
    record.parts[1].contributors = 7;
    record.clock_tokens = before + 200 + (UINT64_C(1) << 41);
    assert_false(tw_record_is_sound(node, &record));
    record.clock_tokens = before + 200 + 4 * 100;
    assert_true(tw_record_is_sound(node, &record));
}

/* Loading a state leaves Delta unchanged. The final TURN sets theta = phi, so earlier training is
 * no longer part of any Delta. */
TEST_IN(set_up, tear_down, delta_begins_where_a_state_was_loaded) {
    static const enum tw_load_mode modes[] = {TW_LOAD_KEEP, TW_LOAD_KEEP, TW_LOAD_SHIFT};
    worker_up();
    step_to(1005);
    node->lineage.was_shared = false;
    node->at.is_moving = 1;
    for (uint32_t p = 0; p < 3; p++) node->at.fragment_rounds[p] = NOT_HELD;
    for (uint32_t p = 0; p < 3; p++) {
        node->at.delta_tokens[p] = node->at.delta_steps[p] = 800;
        node->fetch[p].mode = modes[p];
        struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
        event.u.applied.fragment = p;
        event.u.applied.rounds = ROUNDS;
        event.u.applied.digest = start.fragment_digests[p];
        feed(&event);
        assert_int_equal(node->at.delta_steps[p], 800);
        assert_int_equal(node->at.delta_tokens[p], 800);
    }
    const struct tw_action *turn = find_action(TW_ACT_LOAD);
    assert_non_null(turn);
    assert_int_equal(turn->u.load.mode, TW_LOAD_TURN);
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
    event.u.applied.rounds = ROUNDS;
    event.u.applied.digest = start.fragment_digests[0];
    feed(&event);
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(node->at.delta_steps[p], 1005);
        assert_int_equal(node->at.delta_tokens[p], 1005);
    }
}
