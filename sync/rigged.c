/* rigged.c - what no honest closer writes into a manifest, as far as this node can tell.
 *
 *   false    Results, and contributions to them, are those that their owners told. A closer could
 *            put lies in their place, have honest owners struck for them (audit.c), and have work
 *            merged twice or lost, as contributors go by what is listed. Such parts are refused
 *            as insane ones are (R1 of refuse.c): an owner that tells different things to
 *            different members holds up nobody, its part is left out.
 *   untold   Where an owner is here and has told nothing yet, that is waited for.
 *   company  The next roster has this node while it is whole, and but for a quarter those who are
 *            here, and no others. Two closers that lie would soon be among themselves, and a
 *            majority.
 *   liars    Not all parts of the next round go to owners whose merges this node did again and
 *            found false: closers that lie would pass every round from one to the other.
 *   empty    Of all parts no more than a quarter is left out though results are here and are taken;
 *            a half in rosters so small that one part is more than a quarter.
 *   shares   Half at least of those who were in time own a part of the next round, none more than
 *            uploads may give it (share.c). Where all owners lie, all results are insane, and
 *            members that doubt themselves for that (kernels/sane.h) take the lies after it. A
 *            quarter would do better still, but members differ in whom they struck.
 *
 * The last four are asked in rosters of cfg.judges_min and more. All but the first end with
 * patience: an owner that restarts, or a cut between two others, splits the honest too. What is
 * decided after that may list what no owner told; nobody is struck for it (audit.c). */
#include "sync/node_internal.h"

/* By then everybody has tried to close the round. */
enum { RIGGED_PATIENCES = 4 };

bool tw_rigged_part(const struct tw_node *node, const struct tw_close *close, uint32_t k) {
    const struct tw_part *part = &close->parts[k];
    const struct tw_msg_result *said = &node->round.results[k].said;
    /* Our own is what we told before a restart, maybe: the others know. */
    if (part->bytes == 0 || !node->round.results[k].has) return false;
    if ((int)part->owner_idx == node->round.self_idx) return false;
    return part->bytes != said->bytes || !tw_id_equal(&part->result, &said->hash) ||
           part->contributors != tw_proposal_told_by(said);
}

static bool is_untold(const struct tw_node *node, const struct tw_close *close) {
    for (uint32_t k = 0; k < close->parts_count; k++) {
        const struct tw_part *part = &close->parts[k];
        if (part->bytes == 0 || node->round.results[k].has) continue;
        if ((int)part->owner_idx == node->round.self_idx) continue;
        if (tw_peers_member_live(node, part->owner_idx)) return true;
    }
    return false;
}

static bool is_empty(struct tw_node *node, const struct tw_close *close) {
    const struct round *round = &node->round;
    uint32_t left_out = 0;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        const struct tw_msg_result *said = &round->results[k].said;
        if (k < close->parts_count && close->parts[k].bytes > 0) continue;
        left_out += round->results[k].has && said->bytes > 0 &&
                    tw_payload_is_held(node, &said->hash) &&
                    !tw_refuse_is_bad(node, &said->hash, round->count[k]);
    }
    return (node->roster.count < TW_JUDGES_MIN ? 2 : 4) * left_out > round->owners_count;
}

/* Members that are here and left out, and strangers let in. */
static bool is_odd_company(const struct tw_node *node, const struct tw_roster *next) {
    const int self = tw_roster_find(next, &node->cfg.self);
    const bool has_us = self >= 0 && next->members[self].nonce == node->at.nonce;
    uint32_t count = 0;
    if (node->state == TW_STATE_MEMBER && !has_us) return true;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        count +=
            tw_roster_find(next, &node->roster.members[i].id) < 0 && tw_peers_member_live(node, i);
    }
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_id *id = &next->members[i].id;
        count += tw_roster_find(&node->roster, id) < 0 && !tw_id_equal(id, &node->cfg.self) &&
                 tw_peers_find(node, id) == NO_PEER;
    }
    return 4 * count > node->roster.count;
}

/* And others than those found false are here. */
static bool is_for_liars(const struct tw_node *node, const struct tw_roster *next) {
    bool has_other = false;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (tw_strike_is_false(node, &member->id)) continue;
        if (member->weight > 0) return false;
        const uint16_t peer = tw_peers_find(node, &member->id);
        has_other |= peer == NO_PEER ? tw_id_equal(&member->id, &node->cfg.self)
                                     : tw_peers_is_live(node, peer);
    }
    return has_other;
}

/* Those who were in time, as proposal.c has it: set of members. */
static uint64_t in_time(const struct tw_node *node, const struct tw_close *close) {
    uint64_t contributed = 0, absent = 0;
    for (uint32_t k = 0; k < close->parts_count; k++) {
        if (close->parts[k].bytes == 0 && node->round.count[k] > 0)
            absent |= UINT64_C(1) << close->parts[k].owner_idx;
    }
    for (uint32_t i = 0; i < close->contributors_count; i++)
        contributed |= UINT64_C(1) << close->contributors[i].member_idx;
    return contributed == 0 ? UINT64_MAX : contributed & ~absent;
}

static bool has_too_few_owners(const struct tw_node *node, const struct tw_close *close) {
    const uint64_t punctual = in_time(node, close);
    uint32_t wanted = 0, owners = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        const int at = tw_roster_find(&close->next, id);
        if (at < 0 || (punctual >> i & 1) == 0) continue;
        if (!tw_peers_member_live(node, i) || tw_strike_is(node, id)) continue;
        wanted++;
        owners += close->next.members[at].weight > 0;
    }
    if (wanted > TW_PARTS_MAX) wanted = TW_PARTS_MAX;
    return owners < wanted && 2 * (wanted - owners) > wanted;
}

/* One has more than four times what the (upper) median of them has: more than tw_share_weigh gives.
 */
static bool has_giant_share(const struct tw_roster *next) {
    uint32_t sorted[TW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        const uint32_t weight = next->members[i].weight;
        if (weight == 0) continue;
        uint32_t at = count++;
        for (; at > 0 && sorted[at - 1] > weight; at--) sorted[at] = sorted[at - 1];
        sorted[at] = weight;
    }
    return count > 2 && sorted[count - 1] > UINT64_C(4) * sorted[count / 2];
}

static bool is_rigged(struct tw_node *node, const struct tw_close *close) {
    if (is_untold(node, close)) return true;
    if (node->roster.count < node->cfg.judges_min) return false;
    return is_empty(node, close) || is_odd_company(node, &close->next) ||
           is_for_liars(node, &close->next) || has_giant_share(&close->next) ||
           (node->roster.count >= TW_JUDGES_MIN && has_too_few_owners(node, close));
}

/* Not for so long that anybody leaves because the round stands open. */
bool tw_rigged_is(struct tw_node *node, const struct tw_close *close) {
    const uint64_t end_us = node->round.active_us +
                            at_most(RIGGED_PATIENCES * node->patience_us, node->cfg.orphan_us / 2);
    if (node->now_us >= end_us || !is_rigged(node, close)) return false;
    tw_node_wake(node, end_us);
    return true;
}
