/* conduct.c - penalties against members and peers for misbehaviour that this node found.
 *
 *   strike    Owner of a false result. The group left the result out, and this node refuses it
 *             too; or the result does not decode; or an audit had another result (check/audit.c).
 *             The last two are proofs, on which all honest members agree. The first is lifted if
 *             an audit finds the merge correct. For a while the owner gets no part, and is not
 *             waited for as a proposer. Without proof, owners lose at most a third of a round
 *             (round/proposal.c). The owner still votes and contributes: the guard bounds
 *             contributions. In pairs: a partner whose payloads do not decode or are far too large.
 *   stall     A linked member that holds up rounds. As an owner: it contributed or reduces, and
 *             other members waited for its result in vain. As a proposer: see vote/acceptor.c.
 * It gets no part and is not waited for. unmerged  A contribution to our part was too large to be
 * merged (kernels/outlier.h). The contributor keeps the work and sends less the next time, so an
 * honest node recovers soon. A node that never recovers is broken or lies: it is reported at a
 * falling rate. donor     In pairs, a node whose state was taken over is not used again for a
 * while. claim     A node whose claim to be in a better lineage was false is not asked for a while.
 *
 * untrained Checks show that the member does not train on the data that it says (check/audit.c). As
 * an owner, this node leaves its contributions out for a while.
 *
 * Each node keeps its own penalties. They affect only its proposals and the members that it waits
 * for, never its votes. */
#include "sync/core/conduct.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/penalty.h"

/* ---- strikes --------------------------------------------------------------------------------- */

void tw_conduct_strike(struct tw_node *node, const struct tw_id *id, bool is_proven, uint64_t round,
                       uint32_t part) {
    struct penalties *penalties = &node->penalties;
    struct tw_penalty *row = tw_penalty_take(penalties->strikes, TW_MEMBERS_MAX, id);
    struct strike_cause *cause = &penalties->causes[row - penalties->strikes];
    if (row->count == 0) *cause = (struct strike_cause){.round = 0};
    const bool is_known = row->count > 0 && cause->round == round && cause->part == part;
    if (is_known && (cause->is_proven || !is_proven)) return;
    if (is_known) row->count--; /* the same result, now with a proof */
    tw_penalty_add(row, TW_PENALTY_STRIKE, node->now_us);
    cause->is_proven = is_proven;
    cause->round = round;
    cause->part = part;
    if (is_proven) cause->proven_until_us = row->until_us;
    struct tw_report *report = tw_act_report(node, TW_REPORT_STRUCK, id);
    if (report == NULL) return;
    report->reason = is_proven ? TW_CORRUPT : TW_LIMIT;
    report->round = round;
    report->part = part;
}

void tw_conduct_pardon(struct tw_node *node, const struct tw_id *id, uint64_t round,
                       uint32_t part) {
    struct penalties *penalties = &node->penalties;
    struct tw_penalty *row = tw_penalty_find(penalties->strikes, TW_MEMBERS_MAX, id);
    if (row == NULL) return;
    const struct strike_cause *cause = &penalties->causes[row - penalties->strikes];
    if (cause->is_proven || cause->round != round || cause->part != part) return;
    TW_ASSERT(row->count > 0);
    row->until_us = node->now_us;
    row->count--;
}

bool tw_conduct_is_struck(const struct tw_node *node, const struct tw_id *id) {
    return tw_penalty_left_us(node->penalties.strikes, TW_MEMBERS_MAX, id, node->now_us) > 0;
}

bool tw_conduct_is_proven_false(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if (node->penalties.causes[i].proven_until_us > node->now_us &&
            tw_id_equal(&node->penalties.strikes[i].id, id))
            return true;
    }
    return false;
}

/* Returns the number of strikes of a node whose penalty is in force, otherwise 0. A member that
 * does not train counts like one with a strike: as an owner, it alone would merge its work. */
static uint32_t count_strikes(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct tw_penalty *row = &node->penalties.strikes[i];
        if (row->count > 0 && row->until_us > node->now_us && tw_id_equal(&row->id, id))
            return row->count;
    }
    return tw_conduct_is_untrained(node, id) ? 1 : 0;
}

uint64_t tw_conduct_drop_struck(const struct tw_node *node, struct tw_roster *next, uint64_t most) {
    uint64_t taken = 0;
    for (;;) {
        struct tw_member *worst = NULL;
        uint32_t worst_count = 0;
        for (uint32_t i = 0; i < next->count; i++) {
            const uint32_t count = count_strikes(node, &next->members[i].id);
            const uint32_t weight = next->members[i].weight;
            if (weight == 0 || weight > most - taken || count <= worst_count) continue;
            worst_count = count;
            worst = &next->members[i];
        }
        if (worst == NULL) return taken;
        taken += worst->weight;
        TW_ASSERT(taken <= most);
        worst->weight = 0;
    }
}

/* ---- stalls ---------------------------------------------------------------------------------- */

static const struct tw_penalty *stalls_of(const struct tw_node *node, enum tw_penalty_kind kind) {
    TW_ASSERT(kind == TW_PENALTY_STALL_OWNER || kind == TW_PENALTY_STALL_PROPOSER);
    return kind == TW_PENALTY_STALL_OWNER ? node->penalties.owner_stalls
                                          : node->penalties.proposer_stalls;
}

void tw_conduct_stall(struct tw_node *node, enum tw_penalty_kind kind, const struct tw_id *id) {
    struct penalties *penalties = &node->penalties;
    struct tw_penalty *rows =
        kind == TW_PENALTY_STALL_OWNER ? penalties->owner_stalls : penalties->proposer_stalls;
    struct tw_penalty *row = tw_penalty_take(rows, TW_MEMBERS_MAX, id);
    TW_ASSERT(kind == TW_PENALTY_STALL_OWNER || kind == TW_PENALTY_STALL_PROPOSER);
    tw_penalty_add(row, kind, node->now_us);
    if (row->until_us > node->now_us) tw_act_report(node, TW_REPORT_STALLED, id);
}

uint64_t tw_conduct_stall_left_us(const struct tw_node *node, enum tw_penalty_kind kind,
                                  const struct tw_id *id) {
    return tw_penalty_left_us(stalls_of(node, kind), TW_MEMBERS_MAX, id, node->now_us);
}

bool tw_conduct_is_stalled(const struct tw_node *node, enum tw_penalty_kind kind,
                           const struct tw_id *id) {
    return tw_conduct_stall_left_us(node, kind, id) > 0;
}

uint64_t tw_conduct_drop_stalled(const struct tw_node *node, struct tw_roster *next,
                                 uint64_t most) {
    uint64_t taken = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (member->weight > most - taken ||
            !tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER, &member->id))
            continue;
        taken += member->weight;
        member->weight = 0;
    }
    TW_ASSERT(taken <= most);
    return taken;
}

/* ---- contributions left out ------------------------------------------------------------------ */

void tw_conduct_note_merged(struct tw_node *node, const struct tw_id *id, bool is_merged) {
    struct penalties *penalties = &node->penalties;
    if (is_merged) {
        struct tw_penalty *known = tw_penalty_find(penalties->unmerged, TW_MEMBERS_MAX, id);
        if (known != NULL) known->count = 0;
        return;
    }
    struct tw_penalty *row = tw_penalty_take(penalties->unmerged, TW_MEMBERS_MAX, id);
    tw_penalty_add(row, TW_PENALTY_UNMERGED, node->now_us);
    penalties->unmerged_count++;
    if ((row->count & (row->count - 1)) != 0) return;
    struct tw_report *report = tw_act_report(node, TW_REPORT_REFUSED, id);
    if (report == NULL) return;
    report->round = node->at.rounds;
    report->times = row->count;
}

uint32_t tw_conduct_unmerged_rounds(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct tw_penalty *row = &node->penalties.unmerged[i];
        if (row->count > 0 && tw_id_equal(&row->id, id)) return row->count;
    }
    return 0;
}

/* ---- large work ------------------------------------------------------------------------------ */

static struct large_work *large_take(struct tw_node *node, const struct tw_id *id) {
    struct large_work *rows = node->penalties.large, *free = &rows[0];
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        if (rows[i].merges > 0 && tw_id_equal(&rows[i].id, id)) return &rows[i];
        if (rows[i].merges == 0 || tw_roster_find(&node->roster, &rows[i].id) < 0) free = &rows[i];
    }
    *free = (struct large_work){.id = *id};
    return free;
}

const struct large_work *tw_conduct_large_work(const struct tw_node *node, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) {
        const struct large_work *row = &node->penalties.large[i];
        if (row->merges > 0 && tw_id_equal(&row->id, id)) return row;
    }
    return NULL;
}

bool tw_conduct_is_often_large(const struct large_work *row) {
    return row->merges >= LARGE_MERGES / 2 && 2 * tw_bits(row->recent) >= row->merges;
}

void tw_conduct_note_size(struct tw_node *node, const struct tw_id *id, uint32_t tenths,
                          bool is_cause) {
    struct large_work *row = large_take(node, id);
    const bool was_often = tw_conduct_is_often_large(row);
    TW_ASSERT(!is_cause || tenths > 0);
    row->recent = (row->recent << 1 | (tenths > 0)) & LARGE_MASK;
    if (row->merges < LARGE_MERGES) row->merges++;
    if (tenths > 0) row->tenths = tenths;
    if (!is_cause && (was_often || !tw_conduct_is_often_large(row))) return;
    struct tw_report *report = tw_act_report(node, TW_REPORT_LARGE, id);
    if (report == NULL) return;
    report->times = tw_bits(row->recent);
    report->merges = row->merges;
    report->tenths = row->tenths;
}

/* ---- training -------------------------------------------------------------------------------- */

void tw_conduct_note_untrained(struct tw_node *node, const struct tw_id *id,
                               enum tw_status reason) {
    struct tw_penalty *row = tw_penalty_take(node->penalties.untrained, TW_MEMBERS_MAX, id);
    TW_ASSERT(reason == TW_CORRUPT || reason == TW_LIMIT);
    tw_penalty_add(row, TW_PENALTY_UNTRAINED, node->now_us);
    struct tw_report *report = tw_act_report(node, TW_REPORT_UNTRAINED, id);
    if (report == NULL) return;
    report->reason = reason;
    report->round = node->at.rounds;
}

bool tw_conduct_is_untrained(const struct tw_node *node, const struct tw_id *id) {
    return tw_penalty_left_us(node->penalties.untrained, TW_MEMBERS_MAX, id, node->now_us) > 0;
}

/* ---- donors ---------------------------------------------------------------------------------- */

void tw_conduct_note_donor(struct tw_node *node, const struct tw_id *id) {
    tw_penalty_add(tw_penalty_take(node->penalties.donors, DONORS_KEPT, id), TW_PENALTY_DONOR,
                   node->now_us);
}

bool tw_conduct_is_resting(const struct tw_node *node, const struct tw_id *id) {
    return tw_penalty_left_us(node->penalties.donors, DONORS_KEPT, id, node->now_us) > 0;
}

/* ---- claims ---------------------------------------------------------------------------------- */

void tw_conduct_note_false_claim(struct tw_node *node, const struct tw_id *id) {
    tw_penalty_add(tw_penalty_take(node->penalties.claims, CLAIMS_KEPT, id), TW_PENALTY_CLAIM,
                   node->now_us);
}

bool tw_conduct_is_disbelieved(const struct tw_node *node, const struct tw_id *id) {
    return tw_penalty_left_us(node->penalties.claims, CLAIMS_KEPT, id, node->now_us) > 0;
}
