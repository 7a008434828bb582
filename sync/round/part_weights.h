/* part_weights.h - weights of the owners in the next roster. Part sizes follow from them: a faster
 * upload gets a larger part. */
#ifndef TW_SYNC_ROUND_PART_WEIGHTS_H
#define TW_SYNC_ROUND_PART_WEIGHTS_H

#include "sync/core/state/node.h"

/* Gives the owners of a roster (weight above 0) their weights. */
void tw_part_weights_set(const struct tw_node *node, struct tw_roster *next);
/* Takes parts away from members whose links are far worse than all others, up to a total weight of
 * `most`. Does nothing if half of the owners have such links: then this node's own link is the bad
 * one. */
void tw_part_weights_drop_outliers(const struct tw_node *node, struct tw_roster *next,
                                   uint64_t most);
/* Keeps at most TW_PARTS_MAX owners: those with the fastest uploads. */
void tw_part_weights_limit(struct tw_roster *next);

#endif
