#include "daemon/replay/decisions.h"

#include <stdlib.h>
#include <string.h>

static void add(struct decisions *decisions, const struct decision *row) {
    if (decisions->count == decisions->capacity) {
        const size_t capacity = decisions->capacity > 0 ? 2 * decisions->capacity : 1024;
        struct decision *const rows = realloc(decisions->rows, capacity * sizeof(*rows));
        decisions->is_short |= rows == NULL;
        if (rows == NULL) return;
        decisions->rows = rows;
        decisions->capacity = capacity;
    }
    decisions->rows[decisions->count++] = *row;
}

static void see_event(void *self, const struct replay *replay, const struct tw_event *event) {
    if (event->kind != TW_EV_APPLIED || !event->ok) return;
    add(self, &(struct decision){.is_anchor = true,
                                 .fragment = event->u.applied.fragment,
                                 .round = event->u.applied.rounds,
                                 .unix_us = tw_replay_unix_us(replay, replay->now_us),
                                 .digest = event->u.applied.digest});
}

static void see_action(void *self, const struct replay *replay, const struct tw_action *action) {
    if (action->kind != TW_ACT_REPORT || action->u.report.kind != TW_REPORT_ROUND_COMMITTED) return;
    const struct tw_record *const record = action->u.report.record;
    add(self, &(struct decision){.fragment = record->fragment,
                                 .contributors = record->contributors_count,
                                 .round = record->round,
                                 .unix_us = tw_replay_unix_us(replay, replay->now_us),
                                 .lineage = record->lineage,
                                 .digest = tw_record_digest(record)});
}

enum tw_status tw_decisions_read(struct decisions *decisions, const char *path,
                                 struct tw_error *err) {
    const struct replay_eyes eyes = {.self = decisions, .event = see_event, .action = see_action};
    memset(decisions, 0, sizeof(*decisions));
    TW_TRY(tw_replay_run(&decisions->replay, path, &eyes, err));
    if (decisions->is_short) return tw_fail(err, TW_NOMEM, "%s: no memory for its decisions", path);
    return TW_OK;
}

void tw_decisions_free(struct decisions *decisions) {
    tw_replay_free(&decisions->replay);
    free(decisions->rows);
    decisions->rows = NULL;
}

/* Orders by round, then records before anchors, then by fragment, then by time. */
static int by_round(const void *left, const void *right) {
    const struct decision *const a = left, *const b = right;
    if (a->round != b->round) return a->round < b->round ? -1 : 1;
    if (a->is_anchor != b->is_anchor) return a->is_anchor ? 1 : -1;
    if (a->fragment != b->fragment) return a->fragment < b->fragment ? -1 : 1;
    return a->unix_us < b->unix_us ? -1 : a->unix_us > b->unix_us;
}

static void sort(struct decisions *decisions) {
    if (decisions->count > 0)
        qsort(decisions->rows, decisions->count, sizeof(decisions->rows[0]), by_round);
}

static bool is_same_slot(const struct decision *a, const struct decision *b) {
    return a->round == b->round && a->is_anchor == b->is_anchor && a->fragment == b->fragment;
}

/* Returns the index of the last row with the round, kind and fragment of rows[i]. A node that loads
 * a state decides a round again, and its last decision counts. */
static size_t end_of(const struct decision *rows, size_t count, size_t i) {
    while (i + 1 < count && is_same_slot(&rows[i], &rows[i + 1])) i++;
    return i;
}

bool tw_decisions_differ(struct decisions *a, struct decisions *b, struct decision *of_a,
                         struct decision *of_b, size_t *common) {
    const struct decision *const rows_a = a->rows, *const rows_b = b->rows;
    sort(a);
    sort(b);
    bool is_found = false;
    *common = 0;
    for (size_t i = 0, k = 0; !is_found && i < a->count && k < b->count;) {
        const size_t last_i = end_of(rows_a, a->count, i), last_k = end_of(rows_b, b->count, k);
        struct decision left = rows_a[last_i], right = rows_b[last_k];
        left.unix_us = right.unix_us = 0;
        const int order = by_round(&left, &right);
        if (order == 0) {
            (*common)++;
            is_found = !tw_id_equal(&left.digest, &right.digest);
            *of_a = rows_a[last_i];
            *of_b = rows_b[last_k];
        }
        if (order <= 0) i = last_i + 1;
        if (order >= 0) k = last_k + 1;
    }
    return is_found;
}
