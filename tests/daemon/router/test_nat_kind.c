/* Tests of daemon/router/punch_plan.c. */
#include "daemon/router/punch_plan.h"
#include "tests/test.h"

static struct tw_nat_kind kind;
static uint64_t now_us;
static struct tw_id peers[TW_NAT_PEERS];

static int setup(void **state) {
    memset(&kind, 0, sizeof(kind));
    memset(peers, 0, sizeof(peers));
    peers[0].bytes[0] = 1;
    peers[1].bytes[0] = 2;
    now_us = 1000000000;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static enum tw_nat seen_at(const char *one, const char *other) {
    tw_nat_kind_ask(&kind, 42, peers, "192.168.1.2", now_us);
    tw_nat_kind_heard(&kind, &peers[0], 42, one, now_us);
    tw_nat_kind_heard(&kind, &peers[1], 42, other, now_us);
    return kind.result;
}

FACT(kinds_are_told_from_two_outer_ports) {
    assert_int_equal(seen_at("11.0.0.3:40000", "11.0.0.3:40000"), TW_NAT_ENDPOINT);
    assert_int_equal(seen_at("11.0.0.3:40000", "11.0.0.3:40001"), TW_NAT_SYMMETRIC);
    assert_int_equal(seen_at("11.0.0.3:40000", "11.0.0.4:40000"), TW_NAT_SYMMETRIC);
    assert_int_equal(seen_at("192.168.1.2:40000", "192.168.1.2:40000"), TW_NAT_NONE);
}

FACT(one_answer_is_not_enough) {
    tw_nat_kind_ask(&kind, 42, peers, "192.168.1.2", now_us);
    for (unsigned i = 0; i < 3; i++)
        tw_nat_kind_heard(&kind, &peers[0], 42, "11.0.0.3:40000", now_us);
    assert_int_equal(kind.result, TW_NAT_UNKNOWN);
}

FACT(answers_that_nobody_asked_for_are_ignored) {
    struct tw_id stranger = {{9}};
    tw_nat_kind_heard(&kind, &peers[0], 0, "11.0.0.3:1", now_us);
    tw_nat_kind_ask(&kind, 42, peers, "192.168.1.2", now_us);
    tw_nat_kind_heard(&kind, &peers[0], 41, "11.0.0.3:1", now_us);
    tw_nat_kind_heard(&kind, &stranger, 42, "11.0.0.3:1", now_us);
    tw_nat_kind_heard(&kind, &peers[0], 42, "11.0.0.3:40000", now_us);
    tw_nat_kind_heard(&kind, &peers[1], 42, "11.0.0.3:40000", now_us + TW_NAT_ANSWER_US);
    assert_int_equal(kind.result, TW_NAT_UNKNOWN);
    assert_int_equal(seen_at("nothing", "11.0.0.3:40000"), TW_NAT_UNKNOWN);
}

FACT(it_is_asked_again_in_an_hour_or_soon_after_a_move) {
    assert_true(tw_nat_kind_is_due(&kind, now_us));
    tw_nat_kind_ask(&kind, 42, NULL, "", now_us);
    assert_false(tw_nat_kind_is_due(&kind, now_us + TW_NAT_LOOK_US - 1));
    assert_true(tw_nat_kind_is_due(&kind, now_us + TW_NAT_LOOK_US));
    tw_nat_kind_ask(&kind, 42, peers, "192.168.1.2", now_us);
    assert_false(tw_nat_kind_is_due(&kind, now_us + TW_NAT_RETRY_US - 1));
    (void)seen_at("11.0.0.3:40000", "11.0.0.3:40000");
    assert_false(tw_nat_kind_is_due(&kind, now_us + TW_NAT_AGAIN_US - 1));
    assert_true(tw_nat_kind_is_due(&kind, now_us + TW_NAT_AGAIN_US));
    tw_nat_kind_moved(&kind, now_us);
    assert_int_equal(kind.result, TW_NAT_UNKNOWN);
    assert_true(tw_nat_kind_is_due(&kind, now_us + TW_NAT_SETTLE_US));
}

FACT(sentences_name_the_way_out) {
    char text[TW_NAT_SENTENCE_BYTES];
    tw_nat_kind_sentence(TW_NAT_SYMMETRIC, 4747, false, text);
    assert_non_null(strstr(text, "cannot be punched; forward TCP port 4747 to this machine"));
    tw_nat_kind_sentence(TW_NAT_SYMMETRIC, 0, false, text);
    assert_non_null(strstr(text, "set `listen`"));
    tw_nat_kind_sentence(TW_NAT_SYMMETRIC, 4747, true, text);
    assert_null(strstr(text, "forward"));
    for (unsigned i = TW_NAT_UNKNOWN; i <= TW_NAT_SYMMETRIC; i++) {
        tw_nat_kind_sentence((enum tw_nat)i, 4747, false, text);
        assert_true(strlen(text) > 10 && strlen(text) < sizeof(text) - 1);
        assert_string_not_equal(tw_nat_kind_name((enum tw_nat)i), "?");
    }
}
