/* Tests of daemon/router/relay_choice.c under a simulated clock. */
#include "daemon/router/relay_choice.h"
#include "tests/test.h"

enum { S = 1000 * 1000, SELF = 10, LOW = 5, HIGH = 50, HUB = 100, SPARE = 101 };

static struct tw_relay_choice choice;
static struct tw_relay_view view;
static struct tw_relay_pick pick;
static uint64_t now_us;

static struct tw_id id(unsigned n) {
    struct tw_id made = {{0}};
    made.bytes[0] = (uint8_t)n;
    return made;
}

static int setup(void **state) {
    memset(&choice, 0, sizeof(choice));
    memset(&view, 0, sizeof(view));
    view.self = id(SELF);
    now_us = 1000 * S;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

/* Adds a linked peer that offers to relay to the node `target`. */
static struct tw_relay_offer *offer(unsigned relay, unsigned target) {
    struct tw_relay_offer *made = &view.offers[view.offers_count];
    *made = (struct tw_relay_offer){.peer = (uint16_t)view.offers_count++,
                                    .id = id(relay),
                                    .rtt_us = 20 * 1000,
                                    .bytes_per_s = 1000 * 1000,
                                    .direct_count = 1,
                                    .direct = {id(target)}};
    return made;
}

static void link_by(unsigned target, unsigned relay) {
    view.linked[view.linked_count++] =
        (struct tw_relay_linked){.id = id(target), .is_relayed = relay != 0, .relay = id(relay)};
}

static void look(void) {
    tw_relay_choice_look(&choice, &view, now_us);
}

/* Advances the clock in steps of 0.25 s until the next call. Returns the whole seconds that
 * passed. */
static uint64_t wait_s(void) {
    const uint64_t begin_us = now_us;
    look();
    while (!tw_relay_choice_next(&choice, &view, now_us, &pick)) {
        now_us += S / 4;
        assert_true(now_us < begin_us + 1000 * (uint64_t)S);
        look();
    }
    return (now_us - begin_us) / S;
}

static bool calls_within(uint64_t limit_us) {
    const uint64_t end_us = now_us + limit_us;
    for (look(); now_us < end_us; look()) {
        if (tw_relay_choice_next(&choice, &view, now_us, &pick)) return true;
        now_us += S / 4;
    }
    return false;
}

static void picked(unsigned relay, unsigned target) {
    const struct tw_id by = id(relay), to = id(target);
    assert_true(tw_id_equal(&pick.relay, &by));
    assert_true(tw_id_equal(&pick.target, &to));
}

static void ended(unsigned target, bool ok) {
    const struct tw_id to = id(target);
    tw_relay_choice_ended(&choice, &to, ok, now_us);
}

/* ---- when ---------------------------------------------------------------------------------- */

FACT(smaller_id_calls_after_the_grace) {
    offer(HUB, HIGH);
    assert_int_equal(wait_s(), TW_RELAY_GRACE_US / S);
    picked(HUB, HIGH);
    assert_int_equal(pick.peer, 0);
}

FACT(larger_id_calls_ten_seconds_later) {
    offer(HUB, LOW);
    assert_int_equal(wait_s(), (TW_RELAY_GRACE_US + TW_RELAY_YIELD_US) / S);
}

FACT(dial_that_may_succeed_is_waited_for) {
    offer(HUB, HIGH);
    view.hopeful[view.hopeful_count++] = id(HIGH);
    assert_int_equal(wait_s(), TW_RELAY_HOPE_US / S);
}

FACT(linked_node_is_not_called) {
    offer(HUB, HIGH);
    link_by(HIGH, 0);
    assert_false(calls_within(100 * S));
    view.linked[0].is_relayed = true;
    view.linked[0].relay = id(HUB);
    assert_false(calls_within(100 * S));
}

FACT(this_node_itself_is_not_called) {
    offer(HUB, SELF);
    assert_false(calls_within(100 * S));
}

FACT(node_that_no_offer_lists_is_forgotten) {
    offer(HUB, HIGH);
    look();
    view.offers_count = 0;
    assert_false(calls_within(2 * (uint64_t)TW_RELAY_FORGET_US));
    for (unsigned i = 0; i < TW_RELAY_TARGETS_MAX; i++)
        assert_int_equal(choice.targets[i].state, TW_RELAY_FREE);
}

FACT(one_call_at_a_time_to_a_node) {
    offer(HUB, HIGH);
    offer(SPARE, HIGH);
    (void)wait_s();
    assert_false(calls_within(100 * S));
    ended(HIGH, false);
    assert_true(calls_within(S));
}

/* ---- loss ---------------------------------------------------------------------------------- */

FACT(lost_relayed_link_goes_up_by_another_relay_at_once) {
    offer(HUB, HIGH)->rtt_us = 1000;
    (void)wait_s();
    picked(HUB, HIGH);
    ended(HIGH, true);
    link_by(HIGH, HUB);
    offer(SPARE, HIGH);
    assert_false(calls_within(100 * S));
    view.linked_count = 0; /* the hub is dead, but no link to it has timed out yet */
    assert_int_equal(wait_s(), 0);
    picked(SPARE, HIGH);
}

FACT(larger_id_acts_ten_seconds_after_a_loss) {
    offer(HUB, LOW);
    offer(SPARE, LOW);
    link_by(LOW, HUB);
    look();
    now_us += 100 * S;
    view.linked_count = 0;
    assert_int_equal(wait_s(), TW_RELAY_YIELD_US / S);
    ended(LOW, true);
}

FACT(only_relay_is_asked_again_after_a_pause) {
    offer(HUB, HIGH);
    link_by(HIGH, HUB);
    look();
    now_us += 100 * S;
    view.linked_count = 0;
    assert_int_equal(wait_s(), TW_RELAY_LOST_US / S);
    picked(HUB, HIGH);
}

/* Each call succeeds, and then the relayed link breaks. */
FACT(relay_that_breaks_links_is_asked_less_and_less) {
    uint64_t pause_s = TW_RELAY_PAUSE_MIN_US / S;
    offer(HUB, HIGH);
    (void)wait_s();
    for (unsigned i = 0; i < 10; i++) {
        ended(HIGH, true);
        link_by(HIGH, HUB);
        look();
        now_us += S;
        view.linked_count = 0;
        const uint64_t waited_s = wait_s();
        assert_true(waited_s >= pause_s && waited_s <= pause_s + 1);
        pause_s = 2 * pause_s < TW_RELAY_PAUSE_MAX_US / S ? 2 * pause_s : TW_RELAY_PAUSE_MAX_US / S;
    }
}

FACT(steady_link_clears_the_pause) {
    offer(HUB, HIGH);
    (void)wait_s();
    for (unsigned i = 0; i < 6; i++) {
        ended(HIGH, false);
        (void)wait_s();
    }
    ended(HIGH, true);
    link_by(HIGH, HUB);
    look();
    now_us += 2 * (uint64_t)TW_RELAY_STEADY_US;
    view.linked_count = 0;
    assert_int_equal(wait_s(), TW_RELAY_LOST_US / S);
}

/* ---- which --------------------------------------------------------------------------------- */

FACT(nearer_relay_is_taken) {
    offer(HUB, HIGH)->rtt_us = 400 * 1000;
    offer(SPARE, HIGH)->rtt_us = 10 * 1000;
    (void)wait_s();
    picked(SPARE, HIGH);
}

FACT(faster_relay_is_taken) {
    offer(HUB, HIGH)->bytes_per_s = 50 * 1000;
    offer(SPARE, HIGH)->bytes_per_s = 5000 * 1000;
    (void)wait_s();
    picked(SPARE, HIGH);
}

FACT(among_alike_the_less_loaded_is_taken) {
    offer(HUB, HIGH)->rtt_us = 19 * 1000;
    offer(SPARE, HIGH)->rtt_us = 20 * 1000;
    (void)wait_s();
    picked(HUB, HIGH);
    ended(HIGH, false);
    setup(NULL);
    offer(HUB, HIGH)->rtt_us = 19 * 1000;
    offer(SPARE, HIGH)->rtt_us = 20 * 1000;
    link_by(77, HUB);
    (void)wait_s();
    picked(SPARE, HIGH);
}

FACT(failed_relay_makes_room_for_the_next) {
    offer(HUB, HIGH)->rtt_us = 1000;
    offer(SPARE, HIGH);
    (void)wait_s();
    picked(HUB, HIGH);
    ended(HIGH, false);
    assert_int_equal(wait_s(), 0);
    picked(SPARE, HIGH);
}

FACT(relay_that_is_the_node_itself_is_no_relay) {
    offer(HIGH, HIGH);
    assert_false(calls_within(100 * S));
}

/* ---- lies ---------------------------------------------------------------------------------- */

/* A peer lists 64 nodes that do not exist. A node that an honest relay lists is called
 * nevertheless. */
FACT(invented_nodes_delay_no_real_one) {
    struct tw_relay_offer *liar = offer(SPARE, 1);
    liar->direct_count = TW_PEERS_MAX;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) liar->direct[i] = id(150 + i);
    uint32_t calls = 0;
    const uint64_t end_us = now_us + 120 * (uint64_t)S;
    for (look(); now_us < end_us; look()) {
        while (tw_relay_choice_next(&choice, &view, now_us, &pick)) calls++;
        now_us += S;
        for (unsigned i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
            if (choice.targets[i].state == TW_RELAY_CALLING)
                tw_relay_choice_ended(&choice, &choice.targets[i].id, false, now_us);
        }
    }
    assert_true(calls <= 120 * TW_RELAY_OWN_CALLS_PER_RELAY);
    offer(HUB, HIGH);
    (void)wait_s();
    while (!tw_id_equal(&pick.relay, &view.offers[1].id))
        assert_true(calls_within((uint64_t)TW_RELAY_GRACE_US + S));
    picked(HUB, HIGH);
}

FACT(node_called_in_vain_comes_after_the_others) {
    struct tw_relay_offer *relay = offer(HUB, 150);
    relay->direct_count = 8;
    for (unsigned i = 0; i < 8; i++) relay->direct[i] = id(150 + i);
    for (unsigned i = 0; i < 16; i++) {
        (void)wait_s();
        tw_relay_choice_ended(&choice, &pick.target, false, now_us);
    }
    relay->direct[relay->direct_count++] = id(HIGH);
    look();
    now_us += TW_RELAY_PAUSE_MAX_US; /* all are due */
    look();
    assert_true(tw_relay_choice_next(&choice, &view, now_us, &pick));
    picked(HUB, HIGH);
}

FACT(full_table_keeps_links_and_calls) {
    link_by(HIGH, HUB);
    offer(HUB, HIGH);
    look();
    for (unsigned round = 0; round < 8; round++) {
        struct tw_relay_offer *liar = &view.offers[1];
        view.offers_count = 2;
        *liar = (struct tw_relay_offer){.id = id(SPARE), .direct_count = TW_PEERS_MAX};
        for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
            liar->direct[i] = id(150);
            liar->direct[i].bytes[1] = (uint8_t)round;
            liar->direct[i].bytes[2] = (uint8_t)i;
        }
        now_us += S;
        look();
    }
    now_us += 100 * S;
    view.linked_count = 0;
    look();
    const struct tw_id to = id(HIGH);
    bool is_waiting = false;
    for (unsigned i = 0; i < TW_RELAY_TARGETS_MAX; i++)
        is_waiting |= tw_id_equal(&choice.targets[i].id, &to) &&
                      choice.targets[i].state == TW_RELAY_WAITING && choice.targets[i].was_relayed;
    assert_true(is_waiting);
}
