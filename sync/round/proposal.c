/* proposal.c - the record that a proposer proposes: results, contributors, next roster with part
 * weights; and the checks of a record on which all honest members agree. */
#include "sync/round/proposal.h"

#include <string.h>

#include "base/assert.h"
#include "base/median.h"
#include "sync/core/conduct.h"
#include "sync/core/membership.h"
#include "sync/core/state.h"
#include "sync/core/voters.h"
#include "sync/round/result.h"
#include "sync/round/round.h"
#include "sync/transfer/payload.h"

/* ---- checks of a record ---------------------------------------------------------------------- */

bool tw_record_is_sound(const struct tw_node *node, const struct tw_record *record) {
    const struct tw_record *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    uint64_t clock_tokens = tip != NULL ? tip->clock_tokens : 0, contributors = 0;
    const uint32_t finals = tw_progress_is_final(node) ? tip->finals + 1 : 0;
    for (uint32_t i = 0; i < record->contributors_count; i++) {
        const struct tw_contributor *by = &record->contributors[i];
        if (by->member_idx >= node->roster.count ||
            !tw_account_is_possible(node, by, tw_account_nodes_max(node)))
            return false;
        contributors |= UINT64_C(1) << by->member_idx;
    }
    clock_tokens += tw_record_tokens(record, tip) * tw_progress_share(node);
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].owner_idx != node->round.owners[k]) return false;
        if ((record->parts[k].contributors & ~contributors) != 0) return false;
        if (record->parts[k].bytes > 0 && node->round.count[k] == 0) return false;
        if (!tw_payload_is_possible(node, TW_CONTENT_RESULT, node->round.count[k],
                                    record->parts[k].bytes))
            return false;
    }
    const bool has_parts = record->parts_count == node->round.owners_count;
    const bool is_solo = node->roster.count == 1 && record->parts_count == 0;
    const bool has_none = record->parts_count == 0 && record->contributors_count == 0;
    /* The founder of this lineage also counts tokens of its own that this node does not know of, so
     * its last rounds may begin one round earlier. */
    const bool is_finals = record->finals == finals || (tw_progress_is_apart(node) && tip != NULL &&
                                                        record->finals == tip->finals + 1);
    uint32_t owners[TW_PARTS_MAX];
    if (tw_roster_owners(&record->next, owners) == 0) return false;
    return tw_id_equal(&record->lineage, &node->at.lineage) &&
           tw_id_equal(&record->parent, &node->tip_digest) && record->round == node->at.rounds &&
           record->fragment == tw_progress_fragment(node, record->round) &&
           record->roster_number == node->roster.number && record->clock_tokens == clock_tokens &&
           is_finals && (has_parts || has_none || is_solo);
}

/* ---- the base -------------------------------------------------------------------------------- */

/* The digest of the state that the round changes. A voter answers only for its own state, so a
 * record with a base is decided by voters that hold it, an honest one among them. A proposer tells
 * none if it does not know enough such voters by their CONTRIB, and in late ballots, so that voters
 * without the state stop no round. The closing round waits for the proposer's merges instead. */

enum { BASE_ATTEMPTS = 2 }; /* ballots of one proposer with a base */

static bool is_early_ballot(uint64_t ballot) {
    return ballot / TW_MEMBERS_MAX < BASE_ATTEMPTS;
}

/* Writes the base of the record by this node's own state. False if this node does not hold it. */
static bool write_base(const struct tw_node *node, const struct tw_record *record,
                       struct tw_id *base) {
    const uint32_t fragment = record->fragment;
    if (tw_progress_is_closing(node, record)) {
        if (!tw_progress_is_current(node)) return false;
        *base = tw_record_root(node->at.fragment_digests, node->cfg.fragments_count);
        return true;
    }
    if (node->at.fragment_rounds[fragment] == NOT_HELD || node->at.is_moving != 0) return false;
    if (tw_progress_due(node, fragment) != UINT64_MAX) return false;
    *base = node->at.fragment_digests[fragment];
    return true;
}

enum tw_base tw_proposal_base(const struct tw_node *node, const struct tw_record *record,
                              uint64_t ballot) {
    struct tw_id base;
    const bool is_closing = tw_progress_is_closing(node, record);
    if (TW_IS_MUTANT(node, TW_MUTANT_ANY_BASE)) return TW_BASE_RIGHT;
    if (tw_id_is_zero(&record->base)) {
        const bool is_due = is_closing && is_early_ballot(ballot);
        return is_due && write_base(node, record, &base) ? TW_BASE_WRONG : TW_BASE_RIGHT;
    }
    if (write_base(node, record, &base))
        return tw_id_equal(&base, &record->base) ? TW_BASE_RIGHT : TW_BASE_WRONG;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++) {
        const bool is_needed = is_closing || p == record->fragment;
        if (is_needed && node->at.fragment_rounds[p] == NOT_HELD) return TW_BASE_WRONG;
    }
    return TW_BASE_LATER;
}

/* True if enough voters to decide say by their CONTRIB that they hold this state. */
static bool is_held_by_enough(const struct tw_node *node, const struct tw_id *base) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct contribution *entry = &node->round.contributions[i];
        if ((node->voters >> i & 1) == 0) continue;
        count += (int)i == node->round.self_idx ||
                 (entry->has && tw_id_equal(&entry->announced.base, base));
    }
    return count >= tw_membership_votes_needed(node);
}

/* Writes the base of this node's proposal. */
static void propose_base(const struct tw_node *node, struct tw_record *record) {
    struct tw_id base;
    record->base = (struct tw_id){{0}};
    if (node->cfg.is_pair || !is_early_ballot(node->round.ballot)) return;
    if (!write_base(node, record, &base)) return;
    if (tw_progress_is_closing(node, record) || is_held_by_enough(node, &base)) record->base = base;
}

/* ---- part weights ---------------------------------------------------------------------------- */

/* The weights of owners in the next round: part sizes by upload rate.
 *
 * An owner of a fraction s of the fragment, among n members, sends its result to all others, and
 * its contributions to the other owners: 1 + s * (n - 2) times the bytes of one contribution. Apart
 * from the constant 1, the round ends soonest when s is proportional to upload. In whole numbers:
 *
 *     weight = WEIGHT_EVEN * upload / median of the uploads,   1 to WEIGHT_MAX
 *
 * Each member measures its own upload and reports it in STATUS. All proposers thus use the same
 * numbers, and parts do not jump from round to round. A member that reports too much has more to
 * send, is late and owns nothing in the next round; WEIGHT_MAX bounds the damage. A member without
 * a report counts as the median. Without any report, and between two members, all parts are equal.
 *
 * A peer whose link is far worse than all others, as this node measured (TW_EV_MEASURED), owns
 * nothing in the rosters that this node proposes. It still contributes, and this node asks it for
 * bytes last. */

enum { WEIGHT_EVEN = 16, WEIGHT_MAX = 4 * WEIGHT_EVEN };

static uint32_t upload_of(const struct tw_node *node, const struct tw_id *id) {
    if (tw_id_equal(id, &node->cfg.self)) return node->measured.upload_kib_s;
    const uint16_t peer = tw_peers_find(node, id);
    return peer != NO_PEER && tw_peers_is_live(node, peer) ? node->links[peer].status.upload_kib_s
                                                           : 0;
}

/* Returns the median of the known uploads, or 0 if none is known. */
static uint32_t median_of(const uint32_t *uploads, uint32_t count) {
    uint64_t values[TW_MEMBERS_MAX];
    uint32_t known = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (uploads[i] > 0) values[known++] = uploads[i];
    }
    return (uint32_t)tw_median_u64(values, known);
}

static uint32_t weight_of(uint32_t upload, uint32_t middle) {
    TW_ASSERT(middle > 0);
    if (upload == 0) return WEIGHT_EVEN;
    const uint64_t weight = (uint64_t)WEIGHT_EVEN * upload / middle;
    if (weight > WEIGHT_MAX) return WEIGHT_MAX;
    return weight > 0 ? (uint32_t)weight : 1;
}

/* Gives the owners of a roster (weight above 0) their weights. */
static void set_weights(const struct tw_node *node, struct tw_roster *next) {
    uint32_t uploads[TW_MEMBERS_MAX], count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight > 0) uploads[count++] = upload_of(node, &next->members[i].id);
    }
    const uint32_t middle = median_of(uploads, count);
    if (middle == 0 || count < 3) return;
    count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight > 0)
            next->members[i].weight = weight_of(uploads[count++], middle);
    }
}

/* Takes parts away from members whose links are far worse than all others, up to a total weight of
 * `most`. Does nothing if half of the owners have such links: then this node's own link is the bad
 * one. */
static void drop_outliers(const struct tw_node *node, struct tw_roster *next, uint64_t most) {
    uint32_t owners_count = 0, outliers_count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        owners_count += next->members[i].weight > 0;
        outliers_count += next->members[i].weight > 0 &&
                          tw_peers_is_outlier(node, tw_peers_find(node, &next->members[i].id));
    }
    if (2 * outliers_count >= owners_count) return;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        if (member->weight > most || !tw_peers_is_outlier(node, tw_peers_find(node, &member->id)))
            continue;
        most -= member->weight;
        member->weight = 0;
    }
}

/* Takes the part away from the owner with the slowest upload. */
static void drop_slowest(struct tw_roster *next) {
    uint32_t slowest = TW_MEMBERS_MAX;
    for (uint32_t i = 0; i < next->count; i++) {
        if (next->members[i].weight == 0) continue;
        if (slowest == TW_MEMBERS_MAX || next->members[i].weight <= next->members[slowest].weight)
            slowest = i;
    }
    if (slowest < TW_MEMBERS_MAX) next->members[slowest].weight = 0;
}

void tw_part_weights_limit(struct tw_roster *next) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->count; i++) count += next->members[i].weight > 0;
    for (; count > TW_PARTS_MAX; count--) drop_slowest(next);
}

/* ---- the proposal ---------------------------------------------------------------------------- */

/* Time for which a member stays in the roster while it fetches (phi, u). To be admitted again, it
 * would have to apply every round up to the newest, which takes longer than the fetch on a full
 * link. The others do not wait for it, so it costs nothing while they are a majority without it. If
 * they are no majority, its link would set the pace of rounds. The time is bounded: a member that
 * cannot fetch cannot vote, and each silent member brings the group closer to having no majority.
 */
static uint64_t receiver_seat_us(const struct tw_node *node) {
    uint32_t seats_count = 0, live_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) == 0 || tw_membership_is_silent(node, i)) continue;
        seats_count++;
        live_count += tw_reach_is_present(node, i);
    }
    const bool is_enough = seats_count > 0 && live_count >= tw_votes_needed(seats_count);
    return is_enough ? node->cfg.orphan_us : MEMBER_DEAD_US;
}

/* True if the member holds every fragment, as far as this node knows, so that it can own a part. */
static bool can_own(const struct tw_node *node, uint32_t idx) {
    if ((int)idx == node->round.self_idx) return node->state != TW_STATE_RECEIVER;
    return tw_reach_is_present(node, idx);
}

/* Set of members that contributed to some part. */
static uint64_t contributors_of(const struct tw_record *record) {
    uint64_t contributed = 0;
    for (uint32_t i = 0; i < record->contributors_count; i++)
        contributed |= UINT64_C(1) << record->contributors[i].member_idx;
    return contributed;
}

/* Set of owners without a result in the record. */
static uint64_t absent_owners(const struct tw_node *node, const struct tw_record *record) {
    uint64_t absent = 0;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        if (record->parts[k].bytes == 0 && node->round.count[k] > 0)
            absent |= UINT64_C(1) << record->parts[k].owner_idx;
    }
    return absent;
}

/* Set of members against which this node has proof of a false merge. */
static uint64_t false_members(const struct tw_node *node) {
    uint64_t members = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (tw_conduct_is_proven_false(node, &node->roster.members[i].id))
            members |= UINT64_C(1) << i;
    }
    return members;
}

/* Set of members that claim to merge for others and contribute nothing. Only members with a link
 * know that role, so all present members must have one. */
static uint64_t reducers_of(const struct tw_node *node, bool is_mesh) {
    const uint32_t present = tw_bits(node->reach.present);
    uint64_t members = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_linked = is_mesh || tw_reach_count(node, i) >= present;
        if (is_linked && tw_membership_reduces(node, i)) members |= UINT64_C(1) << i;
    }
    return members;
}

/* Set of members that may own a part in the next round: members that were in time or reduce, or
 * all if none was in time. Most contributors must also be able to reach them. If no punctual member
 * is reachable, late members that are reachable own the parts: work that never reaches its owner is
 * lost. */
static uint64_t may_own(const struct tw_node *node, const struct tw_record *record, bool is_mesh) {
    const uint64_t contributed = contributors_of(record);
    const uint64_t sound =
        ~false_members(node) & (contributed == 0 ? UINT64_MAX : ~absent_owners(node, record));
    const uint64_t in_time =
        contributed == 0 ? sound : sound & (contributed | reducers_of(node, is_mesh));
    const uint64_t reached = is_mesh ? UINT64_MAX : tw_reach_owners(node, sound);
    return (in_time & reached) != 0 ? in_time & reached : is_mesh ? in_time : reached;
}

void tw_proposal_fair(const struct tw_node *node, const struct tw_record *record, bool is_mesh,
                      struct tw_roster *next) {
    const uint64_t owners = may_own(node, record, is_mesh);
    bool has_owner = false;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        const int at = tw_roster_find(&node->roster, &member->id);
        member->weight =
            at >= 0 && node->roster.members[at].nonce == member->nonce && (owners >> at & 1) != 0;
        has_owner |= member->weight > 0;
    }
    for (uint32_t i = 0; i < next->count && !has_owner; i++) next->members[i].weight = 1;
    set_weights(node, next);
}

/* Takes parts away from owners that are gone, struck, stalled or outliers in link quality. If other
 * members check the proposal (check/veto.c), the present owners lose at most a third of
 * the fragment, because other members may judge them differently. */
static void drop_owners(const struct tw_node *node, struct tw_roster *next) {
    uint64_t all = 0, gone = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        struct tw_member *member = &next->members[i];
        const int at = tw_roster_find(&node->roster, &member->id);
        all += member->weight;
        if (at >= 0 && can_own(node, (uint32_t)at)) continue;
        gone += member->weight;
        member->weight = 0;
    }
    const uint64_t most = tw_membership_has_judges(node) ? all / 3 : all;
    uint64_t left = most > gone ? most - gone : 0;
    TW_ASSERT(gone <= all && left <= all);
    left -= tw_conduct_drop_struck(node, next, left);
    left -= tw_conduct_drop_stalled(node, next, left);
    if (node->measured.outliers != 0) drop_outliers(node, next, left);
    bool has_owner = false;
    for (uint32_t i = 0; i < next->count; i++) has_owner |= next->members[i].weight > 0;
    for (uint32_t i = 0; i < next->count && !has_owner; i++) next->members[i].weight = 1;
    tw_part_weights_limit(next);
}

static void insert_member(struct tw_roster *next, const struct tw_member *member) {
    TW_ASSERT(next->count < TW_MEMBERS_MAX);
    uint32_t at = next->count++;
    for (; at > 0 && tw_id_compare(&next->members[at - 1].id, &member->id) > 0; at--)
        next->members[at] = next->members[at - 1];
    next->members[at] = *member;
}

/* Gives seats to nodes that ask for one in this round. If not all may have one now, other rows come
 * first in each round, so that no node is always the last. Returns true if the roster changes. */
static bool seat_joiners(const struct tw_node *node, struct tw_roster *next) {
    const uint32_t seats_max = tw_voters_seats_max(node);
    const uint32_t first = seats_max < JOINS_MAX ? (uint32_t)(node->at.rounds % JOINS_MAX) : 0;
    uint32_t newcomers = 0;
    bool is_changed = false;
    for (uint32_t k = 0; k < JOINS_MAX; k++) {
        const uint32_t j = (first + k) % JOINS_MAX;
        const struct tw_msg_join *join = &node->lineage.joins[j].join;
        const struct tw_member joiner = {.id = node->lineage.joins[j].id, .nonce = join->nonce};
        if (node->lineage.joins[j].received_us == 0 ||
            node->now_us - node->lineage.joins[j].received_us > JOIN_VALID_US)
            continue;
        if (!tw_id_equal(&join->lineage, &node->at.lineage) || join->rounds != node->at.rounds)
            continue;
        const int idx = tw_roster_find(next, &joiner.id);
        const bool is_newcomer = tw_voters_is_newcomer(node, &joiner.id);
        if (idx >= 0 && next->members[idx].nonce == join->nonce) continue;
        if (is_newcomer && newcomers >= seats_max) continue;
        is_changed = true;
        if (idx >= 0) { /* the node lost its vote and nonce: a new member under its old id */
            next->members[idx].nonce = join->nonce;
            continue;
        }
        if (next->count >= node->cfg.members_max || next->count >= TW_MEMBERS_MAX) continue;
        insert_member(next, &joiner);
        newcomers += is_newcomer;
    }
    return is_changed;
}

/* Writes the next roster: members that are or were lately present, and nodes that ask to join. */
static void write_next_roster(struct tw_node *node, const struct tw_record *record,
                              struct tw_roster *next) {
    const uint64_t seat_us = receiver_seat_us(node);
    bool is_changed = false;
    TW_ASSERT(node->round.self_idx >= 0);
    next->count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_gone =
            tw_membership_is_silent(node, i) ||
            ((int)i != node->round.self_idx && node->now_us - node->seats[i].live_us > seat_us);
        is_changed |= is_gone;
        if (!is_gone) next->members[next->count++] = node->roster.members[i];
    }
    is_changed |= seat_joiners(node, next);
    tw_voters_seat(node, record, next);
    tw_proposal_fair(node, record, false, next);
    drop_owners(node, next);
    is_changed |= tw_roster_voters(next) != node->voters;
    next->number = node->roster.number + (is_changed ? 1 : 0);
}

bool tw_proposal_has_member(const struct tw_roster *roster, const struct tw_member *member) {
    const int at = tw_roster_find(roster, &member->id);
    return at >= 0 && roster->members[at].nonce == member->nonce;
}

/* Keeps the JOIN signatures of the next roster's new members. */
static void keep_joins(struct tw_node *node, const struct tw_roster *next) {
    struct round *round = &node->round;
    round->joins_count = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (tw_proposal_has_member(&node->roster, member)) continue;
        for (uint32_t j = 0; j < JOINS_MAX; j++) {
            const struct tw_msg_join *join = &node->lineage.joins[j].join;
            if (!tw_id_equal(&node->lineage.joins[j].id, &member->id) ||
                join->nonce != member->nonce)
                continue;
            TW_ASSERT(round->joins_count < TW_JOINS_MAX);
            memcpy(round->joins[round->joins_count++], join->signature, TW_SIGNATURE_BYTES);
            break;
        }
    }
}

static void add_contributors(const struct tw_node *node, struct tw_record *record,
                             const struct tw_msg_result *result) {
    for (uint32_t i = 0; i < result->contributors_count; i++) {
        const struct tw_contributor *by = &result->contributors[i];
        uint32_t at = 0;
        while (at < record->contributors_count &&
               record->contributors[at].member_idx < by->member_idx)
            at++;
        if (at < record->contributors_count &&
            record->contributors[at].member_idx == by->member_idx &&
            !TW_IS_MUTANT(node, TW_MUTANT_LISTED_TWICE))
            continue;
        for (uint32_t j = record->contributors_count++; j > at; j--)
            record->contributors[j] = record->contributors[j - 1];
        record->contributors[at] = *by;
        (void)tw_contributor_complete(node, &record->contributors[at]);
    }
}

void tw_proposal_draft(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_record *draft = &round->proposal; /* a draft: tw_proposal_write overwrites it */
    draft->parts_count = round->owners_count;
    for (uint32_t k = 0; k < round->owners_count; k++) {
        draft->parts[k] = (struct tw_part){.owner_idx = round->owners[k]};
        if (!round->results[k].has) continue;
        draft->parts[k] = tw_result_part(&round->results[k].announced);
        draft->parts[k].owner_idx = round->owners[k];
    }
}

void tw_proposal_write(struct tw_node *node) {
    struct round *round = &node->round;
    struct tw_record *record = &round->proposal;
    const struct tw_record *tip = node->at.has_tip != 0 ? &node->at.tip : NULL;
    record->lineage = node->at.lineage;
    record->parent = node->tip_digest;
    record->round = node->at.rounds;
    record->fragment = tw_progress_fragment(node, node->at.rounds);
    record->roster_number = node->roster.number;
    record->finals = tw_progress_is_final(node) ? tip->finals + 1 : 0;
    propose_base(node, record);
    record->contributors_count = 0;
    record->parts_count = node->roster.count == 1 ? 0 : round->owners_count;
    for (uint32_t k = 0; k < record->parts_count; k++) {
        struct tw_part *part = &record->parts[k];
        *part = (struct tw_part){.owner_idx = round->owners[k]};
        const struct tw_msg_result *result = &round->results[k].announced;
        if (!round->results[k].has || result->bytes == 0) continue;
        /* An announced result that cannot be fetched is left out: no member could accept it. */
        const struct payload *payload = tw_payload_find(node, &result->hash);
        const bool is_held = payload != NULL && payload->state == PAYLOAD_HELD;
        const struct tw_id *owner = &node->roster.members[round->owners[k]].id;
        if (!is_held &&
            (!tw_membership_is_live(node, round->owners[k]) || tw_round_is_late(node, k) ||
             tw_conduct_is_stalled(node, TW_PENALTY_STALL_OWNER, owner) ||
             (payload != NULL && tw_payload_is_lost(payload))))
            continue;
        if ((round->left_out >> k & 1) != 0 || !tw_result_is_provable(node, k)) continue;
        *part = tw_result_part(result);
        part->owner_idx = round->owners[k];
        add_contributors(node, record, result);
    }
    record->clock_tokens = tip != NULL ? tip->clock_tokens : 0;
    record->clock_tokens += tw_record_tokens(record, tip);
    write_next_roster(node, record, &record->next);
    keep_joins(node, &record->next);
    TW_ASSERT(record->next.count > 0 && record->next.count <= TW_MEMBERS_MAX);
}
