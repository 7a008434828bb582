/* reach.h - which members are linked to each other: the graph of links that a round depends on.
 *
 * Nodes behind NAT can only dial, so two members may have no link. A member without a link to us
 * may still be alive. An owner that a contributor cannot reach gets nothing from it. A proposer
 * that reaches no majority decides nothing. Each node sends its own links to its peers (LINKS).
 * From these, and from its own links, each node derives the part of the graph that it sees.
 *
 * A link counts if either end claims it. A lying member can therefore invent links to itself. At
 * most it then becomes an owner that some contributors cannot reach. It cannot deny a link that the
 * other end claims. */
#ifndef TW_SYNC_CORE_REACH_H
#define TW_SYNC_CORE_REACH_H

#include "sync/core/state/node.h"

/* Handles LINKS from the peer. */
void tw_reach_received(struct tw_node *node, uint16_t peer, const struct tw_msg_links *links);
/* Derives the graph anew and lets LINKS be sent, because the links of this node changed. */
void tw_reach_changed(struct tw_node *node);
/* Derives the graph anew for a new roster. Costs nothing if the members are the same. */
void tw_reach_set_roster(struct tw_node *node);
/* Notes which members are present (tw_reach_is_present). */
void tw_reach_note(struct tw_node *node);
/* Sends LINKS to all peers when it is due. */
void tw_reach_send(struct tw_node *node);

/* Returns the link to member `idx`, or NO_PEER. */
uint16_t tw_reach_peer(const struct tw_node *node, uint32_t idx);
/* True if member `idx` is linked to us, or a live member claims a link to it. Such a claim counts
 * only for a member whose work was listed within the last HEARSAY_ROUNDS rounds. If some members
 * take no steps, a vote in these rounds counts as listed work. */
bool tw_reach_is_present(const struct tw_node *node, uint32_t idx);
/* Returns the number of present members that member `idx` is linked to, itself included. */
uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx);
/* True if member `idx` reaches so many voters that it can decide a round. */
bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx);
/* True if the node is linked to us, or more voters than may lie claim a link to it. */
bool tw_reach_is_known(const struct tw_node *node, const struct tw_id *id);
/* True if so many voters are linked to the node, by their own word, that they can decide a round.
 * A voter counts as linked to itself. */
bool tw_reach_sees_voters(const struct tw_node *node, const struct tw_id *id);
/* Returns the members of `among` that most contributors can reach. Their number of links to present
 * members is at most one in REACH_ONE_IN below the highest. In a full mesh: all members. */
uint64_t tw_reach_owners(const struct tw_node *node, uint64_t among);

#endif
