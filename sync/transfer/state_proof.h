/* state_proof.h - states that decided records prove.
 *
 * The record of a round names, as `base`, the digest of (phi, u) of its fragment before the round.
 * It is decided only if enough voters hold that state themselves, so it proves each copy of it: of
 * a donor, of a restarted node, of a replay. The closing record of a run (finals > fragments) names
 * the root of all fragments' digests, and so proves the model that the run ended with. */
#ifndef TW_SYNC_TRANSFER_STATE_PROOF_H
#define TW_SYNC_TRANSFER_STATE_PROOF_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

enum tw_proof_of_state {
    TW_STATE_PROVEN,
    TW_STATE_REFUTED,  /* a decided record names another digest */
    TW_STATE_AWAITED,  /* the closing record proves it or not, once all digests are known */
    TW_STATE_UNPROVEN, /* no decided record tells */
};

/* Compares the state that node->fetch[fragment] offers with the decided records. Asks for the
 * digests of the run's end where the closing record decides. */
enum tw_proof_of_state tw_state_prove(struct tw_node *node, uint32_t fragment);

/* True if a record to come may prove the state that node->fetch[fragment] offers: the group decides
 * rounds, and can do so without this node and without voters that lack the state as well. */
bool tw_state_is_provable(struct tw_node *node, uint32_t fragment);

/* Takes a digest of the run's end from the peer that was asked. */
void tw_state_told(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state);

/* Call before a round is applied. Returns false if this node's state of its fragment is not the one
 * that its record names: the state is then fetched again, and its donor, if any, is named. */
bool tw_state_agrees(struct tw_node *node, const struct tw_record *record);

/* At the end of the run, fetches again each fragment that the closing record does not prove. */
void tw_state_check_end(struct tw_node *node);

#endif
