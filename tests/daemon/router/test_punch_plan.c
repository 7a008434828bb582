/* Tests of daemon/router/punch_plan.c: two plans exchange messages under a simulated clock. */
#include "daemon/router/punch_plan.h"
#include "tests/test.h"

enum { S = 1000 * 1000, CLIENT = 1, SERVER = 2, RTT_US = 80 * 1000 };

static struct tw_punch_plan client, server;
static struct tw_punch_row to_server, to_client;
static struct tw_punch_pick pick;
static uint64_t now_us, delay_us;

static struct tw_id id(unsigned n) {
    struct tw_id made = {{0}};
    made.bytes[0] = (uint8_t)n;
    return made;
}

static int setup(void **state) {
    memset(&client, 0, sizeof(client));
    memset(&server, 0, sizeof(server));
    to_server = (struct tw_punch_row){
        .peer = 7, .id = id(SERVER), .is_relayed = true, .is_client = true, .can = true};
    to_client = (struct tw_punch_row){.peer = 3, .id = id(CLIENT), .is_relayed = true, .can = true};
    now_us = 1000 * (uint64_t)S;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void look(void) {
    tw_punch_plan_look(&client, &to_server, 1, now_us);
    tw_punch_plan_look(&server, &to_client, 1, now_us);
}

/* Advances the clock until the client asks. Returns the seconds that passed. */
static uint64_t wait_s(void) {
    const uint64_t begin_us = now_us;
    look();
    while (!tw_punch_plan_next(&client, now_us, now_us, &pick)) {
        assert_false(tw_punch_plan_next(&server, 1, now_us, &pick)); /* a server never asks */
        now_us += S;
        assert_true(now_us - begin_us < 20000 * (uint64_t)S);
        look();
    }
    assert_int_equal(pick.peer, 7);
    return (now_us - begin_us) / S;
}

static enum tw_punch_action to(struct tw_punch_plan *plan, enum tw_punch_stage stage) {
    const struct tw_id from = id(plan == &client ? SERVER : CLIENT);
    return tw_punch_plan_heard(plan, &from, stage, pick.token, now_us, &delay_us);
}

/* Runs the exchange of messages from ASK until both sides dial. */
static void arrange(void) {
    now_us += RTT_US / 2;
    assert_int_equal(to(&server, TW_PUNCH_ASK), TW_PUNCH_SEND_READY);
    now_us += RTT_US / 2;
    assert_int_equal(to(&client, TW_PUNCH_READY), TW_PUNCH_SEND_GO);
    assert_int_equal(delay_us, RTT_US / 2);
    now_us += RTT_US / 2;
    assert_int_equal(to(&server, TW_PUNCH_GO), TW_PUNCH_BEGIN);
    assert_int_equal(delay_us, 0);
}

static void link_is(bool is_direct) {
    to_server.is_relayed = to_client.is_relayed = !is_direct;
    to_server.is_punched = to_client.is_punched = is_direct;
    look();
}

/* ---- tests --------------------------------------------------------------------------------- */

FACT(both_dial_at_the_same_time_soon_after_the_relayed_link) {
    assert_int_equal(wait_s(), TW_PUNCH_SETTLE_US / S);
    arrange();
    link_is(true);
    assert_int_equal(client.tries, 1);
    assert_int_equal(client.successes, 1);
    assert_int_equal(server.successes, 1);
    for (unsigned i = 0; i < 1000; i++) {
        now_us += S;
        look();
        assert_false(tw_punch_plan_next(&client, 1, now_us, &pick));
    }
}

FACT(failures_make_pauses_that_double_up_to_an_hour) {
    uint64_t pause_s = TW_PUNCH_PAUSE_MIN_US / S;
    (void)wait_s();
    for (unsigned i = 0; i < 10; i++) {
        arrange();
        now_us += 2 * (uint64_t)TW_PUNCH_US + S;
        assert_int_equal(wait_s(), pause_s);
        pause_s = 2 * pause_s < 3600 ? 2 * pause_s : 3600;
    }
}

FACT(node_that_does_not_agree_is_asked_ever_less_often) {
    (void)wait_s();
    assert_int_equal(wait_s(), (TW_PUNCH_ASK_US + TW_PUNCH_PAUSE_MIN_US) / S);
    assert_int_equal(wait_s(), (TW_PUNCH_ASK_US + 2 * TW_PUNCH_PAUSE_MIN_US) / S);
    assert_int_equal(client.tries, 0);
}

FACT(pause_outlives_the_relayed_link) {
    (void)wait_s();
    arrange();
    now_us += 2 * (uint64_t)TW_PUNCH_US + S;
    look();                            /* failed */
    for (unsigned i = 0; i < 3; i++) { /* the relayed link breaks and is made again */
        tw_punch_plan_look(&client, NULL, 0, now_us);
        now_us += S;
        look();
        assert_false(tw_punch_plan_next(&client, 1, now_us, &pick));
    }
    assert_int_equal(wait_s(), TW_PUNCH_PAUSE_MIN_US / S - 3);
}

FACT(another_address_ends_all_pauses) {
    (void)wait_s();
    for (unsigned i = 0; i < 6; i++) (void)wait_s();
    now_us += TW_PUNCH_ASK_US;
    look();
    tw_punch_plan_moved(&client, now_us);
    assert_int_equal(wait_s(), TW_PUNCH_SETTLE_US / S);
}

FACT(punched_link_that_ends_at_once_counts_as_a_failure) {
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(wait_s(), i == 0 ? TW_PUNCH_SETTLE_US / S : TW_PUNCH_PAUSE_MIN_US / S);
        arrange();
        link_is(true);
        now_us += 2 * (uint64_t)S;
        link_is(false);
    }
    assert_int_equal(wait_s(), 2 * TW_PUNCH_PAUSE_MIN_US / S);
    arrange();
    link_is(true);
    now_us += (uint64_t)TW_PUNCH_STEADY_US + S;
    link_is(false);
    assert_true(wait_s() <= 2 * TW_PUNCH_PAUSE_MIN_US / S);
}

FACT(flood_of_asks_brings_few_dials) {
    unsigned readied = 0;
    look();
    now_us += S;
    for (unsigned i = 0; i < 600; i++, now_us += S / 10) { /* a minute */
        pick.token = i;
        look();
        if (to(&server, TW_PUNCH_ASK) != TW_PUNCH_SEND_READY) continue;
        readied++;
        assert_int_equal(to(&server, TW_PUNCH_GO), TW_PUNCH_BEGIN);
    }
    assert_true(readied <= 5);
}

FACT(stages_out_of_turn_do_nothing) {
    look();
    assert_int_equal(to(&server, TW_PUNCH_GO), TW_PUNCH_NOTHING);
    assert_int_equal(to(&client, TW_PUNCH_READY), TW_PUNCH_NOTHING);
    assert_int_equal(to(&client, TW_PUNCH_ASK), TW_PUNCH_NOTHING);
    (void)wait_s();
    assert_int_equal(to(&client, TW_PUNCH_ASK), TW_PUNCH_NOTHING); /* the client asks */
    assert_int_equal(to(&server, TW_PUNCH_ASK), TW_PUNCH_SEND_READY);
    pick.token ^= 1;
    assert_int_equal(to(&server, TW_PUNCH_GO), TW_PUNCH_NOTHING);
    assert_int_equal(to(&client, TW_PUNCH_READY), TW_PUNCH_NOTHING);
    pick.token ^= 1;
    to_client.can = false; /* the relay no longer reports addresses */
    look();
    assert_int_equal(to(&server, TW_PUNCH_GO), TW_PUNCH_NOTHING);
    pick.token = 0;
    const struct tw_id stranger = id(99);
    assert_int_equal(tw_punch_plan_heard(&server, &stranger, TW_PUNCH_ASK, 1, now_us, &delay_us),
                     TW_PUNCH_NOTHING);
}

FACT(few_links_are_punched_at_a_time) {
    static struct tw_punch_row rows[10];
    unsigned begun = 0, most = 0;
    for (unsigned i = 0; i < 10; i++) {
        rows[i] = to_server;
        rows[i].id = id(10 + i);
        rows[i].peer = (uint16_t)i;
    }
    tw_punch_plan_look(&client, rows, 10, now_us);
    for (unsigned second = 0; second < 60; second++, now_us += S) {
        unsigned here = 0;
        tw_punch_plan_look(&client, rows, 10, now_us);
        while (tw_punch_plan_next(&client, 1, now_us, &pick)) here++;
        begun += here;
        most = here > most ? here : most;
    }
    assert_int_equal(most, TW_PUNCH_AT_ONCE);
    assert_true(begun >= 10);
}

FACT(table_keeps_linked_nodes_and_forgets_others) {
    look();
    for (unsigned i = 0; i < 3 * TW_PUNCH_TARGETS_MAX; i++) {
        struct tw_punch_row rows[2] = {to_server, to_server};
        rows[1].id = id(SERVER);
        rows[1].id.bytes[1] = (uint8_t)(1 + i % 200);
        rows[1].id.bytes[2] = (uint8_t)(i / 200);
        now_us += S;
        tw_punch_plan_look(&client, rows, 2, now_us);
    }
    pick.token = 1;
    assert_true(tw_punch_plan_next(&client, 1, now_us, &pick));
    /* The row of the linked node was kept, so its READY is answered. */
    assert_int_equal(to(&client, TW_PUNCH_READY), TW_PUNCH_SEND_GO);
}
