/* membership.c - which members of the roster vote, contribute and are waited for. */
#include "sync/core/membership.h"

#include "sync/core/actions.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/reach.h"
#include "sync/core/state/node.h"
#include "sync/core/voters.h"

uint32_t tw_membership_votes_needed(const struct tw_node *node) {
    const uint32_t voters = tw_bits(node->voters);
    if (TW_IS_MUTANT(node, TW_MUTANT_HALF_QUORUM)) return (voters + 1) / 2;
    return voters > 0 ? tw_votes_needed(voters) : 1;
}

uint32_t tw_membership_liars_max(const struct tw_node *node) {
    return node->voters != 0 ? tw_liars_max(tw_bits(node->voters)) : 0;
}

bool tw_membership_has_judges(const struct tw_node *node) {
    return tw_bits(node->voters) >= node->cfg.judges_min || tw_membership_liars_max(node) > 0;
}

bool tw_membership_sees_most(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        if ((node->voters >> i & 1) == 0) continue;
        count += tw_id_equal(id, &node->cfg.self) || tw_peers_find(node, id) != NO_PEER;
    }
    return node->roster.count > 0 && count >= tw_membership_votes_needed(node);
}

int tw_membership_voter(const struct tw_node *node, uint16_t peer) {
    const int idx = peer == NO_PEER ? node->round.self_idx
                                    : tw_roster_find(&node->roster, &node->links[peer].id);
    return idx >= 0 && (node->voters >> idx & 1) != 0 ? idx : -1;
}

bool tw_membership_is_voter(const struct tw_node *node) {
    return tw_membership_takes_part(node) && tw_membership_voter(node, NO_PEER) >= 0;
}

bool tw_membership_takes_part(const struct tw_node *node) {
    return !node->has_left && !node->lineage.needs_tip && node->round.self_idx >= 0 &&
           node->at.rounds >= node->acceptor.vote_floor && node->state != TW_STATE_FINISHED;
}

bool tw_membership_is_live(const struct tw_node *node, uint32_t idx) {
    if (tw_id_equal(&node->roster.members[idx].id, &node->cfg.self)) return true;
    const uint16_t peer = tw_reach_peer(node, idx);
    /* A receiver with a seat may vote, but only donors of the lineage are worth waiting for. */
    return peer != NO_PEER && tw_peers_is_donor(node, peer);
}

bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx) {
    const struct tw_member *member = &node->roster.members[idx];
    if (tw_membership_is_live(node, idx)) return true;
    const uint16_t peer = tw_reach_peer(node, idx);
    return peer != NO_PEER && tw_peers_in_lineage(node, peer) &&
           node->links[peer].status.nonce == member->nonce;
}

bool tw_membership_is_parted(struct tw_node *node, uint32_t idx) {
    if (node->seats[idx].has_left) return true;
    const struct tw_member *member = &node->roster.members[idx];
    const uint16_t peer = tw_reach_peer(node, idx);
    if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return false;
    if (node->links[peer].status.nonce == member->nonce) return false;
    /* A member that just joined may not have sent STATUS with its new nonce yet. */
    const uint64_t due_us = node->seats[idx].seen_us + RETRY_US;
    if (node->now_us < due_us) tw_act_wake(node, due_us);
    return node->now_us >= due_us;
}

/* Member `idx` claims a role; an unlinked one trains, for want of a claim. */
static enum tw_node_role role_of(const struct tw_node *node, uint32_t idx) {
    if (tw_id_equal(&node->roster.members[idx].id, &node->cfg.self)) return tw_peers_own_role(node);
    const uint16_t peer = tw_reach_peer(node, idx);
    if (peer == NO_PEER || !tw_peers_is_live(node, peer)) return TW_NODE_ROLE_TRAIN;
    return node->links[peer].status.role;
}

bool tw_membership_trains(const struct tw_node *node, uint32_t idx) {
    return role_of(node, idx) == TW_NODE_ROLE_TRAIN;
}

bool tw_membership_reduces(const struct tw_node *node, uint32_t idx) {
    return role_of(node, idx) == TW_NODE_ROLE_REDUCE;
}

bool tw_membership_has_roles(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (!tw_membership_trains(node, i)) return true;
    }
    return false;
}

bool tw_membership_has_trainer(const struct tw_node *node) {
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if (tw_membership_is_live(node, i) && tw_membership_trains(node, i)) return true;
    }
    return false;
}

/* Waits for contributions count these members alone: a group waits as its trainers alone would. */
uint32_t tw_membership_lying_trainers(const struct tw_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) count += tw_membership_trains(node, i);
    return count > 0 ? tw_liars_max(count) : 0;
}

uint64_t tw_membership_pacers(const struct tw_node *node) {
    uint64_t trainers = 0;
    for (uint32_t i = 0; i < node->roster.count; i++)
        trainers |= (uint64_t)tw_membership_trains(node, i) << i;
    const uint64_t known = trainers & node->voters;
    return node->cfg.has_rights || known == 0 ? trainers : known;
}

bool tw_membership_is_silent(const struct tw_node *node, uint32_t idx) {
    return (int)idx != node->round.self_idx &&
           (node->seats[idx].has_left || node->now_us - node->seats[idx].seen_us > MEMBER_DEAD_US);
}

bool tw_membership_is_asked(const struct tw_node *node) {
    uint32_t staying = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) staying += !tw_membership_is_silent(node, i);
    for (uint32_t j = 0; j < JOINS_MAX; j++) {
        const struct tw_msg_join *join = &node->lineage.joins[j].join;
        const uint64_t received_us = node->lineage.joins[j].received_us;
        if (received_us == 0 || node->now_us - received_us > JOIN_VALID_US) continue;
        if (join->rounds != node->at.rounds || !tw_id_equal(&join->lineage, &node->at.lineage))
            continue;
        const int idx = tw_roster_find(&node->roster, &node->lineage.joins[j].id);
        const bool has_seat = idx >= 0 && node->roster.members[idx].nonce == join->nonce;
        if (!has_seat && (idx >= 0 || staying < node->cfg.members_max)) return true;
    }
    return false;
}

/* True if this node holds every fragment of its lineage's state, and theta has moved there. */
static bool holds_state(const struct tw_node *node) {
    bool is_whole = !node->lineage.needs_tip && node->at.is_moving == 0;
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        is_whole &= node->at.fragment_rounds[p] != NOT_HELD;
    return is_whole;
}

void tw_membership_derive_state(struct tw_node *node) {
    enum tw_node_state state = TW_STATE_RECEIVER;
    const bool is_done = node->at.has_tip != 0 &&
                         node->at.tip.finals >= node->cfg.fragments_count &&
                         tw_progress_is_current(node);
    const bool is_member =
        node->round.self_idx >= 0 && node->at.rounds >= node->acceptor.vote_floor;
    if (is_done) {
        state = TW_STATE_FINISHED;
    } else if (is_member && node->roster.count == 1) {
        state = TW_STATE_SOLO;
    } else if (is_member && holds_state(node)) {
        state = TW_STATE_MEMBER;
    }
    if (state == node->state) return;
    node->state = state;
    if (state == TW_STATE_MEMBER) node->worker.entered_step = node->worker.step;
    node->status_us = 0;
    node->lineage.majority_us = node->lineage.donor_us = node->now_us;
    tw_act_report(node, TW_REPORT_STATE, &node->at.lineage);
}

/* True if other voters of the roster are there and may give this node a seat, or need not be: this
 * node has no vote itself, or still fetches the state. Where no round was decided for long, a voter
 * must be linked. Otherwise a receiver that may vote founds a child lineage. */
static bool sees_a_voter(const struct tw_node *node) {
    if (node->roster.count == 0 || tw_voters_are_awaited(node) || !holds_state(node)) return true;
    if (node->now_us < node->pace.last_commit_us + node->cfg.orphan_us) return true;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        if ((node->voters >> i & 1) != 0 && tw_membership_is_live(node, i) &&
            !tw_id_equal(&node->roster.members[i].id, &node->cfg.self))
            return true;
    }
    return false;
}

void tw_membership_note(struct tw_node *node) {
    uint32_t seated_count = 0;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const bool is_live = tw_membership_is_live(node, i) || tw_reach_is_present(node, i);
        if (!is_live && !tw_membership_is_seated(node, i)) continue;
        node->seats[i].seen_us = node->now_us;
        seated_count += (node->voters >> i & 1) != 0;
        if (is_live) node->seats[i].live_us = node->now_us;
    }
    /* A majority that cannot decide its round counts as none, because the results may be lost with
     * the members that accepted them. This node then founds a child lineage, as an orphan does. */
    const uint64_t stuck_us = node->cfg.orphan_us + 4 * node->pace.patience_us;
    const bool is_stuck = node->round.is_lost || (node->round.active_us != 0 &&
                                                  node->now_us > node->round.active_us + stuck_us);
    if (seated_count >= tw_membership_votes_needed(node) && !is_stuck)
        node->lineage.majority_us = node->now_us;
    const bool has_voters = sees_a_voter(node);
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_is_donor(node, i) && (has_voters || tw_voters_may(node, i)))
            node->lineage.donor_us = node->now_us;
    }
}
