/* reach.h - which members are linked to which: the graph that a round has to work on.
 *
 * Homes behind NAT can only dial, so two members may have no link. A member without a link to us is
 * not gone, an owner that a contributor cannot reach gets nothing from it, and a proposer that
 * reaches no majority decides nothing. Each node tells its peers its own links (LINKS). From these,
 * and from its own links, each derives the same graph as far as it sees it: the links of its peers.
 *
 * A link is there if either end says so. A member can therefore invent links of its own, and is
 * then given work that nobody can bring it; it cannot take away a link of others. */
#ifndef TW_SYNC_CORE_REACH_H
#define TW_SYNC_CORE_REACH_H

#include "sync/core/state/node.h"

/* The peer sent LINKS. */
void tw_reach_received(struct tw_node *node, uint16_t peer, const struct tw_msg_links *links);
/* The links of this node changed. */
void tw_reach_changed(struct tw_node *node);
/* Derives the graph anew: the roster changed. Free if its members are the same. */
void tw_reach_set_roster(struct tw_node *node);
/* Notes which members are here. */
void tw_reach_note(struct tw_node *node);
/* Sends LINKS to all peers when it is due. */
void tw_reach_send(struct tw_node *node);

/* Member `idx` is linked to us, or to a live member that is. The second is hearsay: it counts for a
 * member that was listed within the last HEARSAY_ROUNDS rounds alone. */
bool tw_reach_is_present(const struct tw_node *node, uint32_t idx);
/* Members that member `idx` is linked to, itself included, of those that are here. */
uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx);
/* Member `idx` reaches a majority, so it can decide a round. */
bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx);
/* A peer says that it is linked to node `id`. */
bool tw_reach_is_known(const struct tw_node *node, const struct tw_id *id);
/* Set of members that the contributors reach: those of `among` with the most links to the members
 * that are here, give or take one link in REACH_ONE_IN. In a full mesh, all of them. */
uint64_t tw_reach_owners(const struct tw_node *node, uint64_t among);

#endif
