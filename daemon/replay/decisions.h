/* decisions.h - the decisions and anchors in a log, and the first one that differs between two
 * nodes. */
#ifndef TW_DAEMON_REPLAY_DECISIONS_H
#define TW_DAEMON_REPLAY_DECISIONS_H

#include <stddef.h>

#include "base/status.h"
#include "daemon/replay/replay.h"

/* A committed round, or the anchor of a fragment after a round was applied to it. */
struct decision {
    bool is_anchor;
    uint32_t fragment, contributors;
    uint64_t round, unix_us; /* round; for an anchor, the number of rounds applied */
    struct tw_id lineage;    /* lineage of a committed round */
    struct tw_id digest;     /* digest of the record, or of (phi, u) */
};

struct decisions {
    struct replay replay;
    size_t count, capacity;
    bool is_short;         /* there was no memory for one */
    struct decision *rows; /* in the order of the log */
};

/* Replays the log at `path` and collects its decisions. Returns the errors of tw_replay_run, and
 * TW_NOMEM. The caller frees with tw_decisions_free, also after an error. */
enum tw_status tw_decisions_read(struct decisions *decisions, const char *path,
                                 struct tw_error *err);
void tw_decisions_free(struct decisions *decisions);

/* Finds the first round whose decision differs between `a` and `b`. Returns false if there is none.
 * *common gets the number of compared decisions that both logs have. Sorts the rows of both. */
bool tw_decisions_differ(struct decisions *a, struct decisions *b, struct decision *of_a,
                         struct decision *of_b, size_t *common);

#endif
