/* decisions.h - the decisions and anchors in a log, and the first in which two nodes differ. */
#ifndef TW_DAEMON_REPLAY_DECISIONS_H
#define TW_DAEMON_REPLAY_DECISIONS_H

#include <stddef.h>

#include "base/status.h"
#include "daemon/replay/replay.h"

/* A committed round, or the anchor of a fragment after a round was applied. */
struct decision {
    bool is_anchor;
    uint32_t fragment, contributors;
    uint64_t round, unix_us; /* anchor: rounds applied */
    struct tw_id lineage;    /* committed round */
    struct tw_id digest;     /* digest of the record, or of (phi, u) */
};

struct decisions {
    struct replay replay;
    size_t count, capacity;
    struct decision *rows; /* in the order of the log */
};

/* Replays the log at `path` and collects its decisions. Errors as of tw_replay_run. The caller
 * frees with tw_decisions_free, also after an error. */
enum tw_status tw_decisions_read(struct decisions *decisions, const char *path,
                                 struct tw_error *err);
void tw_decisions_free(struct decisions *decisions);

/* The first decision of `a`, by its round, to which `b` has another one; false: there is none.
 * *common: decisions that both have. */
bool tw_decisions_differ(const struct decisions *a, const struct decisions *b,
                         struct decision *of_a, struct decision *of_b, size_t *common);

#endif
