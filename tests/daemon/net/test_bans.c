/* Tests of daemon/net/bans.c: when a ban begins, how long it lasts, and its state after a
 * restart. */
#include <netinet/in.h>

#include "daemon/net/bans.h"
#include "tests/test.h"

enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S };

static struct tw_bans bans;
static const uint64_t T = 1800000000;

static int setup(void **state) {
    memset(&bans, 0, sizeof(bans));
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static struct tw_id node(unsigned number) {
    struct tw_id id = {{0}};
    id.bytes[0] = (uint8_t)(number + 1);
    id.bytes[1] = (uint8_t)((number + 1) >> 8);
    return id;
}

static uint32_t offend(unsigned number, unsigned times, uint64_t now_s) {
    const struct tw_id id = node(number);
    uint32_t length_s = 0;
    for (unsigned i = 0; i < times; i++) length_s = tw_bans_offence(&bans, &id, now_s);
    return length_s;
}

static uint64_t left(unsigned number, uint64_t now_s) {
    const struct tw_id id = node(number);
    return tw_bans_left_s(&bans, &id, now_s);
}

static uint32_t banned(uint64_t now_s) {
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_BANS_MAX; i++)
        count += tw_bans_left_s(&bans, &bans.rows[i].id, now_s) > 0;
    return count;
}

FACT(third_offence_within_an_hour_bans_for_an_hour) {
    assert_int_equal(offend(1, 2, T), 0);
    assert_int_equal(left(1, T), 0);
    assert_int_equal(offend(1, 1, T + HOUR_S), HOUR_S);
    assert_int_equal(left(1, T + HOUR_S), HOUR_S);
    assert_int_equal(left(1, T + 2 * HOUR_S - 1), 1);
    assert_int_equal(left(1, T + 2 * HOUR_S), 0);
    assert_int_equal(left(2, T + HOUR_S), 0);
    assert_int_equal(banned(T + HOUR_S), 1);
}

FACT(offences_far_apart_are_forgiven) {
    for (unsigned i = 0; i < 20; i++) assert_int_equal(offend(1, 2, T + i * (HOUR_S + 1)), 0);
}

FACT(bans_double_up_to_seven_days) {
    uint64_t now_s = T;
    uint32_t expected_s = HOUR_S;
    for (unsigned i = 0; i < 12; i++) {
        assert_int_equal(offend(1, TW_BAN_OFFENCES, now_s), expected_s);
        now_s += expected_s;
        expected_s = 2 * expected_s < 7 * DAY_S ? 2 * expected_s : 7 * DAY_S;
    }
    assert_int_equal(expected_s, 7 * DAY_S);
}

FACT(good_behaviour_is_remembered_too) {
    assert_int_equal(offend(1, TW_BAN_OFFENCES, T), HOUR_S);
    assert_int_equal(offend(1, TW_BAN_OFFENCES, T + HOUR_S + 7 * DAY_S), 2 * HOUR_S);
    const uint64_t end_s = T + HOUR_S + 7 * DAY_S + 2 * HOUR_S;
    assert_int_equal(offend(1, TW_BAN_OFFENCES, end_s + 7 * DAY_S + 1), HOUR_S);
}

FACT(clock_set_back_prolongs_nothing) {
    (void)offend(1, TW_BAN_OFFENCES, T);
    assert_int_equal(left(1, T - 365 * DAY_S), HOUR_S);
    assert_int_equal(offend(2, 2, T), 0);
    /* The clock was set back by a day, so the period in which offences count starts again. */
    assert_int_equal(offend(2, 1, T - DAY_S), 0);
}

FACT(ban_of_a_clock_that_was_ahead_ends) {
    static char text[TW_BANS_TEXT_MAX];
    const uint64_t now_s = T - 365 * DAY_S;
    (void)offend(1, TW_BAN_OFFENCES, T);
    (void)offend(2, TW_BAN_OFFENCES, now_s - 60);
    const size_t size = tw_bans_encode(&bans, text);
    memset(&bans, 0, sizeof(bans)); /* a restart with an old file */
    assert_int_equal(tw_bans_decode(&bans, text, size), 0);
    assert_true(tw_bans_clock(&bans, now_s));
    assert_int_equal(left(1, now_s), HOUR_S);
    assert_int_equal(left(2, now_s), HOUR_S - 60);
    assert_false(tw_bans_clock(&bans, now_s + 60));
    assert_int_equal(left(1, now_s + HOUR_S), 0);
}

FACT(clock_that_was_never_set_ends_no_ban) {
    (void)offend(1, TW_BAN_OFFENCES, T);
    assert_false(tw_bans_clock(&bans, 100));
    assert_int_equal(left(1, 100), HOUR_S);
    assert_int_equal(left(1, T + 1), HOUR_S - 1);
}

FACT(full_table_drops_the_least_important_row) {
    (void)offend(0, TW_BAN_OFFENCES, T);
    for (unsigned i = 1; i < TW_BANS_MAX + 50; i++) (void)offend(i, 1, T + i);
    assert_int_equal(left(0, T + 60), HOUR_S - 60);
    for (unsigned i = 1; i <= TW_BANS_MAX; i++) (void)offend(i, TW_BAN_OFFENCES, T + 600 + i);
    assert_int_equal(left(0, T + 700), 0);
    assert_true(left(TW_BANS_MAX, T + 900) > 0);
    assert_int_equal(banned(T + 900), TW_BANS_MAX);
}

static void lift(const char *hex, enum tw_status status, const char *words) {
    struct tw_id id = {{0}};
    struct tw_error err = {0};
    const enum tw_status got = tw_bans_lift(&bans, hex, T, &id, &err);
    assert_int_equal(got, status);
    if (status != TW_OK && strstr(err.message, words) == NULL)
        fail_msg("no '%s' in: %s", words, err.message);
    assert_int_equal(tw_id_is_zero(&id), status != TW_OK);
}

FACT(ban_is_lifted_by_the_beginning_of_an_id) {
    assert_int_equal(offend(0xaa, 3, T), HOUR_S); /* ab00... */
    assert_int_equal(offend(0xab, 3, T), HOUR_S);
    (void)offend(0x11, 2, T); /* not banned yet */
    lift("", TW_CONFIG, "no node id");
    lift("xyz", TW_CONFIG, "`xyz` is no node id");
    lift("AB", TW_CONFIG, "no node id");
    lift("a", TW_CONFIG, "more than one");
    lift("12", TW_AGAIN, "no node 12 is banned here");
    lift("ab000000000000000000000000000000000000000000000000000000000000000", TW_CONFIG, "no node");
    assert_int_equal(banned(T), 2);
    lift("ab", TW_OK, "");
    assert_int_equal(left(0xaa, T), 0);
    assert_int_equal(left(0xab, T), HOUR_S);
    lift("ab", TW_AGAIN, "thinwire peers");
    assert_int_equal(offend(0xaa, 3, T), HOUR_S); /* the length of a first ban */
    lift("ac00000000000000000000000000000000000000000000000000000000000000", TW_OK, "");
    assert_int_equal(banned(T), 1);
}

FACT(restart_keeps_bans_and_their_length) {
    static char text[TW_BANS_TEXT_MAX], again[TW_BANS_TEXT_MAX];
    for (unsigned i = 0; i < TW_BANS_MAX; i++) (void)offend(i, TW_BAN_OFFENCES, T + i);
    const size_t size = tw_bans_encode(&bans, text);
    memset(&bans, 0, sizeof(bans));
    assert_int_equal(tw_bans_decode(&bans, text, size), 0);
    for (unsigned i = 0; i < TW_BANS_MAX; i++) assert_int_equal(left(i, T + 1000), 2600 + i);
    assert_int_equal(tw_bans_encode(&bans, again), size);
    assert_memory_equal(text, again, size);
    assert_int_equal(offend(3, TW_BAN_OFFENCES, T + 2 * HOUR_S), 2 * HOUR_S);
}

FACT(damaged_lines_are_passed_over) {
#define ID "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    static const char text[] = "\n"
                               "aaaa 1800000000 3600\n" /* too short */
        ID "\n"                                         /* no times */
        ID " -5 3600\n"                                 /* */
        ID " 1800000000 3599\n"                         /* shorter than any ban */
        ID " 1800000000 604801\n"                       /* longer */
        ID " 1800000000 3600 x\n"                       /* trailing text */
        ID " 1800000000 3600\n"                         /* valid */
        ID " 1900000000 7200\n"                         /* the same id again */
        ID_B " 18446744073709551615 604800";            /* too many digits, and truncated */
    assert_int_equal(tw_bans_decode(&bans, text, sizeof(text) - 1), 9);
    struct tw_id id;
    assert_true(tw_id_parse(ID, &id));
    assert_int_equal(tw_bans_left_s(&bans, &id, 1800000000 - 60), 60);
    assert_int_equal(banned(0), 1);
}

FACT(any_bytes_are_survived) {
    static char text[4096];
    unsigned number = 12345;
    for (unsigned round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof(text); i++) {
            number = number * 1103515245 + 12345;
            text[i] = (char)("0123456789abcdef \n\0x"[number >> 16 & 15] ^ (number >> 30 == 3));
        }
        (void)tw_bans_decode(&bans, text, sizeof(text));
    }
    assert_true(banned(T) <= TW_BANS_MAX);
}

/* ---- hosts --------------------------------------------------------------------------------- */

static struct sockaddr_storage host_of(uint32_t number) {
    struct sockaddr_storage host = {0};
    struct sockaddr_in *const in = (struct sockaddr_in *)&host;
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(0x0a000000 + number);
    in->sin_port = htons((uint16_t)number);
    return host;
}

static void ban_host(unsigned number, uint32_t host, uint64_t now_s) {
    const struct tw_id id = node(number);
    const struct sockaddr_storage of = host_of(host);
    tw_bans_host(&bans, &id, &of, now_s);
}

static uint64_t host_left(uint32_t host, uint64_t now_s) {
    const struct sockaddr_storage of = host_of(host);
    return tw_bans_host_left_s(&bans, &of, now_s);
}

FACT(host_is_closed_for_minutes) {
    const struct sockaddr_storage none = {0};
    const struct tw_id id = node(1);
    ban_host(1, 7, T);
    assert_int_equal(host_left(7, T), TW_HOST_BAN_S);
    assert_int_equal(host_left(7, T + TW_HOST_BAN_S - 1), 1);
    assert_int_equal(host_left(7, T + TW_HOST_BAN_S), 0);
    assert_int_equal(host_left(8, T), 0);
    assert_int_equal(host_left(7, T - HOUR_S), 0); /* a clock that was set back prolongs nothing */
    ban_host(2, 7, T + 60);                        /* again */
    assert_int_equal(host_left(7, T + 60), TW_HOST_BAN_S);
    tw_bans_host(&bans, &id, &none, T); /* no host */
    assert_int_equal(tw_bans_host_left_s(&bans, &none, T), 0);
}

FACT(full_table_of_hosts_drops_the_oldest) {
    for (uint32_t i = 0; i <= TW_HOST_BANS_MAX; i++) ban_host(i, i, T + i);
    assert_int_equal(host_left(0, T + TW_HOST_BANS_MAX), 0);
    for (uint32_t i = 1; i <= TW_HOST_BANS_MAX; i++)
        assert_true(host_left(i, T + TW_HOST_BANS_MAX) > 0);
}

FACT(hosts_of_a_lifted_ban_are_open) {
    struct tw_error err;
    struct tw_id id;
    assert_true(offend(1, 3, T) > 0);
    ban_host(1, 7, T);
    ban_host(1, 8, T);
    ban_host(2, 9, T);
    assert_int_equal(tw_bans_lift(&bans, "02", T, &id, &err), TW_OK);
    assert_int_equal(host_left(7, T) + host_left(8, T), 0);
    assert_true(host_left(9, T) > 0);
}
