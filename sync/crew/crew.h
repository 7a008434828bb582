/* crew.h - work of nodes without a seat (hands), contributed through a member (their head).
 *
 * A hand sends its head one payload of the whole fragment, in a CONTRIB that it signs. The head
 * merges its own work and that of its hands, and contributes the mean as its own, with the sums of
 * their counts. CREW lists the work that is in it; the head's row in the record of the round, which
 * the head signed and voters certified, covers that list. So a record and a CREW tell a hand for
 * certain whether its work is in the anchor:
 *
 *   the record       and the CREW of that root    the hand
 *   has no row of the head                        keeps its work: SHIFT
 *   lists the head   lists the hand's work        goes on from there: MIX
 *   lists the head   does not list it             keeps its work: SHIFT
 *   lists the head   is not known yet             asks every member for it, and applies nothing yet
 *
 * A hand has one contribution out at a time, so no token is counted twice. It begins with `is_out`
 * and ends with the record of its round. */
#ifndef TW_SYNC_CREW_CREW_H
#define TW_SYNC_CREW_CREW_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* ---- at a head ------------------------------------------------------------------------------- */

/* True if the peer is a node without a seat, of which this node may contribute the work. */
bool tw_crew_is_hand(const struct tw_node *node, uint16_t peer);
/* CONTRIB of a hand. */
enum tw_drop tw_crew_contrib(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_contrib *contrib);
/* Called after ENCODED of a contribution of this node alone: it says so, so that a hand whose work
 * came too late can tell. */
void tw_crew_alone(struct tw_node *node);
enum tw_drop tw_crew_gathered(struct tw_node *node, const struct tw_event *event);

/* ---- at a hand ------------------------------------------------------------------------------- */

/* GATHER: the peer gathers work for the open round. */
enum tw_drop tw_crew_called(struct tw_node *node, uint16_t peer);
/* Settles the counts of work that may be in the anchor, at the first worker since the start. */
void tw_crew_greet(struct tw_node *node);

/* ---- at both --------------------------------------------------------------------------------- */

/* True if ENCODED answers a request for the crew, not for a contribution of this node alone. */
bool tw_crew_is_encoding(const struct tw_node *node);
enum tw_drop tw_crew_encoded(struct tw_node *node, const struct tw_event *event);
enum tw_drop tw_crew_list(struct tw_node *node, uint16_t peer, const struct tw_msg_crew *crew);
enum tw_drop tw_crew_get(struct tw_node *node, uint16_t peer, const struct tw_msg_crew_get *get);
/* Called before the counts of a committed record are noted. */
void tw_crew_commit(struct tw_node *node, const struct tw_record *record);
/* True if part k of this round contains this node's work; `self`: its seat, or -1. */
bool tw_crew_is_ours(const struct tw_node *node, const struct tw_record *record, uint32_t k,
                     int self);
/* True if it is not known yet whether the round contains this node's work. */
bool tw_crew_is_open(const struct tw_node *node, uint64_t round);
/* The worker is gone. */
void tw_crew_forget(struct tw_node *node);
void tw_crew_advance(struct tw_node *node);

#endif
