/* peer.c - the table of admitted peers: their two connections, their queues, and how they end. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/transport_impl.h"

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
    if (!tw_bulk_init(&slot->queue)) {
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
    while (!t->is_closing && tw_bulk_pop(&slot->queue, &chunk)) {
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

void tw_peer_resume_control(struct tw_transport *t, int peer) {
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
            tw_peer_resume_control(t, i);
        if (slot->state == TW_SLOT_UP && slot->needs_pump) pump_resumed(slot);
        if (slot->state == TW_SLOT_ENDING && !t->is_closing) tw_peer_finish(t, i);
    }
    tw_pacing_step(t, now_us);
    tw_relay_step(t, now_us);
    tw_bulk_step(t, now_us);
}
