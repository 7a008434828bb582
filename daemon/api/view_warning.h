/* view_warning.h - problems that a person should look into, each with advice. Derived from the
 * status view alone. */
#ifndef TW_DAEMON_API_VIEW_WARNING_H
#define TW_DAEMON_API_VIEW_WARNING_H

#include <stdint.h>

#include "daemon/api/status_view.h"

enum { TW_WARNINGS_MAX = 16 };

/* Time for which a node must be missing before a person is told: restarts and short breaks of the
 * line end before. */
#define TW_WARNING_CLOCK_S 60 /* difference of two wall clocks that is told */
#define TW_WARNING_LOST_US (UINT64_C(120) * 1000 * 1000)

/* Kinds of warnings. Hooks, metrics and alert rules use their names (tw_warning_name). */
enum tw_warning_kind {
    TW_WARNING_WORKER_FAILED,
    TW_WARNING_WORKER_ABSENT,
    TW_WARNING_WORKER_RESTARTING,
    TW_WARNING_WORKER_SILENT,
    TW_WARNING_DEVICE_FAILED,
    TW_WARNING_CHECKPOINT_FAILED,
    TW_WARNING_VOTES_UNSAVED,
    TW_WARNING_ATTACK, /* first of TW_ATTACKS kinds, in the order of enum tw_attack_kind */
    TW_WARNING_DATA_UNUSABLE = TW_WARNING_ATTACK + TW_ATTACKS,
    TW_WARNING_DATA_UNSTORED,
    TW_WARNING_DATA_MISSING,
    TW_WARNING_DATA_PARTIAL,
    TW_WARNING_NOT_ADMITTED,
    TW_WARNING_CERTIFICATE_ENDS,
    TW_WARNING_TWIN,
    TW_WARNING_REFUSED,
    TW_WARNING_UNREACHABLE,
    TW_WARNING_TRAINS_ALONE,
    TW_WARNING_MEMBER_LOST,
    TW_WARNING_CLOCK_DIFFERS,
    TW_WARNING_NOT_MERGED,
    TW_WARNING_GROUP_FULL,
    TW_WARNING_STATE_WITHHELD,
    TW_WARNING_QUOTA_USED,
    TW_WARNING_LINKS_REST,
    TW_WARNING_BUDGET_SMALL,
    TW_WARNING_ROUND_LEFT_OUT,
    TW_WARNING_MERGING_HURTS,
    TW_WARNING_FINDING, /* first of TW_FINDINGS kinds, in the order of enum tw_finding */
    TW_WARNING_BAD_GRADIENTS = TW_WARNING_FINDING + TW_FINDINGS,
    TW_WARNING_LITTLE_TRAINING,
    TW_WARNING_LOOP_STUCK,
    TW_WARNING_WORK_LOST,
    TW_WARNING_KINDS,
};

struct tw_warning {
    char what[400];
    char way_out[200];
    enum tw_warning_kind kind;
    char about[9]; /* short id of the node concerned; "": this node */
};

/* Returns the name of a kind, such as "worker_absent". */
const char *tw_warning_name(enum tw_warning_kind kind);

/* Returns false for kinds that end by themselves and only explain why the node rests or waits. */
bool tw_warning_is_urgent(enum tw_warning_kind kind);

/* Writes a sentence that two machines use one key, without advice. `label` is the word for the node
 * with that key. */
void tw_view_twin_text(const struct tw_view_twin *twin, const char *label,
                       char text[TW_VIEW_TEXT_BYTES]);

/* Writes a sentence about work that a restart lost, without advice. */
void tw_view_lost_text(const struct tw_view_lost *lost, char text[TW_VIEW_TEXT_BYTES]);

/* Writes a finding about merging as a sentence, without advice. */
void tw_view_finding_text(const struct tw_view_health *health, enum tw_finding finding,
                          char text[TW_VIEW_TEXT_BYTES]);

/* Writes all warnings, the worst first. Returns their number. */
uint32_t tw_view_warnings(const struct tw_status_view *view,
                          struct tw_warning warnings[TW_WARNINGS_MAX]);

/* ==== when a warning is raised and cleared ==================================================== */

/* When each warning was raised and cleared, from repeated looks at the list of
 * warnings. Pure.
 *
 *   absent --seen--> RAISED --not seen for TW_WARNING_CLEAR_US--> CLEARED --told--> absent
 *
 * A warning is identified by its kind and the node concerned; its text may change while it lasts.
 * It counts as cleared only after TW_WARNING_CLEAR_US, so a warning that flickers is raised once. A
 * row stays until its last change is told. If a warning is cleared before it was told, its row is
 * dropped. */

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
