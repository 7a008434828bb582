/* Tests of daemon/net/reachability.c: when a node asks its peers to dial back, and which
 * conclusion it draws from their answers. */
#include "daemon/net/reachability.h"
#include "tests/test.h"

static const uint64_t S = 1000 * 1000;
static struct tw_reachability reachability;
static char text[TW_REACHABILITY_SENTENCE_BYTES];
static struct tw_member_row self;

/* Makes the node announce one explicit address, and wildcards at two ports. */
static void advertise(void) {
    static const char *const addrs[] = {"0.0.0.0:4747", "[::]:4747", "198.51.100.1:9000",
                                        "0.0.0.0:1"};
    _Static_assert(sizeof(addrs) / sizeof(addrs[0]) <= TW_ADDRS_MAX, "they fit");
    self = (struct tw_member_row){.id = {{1}}};
    for (unsigned i = 0; i < 4; i++) (void)snprintf(self.addrs[i], TW_ADDR_BYTES, "%s", addrs[i]);
}

static int setup(void **state) {
    advertise();
    reachability = (struct tw_reachability){0};
    tw_reachability_linked(&reachability, S);
    tw_reachability_ask(&reachability, 7, true, 10 * S);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static struct tw_id id_of(uint8_t number) {
    struct tw_id id;
    memset(&id, number, sizeof(id));
    return id;
}

static void heard(uint8_t by, const char *address, enum tw_probe_outcome outcome) {
    struct tw_msg_probed probed = {.token = reachability.token, .outcome = outcome};
    const struct tw_id id = id_of(by);
    (void)snprintf(probed.addr, sizeof(probed.addr), "%s", address);
    tw_reachability_heard(&reachability, &self, &probed, &id, 11 * S);
}

static void is(enum tw_reachability_state state, const char *words) {
    assert_int_equal(tw_reachability_state(&reachability, true), state);
    tw_reachability_sentence(&reachability, true, 4747, text);
    if (strstr(text, words) == NULL) fail_msg("no '%s' in: %s", words, text);
}

/* ---- times --------------------------------------------------------------------------------- */

FACT(questions_follow_links_changes_and_time) {
    reachability = (struct tw_reachability){0};
    assert_false(tw_reachability_is_due(&reachability, 1000 * S)); /* nobody to ask */
    tw_reachability_linked(&reachability, S);
    assert_false(tw_reachability_is_due(&reachability, S));
    tw_reachability_linked(&reachability, 3 * S); /* a second link does not delay the question */
    assert_true(tw_reachability_is_due(&reachability, S + TW_REACHABILITY_SETTLE_US));
    tw_reachability_ask(&reachability, 1, false, 6 * S); /* the only peer has left */
    assert_false(tw_reachability_is_due(&reachability, 1000 * S));
    tw_reachability_linked(&reachability, 10 * S);
    tw_reachability_ask(&reachability, 2, true, 20 * S);
    assert_false(tw_reachability_is_due(&reachability, 20 * S + TW_REACHABILITY_AGAIN_US - 1));
    assert_true(tw_reachability_is_due(&reachability, 20 * S + TW_REACHABILITY_AGAIN_US));
    heard(1, "198.51.100.1:4747", TW_PROBE_REACHED);
    assert_false(tw_reachability_is_due(&reachability,
                                        20 * S + TW_REACHABILITY_AGAIN_US)); /* not urgent now */
    assert_true(tw_reachability_is_due(&reachability, 20 * S + TW_REACHABILITY_FINE_US));
    tw_reachability_moved(&reachability, 30 * S);
    assert_true(tw_reachability_is_due(&reachability, 30 * S + TW_REACHABILITY_SETTLE_US));
    is(TW_REACHABILITY_UNKNOWN, "No peer has tried yet");
}

/* ---- result -------------------------------------------------------------------------------- */

FACT(node_without_listener_is_told_that_this_is_fine) {
    assert_int_equal(tw_reachability_state(&reachability, false), TW_REACHABILITY_DIAL_ONLY);
    tw_reachability_sentence(&reachability, false, 0, text);
    assert_non_null(strstr(text, "it links to every node that can be dialled"));
}

FACT(one_peer_that_got_through_is_enough) {
    heard(1, "198.51.100.1:4747", TW_PROBE_FAILED); /* for example, a firewall blocks peer 1 */
    is(TW_REACHABILITY_NO, "198.51.100.1:4747: not reached");
    heard(2, "198.51.100.1:4747", TW_PROBE_REACHED);
    is(TW_REACHABILITY_YES, "198.51.100.1:4747 can be dialled");
}

FACT(public_address_decides) {
    heard(1, "192.168.1.20:4747", TW_PROBE_REACHED);
    is(TW_REACHABILITY_YES, "192.168.1.20:4747 can be dialled"); /* every address that was tried */
    heard(1, "198.51.100.1:4747", TW_PROBE_FAILED);
    is(TW_REACHABILITY_LOCAL, "Only its own network can dial this node, at 192.168.1.20:4747");
    assert_non_null(strstr(text, "forward it to this machine in the router"));
    heard(2, "[2001:db8::1]:4747", TW_PROBE_REACHED);
    is(TW_REACHABILITY_YES, "[2001:db8::1]:4747 can be dialled");
}

FACT(advice_names_firewall_router_and_ports) {
    heard(1, "10.0.0.1:4747", TW_PROBE_FAILED);
    is(TW_REACHABILITY_NO,
       "10.0.0.1:4747: not reached; open TCP port 4747 in this machine's firewall");
    assert_null(strstr(text, "router")); /* port forwarding does not apply to a private address */
    heard(0xab, "198.51.100.1:9000", TW_PROBE_FAILED);
    is(TW_REACHABILITY_NO, "abababab tried 198.51.100.1:9000");
    is(TW_REACHABILITY_NO, "open TCP port 4747 in this machine's firewall, and forward it");
    is(TW_REACHABILITY_NO, "needs a port of its own, which it should `advertise`");
}

/* Older nodes report different kinds of failure. */
FACT(every_other_outcome_is_a_failure) {
    for (unsigned outcome = 1; outcome < TW_PROBE_OUTCOMES; outcome++) {
        (void)setup(NULL);
        heard(1, "198.51.100.1:4747", (enum tw_probe_outcome)outcome);
        is(TW_REACHABILITY_NO, "not reached");
    }
}

FACT(unrequested_answers_are_dropped) {
    struct tw_msg_probed probed = {.token = 8, .outcome = TW_PROBE_REACHED};
    const struct tw_id id = id_of(1);
    memcpy(probed.addr, "198.51.100.1:4747", 18);
    tw_reachability_heard(&reachability, &self, &probed, &id, 11 * S); /* another token */
    probed.token = 7;
    tw_reachability_heard(&reachability, &self, &probed, &id,
                          10 * S + TW_REACHABILITY_ANSWER_US); /* too late */
    memcpy(probed.addr, "no port", 8);
    tw_reachability_heard(&reachability, &self, &probed, &id, 11 * S);
    assert_int_equal(reachability.rows_count, 0);
    for (unsigned i = 0; i < 10; i++) {
        char address[TW_ADDR_BYTES];
        (void)snprintf(address, sizeof(address), "198.51.100.%u:1", i);
        heard(1, address, TW_PROBE_REACHED);
    }
    /* a peer can add no more rows than a node announces addresses */
    assert_int_equal(reachability.rows_count, TW_ADDRS_MAX);
    heard(2, "198.51.100.1:1", TW_PROBE_FAILED);
    heard(2, "198.51.100.1:1", TW_PROBE_REACHED); /* same peer and address: no new row */
    assert_int_equal(reachability.rows_count, TW_ADDRS_MAX + 1);
    for (uint8_t by = 3; by < 20; by++) heard(by, "198.51.100.1:1", TW_PROBE_FAILED);
    assert_int_equal(reachability.rows_count, TW_REACHABILITY_ROWS_MAX);
}

/* A peer claims to have dialled an address that this node does not announce. */
FACT(foreign_address_is_ignored) {
    static const char *const foreign[] = {"198.51.100.7:4748", "198.51.100.1:9001",
                                          "home.example.org:4747", "[2001:db8::1]:2", "nonsense"};
    static const char *const own[] = {"198.51.100.1:9000", "203.0.113.9:4747", "[2001:db8::1]:4747",
                                      "198.51.100.2:9000", "10.0.0.1:1"};
    for (unsigned i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        heard(1, foreign[i], TW_PROBE_REACHED);
        assert_false(tw_reachability_is_own(&self, foreign[i]));
    }
    assert_int_equal(reachability.rows_count, 0);
    is(TW_REACHABILITY_UNKNOWN, "No peer has tried yet");
    for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_true(tw_reachability_is_own(&self, own[i]));
    (void)snprintf(self.addrs[1], TW_ADDR_BYTES, "home.example.org:4748");
    self.addrs[2][0] = '\0';
    /* Peers may resolve the announced name to this address. */
    assert_true(tw_reachability_is_own(&self, "203.0.113.9:4748"));
    assert_false(tw_reachability_is_own(&self, "203.0.113.9:1")); /* no longer announced */
}

FACT(private_addresses_are_told_from_public_ones) {
    static const char *const private[] = {
        "10.1.2.3:1",  "172.16.0.1:1",  "172.31.9.9:1", "192.168.0.1:1", "100.64.0.1:1",
        "127.0.0.1:1", "169.254.9.9:1", "[fd00::1]:1",  "[fe80::1]:1",   "[::1]:1"};
    static const char *const public[] = {"172.32.0.1:1",    "100.128.0.1:1",      "198.51.100.1:1",
                                         "[2001:db8::1]:1", "home.example.org:1", "nonsense"};
    for (unsigned i = 0; i < sizeof(private) / sizeof(private[0]); i++)
        assert_true(tw_reachability_is_private(private[i]));
    for (unsigned i = 0; i < sizeof(public) / sizeof(public[0]); i++)
        assert_false(tw_reachability_is_private(public[i]));
}

FACT(local_addresses_are_known_in_every_spelling) {
    static const char *const local[] = {"127.0.0.1:1",          "127.9.9.9:1",      "127.1:1",
                                        "0x7f000001:1",         "2130706433:1",     "0.0.0.0:1",
                                        "169.254.169.254:1",    "[::1]:1",          "[::]:1",
                                        "[::ffff:127.0.0.1]:1", "[fe80::1%eth0]:1", "224.0.0.251:1",
                                        "[ff02::1]:1",          "localhost:1",      "LocalHost.:1",
                                        "a.localhost:1",        "255.255.255.255:1"};
    static const char *const others[] = {"10.0.0.1:1",      "192.168.0.1:1",       "198.51.100.1:1",
                                         "[2001:db8::1]:1", "[fd00::1]:1",         "notlocalhost:1",
                                         "home.example:1",  "[::ffff:10.0.0.1]:1", "nonsense"};
    for (unsigned i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (!tw_reachability_is_local(local[i])) fail_msg("%s", local[i]);
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (tw_reachability_is_local(others[i])) fail_msg("%s", others[i]);
}

/* Tells of an address; `is_on_link`: its network is one of this machine's. */
struct word {
    const char *teller, *told;
    bool is_on_link, may_tell;
};

FACT(one_host_is_known_in_every_spelling) {
    assert_true(tw_reachability_is_same_host("203.0.113.66:9", "203.0.113.66:80"));
    assert_true(tw_reachability_is_same_host("203.0.113.66:9", "[::ffff:203.0.113.66]:9"));
    assert_true(tw_reachability_is_same_host("[2001:db8::1]:9", "[2001:db8:0::1]:7"));
    assert_false(tw_reachability_is_same_host("203.0.113.66:9", "203.0.113.67:9"));
    assert_false(tw_reachability_is_same_host("a.example:9", "a.example:9")); /* a name is none */
    assert_false(tw_reachability_is_same_host("", ""));
}

FACT(private_addresses_are_told_within_a_network) {
    static const struct word words[] = {
        {"203.0.113.66:9", "198.51.100.7:1", false, true},
        {"203.0.113.66:9", "node.example:1", false, true},
        {"", "198.51.100.7:1", false, true},
        /* from outside, in any spelling */
        {"203.0.113.66:9", "192.168.77.9:80", true, false},
        {"203.0.113.66:9", "10.0.0.1:80", true, false},
        {"203.0.113.66:9", "172.31.0.1:80", true, false},
        {"203.0.113.66:9", "100.64.0.1:80", true, false},
        {"203.0.113.66:9", "[fd00::1]:80", true, false},
        {"203.0.113.66:9", "[::ffff:192.168.77.9]:80", true, false},
        {"203.0.113.66:9", "0xc0a84d09:80", true, false},
        {"203.0.113.66:9", "192.168.19721:80", true, false},
        {"203.0.113.66:9", "127.0.0.1:80", true, false},
        {"203.0.113.66:9", "169.254.169.254:80", true, false},
        {"", "192.168.77.9:80", true, false}, /* a relayed peer */
        /* from the same network */
        {"192.168.77.5:9", "192.168.77.9:80", false, true},
        {"[::ffff:192.168.77.5]:9", "192.168.77.9:80", false, true},
        {"[fd00:1:2:3::5]:9", "[fd00:1:2:3::9]:80", false, true},
        {"127.0.0.1:9", "127.0.0.5:80", false, true},
        /* from the same range, but another network */
        {"10.1.2.3:9", "10.9.0.1:80", true, true},
        {"10.1.2.3:9", "10.9.0.1:80", false, false},
        {"[fd00:1:2:3::5]:9", "[fd00:1:2:4::9]:80", false, false},
        {"172.17.0.1:9", "172.31.0.1:80", false, false},
        /* from another range */
        {"10.1.2.3:9", "192.168.77.9:80", true, false},
        {"100.64.0.1:9", "192.168.77.9:80", true, false},
        {"127.0.0.1:9", "192.168.77.9:80", true, false},
        {"192.168.77.5:9", "127.0.0.1:80", true, false},
    };
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const struct word *word = &words[i];
        if (tw_reachability_may_tell(word->teller, word->told, word->is_on_link) != word->may_tell)
            fail_msg("%s of %s", word->teller, word->told);
    }
}
