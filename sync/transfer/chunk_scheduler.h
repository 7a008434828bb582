/* chunk_scheduler.h - which peer is asked for which chunk of a payload, and how many at a time. */
#ifndef TW_SYNC_TRANSFER_CHUNK_SCHEDULER_H
#define TW_SYNC_TRANSFER_CHUNK_SCHEDULER_H

#include "sync/core/state/node.h"

/* Drops sources that do not deliver, and finds others. */
void tw_chunks_prepare(struct tw_node *node, struct payload *payload);
/* Requests as many chunks from the sources as their windows allow. */
void tw_chunks_ask(struct tw_node *node, struct payload *payload);
/* Removes the request for chunk `idx`, which was stored, and measures the link. */
void tw_chunks_arrived(struct tw_node *node, struct payload *payload, uint16_t peer, uint32_t idx);
/* Notes that a majority has the payload now. Peers that lacked it may be asked again, and silent
 * links are dropped as sources. */
void tw_chunks_decided(struct tw_node *node, struct payload *payload);
/* Drops the peer as a source of the payload. */
void tw_chunks_source_lost(struct tw_node *node, struct payload *payload, uint16_t peer);
/* Drops all sources of the payload and its chunks under way. */
void tw_chunks_forget(struct tw_node *node, struct payload *payload);

#endif
