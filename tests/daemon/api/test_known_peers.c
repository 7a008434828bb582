/* test_known_peers.c - states, names and times of known nodes, as links come and go. */
#include "daemon/api/known_peers.h"

#include <stdio.h>
#include <string.h>

#include "tests/test.h"

#define S UINT64_C(1000000)
#define HOUR (3600 * S)
#define DAY (24 * HOUR)

static struct tw_known_peers known;
static struct tw_id forgotten[TW_KNOWN_MAX];
static uint32_t forgotten_count;

static struct tw_id id_of(uint32_t number) {
    struct tw_id id = {{0xab}};
    memcpy(id.bytes + 4, &number, sizeof(number));
    return id;
}

static int setup(void **state) {
    tw_known_peers_init(&known, "attic", 0);
    forgotten_count = 0;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void on_forget(void *user, const struct tw_id *id) {
    forgotten[forgotten_count++] = *id;
}

static enum tw_known_state state_of(uint32_t number, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    const struct tw_known_peer *const row = tw_known_peers_find(&known, &id);
    assert_non_null(row);
    return tw_known_peer_state(row, now_us);
}

static uint64_t absence_of(uint32_t number, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    return tw_known_peer_absence_us(tw_known_peers_find(&known, &id), now_us);
}

static uint64_t pause_of(uint32_t number, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    return tw_known_peer_pause_us(tw_known_peers_find(&known, &id), now_us);
}

static void link_up(uint32_t number, const char *name, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    tw_known_peers_linked(&known, &id, name, now_us);
}

static void part(uint32_t number, enum tw_known_state state, uint64_t now_us) {
    const struct tw_id id = id_of(number);
    const bool is_polite = state != TW_KNOWN_AWAY;
    const enum tw_status reason = state == TW_KNOWN_LEFT ? TW_OK : TW_AGAIN;
    tw_known_peers_parted(&known, &id, reason, is_polite,
                          "the other side left: its training\x1b[2J is paused", now_us);
}

FACT(each_end_of_a_link_is_told_with_its_time) {
    static const enum tw_known_state ends[] = {TW_KNOWN_LEFT, TW_KNOWN_PAUSED, TW_KNOWN_AWAY};
    for (uint32_t i = 0; i < 3; i++) {
        link_up(i, "barn", S);
        assert_int_equal(state_of(i, 5 * S), TW_KNOWN_LINKED);
        assert_int_equal(absence_of(i, 5 * S), 0);
        part(i, ends[i], 5 * S);
        assert_int_equal(state_of(i, 65 * S), ends[i]);
        assert_int_equal(absence_of(i, 65 * S), 60 * S);
        const bool is_left = ends[i] == TW_KNOWN_LEFT;
        assert_int_equal(state_of(i, 5 * S + DAY), is_left ? TW_KNOWN_LEFT : TW_KNOWN_GONE);
        const struct tw_id id = id_of(i);
        assert_string_equal(tw_known_peers_find(&known, &id)->said,
                            ends[i] == TW_KNOWN_PAUSED ? "its training [2J is paused" : "");
        link_up(i, "", 100 * S); /* the name stays */
        assert_int_equal(state_of(i, 101 * S), TW_KNOWN_LINKED);
        assert_string_equal(tw_known_peers_find(&known, &id)->name, "barn");
    }
}

FACT(absent_nodes_are_dialled_rarer_and_rarer) {
    link_up(1, "", 0);
    link_up(2, "", 0);
    assert_int_equal(pause_of(1, S), 0);
    part(1, TW_KNOWN_LEFT, 0);
    part(2, TW_KNOWN_AWAY, 0);
    assert_int_equal(pause_of(1, 10 * S), S); /* a restart is noticed soon */
    assert_int_equal(pause_of(1, 600 * S), 60 * S);
    assert_int_equal(pause_of(1, 3 * DAY), HOUR);
    assert_int_equal(pause_of(2, 59 * 60 * S), 0); /* silent nodes are looked for at first */
    assert_int_equal(pause_of(2, 2 * HOUR), 12 * 60 * S);
}

FACT(nodes_without_a_link_for_a_week_are_forgotten) {
    const struct tw_id first = id_of(1);
    for (uint32_t i = 1; i <= 3; i++) link_up(i, "", 0);
    part(1, TW_KNOWN_LEFT, S);
    part(2, TW_KNOWN_AWAY, 2 * DAY);
    tw_known_peers_sweep(&known, 7 * DAY, NULL, on_forget);
    assert_int_equal(forgotten_count, 0);
    tw_known_peers_sweep(&known, 8 * DAY, NULL, on_forget);
    assert_int_equal(forgotten_count, 1);
    assert_true(tw_id_equal(&forgotten[0], &first));
    assert_null(tw_known_peers_find(&known, &first));
    assert_int_equal(state_of(3, 8 * DAY), TW_KNOWN_LINKED);
}

FACT(names_are_unique_by_suffix) {
    char label[TW_KNOWN_LABEL_BYTES];
    struct tw_id ids[4] = {{{0xcb, 0x0a, 1, 1}},
                           {{0xcb, 0x0b, 1, 1}},
                           {{0xcb, 0x0a, 2, 2}},
                           {{0x12, 0x34, 0x56, 0x78}}};
    tw_known_peers_linked(&known, &ids[0], "bible", 0);
    assert_string_equal(tw_known_peers_label(&known, &ids[0], label), "bible");
    tw_known_peers_linked(&known, &ids[1], "bible", 0);
    assert_string_equal(tw_known_peers_label(&known, &ids[0], label), "bible-cb0a");
    tw_known_peers_linked(&known, &ids[2], "bible", 0);
    assert_string_equal(tw_known_peers_label(&known, &ids[0], label), "bible-cb0a0101");
    tw_known_peers_linked(&known, &ids[3], "", 0);
    assert_string_equal(tw_known_peers_label(&known, &ids[3], label), "12345678");
    tw_known_peers_linked(&known, &ids[3], "attic", 0); /* as this node itself */
    assert_string_equal(tw_known_peers_label(&known, &ids[3], label), "attic-1234");
    const struct tw_id nobody = {{0x9}};
    assert_string_equal(tw_known_peers_label(&known, &nobody, label), "09000000");
}

FACT(a_node_is_alone_once_it_has_merged_and_has_no_link) {
    const struct tw_id one = id_of(1);
    assert_true(tw_known_peers_alone_us(&known, 9 * S) == UINT64_MAX);
    link_up(1, "", 10 * S);
    link_up(2, "", 10 * S);
    tw_known_peers_merged(&known, &one);
    part(1, TW_KNOWN_AWAY, 20 * S);
    assert_true(tw_known_peers_alone_us(&known, 25 * S) == UINT64_MAX);
    part(2, TW_KNOWN_LEFT, 30 * S);
    assert_int_equal(tw_known_peers_alone_us(&known, 45 * S), 15 * S);
    link_up(2, "", 50 * S);
    assert_true(tw_known_peers_alone_us(&known, 55 * S) == UINT64_MAX);
}

FACT(the_table_outlives_a_restart) {
    static char text[TW_KNOWN_TEXT_MAX];
    static struct tw_known_peers back;
    link_up(1, "barn", 0);
    link_up(2, "", 0);
    link_up(3, "shed", 0);
    part(1, TW_KNOWN_LEFT, 0);
    part(2, TW_KNOWN_AWAY, 0);
    const struct tw_id two = id_of(2);
    tw_known_peers_merged(&known, &two);
    const size_t size = tw_known_peers_encode(&known, text, 100 * S, 5000);
    tw_known_peers_init(&back, "attic", 7 * S);
    assert_int_equal(tw_known_peers_decode(&back, text, size, 7 * S, 5060), 0);
    known = back;
    assert_int_equal(state_of(1, 7 * S), TW_KNOWN_LEFT);
    assert_int_equal(absence_of(1, 7 * S), 160 * S);
    assert_int_equal(state_of(2, 7 * S), TW_KNOWN_AWAY);
    assert_true(tw_known_peers_find(&known, &two)->has_merged);
    assert_int_equal(state_of(3, 8 * S), TW_KNOWN_AWAY); /* linked until the end */
    assert_int_equal(absence_of(3, 8 * S), 61 * S);
    assert_int_equal(tw_known_peers_alone_us(&known, 9 * S), 2 * S); /* the second is missed */
    assert_int_equal(pause_of(1, 7 * S), 0); /* after a restart all are dialled as usual */
}

FACT(after_a_month_without_power_nobody_is_forgotten_at_once) {
    static char text[TW_KNOWN_TEXT_MAX];
    link_up(1, "barn", 0);
    const size_t size = tw_known_peers_encode(&known, text, 0, 5000);
    tw_known_peers_init(&known, "attic", S);
    assert_int_equal(tw_known_peers_decode(&known, text, size, S, 5000 + 30 * 86400), 0);
    tw_known_peers_sweep(&known, 30 * 60 * S, NULL, on_forget);
    assert_int_equal(forgotten_count, 0);
    tw_known_peers_sweep(&known, 2 * HOUR, NULL, on_forget);
    assert_int_equal(forgotten_count, 1);
}

FACT(damaged_lines_are_skipped) {
    char hex[TW_ID_HEX_BYTES], text[1024];
    const struct tw_id id = id_of(1);
    tw_id_hex(&id, hex);
    const int size = snprintf(text, sizeof(text),
                              "%s 12 away - barn\n" /* the good one */
                              "%s 12 away - barn\n" /* twice */
                              "%s 12 linked - barn\n"
                              "%.63s 12 away - barn\n"
                              "%s x away - barn\n"
                              "%s 12 away - ba\x1b[rn\n"
                              "%s 12 away - barn more\n"
                              "\n"
                              "%s 12 away - barn",
                              hex, hex, hex, hex, hex, hex, hex, hex);
    assert_int_equal(tw_known_peers_decode(&known, text, (size_t)size, S, 100), 8);
    assert_int_equal(state_of(1, S), TW_KNOWN_AWAY);
}

FACT(a_full_table_drops_the_longest_absent) {
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        link_up(i, "", i);
        if (i >= 4) part(i, TW_KNOWN_LEFT, 1000 - i);
    }
    link_up(9999, "new", 2000);
    const struct tw_id last = id_of(TW_KNOWN_MAX - 1), linked = id_of(0);
    assert_null(tw_known_peers_find(&known, &last));
    assert_non_null(tw_known_peers_find(&known, &linked));
    assert_int_equal(state_of(9999, 2000), TW_KNOWN_LINKED);
}
