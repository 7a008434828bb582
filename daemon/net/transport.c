#include "daemon/net/transport.h"

/* transport.c - the addresses that this node announces in HELLO and to its peers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport_impl.h"

/* ==== announced addresses ===================================================================== */

static bool is_stranger(const struct tw_conn *conn);

static void self_add(struct tw_member_row *self, const char *host, uint16_t port) {
    char text[TW_ADDR_BYTES] = "";
    const bool is_v6 = strchr(host, ':') != NULL;
    const int length =
        snprintf(text, sizeof(text), is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
    if (length <= 0 || length >= TW_ADDR_BYTES) return;
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (strcmp(self->addrs[i], text) == 0) return;
        if (self->addrs[i][0] != '\0') continue;
        memcpy(self->addrs[i], text, sizeof(text));
        return;
    }
}

/* For a wildcard listener, adds this machine's address on the default route. A peer sees only one
 * of our addresses, and behind NAT it sees the router's. Nodes in our own network can dial the real
 * one. */
static void self_add_own(const struct tw_transport *t, const struct tw_listener *listener,
                         struct tw_member_row *self) {
    static const int families[2] = {AF_INET6, AF_INET};
    for (unsigned i = 0; i < 2; i++) {
        struct sockaddr_storage own;
        char host[INET6_ADDRSTRLEN];
        const bool is_covered = listener->family == families[i] ||
                                (listener->family == AF_INET6 && t->config.listen_count == 1);
        if (!is_covered || !tw_local_address(&t->egress, families[i], &own)) continue;
        if (uv_ip_name((const struct sockaddr *)&own, host, sizeof(host)) != 0) continue;
        self_add(self, host, listener->port);
    }
}

/* Adds the outer address that a router forwards to this node. If all address entries are used, it
 * replaces the IPv6 wildcard: peers learn this machine's IPv6 address anyway. */
static void self_add_mapped(const struct tw_transport *t, struct tw_member_row *self) {
    unsigned at = 0;
    if (t->mapped[0] == '\0') return;
    while (at < TW_ADDRS_MAX && self->addrs[at][0] != '\0') at++;
    for (unsigned i = 0; i < TW_ADDRS_MAX && at == TW_ADDRS_MAX; i++) {
        if (strncmp(self->addrs[i], "[::]:", 5) == 0) at = i;
    }
    memcpy(self->addrs[at < TW_ADDRS_MAX ? at : TW_ADDRS_MAX - 1], t->mapped, TW_ADDR_BYTES);
}

/* transport.c: fills in the addresses that this node announces now. */
static void fill_announced(const struct tw_transport *t, struct tw_member_row *self) {
    const struct tw_transport_config *config = &t->config;
    *self = (struct tw_member_row){.id = config->identity->id};
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++)
        memcpy(self->addrs[i], config->advertise[i], TW_ADDR_BYTES);
    if (self->addrs[0][0] != '\0') return;
    /* A wildcard is announced as it is: the receiver substitutes the address from which we
     * connected. */
    for (uint32_t i = 0; i < config->listen_count; i++) {
        char host[TW_ADDR_BYTES];
        uint16_t ignored = 0;
        const bool is_named = tw_address_split(config->listen[i], host, &ignored);
        TW_ASSERT(is_named);
        if (!t->listeners[i].is_absent) self_add(self, host, t->listeners[i].port);
    }
    for (uint32_t i = 0; i < config->listen_count; i++) {
        const struct tw_listener *listener = &t->listeners[i];
        if (listener->is_wildcard && !listener->is_absent) self_add_own(t, listener, self);
    }
    self_add_mapped(t, self);
}

bool tw_transport_set_mapped(struct tw_transport *t, const char *address) {
    if (strcmp(t->mapped, address) == 0) return false;
    (void)snprintf(t->mapped, sizeof(t->mapped), "%s", address);
    return true;
}

bool tw_transport_own_v4(const struct tw_transport *t, char host[TW_ADDR_BYTES]) {
    struct sockaddr_storage own;
    return tw_local_address(&t->egress, AF_INET, &own) &&
           uv_ip_name((const struct sockaddr *)&own, host, TW_ADDR_BYTES) == 0;
}

bool tw_transport_inner(const struct tw_transport *t, char host[TW_ADDR_BYTES], uint16_t *port) {
    for (uint32_t i = 0; i < t->config.listen_count; i++) {
        const struct tw_listener *listener = &t->listeners[i];
        const bool is_v4 =
            listener->family == AF_INET || (listener->is_wildcard && t->config.listen_count == 1);
        char address[TW_ADDR_BYTES];
        uint16_t ignored = 0;
        if (!is_v4 || listener->is_absent || listener->is_loopback) continue;
        if (!listener->is_wildcard) {
            if (!tw_address_split(t->config.listen[i], host, &ignored)) continue;
        } else if (!tw_transport_own_v4(t, host)) {
            continue;
        }
        *port = listener->port;
        (void)snprintf(address, sizeof(address), "%.64s:%u", host, (unsigned)*port);
        if (tw_reachability_is_private(address)) return true;
    }
    return false;
}

/* ==== the loop ================================================================================ */

/* ---- the step ------------------------------------------------------------------------------ */

static void on_idle(uv_idle_t *idle);
static void on_timer(uv_timer_t *timer);
static void closing_step(struct tw_transport *t);

void tw_transport_soon(struct tw_transport *t) {
    if (!uv_is_closing((uv_handle_t *)&t->idle)) (void)uv_idle_start(&t->idle, on_idle);
}

static void conn_overdue(struct tw_conn *conn) {
    const bool is_open = conn->link.state != TW_LINK_OPENING;
    conn->cause = is_open ? TW_DIAL_STALLED : tw_dial_cause_of_silence(&conn->remote);
    if (!is_open && conn->is_dialled) tw_dialer_check_line(conn);
    tw_conn_fail(conn, TW_IO,
                 is_open ? "no complete handshake in time" : "nothing came back in time");
}

static void conn_step(struct tw_conn *conn, uint64_t now_us) {
    struct tw_transport *t = conn->transport;
    tw_link_sweep(&conn->link, now_us);
    if (conn->link.state >= TW_LINK_DRAINING) return;
    if (now_us >= conn->deadline_us && !conn->link.is_failed) conn_overdue(conn);
    if (!conn->link.is_failed) return;
    const struct tw_error error = conn->link.error;
    if (conn->peer < 0) {
        tw_admit_failed(conn);
        return;
    }
    tw_peer_blame(t, conn->peer, error.status, error.message);
}

static uint64_t next_deadline_us(const struct tw_transport *t, uint64_t now_us) {
    uint64_t next_us = UINT64_MAX;
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        const struct tw_conn *conn = t->conns[i];
        if (conn == NULL || conn->link.state == TW_LINK_CLOSED) continue;
        const uint64_t link_us = tw_link_deadline_us(&conn->link);
        if (link_us < next_us) next_us = link_us;
        if (conn->link.state != TW_LINK_DRAINING && conn->deadline_us < next_us)
            next_us = conn->deadline_us;
    }
    for (unsigned i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP) continue;
        if (slot->bulk_retry_us < next_us) next_us = slot->bulk_retry_us;
        if (slot->bulk_deadline_us < next_us) next_us = slot->bulk_deadline_us;
        if (slot->throttled_us > 0 && slot->throttled_us < next_us) next_us = slot->throttled_us;
    }
    const uint64_t held_us = tw_held_deadline_us(t);
    if (held_us < next_us) next_us = held_us;
    const uint64_t relay_us = tw_relay_deadline_us(t, now_us);
    if (relay_us < next_us) next_us = relay_us;
    const uint64_t punch_us = tw_punch_deadline_us(t);
    if (punch_us < next_us) next_us = punch_us;
    const uint64_t dial_us = tw_dialer_deadline_us(t);
    if (dial_us < next_us) next_us = dial_us;
    if (t->accept_due_us > 0 && t->accept_due_us < next_us) next_us = t->accept_due_us;
    if (t->upload_wait_us > 0 && now_us + t->upload_wait_us < next_us)
        next_us = now_us + t->upload_wait_us;
    if (t->background_wait_us > 0 && now_us + t->background_wait_us < next_us)
        next_us = now_us + t->background_wait_us;
    return next_us;
}

static void timer_arm(struct tw_transport *t, uint64_t now_us) {
    const uint64_t next_us = next_deadline_us(t, now_us);
    if (uv_is_closing((uv_handle_t *)&t->timer)) return;
    if (next_us == UINT64_MAX) {
        (void)uv_timer_stop(&t->timer);
        return;
    }
    /* Work that is due at once runs after one turn of the loop, from the idle handle. A timer that
     * its own callback arms again would run before all other handles. */
    const uint64_t wait_us = next_us > now_us ? next_us - now_us : 0;
    if (wait_us == 0) {
        tw_transport_soon(t);
        return;
    }
    uv_update_time(t->config.loop);
    (void)uv_timer_start(&t->timer, on_timer, (wait_us + 999) / 1000, 0);
}

static void accept_stalled(struct tw_transport *t, uint64_t now_us) {
    if (now_us < t->accept_due_us) return;
    t->accept_due_us = 0;
    for (uint32_t i = 0; i < t->config.listen_count && !t->is_closing; i++) {
        struct tw_listener *listener = &t->listeners[i];
        if (!listener->is_stalled) continue;
        listener->is_stalled = false;
        tw_admit_accepted((uv_stream_t *)&listener->tcp, 0);
    }
}

static void transport_step(struct tw_transport *t) {
    const uint64_t now_us = tw_now_us();
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        if (t->conns[i] != NULL) conn_step(t->conns[i], now_us);
    }
    accept_stalled(t, now_us);
    if (!t->is_closing) tw_dialer_step(t, now_us);
    if (!t->is_closing) tw_punch_step(t, now_us);
    if (!t->is_closing) tw_peers_step(t, now_us);
    if (!t->is_closing) tw_held_step(t, now_us);
    timer_arm(t, now_us);
    if (t->is_closing) closing_step(t);
}

static void on_idle(uv_idle_t *idle) {
    (void)uv_idle_stop(idle);
    transport_step(idle->data);
}

static void on_timer(uv_timer_t *timer) {
    transport_step(timer->data);
}

/* ---- connections --------------------------------------------------------------------------- */

static void on_secured(struct tw_link *link) {
    tw_admit_secured((struct tw_conn *)link);
}

static void on_frame(struct tw_link *link, const struct tw_frame *frame) {
    struct tw_conn *conn = (struct tw_conn *)link;
    if (conn->peer >= 0)
        tw_peer_frame(conn, frame);
    else
        tw_admit_frame(conn, frame);
}

static void on_noted(struct tw_link *link) {
    tw_transport_soon(((struct tw_conn *)link)->transport);
}

static void on_spent(struct tw_link *link, size_t ciphertext_bytes) {
    struct tw_transport *t = ((struct tw_conn *)link)->transport;
    tw_rate_owe(&t->upload, ciphertext_bytes, tw_now_us());
}

static void handle_closed(struct tw_transport *t);

static void on_gone(struct tw_link *link) {
    struct tw_conn *conn = (struct tw_conn *)link;
    struct tw_transport *t = conn->transport;
    if (conn->pipe >= 0) tw_relay_lost(conn);
    tw_held_forget(conn);
    struct tw_traffic *retired = is_stranger(conn) ? &t->strangers : &t->retired;
    retired->bytes_in += link->bytes_in;
    retired->bytes_out += link->bytes_out;
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        if (t->conns[i] == conn) t->conns[i] = NULL;
    }
    free(conn);
    tw_transport_soon(t);
    handle_closed(t);
}

static const struct tw_link_events link_events = {
    .secured = on_secured,
    .frame = on_frame,
    .writable = on_noted,
    .failed = on_noted,
    .spent = on_spent,
    .gone = on_gone,
};

struct tw_conn *tw_conn_create(struct tw_transport *t, struct tw_error *err) {
    unsigned at = 0;
    while (at < TW_CONNS_MAX && t->conns[at] != NULL) at++;
    if (at == TW_CONNS_MAX) {
        (void)tw_fail(err, TW_LIMIT, "all %d connections are in use", TW_CONNS_MAX);
        return NULL;
    }
    struct tw_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        (void)tw_fail(err, TW_NOMEM, "no memory for a connection");
        return NULL;
    }
    if (tw_link_init(&conn->link, t->config.loop, &link_events, err) != TW_OK) {
        free(conn);
        return NULL;
    }
    conn->transport = t;
    conn->peer = conn->bulk_of = conn->pipe = conn->punch = -1;
    conn->since_us = tw_now_us();
    conn->deadline_us = conn->since_us + t->config.handshake_us;
    t->conns[at] = conn;
    t->handles_count++;
    return conn;
}

/* Returns true for an accepted connection that has not proved its right to be in the run. */
static bool is_stranger(const struct tw_conn *conn) {
    return conn->is_accepted && !conn->is_proven;
}

void tw_conn_fail(struct tw_conn *conn, enum tw_status status, const char *sentence) {
    struct tw_error err;
    (void)tw_fail(&err, status, "%s", sentence);
    tw_link_fail(&conn->link, &err);
}

/* ---- start --------------------------------------------------------------------------------- */

static enum tw_status listen_all(struct tw_transport *t, struct tw_error *err) {
    for (uint32_t i = 0; i < t->config.listen_count; i++) {
        struct tw_listener *listener = &t->listeners[i];
        const struct tw_listen_options options = {
            .address = t->config.listen[i],
            .is_loopback_only = t->secrets.count == 0 && t->config.gate == NULL,
            .is_one_of_many = t->config.listen_count > 1,
            .egress = &t->egress,
            .accept = tw_admit_accepted,
        };
        listener->tcp.data = t;
        const enum tw_status status = tw_listener_open(listener, t->config.loop, &options, err);
        if (listener->is_open) t->handles_count++;
        if (status != TW_OK) return status;
    }
    return TW_OK;
}

static enum tw_status advertise_check(const struct tw_transport_config *config,
                                      struct tw_error *err) {
    for (unsigned i = 0; i < TW_ADDRS_MAX && config->advertise[i][0] != '\0'; i++) {
        if (!tw_address_is_valid(config->advertise[i]))
            return tw_fail(err, TW_CONFIG, "advertise = %.80s is not host:port with a port",
                           config->advertise[i]);
    }
    return TW_OK;
}

/* A write to a vanished peer must fail, not kill the process, and libuv does not ignore SIGPIPE by
 * itself. An existing handler is kept. */
static void sigpipe_ignore(void) {
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler != SIG_DFL) return;
    action = (struct sigaction){.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &action, NULL);
}

enum tw_status tw_transport_create(const struct tw_transport_config *config,
                                   struct tw_transport **transport, struct tw_error *err) {
    TW_ASSERT(config->listen_count <= TW_LISTEN_MAX);
    TW_ASSERT(config->events.peer_up != NULL && config->events.peer_down != NULL);
    TW_ASSERT(config->events.frame != NULL);
    TW_TRY(advertise_check(config, err));
    sigpipe_ignore();
    struct tw_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) return tw_fail(err, TW_NOMEM, "no memory for the transport");
    const uint64_t now_us = tw_now_us();
    t->config = *config;
    t->config.secrets = NULL;
    if (config->handshake_us == 0) t->config.handshake_us = TW_HANDSHAKE_US;
    if (config->connect_us == 0) t->config.connect_us = TW_CONNECT_US;
    if (config->background_us == 0) t->config.background_us = TW_BACKGROUND_PATIENCE_US;
    if (config->secrets != NULL) t->secrets = *config->secrets;
    t->process = config->process != 0 ? config->process : tw_held_number();
    enum tw_status status = tw_egress_init(&t->egress, config->interface, config->bind, err);
    if (status == TW_OK) status = tw_tls_context_init(&t->tls, config->identity, err);
    if (status != TW_OK) {
        free(t);
        return status;
    }
    tw_rate_init(&t->upload, config->upload_bytes_per_s,
                 tw_rate_burst_bytes(config->upload_bytes_per_s), now_us);
    tw_rate_init(&t->relay, 0, 0, now_us);
    tw_rate_init(&t->relay_outside, TW_RELAY_OUTSIDE_PER_S, TW_RELAY_OUTSIDE_BURST, now_us);
    tw_rate_init(&t->accepts, TW_ACCEPTS_PER_S, TW_ACCEPTS_PER_S, now_us);
    tw_handshake_limiter_init(&t->limiter, now_us);
    tw_twins_init(&t->twins, config->twin_us);
    (void)uv_idle_init(config->loop, &t->idle);
    (void)uv_timer_init(config->loop, &t->timer);
    t->idle.data = t->timer.data = t;
    t->handles_count = 2;
    const enum tw_status listening = listen_all(t, err);
    if (listening != TW_OK) {
        tw_transport_destroy(t, "could not start", NULL);
        return listening;
    }
    fill_announced(t, &t->self);
    *transport = t;
    return TW_OK;
}

/* ---- end ----------------------------------------------------------------------------------- */

static void handle_closed(struct tw_transport *t) {
    TW_ASSERT(t->handles_count > 0);
    t->handles_count--;
    if (!t->is_closing) return;
    if (t->handles_count > 0) {
        tw_transport_soon(t);
        return;
    }
    void (*closed)(void *user) = t->closed;
    void *user = t->config.user;
    tw_tls_context_deinit(&t->tls);
    tw_secrets_wipe(&t->secrets);
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) tw_bulk_deinit(&t->peers[i].queue);
    free(t);
    if (closed != NULL) closed(user);
}

static void on_handle_closed(uv_handle_t *handle) {
    handle_closed(handle->data);
}

/* The idle and timer handles are closed last, after all connections and name lookups. */
static void closing_step(struct tw_transport *t) {
    if (t->orphans_count > 0) return;
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        if (t->conns[i] != NULL) return;
    }
    if (uv_is_closing((uv_handle_t *)&t->idle)) return;
    uv_close((uv_handle_t *)&t->idle, on_handle_closed);
    uv_close((uv_handle_t *)&t->timer, on_handle_closed);
}

void tw_transport_destroy(struct tw_transport *t, const char *sentence,
                          void (*closed)(void *user)) {
    TW_ASSERT(!t->is_closing);
    t->is_closing = true;
    t->closed = closed;
    for (unsigned i = 0; i < TW_LISTEN_MAX; i++) {
        if (t->listeners[i].is_open) tw_listener_close(&t->listeners[i], on_handle_closed);
    }
    tw_dialer_close(t);
    tw_punch_close(t);
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = t->conns[i];
        if (conn == NULL) continue;
        if (conn->peer >= 0)
            tw_link_close(&conn->link, TW_OK, sentence);
        else if (conn->link.state < TW_LINK_DRAINING)
            tw_link_abort(&conn->link);
        conn->peer = -1;
    }
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) tw_bulk_clear(&t->peers[i].queue);
    tw_transport_soon(t);
}

/* ---- calls of the runtime ------------------------------------------------------------------ */

static struct tw_slot *slot_up(struct tw_transport *t, uint16_t peer) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    return t->peers[peer].state == TW_SLOT_UP && !t->is_closing ? &t->peers[peer] : NULL;
}

void tw_transport_send_control(struct tw_transport *t, uint16_t peer, uint16_t kind,
                               const void *body, uint32_t body_bytes) {
    struct tw_slot *slot = slot_up(t, peer);
    TW_ASSERT(kind < TW_FRAME_CHUNK && body_bytes <= TW_CONTROL_BYTES_MAX);
    if (slot == NULL || slot->control->link.is_failed) return;
    if ((tw_feature_of(kind) & ~slot->features) != 0) return;
    if (tw_link_send(&slot->control->link, kind, body, body_bytes) != TW_OK)
        tw_peer_end(t, peer, TW_LIMIT, "does not read: its control queue is full");
}

bool tw_transport_send_chunk(struct tw_transport *t, uint16_t peer, const struct tw_chunk *chunk) {
    struct tw_slot *slot = slot_up(t, peer);
    TW_ASSERT(chunk->size > 0 && chunk->size <= TW_CHUNK_BYTES_MAX);
    if (slot == NULL) return false;
    if (!tw_bulk_push(t, &slot->queue, chunk)) {
        tw_peer_end(t, peer, TW_LIMIT, "pulls faster than it reads: its bulk queue is full");
        return false;
    }
    tw_transport_soon(t);
    return true;
}

bool tw_transport_has_chunk(const struct tw_transport *t, uint16_t peer,
                            const struct tw_id *payload, uint32_t idx) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    return t->peers[peer].state == TW_SLOT_UP && tw_bulk_has(&t->peers[peer].queue, payload, idx);
}

void tw_transport_drop(struct tw_transport *t, const struct tw_id *payload) {
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) tw_bulk_drop(&t->peers[i].queue, payload);
}

void tw_transport_close(struct tw_transport *t, uint16_t peer, enum tw_status reason,
                        const char *sentence) {
    if (slot_up(t, peer) != NULL) tw_peer_end(t, peer, reason, sentence);
}

void tw_transport_blame(struct tw_transport *t, uint16_t peer, enum tw_status reason,
                        const char *sentence) {
    if (slot_up(t, peer) != NULL) tw_peer_blame(t, peer, reason, sentence);
}

void tw_transport_ban(struct tw_transport *t, const struct tw_id *id, const char *sentence) {
    const uint64_t now_s = (uint64_t)time(NULL);
    uint32_t length_s = 0;
    if (tw_bans_left_s(&t->bans, id, now_s) > 0) return;
    while (length_s == 0) length_s = tw_bans_offence(&t->bans, id, now_s);
    if (t->config.events.banned != NULL)
        t->config.events.banned(t->config.user, id, length_s, sentence);
    const int peer = tw_peer_find(t, id);
    if (peer >= 0) tw_peer_end(t, peer, TW_BANNED, sentence);
}

void tw_transport_rest(struct tw_transport *t, const char *sentence) {
    (void)snprintf(t->rest, sizeof(t->rest), "%s", sentence != NULL ? sentence : "");
    for (int i = 0; i < TW_PEERS_MAX && sentence != NULL; i++) {
        if (slot_up(t, (uint16_t)i) != NULL) tw_peer_end(t, i, TW_AGAIN, sentence);
    }
}

void tw_transport_admit_strangers(struct tw_transport *t, bool is_on) {
    t->are_strangers_out = !is_on;
}

uint64_t tw_transport_strangers_refused(const struct tw_transport *t) {
    return t->strangers_refused;
}

void tw_transport_set_upload(struct tw_transport *t, uint64_t upload_bytes_per_s) {
    tw_rate_set(&t->upload, upload_bytes_per_s, tw_rate_burst_bytes(upload_bytes_per_s),
                tw_now_us());
    tw_relay_apply(t);
    tw_transport_soon(t);
}

void tw_transport_set_secrets(struct tw_transport *t, const struct tw_secrets *secrets) {
    TW_ASSERT(t->secrets.count > 0 && secrets->count > 0);
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP) continue;
        const int now = tw_secrets_find(secrets, &t->secrets.list[slot->secret]);
        if (now >= 0)
            slot->secret = (uint32_t)now;
        else
            tw_peer_end(t, i, TW_WRONG_SECRET, "the run secret of this link is no longer valid");
    }
    t->secrets = *secrets;
}

void tw_transport_set_pace(struct tw_transport *t, const struct tw_link_pace *pace) {
    t->config.pace = *pace;
    tw_transport_soon(t);
}

uint16_t tw_transport_port(const struct tw_transport *t, uint32_t idx) {
    TW_ASSERT(idx < t->config.listen_count);
    return t->listeners[idx].port;
}

/* Returns true if the connection's own address is gone from this machine. The connection is dead
 * then, but TCP shows only silence. */
static bool is_cut_off(const struct tw_conn *conn) {
    struct sockaddr_storage own;
    int size = sizeof(own);
    if (uv_tcp_getsockname(&conn->link.tcp, (struct sockaddr *)&own, &size) != 0) return false;
    return !tw_local_address_is(&own);
}

bool tw_transport_refresh(struct tw_transport *t) {
    struct tw_member_row now;
    bool is_changed = false;
    if (t->is_closing) return false;
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP || !is_cut_off(slot->control)) continue;
        is_changed = true;
        tw_peer_end(t, i, TW_AGAIN, "this machine has another address now");
    }
    fill_announced(t, &now);
    is_changed |= memcmp(now.addrs, t->self.addrs, sizeof(now.addrs)) != 0;
    t->self = now;
    return is_changed;
}

const struct tw_member_row *tw_transport_self(const struct tw_transport *t) {
    return &t->self;
}

/* ==== statistics ============================================================================== */

/* Statistics of a transport's links: bytes at the socket, round trips. */

static struct tw_traffic conn_traffic(const struct tw_conn *conn) {
    if (conn == NULL) return (struct tw_traffic){0};
    return (struct tw_traffic){conn->link.bytes_in, tw_link_bytes_out(&conn->link)};
}

static void traffic_add(struct tw_traffic *sum, struct tw_traffic one) {
    sum->bytes_in += one.bytes_in;
    sum->bytes_out += one.bytes_out;
}

struct tw_traffic tw_transport_traffic(const struct tw_transport *t) {
    struct tw_traffic sum = t->retired;
    traffic_add(&sum, t->strangers);
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) traffic_add(&sum, conn_traffic(t->conns[i]));
    return sum;
}

struct tw_traffic tw_transport_strangers(const struct tw_transport *t) {
    struct tw_traffic sum = t->strangers;
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        if (t->conns[i] != NULL && is_stranger(t->conns[i]))
            traffic_add(&sum, conn_traffic(t->conns[i]));
    }
    return sum;
}

static void info_add(const struct tw_conn *conn, bool is_bulk, struct tw_peer_net *out) {
    struct tw_sockopt_info info;
    uv_os_fd_t fd = -1;
    if (conn == NULL || uv_fileno((const uv_handle_t *)&conn->link.tcp, &fd) != 0) return;
    if (!tw_sockopt_info(fd, &info)) return;
    out->retransmits += info.retransmits;
    out->segments += info.segments;
    memcpy(out->congestion, info.congestion, sizeof(out->congestion));
    if (is_bulk) {
        out->delivery_bytes_per_s = info.delivery_bytes_per_s;
        out->pace_bytes_per_s = info.pace_bytes_per_s;
        return;
    }
    out->rtt_us = info.rtt_us;
    out->rtt_var_us = info.rtt_var_us;
}

bool tw_transport_peer(const struct tw_transport *t, uint16_t peer, struct tw_peer_net *out) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    const struct tw_slot *slot = &t->peers[peer];
    if (slot->state != TW_SLOT_UP || t->is_closing) return false;
    TW_ASSERT(slot->control != NULL);
    *out = (struct tw_peer_net){
        .id = slot->record.id,
        .is_dialled = slot->is_dialled,
        .is_relayed = slot->is_relayed,
        .relay = slot->relay,
        .is_neighbour =
            slot->is_relayed &&
            tw_reachability_is_same_host(slot->control->call.seen[0], slot->control->call.seen[1]),
        .is_punched = slot->is_punched,
        .has_bulk = slot->bulk != NULL,
        .boot = slot->boot,
        .clock_s = slot->clock_s == 0 || slot->clock_s > TW_CLOCK_MAX_S
                       ? 0
                       : slot->clock_s + (tw_now_us() - slot->linked_us) / 1000000,
        .features = slot->features,
        .control = conn_traffic(slot->control),
        .bulk = conn_traffic(slot->bulk),
        .chunks_queued = slot->queue.payloads.count,
        .background_queued = slot->queue.background.count,
        .path_bytes_per_s = slot->pacing.pacer.path_bytes_per_s,
        .control_queued_bytes = (uint32_t)tw_link_queued(&slot->control->link),
    };
    memcpy(out->software, slot->software, sizeof(out->software));
    memcpy(out->name, slot->name, sizeof(out->name));
    memcpy(out->address, slot->control->link.address, sizeof(out->address));
    info_add(slot->control, false, out);
    info_add(slot->bulk, true, out);
    return true;
}

struct tw_bans *tw_transport_bans(struct tw_transport *t) {
    return &t->bans;
}

struct tw_handshake_limiter *tw_transport_limiter(struct tw_transport *t) {
    return &t->limiter;
}
