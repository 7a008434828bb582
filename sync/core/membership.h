/* membership.h - which members of the roster vote, contribute and are waited for; and the state of
 * this node. A seat is a member's entry in the roster. */
#ifndef TW_SYNC_CORE_MEMBERSHIP_H
#define TW_SYNC_CORE_MEMBERSHIP_H

#include "sync/core/state/node.h"

/* The roster is large enough to withstand a liar, so its members judge proposals for the
 * next one. */
bool tw_membership_has_judges(const struct tw_node *node);
/* This node is linked to so many members that fewer than half of them can be liars. With fewer
 * links, it trusts the members that it sees. */
bool tw_membership_sees_most(const struct tw_node *node);
/* Number of votes that decide in the roster: proto/proof.h. */
uint32_t tw_membership_votes_needed(const struct tw_node *node);
/* Roster index of a message's sender, where NO_PEER is this node. -1: not a member. */
int tw_membership_sender(const struct tw_node *node, uint16_t peer);
/* This node votes in the open round. */
bool tw_membership_is_voter(const struct tw_node *node);
/* Member `idx` is this node, or is linked and a donor of our lineage (it holds the state and serves
 * it): worth waiting for. */
bool tw_membership_is_live(const struct tw_node *node, uint32_t idx);
/* Member `idx` is live, or is a receiver under the nonce of the roster, which votes but contributes
 * nothing. */
bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx);
/* Member `idx` sent LEAVE, or is linked under another nonce: this seat will never vote again. */
bool tw_membership_is_parted(struct tw_node *node, uint32_t idx);
/* Member `idx` has left, or was not seen for so long that the next roster omits it. */
bool tw_membership_is_silent(const struct tw_node *node, uint32_t idx);
/* Member `idx` trains, as far as it says: rounds wait for its contributions. A member without a
 * link to this node counts as one that trains. */
bool tw_membership_trains(const struct tw_node *node, uint32_t idx);
/* Member `idx` says that it reduces: it owns parts without contributions. */
bool tw_membership_reduces(const struct tw_node *node, uint32_t idx);
/* Some member is known to take no steps. */
bool tw_membership_has_roles(const struct tw_node *node);
/* Some live member trains, so rounds begin with its work. */
bool tw_membership_has_trainer(const struct tw_node *node);
/* Number of members that may lie among those that train. */
uint32_t tw_membership_lying_trainers(const struct tw_node *node);
/* A node without a seat asks for one in the open round, and one is free. */
bool tw_membership_is_asked(const struct tw_node *node);
/* Derives node->state from position, roster and vote; reports a change. */
void tw_membership_derive_state(struct tw_node *node);
/* Stores the present time in each seat whose member is linked or live. Also stores it for the node
 * as a whole, if a majority is live (majority_us) or a donor is linked (donor_us). */
void tw_membership_note(struct tw_node *node);

#endif
