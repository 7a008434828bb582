/* test_members.c - the addresses of members: bootstrap, dials, records, cache. */
#include "sync/members/members.h"
#include "tests/test.h"

static const uint64_t S = 1000 * 1000;
static struct tw_members members;

static struct tw_id id_of(uint8_t first, uint32_t number) {
    struct tw_id id = {{0}};
    id.bytes[0] = first;
    memcpy(id.bytes + 1, &number, sizeof(number));
    id.bytes[31] = 1;
    return id;
}

static int setup(void **state) {
    const struct tw_members_config config = {.self = id_of(0x80, 0), .seed = 42};
    tw_members_init(&members, &config);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static struct tw_member_row record_of(struct tw_id id, const char *first, const char *second) {
    struct tw_member_row record = {.id = id};
    if (first != NULL) (void)snprintf(record.addrs[0], TW_ADDR_BYTES, "%s", first);
    if (second != NULL) (void)snprintf(record.addrs[1], TW_ADDR_BYTES, "%s", second);
    return record;
}

static void told_by(uint32_t teller, struct tw_member_row record, uint64_t now_us) {
    struct tw_msg_peers peers = {.count = 1, .rows = {record}};
    const struct tw_id id = id_of(0x77, teller);
    tw_members_merge(&members, &id, &peers, now_us);
}

/* Each record comes from another peer, so that none tells of too many. */
static void merge_record(struct tw_member_row record, uint64_t now_us) {
    static uint32_t teller;
    told_by(1000 + teller++, record, now_us);
}

static void bootstrap(const char *text) {
    struct tw_error err;
    if (tw_members_bootstrap(&members, text, 0, &err) != TW_OK) fail_msg("%s", err.message);
}

static struct tw_dial take_dial(uint64_t now_us) {
    struct tw_dial dial;
    assert_true(tw_members_next_dial(&members, now_us, &dial));
    return dial;
}

static void assert_nothing_due(uint64_t now_us) {
    struct tw_dial dial;
    assert_false(tw_members_next_dial(&members, now_us, &dial));
}

/* ---- bootstrap ----------------------------------------------------------------------------- */

FACT(bootstrap_entries_are_dialled_at_once) {
    char text[160], hex[TW_ID_HEX_BYTES];
    const struct tw_id id = id_of(3, 3);
    bootstrap("a.example:1");
    tw_id_hex(&id, hex);
    (void)snprintf(text, sizeof(text), "[2001:db8::1]:2=%s", hex);
    bootstrap(text);
    assert_int_equal(tw_members_deadline(&members, 5), 5);
    struct tw_dial dial = take_dial(0);
    assert_string_equal(dial.address, "a.example:1");
    assert_false(dial.has_id);
    dial = take_dial(0);
    assert_string_equal(dial.address, "[2001:db8::1]:2");
    assert_true(dial.has_id && tw_id_equal(&dial.id, &id));
    assert_nothing_due(0);
    assert_int_equal(tw_members_known(&members), 1); /* the other address has no id yet */
}

FACT(bootstrap_entry_named_again_is_known) {
    struct tw_dial dial;
    bootstrap("a.example:1");
    bootstrap("a.example:1");
    assert_true(tw_members_next_dial(&members, 0, &dial));
    assert_string_equal(dial.address, "a.example:1");
    assert_false(tw_members_next_dial(&members, 0, &dial));
}

FACT(bad_bootstrap_entries_are_refused_with_a_sentence) {
    static const char *const bad[] = {
        "",        "host",   "host:",   "host:0", ":1",          "host:65536", "host:1=abc",
        "ho st:1", "[::1:1", "host:1x", "[]:1",   "host:000001", "a/b:1",      "host:1\nx:2"};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct tw_error err = {0};
        assert_int_equal(tw_members_bootstrap(&members, bad[i], 0, &err), TW_CONFIG);
        assert_true(err.message[0] != '\0');
    }
    assert_nothing_due(0);
}

FACT(own_id_in_the_bootstrap_list_is_passed_over) {
    char text[160], hex[TW_ID_HEX_BYTES];
    tw_id_hex(&members.config.self, hex);
    (void)snprintf(text, sizeof(text), "me.example:1=%s", hex);
    bootstrap(text);
    assert_nothing_due(0);
}

/* ---- pauses -------------------------------------------------------------------------------- */

FACT(unreachable_peers_are_dialled_for_ever_with_growing_pauses) {
    bootstrap("a.example:1");
    uint64_t now_us = 0, longest_us = 0;
    for (unsigned attempt = 0; attempt < 200; attempt++) {
        const struct tw_dial dial = take_dial(now_us);
        tw_members_dialled(&members, dial.address, false, NULL, now_us);
        const uint64_t due_us = tw_members_deadline(&members, now_us);
        const uint64_t pause_us = due_us - now_us;
        assert_true(pause_us >= TW_BACKOFF_MIN_US * 7 / 10);
        assert_true(pause_us <= TW_BACKOFF_MAX_US * 13 / 10);
        if (pause_us > longest_us) longest_us = pause_us;
        assert_nothing_due(due_us - 1);
        now_us = due_us;
    }
    assert_true(longest_us >= TW_BACKOFF_MAX_US * 7 / 10);
}

FACT(pauses_of_two_nodes_are_not_the_same) {
    static struct tw_members other;
    struct tw_members_config config = members.config;
    config.seed++;
    tw_members_init(&other, &config);
    struct tw_dial dial;
    assert_int_equal(tw_members_bootstrap(&other, "a.example:1", 0, NULL), TW_OK);
    bootstrap("a.example:1");
    assert_true(tw_members_next_dial(&members, 0, &dial));
    assert_true(tw_members_next_dial(&other, 0, &dial));
    tw_members_dialled(&members, dial.address, false, NULL, 0);
    tw_members_dialled(&other, dial.address, false, NULL, 0);
    assert_true(tw_members_deadline(&members, 0) != tw_members_deadline(&other, 0));
}

FACT(linked_member_is_not_dialled_and_a_lost_one_is_again) {
    const struct tw_id low = id_of(3, 3);
    const struct tw_member_row record = record_of(low, "b.example:1", NULL);
    bootstrap("a.example:1");
    const struct tw_dial dial = take_dial(0);
    tw_members_connected(&members, &record, 0);
    tw_members_dialled(&members, dial.address, true, &low, 0);
    assert_nothing_due(100 * S);
    assert_int_equal(tw_members_deadline(&members, 0), UINT64_MAX);
    tw_members_disconnected(&members, &low, 200 * S);
    /* Our id is the higher one: we dial first. */
    assert_true(tw_members_deadline(&members, 200 * S) <= 200 * S + TW_BACKOFF_MIN_US);
    assert_int_equal(tw_members_known(&members), 1);
}

FACT(member_linked_through_another_is_dialled_slowly) {
    const struct tw_id id = id_of(9, 1);
    const struct tw_member_row record = record_of(id, "10.0.0.1:1", NULL);
    merge_record(record, 0);
    assert_true(tw_members_may_reach(&members, &id));
    const struct tw_dial dial = take_dial(10 * S);
    tw_members_dialled(&members, dial.address, false, NULL, 11 * S);
    assert_false(tw_members_may_reach(&members, &id));
    tw_members_relayed(&members, &record, 11 * S);
    assert_nothing_due(11 * S + TW_BACKOFF_MAX_US * 6 / 10);
    assert_true(tw_members_deadline(&members, 11 * S) <= 11 * S + TW_BACKOFF_MAX_US * 14 / 10);
    (void)take_dial(11 * S + TW_BACKOFF_MAX_US * 14 / 10);
    tw_members_connected(&members, &record, 100 * S);
    assert_true(tw_members_may_reach(&members, &id));
    tw_members_relayed(&members, &record,
                       101 * S); /* a link of this node counts more than hearsay */
    tw_members_disconnected(&members, &id, 102 * S);
    const struct tw_id other = id_of(7, 7);
    assert_false(tw_members_may_reach(&members, &other));
}

FACT(lower_id_lets_the_higher_dial_first) {
    merge_record(record_of(id_of(0xf0, 1), "high.example:1", NULL), 0);
    assert_true(tw_members_deadline(&members, 0) >= TW_DIAL_YIELD_STEPS * TW_BACKOFF_MIN_US);
    merge_record(record_of(id_of(0x10, 1), "low.example:1", NULL), 0);
    assert_true(tw_members_deadline(&members, 0) <= TW_BACKOFF_MIN_US);
    const struct tw_dial dial = take_dial(S);
    assert_string_equal(dial.address, "low.example:1");
}

FACT(one_member_is_dialled_at_one_address_after_the_other) {
    const struct tw_id id = id_of(1, 1);
    merge_record(record_of(id, "a.example:1", "b.example:1"), 0);
    const struct tw_dial first = take_dial(10 * S);
    assert_nothing_due(10 * S);
    tw_members_dialled(&members, first.address, false, NULL, 10 * S);
    const struct tw_dial second = take_dial(10 * S);
    assert_string_not_equal(first.address, second.address);
}

FACT(silent_address_of_a_member_costs_little) {
    merge_record(record_of(id_of(1, 1), "192.0.2.1:1", "[2001:db8::1]:1"), 0);
    const uint64_t now_us = 10 * S;
    assert_string_equal(take_dial(now_us).address, "[2001:db8::1]:1"); /* IPv6 first */
    assert_nothing_due(now_us + TW_DIAL_STAGGER_US - 1);
    assert_int_equal(tw_members_deadline(&members, now_us), now_us + TW_DIAL_STAGGER_US);
    assert_string_equal(take_dial(now_us + TW_DIAL_STAGGER_US).address, "192.0.2.1:1");
    /* Both addresses may answer. The first link ends the dialling, however the other dial ends. */
    const struct tw_member_row record = record_of(id_of(1, 1), NULL, NULL);
    tw_members_connected(&members, &record, now_us + S);
    tw_members_dialled(&members, "[2001:db8::1]:1", false, NULL, now_us + S);
    assert_nothing_due(now_us + 1000 * S);
}

FACT(own_new_address_makes_all_dials_due) {
    bootstrap("a.example:1");
    uint64_t now_us = 0;
    for (unsigned i = 0; i < 8; i++) {
        const struct tw_dial dial = take_dial(now_us);
        tw_members_dialled(&members, dial.address, false, NULL, now_us);
        now_us = tw_members_deadline(&members, now_us);
    }
    const struct tw_dial dial = take_dial(now_us);
    tw_members_dialled(&members, dial.address, false, NULL, now_us);
    assert_nothing_due(now_us + 10 * S);
    tw_members_moved(&members, now_us + 10 * S);
    assert_string_equal(take_dial(now_us + 10 * S).address, "a.example:1");
    tw_members_dialled(&members, dial.address, false, NULL, now_us + 10 * S);
    assert_true(tw_members_deadline(&members, now_us) <= now_us + 10 * S + 2 * TW_BACKOFF_MIN_US);
}

/* ---- lost links ------------------------------------------------------------------------------ */

/* Lets all dials fail for `for_us`. Returns the longest pause between two of them. */
static uint64_t longest_pause_us(uint64_t from_us, uint64_t for_us) {
    uint64_t last_us = from_us, longest_us = 0;
    while (true) {
        const uint64_t at_us = tw_members_deadline(&members, last_us);
        if (at_us > from_us + for_us) return longest_us;
        const struct tw_dial dial = take_dial(at_us);
        tw_members_dialled(&members, dial.address, false, NULL, at_us);
        longest_us = at_us - last_us > longest_us ? at_us - last_us : longest_us;
        last_us = at_us;
    }
}

/* The line was down for a quarter of an hour; its return must be noticed within a minute. */
FACT(node_that_lost_all_links_dials_often) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    tw_members_connected(&members, &one, 1 * S);
    tw_members_disconnected(&members, &one.id, 2 * S);
    assert_true(longest_pause_us(2 * S, 900 * S) <= TW_BACKOFF_LOST_US * 13 / 10 + 2 * S);
    const uint64_t late_us = 2 * S + TW_LOST_US;
    (void)longest_pause_us(late_us, 900 * S); /* an hour later the loss is no longer recent */
    assert_true(longest_pause_us(late_us + 900 * S, 900 * S) > TW_BACKOFF_MAX_US / 2);
}

FACT(lost_member_is_tried_rarely_where_others_are_linked) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_member_row other = record_of(id_of(2, 2), "b:2", NULL);
    tw_members_connected(&members, &other, 1 * S);
    tw_members_connected(&members, &one, 1 * S);
    tw_members_disconnected(&members, &one.id, 2 * S);
    (void)longest_pause_us(2 * S, 300 * S);
    assert_true(longest_pause_us(302 * S, 600 * S) > TW_BACKOFF_MAX_US / 2);
}

FACT(pauses_that_had_grown_shrink_when_all_are_lost) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_member_row other = record_of(id_of(2, 2), "b:2", NULL);
    tw_members_connected(&members, &other, 1 * S);
    tw_members_connected(&members, &one, 1 * S);
    tw_members_disconnected(&members, &one.id, 2 * S);
    (void)longest_pause_us(2 * S, 300 * S);
    tw_members_connected(&members, &other, 302 * S); /* it has no address, and is lost next */
    for (unsigned i = 0; i < TW_KNOWN_MAX; i++) {
        if (tw_id_equal(&members.entries[i].id, &other.id)) members.entries[i].addrs[0].text[0] = 0;
    }
    tw_members_disconnected(&members, &other.id, 302 * S);
    (void)longest_pause_us(302 * S, 100 * S);
    assert_true(longest_pause_us(402 * S, 300 * S) <= TW_BACKOFF_LOST_US * 13 / 10 + 2 * S);
}

/* A path that drops large packets lets each dial through, and then the link breaks. */
FACT(short_links_make_the_next_dial_wait) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_member_row other = record_of(id_of(2, 2), "b:2", NULL);
    uint64_t now_us = 1 * S, pauses_us[9];
    tw_members_connected(&members, &other, now_us);
    for (unsigned i = 0; i < 9; i++) {
        tw_members_connected(&members, &one, now_us);
        now_us += i == 7 ? TW_LINK_STEADY_US : TW_LINK_STEADY_US - 1;
        tw_members_disconnected(&members, &one.id, now_us);
        const uint64_t due_us = tw_members_deadline(&members, now_us);
        pauses_us[i] = due_us - now_us;
        assert_int_equal(tw_members_may_reach(&members, &one.id), i < 2 || i >= 7);
        now_us = due_us;
        assert_string_equal(take_dial(now_us).address, "a:1");
        tw_members_dialled(&members, "a:1", true, &one.id, now_us);
    }
    for (unsigned i = 0; i < 7; i++) {
        uint64_t longer_us = i == 0 ? 0 : (uint64_t)S << (i - 1);
        if (longer_us > TW_BACKOFF_MAX_US) longer_us = TW_BACKOFF_MAX_US;
        assert_true(pauses_us[i] >= longer_us && pauses_us[i] <= longer_us + 3 * S);
    }
    assert_true(pauses_us[7] <= 3 * S && pauses_us[8] <= 3 * S);
    tw_members_disconnected(&members, &other.id, now_us);
}

FACT(short_links_beside_a_relay_are_tried_ever_less) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_member_row other = record_of(id_of(2, 2), "b:2", NULL);
    uint64_t now_us = 1 * S, expected_us = TW_BACKOFF_MAX_US;
    tw_members_connected(&members, &other, now_us);
    for (unsigned i = 0; i < 12; i++) {
        tw_members_connected(&members, &one, now_us);
        now_us += 6 * S;
        tw_members_disconnected(&members, &one.id, now_us);
        tw_members_relayed(&members, &one, now_us);
        assert_int_equal(tw_members_shorts(&members, &one.id), i + 1);
        const uint64_t due_us = tw_members_deadline(&members, now_us);
        if (i > 0) assert_true(due_us - now_us >= expected_us * 7 / 10);
        assert_true(due_us - now_us <= expected_us * 13 / 10);
        if (i > 0) expected_us *= 2;
        if (expected_us > TW_BACKOFF_RELAYED_US) expected_us = TW_BACKOFF_RELAYED_US;
        now_us = due_us;
        (void)take_dial(now_us);
        tw_members_dialled(&members, "a:1", true, &one.id, now_us);
    }
    tw_members_disconnected(&members, &other.id, now_us);
}

FACT(first_link_after_an_outage_makes_all_dials_due) {
    const struct tw_member_row one = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_member_row other = record_of(id_of(2, 2), "b:2", NULL);
    tw_members_connected(&members, &one, 1 * S);
    tw_members_connected(&members, &other, 1 * S);
    tw_members_disconnected(&members, &one.id, 2 * S);
    tw_members_disconnected(&members, &other.id, 2 * S);
    (void)longest_pause_us(2 * S, TW_LOST_US + 900 * S);
    const uint64_t back_us = TW_LOST_US + 902 * S;
    tw_members_connected(&members, &one, back_us);
    assert_string_equal(take_dial(back_us).address, "b:2");
    tw_members_disconnected(&members, &one.id, back_us);
}

FACT(address_that_leads_back_to_us_is_left_alone) {
    bootstrap("me.example:1");
    struct tw_dial dial = take_dial(0);
    tw_members_dialled(&members, dial.address, false, &members.config.self, 0);
    assert_nothing_due(UINT64_C(1) << 60);
    merge_record(record_of(id_of(1, 1), "also-me.example:1", NULL), 0);
    dial = take_dial(10 * S);
    tw_members_dialled(&members, dial.address, false, &members.config.self, 10 * S);
    assert_nothing_due(UINT64_C(1) << 60);
    assert_int_equal(tw_members_deadline(&members, 0), UINT64_MAX);
}

/* The address of a member that left may belong to another one by now. That is no fault, and needs
 * no person. */
FACT(address_that_a_linked_member_has_now_is_dropped_at_once) {
    const struct tw_id gone = id_of(1, 1);
    const struct tw_member_row fresh = record_of(id_of(2, 2), NULL, NULL);
    merge_record(record_of(gone, "shared.example:1", NULL), 0);
    struct tw_dial dial = take_dial(10 * S);
    assert_false(tw_members_dialled(&members, dial.address, false, &fresh.id, 10 * S));
    tw_members_connected(&members, &fresh, 11 * S);
    dial = take_dial(20 * S);
    assert_string_equal(dial.address, "shared.example:1");
    assert_true(tw_members_dialled(&members, dial.address, false, &fresh.id, 20 * S));
    assert_int_equal(tw_members_known(&members), 1); /* the member without an address is gone too */
}

FACT(address_that_leads_back_to_us_is_dropped_with_its_member) {
    merge_record(record_of(id_of(1, 1), "now-mine.example:1", NULL), 0);
    const struct tw_dial dial = take_dial(10 * S);
    assert_true(tw_members_dialled(&members, dial.address, false, &members.config.self, 10 * S));
    assert_int_equal(tw_members_known(&members), 0);
    /* A configured one too: the id was this machine's before it was set up again. */
    const struct tw_id former = id_of(1, 1);
    char entry[128] = "me.example:1=";
    tw_id_hex(&former, entry + strlen(entry));
    bootstrap(entry);
    const struct tw_dial again = take_dial(20 * S);
    assert_string_equal(again.address, "me.example:1");
    assert_true(tw_members_dialled(&members, again.address, false, &members.config.self, 20 * S));
    assert_int_equal(tw_members_known(&members), 0);
    assert_nothing_due(UINT64_C(1) << 60);
}

FACT(configured_address_without_an_id_accepts_a_node_set_up_anew) {
    const struct tw_id old = id_of(1, 1), anew = id_of(2, 2);
    bootstrap("a.example:1");
    struct tw_dial dial = take_dial(0);
    (void)tw_members_dialled(&members, dial.address, true, &old, 0);
    dial = take_dial(100 * S);
    assert_false(dial.has_id);
    (void)tw_members_dialled(&members, dial.address, true, &anew, 100 * S);
    assert_true(tw_members_is_bootstrap(&members, &anew));
    assert_false(tw_members_is_bootstrap(&members, &old));
    assert_false(take_dial(200 * S).has_id);
}

FACT(resting_member_is_dialled_rarely_but_at_once_after_a_loss) {
    const struct tw_member_row one = record_of(id_of(0x81, 1), "a:1", NULL);
    tw_members_connected(&members, &one, 1 * S);
    tw_members_disconnected(&members, &one.id, 40 * S);
    tw_members_rest(&members, &one.id, 1000 * S);
    struct tw_dial dial = take_dial(43 * S);
    (void)tw_members_dialled(&members, dial.address, false, NULL, 43 * S);
    assert_nothing_due(700 * S);
    dial = take_dial(1400 * S);
    (void)tw_members_dialled(&members, dial.address, false, NULL, 1400 * S);
    tw_members_moved(&members, 1401 * S);
    dial = take_dial(1401 * S);
    (void)tw_members_dialled(&members, dial.address, true, &one.id, 1401 * S);
    tw_members_connected(&members, &one, 1402 * S); /* a link ends the rest */
    tw_members_disconnected(&members, &one.id, 1500 * S);
    dial = take_dial(1503 * S);
    (void)tw_members_dialled(&members, dial.address, false, NULL, 1503 * S);
    assert_true(tw_members_deadline(&members, 1503 * S) < 1510 * S);
}

FACT(members_that_nobody_tells_of_are_swept) {
    const struct tw_member_row linked = record_of(id_of(1, 1), "a:1", NULL);
    const struct tw_id rumour = id_of(2, 2);
    bootstrap("c.example:1");
    tw_members_connected(&members, &linked, 0);
    tw_members_disconnected(&members, &linked.id, 40 * S);
    merge_record(record_of(rumour, "b:1", NULL), 0);
    merge_record(record_of(id_of(3, 3), "d:1", NULL), 3000 * S);
    tw_members_sweep(&members, TW_HEARSAY_KEPT_US - 1);
    assert_int_equal(tw_members_known(&members), 3);
    tw_members_sweep(&members, TW_HEARSAY_KEPT_US);
    assert_int_equal(tw_members_known(&members), 2);
    tw_members_forget(&members, &linked.id);
    assert_int_equal(tw_members_known(&members), 1);
    assert_string_equal(take_dial(TW_HEARSAY_KEPT_US).address, "c.example:1"); /* kept */
}

/* ---- records ------------------------------------------------------------------------------- */

FACT(records_name_this_node_and_recently_linked_members_only) {
    struct tw_msg_peers peers;
    const struct tw_id linked = id_of(1, 1), lost = id_of(2, 2), rumour = id_of(3, 3);
    const struct tw_member_row self = record_of(members.config.self, "me.example:1", NULL);
    tw_members_set_self(&members, &self);
    struct tw_member_row record = record_of(linked, "linked.example:1", NULL);
    tw_members_connected(&members, &record, 0);
    record = record_of(lost, "lost.example:1", NULL);
    tw_members_connected(&members, &record, 0);
    tw_members_disconnected(&members, &lost, S);
    merge_record(record_of(rumour, "rumour.example:1", NULL), 0);
    tw_members_records(&members, 2 * S, &peers);
    assert_int_equal(peers.count, 3);
    assert_true(tw_id_equal(&peers.rows[0].id, &members.config.self));
    for (unsigned i = 0; i < 3; i++) assert_false(tw_id_equal(&peers.rows[i].id, &rumour));
    /* A member lost long ago is left out. */
    tw_members_records(&members, 2 * S + TW_RECORD_FRESH_US, &peers);
    assert_int_equal(peers.count, 2);
    assert_true(tw_id_equal(&peers.rows[1].id, &linked));
}

FACT(records_go_round_when_they_do_not_fit) {
    enum { MEMBERS = 40 };
    bool is_told[MEMBERS] = {false};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        char text[TW_ADDR_BYTES];
        (void)snprintf(text, sizeof(text), "10.0.0.%u:1", i);
        const struct tw_member_row record = record_of(id_of(1, i), text, NULL);
        tw_members_connected(&members, &record, 0);
    }
    for (unsigned round = 0; round < 4; round++) {
        struct tw_msg_peers peers;
        tw_members_records(&members, 0, &peers);
        assert_true(peers.count <= TW_MEMBER_ROWS_PER_MESSAGE);
        for (uint32_t k = 0; k < peers.count; k++) {
            uint32_t number = 0;
            memcpy(&number, peers.rows[k].id.bytes + 1, sizeof(number));
            is_told[number] = true;
        }
    }
    for (unsigned i = 0; i < MEMBERS; i++) assert_true(is_told[i]);
}

/* ---- records of others ----------------------------------------------------------------------- */

/* Tells of `count` invented nodes, numbered from `first`, at a port each. */
static void tell_of(uint32_t teller, uint32_t first, uint32_t count, uint64_t now_us) {
    for (uint32_t i = first; i < first + count; i++) {
        char address[TW_ADDR_BYTES];
        (void)snprintf(address, sizeof(address), "198.51.100.%u:%u", teller, 1 + i);
        told_by(teller, record_of(id_of(9, i), address, NULL), now_us);
    }
}

FACT(peer_tells_of_few_nodes_that_no_dial_has_found) {
    tell_of(1, 0, 256, S);
    assert_int_equal(tw_members_known(&members), TW_TOLD_MAX);
    tell_of(2, 300, 256, S);
    assert_int_equal(tw_members_known(&members), 2 * TW_TOLD_MAX);
    /* A node that was linked counts no more. */
    const struct tw_member_row found = record_of(id_of(9, 0), "198.51.100.1:1", NULL);
    tw_members_connected(&members, &found, S);
    tell_of(1, 100, 5, S);
    assert_int_equal(tw_members_known(&members), 2 * TW_TOLD_MAX + 1);
}

/* Dead nodes do not keep a peer from telling of those that live. */
FACT(node_that_is_not_found_makes_room_for_another) {
    struct tw_dial dial;
    unsigned fresh = 0;
    tell_of(1, 0, TW_TOLD_MAX, S);
    while (tw_members_next_dial(&members, 10 * S, &dial)) {
        assert_true(dial.is_hearsay && dial.is_unproven);
        if (strcmp(dial.address, "198.51.100.1:3") != 0)
            (void)tw_members_dialled(&members, dial.address, false, NULL, 10 * S);
    }
    tell_of(1, 50, 20, 10 * S);
    assert_int_equal(tw_members_known(&members), TW_TOLD_MAX);
    while (tw_members_next_dial(&members, 15 * S, &dial)) {
        fresh += dial.id.bytes[1] >= 50;
        assert_string_not_equal(dial.address, "198.51.100.1:3"); /* it is still being dialled */
    }
    assert_int_equal(fresh, TW_TOLD_MAX - 1);
}

FACT(dial_that_is_put_off_comes_later) {
    merge_record(record_of(id_of(1, 1), "a.example:1", NULL), 0);
    struct tw_dial dial = take_dial(10 * S);
    assert_true(dial.is_unproven);
    tw_members_put_off(&members, dial.address, 70 * S);
    assert_nothing_due(70 * S - 1);
    dial = take_dial(70 * S);
    /* It is no failure, and a dial that finds the node proves the address. */
    assert_true(tw_members_may_reach(&members, &dial.id));
    const struct tw_id id = dial.id;
    (void)tw_members_dialled(&members, dial.address, true, &id, 70 * S);
    assert_false(take_dial(200 * S).is_unproven);
    tw_members_put_off(&members, "b.example:1", 0); /* no such dial */
}

FACT(hostile_records_change_nothing) {
    const struct tw_id zero = {{0}};
    struct tw_msg_peers peers = {.count = UINT32_MAX};
    memset(peers.rows, 'x', sizeof(peers.rows)); /* no NUL anywhere */
    tw_members_merge(&members, &zero, &peers, 0);
    merge_record(record_of(members.config.self, "evil.example:1", NULL), 0);
    merge_record(record_of(zero, "evil.example:1", NULL), 0);
    merge_record(record_of(id_of(1, 1), "not an address", NULL), 0);
    merge_record(record_of(id_of(1, 1), NULL, NULL), 0);
    assert_nothing_due(UINT64_C(1) << 60);
    assert_int_equal(tw_members_known(&members), 0);
}

FACT(linked_member_is_believed_about_itself) {
    const struct tw_id id = id_of(1, 1);
    struct tw_msg_peers peers;
    const struct tw_member_row own = record_of(id, "true.example:1", NULL);
    tw_members_connected(&members, &own, 0);
    merge_record(record_of(id, "false.example:1", NULL), S);
    tw_members_records(&members, S, &peers);
    assert_int_equal(peers.count, 1);
    assert_string_equal(peers.rows[0].addrs[0], "true.example:1");
    assert_string_equal(peers.rows[0].addrs[1], "");
}

FACT(flood_of_invented_members_pushes_out_no_real_one) {
    const struct tw_id real = id_of(0x70, 7);
    const struct tw_member_row record = record_of(real, "real.example:1", NULL);
    bootstrap("boot.example:1");
    tw_members_connected(&members, &record, 0);
    tw_members_disconnected(&members, &real, 0);
    for (uint32_t i = 0; i < 10 * TW_KNOWN_MAX; i++) {
        char text[TW_ADDR_BYTES];
        (void)snprintf(text, sizeof(text), "10.1.%u.%u:1", i / 256, i % 256);
        merge_record(record_of(id_of(0x71, i), text, NULL), i);
    }
    assert_true(tw_members_known(&members) < TW_KNOWN_MAX);
    bool has_real = false, has_boot = false;
    struct tw_dial dial;
    while (tw_members_next_dial(&members, 100 * S, &dial)) {
        has_real |= strcmp(dial.address, "real.example:1") == 0;
        has_boot |= strcmp(dial.address, "boot.example:1") == 0;
    }
    assert_true(has_real && has_boot);
}

FACT(invented_members_delay_no_dial_of_a_real_one) {
    bootstrap("a.example:1");
    for (uint32_t i = 0; i < 200; i++) {
        char address[TW_ADDR_BYTES];
        (void)snprintf(address, sizeof(address), "192.0.2.1:%u", 1000 + i);
        merge_record(record_of(id_of(1, i), address, NULL), 0);
    }
    /* All addresses are due. The invented ones have been due for longer, but the configured one is
     * dialled first. */
    tw_members_dialled(&members, take_dial(0).address, false, NULL, 0);
    assert_string_equal(take_dial(100 * S).address, "a.example:1");
    unsigned dials = 0;
    struct tw_dial dial;
    while (tw_members_next_dial(&members, 100 * S, &dial)) dials++;
    assert_int_equal(dials, TW_DIALS_MAX / 2);
    /* Half of the dials are reserved for configured addresses. */
    tw_members_dialled(&members, "a.example:1", false, NULL, 100 * S);
    assert_string_equal(take_dial(200 * S).address, "a.example:1");
    assert_nothing_due(200 * S);
}

FACT(failing_address_makes_room_for_a_new_one) {
    const struct tw_id id = id_of(1, 1);
    uint64_t now_us = 10 * S;
    struct tw_member_row record = record_of(id, "a.example:1", "b.example:1");
    (void)snprintf(record.addrs[2], TW_ADDR_BYTES, "c.example:1");
    (void)snprintf(record.addrs[3], TW_ADDR_BYTES, "d.example:1");
    merge_record(record, 0);
    merge_record(record_of(id, "new.example:1", NULL), 0); /* no room yet */
    bool is_found = false;
    for (unsigned i = 0; i < 60; i++) {
        const struct tw_dial dial = take_dial(now_us);
        is_found |= strcmp(dial.address, "new.example:1") == 0;
        tw_members_dialled(&members, dial.address, false, NULL, now_us);
        if (i == 0) assert_false(is_found);
        if (i == 50) merge_record(record_of(id, "new.example:1", NULL), now_us);
        now_us += 100 * S;
    }
    assert_true(is_found);
}

/* ---- cache --------------------------------------------------------------------------------- */

FACT(cache_text_restores_all_members_met) {
    static char text[TW_MEMBERS_TEXT_MAX];
    static struct tw_members again;
    size_t size = 0;
    struct tw_member_row record = record_of(id_of(1, 1), "a.example:1", "[::1]:2");
    tw_members_connected(&members, &record, S);
    record = record_of(id_of(2, 2), "b.example:1", NULL);
    tw_members_connected(&members, &record, 2 * S);
    merge_record(record_of(id_of(3, 3), "rumour.example:1", NULL), 3 * S);
    tw_members_encode(&members, text, sizeof(text), &size);
    assert_int_equal(text[size - 1], '\n');
    assert_memory_equal(text, "02", 2); /* newest first */
    tw_members_init(&again, &members.config);
    assert_int_equal(tw_members_decode(&again, text, size, 0), 0);
    assert_int_equal(tw_members_known(&again), 2);
    struct tw_dial dial;
    assert_true(tw_members_next_dial(&again, 0, &dial));
    assert_true(dial.has_id);
    static char second[TW_MEMBERS_TEXT_MAX];
    size_t second_size = 0;
    tw_members_encode(&again, second, sizeof(second), &second_size);
    assert_int_equal(second_size, size);
}

FACT(damaged_cache_lines_are_counted_and_skipped) {
    char hex[TW_ID_HEX_BYTES], text[1024];
    const struct tw_id id = id_of(1, 1);
    tw_id_hex(&id, hex);
    const int size =
        snprintf(text, sizeof(text), "garbage\n%s\n%s  \n%s a.example:0\n%s a.example:1\n%s b", hex,
                 hex, hex, hex, hex);
    assert_int_equal(tw_members_decode(&members, text, (size_t)size, 0), 5);
    assert_int_equal(tw_members_known(&members), 1);
    /* Decoding survives any prefix of the text and any flipped byte. */
    for (int cut = 0; cut < size; cut++) {
        struct tw_members_config config = members.config;
        tw_members_init(&members, &config);
        (void)tw_members_decode(&members, text, (size_t)cut, 0);
        char copy[1024];
        memcpy(copy, text, (size_t)size);
        copy[cut] = (char)(copy[cut] ^ 0x80);
        (void)tw_members_decode(&members, copy, (size_t)size, 0);
    }
}

FACT(encode_stays_within_its_capacity) {
    char text[200];
    for (uint32_t i = 0; i < 20; i++) {
        const struct tw_member_row record = record_of(id_of(1, i), "a.example:1", NULL);
        tw_members_connected(&members, &record, i);
    }
    for (size_t capacity = 0; capacity < sizeof(text); capacity++) {
        size_t size = 0;
        memset(text, '#', sizeof(text));
        tw_members_encode(&members, text, capacity, &size);
        assert_true(size <= capacity);
        assert_true(size == 0 || text[size - 1] == '\n');
        assert_int_equal(text[capacity], '#');
    }
}

/* An address may pass to another node, for example when a machine is set up anew. The old node
 * is not dialled there for ever, and leaves the table if it has no other address. */
FACT(address_that_became_another_nodes_is_dropped) {
    const struct tw_id old = id_of(1, 1), new = id_of(2, 2), friend = id_of(3, 3);
    const struct tw_member_row was = record_of(old, "10.0.0.1:1", NULL);
    const struct tw_member_row other = record_of(friend, "10.0.0.9:1", NULL);
    uint64_t now_us = S;
    tw_members_connected(&members, &other, now_us); /* the node keeps this link */
    tw_members_connected(&members, &was, now_us);
    tw_members_disconnected(&members, &old, now_us);
    unsigned dials = 0;
    while (tw_members_known(&members) == 2) {
        struct tw_dial dial;
        now_us += S;
        assert_true(now_us < 600 * S);
        if (!tw_members_next_dial(&members, now_us, &dial)) continue;
        assert_string_equal(dial.address, "10.0.0.1:1");
        tw_members_dialled(&members, dial.address, false, dials == 2 ? NULL : &new, now_us);
        dials++;
    }
    assert_in_range(dials, 5, 10); /* one answer by the new node is not enough */
    assert_nothing_due(now_us + 600 * S);
    merge_record(was, now_us + 600 * S); /* another node has met the peer since */
    assert_string_equal(take_dial(now_us + 620 * S).address, "10.0.0.1:1");
}

FACT(other_addresses_of_a_member_and_configured_ones_stay) {
    char text[160], hex[TW_ID_HEX_BYTES];
    const struct tw_id old = id_of(1, 1), new = id_of(2, 2);
    uint64_t now_us = S;
    tw_id_hex(&old, hex);
    (void)snprintf(text, sizeof(text), "10.0.0.1:1=%s", hex);
    bootstrap(text);
    merge_record(record_of(old, "10.0.0.2:1", "10.0.0.3:1"), now_us);
    unsigned second = 0;
    for (; now_us < 2000 * S; now_us += S) {
        struct tw_dial dial;
        while (tw_members_next_dial(&members, now_us, &dial)) {
            const bool is_third = strcmp(dial.address, "10.0.0.3:1") == 0; /* nobody answers */
            second += strcmp(dial.address, "10.0.0.2:1") == 0;
            tw_members_dialled(&members, dial.address, false, is_third ? NULL : &new, now_us);
        }
    }
    assert_in_range(second, 3, 10);
    assert_int_equal(tw_members_known(&members), 1);
    bool has_first = false, has_third = false;
    for (unsigned i = 0; i < 100 && !(has_first && has_third); i++, now_us += S) {
        struct tw_dial dial;
        while (tw_members_next_dial(&members, now_us, &dial)) {
            has_first |= strcmp(dial.address, "10.0.0.1:1") == 0;
            has_third |= strcmp(dial.address, "10.0.0.3:1") == 0;
            tw_members_dialled(&members, dial.address, false, NULL, now_us);
        }
    }
    assert_true(has_first && has_third);
}
