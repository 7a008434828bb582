/* veto.c - results and proposals that this node refuses to vote for. */
#include "sync/check/veto.h"

#include "base/assert.h"
#include "sync/core/actions.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/round/proposal.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

/* ---- proposals that no honest member makes --------------------------------------------------- */

/* Does a proposed record look as if its proposer lies? The signs:
 *
 *   false    A result or its contributors differ from the owner's announcement. If such parts were
 *            accepted, audits could strike honest owners, and work could be merged twice or lost.
 *            They are refused like outliers (R1 of veto.c). If an owner announces different
 *            results to different members, its part is left out without delay.
 *   early    More than a quarter of the parts is left out while their owners are linked and still
 *            have time; in rosters below TW_JUDGES_MIN, more than half. Or the round is not due
 *            yet by this node's clock. An early record is not refused but judged later, which
 *            delays nobody.
 *   empty    Like early, but left-out parts whose results this node holds and accepts count too.
 *            After two ballots, twice as many may be left out, then any number: members that
 *            refuse different results must agree in the end.
 *   company  The next roster lacks this node, or a member that is linked to it under its nonce. Or
 *            a new member is neither linked to this node nor known to more members than may lie; a
 *            node that sees few members does not judge that. Otherwise a lying proposer would
 *            replace honest members by node ids of its own.
 *   base     The record names another state of the fragment than this node's, or one that this
 *            node does not hold (round/proposal.c).
 *   votes    The next roster gives a member a vote, or takes one away, against its certificate
 *            (core/voters.c).
 *   skewed   The weights of the next roster differ too much from the weights by upload that
 *            round/proposal.c computes for members that were in time and not proven false. Members
 *            differ in the strikes and links that they see, so an honest proposer leaves out at
 *            most a third. The other owners may get that third more. Beyond it, at most an eighth
 *            of the fragment (a fifth with few owners) may be with the wrong owners. If liars
 *            owned half of a round, honest members would widen their outlier bounds (the doubt of
 *            kernels/outlier.h) and accept the next lies.
 *
 * With more than TW_PARTS_MAX members the proposer chooses the owners. Company and skewed are
 * checked in rosters that withstand a liar. All checks but false end after a few times the usual
 * wait for a round (pace.patience_us): honest members too may differ after an owner's restart, or
 * when two nodes lose their link. A record decided after that may list results that no owner
 * announced; no owner is struck for it (audit.c). */

/* Number of patiences after which every rank has had time to propose. */
enum { RIGGED_PATIENCES = 4 };

/* Limits, as one in this many of the fragment: parts with wrong owners; the same with few owners;
 * parts of owners that only this node may have struck. */
enum { SKEW_ONE_IN = 8, SKEW_ONE_IN_FEW = 5, STRUCK_ONE_IN = 12 };

bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k) {
    const struct tw_part *part = &record->parts[k];
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    /* This node's own part is not judged: the record may list the result that this node announced
     * before a restart and no longer remembers. */
    if (part->bytes == 0 || !node->round.results[k].has) return false;
    if ((int)part->owner_idx == node->round.self_idx) return false;
    return part->bytes != announced->bytes || !tw_id_equal(&part->result, &announced->hash) ||
           part->contributors != tw_result_part(announced).contributors;
}

/* True if no honest proposer would leave out this many parts in the early ballots. */
static bool is_much(const struct tw_node *node, uint32_t parts) {
    return (node->roster.count < TW_JUDGES_MIN ? 2 : 4) * parts > node->round.owners_count;
}

/* Number of left-out parts that count against the record at this ballot: all, then half, then
 * none. */
static uint32_t share_of(uint64_t ballot, uint32_t parts) {
    const uint64_t attempt = ballot / TW_MEMBERS_MAX;
    return attempt < 2 ? parts : attempt == 2 ? parts / 2 : 0;
}

static bool is_left_out(const struct tw_record *record, uint32_t k) {
    return record == NULL || k >= record->parts_count || record->parts[k].bytes == 0;
}

/* True if this node fetches the result announced for part k, whose bytes may still arrive. */
static bool is_coming(struct tw_node *node, uint32_t k) {
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    if (!node->round.results[k].has || announced->bytes == 0) return false;
    const struct payload *payload = tw_payload_find(node, &announced->hash);
    return payload != NULL && payload->state != PAYLOAD_HELD && payload->state != PAYLOAD_UNFIT &&
           !tw_payload_is_lost(payload);
}

/* Number of left-out parts of other owners whose results may still arrive in time. */
static uint32_t count_to_come(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    const uint64_t end_us =
        round->active_us != 0 ? round->active_us + node->pace.patience_us : UINT64_MAX;
    uint32_t count = 0;
    if (node->now_us >= end_us) return 0;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        if (!is_left_out(record, k) || (int)round->owners[k] == round->self_idx) continue;
        if (!tw_membership_is_live(node, round->owners[k])) continue;
        count += tw_round_is_unannounced(node, k) || (record != NULL && is_coming(node, k));
    }
    if (count > 0) tw_act_wake(node, end_us);
    return count;
}

bool tw_proposal_is_early(struct tw_node *node, const struct tw_record *record) {
    if (node->now_us < node->round.active_us) { /* not due yet by this node's clock (round.c) */
        tw_act_wake(node, node->round.active_us);
        return true;
    }
    return is_much(node, count_to_come(node, record));
}

bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record, uint64_t ballot) {
    const struct round *round = &node->round;
    uint32_t left_out = count_to_come(node, record);
    for (uint32_t k = 0; k < round->owners_count; k++) {
        const struct tw_msg_result *announced = &round->results[k].announced;
        left_out += is_left_out(record, k) && round->results[k].has && announced->bytes > 0 &&
                    tw_payload_is_held(node, &announced->hash) &&
                    !tw_payload_is_refused(node, &announced->hash, round->count[k]);
    }
    return is_much(node, share_of(ballot, left_out));
}

/* True if the member is linked to this node under the roster's nonce, and holds the whole state. */
static bool is_seated(const struct tw_node *node, uint32_t idx) {
    const struct tw_member *member = &node->roster.members[idx];
    const uint16_t peer = tw_peers_find(node, &member->id);
    if ((int)idx == node->round.self_idx) return node->state == TW_STATE_MEMBER;
    return peer != NO_PEER && tw_peers_is_donor(node, peer) &&
           node->links[peer].status.nonce == member->nonce;
}

/* True if the next roster lacks members that are linked to this node. */
static bool lacks_members(const struct tw_node *node, const struct tw_roster *next) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (!tw_proposal_has_member(next, &node->roster.members[i]) && is_seated(node, i))
            return true;
    }
    return false;
}

/* True if the next roster has new members that too few nodes know. */
static bool has_strangers(const struct tw_node *node, const struct tw_roster *next) {
    if (!tw_membership_has_judges(node) || !tw_membership_sees_most(node)) return false;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (tw_proposal_has_member(&node->roster, member) ||
            tw_id_equal(&member->id, &node->cfg.self))
            continue;
        if (!tw_reach_is_known(node, &member->id)) return true;
    }
    return false;
}

static uint64_t owners_of(const struct tw_roster *roster) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < roster->count; i++) count += roster->members[i].weight > 0;
    return count;
}

static uint64_t sum_of(const struct tw_roster *roster) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < roster->count; i++) sum += roster->members[i].weight;
    return sum;
}

static bool is_here(const struct tw_node *node, const struct tw_id *id) {
    const uint16_t peer = tw_peers_find(node, id);
    return peer == NO_PEER ? tw_id_equal(id, &node->cfg.self) : tw_peers_is_live(node, peer);
}

/* Returns the roster with parts only for linked members, those with the fastest uploads. */
static struct tw_roster largest_of(const struct tw_node *node, const struct tw_roster *roster) {
    struct tw_roster largest = *roster;
    for (uint32_t i = 0; i < largest.count; i++) {
        if (!is_here(node, &largest.members[i].id)) largest.members[i].weight = 0;
    }
    if (sum_of(&largest) == 0) largest = *roster;
    tw_part_weights_limit(&largest);
    return largest;
}

/* True if the parts of the next round exceed the fair shares of their owners by too much in total.
 * A fair share is the larger of an equal share and one by upload, because a member may report
 * different uploads to different nodes. It is then raised by a third, because other owners may be
 * left out. */
static bool is_skewed_by(const struct tw_node *node, const struct tw_record *record, bool is_mesh) {
    struct tw_roster fair = record->next;
    tw_proposal_fair(node, record, is_mesh, &fair);
    tw_conduct_drop_struck(node, &fair, sum_of(&fair) / STRUCK_ONE_IN);
    const struct tw_roster largest = largest_of(node, &fair);
    const uint64_t all = sum_of(&record->next), fair_all = sum_of(&largest);
    const uint64_t count = owners_of(&largest);
    uint64_t beyond = 0; /* in units of 1 / (3 * count * fair_all * all): below 2^56 */
    if (owners_of(&record->next) > TW_PARTS_MAX) return true;
    for (uint32_t i = 0; i < fair.count; i++) {
        const uint64_t weight = fair.members[i].weight;
        const uint64_t share = 3 * count * fair_all * record->next.members[i].weight;
        const uint64_t even = weight == 0 ? 0 : fair_all;
        const uint64_t most = 4 * all * (weight * count > even ? weight * count : even);
        if (share > most) beyond += share - most;
    }
    const uint64_t one_in = count < SKEW_ONE_IN_FEW ? SKEW_ONE_IN_FEW : count;
    return (one_in < SKEW_ONE_IN ? one_in : SKEW_ONE_IN) * beyond > 3 * count * fair_all * all;
}

/* Members see different parts of the graph of links: weights that ignore links pass too. */
static bool is_skewed(const struct tw_node *node, const struct tw_record *record) {
    return is_skewed_by(node, record, false) && is_skewed_by(node, record, true);
}

static bool is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot) {
    if (tw_proposal_is_early(node, record)) return true;
    if (tw_proposal_is_empty(node, record, ballot)) return true;
    return tw_membership_has_judges(node) && tw_membership_liars_max(node) > 0 &&
           is_skewed(node, record);
}

/* True if the round has been active for less than most_us. */
static bool is_within(struct tw_node *node, uint64_t most_us) {
    if (node->round.active_us == 0) return true;
    const uint64_t end_us = node->round.active_us + most_us;
    if (node->now_us >= end_us) return false;
    tw_act_wake(node, end_us);
    return true;
}

/* All checks end after a while, before a node would found a child lineage because the round stays
 * open. The check for missing members (company) ends last, because each member that sees the
 * missing members can propose a roster with them. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot) {
    const uint64_t patience_us = node->pace.patience_us;
    if (TW_IS_MUTANT(node, TW_MUTANT_ANY_COMPANY)) return false;
    if (tw_proposal_base(node, record, ballot) == TW_BASE_WRONG) return true;
    if (has_strangers(node, &record->next)) return true;
    if (tw_voters_are_false(node, record)) return true;
    if (tw_membership_has_judges(node) && lacks_members(node, &record->next) &&
        is_within(node, node->cfg.orphan_us + 2 * patience_us))
        return true;
    return is_within(node, at_most(RIGGED_PATIENCES * patience_us, node->cfg.orphan_us / 2)) &&
           is_rigged(node, record, ballot);
}

/* ---- vetoes ---------------------------------------------------------------------------------- */

/* Results that some members refuse, and how a round ends without them.
 *
 * The worker rates each result (kernels/outlier.h). An outlier is far larger than the usual merges
 * of this fragment, and is refused in rosters of cfg.judges_min members or more. An extreme result
 * is four times as large again, and is refused in every roster. So are bytes that do not decode.
 * Members may differ about outliers, because each compares with the merges that it has seen. A veto
 * is therefore only a vote: every node applies a committed record.
 *
 *   R1  A member does not accept a record with a result that it refuses: an outlier, or other bytes
 *       than the owner announced (veto.c). It answers NACK with the parts. If NACKs leave
 *       too few votes, the proposer proposes again without the fewest parts whose loss wins enough
 *       votes back, as if their owners had died. If too little is left (veto.c), it lets
 *       members of other ranks propose first.
 *   R2  Exceptions: a record that the member accepted before, and one that a lock requires
 *       (vote/acceptor.c). A round that may already be decided is thus never held up.
 *   R3  A proposer whose proposal was refused is passed over: after RETRY_US, the next rank may
 *       propose.
 *   R4  A member does not accept a record that no honest proposer would have written
 *       (veto.c). R2 and R3 hold for such records too. Members differ in the messages and
 *       links that they see, so this rule ends after a few times the usual wait for a round. */

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
    TW_ASSERT(parts != 0);
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
    TW_ASSERT(member < TW_MEMBERS_MAX);
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
    TW_ASSERT(member < node->roster.count);
    TW_ASSERT(round->phase == PROPOSER_PROPOSING);
    for (uint32_t k = 0; k < round->proposal.parts_count; k++) {
        if (round->proposal.parts[k].bytes > 0 && (parts >> k & 1) != 0)
            round->refused_by[k] |= UINT64_C(1) << member;
    }
}

bool tw_veto_is_ballot_lost(struct tw_node *node) {
    struct round *round = &node->round;
    const uint32_t needed = tw_membership_votes_needed(node);
    TW_ASSERT(round->phase == PROPOSER_PROPOSING);
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
    TW_ASSERT(rank < TW_MEMBERS_MAX);
    return (node->round.refused_ranks >> rank & 1) != 0 && is_time(node);
}
