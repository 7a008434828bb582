/* vote_proof.h - signing of votes, and checks of votes and of the proofs made of them
 * (proto/proof.h). */
#ifndef TW_SYNC_CORE_VOTE_PROOF_H
#define TW_SYNC_CORE_VOTE_PROOF_H

#include "proto/message.h"
#include "sync/core/state/node.h"

/* The following functions sign with this node's key. */
void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept);
void tw_vote_proof_sign_promise(const struct tw_node *node, struct tw_msg_promise *promise);
void tw_vote_proof_sign_result(const struct tw_node *node, struct tw_msg_result *result);
void tw_vote_proof_sign_join(const struct tw_node *node, struct tw_msg_join *join);
/* True if node `id` asked for a seat under this nonce, in this round of our lineage. */
bool tw_vote_proof_is_join(const struct tw_node *node, const struct tw_id *id, uint64_t nonce,
                           uint64_t round, const uint8_t signature[TW_SIGNATURE_BYTES]);
/* True if member `idx` of the roster signed this result for part `k` of the open round. */
bool tw_vote_proof_is_result(const struct tw_node *node, uint32_t idx, uint32_t k,
                             const struct tw_part *part,
                             const uint8_t signature[TW_SIGNATURE_BYTES]);
/* True if member `idx` of the roster signed this vote. */
bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept);
/* True if member `idx` signed this promise, and the proof of its lock holds. */
bool tw_vote_proof_is_promise(const struct tw_node *node, uint32_t idx,
                              const struct tw_msg_promise *promise);
/* True if enough members of the present roster signed a vote of this phase for the record. Checks
 * at most as many signatures as votes are needed. */
bool tw_vote_proof_holds(const struct tw_node *node, enum tw_vote_phase phase,
                         const struct tw_record *record, const struct tw_proof *proof);
/* Like tw_vote_proof_holds, for any roster and round. Returns the set of members whose votes were
 * checked, or 0 if these are too few or a signature is false. */
uint64_t tw_vote_proof_voters(const struct tw_node *node, const struct tw_roster *roster,
                              enum tw_vote_phase phase, const struct tw_record *record,
                              const struct tw_proof *proof);
/* True if enough members promised the ballot of this proposal. If some of them have a lock, the
 * proposal must be the record of the newest of these locks. */
bool tw_vote_proof_justifies(const struct tw_node *node, const struct tw_msg_propose *propose);
/* Makes the proof of a record whose roster is this node alone. */
void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof);

#endif
