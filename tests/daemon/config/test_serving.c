/* Budgets of the traffic that serves other nodes alone. */

#include "daemon/config/serving.h"
#include "tests/test.h"

#define S ((uint64_t)1000 * 1000)
#define HOUR (3600 * S)

enum { MIB = 1 << 20, STATE = 10 * MIB, CHUNK = MIB / 4, CHUNKS = STATE / CHUNK };

static struct tw_serving serving;
static uint64_t now_us;
static struct tw_id payload;

static struct tw_id id_of(unsigned number) {
    return (struct tw_id){{(uint8_t)number, (uint8_t)(number >> 8), 1}};
}

static int begin(void **state) {
    now_us = 5 * S;
    tw_serving_init(&serving, STATE);
    payload = id_of(7777);
    return 0;
}

#define FACT(name) TEST_IN(begin, NULL, name)

static void set_quota(uint64_t quota_bytes) {
    tw_serving_set_left(&serving, &(struct tw_serving_left){.quota_bytes = quota_bytes, .day = 1});
}

static enum tw_serving_verdict ask(unsigned number, bool is_wanted, enum tw_serving_kind kind,
                                   uint64_t bytes) {
    const struct tw_id id = id_of(number);
    const struct tw_serving_ask row = {.id = &id,
                                       .is_wanted = is_wanted,
                                       .kind = kind,
                                       .bytes = bytes,
                                       .payload = &payload,
                                       .chunks = 4};
    const enum tw_serving_verdict verdict = tw_serving_look(&serving, &row, now_us);
    if (verdict == TW_SERVING_GRANTED) tw_serving_charge(&serving, &row, now_us);
    return verdict;
}

/* Asks for chunks until one is refused. Returns the bytes that were granted. */
static uint64_t drain(unsigned number, bool is_wanted, enum tw_serving_kind kind,
                      enum tw_serving_verdict *why) {
    uint64_t granted = 0;
    for (unsigned i = 0; i < 100000; i++) {
        *why = ask(number, is_wanted, kind, CHUNK);
        if (*why != TW_SERVING_GRANTED) return granted;
        granted += CHUNK;
    }
    fail_msg("nothing bounds it");
    return 0;
}

/* A member is restarted again and again: it gets its state each time. */
FACT(member_comes_back_each_time) {
    const struct tw_id member = id_of(1);
    tw_serving_member(&serving, &member, now_us);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(ask(1, false, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
        now_us += 15 * S;
    }
    /* Of a slow line it gets at most half, but two states in any case. */
    enum tw_serving_verdict why;
    now_us += HOUR;
    tw_serving_set_line(&serving, 10 * (uint64_t)STATE / 1800);
    assert_true(drain(1, false, TW_SERVING_STATE, &why) <= 10 * (uint64_t)STATE);
    now_us += HOUR;
    tw_serving_set_line(&serving, 1);
    assert_int_equal(drain(1, false, TW_SERVING_STATE, &why), 2 * STATE);
}

/* A refusal tells after how long the same request has room. */
FACT(refusal_tells_the_wait) {
    enum tw_serving_verdict why;
    const struct tw_id id = id_of(1);
    const struct tw_serving_ask row = {.id = &id, .kind = TW_SERVING_STATE, .bytes = STATE};
    (void)drain(1, false, TW_SERVING_STATE, &why);
    const uint32_t wait_s = tw_serving_wait_s(&serving, &row, why, now_us, 7, 9);
    now_us += wait_s * S - 2 * S;
    assert_int_equal(ask(1, false, TW_SERVING_STATE, STATE), TW_SERVING_NODE);
    now_us += 2 * S;
    assert_int_equal(ask(1, false, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
    set_quota(UINT64_C(60) * STATE);
    assert_int_equal(ask(2, true, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
    assert_int_equal(ask(2, true, TW_SERVING_STATE, STATE), TW_SERVING_NODE);
    const struct tw_id two = id_of(2);
    const struct tw_serving_ask daily = {
        .id = &two, .is_wanted = true, .kind = TW_SERVING_STATE, .bytes = STATE};
    assert_int_equal(tw_serving_wait_s(&serving, &daily, TW_SERVING_NODE, now_us, 7, 9), 7);
    assert_int_equal(tw_serving_wait_s(&serving, &daily, TW_SERVING_HALF, now_us, 7, 9), 9);
}

FACT(states_of_one_node_are_paid_back_evenly) {
    enum tw_serving_verdict why;
    for (unsigned is_wanted = 0; is_wanted < 2; is_wanted++) {
        const unsigned node = 1 + is_wanted, most = is_wanted ? 64 : 8;
        assert_int_equal(drain(node, is_wanted, TW_SERVING_STATE, &why), most * (uint64_t)STATE);
        assert_int_equal(why, TW_SERVING_NODE);
        /* A charge is paid back evenly: the next chunk waits for seconds, not for an hour. */
        now_us += HOUR / (most * CHUNKS) + S / 1000;
        assert_int_equal(ask(node, is_wanted, TW_SERVING_STATE, CHUNK), TW_SERVING_GRANTED);
        assert_int_equal(ask(node, is_wanted, TW_SERVING_STATE, CHUNK), TW_SERVING_NODE);
        now_us += HOUR;
        assert_int_equal(drain(node, is_wanted, TW_SERVING_STATE, &why), most * (uint64_t)STATE);
    }
}

/* Asking often pays nothing back, and hinders nothing from being paid back. */
FACT(refused_questions_change_nothing) {
    enum tw_serving_verdict why;
    (void)drain(1, true, TW_SERVING_STATE, &why);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(ask(1, true, TW_SERVING_STATE, STATE), TW_SERVING_NODE);
        now_us += HOUR / 64 / 1000;
    }
    assert_int_equal(ask(1, true, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
}

/* A link that breaks with a full queue costs its node no more than the bytes that left. */
FACT(bytes_that_were_not_sent_count_once) {
    enum tw_serving_verdict why;
    const struct tw_id id = id_of(1);
    set_quota(UINT64_C(100) << 30);
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned k = 0; k < CHUNKS; k++)
            assert_int_equal(ask(1, false, TW_SERVING_STATE, CHUNK), TW_SERVING_GRANTED);
        for (unsigned k = 0; k < CHUNKS; k++)
            tw_serving_refund(
                &serving,
                &(struct tw_serving_ask){.id = &id, .kind = TW_SERVING_STATE, .bytes = CHUNK},
                now_us);
    }
    assert_int_equal(serving.bytes, 0);
    assert_int_equal(serving.left.month_bytes + serving.left.outside_bytes, 0);
    assert_int_equal(drain(1, false, TW_SERVING_STATE, &why), 8 * STATE);
}

FACT(one_node_gets_two_datasets_a_day) {
    enum tw_serving_verdict why;
    tw_serving_set_data(&serving, 30 * MIB);
    assert_int_equal(drain(1, true, TW_SERVING_DATA, &why), 60 * MIB);
    assert_int_equal(why, TW_SERVING_NODE);
    assert_int_equal(ask(2, true, TW_SERVING_DATA, CHUNK), TW_SERVING_GRANTED);
    now_us += 12 * HOUR;
    assert_int_equal(drain(1, true, TW_SERVING_DATA, &why), 30 * MIB);
}

/* Rounds with members have no budget, but a payload that is asked for a third time has. */
FACT(payload_of_a_round_is_free_twice) {
    enum tw_serving_verdict why;
    set_quota(1000); /* spent long ago */
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ask(1, true, TW_SERVING_PAYLOAD, CHUNK), TW_SERVING_GRANTED);
    assert_int_equal(serving.bytes, 0);
    assert_int_equal(ask(1, true, TW_SERVING_PAYLOAD, CHUNK), TW_SERVING_HALF);
    set_quota(0);
    assert_int_equal(drain(1, true, TW_SERVING_PAYLOAD, &why), 64 * (uint64_t)STATE);
    payload = id_of(8888); /* another payload in that row of the pool */
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ask(1, true, TW_SERVING_PAYLOAD, CHUNK), TW_SERVING_GRANTED);
    assert_int_equal(ask(1, true, TW_SERVING_PAYLOAD, CHUNK), TW_SERVING_NODE);
}

FACT(nodes_outside_share_a_budget) {
    enum tw_serving_verdict why;
    uint64_t sum = 0;
    for (unsigned i = 1; i < 500; i++) sum += drain(i, false, TW_SERVING_STATE, &why);
    assert_int_equal(sum, (uint64_t)TW_MEMBERS_MAX * STATE);
    assert_int_equal(why, TW_SERVING_OUTSIDE);
    assert_int_equal(ask(900, true, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
}

/* 1/300 a day for all nodes outside together, for all kinds of requests and any number of ids. */
FACT(quota_bounds_nodes_outside) {
    const uint64_t quota = UINT64_C(300) * 64 * MIB;
    enum tw_serving_verdict why;
    uint64_t sum = 0, outside = 0;
    set_quota(quota);
    tw_serving_set_data(&serving, 1000 * MIB);
    sum += drain(1, false, TW_SERVING_DATA, &why);
    assert_int_equal(sum, 32 * MIB); /* half, so that states find room */
    assert_int_equal(why, TW_SERVING_OUTSIDE);
    assert_int_equal(ask(2, false, TW_SERVING_RELAY, CHUNK), TW_SERVING_OUTSIDE);
    for (unsigned i = 1; i < 500; i++) sum += drain(i, false, TW_SERVING_STATE, &why);
    assert_int_equal(sum, quota / 300);
    assert_int_equal(tw_serving_take(&serving, &outside), sum);
    assert_int_equal(outside, sum);
    assert_int_equal(tw_serving_take(&serving, &outside), 0);
    tw_serving_set_left(
        &serving, &(struct tw_serving_left){.quota_bytes = quota, .month_bytes = sum, .day = 2});
    assert_int_equal(ask(3, false, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
}

FACT(one_state_a_day_fits_any_quota) {
    enum tw_serving_verdict why;
    set_quota(UINT64_C(100) * MIB);
    assert_true(drain(1, false, TW_SERVING_DATA, &why) <= MIB);
    assert_int_equal(ask(2, false, TW_SERVING_STATE, STATE), TW_SERVING_GRANTED);
    assert_int_equal(ask(3, false, TW_SERVING_STATE, STATE), TW_SERVING_OUTSIDE);
}

/* The share of a day has room for one state. The second node that asks gets nothing of it while the
 * first one copies, so that the first one gets it all. */
FACT(states_are_not_given_by_halves) {
    set_quota(UINT64_C(100) * MIB); /* nodes outside share a state and 1 MiB */
    uint64_t first = 0, second = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        now_us += S;
        first += ask(1, false, TW_SERVING_STATE, CHUNK) == TW_SERVING_GRANTED ? CHUNK : 0;
        second += ask(2, false, TW_SERVING_STATE, CHUNK) == TW_SERVING_GRANTED ? CHUNK : 0;
    }
    assert_int_equal(first, STATE);
    assert_in_range(second, 0, MIB);
}

static bool talk(unsigned number, bool is_wanted, uint64_t bytes) {
    const struct tw_id id = id_of(number);
    return tw_serving_control(&serving, &id, is_wanted, bytes, now_us);
}

/* A flood of messages would use up the quota like a flood of states. */
FACT(flood_of_messages_from_outside_ends_its_link) {
    const struct tw_id member = id_of(9);
    assert_false(talk(1, false, 100 * MIB)); /* without a quota */
    set_quota(UINT64_C(100) * MIB);
    tw_serving_member(&serving, &member, now_us);
    assert_false(talk(2, true, 100 * MIB)); /* configured */
    assert_false(talk(9, false, 100 * MIB));
    assert_false(talk(3, false, 2 * MIB));
    assert_true(talk(3, false, 1)); /* also over a new link */
    now_us += HOUR;
    for (unsigned i = 0; i < 3600; i++) { /* two honest ones, at twice the usual rate */
        now_us += S;
        assert_false(talk(4, false, 800));
        assert_false(talk(5, false, 800));
    }
    /* Many ids together end those that flood, and no other. */
    unsigned ended = 0;
    for (unsigned i = 10; i < 60; i++) ended += talk(i, false, MIB / 2);
    assert_in_range(ended, 30, 50);
    assert_false(talk(4, false, 800));
}

/* A copy that nobody asks for any more keeps no room. */
FACT(copy_that_was_given_up_keeps_no_room) {
    enum tw_serving_verdict why;
    set_quota(UINT64_C(100) * MIB);
    assert_int_equal(ask(1, false, TW_SERVING_STATE, CHUNK), TW_SERVING_GRANTED);
    now_us += 5 * 60 * S;
    assert_in_range(drain(2, false, TW_SERVING_STATE, &why), 0, MIB);
    assert_int_equal(why, TW_SERVING_OUTSIDE);
    now_us += 11 * 60 * S;
    assert_in_range(drain(3, false, TW_SERVING_STATE, &why), STATE - 2 * MIB, STATE);
}

FACT(quota_bounds_a_member) {
    const uint64_t quota = UINT64_C(60) * 50 * MIB;
    enum tw_serving_verdict why;
    uint64_t sum = 0;
    set_quota(quota);
    tw_serving_set_data(&serving, 1000 * MIB);
    sum += drain(1, true, TW_SERVING_STATE, &why);
    sum += drain(1, true, TW_SERVING_RELAY, &why);
    assert_int_equal(why, TW_SERVING_NODE);
    sum += drain(1, true, TW_SERVING_DATA, &why);
    assert_int_equal(sum, quota / 60);
    assert_int_equal(ask(2, true, TW_SERVING_RELAY, CHUNK), TW_SERVING_GRANTED);
}

FACT(half_of_the_quota_is_kept_for_merges) {
    const uint64_t quota = UINT64_C(40) * STATE;
    enum tw_serving_verdict why;
    uint64_t sum = 0;
    set_quota(quota);
    for (unsigned i = 1; i < 200; i++) {
        serving.left.day = i;
        sum += drain(i, true, TW_SERVING_RELAY, &why);
    }
    assert_int_equal(sum, quota / 2);
    assert_int_equal(why, TW_SERVING_HALF);
    assert_int_equal(ask(1, false, TW_SERVING_STATE, 1), TW_SERVING_HALF);
    assert_int_equal(ask(1, true, TW_SERVING_PAYLOAD, CHUNK), TW_SERVING_GRANTED);
}

/* The end outside pays for a pipe, not the member that it calls. */
FACT(pipe_is_charged_to_its_end_outside) {
    const struct tw_id member = id_of(1), other = id_of(2);
    struct tw_serving_ask pipe = {.id = &member,
                                  .other = &other,
                                  .is_wanted = true,
                                  .kind = TW_SERVING_RELAY,
                                  .bytes = CHUNK};
    set_quota(UINT64_C(3000) * MIB);
    for (unsigned i = 0; i < 100; i++) tw_serving_charge(&serving, &pipe, now_us);
    assert_int_equal(serving.left.outside_bytes, 100 * CHUNK);
    assert_int_equal(serving.left.month_bytes, 100 * CHUNK);
    assert_int_equal(tw_serving_look(&serving, &pipe, now_us), TW_SERVING_OUTSIDE);
    assert_int_equal(ask(1, true, TW_SERVING_RELAY, 49 * MIB), TW_SERVING_GRANTED);
    pipe.is_other_wanted = true; /* it is in the roster now: both pay */
    assert_int_equal(tw_serving_look(&serving, &pipe, now_us), TW_SERVING_GRANTED);
    for (unsigned i = 0; i < 4; i++) tw_serving_charge(&serving, &pipe, now_us);
    assert_int_equal(tw_serving_look(&serving, &pipe, now_us), TW_SERVING_NODE);
}

/* A crowd of fresh ids pushes no member's budget out, and one who left the roster keeps its own. */
FACT(members_are_remembered) {
    enum tw_serving_verdict why;
    const struct tw_id member = id_of(1);
    tw_serving_member(&serving, &member, now_us);
    assert_int_equal(drain(1, false, TW_SERVING_STATE, &why), 64 * (uint64_t)STATE);
    assert_int_equal(serving.outside_states.bytes, 0);
    for (unsigned i = 2; i < 1000; i++) (void)ask(i, false, TW_SERVING_STATE, 1);
    assert_int_equal(ask(1, false, TW_SERVING_STATE, CHUNK), TW_SERVING_NODE);
    now_us += 25 * HOUR;
    assert_int_equal(ask(1, false, TW_SERVING_STATE, CHUNK), TW_SERVING_GRANTED);
    assert_int_equal(serving.outside_states.bytes, CHUNK);
}

FACT(refusals_are_logged_once_an_hour) {
    const struct tw_id one = id_of(1), two = id_of(2);
    struct tw_serving_ask by = {.id = &one, .is_wanted = true, .kind = TW_SERVING_STATE};
    assert_true(tw_id_equal(tw_serving_refuse(&serving, &by, TW_SERVING_NODE, now_us), &one));
    assert_null(tw_serving_refuse(&serving, &by, TW_SERVING_HALF, now_us + HOUR - 1));
    by.kind = TW_SERVING_RELAY;
    by.other = &two; /* outside, and so the one that is named */
    assert_true(tw_id_equal(tw_serving_refuse(&serving, &by, TW_SERVING_OUTSIDE, now_us), &two));
    by.other = NULL;
    assert_non_null(tw_serving_refuse(&serving, &by, TW_SERVING_NODE, now_us + HOUR));
    assert_int_equal(serving.refused[TW_SERVING_NODE], 2);
    assert_int_equal(serving.refused[TW_SERVING_OUTSIDE], 1);
    assert_int_equal(serving.refused[TW_SERVING_HALF], 1);
    for (unsigned i = 1; i < TW_SERVING_VERDICTS; i++)
        assert_non_null(strstr(tw_serving_sentence((enum tw_serving_verdict)i), "this node"));
}
