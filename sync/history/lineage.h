/* lineage.h - the lineage that a node follows, its prospects, and the way into another one. */
#ifndef TW_SYNC_HISTORY_LINEAGE_H
#define TW_SYNC_HISTORY_LINEAGE_H

#include <stdbool.h>

#include "sync/core/state.h"

uint64_t tw_lineage_nonce(struct tw_node *node);
/* True if this node refuses the lineage, because its operator said so (interface.h), or because a
 * peer went on from a refused lineage into it. */
bool tw_lineage_is_refused(const struct tw_node *node, const struct tw_id *lineage);
/* Notes the lineage in a STATUS of the peer. A peer that was in a refused lineage may found a child
 * of it. The child is then refused too, unless it also has a linked peer that was never in the
 * refused lineage. */
void tw_lineage_heard(struct tw_node *node, uint16_t peer);
/* Founds a lineage of this node: a child of the one that it is in. A node that still waits for the
 * state of the run has no state to begin from, and a node without a vote decides nothing: they go
 * on waiting. */
void tw_lineage_found(struct tw_node *node);
/* Waits for the state of the run in the lineage of nobody (`awaited` of interface.h). */
void tw_lineage_await(struct tw_node *node);
/* True if this node founded the lineage that it is in. */
bool tw_lineage_is_ours(const struct tw_node *node);
/* Returns the roster that decides the first round of a lineage founded by this node. */
struct tw_roster tw_lineage_founder(const struct tw_node *node);
/* Handles the worker's answer to theta := phi for all fragments; !ok: it could not do that. */
void tw_lineage_turned(struct tw_node *node, bool ok);
enum tw_drop tw_lineage_join(struct tw_node *node, uint16_t peer, const struct tw_msg_join *join);
/* Writes and commits the record of a solo round that the worker has completed. */
void tw_lineage_solo_done(struct tw_node *node);
void tw_lineage_advance(struct tw_node *node);

#endif
