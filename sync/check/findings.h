/* findings.h - penalties for owners of the open round, decided just before it is committed. */
#ifndef TW_SYNC_CHECK_FINDINGS_H
#define TW_SYNC_CHECK_FINDINGS_H

#include "sync/core/state/node.h"

/* Gives a stall to each owner that held up the open round, which this record is about to commit. */
void tw_findings_note_stalls(struct tw_node *node, const struct tw_record *record);
/* Strikes owners whose results the record leaves out and this node refuses too. */
void tw_findings_note_strikes(struct tw_node *node, const struct tw_record *record);

#endif
