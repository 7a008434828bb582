/* Budgets of dials to addresses that only other nodes told. */

#include "daemon/router/dial_budget.h"
#include "tests/test.h"

#define S ((uint64_t)1000 * 1000)

static struct tw_dial_budget budget;
static uint64_t now_us;

static int begin(void **state) {
    now_us = 7 * S;
    tw_dial_budget_init(&budget, now_us);
    return 0;
}

#define FACT(name) TEST_IN(begin, NULL, name)

static bool dials(const char *address, bool ok) {
    if (tw_dial_budget_ask(&budget, address, now_us) > 0) return false;
    tw_dial_budget_ended(&budget, address, ok, true, now_us);
    return true;
}

/* Tries ports of one host for that long, four times a second. Returns the number of dials. */
static unsigned dials_within(const char *host, unsigned seconds) {
    unsigned count = 0;
    for (unsigned i = 0; i < 4 * seconds; i++, now_us += S / 4) {
        char address[TW_ADDR_BYTES];
        (void)snprintf(address, sizeof(address), "%s:%u", host, 1 + i % 60000);
        count += dials(address, false);
    }
    return count;
}

FACT(host_is_dialled_less_and_less) {
    assert_in_range(dials_within("198.51.100.9", 40), TW_DIAL_BUDGET_FREE, TW_DIAL_BUDGET_FREE + 4);
    assert_in_range(dials_within("198.51.100.9", 3600), 1, 10);
    assert_in_range(dials_within("198.51.100.9", 24 * 3600), 12, 24); /* once an hour */
}

FACT(one_dial_of_a_host_is_in_progress) {
    assert_int_equal(tw_dial_budget_ask(&budget, "198.51.100.9:1", now_us), 0);
    assert_in_range(tw_dial_budget_ask(&budget, "198.51.100.9:2", now_us), 1, S);
    assert_int_equal(tw_dial_budget_ask(&budget, "198.51.100.8:2", now_us), 0);
    tw_dial_budget_ended(&budget, "198.51.100.9:2", true, true, now_us); /* no such dial */
    assert_int_not_equal(tw_dial_budget_ask(&budget, "198.51.100.9:2", now_us), 0);
    tw_dial_budget_ended(&budget, "198.51.100.9:1", false, true, now_us);
    assert_int_equal(tw_dial_budget_ask(&budget, "198.51.100.9:2", now_us), 0);
    assert_int_equal(budget.put_off, 2);
}

/* Twenty nodes behind one router, of which half are off: all are dialled, and those that are there
 * end the rest of their host. */
FACT(nodes_that_share_a_host_are_all_found) {
    bool is_found[20] = {false};
    unsigned found = 0;
    for (unsigned s = 0; s < 600 && found < 10; s++, now_us += S) {
        for (unsigned i = 0; i < 20; i++) {
            char address[TW_ADDR_BYTES];
            (void)snprintf(address, sizeof(address), "203.0.113.7:%u", 4000 + i);
            if (is_found[i] || !dials(address, i % 2 == 1)) continue;
            is_found[i] = i % 2 == 1;
            found += is_found[i];
        }
    }
    assert_int_equal(found, 10);
}

FACT(all_hosts_share_a_rate) {
    unsigned count = 0;
    for (unsigned s = 0; s < 600; s++, now_us += S) {
        for (unsigned i = 0; i < 10; i++) {
            char address[TW_ADDR_BYTES];
            (void)snprintf(address, sizeof(address), "11.%u.%u.%u:80", s / 250, s % 250, i);
            count += dials(address, false);
        }
    }
    assert_in_range(count, TW_DIAL_BUDGET_BURST + 590, TW_DIAL_BUDGET_BURST + 601);
}

FACT(every_spelling_of_a_host_is_one_host) {
    static const char *const hosts[][2] = {
        {"198.51.100.9:1", "[::ffff:198.51.100.9]:2"},
        {"198.51.100.9:1", "0xc6336409:2"},
        {"198.51.100.9:1", "198.51.25609:2"},
        {"[2001:db8::1]:1", "[2001:db8::ffff:2]:2"}, /* one /64 */
        {"a.example.org:1", "b.c.Example.ORG.:2"},
    };
    static const char *const others[][2] = {
        {"198.51.100.9:1", "198.51.100.8:1"},
        {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1"},
        {"a.example.org:1", "a.example.com:1"},
    };
    for (unsigned i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        (void)begin(NULL);
        assert_int_equal(tw_dial_budget_ask(&budget, hosts[i][0], now_us), 0);
        if (tw_dial_budget_ask(&budget, hosts[i][1], now_us) == 0) fail_msg("%s", hosts[i][1]);
    }
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        (void)begin(NULL);
        assert_int_equal(tw_dial_budget_ask(&budget, others[i][0], now_us), 0);
        assert_int_equal(tw_dial_budget_ask(&budget, others[i][1], now_us), 0);
    }
}

/* A node that is offline fails to dial everybody: nobody rests for that. */
FACT(failures_while_offline_do_not_count) {
    for (unsigned i = 0; i < 100; i++, now_us += 2 * S) {
        assert_int_equal(tw_dial_budget_ask(&budget, "198.51.100.9:1", now_us), 0);
        tw_dial_budget_ended(&budget, "198.51.100.9:1", false, false, now_us);
    }
    (void)dials_within("198.51.100.9", 60);
    assert_false(dials("198.51.100.9:1", true));
    tw_dial_budget_forgive(&budget); /* another network */
    assert_true(dials("198.51.100.9:1", true));
}

FACT(old_hosts_are_forgotten) {
    for (unsigned i = 0; i < 3 * TW_DIAL_BUDGET_HOSTS; i++, now_us += S) {
        char address[TW_ADDR_BYTES];
        (void)snprintf(address, sizeof(address), "11.0.%u.%u:80", i / 250, i % 250);
        assert_int_equal(tw_dial_budget_ask(&budget, address, now_us), 0);
        if (i >= TW_DIAL_BUDGET_HOSTS / 2) /* the first ones stay in progress */
            tw_dial_budget_ended(&budget, address, false, true, now_us);
    }
    assert_false(dials("11.0.0.0:80", true));
}
