/* voters.h - which members of the roster have a vote.
 *
 * Without an owner every member votes. With an owner (config.has_rights), a member's certificate
 * says whether it may vote. A committee of a few voters then decides for any number of members that
 * only train. */
#ifndef TW_SYNC_CORE_VOTERS_H
#define TW_SYNC_CORE_VOTERS_H

#include "sync/core/state/node.h"

/* Sets lacks_vote of each member of the next roster, for this node's own proposal. A member gets a
 * vote if its certificate allows it and enough voters for a decision are linked to it: the others
 * do not know its certificate, and would refuse the roster. On the same terms it loses its vote if
 * its certificate gives none any more. */
void tw_voters_seat(const struct tw_node *node, struct tw_roster *next);

/* True if no honest member would propose these votes: one is new, and this node does not know that
 * the member's certificate gives it; or one is taken away, and this node does not know that the
 * certificate gives none. A member that lacked a vote before may go on without one. */
bool tw_voters_are_false(const struct tw_node *node, const struct tw_roster *next);

/* True if this node may not found lineages, because it has no vote. It waits for voters instead. In
 * pairs and once the nodes train alone, each node founds its own. */
bool tw_voters_are_awaited(const struct tw_node *node);

/* True if the peer may vote, by its certificate. */
bool tw_voters_may(const struct tw_node *node, uint16_t peer);

#endif
