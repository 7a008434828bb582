/* evidence.h - proof that a member lies: two signed statements about one ballot that exclude each
 * other. */
#ifndef TW_SYNC_VOTE_EVIDENCE_H
#define TW_SYNC_VOTE_EVIDENCE_H

#include "proto/message.h"
#include "sync/core/state.h"

/* The following functions note the statements in a message about the open round. The caller calls
 * them twice: before it checks the signatures, and with `is_checked` afterwards. In the first call
 * they check a signature only if its statement excludes an earlier one. */
void tw_evidence_promise(struct tw_node *node, uint32_t idx, const struct tw_msg_promise *promise,
                         bool is_checked);
void tw_evidence_vote(struct tw_node *node, uint32_t idx, const struct tw_msg_accept *accept,
                      bool is_checked);
void tw_evidence_promises(struct tw_node *node, const struct tw_msg_propose *propose,
                          bool is_checked);
void tw_evidence_lock(struct tw_node *node, const struct tw_msg_lock *lock, bool is_checked);
/* Notes that the owner of part k signed this result. */
void tw_evidence_result(struct tw_node *node, uint32_t owner, uint32_t k,
                        const struct tw_part *part, const uint8_t signature[TW_SIGNATURE_BYTES],
                        bool is_checked);
/* Convicts members that signed both our record of the previous round and the peer's different one.
 */
void tw_evidence_fork(struct tw_node *node, const struct tw_msg_commit *commit);
enum tw_drop tw_evidence_received(struct tw_node *node, uint16_t peer,
                                  const struct tw_msg_evidence *evidence);

#endif
