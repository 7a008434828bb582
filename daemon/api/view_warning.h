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

/* Kinds of warnings. Hooks, metrics and alert rules use their names. Attacks are in the order of
 * enum tw_attack_kind, findings about merging in that of enum tw_finding. */
#define TW_WARNING_LIST(X)                                                                         \
    X(WORKER_FAILED, "worker_failed")                                                              \
    X(WORKER_ABSENT, "worker_absent")                                                              \
    X(WORKER_RESTARTING, "worker_restarting")                                                      \
    X(WORKER_SILENT, "worker_silent")                                                              \
    X(DEVICE_FAILED, "device_failed")                                                              \
    X(CHECKPOINT_FAILED, "checkpoint_failed")                                                      \
    X(VOTES_UNSAVED, "votes_unsaved")                                                              \
    X(ATTACK_FORGED, "attack_forged")                                                              \
    X(ATTACK_TWO_FACED, "attack_two_faced")                                                        \
    X(GROUP_LEFT, "group_left")                                                                    \
    X(ATTACK_MERGE, "attack_merge")                                                                \
    X(ATTACK_OVERSIZED, "attack_oversized")                                                        \
    X(ATTACK_STATE, "attack_state")                                                                \
    X(ATTACK_UNTRAINED, "attack_untrained")                                                        \
    X(ATTACK_PROTOCOL, "attack_protocol")                                                          \
    X(DATA_UNUSABLE, "data_unusable")                                                              \
    X(DATA_UNSTORED, "data_unstored")                                                              \
    X(DATA_MISSING, "data_missing")                                                                \
    X(DATA_PARTIAL, "data_partial")                                                                \
    X(NOT_ADMITTED, "not_admitted")                                                                \
    X(CERTIFICATE_ENDS, "certificate_ends")                                                        \
    X(TWIN, "twin")                                                                                \
    X(REFUSED, "refused")                                                                          \
    X(UNREACHABLE, "unreachable")                                                                  \
    X(TRAINS_ALONE, "trains_alone")                                                                \
    X(MEMBER_LOST, "member_lost")                                                                  \
    X(CLOCK_DIFFERS, "clock_differs")                                                              \
    X(NOT_MERGED, "not_merged")                                                                    \
    X(GROUP_FULL, "group_full")                                                                    \
    X(STATE_WITHHELD, "state_withheld")                                                            \
    X(QUOTA_USED, "quota_used")                                                                    \
    X(LINKS_REST, "links_rest")                                                                    \
    X(BUDGET_SMALL, "budget_small")                                                                \
    X(ROUND_LEFT_OUT, "round_left_out")                                                            \
    X(MERGING_HURTS, "merging_hurts")                                                              \
    X(WORK_REFUSED, "work_refused")                                                                \
    X(WORK_LEFT_OUT, "work_left_out")                                                              \
    X(TAKES_OVER, "takes_over")                                                                    \
    X(FAR_FROM_ANCHOR, "far_from_anchor")                                                          \
    X(LOSS_RISES, "loss_rises")                                                                    \
    X(ROUND_STUCK, "round_stuck")                                                                  \
    X(ANCHOR_DIFFERS, "anchor_differs")                                                            \
    X(NO_SEAT, "no_seat")                                                                          \
    X(BAD_GRADIENTS, "bad_gradients")                                                              \
    X(LITTLE_TRAINING, "little_training")                                                          \
    X(LOOP_STUCK, "loop_stuck")                                                                    \
    X(WORK_LOST, "work_lost")
#define X(kind, name) TW_WARNING_##kind,
enum tw_warning_kind {
    TW_WARNING_LIST(X) TW_WARNING_KINDS,
    TW_WARNING_ATTACK = TW_WARNING_ATTACK_FORGED,
    TW_WARNING_FINDING = TW_WARNING_WORK_REFUSED,
};
#undef X

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
