/* prospects.c - whether the lineage that this node follows can still go on, for all it knows.
 *
 * All questions are about time and links alone. A wrong yes costs a fork, which never contradicts a
 * decided round. A wrong no costs the wait of an orphan (cfg.orphan_us). */
#include "sync/history/prospects.h"

#include "sync/core/actions.h"
#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/state/node.h"
#include "sync/core/voters.h"
#include "sync/trust/conduct.h"

bool tw_prospects_are_unserved(const struct tw_node *node, bool is_here) {
    if (node->roster.count < 2 || node->lineage.needs_tip) return false;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *const id = &node->roster.members[i].id;
        if (tw_id_equal(id, &node->cfg.self)) continue;
        const uint16_t peer = tw_peers_find(node, id);
        if (peer == NO_PEER || !tw_peers_is_live(node, peer) || tw_peers_is_donor(node, peer))
            return false;
        if (is_here && !tw_peers_in_lineage(node, peer) &&
            node->links[peer].status.clock_tokens >= tw_progress_held_tokens(node))
            return false;
    }
    return true;
}

/* True if so many voters have left that the remaining ones are no majority, and no member has a
 * round that this node lacks. */
static bool is_left_behind(struct tw_node *node) {
    uint32_t staying_count = 0;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (tw_peers_in_lineage(node, i) && node->links[i].status.rounds > node->at.rounds)
            return false;
    }
    for (uint32_t i = 0; i < node->roster.count; i++)
        staying_count += (node->voters >> i & 1) != 0 && !tw_membership_is_parted(node, i);
    return staying_count < tw_membership_votes_needed(node);
}

/* True if no member of the roster can be ahead of this node in the lineage, as far as links tell.
 * Every member must be linked; or, with `is_most`, so many voters that the others are no majority
 * without them. */
static bool is_nobody_ahead(const struct tw_node *node, bool is_most) {
    uint32_t voters = 0;
    bool is_all = true;
    if (tw_roster_find(&node->roster, &node->cfg.self) < 0 || node->lineage.needs_tip) return false;
    for (uint32_t i = 0; i < node->roster.count; i++) {
        const struct tw_id *id = &node->roster.members[i].id;
        const bool is_self = tw_id_equal(id, &node->cfg.self);
        const uint16_t peer = is_self ? NO_PEER : tw_peers_find(node, id);
        if (!is_self && (peer == NO_PEER || !tw_peers_is_live(node, peer))) {
            is_all = false;
            continue;
        }
        voters += (uint32_t)(node->voters >> i & 1);
        if (!is_self && tw_peers_in_lineage(node, peer) &&
            node->links[peer].status.rounds > node->at.rounds)
            return false;
    }
    return is_all || (is_most && voters >= tw_membership_votes_needed(node));
}

/* True if the members that hold this node's round are so few that the others do not take their
 * word for it (log.c), and this node's log does not reach back to the others to prove it. So it is
 * after a restart of the whole group in which few members have the newest checkpoint. */
static bool is_disbelieved(const struct tw_node *node) {
    uint32_t count = 1;
    bool is_behind = false;
    /* Without a search in the roster first: this is asked at each event, and rarely true. */
    for (uint16_t i = 0; i < node->links_end && !is_behind; i++) {
        const struct tw_msg_status *const status = &node->links[i].status;
        is_behind = status->state == TW_STATE_RECEIVER && status->rounds < node->log.begin &&
                    tw_peers_in_lineage(node, i);
    }
    if (!is_behind) return false;
    is_behind = false;
    for (uint16_t i = 0; i < node->links_end; i++) {
        const struct tw_msg_status *const status = &node->links[i].status;
        if (!tw_peers_in_lineage(node, i) || tw_roster_find(&node->roster, &node->links[i].id) < 0)
            continue;
        count += status->state != TW_STATE_RECEIVER;
        is_behind |= status->state == TW_STATE_RECEIVER && status->rounds < node->log.begin;
    }
    return is_behind && count <= tw_membership_liars_max(node);
}

bool tw_prospects_are_gone(struct tw_node *node) {
    if (node->state == TW_STATE_MEMBER) {
        const bool is_late = node->now_us >= node->lineage.majority_us + LINEAGE_LOST_US &&
                             node->now_us >= node->pace.last_commit_us + LINEAGE_LOST_US;
        return is_left_behind(node) ||
               ((node->round.is_lost || is_disbelieved(node)) && is_nobody_ahead(node, is_late));
    }
    if (!tw_voters_are_awaited(node) && tw_prospects_are_unserved(node, true))
        return is_nobody_ahead(node, false);
    return node->now_us >= node->lineage.donor_us + LINEAGE_LOST_US && is_nobody_ahead(node, true);
}

/* True if linked donors are ahead, and no donor's log reaches back to this node's round. */
static bool is_log_gone(const struct tw_node *node) {
    bool is_gone = false;
    for (uint16_t i = 0; i < node->links_end; i++) {
        if (!tw_peers_is_donor(node, i) || node->links[i].status.rounds <= node->at.rounds)
            continue;
        if (node->links[i].log_begin <= node->at.rounds) return false;
        is_gone = true;
    }
    return is_gone;
}

bool tw_prospects_are_starved(struct tw_node *node) {
    const bool is_gone = is_log_gone(node);
    bool is_owed = node->lineage.needs_tip || is_gone, has_donor = false;
    if ((node->state != TW_STATE_RECEIVER && !is_gone) || node->has_left) {
        node->lineage.moved_us = node->now_us;
        return false;
    }
    for (uint32_t p = 0; p < node->cfg.fragments_count; p++)
        is_owed |= node->at.fragment_rounds[p] == NOT_HELD;
    for (uint16_t i = 0; i < node->links_end; i++) has_donor |= tw_peers_is_donor(node, i);
    if (!is_owed || !node->worker.is_up || !tw_fragment_set_is_empty(&node->worker.applying))
        node->lineage.moved_us = node->now_us;
    if (!has_donor) return false;
    const uint64_t starved_us = node->lineage.moved_us + 2 * node->cfg.orphan_us;
    if (node->now_us < starved_us) {
        tw_act_wake(node, starved_us);
        return false;
    }
    if (!tw_id_is_zero(&node->lineage.leader))
        tw_conduct_note_false_claim(node, &node->lineage.leader);
    return true;
}
