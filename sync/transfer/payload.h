/* payload.h - payloads, which are bytes named by SHA-256: fetching, keeping and serving them. */
#ifndef TW_SYNC_TRANSFER_PAYLOAD_H
#define TW_SYNC_TRANSFER_PAYLOAD_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* Notes that a majority has the payload now. Peers that lacked it may be asked again, and silent
 * links are dropped as sources. */
void tw_chunks_decided(struct tw_node *node, struct payload *payload);

/* Returns the payload of this name, or NULL if it is not in the table. */
struct payload *tw_payload_find(struct tw_node *node, const struct tw_id *hash);
/* True if a payload of this content can have this size. A peer that claims an impossible size
 * misbehaves. The runtime sizes its memory by the same bounds, so no member takes the room of
 * others. */
bool tw_payload_is_possible(const struct tw_node *node, enum tw_content content, uint64_t elements,
                            uint64_t bytes);
/* Returns the payload, and fetches it if this node does not hold it. Returns NULL if the table has
 * no room, or for an impossible size. */
struct payload *tw_payload_want(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                                enum tw_content content, uint64_t elements);
/* Like tw_payload_want, for the result of elements [begin, begin + count) of a fragment. It is kept
 * until round `keep_round` is decided. */
struct payload *tw_payload_want_result(struct tw_node *node, const struct tw_part *part,
                                       uint32_t fragment, uint64_t begin, uint64_t count,
                                       uint64_t keep_round);
/* Adds bytes that the worker made. They are kept until round `keep_round` is decided. */
void tw_payload_hold(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                     enum tw_content content, uint64_t elements, uint64_t keep_round);
/* True if this payload passed the check for content of this kind. */
bool tw_payload_is_as(const struct tw_node *node, const struct payload *payload,
                      enum tw_content content, uint64_t elements);
bool tw_payload_is_held(struct tw_node *node, const struct tw_id *hash);
/* True if the payload does not decode, or if every peer was asked three times in a row and no chunk
 * arrived. */
bool tw_payload_is_lost(const struct payload *payload);
/* True if this node holds the result with this name and size, and refuses it (check/veto.h). */
bool tw_payload_is_refused(struct tw_node *node, const struct tw_id *hash, uint64_t count);

/* True if the payload is held, and is a packed state of a fragment. */
bool tw_payload_is_state(const struct tw_node *node, const struct tw_id *hash);

/* True if this node waits for this chunk from this peer. */
bool tw_payload_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                            uint32_t idx);
enum tw_drop tw_payload_chunk(struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                              uint32_t idx);
enum tw_drop tw_payload_verified(struct tw_node *node, const struct tw_event *event);
enum tw_drop tw_payload_pull(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_pull *request);
/* Notes that the peer needs no more chunks of a packed state. */
void tw_payload_release(struct tw_node *node, struct payload *payload, uint16_t peer);
enum tw_drop tw_payload_missing(struct tw_node *node, uint16_t peer, const struct tw_id *hash);
void tw_payload_peer_down(struct tw_node *node, uint16_t peer);
/* Repeats, at the start of a worker, the checks that the previous worker had not finished. */
void tw_payload_worker_up(struct tw_node *node);
void tw_payload_drop_all(struct tw_node *node);
void tw_payload_advance(struct tw_node *node);

#endif
