/* Tests of daemon/net/dial.c: the order in which addresses are dialled, and the race between
 * dials. */
#include "daemon/net/dial.h"
#include "tests/test.h"

static const uint64_t MS = 1000;

/* ---- order --------------------------------------------------------------------------------- */

enum { FOUND_MAX = 8 };

/* Makes a resolver's list from a string: "4464" is two IPv4 addresses, an IPv6 and an IPv4
 * address. The port of each address is its position in the list. */
static const struct addrinfo *found_of(const char *picture) {
    static struct addrinfo list[FOUND_MAX];
    static struct sockaddr_storage addresses[FOUND_MAX];
    memset(list, 0, sizeof(list));
    memset(addresses, 0, sizeof(addresses));
    const size_t count = strlen(picture);
    assert_true(count <= FOUND_MAX);
    for (size_t i = 0; i < count; i++) {
        const bool is_v6 = picture[i] == '6';
        addresses[i].ss_family = is_v6 ? AF_INET6 : AF_INET;
        ((struct sockaddr_in *)&addresses[i])->sin_port = (in_port_t)i; /* same offset in both */
        list[i].ai_family = addresses[i].ss_family;
        list[i].ai_addr = (struct sockaddr *)&addresses[i];
        list[i].ai_addrlen = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        list[i].ai_next = i + 1 < count ? &list[i + 1] : NULL;
    }
    return count > 0 ? list : NULL;
}

static void order_is(const char *picture, const char *places) {
    struct sockaddr_storage out[TW_DIAL_CANDIDATES_MAX];
    const uint32_t count = tw_dial_order(found_of(picture), out, TW_DIAL_CANDIDATES_MAX);
    assert_int_equal(count, strlen(places));
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(((struct sockaddr_in *)&out[i])->sin_port, places[i] - '0');
}

TEST(ipv6_goes_first_and_the_families_in_turn) {
    order_is("", "");
    order_is("4", "0");
    order_is("46", "10");
    order_is("4466", "2031");
    order_is("666644", "0415"); /* at least one address of the second family is chosen */
    order_is("44446", "4012");
    order_is("6", "0");
}

/* ---- race ---------------------------------------------------------------------------------- */

static struct tw_race race_of(uint32_t count) {
    return (struct tw_race){.count = count};
}

static void fails(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause, const char *why) {
    struct tw_error err;
    (void)tw_fail(&err, TW_IO, "%s", why);
    tw_race_failed(race, idx, cause, &err);
}

TEST(silent_address_costs_a_quarter_of_a_second) {
    struct tw_race race = race_of(3);
    assert_int_equal(tw_race_next(&race, 1000 * MS), 0);
    assert_int_equal(tw_race_next(&race, 1000 * MS), -1);
    assert_int_equal(tw_race_deadline(&race), 1250 * MS);
    assert_int_equal(tw_race_next(&race, 1249 * MS), -1);
    assert_int_equal(tw_race_next(&race, 1250 * MS), 1);
    assert_int_equal(tw_race_next(&race, 1500 * MS), 2);
    assert_int_equal(tw_race_next(&race, 9000 * MS), -1);
    assert_int_equal(tw_race_deadline(&race), UINT64_MAX);
    assert_false(tw_race_is_over(&race)); /* any of the dials may still be answered */
}

TEST(failed_address_costs_nothing) {
    struct tw_race race = race_of(2);
    assert_int_equal(tw_race_next(&race, 0), 0);
    fails(&race, 0, TW_DIAL_NO_ROUTE, "no way there");
    assert_int_equal(tw_race_deadline(&race), 0);
    assert_int_equal(tw_race_next(&race, 0), 1);
    fails(&race, 1, TW_DIAL_CLOSED, "refused");
    assert_true(tw_race_is_over(&race));
}

TEST(after_one_connects_no_other_starts) {
    struct tw_race race = race_of(3);
    (void)tw_race_next(&race, 0);
    (void)tw_race_next(&race, 250 * MS);
    tw_race_connected(&race, 1);
    assert_int_equal(tw_race_next(&race, 10000 * MS), -1);
    assert_int_equal(tw_race_deadline(&race), UINT64_MAX);
    assert_false(tw_race_is_over(&race));
}

TEST(winner_that_speaks_another_language_lets_the_others_try) {
    struct tw_race race = race_of(3);
    (void)tw_race_next(&race, 0);
    (void)tw_race_next(&race, 250 * MS);
    tw_race_connected(&race, 1);
    fails(&race, 1, TW_DIAL_NOT_THINWIRE, "not Thinwire");
    /* Dial 0 was cancelled because another dial won, so it starts again. */
    assert_int_equal(tw_race_next(&race, 300 * MS), 0);
    assert_int_equal(tw_race_next(&race, 600 * MS), 2);
    fails(&race, 0, TW_DIAL_SILENT, "silence");
    fails(&race, 2, TW_DIAL_SILENT, "silence");
    assert_true(tw_race_is_over(&race));
}

TEST(most_telling_failure_is_the_answer) {
    struct tw_race race = race_of(4);
    for (unsigned i = 0; i < 4; i++) (void)tw_race_next(&race, i * 250 * MS);
    fails(&race, 0, TW_DIAL_NO_ROUTE, "no IPv6 here");
    assert_string_equal(race.error.message, "no IPv6 here");
    fails(&race, 1, TW_DIAL_PRIVATE, "silence");
    fails(&race, 2, TW_DIAL_CLOSED, "refused");
    fails(&race, 3, TW_DIAL_CLOSED, "refused again");
    assert_string_equal(race.error.message, "refused");
    assert_int_equal(race.cause, TW_DIAL_CLOSED);
}
