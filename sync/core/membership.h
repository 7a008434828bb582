/* membership.h - which members of the roster vote, contribute and are waited for; and the state of
 * this node. A seat is a member's entry in the roster. */
#ifndef TW_SYNC_CORE_MEMBERSHIP_H
#define TW_SYNC_CORE_MEMBERSHIP_H

#include "sync/core/state/node.h"

/* True if enough members vote to withstand a liar among them, so that they judge proposals for the
 * next roster. */
bool tw_membership_has_judges(const struct tw_node *node);
/* True if this node is linked to so many voters that fewer than half of them can be liars. A node
 * with fewer links trusts the members that it sees. */
bool tw_membership_sees_most(const struct tw_node *node);
/* Returns the number of votes that decide in the roster (proto/proof.h). */
uint32_t tw_membership_votes_needed(const struct tw_node *node);
/* Returns how many of the roster's voters may lie; 0 if the roster is not known. */
uint32_t tw_membership_liars_max(const struct tw_node *node);
/* Returns the roster index of a message's sender, or -1 if it is no member with a vote. `peer` is
 * NO_PEER for this node's own messages. */
int tw_membership_voter(const struct tw_node *node, uint16_t peer);
/* True if this node contributes, merges and votes in the open round, as far as its seat allows. */
bool tw_membership_takes_part(const struct tw_node *node);
/* True if this node votes in the open round. */
bool tw_membership_is_voter(const struct tw_node *node);
/* True if member `idx` is worth waiting for: this node, or a linked donor of our lineage, which
 * holds the state and serves it. */
bool tw_membership_is_live(const struct tw_node *node, uint32_t idx);
/* True if member `idx` is live, or is a receiver that still has the nonce in the roster: such a
 * member votes but contributes nothing. */
bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx);
/* True if member `idx` sent LEAVE, or is linked under a new nonce: its seat never votes again. */
bool tw_membership_is_parted(struct tw_node *node, uint32_t idx);
/* True if member `idx` has left, or has been silent so long that the next roster omits it. */
bool tw_membership_is_silent(const struct tw_node *node, uint32_t idx);
/* True if member `idx` trains, by its own claim: rounds wait for its contributions. A member
 * without a link to this node counts as a trainer. */
bool tw_membership_trains(const struct tw_node *node, uint32_t idx);
/* True if member `idx` claims to reduce: it owns parts without contributing. */
bool tw_membership_reduces(const struct tw_node *node, uint32_t idx);
/* True if some member is known to take no steps. */
bool tw_membership_has_roles(const struct tw_node *node);
/* True if some live member trains, so that contributions begin rounds. */
bool tw_membership_has_trainer(const struct tw_node *node);
/* Returns the number of members that may lie among the members that train. */
uint32_t tw_membership_lying_trainers(const struct tw_node *node);
/* Returns the set of members that this node waits for until a quorum has contributed, and learns
 * its patience from: those that train and have a vote, or all that train if no voter does. With
 * certificates, no id is free, so these are all members that train. */
uint64_t tw_membership_pacers(const struct tw_node *node);
/* True if a node without a seat asks for one in the open round, and one is free. */
bool tw_membership_is_asked(const struct tw_node *node);
/* Derives node->state from position, roster and vote, and reports a change. */
void tw_membership_derive_state(struct tw_node *node);
/* Updates the time at which each seat's member was last present. Also updates the times at which a
 * majority was last present (majority_us) and a donor was last linked (donor_us). */
void tw_membership_note(struct tw_node *node);

#endif
