/* bulk.c - queues of bulk connections, and the choice of the next TLS record to send.
 *
 * Chunks are of two classes. Payload chunks belong to rounds. Background chunks are parts of the
 * dataset for nodes that fetch it. Records are sent one at a time, so that the upload cap holds and
 * peers take fair turns:
 *
 *   1. payload records of the peers whose connections have room, in turn
 *   2. if no payload waits for any peer: background records, in turn
 *
 * A half-sent background chunk is finished first if a payload waits behind it on the same
 * connection. Rule 2 also waits for payloads whose connection has no room at the moment, because
 * such a connection is filling our uplink. A connection that has sent nothing for
 * TW_BACKGROUND_STALL_US does not count. If no background record was sent for
 * TW_BACKGROUND_PATIENCE_US, one background chunk counts as a payload. */
#include <stdlib.h>

#include "base/assert.h"
#include "daemon/net/transport_impl.h"

/* ---- queues -------------------------------------------------------------------------------- */

static bool ring_init(struct tw_chunk_ring *ring, uint32_t capacity) {
    if (ring->chunks == NULL) ring->chunks = malloc(capacity * sizeof(*ring->chunks));
    ring->capacity = capacity;
    ring->begin = ring->count = 0;
    return ring->chunks != NULL;
}

static bool ring_pop(struct tw_chunk_ring *ring, struct tw_chunk *chunk) {
    if (ring->count == 0) return false;
    *chunk = ring->chunks[ring->begin];
    ring->begin = (ring->begin + 1) % ring->capacity;
    ring->count--;
    return true;
}

static void ring_drop(struct tw_chunk_ring *ring, const struct tw_id *payload) {
    uint32_t kept = 0;
    for (uint32_t k = 0; k < ring->count; k++) {
        const uint32_t from = (ring->begin + k) % ring->capacity;
        if (tw_id_equal(&ring->chunks[from].payload, payload)) continue;
        ring->chunks[(ring->begin + kept) % ring->capacity] = ring->chunks[from];
        kept++;
    }
    ring->count = kept;
}

bool tw_bulk_init(struct tw_bulk *bulk) {
    const bool has_payloads = ring_init(&bulk->payloads, TW_BULK_QUEUE_CHUNKS);
    const bool has_background = ring_init(&bulk->background, TW_BACKGROUND_QUEUE_CHUNKS);
    bulk->is_background = bulk->is_promoted = false;
    return has_payloads && has_background;
}

void tw_bulk_deinit(struct tw_bulk *bulk) {
    free(bulk->payloads.chunks);
    free(bulk->background.chunks);
}

void tw_bulk_clear(struct tw_bulk *bulk) {
    bulk->payloads.count = bulk->background.count = 0;
}

bool tw_bulk_pop(struct tw_bulk *bulk, struct tw_chunk *chunk) {
    return ring_pop(&bulk->payloads, chunk) || ring_pop(&bulk->background, chunk);
}

void tw_bulk_drop(struct tw_bulk *bulk, const struct tw_id *payload) {
    ring_drop(&bulk->payloads, payload);
    ring_drop(&bulk->background, payload);
}

bool tw_bulk_has(const struct tw_bulk *bulk, const struct tw_id *payload, uint32_t idx) {
    const struct tw_chunk_ring *ring = &bulk->payloads;
    for (uint32_t k = 0; k < ring->count; k++) {
        const struct tw_chunk *chunk = &ring->chunks[(ring->begin + k) % ring->capacity];
        if (chunk->idx == idx && tw_id_equal(&chunk->payload, payload)) return true;
    }
    return false;
}

static bool background_waits(const struct tw_transport *t) {
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        if (t->peers[i].queue.background.count > 0) return true;
    }
    return false;
}

bool tw_bulk_push(struct tw_transport *t, struct tw_bulk *bulk, const struct tw_chunk *chunk) {
    struct tw_chunk_ring *ring = chunk->is_background ? &bulk->background : &bulk->payloads;
    if (ring->count == ring->capacity) return false;
    if (chunk->is_background && !background_waits(t)) t->background_us = tw_now_us();
    if (!chunk->is_background && ring->count == 0) bulk->moved_us = tw_now_us();
    ring->chunks[(ring->begin + ring->count) % ring->capacity] = *chunk;
    ring->count++;
    return true;
}

/* ---- choice of the next record ------------------------------------------------------------- */

static bool is_sending(const struct tw_slot *slot) {
    if (slot->state != TW_SLOT_UP || slot->bulk == NULL) return false;
    return slot->bulk->link.state == TW_LINK_UP && !slot->bulk->link.is_failed;
}

/* Returns true if the connection has a queued payload chunk, the rest of a half-sent one, or a
 * background chunk promoted to a payload. */
static bool has_payload(const struct tw_slot *slot) {
    const struct tw_bulk *bulk = &slot->queue;
    if (bulk->payloads.count > 0) return true;
    if (tw_link_queued(&slot->bulk->link) > 0 && !bulk->is_background) return true;
    return bulk->is_promoted && bulk->background.count > 0;
}

static bool has_background(const struct tw_slot *slot) {
    const struct tw_bulk *bulk = &slot->queue;
    return bulk->background.count > 0 ||
           (tw_link_queued(&slot->bulk->link) > 0 && bulk->is_background);
}

struct wanting {
    uint64_t payloads, background; /* bit sets of peers whose connections have room and that have
                                      payload, or only background, records to send */
    uint64_t waiting;    /* bit set of peers with background chunks, with or without room */
    uint64_t stalled_us; /* time until which a payload whose connection has no room blocks
                            background chunks; 0 = none does */
};

static struct wanting wanting_find(const struct tw_transport *t) {
    struct wanting wanting = {0};
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (!is_sending(slot)) continue;
        const uint64_t bit = UINT64_C(1) << i;
        const bool has_room = tw_link_has_room(&slot->bulk->link);
        if (has_background(slot)) wanting.waiting |= bit;
        if (has_payload(slot)) {
            const uint64_t until_us = slot->queue.moved_us + TW_BACKGROUND_STALL_US;
            if (has_room) wanting.payloads |= bit;
            if (until_us > wanting.stalled_us) wanting.stalled_us = until_us;
        } else if (has_background(slot) && has_room) {
            wanting.background |= bit;
        }
    }
    return wanting;
}

/* Sends one record to a peer. If its link is idle, the next chunk is loaded first: the link copies
 * the bytes, so the chunk's owner can release them. */
static void send_record(struct tw_transport *t, uint16_t peer, uint64_t now_us) {
    struct tw_slot *slot = &t->peers[peer];
    struct tw_bulk *bulk = &slot->queue;
    struct tw_link *link = &slot->bulk->link;
    struct tw_chunk chunk = {0};
    if (tw_link_queued(link) == 0) {
        if (!bulk->is_promoted || !ring_pop(&bulk->background, &chunk))
            (void)tw_bulk_pop(bulk, &chunk);
        TW_ASSERT(chunk.size > 0);
        bulk->is_background = chunk.is_background && !bulk->is_promoted;
        bulk->is_promoted = false;
        tw_link_load_chunk(link, &chunk.payload, chunk.idx, chunk.bytes, chunk.size);
    }
    if (bulk->is_background || chunk.is_background) t->background_us = now_us;
    if (!bulk->is_background) bulk->moved_us = now_us;
    (void)tw_link_push(link);
    if (chunk.size > 0 && t->config.events.released != NULL)
        t->config.events.released(t->config.user, peer, &chunk, true);
}

/* Lets the next peer's oldest background chunk count as a payload, so that background chunks never
 * starve. */
static void background_promote(struct tw_transport *t, uint64_t waiting, uint64_t now_us) {
    struct tw_slot *slot = &t->peers[tw_turn_next(&t->background_turn, waiting)];
    t->background_us = now_us;
    if (tw_link_queued(&slot->bulk->link) > 0 && slot->queue.is_background)
        slot->queue.is_background = false; /* promotes the rest of the half-sent chunk */
    else
        slot->queue.is_promoted = true;
}

void tw_bulk_step(struct tw_transport *t, uint64_t now_us) {
    t->upload_wait_us = t->background_wait_us = 0;
    while (!t->is_closing) {
        struct wanting wanting = wanting_find(t);
        if (wanting.waiting != 0 && now_us >= t->background_us + t->config.background_us) {
            background_promote(t, wanting.waiting, now_us);
            wanting = wanting_find(t);
        }
        uint64_t set = wanting.payloads;
        if (wanting.waiting != 0)
            t->background_wait_us = t->background_us + t->config.background_us - now_us;
        if (set == 0 && wanting.background != 0) {
            if (wanting.stalled_us <= now_us) {
                set = wanting.background;
            } else if (wanting.stalled_us - now_us < t->background_wait_us) {
                t->background_wait_us = wanting.stalled_us - now_us;
            }
        }
        if (set == 0) return;
        t->upload_wait_us = tw_rate_wait_us(&t->upload, TW_TLS_RECORD_BYTES_MAX, now_us);
        if (t->upload_wait_us > 0) return;
        send_record(t, tw_turn_next(&t->turn, set), now_us);
    }
}
