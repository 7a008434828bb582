/* Tests of daemon/config/quota.c: caps by the time of day. */
#include "daemon/config/quota.h"
#include "tests/test.h"

static struct tw_hours hours;
static struct tw_error err;

static void read_in(const char *text) {
    if (tw_hours_parse(text, &hours, &err) != TW_OK) fail_msg("%s", err.message);
}

static void refuse(const char *text, const char *part) {
    assert_int_equal(tw_hours_parse(text, &hours, &err), TW_CONFIG);
    if (strstr(err.message, part) == NULL) fail_msg("wanted ...%s..., got: %s", part, err.message);
}

static uint64_t rate_at(uint32_t hour, uint32_t minute) {
    const struct tw_hours_now now = tw_hours_at(&hours, hour * 60 + minute);
    return now.is_off ? UINT64_MAX : now.bytes_per_s;
}

TEST(every_hour_has_its_rate) {
    read_in("08:00-18:00 1mbit, 18-23:30 off");
    assert_int_equal(rate_at(7, 59), 0);
    assert_int_equal(rate_at(8, 0), 125000);
    assert_int_equal(rate_at(17, 59), 125000);
    assert_int_equal(rate_at(18, 0), UINT64_MAX);
    assert_int_equal(rate_at(23, 29), UINT64_MAX);
    assert_int_equal(rate_at(23, 30), 0);
    assert_int_equal(rate_at(0, 0), 0);
    assert_int_equal(tw_hours_at(&hours, 9 * 60).until_min, 18 * 60);
    assert_int_equal(tw_hours_at(&hours, 19 * 60).until_min, 23 * 60 + 30);
    assert_int_equal(tw_hours_at(&hours, 23 * 60 + 45).until_min,
                     8 * 60); /* 8:00 of the next day */
}

TEST(entries_go_over_midnight) {
    read_in("22:00-06:00=2mbit");
    assert_int_equal(rate_at(22, 0), 250000);
    assert_int_equal(rate_at(0, 0), 250000);
    assert_int_equal(rate_at(5, 59), 250000);
    assert_int_equal(rate_at(6, 0), 0);
    read_in("0-24 off");
    assert_int_equal(rate_at(0, 0), UINT64_MAX);
    assert_int_equal(rate_at(23, 59), UINT64_MAX);
    assert_int_equal(tw_hours_at(&hours, 0).until_min, TW_DAY_MINUTES); /* never changes */
    read_in("20-0 off");
    assert_int_equal(rate_at(23, 59), UINT64_MAX);
    assert_int_equal(rate_at(0, 0), 0);
}

TEST(the_first_of_two_entries_counts) {
    read_in("12-13 off, 8-18 1mbit");
    assert_int_equal(rate_at(12, 30), UINT64_MAX);
    assert_int_equal(rate_at(13, 0), 125000);
}

TEST(nothing_is_every_hour) {
    read_in("");
    assert_int_equal(hours.count, 0);
    assert_int_equal(rate_at(12, 0), 0);
    assert_int_equal(tw_hours_at(&hours, 0).until_min, TW_DAY_MINUTES);
}

TEST(printed_text_parses_again) {
    char text[TW_HOURS_TEXT_BYTES], again[TW_HOURS_TEXT_BYTES];
    read_in(" 8-18   800kbit ,22:05-06:00 off,");
    tw_hours_print(&hours, text, sizeof(text));
    assert_string_equal(text, "08:00-18:00 800kbit, 22:05-06:00 off");
    read_in(text);
    tw_hours_print(&hours, again, sizeof(again));
    assert_string_equal(text, again);
    read_in("1-2 off,2-3 off,3-4 off,4-5 off,5-6 off,6-7 off,7-8 off,8-9 off");
    tw_hours_print(&hours, text, sizeof(text)); /* the longest list */
    assert_true(strlen(text) + 1 < sizeof(text));
}

TEST(hours_of_training_are_off_alone) {
    assert_int_equal(tw_hours_parse_off("08:00-18:00 off, 22-6=off", &hours, &err), TW_OK);
    assert_int_equal(hours.count, 2);
    assert_int_equal(rate_at(23, 0), UINT64_MAX);
    assert_int_equal(rate_at(7, 0), 0);
    assert_int_equal(tw_hours_parse_off("", &hours, &err), TW_OK);
    assert_int_equal(hours.count, 0);
    assert_int_equal(tw_hours_parse_off("8-18 1mbit", &hours, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "`8-18 1mbit` does not end with off; write entries such as "
                                        "08:00-18:00 off"));
    assert_int_equal(tw_hours_parse_off("always", &hours, &err), TW_CONFIG);
    assert_null(strstr(err.message, "mbit")); /* the suggested remedy names no rate */
}

TEST(invalid_hours_are_refused) {
    refuse("always", "`always` names no hours; write entries such as 08:00-18:00 1mbit");
    refuse("8-8 off", "names no hours");
    refuse("24-8 off", "names no hours");
    refuse("8-25 off", "names no hours");
    refuse("8:60-9 off", "names no hours");
    refuse("8:5-9 off", "names no hours");
    refuse("8 off", "names no hours");
    refuse("8-18", "ends with no rate and not with off");
    refuse("8-18 0", "ends with no rate");
    refuse("8-18 5", "ends with no rate");
    refuse("8-18 1bit", "ends with no rate");
    refuse("8-18 on", "ends with no rate");
    refuse("1-2 off,2-3 off,3-4 off,4-5 off,5-6 off,6-7 off,7-8 off,8-9 off,9-10 off",
           "more than 8 entries");
    refuse("8-18 "
           "1111111111111111111111111111111111111111111111111111111111111111111111111111111111mbit",
           "is too long");
}
