/* contributor.h - signed contributions: nobody can list work that its node never announced. */
#ifndef TW_SYNC_ROUND_CONTRIBUTOR_H
#define TW_SYNC_ROUND_CONTRIBUTOR_H

#include "sync/core/state/node.h"

/* Returns the row of the member with this roster index in the record, or NULL: it is not listed. */
const struct tw_contributor *tw_contributor_row(const struct tw_record *record, uint32_t member);
/* Returns the row that describes a member's CONTRIB in a record. */
struct tw_contributor tw_contributor_of(uint32_t member, const struct tw_msg_contrib *contrib);
/* Signs our own CONTRIB. */
void tw_contributor_sign(const struct tw_node *node, struct tw_msg_contrib *contrib);
/* True if member row->member_idx of the roster signed this row for the open round. Checks one
 * signature, unless the same CONTRIB was received. */
bool tw_contributor_is_signed(const struct tw_node *node, const struct tw_contributor *row);
/* True if node `id` signed this row of the committed record. */
bool tw_contributor_has_signed(const struct tw_node *node, const struct tw_record *record,
                               const struct tw_contributor *row, const struct tw_id *id);
/* Adds a missing signature to the row from the CONTRIB that was received. Returns true if the row
 * then has a signature. */
bool tw_contributor_complete(const struct tw_node *node, struct tw_contributor *row);
/* True if the row describes the contribution that was received. */
bool tw_contributor_is_of(const struct contribution *received, const struct tw_contributor *row);

#endif
