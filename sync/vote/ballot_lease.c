/* ballot_lease.c - the ballot lease: for a time, an acceptor promises only one proposer's ballots.
 *
 * A promise for one ballot ends all lower ballots. Without a lease, a member that sends PREPARE
 * whenever another one proposes could end every ballot for ever.
 *
 *   L1  The proposer whose ballot was promised holds the lease for LEASE_US, and for LEASE_US more
 *       once it has proposed. Meanwhile no honest proposer begins a ballot, and a proposal without
 *       a promise is ignored.
 *   L2  The lease ends early when its holder is gone, or is passed over for a refused proposal
 *       (check/veto.c), or when the ballot is our own and we have given it up.
 *   L3  A higher ballot is promised nevertheless: its proposer may have to propose a locked record
 *       again. But a proposer gets a stall (trust/conduct.c) if it holds the lease and proposes
 *       nothing; if it takes the lease from another and leaves the round open; if it is silent in
 *       its turn; or if it is passed over because it made no use of its votes, or because its
 *       proposal left out most of the round (check/proposal_check.c).
 *   L4  A proposer that has stalled before, or was proven false, is not waited for: its lease
 *       delays no trusted proposer. Its PREPAREs wait for LEASE_US and for the present holder, and
 *       so do the proposals of a proposer that was proven false. The wait doubles with each
 *       promise to such a proposer in a round, so that all of them together end few ballots. After
 *       the wait they are answered: otherwise two nodes that distrust each other would never
 *       decide a round.
 *   L5  No PREPARE is promised before enough results are announced (tw_proposal_is_early).
 *
 * To promise late, or never, is always safe. */
#include "sync/vote/ballot_lease.h"

#include "sync/check/proposal_check.h"
#include "sync/check/veto.h"
#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/reach.h"
#include "sync/core/state/node.h"
#include "sync/trust/conduct.h"

/* Time for a round trip, votes written to slow disks, and a lock. */
#define LEASE_US (5 * SECOND_US)
#define BLAME_US (3 * SECOND_US) /* time within which a holder can be expected to propose */

enum { DOUBLINGS_MAX = 3 };

static uint64_t stalled_us(const struct tw_node *node, uint32_t member) {
    return tw_conduct_stall_left_us(node, TW_PENALTY_STALL_PROPOSER,
                                    &node->roster.members[member].id);
}

/* True for every member that was proven false, and for the stalled members with the longest
 * penalties: at most as many as may lie, or (n - 1) / 2 of n voters that are too few for a liar. If
 * more members stalled, the cause is the network, or proposers that did not wait for each other. If
 * nobody were waited for then, proposers would go on colliding. */
bool tw_lease_is_distrusted(const struct tw_node *node, uint32_t member) {
    const uint64_t left_us = stalled_us(node, member);
    const uint32_t count = tw_bits(node->voters), liars = tw_membership_liars_max(node);
    const uint32_t most = liars > 0 ? liars : (count - 1) / 2;
    uint32_t worse = 0;
    if (tw_conduct_is_proven_false(node, &node->roster.members[member].id)) return true;
    if (left_us == 0) return false;
    for (uint32_t i = 0; i < node->roster.count; i++)
        worse += (node->voters >> i & 1) != 0 && stalled_us(node, i) > left_us;
    return worse < most;
}

/* True if the proposer of this rank was passed over, because its proposal left out most of the
 * round. */
static bool is_empty_proposer(struct tw_node *node, uint32_t rank) {
    return (node->round.empty_ranks >> rank & 1) != 0 && tw_veto_is_passed(node, rank);
}

/* True if the lease has a holder (L1 and L2). */
static bool is_held(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || node->now_us >= lease->until_us) return false;
    if ((int)lease->member == node->round.self_idx) return node->round.phase != PROPOSER_IDLE;
    return tw_membership_is_live(node, lease->member) &&
           !tw_veto_is_passed(node, tw_ballot_rank(lease->ballot));
}

bool tw_lease_is_others(struct tw_node *node, uint32_t member) {
    if (node->lease.member == member || !is_held(node)) return false;
    if (tw_lease_is_distrusted(node, node->lease.member) && !tw_lease_is_distrusted(node, member))
        return false;
    tw_act_wake(node, node->lease.until_us);
    return true;
}

/* True if all results were announced so long ago that other ranks may propose. */
static bool is_late(const struct tw_node *node) {
    const uint64_t results_us = node->round.results_us;
    return results_us != 0 && node->now_us >= results_us + TAKEOVER_STEP_US;
}

void tw_lease_ask(struct tw_node *node, uint32_t member, uint64_t ballot) {
    if (!is_late(node)) node->lease.active |= UINT64_C(1) << member;
    node->lease.asked[member].ballot = ballot;
    node->lease.asked[member].asked_us = node->now_us;
}

/* Time that a distrusted proposer waits (L4). */
static uint64_t distrust_us(const struct tw_node *node) {
    return LEASE_US << at_most(node->lease.distrusted_count, DOUBLINGS_MAX);
}

bool tw_lease_must_wait(struct tw_node *node, uint32_t member, uint64_t since_us) {
    const uint64_t due_us = since_us + distrust_us(node);
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us < due_us || tw_lease_is_others(node, member);
}

bool tw_lease_next(struct tw_node *node, uint32_t *member, uint64_t *ballot) {
    struct lease *lease = &node->lease;
    uint32_t first = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (lease->asked[i].ballot == 0) continue;
        const uint64_t asked_us = lease->asked[i].asked_us;
        /* by now, the proposer has given this ballot up */
        if (node->now_us > asked_us + distrust_us(node) + LEASE_US) {
            lease->asked[i].ballot = 0;
            continue;
        }
        if (tw_lease_is_distrusted(node, i) && tw_lease_must_wait(node, i, asked_us)) continue;
        if (tw_proposal_is_early(node, NULL)) continue;
        if (first == TW_MEMBERS_MAX || asked_us < lease->asked[first].asked_us) first = i;
    }
    if (first == TW_MEMBERS_MAX) return false;
    *member = first;
    *ballot = lease->asked[first].ballot;
    lease->asked[first].ballot = 0;
    return true;
}

/* Gives a stall to a live holder that made no use of the lease (L3). */
static void blame_holder(struct tw_node *node) {
    const struct lease *lease = &node->lease;
    if (!lease->is_taken || (lease->has_proposed && !lease->has_robbed)) return;
    if ((int)lease->member == node->round.self_idx) return;
    if (!tw_membership_is_live(node, lease->member)) return;
    tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[lease->member].id);
}

void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot) {
    struct lease *lease = &node->lease;
    const bool is_again = lease->is_taken && lease->member == member;
    if (!is_again && node->now_us >= lease->began_us + BLAME_US) blame_holder(node);
    if (!is_again) lease->has_robbed = is_held(node);
    if (!is_again || lease->has_proposed) lease->until_us = node->now_us + LEASE_US;
    if (!is_again) lease->began_us = node->now_us;
    lease->until_us = at_most(lease->until_us, lease->began_us + 2 * LEASE_US);
    lease->is_taken = true;
    lease->has_proposed = false;
    lease->distrusted_count += !is_again && tw_lease_is_distrusted(node, member);
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

/* Passes over a proposer that got our vote and did not use it in the time that a round usually
 * takes. If the proposer is live, it also gets a stall (L3). */
static void pass_silent(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->voted_us == 0) return;
    const uint64_t due_us = round->voted_us + BALLOT_TIMEOUT_US + node->pace.patience_us / 4;
    if (node->now_us < due_us) {
        tw_act_wake(node, due_us);
        return;
    }
    const uint64_t ballot = node->vote.accepted_ballot;
    const uint32_t member = round->rank[tw_ballot_rank(ballot)];
    round->voted_us = 0;
    tw_veto_pass(node, ballot);
    if (tw_membership_is_live(node, member))
        tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
}

void tw_lease_advance(struct tw_node *node) {
    struct lease *lease = &node->lease;
    pass_silent(node);
    if (!lease->is_taken) return;
    if (node->now_us < lease->until_us) {
        tw_act_wake(node, lease->until_us);
        return;
    }
    blame_holder(node);
    lease->is_taken = false;
}

void tw_lease_note_turns(struct tw_node *node) {
    const struct round *round = &node->round;
    for (uint32_t rank = 0; rank < tw_bits(node->voters); rank++) {
        const uint32_t member = round->rank[rank];
        if (is_empty_proposer(node, rank) && tw_membership_is_live(node, member))
            tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
    }
    if (!is_late(node)) return;
    for (uint32_t rank = 0; rank < tw_bits(node->voters); rank++) {
        const uint32_t member = round->rank[rank];
        if ((int)member == round->self_idx || (node->lease.active >> member & 1) != 0) return;
        if (!tw_membership_is_live(node, member) || tw_lease_is_distrusted(node, member)) continue;
        if (!tw_reach_has_majority(node, member)) continue;
        tw_conduct_stall(node, TW_PENALTY_STALL_PROPOSER, &node->roster.members[member].id);
        return;
    }
}
