/* veto.c - results that some members refuse, and how a round ends without them.
 *
 * The worker rates each result (kernels/outlier.h). An outlier is far larger than the usual merges
 * of this fragment, and is refused in rosters of cfg.judges_min members or more. An extreme result
 * is four times as large again, and is refused in every roster. So are bytes that do not decode.
 * Members may differ about outliers, because each compares with the merges that it has seen. A veto
 * is therefore only a vote: every node applies a committed record.
 *
 *   R1  A member does not accept a record with a result that it refuses: an outlier, or other bytes
 *       than the owner announced (proposal_check.c). It answers NACK with the parts. If NACKs leave
 *       too few votes, the proposer proposes again without the fewest parts whose loss wins enough
 *       votes back, as if their owners had died. If too little is left (proposal_check.c), it lets
 *       members of other ranks propose first.
 *   R2  Exceptions: a record that the member accepted before, and one that a lock requires
 *       (vote/acceptor.c). A round that may already be decided is thus never held up.
 *   R3  A proposer whose proposal was refused is passed over: after RETRY_US, the next rank may
 *       propose.
 *   R4  A member does not accept a record that no honest proposer would have written
 *       (proposal_check.c). R2 and R3 hold for such records too. Members differ in the messages and
 *       links that they see, so this rule ends after a few times the usual wait for a round. */
#include "sync/check/veto.h"

#include "sync/check/proposal_check.h"
#include "sync/core/actions.h"
#include "sync/core/bounds.h"
#include "sync/core/membership.h"
#include "sync/core/state/node.h"
#include "sync/transfer/payload.h"

static void report_refused(struct tw_node *node, uint32_t owner) {
    if ((node->round.reported >> owner & 1) != 0) return;
    node->round.reported |= UINT64_C(1) << owner;
    tw_act_report(node, TW_REPORT_INSANE, &node->roster.members[owner].id);
}

uint32_t tw_veto_find(struct tw_node *node, const struct tw_record *record) {
    uint32_t parts = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if (part->bytes == 0) continue;
        const bool is_bad = tw_payload_is_refused(node, &part->result, node->round.count[k]);
        if (is_bad) report_refused(node, part->owner_idx);
        if (is_bad || tw_proposal_is_rigged_part(node, record, k)) parts |= 1u << k;
    }
    return parts;
}

void tw_veto_pass(struct tw_node *node, uint64_t ballot) {
    struct round *round = &node->round;
    if (round->refused_ranks == 0) round->refused_us = node->now_us;
    round->refused_ranks |= UINT64_C(1) << tw_ballot_rank(ballot);
}

void tw_veto_proposer(struct tw_node *node) {
    struct round *round = &node->round;
    if (round->offer_from == NO_PEER) return;
    tw_veto_pass(node, round->offer_ballot);
    if (tw_proposal_is_empty(node, &round->offer, round->offer_ballot))
        round->empty_ranks |= UINT64_C(1) << tw_ballot_rank(round->offer_ballot);
}

void tw_veto_not(struct tw_node *node) {
    struct round *round = &node->round;
    round->empty_ranks &= ~(UINT64_C(1) << tw_ballot_rank(round->offer_ballot));
}

void tw_veto_offer(struct tw_node *node, uint32_t parts) {
    struct round *round = &node->round;
    tw_veto_proposer(node);
    round->has_offer = false;
    if (round->offer_from == NO_PEER) return;
    struct tw_message *message = tw_act_message(node, TW_MSG_NACK);
    if (message == NULL) return;
    message->u.nack = (struct tw_msg_nack){.lineage = node->at.lineage,
                                           .round = node->at.rounds,
                                           .promised = round->offer_ballot,
                                           .refused_parts = parts};
    tw_act_send(node, message, round->offer_from);
}

/* Set of members that have not accepted our proposal, and refuse a part that is still in it. */
static uint64_t refusing_members(const struct round *round) {
    uint64_t members = 0;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        if (round->proposal.parts[k].bytes > 0 && (round->left_out >> k & 1) == 0)
            members |= round->refused_by[k];
    }
    return members & ~round->accepted_by;
}

/* Number of voters that have accepted our proposal, or still may. A voter that has not answered
 * may still accept for RETRY_US, or until the phase ends if a lock requires the proposal: then no
 * part can be left out. */
static uint32_t count_acceptors(struct tw_node *node) {
    const struct round *round = &node->round;
    const uint64_t refusing = refusing_members(round);
    const uint64_t late_us = round->best_lock.ballot != 0 ? UINT64_MAX : round->phase_us + RETRY_US;
    uint64_t refused = 0;
    uint32_t count = 0;
    if (node->now_us < late_us) tw_act_wake(node, late_us);
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) refused |= round->refused_by[k];
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) == 0) continue;
        const bool is_silent = ((round->accepted_by | refused) >> i & 1) == 0;
        count += (round->accepted_by >> i & 1) != 0 ||
                 ((refusing >> i & 1) == 0 && tw_membership_is_seated(node, i) &&
                  (!is_silent || node->now_us < late_us));
    }
    return count;
}

/* Set of parts that the member refuses and that are still in our proposal. */
static uint32_t refused_parts(const struct round *round, uint32_t member) {
    uint32_t parts = 0;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        if (round->proposal.parts[k].bytes > 0 && (round->refused_by[k] >> member & 1) != 0)
            parts |= 1u << k;
    }
    return parts & ~round->left_out;
}

/* Leaves out the parts refused by the member that refuses the fewest parts, to win its vote. A
 * member that refuses many parts without reason thus cannot remove the results of other members.
 * Returns false if no vote can be won this way. */
static bool give_in(struct tw_node *node) {
    struct round *round = &node->round;
    const uint64_t refusing = refusing_members(round);
    uint32_t fewest = UINT32_MAX, parts = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const uint32_t refused = (refusing >> i & 1) != 0 ? refused_parts(round, i) : 0;
        if (refused == 0 || tw_bits(refused) >= fewest || !tw_membership_is_seated(node, i))
            continue;
        fewest = tw_bits(refused);
        parts = refused;
    }
    round->left_out |= parts;
    return parts != 0;
}

void tw_veto_refused(struct tw_node *node, uint32_t member, uint32_t parts) {
    struct round *round = &node->round;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        if (round->proposal.parts[k].bytes > 0 && (parts >> k & 1) != 0)
            round->refused_by[k] |= UINT64_C(1) << member;
    }
}

bool tw_veto_is_ballot_lost(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t needed = tw_membership_votes_needed(node);
    if (refusing_members(round) == 0) return false; /* no refused part is proposed */
    if (count_acceptors(node) >= needed) return false;
    if (round->best_lock.ballot != 0) return true;
    while (count_acceptors(node) < needed && give_in(node)) continue;
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        if ((round->left_out >> k & 1) != 0) round->proposal.parts[k].bytes = 0;
    }
    return true;
}

/* True if the members had enough time since the first refusal to commit the refused proposal. */
static bool is_time(struct tw_node *node) {
    const uint64_t due_us = node->round.refused_us + RETRY_US;
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us >= due_us;
}

bool tw_veto_is_passed(struct tw_node *node, uint32_t rank) {
    return (node->round.refused_ranks >> rank & 1) != 0 && is_time(node);
}
