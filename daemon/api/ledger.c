#include "daemon/api/ledger.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ==== rounds ================================================================================== */

/* ==== counting ================================================================================ */

static void add(struct tw_ledger_row *to, const struct tw_ledger_row *row) {
    to->tokens += row->tokens;
    to->rounds += row->rounds;
    to->parts += row->parts;
    to->merged_bytes += row->merged_bytes;
    if (row->rounds == 0) return;
    if (to->rounds == row->rounds || row->first_round < to->first_round)
        to->first_round = row->first_round;
    if (row->last_round > to->last_round) to->last_round = row->last_round;
}

/* Returns a free row. In a full table, the node with the fewest tokens is added to `others` and
 * loses its row. */
static struct tw_ledger_row *make_row(struct tw_ledger *ledger) {
    if (ledger->rows_count < TW_LEDGER_ROWS) return &ledger->rows[ledger->rows_count++];
    struct tw_ledger_row *least = &ledger->rows[0];
    for (uint32_t i = 1; i < ledger->rows_count; i++) {
        if (ledger->rows[i].tokens < least->tokens) least = &ledger->rows[i];
    }
    add(&ledger->others, least);
    return least;
}

static struct tw_ledger_row *find_row(struct tw_ledger *ledger, const struct tw_id *id) {
    for (uint32_t i = 0; i < ledger->rows_count; i++) {
        if (tw_id_equal(&ledger->rows[i].id, id)) return &ledger->rows[i];
    }
    struct tw_ledger_row *const row = make_row(ledger);
    *row = (struct tw_ledger_row){.id = *id};
    return row;
}

static void count_members(struct tw_ledger *ledger, const struct tw_record *record) {
    const struct tw_roster *const roster = &ledger->roster;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *const by = &record->contributors[i];
        if (by->member_idx >= roster->count) continue;
        const struct tw_ledger_row one = {.tokens = by->tokens,
                                          .rounds = 1,
                                          .first_round = record->round,
                                          .last_round = record->round};
        add(find_row(ledger, &roster->members[by->member_idx].id), &one);
    }
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *const part = &record->parts[k];
        if (part->bytes == 0 || part->owner_idx >= roster->count) continue;
        const struct tw_ledger_row one = {.parts = 1, .merged_bytes = part->bytes};
        add(find_row(ledger, &roster->members[part->owner_idx].id), &one);
    }
}

void tw_ledger_begin(struct tw_ledger *ledger, const struct tw_record *tip) {
    memset(&ledger->tip, 0, sizeof(ledger->tip));
    memset(&ledger->base, 0, sizeof(ledger->base));
    if (tip == NULL) return;
    ledger->tip = tw_record_digest(tip);
    ledger->base = tip->base;
    ledger->base_round = tip->round;
    ledger->roster = tip->next;
}

void tw_ledger_note(struct tw_ledger *ledger, const struct tw_record *record) {
    const bool is_known =
        !tw_id_is_zero(&ledger->tip) && tw_id_equal(&ledger->tip, &record->parent);
    const bool is_same = tw_id_equal(&ledger->lineage, &record->lineage);
    const bool is_counted = is_same && record->round < ledger->next_round;
    const bool is_first = ledger->rounds == 0;
    if (!is_counted && is_known) count_members(ledger, record);
    if (!is_counted) {
        if (is_same && !is_first) ledger->unseen += record->round - ledger->next_round;
        if (is_first) ledger->first_round = record->round;
        if (is_known) ledger->rounds++;
        if (!is_known && !is_first) ledger->unseen++;
        if (!is_same && record->round < ledger->next_round)
            ledger->undone += ledger->next_round - record->round;
        ledger->lineage = record->lineage;
        ledger->next_round = record->round + 1;
    }
    tw_ledger_begin(ledger, record);
}

/* ==== the file ================================================================================ */

/* Text of the ledger file:
 *
 *   thinwire-ledger 1 LINEAGE FIRST_ROUND ROUNDS UNSEEN NEXT_ROUND UNDONE
 *   ID TOKENS ROUNDS PARTS MERGED_BYTES FIRST_ROUND LAST_ROUND
 *   end
 *
 * The first row is `others`, whose id is zero. UNDONE may be missing: older programs wrote none. */

static size_t put_row(const struct tw_ledger_row *row, char *text) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&row->id, hex);
    const int size = snprintf(
        text, TW_LEDGER_LINE_BYTES,
        "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", hex,
        row->tokens, row->rounds, row->parts, row->merged_bytes, row->first_round, row->last_round);
    TW_ASSERT(size > 0 && size < TW_LEDGER_LINE_BYTES);
    return (size_t)size;
}

size_t tw_ledger_encode(const struct tw_ledger *ledger, char text[TW_LEDGER_TEXT_MAX]) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(&ledger->lineage, hex);
    const int head = snprintf(
        text, TW_LEDGER_LINE_BYTES,
        "thinwire-ledger 1 %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", hex,
        ledger->first_round, ledger->rounds, ledger->unseen, ledger->next_round, ledger->undone);
    TW_ASSERT(head > 0 && head < TW_LEDGER_LINE_BYTES);
    size_t size = (size_t)head;
    size += put_row(&ledger->others, text + size);
    for (uint32_t i = 0; i < ledger->rows_count; i++)
        size += put_row(&ledger->rows[i], text + size);
    memcpy(text + size, "end\n", 4);
    return size + 4;
}

/* Reads one line: an id, then numbers, each after one space. Advances `at` past the line. */
static bool read_line(const char **at, const char *end, struct tw_id *id, uint64_t *numbers,
                      unsigned count) {
    const char *const line_end = memchr(*at, '\n', (size_t)(end - *at));
    char line[TW_LEDGER_LINE_BYTES], hex[TW_ID_HEX_BYTES];
    if (line_end == NULL || line_end - *at >= TW_LEDGER_LINE_BYTES) return false;
    const size_t size = (size_t)(line_end - *at);
    memcpy(line, *at, size);
    line[size] = '\0';
    *at = line_end + 1;
    if (size < TW_ID_HEX_BYTES) return false;
    memcpy(hex, line, TW_ID_HEX_BYTES - 1);
    hex[TW_ID_HEX_BYTES - 1] = '\0';
    if (!tw_id_parse(hex, id)) return false;
    char *next = line + TW_ID_HEX_BYTES - 1;
    for (unsigned i = 0; i < count; i++) {
        if (next[0] != ' ' || next[1] < '0' || next[1] > '9') return false;
        numbers[i] = strtoull(next + 1, &next, 10);
    }
    return *next == '\0';
}

static bool read_row(const char **at, const char *end, struct tw_ledger_row *row) {
    uint64_t n[6];
    if (!read_line(at, end, &row->id, n, 6)) return false;
    row->tokens = n[0], row->rounds = n[1], row->parts = n[2];
    row->merged_bytes = n[3], row->first_round = n[4], row->last_round = n[5];
    return true;
}

static bool read_all(struct tw_ledger *ledger, const char *text, size_t size) {
    static const char HEAD[] = "thinwire-ledger 1 ", TAIL[] = "end\n";
    const size_t head = sizeof(HEAD) - 1, tail = sizeof(TAIL) - 1;
    if (size < head + tail || memcmp(text, HEAD, head) != 0) return false;
    if (memcmp(text + size - tail, TAIL, tail) != 0) return false;
    const char *at = text + head, *const end = text + size - tail;
    const char *const begin = at;
    uint64_t n[5] = {0};
    if (!read_line(&at, end, &ledger->lineage, n, 5)) {
        at = begin;
        n[4] = 0;
        if (!read_line(&at, end, &ledger->lineage, n, 4)) return false;
    }
    ledger->first_round = n[0], ledger->rounds = n[1];
    ledger->unseen = n[2], ledger->next_round = n[3], ledger->undone = n[4];
    if (!read_row(&at, end, &ledger->others) || !tw_id_is_zero(&ledger->others.id)) return false;
    while (at < end) {
        struct tw_ledger_row row;
        if (ledger->rows_count == TW_LEDGER_ROWS || !read_row(&at, end, &row)) return false;
        if (tw_id_is_zero(&row.id)) return false;
        const uint32_t before = ledger->rows_count;
        struct tw_ledger_row *const to = find_row(ledger, &row.id);
        if (ledger->rows_count == before) return false; /* twice */
        *to = row;
    }
    return true;
}

enum tw_status tw_ledger_decode(struct tw_ledger *ledger, const char *text, size_t size) {
    memset(ledger, 0, sizeof(*ledger));
    if (read_all(ledger, text, size)) return TW_OK;
    memset(ledger, 0, sizeof(*ledger));
    return TW_CORRUPT;
}

/* ==== for people and programs ================================================================= */

static json_t *row_json(const struct tw_ledger_row *row, uint64_t all_tokens, bool is_self) {
    char hex[TW_ID_HEX_BYTES], shorter[9];
    tw_id_hex(&row->id, hex);
    tw_id_short(&row->id, shorter);
    const bool is_node = !tw_id_is_zero(&row->id);
    const double share = all_tokens > 0 ? (double)row->tokens / (double)all_tokens : 0.0;
    return json_pack(
        "{s:o,s:o,s:b,s:I,s:f,s:I,s:I,s:I,s:I,s:I}", "id", is_node ? json_string(hex) : json_null(),
        "id_short", is_node ? json_string(shorter) : json_null(), "is_self", is_self, "tokens",
        (json_int_t)row->tokens, "token_share_ratio", share, "rounds", (json_int_t)row->rounds,
        "parts", (json_int_t)row->parts, "merged_bytes", (json_int_t)row->merged_bytes,
        "first_round", (json_int_t)row->first_round, "last_round", (json_int_t)row->last_round);
}

static int compare_rows(const void *a, const void *b) {
    const struct tw_ledger_row *const one = a, *const two = b;
    if (one->tokens != two->tokens) return one->tokens < two->tokens ? 1 : -1;
    return tw_id_compare(&one->id, &two->id);
}

json_t *tw_ledger_json(const struct tw_ledger *ledger, const struct tw_id *self) {
    struct tw_ledger_row *const rows = malloc(sizeof(ledger->rows));
    json_t *const list = json_array();
    uint64_t tokens = ledger->others.tokens;
    if (rows == NULL) {
        json_decref(list);
        return NULL;
    }
    const uint32_t count = ledger->rows_count;
    memcpy(rows, ledger->rows, count * sizeof(*rows));
    qsort(rows, count, sizeof(*rows), compare_rows);
    for (uint32_t i = 0; i < count; i++) tokens += rows[i].tokens;
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list,
                                    row_json(&rows[i], tokens, tw_id_equal(&rows[i].id, self)));
    }
    free(rows);
    const bool has_others = ledger->others.rounds + ledger->others.parts > 0;
    const bool has_base = !tw_id_is_zero(&ledger->base);
    char base[TW_ID_HEX_BYTES];
    tw_id_hex(&ledger->base, base);
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "first_round",
                     (json_int_t)ledger->first_round, "rounds", (json_int_t)ledger->rounds,
                     "unseen_rounds", (json_int_t)ledger->unseen, "undone_rounds",
                     (json_int_t)ledger->undone, "tokens", (json_int_t)tokens, "nodes", list,
                     "others", has_others ? row_json(&ledger->others, tokens, false) : json_null(),
                     "base", has_base ? json_string(base) : json_null(), "base_round",
                     has_base ? json_integer((json_int_t)ledger->base_round) : json_null());
}

/* ==== the clock =============================================================================== */

/* How much of the run clock each member moved in the newest rounds. */

static const double HIGH = 0.3, HIGH_TIMES = 2, LEAST = 1e-3;

static int find(const struct tw_clock_shares *shares, const struct tw_id *id) {
    for (uint32_t i = 0; i < shares->count; i++) {
        if (tw_id_equal(&shares->rows[i].id, id)) return (int)i;
    }
    return -1;
}

static double sum_of(const struct tw_clock_shares *shares) {
    double sum = 0;
    for (uint32_t i = 0; i < shares->count; i++) sum += shares->rows[i].tokens;
    return sum;
}

/* Lets all rows age by a round, and drops those that no longer count. */
static void age(struct tw_clock_shares *shares) {
    const double least = LEAST * sum_of(shares);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < shares->count; i++) {
        shares->rows[i].tokens *= exp(-1.0 / TW_CLOCK_ROUNDS);
        if (shares->rows[i].tokens > least) shares->rows[kept++] = shares->rows[i];
    }
    shares->count = kept;
}

static void add_tokens(struct tw_clock_shares *shares, const struct tw_id *id, uint64_t tokens) {
    int at = find(shares, id);
    if (at < 0) {
        if (tokens == 0 || shares->count == TW_MEMBERS_MAX) return;
        at = (int)shares->count++;
        shares->rows[at].id = *id;
        shares->rows[at].tokens = 0;
    }
    shares->rows[at].tokens += (double)tokens;
}

void tw_clock_shares_note(struct tw_clock_shares *shares, const struct tw_record *record) {
    const struct tw_roster *const roster = &shares->tip.next;
    const bool follows =
        !tw_id_is_zero(&shares->tip_digest) && tw_id_equal(&record->parent, &shares->tip_digest);
    if (!tw_id_equal(&shares->lineage, &record->lineage)) shares->count = 0;
    if (follows && tw_id_equal(&shares->lineage, &record->lineage)) {
        const uint64_t most = tw_record_tokens_max(record, &shares->tip);
        age(shares);
        for (uint32_t i = 0; i < record->contributors_count; i++) {
            const struct tw_contributor *const by = &record->contributors[i];
            if (by->member_idx >= roster->count) continue;
            add_tokens(shares, &roster->members[by->member_idx].id,
                       by->tokens < most ? by->tokens : most);
        }
    }
    shares->lineage = record->lineage;
    shares->tip = *record;
    shares->tip_digest = tw_record_digest(record);
}

double tw_clock_share(const struct tw_clock_shares *shares, const struct tw_id *id) {
    const double sum = sum_of(shares);
    const int at = find(shares, id);
    if (!(sum > 0)) return NAN;
    return at < 0 ? 0 : shares->rows[at].tokens / sum;
}

bool tw_clock_share_is_high(const struct tw_clock_shares *shares, const struct tw_id *id) {
    if (shares->count < TW_CLOCK_TRAINERS) return false;
    const double share = tw_clock_share(shares, id);
    return share > HIGH && share > HIGH_TIMES / shares->count;
}
