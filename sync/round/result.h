/* result.h - results that owners announce, by RESULT or in the proposal of another member. */
#ifndef TW_SYNC_ROUND_RESULT_H
#define TW_SYNC_ROUND_RESULT_H

#include "sync/core/state/node.h"

/* True: this is the first result of the owner, and its signature holds. */
bool tw_result_received(struct tw_node *node, uint16_t peer, const struct tw_msg_result *result);
/* The owner signed part k of this sound record. Costs one check of a signature, unless its RESULT
 * was received. */
bool tw_result_is_signed(const struct tw_node *node, const struct tw_record *record, uint32_t k,
                         const uint8_t signature[TW_SIGNATURE_BYTES]);
/* Takes part k of this record, which its owner signed, as announced, unless a result is. */
void tw_result_learn(struct tw_node *node, const struct tw_record *record, uint32_t k,
                     const uint8_t signature[TW_SIGNATURE_BYTES]);
/* Time at which the owners of all other parts than k, except those that may lie, had sent their
 * results to this node; UINT64_MAX: not yet. */
uint64_t tw_result_others_us(const struct tw_node *node, uint32_t k);
/* When the result of part k begins to take much longer than those of the others; UINT64_MAX: not
 * known, or no owner may lie. */
uint64_t tw_result_due_us(const struct tw_node *node, uint32_t k);
/* Every contribution in the result announced for part k has its signature, or is received. Without
 * a result there is nothing to prove. */
bool tw_result_is_provable(const struct tw_node *node, uint32_t k);
/* CONTRIB of this member arrived: its signature may be missing in results. */
void tw_result_contributed(struct tw_node *node, uint32_t member);

#endif
