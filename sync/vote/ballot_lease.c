/* ballot_lease.c - the lease: an acceptor gives one proposer time, and remembers those that waste
 * it.
 *
 * A promise to one ballot ends the lower ones. Without a lease, a member that sends PREPARE
 * whenever another one proposes could end every ballot for ever.
 *
 *   F1  The proposer whose ballot was promised holds the lease for LEASE_US, and as long again once
 *       it has proposed. Meanwhile no honest proposer begins a ballot, and no proposal counts that
 *       was not promised before.
 *   F2  The lease ends early when its holder is gone, or passed over for a refused proposal
 *       (check/veto.c), or when the ballot is our own and we have given it up.
 *   F3  A higher ballot is promised all the same: its proposer may have a reason (R5 of veto.c).
 * But a holder has stalled (trust/conduct.c) if it proposes nothing, takes the lease from another
 *       and leaves the round open, is silent when the round is its to close, or proposes nearly
 *       nothing and is passed over for that (check/proposal_check.c).
 *   F4  Nobody waits for a proposer that has stalled before. Its PREPAREs wait for LEASE_US and for
 *       the present holder. Then they are promised: else two nodes that distrust each other would
 *       never close a round.
 *   F5  No PREPARE is promised before there is something to propose (proposal_check.c).
 *
 * To promise late, or never, is always safe. */
#include "sync/vote/ballot_lease.h"

#include "sync/check/proposal_check.h"
#include "sync/check/veto.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/state/node.h"
#include "sync/trust/conduct.h"

/* A round trip, votes written to slow disks, and the wait of R3 of veto.c. */
#define LEASE_US (5 * SECOND_US)
#define BLAME_US (3 * SECOND_US) /* a holder overtaken after that had time enough */

static bool is_stalled(const struct tw_node *node, uint32_t member) {
    return tw_conduct_is_stalled(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
}

/* The proposer proposed nearly nothing, and was passed over for that. */
static bool is_empty_proposer(struct tw_node *node, uint32_t rank) {
    return (node->round.empty_ranks >> rank & 1) != 0 && tw_veto_is_passed(node, rank);
}

/* F2. */
static bool is_held(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || node->now_us >= lease->until_us) return false;
    if ((int)lease->member == node->round.self_idx) return node->round.phase != PROPOSER_IDLE;
    return tw_membership_is_live(node, lease->member) &&
           !tw_veto_is_passed(node, tw_ballot_rank(lease->ballot));
}

bool tw_lease_is_others(struct tw_node *node, uint32_t member) {
    if (node->lease.member == member || !is_held(node)) return false;
    tw_act_wake(node, node->lease.until_us);
    return true;
}

/* All results have been here for so long that other ranks may close the round. */
static bool is_late(const struct tw_node *node) {
    const uint64_t results_us = node->round.results_us;
    return results_us != 0 && node->now_us >= results_us + TAKEOVER_STEP_US;
}

void tw_lease_ask(struct tw_node *node, uint32_t member, uint64_t ballot) {
    if (!is_late(node)) node->lease.active |= UINT64_C(1) << member;
    node->lease.asked[member].ballot = ballot;
    node->lease.asked[member].asked_us = node->now_us;
}

/* F4. */
static bool must_wait(struct tw_node *node, uint32_t member) {
    const uint64_t due_us = node->lease.asked[member].asked_us + LEASE_US;
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us < due_us || tw_lease_is_others(node, member);
}

bool tw_lease_next(struct tw_node *node, uint32_t *member, uint64_t *ballot) {
    struct lease *lease = &node->lease;
    uint32_t first = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (lease->asked[i].ballot == 0) continue;
        const uint64_t asked_us = lease->asked[i].asked_us;
        if (node->now_us > asked_us + 2 * LEASE_US) { /* its proposer has given it up by now */
            lease->asked[i].ballot = 0;
            continue;
        }
        if (is_stalled(node, i) && must_wait(node, i)) continue;
        if (tw_proposal_is_early(node, NULL)) continue;
        if (first == TW_MEMBERS_MAX || asked_us < lease->asked[first].asked_us) first = i;
    }
    if (first == TW_MEMBERS_MAX) return false;
    *member = first;
    *ballot = lease->asked[first].ballot;
    lease->asked[first].ballot = 0;
    return true;
}

/* F3. */
static void blame(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || (lease->has_proposed && !lease->has_robbed)) return;
    if ((int)lease->member == node->round.self_idx) return;
    if (!tw_membership_is_live(node, lease->member)) return;
    tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[lease->member].id);
}

void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot) {
    struct lease *lease = &node->lease;
    const bool is_again = lease->is_taken && lease->member == member;
    if (!is_again && node->now_us >= lease->began_us + BLAME_US) blame(node);
    if (!is_again) lease->has_robbed = is_held(node);
    if (!is_again || lease->has_proposed) lease->until_us = node->now_us + LEASE_US;
    if (!is_again) lease->began_us = node->now_us;
    lease->until_us = at_most(lease->until_us, lease->began_us + 2 * LEASE_US);
    lease->is_taken = true;
    lease->has_proposed = false;
    lease->member = member;
    lease->ballot = ballot;
}

void tw_lease_propose(struct tw_node *node, uint32_t member, uint64_t ballot) {
    struct lease *lease = &node->lease;
    lease->active |= UINT64_C(1) << member;
    if (!lease->is_taken || lease->member != member || lease->ballot != ballot)
        tw_lease_take(node, member, ballot);
    if (lease->has_proposed) return;
    lease->has_proposed = true;
    lease->until_us = at_most(node->now_us + LEASE_US, lease->began_us + 2 * LEASE_US);
}

void tw_lease_advance(struct tw_node *node) {
    struct lease *lease = &node->lease;
    if (!lease->is_taken) return;
    if (node->now_us < lease->until_us) {
        tw_act_wake(node, lease->until_us);
        return;
    }
    blame(node);
    lease->is_taken = false;
}

void tw_lease_note_turns(struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t rank = 0; rank < node->roster.count; rank++) {
        const uint32_t member = round->rank[rank];
        if (is_empty_proposer(node, rank) && tw_membership_is_live(node, member))
            tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
    }
    if (!is_late(node)) return;
    for (uint32_t rank = 0; rank < node->roster.count; rank++) {
        const uint32_t member = round->rank[rank];
        if ((int)member == round->self_idx || (node->lease.active >> member & 1) != 0) return;
        if (!tw_membership_is_live(node, member) || is_stalled(node, member)) continue;
        tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
        return;
    }
}
