/* reach.h - which members are linked to each other: the graph of links that a round depends on.
 *
 * Nodes behind NAT can only dial, so two members may have no link. A member without a link to us
 * may still be alive. An owner that a contributor cannot reach gets nothing from it. A proposer
 * that reaches no majority decides nothing. Each node sends its own links to its peers (LINKS).
 * From these, and from its own links, each node derives the part of the graph that it sees.
 *
 * A link counts if either end claims it. A lying member can therefore invent links of its own. At
 * most it then becomes an owner that some contributors cannot reach. It cannot deny a link that the
 * other end claims. */
#ifndef TW_SYNC_CORE_REACH_H
#define TW_SYNC_CORE_REACH_H

#include "sync/core/state/node.h"

/* The peer sent LINKS. */
void tw_reach_received(struct tw_node *node, uint16_t peer, const struct tw_msg_links *links);
/* The links of this node changed. */
void tw_reach_changed(struct tw_node *node);
/* Derives the graph anew: the roster changed. Costs nothing if the members are the same. */
void tw_reach_set_roster(struct tw_node *node);
/* Notes which members are present (tw_reach_is_present). */
void tw_reach_note(struct tw_node *node);
/* Sends LINKS to all peers when it is due. */
void tw_reach_send(struct tw_node *node);

/* Member `idx` is linked to us, or a live member claims a link to it. Such a claim counts only for
 * a member whose work was listed within the last HEARSAY_ROUNDS rounds, or that voted in them if
 * some members take no steps. */
bool tw_reach_is_present(const struct tw_node *node, uint32_t idx);
/* Number of present members that member `idx` is linked to, itself included. */
uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx);
/* Member `idx` reaches a majority, so it can decide a round. */
bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx);
/* The node is linked to us, or more members claim to be linked to it than may lie. */
bool tw_reach_is_known(const struct tw_node *node, const struct tw_id *id);
/* Members of `among` that most contributors can reach: their number of links to present members is
 * the highest, or less by at most one in REACH_ONE_IN. In a full mesh, all of them. */
uint64_t tw_reach_owners(const struct tw_node *node, uint64_t among);

#endif
