#include "daemon/api/merge_health.h"

#include <math.h>
#include <string.h>

static bool is_worse(float loss, float than, float fraction) {
    return loss > than * (1.0f + fraction) && loss > than + TW_MERGE_LEAST;
}

static bool has_risen(const struct tw_merge_health *health, float live, float anchor) {
    if (!is_worse(anchor, live, TW_MERGE_WORSE)) return false;
    for (uint32_t i = 0; i < health->points_count; i++) {
        if (is_worse(anchor, health->points[i].loss, TW_MERGE_WORSE)) return true;
    }
    return false;
}

static bool stands(const struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                   uint32_t fragments) {
    if (!is_worse(anchor, live, TW_MERGE_BEHIND)) return false;
    const uint64_t window = (uint64_t)TW_MERGE_CYCLES * fragments;
    for (uint32_t i = 0; i < health->points_count; i++) {
        const struct tw_merge_point *const point = &health->points[i];
        if (rounds >= point->rounds + window)
            return point->loss - anchor < TW_MERGE_PROGRESS * (anchor - live);
    }
    return false;
}

static void keep_point(struct tw_merge_health *health, float anchor, uint64_t rounds) {
    struct tw_merge_point *const points = health->points;
    memmove(&points[1], &points[0], (TW_MERGE_CYCLES - 1) * sizeof(points[0]));
    points[0] = (struct tw_merge_point){isfinite(anchor) ? anchor : INFINITY, rounds};
    if (health->points_count < TW_MERGE_CYCLES) health->points_count++;
}

static void note_sign(struct tw_merge_health *health, bool is_bad_sign, uint64_t rounds,
                      uint32_t fragments) {
    if (!is_bad_sign) {
        health->bad_signs = 0;
        return;
    }
    if (health->bad_signs++ == 0) health->bad_since = rounds;
    const uint64_t settles = (uint64_t)TW_MERGE_SETTLES * fragments;
    if (health->bad_signs >= TW_MERGE_SIGNS && rounds >= health->bad_since + settles)
        health->is_bad = true;
}

bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments) {
    const bool was_bad = health->is_bad;
    if (!isfinite(live)) return false;
    if (health->points_count > 0 && rounds < health->points[0].rounds)
        *health = (struct tw_merge_health){0}; /* another lineage */
    if (anchor <= live * (1.0f + TW_MERGE_BACK)) health->is_bad = false;
    /* Before every fragment has been merged again, the anchor cannot have caught up. */
    const uint64_t last = health->points_count > 0 ? health->points[0].rounds : 0;
    if (rounds < last + fragments) return health->is_bad != was_bad;
    const bool is_bad_sign =
        health->points_count > 0 && (!isfinite(anchor) || has_risen(health, live, anchor) ||
                                     stands(health, live, anchor, rounds, fragments));
    note_sign(health, is_bad_sign, rounds, fragments);
    keep_point(health, anchor, rounds);
    return health->is_bad != was_bad;
}
