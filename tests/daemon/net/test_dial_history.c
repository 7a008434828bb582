/* Tests of daemon/net/dial.c: which dial results it stores, and how many failures are
 * logged. */
#include "daemon/net/dial.h"
#include "tests/test.h"

static const uint64_t S = 1000 * 1000;
static struct tw_dial_history history;
static uint64_t held_back;

static int setup(void **state) {
    history = (struct tw_dial_history){0};
    held_back = 0;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static const char *address_of(unsigned number) {
    static char text[TW_ADDR_BYTES];
    (void)snprintf(text, sizeof(text), "198.51.100.%u:4747", number);
    return text;
}

static bool fails(const char *address, enum tw_dial_cause cause, uint64_t now_us) {
    const struct tw_dial_failure failure = {.cause = cause, .sentence = "it is so"};
    return tw_dial_history_failed(&history, address, &failure, now_us, &held_back);
}

FACT(news_is_reported_and_repetitions_are_counted) {
    assert_true(fails("a:1", TW_DIAL_SILENT, 100 * S));
    assert_true(fails("b:1", TW_DIAL_SILENT, 100 * S));
    assert_true(fails("a:1", TW_DIAL_CLOSED, 101 * S)); /* another cause */
    assert_true(fails("a:1", TW_DIAL_CLOSED, 102 * S)); /* first repetition of this failure */
    assert_false(fails("a:1", TW_DIAL_CLOSED, 103 * S));
    assert_false(fails("b:1", TW_DIAL_SILENT, 104 * S));
    assert_true(fails("a:1", TW_DIAL_CLOSED, 112 * S));
    assert_int_equal(held_back, 2);
    assert_int_equal(tw_dial_history_find(&history, "a:1")->failures, 5);
    tw_dial_history_worked(&history, "a:1");
    assert_null(tw_dial_history_find(&history, "a:1"));
    assert_true(fails("a:1", TW_DIAL_CLOSED, 113 * S));
}

/* A peer that is away is dialled again and again: events show it once, and then with its count. */
FACT(repetitions_are_few_events) {
    unsigned events = 0;
    for (unsigned i = 0; i < 250; i++) {
        (void)fails("a:1", TW_DIAL_SILENT, (100 + 20 * i) * S);
        events += tw_dial_history_is_event(&history, "a:1");
    }
    assert_int_equal(events, 3); /* the first, the tenth, the hundredth */
    (void)fails("a:1", TW_DIAL_CLOSED, 9000 * S);
    assert_true(tw_dial_history_is_event(&history, "a:1"));
    (void)fails("a:1", TW_DIAL_CLOSED, 9020 * S);
    assert_false(tw_dial_history_is_event(&history, "a:1"));
}

/* Nodes dial former members for ever, and gossip may name any number of addresses. So failures
 * that displace another address share one log line in ten seconds. */
FACT(many_addresses_are_one_line_in_ten_seconds) {
    enum { ADDRESSES = TW_DIAL_HISTORY_OTHERS + 8, ROUNDS = 10, ROUND_S = 10 };
    unsigned lines = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < ADDRESSES; i++)
            lines += fails(address_of(i), TW_DIAL_SILENT, (100 + round * ROUND_S) * S + i);
    }
    assert_in_range(lines, TW_DIAL_HISTORY_OTHERS, TW_DIAL_HISTORY_OTHERS + ROUNDS);
}

FACT(configured_addresses_keep_their_rows) {
    tw_dial_history_configure(&history, "a:1");
    tw_dial_history_configure(&history, "a:1");
    assert_int_equal(history.configured_count, 1);
    assert_int_equal(tw_dial_history_find(&history, "a:1")->failures, 0);
    assert_true(fails("a:1", TW_DIAL_WRONG_SECRET, 100 * S));
    for (unsigned i = 0; i < 2 * TW_DIAL_HISTORY_OTHERS; i++)
        (void)fails(address_of(i), TW_DIAL_SILENT, 101 * S);
    const struct tw_dial_row *row = tw_dial_history_find(&history, "a:1");
    assert_ptr_equal(row, &history.rows[0]);
    assert_string_equal(row->sentence, "it is so");
    assert_int_equal(row->cause, TW_DIAL_WRONG_SECRET);
    assert_int_equal(row->failed_us, 100 * S);
    assert_null(tw_dial_history_find(&history, address_of(0))); /* displaced */
    tw_dial_history_worked(&history, "a:1");
    assert_string_equal(row->address, "a:1");
    assert_string_equal(row->sentence, "");
    assert_int_equal(row->failures, 0);
}

FACT(more_configured_than_rows_are_some_of_the_others) {
    for (unsigned i = 0; i <= TW_DIAL_HISTORY_CONFIGURED; i++)
        tw_dial_history_configure(&history, address_of(i));
    assert_int_equal(history.configured_count, TW_DIAL_HISTORY_CONFIGURED);
    assert_null(tw_dial_history_find(&history, address_of(TW_DIAL_HISTORY_CONFIGURED)));
    assert_true(fails(address_of(TW_DIAL_HISTORY_CONFIGURED), TW_DIAL_SILENT, 100 * S));
    assert_non_null(tw_dial_history_find(&history, address_of(TW_DIAL_HISTORY_CONFIGURED)));
}

FACT(id_of_the_answering_node_is_kept) {
    const struct tw_id other = {{7}};
    const struct tw_dial_failure failure = {
        .cause = TW_DIAL_WRONG_ID, .sentence = "", .other = &other};
    (void)tw_dial_history_failed(&history, "a:1", &failure, 100 * S, &held_back);
    assert_true(tw_id_equal(&tw_dial_history_find(&history, "a:1")->other, &other));
    (void)fails("a:1", TW_DIAL_SILENT, 101 * S);
    assert_true(tw_id_is_zero(&tw_dial_history_find(&history, "a:1")->other));
}
