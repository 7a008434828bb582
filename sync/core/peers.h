/* peers.h - links to other nodes: heartbeats both ways, and the peers that count as alive. */
#ifndef TW_SYNC_CORE_PEERS_H
#define TW_SYNC_CORE_PEERS_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Handles a new link: PEER_UP. */
void tw_peers_up(struct tw_node *node, uint16_t peer, const struct tw_event *event);
void tw_peers_down(struct tw_node *node, uint16_t peer);
void tw_peers_status(struct tw_node *node, uint16_t peer, const struct tw_msg_status *status);
/* Handles LEAVE from the peer. */
void tw_peers_left(struct tw_node *node, uint16_t peer);
/* Closes links that were silent for TW_PEER_SILENCE_US. */
void tw_peers_drop_silent(struct tw_node *node);
/* Sends STATUS to all peers when it is due. */
void tw_peers_send_status(struct tw_node *node);
/* The role that this node claims in STATUS. */
enum tw_node_role tw_peers_own_role(const struct tw_node *node);

/* Returns the peer with this id, or NO_PEER. */
uint16_t tw_peers_find(const struct tw_node *node, const struct tw_id *id);
/* True if the link is up and STATUS was received. */
bool tw_peers_is_live(const struct tw_node *node, uint16_t peer);
bool tw_peers_in_lineage(const struct tw_node *node, uint16_t peer);
/* True for a peer of our lineage that may serve its state and log to others. */
bool tw_peers_is_donor(const struct tw_node *node, uint16_t peer);
/* True for a member of the roster whose STATUS says that it is at the open round too. */
bool tw_peers_is_at_round(const struct tw_node *node, uint16_t peer);
/* True if the runtime measured that this link is far worse than all others. */
bool tw_peers_is_outlier(const struct tw_node *node, uint16_t peer);
/* Sends the message to all members of the roster and all peers of the lineage. */
void tw_peers_broadcast(struct tw_node *node, const struct tw_message *message);
/* Allows no solo round for `for_us`, because a peer copies our state or is about to. An earlier
 * hold that ends later stays in force. history/lineage.c bounds the total time of holds. */
void tw_peers_hold_solo(struct tw_node *node, uint64_t for_us);
/* Does so for a peer that copies the state, unless this node refused it chunks lately. */
void tw_peers_hold_solo_for(struct tw_node *node, uint16_t peer, uint64_t for_us);
/* Notes that work of node `id` entered our anchor in this round. */
void tw_peers_note_mixed(struct tw_node *node, const struct tw_id *id, uint64_t round);

#endif
