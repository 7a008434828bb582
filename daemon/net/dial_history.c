#include "daemon/net/dial_history.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Returns the row of that address, searched from index `begin` on, or NULL. */
static struct tw_dial_row *row_from(struct tw_dial_history *history, uint32_t begin,
                                    const char *address) {
    for (uint32_t i = begin; i < TW_DIAL_HISTORY_ROWS; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return &history->rows[i];
    }
    return NULL;
}

static struct tw_dial_row *row_of(struct tw_dial_history *history, const char *address) {
    return address[0] != '\0' ? row_from(history, 0, address) : NULL;
}

void tw_dial_history_configure(struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < history->configured_count; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return;
    }
    /* All rows for configured addresses are used: this one shares the rows of the others. */
    if (history->configured_count == TW_DIAL_HISTORY_CONFIGURED) return;
    struct tw_dial_row *row = &history->rows[history->configured_count++];
    *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
    (void)snprintf(row->address, sizeof(row->address), "%s", address);
}

bool tw_dial_history_is_configured(const struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < history->configured_count; i++) {
        if (strcmp(history->rows[i].address, address) == 0) return true;
    }
    return false;
}

const struct tw_dial_row *tw_dial_history_find(const struct tw_dial_history *history,
                                               const char *address) {
    return row_of((struct tw_dial_history *)history, address);
}

/* Returns a new row for an address that has none. If the table is full, it replaces another row and
 * sets *is_full. */
static struct tw_dial_row *row_take(struct tw_dial_history *history, const char *address,
                                    bool *is_full) {
    struct tw_dial_row *row = row_from(history, TW_DIAL_HISTORY_CONFIGURED, "");
    *is_full = row == NULL;
    if (*is_full)
        row = &history->rows[TW_DIAL_HISTORY_CONFIGURED +
                             history->others_next++ % TW_DIAL_HISTORY_OTHERS];
    *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
    (void)snprintf(row->address, sizeof(row->address), "%s", address);
    return row;
}

bool tw_dial_history_failed(struct tw_dial_history *history, const char *address,
                            const struct tw_dial_failure *failure, uint64_t now_us,
                            uint64_t *held_back) {
    bool is_full = false;
    struct tw_dial_row *row = row_of(history, address);
    if (row == NULL) row = row_take(history, address, &is_full);
    /* Compares causes, not sentences: the numbers in a sentence differ every time. */
    const bool is_news = !is_full && (row->failures == 0 || row->cause != failure->cause);
    (void)snprintf(row->sentence, sizeof(row->sentence), "%s", failure->sentence);
    row->alike = row->failures > 0 && row->cause == failure->cause ? row->alike : 0;
    if (row->alike < UINT32_MAX) row->alike++;
    row->cause = failure->cause;
    row->other = failure->other != NULL ? *failure->other : (struct tw_id){{0}};
    row->failed_us = now_us;
    if (row->failures < UINT32_MAX) row->failures++;
    *held_back = 0;
    return is_news || tw_log_may_say(&history->limit, now_us, TW_DIAL_HISTORY_LINE_US, held_back);
}

bool tw_dial_history_is_event(const struct tw_dial_history *history, const char *address) {
    const struct tw_dial_row *row = tw_dial_history_find(history, address);
    uint32_t alike = row != NULL ? row->alike : 1;
    while (alike > 0 && alike % 10 == 0) alike /= 10;
    return alike == 1;
}

void tw_dial_history_worked(struct tw_dial_history *history, const char *address) {
    for (uint32_t i = 0; i < TW_DIAL_HISTORY_ROWS; i++) {
        struct tw_dial_row *row = &history->rows[i];
        if (row->address[0] == '\0' || strcmp(row->address, address) != 0) continue;
        *row = (struct tw_dial_row){.cause = TW_DIAL_NONE};
        if (i < history->configured_count)
            (void)snprintf(row->address, sizeof(row->address), "%s", address);
    }
}
