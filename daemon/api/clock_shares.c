/* clock_shares.c - how much of the run clock each member moved in the newest rounds. */
#include "daemon/api/clock_shares.h"

#include <math.h>

static const double HIGH = 0.3, HIGH_TIMES = 2, LEAST = 1e-3;

static int find(const struct tw_clock_shares *shares, const struct tw_id *id) {
    for (uint32_t i = 0; i < shares->count; i++) {
        if (tw_id_equal(&shares->rows[i].id, id)) return (int)i;
    }
    return -1;
}

static double sum_of(const struct tw_clock_shares *shares) {
    double sum = 0;
    for (uint32_t i = 0; i < shares->count; i++) sum += shares->rows[i].tokens;
    return sum;
}

/* Lets all rows age by a round, and drops those that no longer count. */
static void age(struct tw_clock_shares *shares) {
    const double least = LEAST * sum_of(shares);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < shares->count; i++) {
        shares->rows[i].tokens *= exp(-1.0 / TW_CLOCK_ROUNDS);
        if (shares->rows[i].tokens > least) shares->rows[kept++] = shares->rows[i];
    }
    shares->count = kept;
}

static void add(struct tw_clock_shares *shares, const struct tw_id *id, uint64_t tokens) {
    int at = find(shares, id);
    if (at < 0) {
        if (tokens == 0 || shares->count == TW_MEMBERS_MAX) return;
        at = (int)shares->count++;
        shares->rows[at].id = *id;
        shares->rows[at].tokens = 0;
    }
    shares->rows[at].tokens += (double)tokens;
}

void tw_clock_shares_note(struct tw_clock_shares *shares, const struct tw_record *record) {
    const struct tw_roster *const roster = &shares->tip.next;
    const bool follows =
        !tw_id_is_zero(&shares->tip_digest) && tw_id_equal(&record->parent, &shares->tip_digest);
    if (!tw_id_equal(&shares->lineage, &record->lineage)) shares->count = 0;
    if (follows && tw_id_equal(&shares->lineage, &record->lineage)) {
        const uint64_t most = tw_record_tokens_max(record, &shares->tip);
        age(shares);
        for (uint32_t i = 0; i < record->contributors_count; i++) {
            const struct tw_contributor *const by = &record->contributors[i];
            if (by->member_idx >= roster->count) continue;
            add(shares, &roster->members[by->member_idx].id, by->tokens < most ? by->tokens : most);
        }
    }
    shares->lineage = record->lineage;
    shares->tip = *record;
    shares->tip_digest = tw_record_digest(record);
}

double tw_clock_share(const struct tw_clock_shares *shares, const struct tw_id *id) {
    const double sum = sum_of(shares);
    const int at = find(shares, id);
    if (!(sum > 0)) return NAN;
    return at < 0 ? 0 : shares->rows[at].tokens / sum;
}

bool tw_clock_share_is_high(const struct tw_clock_shares *shares, const struct tw_id *id) {
    if (shares->count < TW_CLOCK_TRAINERS) return false;
    const double share = tw_clock_share(shares, id);
    return share > HIGH && share > HIGH_TIMES / shares->count;
}
