/* vote_proof.h - signed votes, and the proofs that they make: proto/proof.h. */
#ifndef TW_SYNC_CORE_VOTE_PROOF_H
#define TW_SYNC_CORE_VOTE_PROOF_H

#include "proto/message.h"
#include "sync/core/state/node.h"

/* Signs the vote with this node's key. */
void tw_vote_proof_sign(const struct tw_node *node, struct tw_msg_accept *accept);
/* Member `idx` of the roster signed this vote. */
bool tw_vote_proof_is_vote(const struct tw_node *node, uint32_t idx,
                           const struct tw_msg_accept *accept);
/* Enough members of the present roster signed a vote for the record of the open round. One check of
 * a signature for each vote needed, at most. */
bool tw_vote_proof_holds(const struct tw_node *node, const struct tw_record *record,
                         const struct tw_proof *proof);
/* Proves a record of a roster that is this node alone. */
void tw_vote_proof_alone(const struct tw_node *node, const struct tw_record *record,
                         struct tw_proof *proof);

#endif
