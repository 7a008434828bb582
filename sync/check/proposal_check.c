/* proposal_check.c - signs that no honest proposer wrote a record, as far as this node can tell.
 *
 *   false         A result or its contributors differ from the owner's announcement. Otherwise
 *                 audits could strike honest owners, and work could be merged twice or lost. Such
 *                 parts are refused like outliers (R1 of veto.c). If an owner announces different
 *                 results to different members, its part is left out without delay.
 *   unannounced   The owner of a listed result is linked and has not announced it yet.
 *   early         More than a quarter of the parts is left out while their owners are linked and
 *                 still have time; in rosters below TW_JUDGES_MIN, more than half. Or the round is
 *                 not due yet by this node's clock. An early record is not refused: it waits, and
 *                 delays nobody.
 *   empty         As early, but left-out parts whose results this node holds and accepts count too.
 *                 After two ballots, twice as many may be left out, then any number: members that
 *                 refuse different results must agree in the end.
 *   company       The next roster lacks this node, or more than one in eight members are unknown,
 *                 or missing although linked. Otherwise two lying proposers would soon be a
 *                 majority among themselves.
 *   skewed        The weights of the next roster differ too much from those of
 *                 round/proposal.c: by upload, among members that were in time and not proven
 *                 false. Members differ in the strikes and links that they see, so an honest
 *                 proposer leaves out at most a third. The other owners may get that third more.
 *                 Beyond it, at most an eighth of the fragment (a fifth with few owners) may be
 *                 with the wrong owners. If liars owned half of a round, members would doubt
 *                 themselves (kernels/outlier.h) and accept the next lies.
 *
 * With more than TW_PARTS_MAX members the proposer chooses the owners. Company and skewed are
 * checked in rosters of cfg.judges_min and more. All checks but false end after some patiences:
 * honest members too may differ after an owner's restart, or when two nodes lose their link. A
 * record decided after that may list results that no owner announced; no owner is struck for it
 * (audit.c). */
#include "sync/check/proposal_check.h"

#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/reach.h"
#include "sync/core/state/node.h"
#include "sync/round/part_weights.h"
#include "sync/round/proposal.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"
#include "sync/trust/conduct.h"

/* Number of patiences after which every rank has tried to propose. */
enum { RIGGED_PATIENCES = 4 };

/* One in this many: share of the fragment that wrong owners may have; the same with few owners;
 * share of owners that this node alone may have struck. */
enum { SKEW_ONE_IN = 8, SKEW_ONE_IN_FEW = 5, STRUCK_ONE_IN = 12 };

bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k) {
    const struct tw_part *part = &record->parts[k];
    const struct tw_msg_result *announced = &node->round.results[k].announced;
    /* Of this node, the others may know a result that it announced before a restart. */
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

/* More parts than an honest proposer leaves out in one of the first ballots. */
static bool is_much(const struct tw_node *node, uint32_t parts) {
    return (node->roster.count < TW_JUDGES_MIN ? 2 : 4) * parts > node->round.owners_count;
}

/* Of so many parts, this ballot's share counts. */
static uint32_t share_of(uint64_t ballot, uint32_t parts) {
    const uint64_t attempt = ballot / TW_MEMBERS_MAX;
    return attempt < 2 ? parts : attempt == 2 ? parts / 2 : 0;
}

static bool is_left_out(const struct tw_record *record, uint32_t k) {
    return record == NULL || k >= record->parts_count || record->parts[k].bytes == 0;
}

/* The result announced for part k may still arrive here. */
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
    if (node->now_us < node->round.active_us) { /* not due yet by the clock: round.c */
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

/* Too many members are left out although they are linked, or are let in without a link to us. */
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
                 !tw_reach_is_known(node, id);
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

/* The roster with the owners that are linked, limited to the fastest uploads. */
static struct tw_roster largest_of(const struct tw_node *node, const struct tw_roster *roster) {
    struct tw_roster largest = *roster;
    for (uint32_t i = 0; i < largest.count; i++) {
        if (!is_here(node, &largest.members[i].id)) largest.members[i].weight = 0;
    }
    if (sum_of(&largest) == 0) largest = *roster;
    tw_part_weights_limit(&largest);
    return largest;
}

/* The parts of the next round exceed the fair shares of their owners by too much in sum. A fair
 * share is the larger of an equal share and one by upload, because a member may report different
 * uploads to different nodes. It is then raised by a third, because other owners may be left
 * out. */
static bool is_skewed_by(const struct tw_node *node, const struct tw_record *record, bool is_mesh) {
    struct tw_roster fair = record->next;
    tw_proposal_fair(node, record, is_mesh, &fair);
    tw_conduct_drop_struck(node, &fair, sum_of(&fair) / STRUCK_ONE_IN);
    const struct tw_roster largest = largest_of(node, &fair);
    const uint64_t all = sum_of(&record->next), fair_all = sum_of(&largest);
    const uint64_t count = owners_of(&largest);
    uint64_t beyond = 0; /* in units of 1 / (3 x count x fair_all x all): below 2^56 */
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

/* Members see different parts of the graph of links, so a division that ignores links is accepted
 * too. */
static bool is_skewed(const struct tw_node *node, const struct tw_record *record) {
    return is_skewed_by(node, record, false) && is_skewed_by(node, record, true);
}

static bool is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot) {
    if (is_unannounced(node, record) || tw_proposal_is_early(node, record)) return true;
    if (tw_proposal_is_empty(node, record, ballot)) return true;
    if (node->roster.count < node->cfg.judges_min) return false;
    return is_unlikely_company(node, &record->next) ||
           (node->roster.count >= TW_JUDGES_MIN && is_skewed(node, record));
}

/* The check ends before a node would fork because the round stays open. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot) {
    const uint64_t end_us =
        node->round.active_us +
        at_most(RIGGED_PATIENCES * node->pace.patience_us, node->cfg.orphan_us / 2);
    if (node->now_us >= end_us || !is_rigged(node, record, ballot)) return false;
    tw_act_wake(node, end_us);
    return true;
}
