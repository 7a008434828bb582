/* merge_health.h - does merging help this node, or hurt it? Judged from its evaluations.
 *
 * Each evaluation gives the held-out loss of the live parameters and of the anchor. The anchor lags
 * behind the live parameters by the work that is not merged yet, most at the start of a run, when
 * it may be twice as bad. In healthy runs it catches up within some cycles of fragments. Where
 * merging was broken it stood still or rose, 10 to 80 % above the live loss.
 *
 * An evaluation is judged if each fragment was merged since the last judged one. There are two bad
 * signs:
 *
 * - The anchor has risen: it is worse by TW_MERGE_WORSE than the live parameters, and than it was
 *   at one of the last TW_MERGE_CYCLES judged evaluations.
 * - The anchor stands: it is worse by TW_MERGE_BEHIND than the live parameters, and since a judged
 *   evaluation TW_MERGE_CYCLES cycles ago it has not improved by TW_MERGE_PROGRESS of its distance
 *   to the live loss. A single cycle says little: it is a tenth of a second of a small model, and
 *   healthy anchors move in leaps. Sparse ones stay 6 % behind for a while.
 *
 * Bad signs in two evaluations in a row, or more, are a finding if TW_MERGE_SETTLES cycles lie
 * between them: the momentum of an outer step that carries the work of minutes, as after a lonely
 * time, takes the anchor too far and back within less. While it holds, the node goes on with its
 * own parameters: merges change the anchor and leave them (daemon/node/health.h). Its contributions
 * go on, because they pull the anchor back. The finding ends when the anchor is as good as the live
 * parameters again, within TW_MERGE_BACK, or when the node changes its lineage. Progress alone does
 * not end it: a merge would carry the parameters to an anchor that is still worse. Pure. */
#ifndef TW_DAEMON_API_MERGE_HEALTH_H
#define TW_DAEMON_API_MERGE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define TW_MERGE_WORSE 0.05f  /* difference of two losses, as a fraction of the smaller one */
#define TW_MERGE_BEHIND 0.08f /* likewise */
#define TW_MERGE_LEAST 0.05f  /* in nats, of both: near a loss of 0, a fraction of it is noise */
/* progress of the anchor's loss, as a fraction of its distance to the live loss */
#define TW_MERGE_PROGRESS 0.25f
#define TW_MERGE_BACK 0.02f /* difference that ends a finding, as a fraction of the live loss */

enum { TW_MERGE_SIGNS = 2, TW_MERGE_CYCLES = 4, TW_MERGE_SETTLES = 2 };

/* The anchor at a judged evaluation. */
struct tw_merge_point {
    float loss;
    uint64_t rounds; /* rounds in every fragment of it */
};

struct tw_merge_health {
    struct tw_merge_point points[TW_MERGE_CYCLES]; /* the last ones, newest first */
    uint32_t points_count;
    uint32_t bad_signs; /* number of bad signs in a row */
    uint64_t bad_since; /* rounds at the first of them */
    bool is_bad;        /* the finding holds */
};

/* Looks at one evaluation. rounds: in every fragment of the anchor. fragments: merged in turn, at
 * least 1. Returns whether the finding began or ended with it. Losses that are not finite are bad
 * signs where the live loss is finite, and say nothing otherwise. */
bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments);

#endif
