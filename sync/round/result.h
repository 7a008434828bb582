/* result.h - results that owners announce, by RESULT or in the proposal of another member. */
#ifndef TW_SYNC_ROUND_RESULT_H
#define TW_SYNC_ROUND_RESULT_H

#include "sync/core/state/node.h"

/* Returns true if this is the owner's first result, is not ABSENT, and has a valid signature. */
bool tw_result_received(struct tw_node *node, uint16_t peer, const struct tw_msg_result *result);
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
