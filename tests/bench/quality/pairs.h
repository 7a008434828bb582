/* pairs.h - a world in pairs: each node with an anchor of its own. PROTOCOL.md tells how two find
 * each other; here those whose round is due at the same moment are matched by lot, and who is left
 * over takes the step alone. */
#ifndef TW_TESTS_QUALITY_PAIRS_H
#define TW_TESTS_QUALITY_PAIRS_H

#include "tests/bench/quality/world.h"

/* Nodes at a step boundary now: encode, exchange, note what is to be applied. */
enum tw_status pairs_meet(struct world *world, struct tw_error *err);

/* What of it is due at this node: at least `overlap` steps after it was sent. */
enum tw_status pairs_apply(struct world *world, struct node *node, struct tw_error *err);

/* The node's step: is its next round due? */
bool pairs_is_due(const struct world *world, const struct node *node);

#endif
