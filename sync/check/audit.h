/* audit.h - findings of this node about others: stalls and strikes in the open round, audits
 * of merges, checks of training. */
#ifndef TW_SYNC_CHECK_AUDIT_H
#define TW_SYNC_CHECK_AUDIT_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* ---- stalls and strikes, decided just before the open round is committed --------------------- */

/* Gives a stall to each owner that held up the open round, which this record is about to commit. */
void tw_findings_note_stalls(struct tw_node *node, const struct tw_record *record);
/* Strikes owners whose results the record leaves out and this node refuses too. */
void tw_findings_note_strikes(struct tw_node *node, const struct tw_record *record);

/* ---- audits: merges of other owners, done again ---------------------------------------------- */

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
enum tw_drop tw_audit_accuse(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_accuse *accuse);
/* Handles the answer to the merge that an audit requested. */
enum tw_drop tw_audit_reduced(struct tw_node *node, const struct tw_event *event);
void tw_audit_forget(struct tw_node *node);
void tw_audit_advance(struct tw_node *node);

/* ---- checks that members train on the data that they say ------------------------------------- */

/* Starts the check of a contribution to `round`, the newest in the log, if the record's hash
 * selects this node as its juror; and counts who does not say where it is in its data. Call it
 * after tw_audit_note. */
void tw_jury_choose(struct tw_node *node, uint64_t round);
/* Follows the doubt of another juror. */
enum tw_drop tw_jury_hint(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse);
/* Handles the answer of the worker. */
enum tw_drop tw_jury_judged(struct tw_node *node, const struct tw_event *event);
void tw_jury_forget(struct tw_node *node);
void tw_jury_advance(struct tw_node *node);

#endif
