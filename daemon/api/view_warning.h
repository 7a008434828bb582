/* view_warning.h - problems that a person should look into, each with a way out. Judged from the
 * status view alone. */
#ifndef TW_DAEMON_API_VIEW_WARNING_H
#define TW_DAEMON_API_VIEW_WARNING_H

#include <stdint.h>

#include "daemon/api/status_view.h"

enum { TW_WARNINGS_MAX = 16 };

/* Kinds of warnings. Hooks, metrics and alert rules know them by name (tw_warning_name). */
enum tw_warning_kind {
    TW_WARNING_WORKER_FAILED,
    TW_WARNING_WORKER_ABSENT,
    TW_WARNING_WORKER_RESTARTING,
    TW_WARNING_WORKER_SILENT,
    TW_WARNING_DEVICE_FAILED,
    TW_WARNING_CHECKPOINT_FAILED,
    TW_WARNING_VOTES_UNSAVED,
    TW_WARNING_ATTACK, /* first of TW_ATTACKS, in their order */
    TW_WARNING_DATA_UNUSABLE = TW_WARNING_ATTACK + TW_ATTACKS,
    TW_WARNING_DATA_UNSTORED,
    TW_WARNING_DATA_MISSING,
    TW_WARNING_DATA_PARTIAL,
    TW_WARNING_NOT_ADMITTED,
    TW_WARNING_CERTIFICATE_ENDS,
    TW_WARNING_TWIN,
    TW_WARNING_REFUSED,
    TW_WARNING_UNREACHABLE,
    TW_WARNING_NOT_MERGED,
    TW_WARNING_GROUP_FULL,
    TW_WARNING_QUOTA_USED,
    TW_WARNING_LINKS_REST,
    TW_WARNING_BUDGET_SMALL,
    TW_WARNING_ROUND_LEFT_OUT,
    TW_WARNING_MERGING_HURTS,
    TW_WARNING_FINDING, /* first of TW_FINDINGS, in their order */
    TW_WARNING_BAD_GRADIENTS = TW_WARNING_FINDING + TW_FINDINGS,
    TW_WARNING_LITTLE_TRAINING,
    TW_WARNING_LOOP_STUCK,
    TW_WARNING_KINDS,
};

struct tw_warning {
    char what[400];
    char way_out[200];
    enum tw_warning_kind kind;
    char about[9]; /* short id of the node that it is about; "": this node */
};

/* "worker_absent", ... */
const char *tw_warning_name(enum tw_warning_kind kind);

/* False for kinds that end by themselves and tell only why the node rests or waits. */
bool tw_warning_is_urgent(enum tw_warning_kind kind);

/* The fact that two machines have one key, as a sentence without its way out. */
void tw_view_twin_text(const struct tw_view_twin *twin, char text[TW_VIEW_TEXT_BYTES]);

/* Writes a finding about merging, as a sentence without the remedy. */
void tw_view_finding_text(const struct tw_view_health *health, enum tw_finding finding,
                          char text[TW_VIEW_TEXT_BYTES]);

/* Writes the worst first. Returns the number of warnings written. */
uint32_t tw_view_warnings(const struct tw_status_view *view,
                          struct tw_warning warnings[TW_WARNINGS_MAX]);

#endif
