/* Tests of daemon/net/bans.c: a flood is rate-limited, and shuts out only its own
 * network. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "daemon/net/bans.h"
#include "tests/test.h"

enum { SECOND_US = 1000 * 1000 };
static const uint64_t DAY_US = UINT64_C(24) * 3600 * SECOND_US;

static struct tw_handshake_limiter table;
static uint64_t now_us;

static int setup(void **state) {
    now_us = 5 * SECOND_US;
    tw_handshake_limiter_init(&table, now_us);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static struct sockaddr_storage at(const char *host) {
    struct sockaddr_storage address = {.ss_family = AF_INET};
    if (inet_pton(AF_INET, host, &((struct sockaddr_in *)&address)->sin_addr) == 1) return address;
    address.ss_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)&address)->sin6_addr), 1);
    return address;
}

static enum tw_status knock(const char *host) {
    const struct sockaddr_storage from = at(host);
    return tw_handshake_limiter_take(&table, &from, false, now_us, NULL);
}

static unsigned limiter(const char *host, unsigned count) {
    unsigned taken = 0;
    for (unsigned i = 0; i < count; i++) taken += knock(host) == TW_OK;
    return taken;
}

static void admit(const char *host) {
    const struct sockaddr_storage from = at(host);
    tw_handshake_limiter_admitted(&table, &from, now_us);
}

FACT(one_network_has_a_bucket_of_its_own) {
    assert_int_equal(limiter("10.0.0.1", 1000), TW_HANDSHAKE_LIMITER_NET_BURST);
    assert_int_equal(knock("10.0.0.200"), TW_LIMIT); /* the same /24 */
    assert_int_equal(knock("10.0.1.1"), TW_OK);
    assert_int_equal(limiter("2001:db8:1::1", 1000), TW_HANDSHAKE_LIMITER_NET_BURST);
    assert_int_equal(knock("2001:db8:1:ffff::9"), TW_LIMIT); /* the same /48 */
    assert_int_equal(knock("2001:db8:2::1"), TW_OK);
    now_us += SECOND_US;
    assert_int_equal(limiter("10.0.0.1", 1000), TW_HANDSHAKE_LIMITER_NET_PER_S);
}

FACT(mapped_ipv4_is_ipv4) {
    assert_int_equal(limiter("10.0.0.1", 1000), TW_HANDSHAKE_LIMITER_NET_BURST);
    assert_int_equal(knock("::ffff:10.0.0.9"), TW_LIMIT);
    assert_int_equal(knock("::ffff:10.0.7.9"), TW_OK);
}

FACT(strangers_together_have_one_too) {
    unsigned taken = 0;
    for (unsigned net = 0; net < 250; net++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "10.1.%u.1", net);
        taken += limiter(host, 20);
    }
    assert_int_equal(taken, TW_HANDSHAKE_LIMITER_BURST);
    now_us += SECOND_US;
    taken = 0;
    for (unsigned net = 0; net < 250; net++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "10.2.%u.1", net);
        taken += limiter(host, 20);
    }
    assert_int_equal(taken, TW_HANDSHAKE_LIMITER_PER_S);
}

/* A connection refused by the limit of its network does not use up the shared bucket. */
FACT(flood_of_one_network_leaves_the_common_bucket) {
    (void)limiter("10.0.0.1", 100 * 1000);
    assert_int_equal(limiter("10.9.0.1", 50), 50);
}

FACT(host_of_a_member_is_not_shut_out_by_others) {
    admit("10.0.0.7");
    for (unsigned net = 0; net < 250; net++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "10.0.%u.1", net);
        (void)limiter(host, 1000);
    }
    assert_int_equal(knock("10.0.0.8"), TW_LIMIT); /* an unknown host in the same network */
    assert_int_equal(limiter("10.0.0.7", 1000), TW_HANDSHAKE_LIMITER_NET_BURST);
    assert_int_equal(knock("10.0.0.7"), TW_LIMIT); /* but a known host is limited too */
}

FACT(member_is_forgotten_after_a_day) {
    const struct sockaddr_storage from = at("10.0.0.7"), other = at("10.0.0.8");
    admit("10.0.0.7");
    assert_true(tw_handshake_limiter_is_known(&table, &from, now_us));
    assert_false(tw_handshake_limiter_is_known(&table, &other, now_us));
    now_us += DAY_US;
    assert_false(tw_handshake_limiter_is_known(&table, &from, now_us));
}

FACT(tables_are_bounded_and_the_idlest_goes) {
    for (unsigned i = 0; i < TW_HANDSHAKE_LIMITER_HOSTS + 1; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "10.3.%u.%u", i / 200, i % 200);
        admit(host);
        now_us++;
    }
    const struct sockaddr_storage first = at("10.3.0.0"), second = at("10.3.0.1");
    assert_false(tw_handshake_limiter_is_known(&table, &first, now_us));
    assert_true(tw_handshake_limiter_is_known(&table, &second, now_us));
}

FACT(hosts_are_told_apart) {
    static const struct {
        const char *a, *b;
        bool is_same;
    } cases[] = {{"10.0.0.1", "10.0.0.1", true},           {"10.0.0.1", "10.0.0.2", false},
                 {"10.0.0.1", "::ffff:10.0.0.1", true},    {"2001:db8::1", "2001:db8::2", true},
                 {"2001:db8::1", "2001:db8:0:1::", false}, {"::ffff:10.0.0.1", "::1", false}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct sockaddr_storage a = at(cases[i].a), b = at(cases[i].b);
        assert_int_equal(tw_handshake_limiter_is_same_host(&a, &b), cases[i].is_same);
    }
}

FACT(sentence_says_whose_bucket_is_empty) {
    struct tw_error err;
    const struct sockaddr_storage from = at("10.0.0.1");
    (void)limiter("10.0.0.1", 1000);
    assert_int_equal(tw_handshake_limiter_take(&table, &from, false, now_us, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "one network"));
    admit("10.0.0.1");
    (void)limiter("10.0.0.1", 1000);
    assert_int_equal(tw_handshake_limiter_take(&table, &from, false, now_us, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "one host"));
}

FACT(knock_pays_into_other_buckets) {
    const struct sockaddr_storage from = at("10.0.0.1");
    for (unsigned i = 0; i < 100; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "10.1.%u.1", i);
        (void)limiter(host, 100);
    }
    assert_int_equal(knock("10.2.0.1"), TW_LIMIT); /* the bucket of all strangers is empty */
    unsigned taken = 0;
    for (unsigned i = 0; i < 1000; i++)
        taken += tw_handshake_limiter_take(&table, &from, true, now_us, NULL) == TW_OK;
    assert_int_equal(taken, TW_HANDSHAKE_LIMITER_NET_BURST); /* known hosts have a limit too */
}

static bool back(const char *host) {
    const struct sockaddr_storage to = at(host);
    return tw_handshake_limiter_dial_back(&table, &to, now_us);
}

FACT(host_has_few_dials_back) {
    for (unsigned i = 0; i < TW_DIAL_BACKS_BURST; i++) assert_true(back("10.0.0.1"));
    assert_false(back("10.0.0.1"));
    assert_true(back("10.0.0.2"));
    now_us += (uint64_t)TW_DIAL_BACK_PAUSE_S * SECOND_US;
    assert_true(back("10.0.0.1"));
    assert_false(back("10.0.0.1"));
    now_us += DAY_US;
    for (unsigned i = 0; i < TW_DIAL_BACKS_BURST; i++) assert_true(back("10.0.0.1"));
    assert_false(back("10.0.0.1"));
}

static bool is_known(const char *host) {
    const struct sockaddr_storage from = at(host);
    return tw_handshake_limiter_is_known(&table, &from, now_us);
}

/* The machine restarts too, so its monotonic clock begins at 0. */
FACT(known_hosts_survive_a_restart) {
    static char text[TW_HANDSHAKE_LIMITER_TEXT_MAX];
    const uint64_t wall_s = 1800000000, hour_s = 3600;
    now_us = DAY_US;
    admit("10.0.0.1");
    now_us += hour_s * SECOND_US;
    admit("2001:db8::1");
    const size_t size = tw_handshake_limiter_encode(&table, now_us, wall_s, text);
    now_us = 5 * SECOND_US;
    tw_handshake_limiter_init(&table, now_us);
    assert_false(is_known("10.0.0.1"));
    assert_int_equal(tw_handshake_limiter_decode(&table, text, size, now_us, wall_s + 22 * hour_s),
                     0);
    assert_true(is_known("10.0.0.1") && is_known("2001:db8::9"));
    assert_false(is_known("10.0.0.2"));
    tw_handshake_limiter_init(&table, now_us);
    assert_int_equal(tw_handshake_limiter_decode(&table, text, size, now_us, wall_s + 23 * hour_s),
                     0);
    assert_true(!is_known("10.0.0.1") && is_known("2001:db8::1")); /* a day ago */
    tw_handshake_limiter_init(&table, now_us);
    assert_int_equal(tw_handshake_limiter_decode(&table, text, size, now_us, wall_s - 1), 0);
    assert_false(is_known("2001:db8::1")); /* the time of its entry is in the future */
}

FACT(damaged_hosts_are_skipped) {
    static const char text[] = "\n"
                               "00000000000000000000ffff0a000001\n"
                               "00000000000000000000ffff0a000001 \n"
                               "00000000000000000000ffff0a00000g 1800000000\n"
                               "00000000000000000000ffff0a000001 -1\n"
                               "00000000000000000000ffff0a000001 99999999999999999999\n"
                               "00000000000000000000ffff0a000002 1800000000\n"
                               "00000000000000000000ffff0a000001 1800000000";
    assert_int_equal(
        tw_handshake_limiter_decode(&table, text, sizeof(text) - 1, now_us, 1800000000), 7);
    assert_true(is_known("10.0.0.2") && !is_known("10.0.0.1"));
}
