/* prospects.h - whether the lineage that this node follows can still go on: prospects.c. */
#ifndef TW_SYNC_HISTORY_PROSPECTS_H
#define TW_SYNC_HISTORY_PROSPECTS_H

#include <stdbool.h>

struct tw_node;

/* True if all other members of the roster are linked, and none of them serves the state. So nobody
 * can: no donor is worth waiting for. `is_here`: each must be a receiver in this lineage, or claim
 * a run clock below that of this node's state. */
bool tw_prospects_are_unserved(const struct tw_node *node, bool is_here);

/* True if waiting for a majority is futile: for example, all members were killed in one round. A
 * member then has an accepted record whose results are lost with every pool. A receiver lacks
 * rounds in which it may have voted, and which no node can serve. No other record may be decided in
 * those rounds. But a child lineage can begin at once if all members are linked and have told their
 * rounds, because no missing member could know more. If some are missing, the others wait for
 * LINEAGE_LOST_US: the missing ones may have a newer state, but decide nothing without the others.
 */
bool tw_prospects_are_gone(struct tw_node *node);

/* True if donors of the lineage are linked but deliver nothing, neither a record nor a chunk of
 * state, for 2 * cfg.orphan_us. A lie about a lineage thus does not hold a node for ever. The peer
 * whose claim this node followed is then not believed for a while. */
bool tw_prospects_are_starved(struct tw_node *node);

#endif
