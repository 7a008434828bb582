#include "worker/merge/pair_guard.h"

#include "base/assert.h"
#include "kernels/median.h"

_Static_assert((int)TW_PAIR_GUARD_KEPT <= (int)TW_MEDIAN_MAX, "the median takes them all");

/* Assumed size of an anchor's change in a few dozen steps, relative to the anchor. Used until
 * enough partners' payloads are known. */
#define UNKNOWN 0.05

static double larger(double a, double b) {
    return a > b ? a : b;
}

static float factor(double size, double most) {
    return size > most ? (float)(most / size) : 1.0f;
}

struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes) {
    const uint32_t count = guard->count < TW_PAIR_GUARD_KEPT ? guard->count : TW_PAIR_GUARD_KEPT;
    const bool is_known = count >= TW_PAIR_GUARD_LEAST;
    double deltas = is_known ? tw_median_low(guard->deltas, count) : 0;
    double aparts = is_known ? tw_median_low(guard->aparts, count) : 0;
    const bool may_refuse = deltas > 0;
    if (!(deltas > 0)) deltas = UNKNOWN * sizes->anchor;
    if (!(aparts > 0)) aparts = UNKNOWN * sizes->anchor;
    deltas = larger(sizes->delta_own, deltas);
    aparts = larger(sizes->delta_own, aparts);
    const uint32_t row = guard->count++ % TW_PAIR_GUARD_KEPT;
    guard->deltas[row] = sizes->delta_theirs;
    guard->aparts[row] = sizes->apart;
    return (struct tw_pair_verdict){
        .is_refused = (may_refuse && sizes->delta_theirs > TW_PAIR_GUARD_REFUSED * deltas) ||
                      sizes->apart > TW_PAIR_GUARD_FAR * sizes->anchor,
        .delta = factor(sizes->delta_theirs, TW_PAIR_GUARD_SCALED * deltas),
        .pull = factor(sizes->apart, TW_PAIR_GUARD_PULLED * aparts),
    };
}
