/* state_witness.h - the word of other voters on a state that one donor offers.
 *
 * A donor may lie, and its bytes match the digest that it names. So a node that fetches a state
 * meanwhile asks other voters which (phi, u) they had after the same rounds: STATE_GET with
 * `rounds`. Nothing is packed or sent for that; each voter remembers the digests of its last
 * states, as many as it keeps records. f is the number of voters that may lie.
 *
 *   borne out   more than f voters say the same as the donor, which counts if it is a voter. If
 *               fewer than f + 1 voters are linked for WITNESS_LINKS_US, all linked ones do
 *   refuted     more than f voters, and more than bear it out, say otherwise: the state is dropped,
 *               and the donor is reported and rests for a while
 *   unheard     neither after WITNESS_PATIENCE_US: the donor rests, and another one is asked. If no
 *               other is left, and nobody objects, the state is taken
 *
 * A state that more than f voters bore out, f > 0, is proven. Any other is once the node's next
 * round of the fragment shows that most voters have the same anchor (round/round.c). If they have
 * another one, the donor is reported then. A node is no witness of a state that is not proven: with
 * its donor's word, one liar would have many. */
#ifndef TW_SYNC_TRANSFER_STATE_WITNESS_H
#define TW_SYNC_TRANSFER_STATE_WITNESS_H

#include "sync/core/state/node.h"

enum tw_witness {
    TW_WITNESS_WAITING,
    TW_WITNESS_BORNE_OUT,
    TW_WITNESS_REFUTED,
    TW_WITNESS_CONTESTED, /* unheard, and somebody objects or another donor may be borne out */
};

/* Rounds that the (phi, u) of a fragment held by this node includes, as STATE tells them. */
uint64_t tw_witness_rounds(const struct tw_node *node, uint32_t fragment);

/* Remembers the digest of the fragment's present (phi, u). Call after each change. */
void tw_witness_remember(struct tw_node *node, uint32_t fragment);

/* Answers a STATE_GET with `rounds`, if this node remembers its state after these rounds. */
void tw_witness_answer(struct tw_node *node, uint16_t peer, const struct tw_msg_state_get *get);

/* Call when the donor `peer` has made an offer, which is in node->fetch[fragment]. */
void tw_witness_begin(struct tw_node *node, uint32_t fragment, uint16_t peer);

/* Takes the word of a peer on the state that is being fetched. */
void tw_witness_hear(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state);

/* Asks voters that have not answered, and returns the verdict so far. `is_here`: the bytes have
 * arrived, so that nothing else is waited for. */
enum tw_witness tw_witness_judge(struct tw_node *node, uint32_t fragment, bool is_here);

/* True if so many voters bear out the state about to be loaded that one of them is honest. Where no
 * voter may lie, the donor alone would be enough, which proves nothing. */
bool tw_witness_is_proven(const struct tw_node *node, uint32_t fragment);

/* Forgets the word of a peer whose number may be given to another link. */
void tw_witness_peer_down(struct tw_node *node, uint16_t peer);

/* Reports the donor of a false state, which is not asked for a while. */
void tw_witness_accuse(struct tw_node *node, uint32_t fragment);

#endif
