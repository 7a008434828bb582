#include "daemon/api/merge_health.h"

#include <math.h>

static bool is_bad_sign(const struct tw_merge_health *health, float live, float anchor) {
    if (!isfinite(anchor)) return true;
    if (anchor <= live * (1.0f + TW_MERGE_WORSE) || anchor <= live + TW_MERGE_LEAST) return false;
    return health->anchor - anchor < TW_MERGE_PROGRESS * (anchor - live);
}

bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments) {
    const bool was_bad = health->is_bad;
    if (!isfinite(live)) return false;
    if (rounds < health->rounds) *health = (struct tw_merge_health){0}; /* another lineage */
    if (anchor <= live * (1.0f + TW_MERGE_BACK)) health->is_bad = false;
    /* Until each fragment was merged again, the anchor had no chance to follow. */
    if (health->has_anchor && rounds < health->rounds + fragments) return health->is_bad != was_bad;
    if (health->has_anchor && is_bad_sign(health, live, anchor)) {
        if (health->bad_signs < TW_MERGE_SIGNS) health->bad_signs++;
    } else {
        health->bad_signs = 0;
    }
    if (health->bad_signs == TW_MERGE_SIGNS) health->is_bad = true;
    /* An anchor counts only once all of its fragments were merged. */
    if (rounds < fragments) return health->is_bad != was_bad;
    health->has_anchor = true;
    health->anchor = isfinite(anchor) ? anchor : INFINITY;
    health->rounds = rounds;
    return health->is_bad != was_bad;
}
