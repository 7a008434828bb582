/* part_weights.h - the weights of owners: part sizes by upload rate. */
#ifndef TW_SYNC_ROUND_PART_WEIGHTS_H
#define TW_SYNC_ROUND_PART_WEIGHTS_H

#include "sync/core/state/node.h"

/* Gives the owners of a roster (weight above 0) their weights. */
void tw_part_weights_set(const struct tw_node *node, struct tw_roster *next);
/* Takes parts of total weight `most` at most from members whose links are out of line. Does nothing
 * if half of the owners are: then this node's own link is out of line. */
void tw_part_weights_drop_outliers(const struct tw_node *node, struct tw_roster *next,
                                   uint64_t most);
/* Keeps at most TW_PARTS_MAX owners, those with the fastest uploads. */
void tw_part_weights_limit(struct tw_roster *next);

#endif
