/* audit.h - audits: this node repeats the merge of another owner, and compares the result with the
 * committed one. */
#ifndef TW_SYNC_CHECK_AUDIT_H
#define TW_SYNC_CHECK_AUDIT_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Keeps the contributions of the open round for later audits, just before it is committed. */
void tw_audit_note(struct tw_node *node, const struct tw_record *record);
/* Starts an audit of a result of the open round that this node refuses, just before the round is
 * committed, after tw_audit_note. */
void tw_audit_refused(struct tw_node *node, const struct tw_record *record);
/* Starts an audit of a part of a committed round whose result this node would have refused. */
void tw_audit_doubt(struct tw_node *node, uint64_t round, uint32_t part);
/* Starts an audit of a part of `round`, the newest in the log, if the record's hash selects this
 * node for it. */
void tw_audit_choose(struct tw_node *node, uint64_t round);
/* Returns a committed round whose contributions are still known, or NULL. */
const struct past_round *tw_audit_past(const struct tw_node *node, uint64_t round);
void tw_audit_accuse(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse);
/* Handles the answer to the merge that an audit requested. */
void tw_audit_reduced(struct tw_node *node, const struct tw_event *event);
void tw_audit_forget(struct tw_node *node);
void tw_audit_advance(struct tw_node *node);

#endif
