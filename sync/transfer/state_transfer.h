/* state_transfer.h - (phi, u) of a fragment, given to other nodes and fetched from them, and the
 * word of other voters on a fetched state. */
#ifndef TW_SYNC_TRANSFER_STATE_TRANSFER_H
#define TW_SYNC_TRANSFER_STATE_TRANSFER_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* Remembers the digest of the fragment's present (phi, u). Call after each change. */
void tw_witness_remember(struct tw_node *node, uint32_t fragment);

/* Reports node `id` as the donor of a false state. It is not asked for a while. */
void tw_state_accuse(struct tw_node *node, const struct tw_id *id, uint32_t fragment);
/* Returns a linked donor, or NO_PEER. Takes one that gave a false state lately only without others.
 */
uint16_t tw_state_choose_donor(struct tw_node *node);

enum tw_drop tw_state_get(struct tw_node *node, uint16_t peer, const struct tw_msg_state_get *get);
void tw_state_exported(struct tw_node *node, const struct tw_event *event);
/* Call after a STATUS: a peer that gives its state has received all of its own. */
void tw_state_peer_status(struct tw_node *node, uint16_t peer);
void tw_state_peer_down(struct tw_node *node, uint16_t peer);
/* Notes that the peer was refused chunks: this node's rounds do not wait for it any more. */
void tw_state_refused(struct tw_node *node, uint16_t peer);
/* Answers peers that sent STATE_GET. Packs one fragment at a time. */
void tw_state_export(struct tw_node *node);

/* Fetches (phi, u) of a fragment again, because this node's do not belong to the lineage. `mode` is
 * the effect of the load on theta. */
void tw_state_refetch(struct tw_node *node, uint32_t fragment, enum tw_load_mode mode);
enum tw_drop tw_state_offer(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state);
/* Call after a LOAD or a merge of the fragment: the bytes of a loaded state are not needed again.
 */
void tw_state_loaded(struct tw_node *node, uint32_t fragment);

/* Fetches and loads fragments that are not held. Returns true if this node is alone and the state
 * is lost: the caller must then found a new lineage. */
bool tw_state_receive(struct tw_node *node);

#endif
