/* merge_health.h - does merging help this node, or hurt it? Judged from its evaluations.
 *
 * Each evaluation gives the held-out loss of the live parameters and of the anchor. The anchor lags
 * behind the live parameters by the work that is not merged yet. The gap is largest at the start of
 * a run, when the anchor's loss may be twice as high. In healthy runs the anchor catches up within
 * some cycles (merges of every fragment). Where merging was broken, its loss stagnated or rose, 10
 * to 80 % above the live loss.
 *
 * An evaluation is judged if each fragment was merged since the last judged one. There are two bad
 * signs:
 *
 * - The anchor's loss has risen: it exceeds, by TW_MERGE_WORSE, both the live loss and the anchor's
 *   loss at one of the last TW_MERGE_CYCLES judged evaluations.
 * - The anchor's loss stagnates: it exceeds the live loss by TW_MERGE_BEHIND. And since a judged
 *   evaluation at least TW_MERGE_CYCLES cycles ago it has not closed TW_MERGE_PROGRESS of its gap
 *   to the live loss. One cycle is too short to judge: a small model needs a tenth of a second for
 *   it, and healthy anchors move in leaps. Anchors merged by sparse codecs stay 6 % behind for a
 *   while.
 *
 * A finding begins at the second or a later bad sign in a row, once TW_MERGE_SETTLES cycles lie
 * between the first and the last. A large outer step, as after a time alone, carries minutes of
 * work: its momentum makes the anchor overshoot and return within fewer cycles.
 *
 * While the finding holds, the node goes on with its own parameters: merges change its anchor but
 * not its parameters (daemon/node/health.h). It still contributes, because its contributions pull
 * the anchor back. The finding ends when the anchor is as good as the live parameters again, within
 * TW_MERGE_BACK, or when the node changes its lineage. Progress alone does not end it: a merge
 * would pull the parameters to an anchor that is still worse. Pure. */
#ifndef TW_DAEMON_API_MERGE_HEALTH_H
#define TW_DAEMON_API_MERGE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define TW_MERGE_WORSE 0.05f  /* risen: excess over live and earlier loss, as a fraction */
#define TW_MERGE_BEHIND 0.08f /* stagnating: excess over the live loss, as a fraction of it */
#define TW_MERGE_LEAST 0.05f  /* least excess in nats: near 0, a fraction of the loss is noise */
/* progress of the anchor's loss, as a fraction of its distance to the live loss */
#define TW_MERGE_PROGRESS 0.25f
#define TW_MERGE_BACK 0.02f /* excess that ends a finding, as a fraction of the live loss */

enum { TW_MERGE_SIGNS = 2, TW_MERGE_CYCLES = 4, TW_MERGE_SETTLES = 2 };

/* The anchor at one judged evaluation. */
struct tw_merge_point {
    float loss;
    uint64_t rounds; /* committed rounds that every fragment of the anchor includes */
};

struct tw_merge_health {
    struct tw_merge_point points[TW_MERGE_CYCLES]; /* anchors at the last judged evaluations, newest
                                                      first */
    uint32_t points_count;
    uint32_t bad_signs; /* consecutive bad signs */
    uint64_t bad_since; /* rounds at the first of these bad signs */
    bool is_bad;        /* the finding holds */
};

/* Judges one evaluation. live, anchor: held-out losses. rounds: committed rounds that every
 * fragment of the anchor includes. fragments: number of fragments, at least 1. Returns whether the
 * finding began or ended. A non-finite anchor loss is a bad sign. An evaluation with a non-finite
 * live loss is ignored. */
bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments);

#endif
