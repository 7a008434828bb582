/* warning_watch.h - when a warning was raised and cleared, from looks at the list of warnings.
 * Pure.
 *
 *   absent --seen--> RAISED --not seen for TW_WARNING_CLEAR_US--> CLEARED --told--> absent
 *
 * A warning is known by its kind and the node that it is about; its text may change while it lasts.
 * It is taken as cleared only after a while, so that one that flickers is raised once. A row stays
 * until its last change is told, or is dropped if neither change was told. */
#ifndef TW_DAEMON_API_WARNING_WATCH_H
#define TW_DAEMON_API_WARNING_WATCH_H

#include "daemon/api/view_warning.h"

enum { TW_WARNING_ROWS_MAX = 2 * TW_WARNINGS_MAX };

#define TW_WARNING_CLEAR_US (UINT64_C(5) * 1000 * 1000)

struct tw_warning_row {
    bool is_used, is_raised;
    bool is_told;              /* the last change that was told is that it was raised */
    struct tw_warning warning; /* as last seen */
    uint64_t seen_us;
};

/* All zero is empty. */
struct tw_warning_watch {
    struct tw_warning_row rows[TW_WARNING_ROWS_MAX];
};

/* Takes the warnings of this moment. Writes the rows that changed to changed[TW_WARNING_ROWS_MAX]
 * and returns their number. A warning that finds no row waits for one. */
uint32_t tw_warning_watch_look(struct tw_warning_watch *watch, const struct tw_warning *warnings,
                               uint32_t count, uint64_t now_us,
                               const struct tw_warning_row **changed);

/* The next urgent row whose last change is not told; NULL: none. */
struct tw_warning_row *tw_warning_watch_untold(struct tw_warning_watch *watch);

#endif
