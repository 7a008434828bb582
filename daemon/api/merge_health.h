/* merge_health.h - does merging help this node, or hurt it? Judged from its evaluations.
 *
 * Each evaluation gives the held-out loss of the live parameters and of the anchor. The anchor lags
 * behind the live parameters by the work that is not merged yet, most at the start of a run. In
 * healthy runs it catches up with each cycle of fragments: in the lab (tests/nat, preset streaming,
 * 3 to 8 nodes) it was at most 16 % worse in the first evaluation, and never again worse by 0.5 %.
 * Where merging was broken it stood still or rose, 10 to 80 % above the live loss.
 *
 * An evaluation is a bad sign if the anchor is worse than the live parameters by more than
 * TW_MERGE_WORSE and TW_MERGE_LEAST, and has not improved by TW_MERGE_PROGRESS of that distance.
 * It is judged only if each fragment was merged since the last judged one. Two bad signs in
 * a row are a finding. While it holds, the node goes on with its own parameters: merges change the
 * anchor and leave them (daemon/node/health.h). Its contributions go on, because they pull the
 * anchor back. The finding ends when the anchor is as good as the live parameters again, within
 * TW_MERGE_BACK, or when the node changes its lineage. Progress alone does not end it: a merge
 * would carry the parameters to an anchor that is still worse. Pure. */
#ifndef TW_DAEMON_API_MERGE_HEALTH_H
#define TW_DAEMON_API_MERGE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define TW_MERGE_WORSE 0.05f /* difference of the losses, as a fraction of the live loss */
#define TW_MERGE_LEAST 0.05f /* difference in nats: near a loss of 0, a fraction of it is noise */
/* progress of the anchor's loss, as a fraction of its distance to the live loss */
#define TW_MERGE_PROGRESS 0.10f
#define TW_MERGE_BACK 0.02f /* difference that ends a finding, as a fraction of the live loss */

enum { TW_MERGE_SIGNS = 2 };

struct tw_merge_health {
    bool has_anchor;
    float anchor;       /* loss of the anchor when it was looked at last */
    uint64_t rounds;    /* rounds in the anchor at that time */
    uint32_t bad_signs; /* number of bad signs in a row */
    bool is_bad;        /* the finding holds */
};

/* Looks at one evaluation. rounds: in every fragment of the anchor. fragments: merged in turn, at
 * least 1. Returns whether the finding began or ended with it. Losses that are not finite are bad
 * signs where the live loss is finite, and say nothing otherwise. */
bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments);

#endif
