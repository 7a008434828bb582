/* warning_watch.h - when each warning was raised and cleared, from repeated looks at the list of
 * warnings. Pure.
 *
 *   absent --seen--> RAISED --not seen for TW_WARNING_CLEAR_US--> CLEARED --told--> absent
 *
 * A warning is identified by its kind and the node concerned; its text may change while it lasts.
 * It counts as cleared only after TW_WARNING_CLEAR_US, so a warning that flickers is raised once. A
 * row stays until its last change is told. If a warning is cleared before it was told, its row is
 * dropped. */
#ifndef TW_DAEMON_API_WARNING_WATCH_H
#define TW_DAEMON_API_WARNING_WATCH_H

#include "daemon/api/view_warning.h"

enum { TW_WARNING_ROWS_MAX = 2 * TW_WARNINGS_MAX };

#define TW_WARNING_CLEAR_US (UINT64_C(5) * 1000 * 1000)

struct tw_warning_row {
    bool is_used, is_raised;
    bool is_told; /* the hook was told that the warning is raised, but not that it is cleared */
    struct tw_warning warning; /* as last seen */
    uint64_t seen_us;
};

/* All zero is empty. */
struct tw_warning_watch {
    struct tw_warning_row rows[TW_WARNING_ROWS_MAX];
};

/* Processes the current list of warnings. Writes the rows that changed to
 * changed[TW_WARNING_ROWS_MAX] and returns their number. If the table is full, a new warning waits
 * for a free row. */
uint32_t tw_warning_watch_look(struct tw_warning_watch *watch, const struct tw_warning *warnings,
                               uint32_t count, uint64_t now_us,
                               const struct tw_warning_row **changed);

/* Returns the next urgent row whose last change is not told yet, or NULL if there is none. */
struct tw_warning_row *tw_warning_watch_untold(struct tw_warning_watch *watch);

#endif
