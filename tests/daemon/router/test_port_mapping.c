/* Tests of daemon/router/port_mapping.c with a simulated clock and a simulated router. */
#include "daemon/router/port_mapping.h"
#include "daemon/router/port_router.h"
#include "tests/test.h"

enum { S = 1000 * 1000, PORT = 4747 };

static struct tw_port_mapping mapping;
static struct tw_port_want want;
static struct tw_port_order order;
static uint64_t now_us;

static int setup(void **state) {
    memset(&mapping, 0, sizeof(mapping));
    want = (struct tw_port_want){.need = TW_PORT_NEEDED, .host = "192.168.1.2", .port = PORT};
    now_us = 1000 * (uint64_t)S;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

/* Advances the clock until the next request to the router, and takes it. Returns the seconds
 * passed. */
static uint64_t wait_s(void) {
    const uint64_t begin_us = now_us;
    tw_port_mapping_look(&mapping, &want, now_us);
    while (!tw_port_mapping_next(&mapping, now_us, &order)) {
        now_us += S;
        assert_true(now_us - begin_us < 20000 * (uint64_t)S);
        tw_port_mapping_look(&mapping, &want, now_us);
    }
    return (now_us - begin_us) / S;
}

static void answer(enum tw_port_outcome outcome, uint32_t lease_s) {
    struct tw_port_answer made = {.outcome = outcome,
                                  .protocol = TW_PORT_UPNP,
                                  .outer_host = "11.0.0.3",
                                  .outer_port = order.outer_port,
                                  .lease_s = lease_s,
                                  .words = "no"};
    tw_port_mapping_done(&mapping, &made, now_us);
}

static void is_at(const char *wanted) {
    char address[TW_ADDR_BYTES];
    tw_port_mapping_address(&mapping, address);
    assert_string_equal(address, wanted);
}

static void says(const char *name, const char *part) {
    char text[TW_PORT_SENTENCE_BYTES];
    assert_string_equal(tw_port_mapping_name(&mapping), name);
    tw_port_mapping_sentence(&mapping, text);
    if (strstr(text, part) == NULL) fail_msg("'%s' is not in '%s'", part, text);
}

/* ---- when ---------------------------------------------------------------------------------- */

FACT(mapping_is_asked_for_at_once_and_renewed_at_half_its_lease) {
    assert_int_equal(wait_s(), 0);
    assert_int_equal(order.port, PORT);
    assert_int_equal(order.outer_port, PORT);
    assert_int_equal(order.lease_s, TW_PORT_LEASE_S);
    assert_false(order.is_removal);
    says("asking", "is being asked");
    is_at("");
    answer(TW_PORT_MAPPED, 3600);
    is_at("11.0.0.3:4747");
    says("mapped", "11.0.0.3:4747 to this node, by UPnP");
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(wait_s(), 1800);
        assert_int_equal(order.protocol, TW_PORT_UPNP);
        is_at("11.0.0.3:4747"); /* the address stays while the mapping is renewed */
        answer(TW_PORT_MAPPED, 3600);
    }
    assert_int_equal(mapping.renewals, 3);
}

FACT(shorter_lease_is_renewed_earlier_and_one_without_end_as_usual) {
    (void)wait_s();
    answer(TW_PORT_MAPPED, 600);
    assert_int_equal(wait_s(), 300);
    answer(TW_PORT_MAPPED, 0);
    assert_int_equal(wait_s(), 1800);
    answer(TW_PORT_MAPPED, 1000000);
    assert_int_equal(wait_s(), 1800);
}

FACT(lease_of_a_second_makes_no_flood_of_orders) {
    unsigned orders = 0;
    (void)wait_s();
    for (const uint64_t end_us = now_us + 3600 * (uint64_t)S; now_us < end_us; orders++) {
        answer(TW_PORT_MAPPED, 1);
        (void)wait_s();
    }
    assert_true(orders <= TW_PORT_LEASE_SHARE + 1);
}

FACT(port_that_the_router_chose_is_asked_for_again) {
    (void)wait_s();
    order.outer_port = 22000;
    answer(TW_PORT_MAPPED, 3600);
    is_at("11.0.0.3:22000");
    (void)wait_s();
    assert_int_equal(order.outer_port, 22000);
    assert_int_equal(order.port, PORT);
}

/* ---- failures ------------------------------------------------------------------------------ */

FACT(failures_are_repeated_after_pauses_that_double_up_to_an_hour) {
    uint64_t pause_s = TW_PORT_RETRY_MIN_US / S;
    (void)wait_s();
    for (unsigned i = 0; i < 10; i++) {
        answer(TW_PORT_NO_ROUTER, 0);
        assert_int_equal(wait_s(), pause_s);
        pause_s = 2 * pause_s < 3600 ? 2 * pause_s : 3600;
    }
    answer(TW_PORT_MAPPED, 3600);
    (void)wait_s();
    answer(TW_PORT_NO_ROUTER, 0);
    /* after a success the pauses begin again at the shortest */
    assert_int_equal(wait_s(), TW_PORT_RETRY_MIN_US / S);
}

FACT(mapping_survives_failed_renewals_until_its_lease_ends) {
    (void)wait_s();
    answer(TW_PORT_MAPPED, 3600);
    const uint64_t end_us = now_us + 3600 * (uint64_t)S;
    (void)wait_s();
    while (now_us < end_us) {
        answer(TW_PORT_REFUSED, 0);
        is_at("11.0.0.3:4747");
        assert_true(wait_s() > 0 || now_us >= end_us);
    }
    answer(TW_PORT_REFUSED, 0);
    is_at("");
    says("refused", "refuses to forward a port (UPnP: no)");
}

FACT(results_name_the_way_out) {
    (void)wait_s();
    answer(TW_PORT_NO_ROUTER, 0);
    says("no_router", "forward TCP port 4747 to 192.168.1.2");
    (void)wait_s();
    answer(TW_PORT_DOUBLE_NAT, 0);
    says("double_nat", "no public address, but 11.0.0.3: it is behind another router");
    want.need = TW_PORT_IS_ADVERTISED;
    tw_port_mapping_look(&mapping, &want, now_us);
    says("not_needed", "`advertise` is set");
    want.need = TW_PORT_IS_OFF;
    tw_port_mapping_look(&mapping, &want, now_us);
    says("off", "is off");
}

FACT(router_behind_another_one_maps_nothing) {
    (void)wait_s();
    answer(TW_PORT_MAPPED, 3600);
    (void)wait_s();
    answer(TW_PORT_DOUBLE_NAT, 0); /* another router was put in front of this router */
    is_at("");
    assert_int_equal(wait_s(), TW_PORT_RETRY_MIN_US / S);
}

/* ---- changes ------------------------------------------------------------------------------- */

FACT(unneeded_mapping_is_removed_and_made_again_when_needed) {
    (void)wait_s();
    answer(TW_PORT_MAPPED, 3600);
    want.need = TW_PORT_IS_OFF;
    assert_int_equal(wait_s(), 0);
    assert_true(order.is_removal);
    assert_int_equal(order.protocol, TW_PORT_UPNP);
    assert_int_equal(order.outer_port, PORT);
    assert_string_equal(order.host, "192.168.1.2");
    is_at("");
    /* A node that ends waits until the mapping is removed. */
    assert_true(tw_port_mapping_is_held(&mapping));
    answer(TW_PORT_NO_ROUTER, 0);
    assert_false(tw_port_mapping_is_held(&mapping));
    now_us += 5000 * (uint64_t)S;
    tw_port_mapping_look(&mapping, &want, now_us);
    assert_false(tw_port_mapping_next(&mapping, now_us, &order));
    want.need = TW_PORT_NEEDED;
    assert_int_equal(wait_s(), 0);
    assert_false(order.is_removal);
}

FACT(mapping_that_comes_too_late_is_removed) {
    (void)wait_s();
    want.need = TW_PORT_IS_OFF;
    tw_port_mapping_look(&mapping, &want, now_us);
    assert_false(tw_port_mapping_next(&mapping, now_us, &order));
    answer(TW_PORT_MAPPED, 3600);
    assert_int_equal(wait_s(), 0);
    assert_true(order.is_removal);
    answer(TW_PORT_NO_ROUTER, 0);
    assert_false(tw_port_mapping_is_held(&mapping));
}

FACT(changed_address_is_mapped_at_once) {
    (void)wait_s();
    answer(TW_PORT_MAPPED, 3600);
    now_us += 60 * (uint64_t)S;
    (void)snprintf(want.host, sizeof(want.host), "192.168.7.9");
    assert_int_equal(wait_s(), 0);
    assert_string_equal(order.host, "192.168.7.9");
    is_at("");
    /* The host changes again before the router answers. */
    (void)snprintf(want.host, sizeof(want.host), "192.168.8.8");
    tw_port_mapping_look(&mapping, &want, now_us);
    answer(TW_PORT_MAPPED, 3600);
    is_at("");
    assert_int_equal(wait_s(), 0);
    assert_string_equal(order.host, "192.168.8.8");
    answer(TW_PORT_NO_ROUTER, 0);
    /* A new network does not inherit the pause after a failure in the old one. */
    (void)snprintf(want.host, sizeof(want.host), "192.168.1.2");
    assert_int_equal(wait_s(), 0);
}

FACT(doubtful_mapping_is_renewed_early_but_ever_less_often) {
    uint64_t pause_s = TW_PORT_DOUBT_US / S;
    (void)wait_s();
    answer(TW_PORT_MAPPED, 3600);
    want.is_doubtful = true;
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(wait_s(), pause_s);
        answer(TW_PORT_MAPPED, 3600);
        pause_s = 2 * pause_s < 1800 ? 2 * pause_s : 1800;
    }
    want.is_doubtful = false;
    assert_int_equal(wait_s(), 1800);
    answer(TW_PORT_MAPPED, 3600);
    want.is_doubtful = true;
    assert_int_equal(wait_s(), TW_PORT_DOUBT_US / S);
}

/* ---- addresses ----------------------------------------------------------------------------- */

TEST(special_addresses_are_not_public) {
    static const char *const inner[] = {"10.0.0.1",   "192.168.0.1",  "172.16.0.1",  "172.31.9.9",
                                        "100.64.0.1", "127.0.0.1",    "169.254.1.1", "0.0.0.0",
                                        "224.0.0.1",  "255.1.1.1",    "198.18.0.1",  "192.0.0.8",
                                        "192.0.2.1",  "198.51.100.1", "203.0.113.9", "",
                                        "name",       "11.0.0.3:1",   "2001:db8::1"};
    static const char *const outer[] = {"11.0.0.3",    "9.255.255.255", "172.32.0.1",
                                        "100.128.0.1", "192.167.1.1",   "223.255.255.255",
                                        "192.0.3.1"};
    for (unsigned i = 0; i < sizeof(inner) / sizeof(inner[0]); i++)
        assert_false(tw_port_is_public(inner[i]));
    for (unsigned i = 0; i < sizeof(outer) / sizeof(outer[0]); i++)
        assert_true(tw_port_is_public(outer[i]));
}

TEST(machines_of_a_network_ask_for_different_ports) {
    struct tw_port_order one = {.host = "192.168.1.2", .port = PORT, .outer_port = PORT};
    struct tw_port_order other = {.host = "192.168.1.3", .port = PORT, .outer_port = PORT};
    assert_int_equal(tw_port_router_outer(&one, 0), PORT);
    for (unsigned i = 1; i < 4; i++) {
        const uint16_t port = tw_port_router_outer(&one, i);
        assert_true(port >= 20000 && port < 60000);
        assert_int_equal(port, tw_port_router_outer(&one, i));
        assert_int_not_equal(port, tw_port_router_outer(&one, i - 1));
        assert_int_not_equal(port, tw_port_router_outer(&other, i));
    }
}
