#include "daemon/api/warning_watch.h"

#include <string.h>

static bool is_same(const struct tw_warning *a, const struct tw_warning *b) {
    return a->kind == b->kind && strcmp(a->about, b->about) == 0;
}

/* Returns the row of a warning, else an unused row, or NULL if there is neither. */
static struct tw_warning_row *find_row(struct tw_warning_watch *watch,
                                       const struct tw_warning *warning) {
    struct tw_warning_row *unused = NULL;
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && is_same(&row->warning, warning)) return row;
        if (!row->is_used && unused == NULL) unused = row;
    }
    return unused;
}

/* Frees rows of warnings that were cleared and have no change left to report. */
static void drop_rows(struct tw_warning_watch *watch) {
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && !row->is_raised && !row->is_told) row->is_used = false;
    }
}

uint32_t tw_warning_watch_look(struct tw_warning_watch *watch, const struct tw_warning *warnings,
                               uint32_t count, uint64_t now_us,
                               const struct tw_warning_row **changed) {
    uint32_t changes = 0;
    drop_rows(watch);
    for (uint32_t i = 0; i < count; i++) {
        struct tw_warning_row *const row = find_row(watch, &warnings[i]);
        if (row == NULL) continue;
        if (!row->is_used) *row = (struct tw_warning_row){.is_used = true};
        row->warning = warnings[i];
        row->seen_us = now_us;
        if (!row->is_raised) changed[changes++] = row;
        row->is_raised = true;
    }
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (!row->is_raised || now_us - row->seen_us < TW_WARNING_CLEAR_US) continue;
        row->is_raised = false;
        changed[changes++] = row;
    }
    return changes;
}

struct tw_warning_row *tw_warning_watch_untold(struct tw_warning_watch *watch) {
    for (uint32_t i = 0; i < TW_WARNING_ROWS_MAX; i++) {
        struct tw_warning_row *const row = &watch->rows[i];
        if (row->is_used && row->is_raised != row->is_told &&
            tw_warning_is_urgent(row->warning.kind))
            return row;
    }
    return NULL;
}
