/* audit.h - is a committed result the merge of the contributions that it lists? */
#ifndef TW_SYNC_CHECK_AUDIT_H
#define TW_SYNC_CHECK_AUDIT_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* The open round is about to be committed: keeps what its audit needs. */
void tw_audit_note(struct tw_node *node, const struct tw_record *record);
/* The round is the newest in the log: audits a part of it if the draw falls to this node. */
void tw_audit_choose(struct tw_node *node, uint64_t round);
void tw_audit_accuse(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse);
/* REDUCED of a merge that was done again. */
void tw_audit_reduced(struct tw_node *node, const struct tw_event *event);
void tw_audit_forget(struct tw_node *node);
void tw_audit_advance(struct tw_node *node);

#endif
