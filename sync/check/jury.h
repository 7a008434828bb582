/* jury.h - checks that members train on the data that they say. */
#ifndef TW_SYNC_CHECK_JURY_H
#define TW_SYNC_CHECK_JURY_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Starts the check of a contribution to `round`, the newest in the log, if the record's hash
 * selects this node as its juror; and counts who does not say where it is in its data. Call it
 * after tw_audit_note. */
void tw_jury_choose(struct tw_node *node, uint64_t round);
/* Follows the doubt of another juror. */
void tw_jury_hint(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse);
/* Handles the answer of the worker. */
void tw_jury_judged(struct tw_node *node, const struct tw_event *event);
void tw_jury_forget(struct tw_node *node);
void tw_jury_advance(struct tw_node *node);

#endif
