/* pairs.h - a world in pairs: each node has its own anchor. PROTOCOL.md specifies how two nodes
 * agree on an exchange. Here nodes whose round is due at the same moment are matched at random, and
 * a node left over takes the step alone. */
#ifndef TW_TESTS_QUALITY_PAIRS_H
#define TW_TESTS_QUALITY_PAIRS_H

#include "tests/bench/quality/world.h"

/* For nodes at a step boundary now: encodes, exchanges, and schedules the application. */
enum tw_status pairs_meet(struct world *world, struct tw_error *err);

/* Applies the exchange that is due at this node, at least `overlap` steps after sending. */
enum tw_status pairs_apply(struct world *world, struct node *node, struct tw_error *err);

/* True if the node's next round is due at its step. */
bool pairs_is_due(const struct world *world, const struct node *node);

#endif
