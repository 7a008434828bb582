/* voters.c - which members of the roster have a vote. */
#include "sync/core/voters.h"

#include "sync/core/membership.h"
#include "sync/core/peers.h"
#include "sync/core/progress.h"
#include "sync/core/reach.h"

/* The right in a member's certificate, as far as this node knows it. */
enum right { RIGHT_UNKNOWN, RIGHT_NONE, RIGHT_VOTE };

bool tw_voters_are_awaited(const struct tw_node *node) {
    return node->cfg.has_rights && node->cfg.lacks_vote && !node->cfg.is_pair &&
           !tw_progress_is_apart(node);
}

bool tw_voters_may(const struct tw_node *node, uint16_t peer) {
    return !node->cfg.has_rights || !node->links[peer].lacks_vote;
}

static enum right right_of(const struct tw_node *node, const struct tw_id *id) {
    if (tw_id_equal(id, &node->cfg.self)) return node->cfg.lacks_vote ? RIGHT_NONE : RIGHT_VOTE;
    const uint16_t peer = tw_peers_find(node, id);
    if (peer == NO_PEER) return RIGHT_UNKNOWN;
    return tw_voters_may(node, peer) ? RIGHT_VOTE : RIGHT_NONE;
}

/* True if the member votes in the present roster, under the same nonce. */
static bool has_vote(const struct tw_node *node, const struct tw_member *member) {
    const int at = tw_roster_find(&node->roster, &member->id);
    return at >= 0 && node->roster.members[at].nonce == member->nonce &&
           (node->voters >> at & 1) != 0;
}

static bool is_vote_due(const struct tw_node *node, const struct tw_member *member) {
    const enum right right = right_of(node, &member->id);
    const bool is_voter = has_vote(node, member);
    if (right == RIGHT_UNKNOWN || is_voter == (right == RIGHT_VOTE)) return is_voter;
    const bool is_seen = tw_reach_sees_voters(node, &member->id);
    return is_seen ? right == RIGHT_VOTE : is_voter;
}

void tw_voters_seat(const struct tw_node *node, struct tw_roster *next) {
    if (!node->cfg.has_rights) return;
    uint32_t voters = 0;
    for (uint32_t i = 0; i < next->count; i++) {
        next->members[i].lacks_vote = !is_vote_due(node, &next->members[i]);
        voters += !next->members[i].lacks_vote;
    }
    /* Somebody has to decide: the present voters go on until another one has a seat. */
    for (uint32_t i = 0; i < next->count && voters == 0; i++)
        next->members[i].lacks_vote = !has_vote(node, &next->members[i]);
}

bool tw_voters_are_false(const struct tw_node *node, const struct tw_roster *next) {
    if (TW_IS_MUTANT(node, TW_MUTANT_VOTE_GIVEN)) return false;
    for (uint32_t i = 0; i < next->count; i++) {
        const struct tw_member *member = &next->members[i];
        if (!node->cfg.has_rights && member->lacks_vote) return true;
        if (!node->cfg.has_rights || member->lacks_vote != has_vote(node, member)) continue;
        /* The vote of this member changes, or it is new and has one. */
        const enum right allowed = member->lacks_vote ? RIGHT_NONE : RIGHT_VOTE;
        if (right_of(node, &member->id) != allowed) return true;
    }
    return false;
}
