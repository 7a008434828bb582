/* proposal_check.c - what no honest proposer writes into a record, as far as this node can tell.
 *
 *   false         Results and their contributors are those that the owners announced. A proposer
 *                 could put lies in their place, have honest owners struck for them (audit.c), and
 *                 have work merged twice or lost. Such parts are refused like outliers (R1 of
 *                 veto.c). An owner that announces different results to different members holds up
 *                 nobody: its part is left out.
 *   unannounced   A result whose owner is here and has announced nothing yet is waited for.
 *   early         At most a quarter of all parts is left out whose results have yet to come, though
 *                 their owners are here and in time; half in rosters so small that one part is more
 *                 than a quarter. By the clock, nothing is proposed before the round is due here.
 *                 An early record is not refused: it waits, and holds up nobody.
 *   empty         The same bound for these together with parts whose results are here and accepted.
 *   company       The next roster has this node while it is whole; all members that are here, but
 * for one in eight; and no unknown ones. Two lying proposers would soon be among themselves, and a
 * majority. skewed        The next round is divided by the record itself and by uploads: among
 * members that were in time and not proven false (round/proposal.c). Members differ in whom they
 *                 struck and see, so an honest proposer leaves out at most a third of it.
 *
 * Beyond the third more that the other owners may get for that, at most an eighth of the fragment
 * (a fifth with few owners) may be with the wrong owners. If liars own half of a round, members
 * that doubt themselves for it (kernels/outlier.h) accept the lies after it. With more than
 * TW_PARTS_MAX members the proposer chooses which of them own.
 *
 * The last two are checked in rosters of cfg.judges_min and more. All but the first end with
 * patience: a restarting owner, or a cut between two others, divides honest members too. A record
 * decided after that may list results that no owner announced; nobody is struck for it (audit.c).
 */
#include "sync/check/proposal_check.h"

#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/state/node.h"
#include "sync/round/part_weights.h"
#include "sync/round/proposal.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/trust/conduct.h"

/* By then every rank has tried to close the round. */
enum { RIGGED_PATIENCES = 4 };

/* Of the fragment; of few owners; and of owners that this node alone may have struck. */
enum { SKEW_ONE_IN = 8, SKEW_ONE_IN_FEW = 5, STRUCK_ONE_IN = 12 };

bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k) {
    const struct tw_part *part = &record->parts[k];
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    /* Our own result may be one announced before a restart: the others know it. */
    if (part->bytes == 0 || !node->round.results[k].has) return false;
    if ((int)part->owner_idx == node->round.self_idx) return false;
    return part->bytes != announced->bytes || !tw_id_equal(&part->result, &announced->hash) ||
           part->contributors != tw_proposal_contributors(announced);
}

static bool is_unannounced(const struct tw_node *node, const struct tw_record *record) {
    for (uint32_t k = 0; k < record->parts_count; k++) {
        const struct tw_part *part = &record->parts[k];
        if (part->bytes == 0 || node->round.results[k].has) continue;
        if ((int)part->owner_idx == node->round.self_idx) continue;
        if (tw_membership_is_live(node, part->owner_idx)) return true;
    }
    return false;
}

/* More parts than an honest proposer leaves out. */
static bool is_much(const struct tw_node *node, uint32_t parts) {
    return (node->roster.count < TW_JUDGES_MIN ? 2 : 4) * parts > node->round.owners_count;
}

static bool is_left_out(const struct tw_record *record, uint32_t k) {
    return record == NULL || k >= record->parts_count || record->parts[k].bytes == 0;
}

/* The result announced for part k is on its way here. */
static bool is_coming(struct tw_node *node, uint32_t k) {
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    if (!node->round.results[k].has || announced->bytes == 0) return false;
    const struct payload *payload = tw_payload_find(node, &announced->hash);
    return payload != NULL && payload->state != PAYLOAD_HELD && payload->state != PAYLOAD_UNFIT &&
           !tw_payload_is_lost(payload);
}

/* Parts of others that are left out, whose results are not here yet and still have time to come. */
static uint32_t count_to_come(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    const uint64_t end_us = round->active_us + node->pace.patience_us;
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
    if (node->now_us < node->round.active_us) { /* by the clock: round.c */
        tw_act_wake(node, node->round.active_us);
        return true;
    }
    return is_much(node, count_to_come(node, record));
}

bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record) {
    const struct round *round = &node->round;
    uint32_t left_out = count_to_come(node, record);
    for (uint32_t k = 0; k < round->owners_count; k++) {
        const struct tw_msg_result *announced = &round->results[k].announced;
        left_out += is_left_out(record, k) && round->results[k].has && announced->bytes > 0 &&
                    tw_payload_is_held(node, &announced->hash) &&
                    !tw_payload_is_refused(node, &announced->hash, round->count[k]);
    }
    return is_much(node, left_out);
}

/* Members that are here and left out, and strangers let in. */
static bool is_unlikely_company(const struct tw_node *node, const struct tw_roster *next) {
    const int self = tw_roster_find(next, &node->cfg.self);
    const bool has_us = self >= 0 && next->members[self].nonce == node->at.nonce;
    uint32_t count = 0;
    if (node->state == TW_STATE_MEMBER && !has_us) return true;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        count +=
            tw_roster_find(next, &node->roster.members[i].id) < 0 && tw_membership_is_live(node, i);
    }
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_id *id = &next->members[i].id;
        count += tw_roster_find(&node->roster, id) < 0 && !tw_id_equal(id, &node->cfg.self) &&
                 tw_peers_find(node, id) == NO_PEER;
    }
    return count > (node->roster.count + 4) / 8;
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

/* The roster with the owners that are here, limited to the fastest uploads. */
static struct tw_roster largest_of(const struct tw_node *node, const struct tw_roster *roster) {
    struct tw_roster largest = *roster;
    for (uint32_t i = 0; i < largest.count; i++) {
        if (!is_here(node, &largest.members[i].id)) largest.members[i].weight = 0;
    }
    if (sum_of(&largest) == 0) largest = *roster;
    tw_part_weights_limit(&largest);
    return largest;
}

/* Too much of the next fragment is beyond the shares that its owners should have, plus a third as
 * others may be left out. A share is by upload, or an equal one if that is more: a member may
 * report different uploads to different nodes. */
static bool is_skewed(const struct tw_node *node, const struct tw_record *record) {
    struct tw_roster fair = record->next;
    tw_proposal_fair(node, record, &fair);
    tw_conduct_drop_struck(node, &fair, sum_of(&fair) / STRUCK_ONE_IN);
    const struct tw_roster largest = largest_of(node, &fair);
    const uint64_t all = sum_of(&record->next), fair_all = sum_of(&largest);
    const uint64_t count = owners_of(&largest);
    uint64_t beyond = 0; /* of 3 x count x fair_all x all: below 2^56 */
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

static bool is_rigged(struct tw_node *node, const struct tw_record *record) {
    if (is_unannounced(node, record) || tw_proposal_is_early(node, record)) return true;
    if (tw_proposal_is_empty(node, record)) return true;
    if (node->roster.count < node->cfg.judges_min) return false;
    return is_unlikely_company(node, &record->next) ||
           (node->roster.count >= TW_JUDGES_MIN && is_skewed(node, record));
}

/* Ends before a node would leave because the round stays open. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record) {
    const uint64_t end_us =
        node->round.active_us +
        at_most(RIGGED_PATIENCES * node->pace.patience_us, node->cfg.orphan_us / 2);
    if (node->now_us >= end_us || !is_rigged(node, record)) return false;
    tw_act_wake(node, end_us);
    return true;
}
