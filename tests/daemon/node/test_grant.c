/* test_grant.c - the bytes granted to a contribution depend on the link that carries it. Tests
 * daemon/node/budget.c with a fake transport: two links of unequal speed, in a group and in
 * pairs. */
#include <stdlib.h>

#include "compress/codec.h"
#include "daemon/net/transport.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/reports.h"
#include "tests/test.h"

enum { ELEMENTS = 1 << 20, FAST = 1, SLOW = 2, RATE_FAST = 1 << 30, RATE_SLOW = 40000 };

static struct tw_daemon node_daemon;
static struct tw_setup setup;
static struct tw_roster roster;
static uint64_t period_us;
static uint32_t measured_count; /* number of TW_EV_MEASURED */

/* ---- the fakes ------------------------------------------------------------------------------ */

bool tw_transport_peer(const struct tw_transport *transport, uint16_t peer,
                       struct tw_peer_net *out) {
    memset(out, 0, sizeof(*out));
    out->delivery_bytes_per_s = peer == FAST ? RATE_FAST : RATE_SLOW;
    return true;
}

struct tw_traffic tw_transport_traffic(const struct tw_transport *transport) {
    return (struct tw_traffic){0};
}

void tw_node_view(const struct tw_node *node, struct tw_node_view *view) {
    memset(view, 0, sizeof(*view));
    view->roster = roster;
}

double tw_daemon_samples_rate(const struct tw_daemon *of, enum tw_sample what) {
    (void)of, (void)what;
    return 0;
}

uint64_t tw_daemon_reports_period_us(const struct tw_daemon *of) {
    return period_us;
}

uint64_t tw_daemon_caps_upload(const struct tw_daemon *of) {
    return 0;
}

void *tw_daemon_alloc(size_t bytes, struct tw_error *err) {
    return calloc(1, bytes);
}

void tw_daemon_note(struct tw_daemon *of, enum tw_log_level level, const char *name,
                    const char *fmt, ...) {
    (void)of, (void)level, (void)name, (void)fmt;
}

void tw_daemon_event(struct tw_daemon *of, const struct tw_event *event) {
    (void)of, (void)event;
}

void tw_daemon_event_measured(struct tw_daemon *of) {
    measured_count++;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static struct tw_id id_of(uint32_t i) {
    return (struct tw_id){.bytes = {(uint8_t)(i + 1)}};
}

static void begin(enum tw_topology topology, uint64_t budget_bytes_per_s) {
    tw_daemon_budget_free(&node_daemon);
    memset(&node_daemon, 0, sizeof(node_daemon));
    memset(&setup, 0, sizeof(setup));
    memset(&roster, 0, sizeof(roster));
    node_daemon.setup = &setup;
    node_daemon.transport = (struct tw_transport *)&node_daemon; /* never dereferenced */
    period_us = 1000 * 1000;
    setup.run.sync.topology = topology;
    setup.run.sync.codec = TW_CODEC_AUTO;
    setup.run.train.tokens = UINT64_MAX;
    setup.layout.fragments_count = 1;
    setup.layout.elements = setup.layout.fragment_begin[1] = 2 * ELEMENTS;
    setup.identity.id = id_of(0);
    setup.config.network.budget.bytes = budget_bytes_per_s;
    roster.count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        roster.members[i].id = id_of(i);
        roster.members[i].weight = i > 0;
    }
    for (uint16_t i = FAST; i <= SLOW; i++) {
        node_daemon.peers[i].is_up = true;
        node_daemon.peers[i].id = id_of(i);
    }
    assert_int_equal(tw_daemon_budget_open(&node_daemon, NULL), TW_OK);
}

TEST(a_slow_link_to_an_owner_has_fewer_bytes) {
    begin(TW_TOPOLOGY_GROUP, 0);
    struct tw_action action = {.kind = TW_ACT_ENCODE};
    action.u.encode.parts_count = 2;
    action.u.encode.parts[0].count = action.u.encode.parts[1].count = ELEMENTS;
    assert_true(tw_daemon_budget_grant(&node_daemon, &action));
    assert_int_equal(action.u.encode.parts[0].bytes_max, 0); /* no limit: owner 0 is FAST */
    assert_int_equal(action.u.encode.parts[1].bytes_max, RATE_SLOW / 2);
}

static uint64_t granted_for(uint32_t partner) {
    struct tw_action action = {.kind = TW_ACT_PAIR_ENCODE};
    action.partner = id_of(partner);
    assert_true(tw_daemon_budget_grant(&node_daemon, &action));
    return action.u.pair_encode.delta_bytes_max;
}

TEST(a_slow_link_to_a_partner_has_fewer_bytes) {
    begin(TW_TOPOLOGY_PAIR, 0);
    assert_int_equal(granted_for(FAST), 0);
    assert_int_equal(granted_for(SLOW), 1); /* the anchor, a byte per element, needs all of it */
    period_us *= 120;
    assert_int_equal(granted_for(SLOW), 120 * (RATE_SLOW / 2) - 2 * ELEMENTS);
    assert_int_equal(granted_for(3), 0); /* no link, so no limit is known */
}

/* The core is told once, not at every tick. It is told only in pairs, where a partner would
 * otherwise wait in vain. */
TEST(the_core_of_a_pair_knows_that_there_is_no_room) {
    const enum tw_topology topologies[] = {TW_TOPOLOGY_PAIR, TW_TOPOLOGY_GROUP};
    for (unsigned t = 0; t < 2; t++) {
        begin(topologies[t], 1000);
        measured_count = 0;
        for (uint64_t second = 1; second < 30; second++)
            tw_daemon_budget_tick(&node_daemon, second * 1000 * 1000);
        assert_int_equal(node_daemon.measured.is_short, topologies[t] == TW_TOPOLOGY_PAIR);
        assert_int_equal(measured_count, topologies[t] == TW_TOPOLOGY_PAIR);
    }
    begin(TW_TOPOLOGY_PAIR, 1000 * 1000 * 1000);
    for (uint64_t second = 1; second < 30; second++)
        tw_daemon_budget_tick(&node_daemon, second * 1000 * 1000);
    assert_false(node_daemon.measured.is_short);
}

int main(void) {
    const int failed = test_run(NULL, NULL);
    tw_daemon_budget_free(&node_daemon);
    return failed;
}
