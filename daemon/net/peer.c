/* peer.c - admitted peers: their two connections, their queues, their pacing, and how they end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/socket.h"
#include "daemon/net/sockopt.h"
#include "daemon/net/transport_impl.h"

/* ==== chunks that wait ======================================================================== */

/* Queues of bulk connections, and the choice of the next TLS record to send.
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

/* Empties the queue and reuses its memory. Returns false if there is no memory. */
static bool bulk_init(struct tw_bulk *bulk) {
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

static bool bulk_pop(struct tw_bulk *bulk, struct tw_chunk *chunk) {
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
            (void)bulk_pop(bulk, &chunk);
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

static void send_chunks(struct tw_transport *t, uint64_t now_us) {
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

/* ==== pacing ================================================================================== */

/* Samples the bulk connections that send, and sets their pacing rate in the kernel.
 *
 * Also ends links on paths that carry only small packets, such as tunnels that silently drop larger
 * ones. The control connection looks healthy there, so nothing else would end the link, and each
 * round would wait for payloads that never arrive. A receiver whose window is full looks different:
 * TCP retransmits nothing to it. */

enum { LOOK_US = 500 * 1000, REPEATS = 3 };

/* Samples the socket, unless nothing was sent since the last sample. */
static void socket_sample(struct tw_pacing *pacing, const struct tw_link *link, int fd,
                          uint64_t now_us) {
    struct tw_sockopt_flow flow;
    const uint64_t bytes_out = tw_link_bytes_out(link);
    if (pacing->is_idle && bytes_out == pacing->bytes_out) return;
    if (!tw_sockopt_flow(fd, &flow)) return;
    if ((flow.no_room_us - pacing->no_room_us) * 2 > now_us - pacing->looked_us)
        flow.sample.is_idle = true;
    flow.sample.now_us = now_us;
    pacing->looked_us = now_us;
    pacing->is_idle = flow.sample.is_idle;
    pacing->bytes_out = bytes_out;
    pacing->no_room_us = flow.no_room_us;
    tw_pacer_take(&pacing->pacer, &flow.sample);
}

/* Returns true if the path has delivered nothing for TW_BULK_STUCK_US, although TCP keeps
 * retransmitting. */
static bool is_stuck(struct tw_pacing *pacing, int fd, uint64_t now_us) {
    struct tw_sockopt_flow flow;
    if (now_us < pacing->progress_due_us) return false;
    pacing->progress_due_us = now_us + LOOK_US;
    if (!tw_sockopt_flow(fd, &flow)) return false;
    const bool is_moving =
        flow.repeats < REPEATS || flow.sample.delivered_bytes != pacing->acked_bytes;
    if (is_moving) pacing->progress_us = now_us;
    pacing->acked_bytes = flow.sample.delivered_bytes;
    return now_us - pacing->progress_us >= TW_BULK_STUCK_US;
}

/* peer.c: samples the bulk connections that send, sets their rate in the kernel, and closes links
 * whose payloads do not get through. */
static void pace(struct tw_transport *t, uint64_t now_us) {
    for (unsigned i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        struct tw_slot *slot = &t->peers[i];
        struct tw_pacing *pacing = &slot->pacing;
        uv_os_fd_t fd = -1;
        if (slot->state != TW_SLOT_UP || slot->bulk == NULL) continue;
        if (uv_fileno((const uv_handle_t *)&slot->bulk->link.tcp, &fd) != 0) continue;
        if (is_stuck(pacing, fd, now_us)) {
            tw_peer_end(t, (int)i, TW_IO,
                        "payloads do not get through, though small packets do: is the MTU of the "
                        "path below 1280 bytes?");
            continue;
        }
        if (t->config.pace.mode == TW_LINK_PACE_AUTO &&
            now_us >= pacing->looked_us + TW_PACER_TICK_US)
            socket_sample(pacing, &slot->bulk->link, fd, now_us);
        const uint64_t limit = tw_pacer_limit(&pacing->pacer, &t->config.pace, t->upload.per_s);
        if (limit == pacing->limit_bytes_per_s) continue;
        pacing->limit_bytes_per_s = limit;
        tw_sockopt_pace(fd, limit);
    }
}

/* ==== the table of peers ====================================================================== */

/* The table of admitted peers: their two connections, their queues, and how they end. */

enum {
    THROTTLE_US = 10 * 1000
}; /* extra pause before a peer that sent too much is read again, so that several messages are read
      at once */

int tw_peer_find(const struct tw_transport *t, const struct tw_id *id) {
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        if (t->peers[i].state == TW_SLOT_UP && tw_id_equal(&t->peers[i].record.id, id)) return i;
    }
    return -1;
}

/* Replaces an announced wildcard by the address from which the node connected. The result is empty
 * if the wildcard does not cover that address: [::] covers IPv4 only if no 0.0.0.0 is announced,
 * and 0.0.0.0 never covers IPv6. */
static void address_learn(const struct tw_conn *conn, const char *said, bool is_dual,
                          char out[TW_ADDR_BYTES]) {
    char host[TW_ADDR_BYTES], seen[TW_ADDR_BYTES];
    uint16_t port = 0, ignored = 0;
    memcpy(out, said, TW_ADDR_BYTES);
    if (!tw_address_split(said, host, &port)) return;
    const bool is_any_v4 = strcmp(host, "0.0.0.0") == 0, is_any_v6 = strcmp(host, "::") == 0;
    if (!is_any_v4 && !is_any_v6) return;
    out[0] = '\0';
    if (conn->is_relayed) return; /* the connection comes from the relay's address */
    if (!tw_address_split(conn->link.address, seen, &ignored)) return;
    /* A dual-stack listener sees IPv4 peers as ::ffff:1.2.3.4. */
    const char *plain =
        strncmp(seen, "::ffff:", 7) == 0 && strchr(seen, '.') != NULL ? seen + 7 : seen;
    const bool is_v6 = strchr(plain, ':') != NULL;
    if (is_v6 ? is_any_v4 : is_any_v6 && !is_dual) return;
    const int length =
        snprintf(out, TW_ADDR_BYTES, is_v6 ? "[%s]:%u" : "%s:%u", plain, (unsigned)port);
    if (length <= 0 || length >= TW_ADDR_BYTES) out[0] = '\0';
}

static void record_learn(const struct tw_conn *conn, const struct tw_hello *hello,
                         struct tw_member_row *record) {
    uint32_t count = 0;
    bool is_dual = true;
    for (uint32_t i = 0; i < hello->addrs_count; i++)
        is_dual &= strncmp(hello->addrs[i], "0.0.0.0:", 8) != 0;
    record->id = hello->id;
    for (uint32_t i = 0; i < hello->addrs_count; i++) {
        char text[TW_ADDR_BYTES];
        address_learn(conn, hello->addrs[i], is_dual, text);
        bool is_new = text[0] != '\0';
        for (uint32_t k = 0; k < count; k++) is_new &= strcmp(record->addrs[k], text) != 0;
        if (is_new) memcpy(record->addrs[count++], text, sizeof(text));
    }
}

void tw_peer_address(const struct tw_conn *conn, const struct tw_hello *hello,
                     char address[TW_ADDR_BYTES]) {
    struct tw_member_row record = {.id = hello->id};
    record_learn(conn, hello, &record);
    const char *seen =
        conn->is_relayed ? "" : conn->link.address; /* the relay's address is not the node's */
    (void)snprintf(address, TW_ADDR_BYTES, "%s",
                   record.addrs[0][0] != '\0' ? record.addrs[0] : seen);
}

/* ---- rows of the table --------------------------------------------------------------------------
 *
 * New node ids cost nothing in runs with a secret, so one host could fill the whole table. If the
 * table is full, a node of a higher rank displaces one of a lower rank. */

enum rank { RANK_FRESH, RANK_CERTIFIED, RANK_WANTED };

bool tw_peer_is_wanted(const struct tw_transport *t, const struct tw_id *id) {
    const struct tw_transport_events *events = &t->config.events;
    return events->is_wanted == NULL || events->is_wanted(t->config.user, id);
}

static enum rank rank_of(const struct tw_transport *t, const struct tw_id *id,
                         const struct tw_certs *certs) {
    const struct tw_transport_events *events = &t->config.events;
    if (events->is_wanted != NULL && events->is_wanted(t->config.user, id)) return RANK_WANTED;
    return certs->count > 0 ? RANK_CERTIFIED : RANK_FRESH;
}

/* Counts the links of nodes with that rank from that host. A relayed link counts for the host of
 * its relay. */
static unsigned count_host(const struct tw_transport *t, const enum rank ranks[TW_PEERS_MAX],
                           enum rank rank, const struct sockaddr_storage *host) {
    unsigned count = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_slot *slot = &t->peers[i];
        count += slot->state == TW_SLOT_UP && ranks[i] == rank &&
                 tw_handshake_limiter_is_same_host(&slot->control->remote, host);
    }
    return count;
}

/* Finds the peer that makes room for a node of `rank`. It has the lowest rank, comes from the host
 * with the most such peers, and is the newest of them. Returns -1 if no peer has a lower rank. */
static int find_lowest(const struct tw_transport *t, const enum rank ranks[TW_PEERS_MAX],
                       enum rank rank) {
    int found = -1;
    unsigned most = 0;
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP || ranks[i] >= rank) continue;
        if (found >= 0 && ranks[i] > ranks[found]) continue;
        const unsigned count = count_host(t, ranks, ranks[i], &slot->control->remote);
        const bool is_newer =
            found >= 0 && slot->control->since_us > t->peers[found].control->since_us;
        if (found >= 0 && ranks[i] == ranks[found] &&
            (count < most || (count == most && !is_newer)))
            continue;
        found = i;
        most = count;
    }
    return found;
}

/* Returns true if the node must wait because another node from its host was banned. A certified or
 * wanted node never waits. While such a node is linked from the host, no other node there waits
 * either: many nodes may share one router. */
static bool is_host_closed(const struct tw_conn *conn, const struct tw_id *id) {
    const struct tw_transport *const t = conn->transport;
    if (conn->is_relayed || rank_of(t, id, &conn->certs) > RANK_FRESH) return false;
    if (tw_bans_host_left_s(&t->bans, &conn->remote, (uint64_t)time(NULL)) == 0) return false;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_slot *const slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP || slot->is_relayed) continue;
        if (tw_handshake_limiter_is_same_host(&slot->control->remote, &conn->remote) &&
            rank_of(t, &slot->record.id, &slot->certs) > RANK_FRESH)
            return false;
    }
    return true;
}

/* Returns the index of a free peer row for that node, or -1 if it is refused. */
static int place_take(struct tw_conn *conn, const struct tw_id *id, struct tw_error *err) {
    struct tw_transport *t = conn->transport;
    if (is_host_closed(conn, id)) {
        (void)tw_fail(err, TW_LIMIT,
                      "a node of this host broke the protocol: unknown nodes of it wait %d minutes",
                      TW_HOST_BAN_S / 60);
        return -1;
    }
    enum rank ranks[TW_PEERS_MAX];
    unsigned used = 0;
    int at = -1;
    for (int i = TW_PEERS_MAX - 1; i >= 0; i--) {
        used += t->peers[i].state != TW_SLOT_FREE;
        if (t->peers[i].state == TW_SLOT_FREE) at = i;
    }
    if (used < TW_PEERS_FREE_MAX) return at;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++)
        ranks[i] = t->peers[i].state == TW_SLOT_UP
                       ? rank_of(t, &t->peers[i].record.id, &t->peers[i].certs)
                       : RANK_WANTED;
    const enum rank rank = rank_of(t, id, &conn->certs);
    if (rank == RANK_FRESH &&
        count_host(t, ranks, RANK_FRESH, &conn->remote) >= TW_PEERS_FRESH_PER_HOST) {
        (void)tw_fail(err, TW_LIMIT, "the last places are not for more than %d nodes of one host",
                      TW_PEERS_FRESH_PER_HOST);
        return -1;
    }
    if (at >= 0) return at;
    at = find_lowest(t, ranks, rank);
    if (at < 0) {
        (void)tw_fail(err, TW_LIMIT, "this node already has links to %d others", TW_PEERS_MAX);
        return -1;
    }
    tw_peer_end(t, at, TW_LIMIT, "a node that this one knows better needs the place");
    tw_peer_finish(t, at);
    return t->is_closing ? -1 : at;
}

int tw_peer_open(struct tw_conn *conn, const struct tw_hello *hello, struct tw_error *err) {
    struct tw_transport *t = conn->transport;
    if (t->rest[0] != '\0') {
        (void)tw_fail(err, TW_AGAIN, "%s", t->rest);
        return -1;
    }
    const int at = place_take(conn, &hello->id, err);
    if (at < 0) return -1;
    struct tw_slot *slot = &t->peers[at];
    if (!bulk_init(&slot->queue)) {
        (void)tw_fail(err, TW_NOMEM, "no memory for another peer");
        return -1;
    }
    *slot = (struct tw_slot){.queue = slot->queue};
    tw_pacer_init(&slot->pacing.pacer);
    uint8_t tag[TW_TLS_EXPORT_BYTES];
    if (tw_tls_export(&conn->link.tls, TW_LINK_EXPORT, tag, err) != TW_OK) return -1;
    if (tw_link_admit(&conn->link, TW_ROLE_CONTROL, err) != TW_OK) return -1;
    const uint64_t now_us = tw_now_us();
    memcpy(slot->tag, tag, sizeof(slot->tag));
    slot->control = conn;
    slot->is_dialled = conn->is_dialled;
    slot->is_relayed = conn->is_relayed;
    slot->is_punched = conn->is_punched;
    slot->relay = conn->call.relay;
    slot->boot = hello->boot;
    slot->features = tw_extensions_features(&hello->extensions);
    tw_extensions_software(&hello->extensions, slot->software);
    tw_extensions_name(&hello->extensions, slot->name);
    slot->secret = conn->secret;
    record_learn(conn, hello, &slot->record);
    slot->certs = conn->certs;
    slot->clock_s = conn->clock_s;
    slot->linked_us = now_us;
    slot->bulk_retry_us = conn->is_dialled ? now_us : UINT64_MAX;
    slot->bulk_deadline_us = now_us + TW_BULK_UP_US;
    tw_rate_init(&slot->calls, TW_RELAY_CALLS_PER_S, TW_RELAY_CALLS_BURST, now_us);
    tw_rate_init(&slot->relayed, TW_RELAY_OUTSIDE_NODE_PER_S, TW_RELAY_OUTSIDE_NODE_BURST, now_us);
    tw_rate_init(&slot->answers, TW_RELAY_ANSWERS_PER_S, TW_RELAY_ANSWERS_BURST, now_us);
    tw_rate_init(&slot->messages, TW_MESSAGES_PER_S, TW_MESSAGES_BURST, now_us);
    (void)tw_fail(&slot->bulk_error, TW_IO, "the other side opened none");
    tw_twins_linked(&t->twins, &hello->id, tw_extensions_process(&hello->extensions), now_us);
    slot->state = TW_SLOT_UP;
    conn->peer = at;
    conn->deadline_us = UINT64_MAX;
    tw_transport_soon(t);
    return at;
}

void tw_peer_attach_bulk(struct tw_conn *conn, int peer) {
    struct tw_slot *slot = &conn->transport->peers[peer];
    TW_ASSERT(slot->state == TW_SLOT_UP && slot->bulk == NULL);
    slot->bulk = conn;
    slot->bulk_retry_us = slot->bulk_deadline_us = UINT64_MAX;
    conn->peer = peer;
    conn->deadline_us = UINT64_MAX;
    tw_transport_soon(conn->transport);
}

/* ---- end ----------------------------------------------------------------------------------- */

static void conn_detach(struct tw_conn *conn, enum tw_status reason, const char *sentence) {
    if (conn == NULL) return;
    conn->peer = conn->bulk_of = -1;
    conn->deadline_us = UINT64_MAX;
    tw_link_close(&conn->link, reason, sentence);
}

void tw_peer_end(struct tw_transport *t, int peer, enum tw_status reason, const char *sentence) {
    struct tw_slot *slot = &t->peers[peer];
    if (slot->state != TW_SLOT_UP) return;
    slot->state = TW_SLOT_ENDING;
    (void)tw_fail(&slot->reason, reason, "%s", sentence);
    conn_detach(slot->control, reason, slot->reason.message);
    conn_detach(slot->bulk, reason, slot->reason.message);
    conn_detach(slot->bulk_dial, reason, NULL);
    slot->control = slot->bulk = slot->bulk_dial = NULL;
    tw_relay_peer_gone(t, &slot->record.id);
    tw_transport_soon(t);
}

void tw_peer_blame(struct tw_transport *t, int peer, enum tw_status reason, const char *sentence) {
    const struct tw_slot *const slot = &t->peers[peer];
    const struct tw_id *id = &slot->record.id;
    if (tw_bans_is_offence(reason)) {
        const uint64_t now_s = (uint64_t)time(NULL);
        const uint32_t length_s = tw_bans_offence(&t->bans, id, now_s);
        /* A relayed link appears to come from the relay's host, which is not to blame. */
        if (length_s > 0 && slot->state == TW_SLOT_UP && !slot->is_relayed)
            tw_bans_host(&t->bans, id, &slot->control->remote, now_s);
        if (length_s > 0 && t->config.events.banned != NULL)
            t->config.events.banned(t->config.user, id, length_s, sentence);
    }
    tw_peer_end(t, peer, reason, sentence);
}

void tw_peer_finish(struct tw_transport *t, int peer) {
    struct tw_slot *slot = &t->peers[peer];
    TW_ASSERT(slot->state == TW_SLOT_ENDING);
    struct tw_chunk chunk;
    while (!t->is_closing && bulk_pop(&slot->queue, &chunk)) {
        if (t->config.events.released != NULL)
            t->config.events.released(t->config.user, (uint16_t)peer, &chunk, false);
    }
    if (t->is_closing) return;
    const struct tw_error reason = slot->reason;
    slot->state = TW_SLOT_FREE;
    t->config.events.peer_down(t->config.user, (uint16_t)peer, reason.status, reason.message);
}

/* ---- frames -------------------------------------------------------------------------------- */

/* Returns the cost of a message, as a number of plain messages. Honest nodes rarely send the costly
 * ones: requests with large answers, and messages about other nodes. */
static uint32_t message_cost(const struct tw_frame *frame) {
    switch (frame->kind) {
    case TW_MSG_LOG_GET:
    case TW_MSG_STATE_GET: return 200;
    case TW_MSG_RELAY_CALL:
    case TW_MSG_PUNCH:
    case TW_MSG_PEERS: return 100;
    default: return 1 + frame->body_bytes / 1024;
    }
}

/* Charges the sender of a message. If the peer exceeds its share, reading from it pauses until the
 * debt is paid: nothing is lost, and its flood delays only itself. */
static void message_pay(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_slot *slot = &conn->transport->peers[conn->peer];
    const uint64_t now_us = tw_now_us();
    tw_rate_spend(&slot->messages, message_cost(frame), now_us);
    const uint64_t wait_us = tw_rate_wait_us(&slot->messages, 1, now_us);
    if (wait_us == 0) return;
    slot->throttled_us = now_us + wait_us + THROTTLE_US;
    tw_link_pause(&conn->link);
    tw_transport_soon(conn->transport);
}

/* Resumes reading control frames, unless the peer is still throttled. */
static void resume_control(struct tw_transport *t, int peer) {
    struct tw_slot *slot = &t->peers[peer];
    if (slot->throttled_us > tw_now_us()) return;
    slot->throttled_us = 0;
    tw_link_resume(&slot->control->link);
    slot->needs_pump = true;
    tw_transport_soon(t);
}

void tw_peer_frame(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_transport *t = conn->transport;
    const int peer = conn->peer;
    if (frame->kind != TW_FRAME_GOODBYE) {
        const bool is_bulk = conn->link.role == TW_ROLE_BULK;
        if (!is_bulk) message_pay(conn, frame);
        if (frame->kind == TW_FRAME_TWIN) {
            tw_held_frame(conn, frame);
            return;
        }
        t->config.events.frame(t->config.user, (uint16_t)peer, is_bulk, frame);
        return;
    }
    struct tw_goodbye goodbye;
    struct tw_error err;
    if (tw_goodbye_decode(frame->body, frame->body_bytes, &goodbye, &err) != TW_OK) {
        tw_peer_blame(t, peer, err.status, err.message);
        return;
    }
    if (goodbye.status == TW_TWIN) tw_held_told(t, goodbye.sentence);
    char sentence[sizeof(goodbye.sentence) + 32];
    (void)snprintf(sentence, sizeof(sentence), "the other side left: %s", goodbye.sentence);
    tw_peer_end(t, peer, goodbye.status, sentence);
}

/* ---- certificates ---------------------------------------------------------------------------- */

void tw_transport_review(struct tw_transport *t) {
    struct tw_error err;
    for (int i = 0; i < TW_PEERS_MAX && t->config.gate != NULL; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP) continue;
        if (tw_gate_review(t->config.gate, &slot->certs, &err) != TW_OK)
            tw_peer_end(t, i, err.status, err.message);
    }
}

struct tw_certs tw_transport_certs(const struct tw_transport *t, uint16_t peer) {
    const struct tw_certs none = {.count = 0};
    return peer < TW_PEERS_MAX && t->peers[peer].state == TW_SLOT_UP ? t->peers[peer].certs : none;
}

void tw_transport_renew(struct tw_transport *t, uint16_t peer, const struct tw_certs *certs) {
    if (peer < TW_PEERS_MAX && t->peers[peer].state == TW_SLOT_UP) t->peers[peer].certs = *certs;
}

/* ---- periodic step -------------------------------------------------------------------------- */

static void bulk_step(struct tw_transport *t, int peer, uint64_t now_us) {
    struct tw_slot *slot = &t->peers[peer];
    struct tw_error err;
    if (now_us >= slot->bulk_deadline_us) {
        char sentence[sizeof(err.message) + 64];
        (void)snprintf(sentence, sizeof(sentence), "no bulk connection within %d s: %s",
                       TW_BULK_UP_US / 1000000, slot->bulk_error.message);
        tw_peer_end(t, peer, TW_IO, sentence);
        return;
    }
    if (now_us < slot->bulk_retry_us) return;
    slot->bulk_retry_us = UINT64_MAX; /* no other try until this one fails */
    if (tw_dialer_bulk(t, peer, &err) == TW_OK) return;
    if (slot->is_punched) { /* a dial from one side alone does not get through the routers of a
                               punched link */
        tw_peer_end(t, peer, TW_AGAIN, err.message);
        return;
    }
    slot->bulk_error = err;
    slot->bulk_retry_us = now_us + TW_BULK_RETRY_US;
}

static void pump_resumed(struct tw_slot *slot) {
    slot->needs_pump = false;
    struct tw_conn *const conns[2] = {slot->control, slot->bulk};
    for (unsigned i = 0; i < 2; i++) {
        if (slot->state == TW_SLOT_UP && conns[i] != NULL) tw_link_pump(&conns[i]->link);
    }
}

void tw_peers_step(struct tw_transport *t, uint64_t now_us) {
    for (int i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        struct tw_slot *slot = &t->peers[i];
        if (slot->state == TW_SLOT_UP) bulk_step(t, i, now_us);
        if (slot->state == TW_SLOT_UP && slot->throttled_us > 0 && now_us >= slot->throttled_us)
            resume_control(t, i);
        if (slot->state == TW_SLOT_UP && slot->needs_pump) pump_resumed(slot);
        if (slot->state == TW_SLOT_ENDING && !t->is_closing) tw_peer_finish(t, i);
    }
    pace(t, now_us);
    tw_relay_step(t, now_us);
    send_chunks(t, now_us);
}
