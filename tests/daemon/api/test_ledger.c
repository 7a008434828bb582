/* Tests the ledger of each node's part in a run. Every round is counted once, from the records
 * that this node saw. The table is bounded and is saved to a file. */
#include "tests/test.h"

#include "daemon/api/ledger.h"

static struct tw_ledger ledger;
static struct tw_record tip;

static struct tw_id id_of(uint32_t node) {
    return (struct tw_id){{0xa0, (uint8_t)(node >> 8), (uint8_t)node}};
}

static void set_roster(struct tw_roster *roster, uint32_t first, uint32_t count) {
    roster->count = count;
    for (uint32_t i = 0; i < count; i++)
        roster->members[i] = (struct tw_member){.id = id_of(first + i), .weight = 1};
}

static int set_up(void **state) {
    memset(&ledger, 0, sizeof(ledger));
    memset(&tip, 0, sizeof(tip));
    tip.lineage.bytes[0] = 1;
    tip.round = 9;
    set_roster(&tip.next, 0, 3);
    tw_ledger_begin(&ledger, &tip);
    return 0;
}

#define FACT(name) TEST_IN(set_up, NULL, name)

/* Returns the record after `tip`, and makes it the tip. Nodes 0 and 2 contribute; node 1 owns a
 * part. */
static struct tw_record next_record(void) {
    struct tw_record record = {.lineage = tip.lineage,
                               .parent = tw_record_digest(&tip),
                               .round = tip.round + 1,
                               .next = tip.next,
                               .contributors_count = 2,
                               .parts_count = 2};
    record.base.bytes[0] = (uint8_t)record.round;
    record.contributors[0] = (struct tw_contributor){.member_idx = 0, .tokens = 100};
    record.contributors[1] = (struct tw_contributor){.member_idx = 2, .tokens = 50};
    record.parts[0] = (struct tw_part){.owner_idx = 0}; /* absent */
    record.parts[1] =
        (struct tw_part){.owner_idx = 1, .bytes = 700, .contributors = 5, .result = {{1}}};
    tip = record;
    return record;
}

static const struct tw_ledger_row *row_of(uint32_t node) {
    const struct tw_id id = id_of(node);
    for (uint32_t i = 0; i < ledger.rows_count; i++) {
        if (tw_id_equal(&ledger.rows[i].id, &id)) return &ledger.rows[i];
    }
    fail_msg("node %u has no row", node);
    return NULL;
}

static void note_rounds(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const struct tw_record record = next_record();
        tw_ledger_note(&ledger, &record);
    }
}

FACT(each_member_has_its_part) {
    note_rounds(3);
    assert_int_equal(ledger.rounds, 3);
    assert_int_equal(ledger.first_round, 10);
    assert_int_equal(ledger.unseen, 0);
    assert_int_equal(row_of(0)->tokens, 300);
    assert_int_equal(row_of(0)->rounds, 3);
    assert_int_equal(row_of(0)->parts, 0);
    assert_int_equal(row_of(1)->rounds, 0);
    assert_int_equal(row_of(1)->parts, 3);
    assert_int_equal(row_of(1)->merged_bytes, 2100);
    assert_int_equal(row_of(2)->tokens, 150);
    assert_int_equal(row_of(2)->first_round, 10);
    assert_int_equal(row_of(2)->last_round, 12);
}

/* A seat number in a record refers to the roster of the previous round, not to the roster that
 * the record chooses. */
FACT(seats_are_those_of_the_round_before) {
    struct tw_record record = next_record();
    set_roster(&record.next, 5, 3);
    tip = record;
    tw_ledger_note(&ledger, &record);
    assert_int_equal(row_of(0)->tokens, 100);
    note_rounds(1);
    assert_int_equal(row_of(5)->tokens, 100);
    assert_int_equal(row_of(0)->tokens, 100);
}

FACT(rounds_that_a_restart_repeats_count_once) {
    note_rounds(2);
    const struct tw_record checkpoint = tip;
    note_rounds(3);
    tip = checkpoint;
    tw_ledger_begin(&ledger, &checkpoint);
    note_rounds(4); /* three rounds again, and a new one */
    assert_int_equal(ledger.rounds, 6);
    assert_int_equal(row_of(0)->tokens, 600);
    assert_int_equal(ledger.unseen, 0);
}

/* The roster of the first round after a gap is not known, so that round counts as unseen. */
FACT(rounds_that_were_not_seen_are_told) {
    note_rounds(2);
    for (int i = 0; i < 5; i++) (void)next_record();
    note_rounds(3);
    assert_int_equal(ledger.rounds, 4);
    assert_int_equal(ledger.unseen, 6);
    assert_int_equal(row_of(0)->rounds, 4);
    /* seat numbers outside every roster */
    struct tw_record record = next_record();
    record.contributors[1].member_idx = 60;
    record.parts[1].contributors = 1;
    record.parts[1].owner_idx = 61;
    tw_ledger_note(&ledger, &record);
    assert_int_equal(row_of(2)->rounds, 4);
}

FACT(another_lineage_goes_on) {
    note_rounds(2);
    tip.lineage.bytes[0] = 2;
    tw_ledger_begin(&ledger, &tip);
    note_rounds(2);
    assert_int_equal(ledger.rounds, 4);
    assert_int_equal(row_of(0)->tokens, 400);
}

static uint64_t sum_of_tokens(void) {
    uint64_t sum = ledger.others.tokens;
    for (uint32_t i = 0; i < ledger.rows_count; i++) sum += ledger.rows[i].tokens;
    return sum;
}

/* More nodes take part in the run, one after another, than the table has rows. */
FACT(table_is_bounded_and_loses_no_token) {
    const uint32_t rounds = 3 * TW_LEDGER_ROWS;
    for (uint32_t i = 0; i < rounds; i++) {
        struct tw_record record = next_record();
        set_roster(&record.next, 3 * (i + 1), 3);
        tip = record;
        tw_ledger_note(&ledger, &record);
    }
    assert_int_equal(ledger.rows_count, TW_LEDGER_ROWS);
    assert_int_equal(sum_of_tokens(), 150 * (uint64_t)rounds);
    assert_int_equal(ledger.others.first_round, 10);
    json_t *const json = tw_ledger_json(&ledger, &(struct tw_id){{0}});
    assert_int_equal(json_integer_value(json_object_get(json, "tokens")), 150 * (json_int_t)rounds);
    assert_int_equal(json_array_size(json_object_get(json, "nodes")), TW_LEDGER_ROWS);
    assert_true(json_is_object(json_object_get(json, "others")));
    json_decref(json);
}

FACT(file_gives_the_same_ledger) {
    static char text[TW_LEDGER_TEXT_MAX], again[TW_LEDGER_TEXT_MAX];
    static struct tw_ledger read;
    table_is_bounded_and_loses_no_token(state);
    const size_t size = tw_ledger_encode(&ledger, text);
    assert_true(size < TW_LEDGER_TEXT_MAX);
    assert_int_equal(tw_ledger_decode(&read, text, size), TW_OK);
    assert_int_equal(tw_ledger_encode(&read, again), size);
    assert_memory_equal(text, again, size);
    tw_ledger_begin(&read, &tip);
    const struct tw_record record = next_record();
    tw_ledger_note(&read, &record);
    assert_int_equal(read.rounds, ledger.rounds + 1);
    assert_int_equal(read.unseen, 0);
}

/* The newest record's base shows which state the voters held; after a restart too. */
FACT(base_is_of_the_newest_record) {
    char hex[TW_ID_HEX_BYTES];
    for (int i = 0; i < 2; i++) {
        if (i == 0) note_rounds(3);
        if (i == 1) tw_ledger_begin(&ledger, &tip);
        json_t *const json = tw_ledger_json(&ledger, &(struct tw_id){{0}});
        tw_id_hex(&tip.base, hex);
        assert_string_equal(json_string_value(json_object_get(json, "base")), hex);
        assert_int_equal(json_integer_value(json_object_get(json, "base_round")), 12);
        json_decref(json);
    }
    memset(&tip.base, 0, sizeof(tip.base));
    tw_ledger_begin(&ledger, &tip);
    json_t *const json = tw_ledger_json(&ledger, &(struct tw_id){{0}});
    assert_true(json_is_null(json_object_get(json, "base")));
    json_decref(json);
}

/* A truncated file, or one with a changed byte, is either refused or harmless: no crash and no
 * excess row. */
FACT(damaged_file_is_refused) {
    static char text[TW_LEDGER_TEXT_MAX];
    static struct tw_ledger read;
    note_rounds(3);
    const size_t size = tw_ledger_encode(&ledger, text);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(tw_ledger_decode(&read, text, cut), TW_CORRUPT);
    assert_int_equal(read.rows_count, 0);
    for (size_t at = 0; at < size; at++) {
        static const char BYTES[] = {'\0', '\n', ' ', '-', 'z', '9', '\xff'};
        const char was = text[at];
        for (size_t b = 0; b < sizeof(BYTES); b++) {
            text[at] = BYTES[b];
            (void)tw_ledger_decode(&read, text, size);
            assert_true(read.rows_count <= 4);
        }
        text[at] = was;
    }
    memcpy(text + size, text, size); /* twice in a row */
    assert_int_equal(tw_ledger_decode(&read, text, 2 * size), TW_CORRUPT);
}

/* After a power cut of all nodes, the run goes on from an older round in a new lineage. */
FACT(rounds_that_the_run_lost_are_told) {
    static char text[TW_LEDGER_TEXT_MAX];
    static struct tw_ledger read;
    note_rounds(5); /* 10 to 14 */
    tip.lineage.bytes[0] = 2;
    tip.round = 11;
    tw_ledger_begin(&ledger, &tip);
    note_rounds(2);
    assert_int_equal(ledger.rounds, 7);
    assert_int_equal(ledger.undone, 3); /* 12, 13 and 14 of the old lineage */
    const size_t size = tw_ledger_encode(&ledger, text);
    assert_int_equal(tw_ledger_decode(&read, text, size), TW_OK);
    assert_int_equal(read.undone, 3);
    /* The file of a program that did not count them. */
    char *const end = strchr(text, '\n');
    memmove(end - 2, end, size - (size_t)(end - text));
    assert_int_equal(tw_ledger_decode(&read, text, size - 2), TW_OK);
    assert_int_equal(read.undone, 0);
    assert_int_equal(read.rounds, 7);
}

FACT(nodes_with_more_tokens_come_first) {
    note_rounds(2);
    const struct tw_id self = id_of(2);
    json_t *const json = tw_ledger_json(&ledger, &self), *const nodes =
                                                             json_object_get(json, "nodes");
    json_int_t tokens = 0;
    double share = 0.0;
    const char *id = NULL;
    int is_self = 0;
    assert_int_equal(json_unpack(nodes, "[{s:I,s:F,s:b}, {s:s,s:b}]", "tokens", &tokens,
                                 "token_share_ratio", &share, "is_self", &is_self, "id_short", &id,
                                 "is_self", &is_self),
                     0);
    assert_int_equal(tokens, 200);
    assert_float_equal(share, 2.0 / 3, 1e-9);
    assert_string_equal(id, "a0000200");
    assert_true(is_self);
    assert_true(json_is_null(json_object_get(json, "others")));
    json_decref(json);
}
