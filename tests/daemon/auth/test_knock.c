/* Tests of daemon/auth/tickets.c. The server name of a ClientHello proves that its sender has a
 * key. It is valid for an hour, and only once. */
#include <string.h>

#include "daemon/auth/tickets.h"
#include "tests/test.h"

enum { HOUR_S = 3600 };
static const uint64_t NOW_S = UINT64_C(1795000000);
static const uint8_t secret[32] = {1, 2, 3};
static const struct tw_knock_key key = {.bytes = secret, .size = 32, .run = {{7}}};
static char name[TW_KNOCK_NAME_BYTES];

static int setup(void **state) {
    tw_knock_write(&key, NOW_S, name);
    assert_int_equal(strlen(name), sizeof(name) - 1);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static bool is_right(const char *text, uint64_t now_s) {
    return tw_knock_is_of(&key, text, strlen(text), now_s);
}

FACT(name_shows_secret_and_run) {
    static const uint8_t other_secret[32] = {9};
    const struct tw_knock_key wrong = {.bytes = other_secret, .size = 32, .run = key.run};
    const struct tw_knock_key elsewhere = {.bytes = secret, .size = 32, .run = {{8}}};
    assert_true(is_right(name, NOW_S));
    assert_false(tw_knock_is_of(&wrong, name, strlen(name), NOW_S));
    assert_false(tw_knock_is_of(&elsewhere, name, strlen(name), NOW_S));
}

FACT(clocks_may_differ_by_an_hour) {
    assert_true(is_right(name, NOW_S + HOUR_S) && is_right(name, NOW_S - HOUR_S));
    assert_false(is_right(name, NOW_S + 2 * HOUR_S) || is_right(name, NOW_S - 2 * HOUR_S));
    assert_false(is_right(name, NOW_S + 256 * HOUR_S)); /* the same low byte */
}

FACT(changed_name_is_wrong) {
    for (unsigned i = 0; i < strlen(name); i++) {
        char changed[TW_KNOCK_NAME_BYTES];
        memcpy(changed, name, sizeof(changed));
        changed[i] = changed[i] == '0' ? '1' : '0';
        assert_false(is_right(changed, NOW_S));
        changed[i] = 'G';
        assert_false(is_right(changed, NOW_S));
        assert_false(tw_knock_is_of(&key, name, i, NOW_S));
    }
    assert_false(is_right("", NOW_S));
}

FACT(copy_is_no_knock) {
    static struct tw_knocks knocks;
    assert_true(tw_knocks_add(&knocks, name));
    for (unsigned i = 0; i < 3 * TW_KNOCKS_SEEN; i++) {
        char next[TW_KNOCK_NAME_BYTES];
        tw_knock_write(&key, NOW_S, next);
        assert_true(tw_knocks_add(&knocks, next));
        assert_false(tw_knocks_add(&knocks, next));
        if (i < TW_KNOCKS_SEEN - 1) assert_false(tw_knocks_add(&knocks, name));
    }
}
