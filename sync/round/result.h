/* result.h - signed contributions, and the results that owners merge of them. */
#ifndef TW_SYNC_ROUND_RESULT_H
#define TW_SYNC_ROUND_RESULT_H

#include "sync/core/state.h"

/* ---- contributions: nobody can list work that its node never announced ----------------------- */

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

/* ---- results, announced by RESULT or in the proposal of another member ----------------------- */

/* Sets *is_checked if this is the owner's first result, is not ABSENT, and has a valid signature.
 */
enum tw_drop tw_result_received(struct tw_node *node, uint16_t peer,
                                const struct tw_msg_result *result, bool *is_checked);
/* True if the owner signed part k of this sound record. Checks one signature, unless the same
 * RESULT was received. */
bool tw_result_is_signed(const struct tw_node *node, const struct tw_record *record, uint32_t k,
                         const uint8_t signature[TW_SIGNATURE_BYTES]);
/* Notes part k of this record, which its owner signed, as the owner's result, unless this node has
 * one already. */
void tw_result_learn(struct tw_node *node, const struct tw_record *record, uint32_t k,
                     const uint8_t signature[TW_SIGNATURE_BYTES]);
/* Returns the time at which the owners of all parts but k, except those that may lie, had sent
 * their results to this node; UINT64_MAX: not yet. */
uint64_t tw_result_others_us(const struct tw_node *node, uint32_t k);
/* Returns the time at which the result of part k begins to take much longer than the others;
 * UINT64_MAX: not known, or no owner may lie. */
uint64_t tw_result_due_us(const struct tw_node *node, uint32_t k);
/* True if this node has the signature of every contribution in the result announced for part k, or
 * if no result is announced. */
bool tw_result_is_provable(const struct tw_node *node, uint32_t k);
/* Called when CONTRIB of this member has arrived: adds its signature to results that lack it. */
void tw_result_contributed(struct tw_node *node, uint32_t member);

#endif
