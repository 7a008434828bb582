/* pairs.h - a world in which nodes merge in pairs, each with its own anchor. PROTOCOL.md specifies
 * how two nodes agree on an exchange. Here, nodes whose rounds are due at the same moment are
 * matched at random, and a node left over takes the step alone. */
#ifndef TW_TESTS_QUALITY_PAIRS_H
#define TW_TESTS_QUALITY_PAIRS_H

#include "tests/bench/quality/world.h"

/* Encodes and exchanges payloads of the nodes that are at a step boundary now, and schedules their
 * application. */
enum tw_status pairs_meet(struct world *world, struct tw_error *err);

/* Applies this node's exchange if it is due, at least `overlap` steps after sending. */
enum tw_status pairs_apply(struct world *world, struct node *node, struct tw_error *err);

/* Returns true if the node's next round is due at its step. */
bool pairs_is_due(const struct world *world, const struct node *node);

#endif
