/* dialer.c - connections that this node opens: dials, calls through a relay, hole punching. */
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/socket.h"
#include "daemon/net/sockopt.h"
#include "daemon/net/transport_impl.h"

/* ==== dials =================================================================================== */

/* Connections that this node opens: control to given addresses, and bulk to peers. */

static bool draw_token(uint8_t token[TW_RELAY_TOKEN_BYTES]);
static struct tw_conn *find_spare(const struct tw_transport *t, const struct tw_id *id);

/* The winner of the race is used; the other connections are closed. */
static void race_decide(struct tw_dialling *dialling, const struct tw_conn *winner) {
    tw_race_connected(&dialling->race, winner->candidate);
    for (unsigned i = 0; i < TW_DIAL_CANDIDATES_MAX; i++) {
        struct tw_conn *other = dialling->conns[i];
        if (other == NULL || other == winner) continue;
        dialling->conns[i] = NULL;
        other->dialling = NULL;
        tw_link_abort(&other->link);
    }
}

/* Starts TLS on a connection that this node dialled, with a knock in its ClientHello. */
static enum tw_status secure_dial(struct tw_conn *conn, const struct tw_id *expected,
                                  struct tw_error *err) {
    static const struct tw_secret none;
    const struct tw_transport *t = conn->transport;
    const struct tw_secret *secret = t->secrets.count > 0 ? &t->secrets.list[0] : &none;
    struct tw_knock_key key = {
        .bytes = secret->bytes, .size = TW_SECRET_BYTES, .run = t->config.run};
    if (conn->role == TW_ROLE_GUEST && conn->dialling != NULL) {
        key.bytes = conn->dialling->ticket_key;
        key.size = TW_TICKET_KEY_BYTES;
    }
    tw_knock_write(&key, (uint64_t)time(NULL), conn->link.knock);
    return tw_link_secure(&conn->link, &t->tls, true, expected, err);
}

/* Returns TW_DIAL_OFFLINE instead of `cause` if this machine has no line. `own`: local address of
 * the dial, or NULL. A neighbour is behind no NAT. */
static enum tw_dial_cause check_line(enum tw_dial_cause cause, const struct sockaddr_storage *own,
                                     const void *remote) {
    const bool is_offline = tw_dial_may_be_offline(cause) && !tw_local_address_has_line(own);
    return is_offline ? TW_DIAL_OFFLINE : tw_local_address_judge(cause, remote);
}

void tw_dialer_check_line(struct tw_conn *conn) {
    struct sockaddr_storage own;
    int size = sizeof(own);
    memset(&own, 0, sizeof(own));
    const bool is_known = uv_tcp_getsockname(&conn->link.tcp, (struct sockaddr *)&own, &size) == 0;
    conn->cause = check_line(conn->cause, is_known ? &own : NULL, &conn->remote);
}

static void on_connect(uv_connect_t *request, int code) {
    struct tw_conn *conn = request->data;
    struct tw_error err;
    if (conn->link.state != TW_LINK_OPENING || conn->link.is_failed) return;
    if (code != 0) {
        conn->cause = tw_dial_cause_of_errno(code, tw_now_us() - conn->since_us, &conn->remote);
        tw_dialer_check_line(conn);
        (void)tw_fail(&err, TW_IO, "%s", uv_strerror(code));
        tw_link_fail(&conn->link, &err);
        return;
    }
    struct tw_dialling *dialling = conn->dialling;
    if (dialling != NULL) race_decide(dialling, conn);
    const struct tw_id *expected = NULL;
    if (conn->bulk_of >= 0) expected = &conn->transport->peers[conn->bulk_of].record.id;
    if (conn->role == TW_ROLE_RELAY) expected = &conn->call.relay;
    if (dialling != NULL && dialling->has_expected) expected = &dialling->expected;
    conn->deadline_us =
        tw_now_us() + (conn->role == TW_ROLE_RELAY ? (uint64_t)TW_RELAY_CALL_US
                                                   : conn->transport->config.handshake_us);
    if (secure_dial(conn, expected, &err) != TW_OK) tw_link_fail(&conn->link, &err);
}

static bool is_tied(const struct tw_transport *t) {
    return t->egress.has_v4 || t->egress.has_v6 || t->egress.interface[0] != '\0';
}

/* Binds the socket to local port `port` (0 = any free one), so that later dials can use the same
 * port. libuv sets SO_REUSEADDR. */
static int port_choose(const struct tw_transport *t, struct tw_conn *conn, int family,
                       uint16_t port) {
    struct sockaddr_storage any = {.ss_family = (sa_family_t)family};
    if (is_tied(t)) return 0; /* tw_egress_apply has already bound the socket */
    if (family == AF_INET) ((struct sockaddr_in *)&any)->sin_port = htons(port);
    return uv_tcp_bind(&conn->link.tcp, (const struct sockaddr *)&any,
                       family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
}

/* Opens a connection to one address. Returns NULL on failure: *err has the reason, and *cause is
 * set if the system named one. */
static struct tw_conn *conn_dial(struct tw_transport *t, const struct sockaddr_storage *to,
                                 enum tw_role role, uint16_t from_port, enum tw_dial_cause *cause,
                                 struct tw_error *err) {
    struct tw_conn *conn = tw_conn_create(t, err);
    if (conn == NULL) return NULL;
    conn->is_dialled = true;
    conn->role = role;
    conn->remote = *to;
    conn->connect.data = conn;
    int code = tw_egress_apply(&t->egress, &conn->link.tcp, to->ss_family, err);
    if (code == 0 && (role == TW_ROLE_RELAY || from_port != 0))
        code = port_choose(t, conn, to->ss_family, from_port);
    if (code == 0) {
        code = uv_tcp_connect(&conn->connect, &conn->link.tcp,
                              (const struct sockaddr *)&conn->remote, on_connect);
        if (code == 0) return conn;
        (void)tw_fail(err, TW_IO, "%s", uv_strerror(code));
    }
    *cause = check_line(tw_dial_cause_of_errno(code, 0, &conn->remote), NULL, &conn->remote);
    tw_link_abort(&conn->link);
    return NULL;
}

/* Makes the second connection, which the punch of this link left open, the bulk connection. */
static enum tw_status spare_use(struct tw_transport *t, int peer, struct tw_error *err) {
    struct tw_slot *slot = &t->peers[peer];
    struct tw_conn *conn = find_spare(t, &slot->record.id);
    if (conn == NULL) return tw_fail(err, TW_AGAIN, "the second punched connection is gone");
    conn->is_spare = false;
    conn->bulk_of = peer;
    slot->bulk_dial = conn;
    conn->deadline_us = tw_now_us() + t->config.handshake_us;
    return secure_dial(conn, &slot->record.id, err);
}

enum tw_status tw_dialer_bulk(struct tw_transport *t, int peer, struct tw_error *err) {
    struct tw_slot *slot = &t->peers[peer];
    if (slot->is_punched) return spare_use(t, peer, err);
    enum tw_dial_cause ignored = TW_DIAL_NONE;
    struct tw_call call = {.is_caller = true, .role = TW_ROLE_BULK, .relay = slot->relay};
    call.other = slot->record.id;
    if (slot->is_relayed && !draw_token(call.token)) return tw_fail(err, TW_IO, "no random bytes");
    /* The remote end of a relayed link is its relay. */
    const enum tw_role role = slot->is_relayed ? TW_ROLE_RELAY : TW_ROLE_BULK;
    struct tw_conn *conn = conn_dial(t, &slot->control->remote, role, 0, &ignored, err);
    if (conn == NULL) return err->status;
    conn->call = call;
    conn->bulk_of = peer;
    slot->bulk_dial = conn;
    return TW_OK;
}

/* ---- control ------------------------------------------------------------------------------- */

/* Keeps the public addresses of a name: others may lead to machines of this network. */
static void sift_candidates(struct tw_lookup *lookup) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < lookup->count; i++) {
        char text[TW_ADDR_BYTES];
        tw_seen_address(&lookup->candidates[i], text);
        if (tw_reachability_may_tell("", text, false))
            lookup->candidates[kept++] = lookup->candidates[i];
    }
    if (kept == 0 && lookup->count > 0)
        (void)tw_fail(&lookup->error, TW_IO, "its name means this machine or its network");
    lookup->count = kept;
}

static void on_lookup(struct tw_lookup *lookup) {
    struct tw_dialling *dialling =
        (struct tw_dialling *)((char *)lookup - offsetof(struct tw_dialling, lookup));
    struct tw_transport *t = dialling->transport;
    if (dialling->is_hearsay) sift_candidates(lookup);
    if (dialling->is_orphan) {
        TW_ASSERT(t->orphans_count > 0);
        t->orphans_count--;
        free(dialling);
    }
    tw_transport_soon(t);
}

static enum tw_status dialling_new(struct tw_transport *t, const char *address, enum tw_role role,
                                   struct tw_dialling **started, unsigned *at,
                                   struct tw_error *err) {
    *at = 0;
    while (*at < TW_DIALS_MAX && t->dials[*at] != NULL) ++*at;
    if (*at == TW_DIALS_MAX)
        return tw_fail(err, TW_LIMIT, "%d dials are under way already", TW_DIALS_MAX);
    struct tw_dialling *dialling = calloc(1, sizeof(*dialling));
    if (dialling == NULL) return tw_fail(err, TW_NOMEM, "no memory for a dial");
    dialling->transport = t;
    dialling->role = role;
    (void)snprintf(dialling->address, sizeof(dialling->address), "%s", address);
    dialling->deadline_us = tw_now_us() + t->config.connect_us;
    *started = dialling;
    return TW_OK;
}

/* Dials a relay for a call. A caller's dial ends with call_done. */
static enum tw_status dial_relay(struct tw_transport *t, const struct tw_slot *slot,
                                 const struct tw_call *call, struct tw_error *err) {
    struct tw_dialling *dialling;
    unsigned at;
    TW_TRY(dialling_new(t, slot->control->link.address, TW_ROLE_RELAY, &dialling, &at, err));
    dialling->call = *call;
    dialling->has_expected = true;
    dialling->expected = call->relay;
    if (slot->is_dialled) { /* the address of the existing link to the relay is known to work */
        dialling->lookup = (struct tw_lookup){.is_done = true, .count = 1};
        dialling->lookup.candidates[0] = slot->control->remote;
    } else if (!tw_lookup_literals(&dialling->lookup, slot->record.addrs)) {
        free(dialling);
        return tw_fail(err, TW_CONFIG, "no IP address of the relay is known");
    }
    t->dials[at] = dialling;
    tw_transport_soon(t);
    return TW_OK;
}

static enum tw_status dial_start(struct tw_transport *t, const char *address, enum tw_role role,
                                 const struct tw_id *expected, struct tw_dialling **started,
                                 struct tw_error *err) {
    unsigned at;
    struct tw_dialling *dialling;
    if (!tw_address_is_valid(address))
        return tw_fail(err, TW_CONFIG, "%.80s is not host:port", address);
    TW_TRY(dialling_new(t, address, role, &dialling, &at, err));
    dialling->has_expected = expected != NULL;
    if (expected != NULL) dialling->expected = *expected;
    const enum tw_status status =
        tw_lookup_start(&dialling->lookup, t->config.loop, address, on_lookup, err);
    if (status != TW_OK) {
        free(dialling);
        return status;
    }
    t->dials[at] = *started = dialling;
    tw_transport_soon(t);
    return TW_OK;
}

enum tw_status tw_transport_connect(struct tw_transport *t, const char *address,
                                    const struct tw_id *expected, struct tw_error *err) {
    struct tw_dialling *started;
    return dial_start(t, address, TW_ROLE_CONTROL, expected, &started, err);
}

enum tw_status tw_transport_connect_hearsay(struct tw_transport *t, const char *address,
                                            const struct tw_id *expected, struct tw_error *err) {
    struct tw_dialling *started;
    TW_TRY(dial_start(t, address, TW_ROLE_CONTROL, expected, &started, err));
    started->is_hearsay = true; /* set in time: a name's lookup ends later, when the loop calls
                                   `done` */
    return TW_OK;
}

enum tw_status tw_transport_probe(struct tw_transport *t, const char *address,
                                  const struct tw_id *expected, struct tw_error *err) {
    struct tw_dialling *started;
    TW_TRY(dial_start(t, address, TW_ROLE_PROBE, expected, &started, err));
    started->deadline_us = tw_now_us() + TW_PROBE_US;
    return TW_OK;
}

enum tw_status tw_transport_observe(struct tw_transport *t, const char *address,
                                    const struct tw_id *expected, uint16_t from_port,
                                    uint64_t token, struct tw_error *err) {
    struct tw_dialling *started;
    TW_ASSERT(token != 0);
    if (is_tied(t)) return tw_fail(err, TW_AGAIN, "bind or interface choose the local port");
    TW_TRY(dial_start(t, address, TW_ROLE_PROBE, expected, &started, err));
    started->from_port = from_port;
    started->ask_token = token;
    return TW_OK;
}

enum tw_status tw_transport_visit(struct tw_transport *t, const char *address,
                                  const struct tw_ticket *ticket, struct tw_error *err) {
    struct tw_dialling *started;
    TW_TRY(dial_start(t, address, TW_ROLE_GUEST, &ticket->inviter, &started, err));
    memcpy(started->ticket_id, ticket->id, sizeof(ticket->id));
    memcpy(started->ticket_key, ticket->key, sizeof(ticket->key));
    return TW_OK;
}

/* ---- dials that a peer asks for ----------------------------------------------------------------
 *
 * A peer must not be able to make this node scan ports. The peer chooses ports only: the host is
 * always the one where this node sees the peer. A host's allowance outlives its links. */

/* Truncates "host:port" to its host. An IPv6 host keeps its brackets. */
static void host_cut(char address[TW_ADDR_BYTES]) {
    char *colon = strrchr(address, ':');
    TW_ASSERT(colon != NULL);
    *colon = '\0';
}

static bool is_among(char list[TW_ADDRS_MAX][TW_ADDR_BYTES], uint32_t count, const char *address) {
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i], address) == 0) return true;
    }
    return false;
}

uint32_t tw_transport_dial_back(struct tw_transport *t, uint16_t peer,
                                char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES]) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    const struct tw_slot *slot = &t->peers[peer];
    const uint64_t now_us = tw_now_us();
    uint32_t count = 0;
    if (slot->state != TW_SLOT_UP || t->is_closing || slot->is_relayed) return 0;
    char seen[TW_ADDR_BYTES];
    tw_seen_address(&slot->control->remote, seen);
    host_cut(seen);
    for (uint32_t i = 0; i < TW_ADDRS_MAX && slot->record.addrs[i][0] != '\0'; i++) {
        char host[TW_ADDR_BYTES], address[TW_ADDR_BYTES];
        uint16_t port = 0;
        struct tw_error ignored;
        if (!tw_address_split(slot->record.addrs[i], host, &port) || port == 0) continue;
        const int length = snprintf(address, sizeof(address), "%.64s:%u", seen, (unsigned)port);
        if (length <= 0 || length >= TW_ADDR_BYTES || is_among(dialled, count, address)) continue;
        if (!tw_handshake_limiter_dial_back(&t->limiter, &slot->control->remote, now_us)) break;
        if (tw_transport_probe(t, address, &slot->record.id, &ignored) != TW_OK) break;
        memcpy(dialled[count++], address, sizeof(address));
    }
    return count;
}

/* ---- the race of a dial -------------------------------------------------------------------- */

static void conns_detach(struct tw_dialling *dialling) {
    for (unsigned i = 0; i < TW_DIAL_CANDIDATES_MAX; i++) {
        if (dialling->conns[i] != NULL) dialling->conns[i]->dialling = NULL;
        dialling->conns[i] = NULL;
    }
}

void tw_dialer_over(struct tw_dialling *dialling, enum tw_status status, const struct tw_id *id,
                    const char *sentence) {
    if (dialling->is_over) return;
    dialling->is_over = true;
    dialling->has_id = id != NULL;
    if (id != NULL) dialling->id = *id;
    (void)tw_fail(&dialling->result, status, "%s", sentence);
    conns_detach(dialling);
    tw_transport_soon(dialling->transport);
}

void tw_dialer_await(struct tw_dialling *dialling, const struct tw_id *id, const char *sentence) {
    struct tw_transport *t = dialling->transport;
    if (dialling->is_over) return;
    if (tw_peer_find(t, id) >= 0) {
        tw_dialer_over(dialling, TW_OK, id, "connected");
        return;
    }
    conns_detach(dialling);
    dialling->is_awaiting = true;
    dialling->id = *id;
    dialling->deadline_us = tw_now_us() + t->config.handshake_us;
    (void)tw_fail(&dialling->result, TW_AGAIN, "%s", sentence);
    tw_transport_soon(t);
}

static void candidate_start(struct tw_transport *t, struct tw_dialling *dialling, uint32_t idx) {
    const struct sockaddr_storage *to = &dialling->lookup.candidates[idx];
    enum tw_dial_cause cause = TW_DIAL_NONE;
    struct tw_error err;
    struct tw_conn *conn = conn_dial(t, to, dialling->role, dialling->from_port, &cause, &err);
    if (conn == NULL) {
        tw_race_failed(&dialling->race, idx, cause, &err);
        return;
    }
    conn->dialling = dialling;
    conn->call = dialling->call;
    conn->ask_token = dialling->ask_token;
    conn->candidate = idx;
    conn->deadline_us = dialling->deadline_us;
    dialling->conns[idx] = conn;
}

/* Starts the candidates that are due. If none is left, the dial ends with the most informative
 * failure. */
static void race_step(struct tw_transport *t, struct tw_dialling *dialling, uint64_t now_us) {
    int idx;
    dialling->race.count = dialling->lookup.count;
    while (now_us < dialling->deadline_us && (idx = tw_race_next(&dialling->race, now_us)) >= 0)
        candidate_start(t, dialling, (uint32_t)idx);
    for (unsigned i = 0; i < TW_DIAL_CANDIDATES_MAX; i++) {
        if (dialling->conns[i] != NULL) return;
    }
    if (now_us < dialling->deadline_us && !tw_race_is_over(&dialling->race)) return;
    struct tw_error err = dialling->lookup.error;
    dialling->cause = TW_DIAL_DNS;
    if (dialling->race.rank != 0) {
        err = dialling->race.error;
        dialling->cause = dialling->race.cause;
    }
    if (err.status == TW_OK) (void)tw_fail(&err, TW_IO, "nothing came back in time");
    tw_dialer_over(dialling, err.status, dialling->has_id ? &dialling->id : NULL, err.message);
}

bool tw_dialer_lost(struct tw_conn *conn, const struct tw_error *why) {
    struct tw_dialling *dialling = conn->dialling;
    const bool had_tcp = conn->link.state != TW_LINK_OPENING;
    /* Only the answer to HELLO shows whether an address leads back to this node. */
    const bool is_greeting = conn->link.state > TW_LINK_SECURING && why->status != TW_SELF;
    if (dialling == NULL || is_greeting || conn->is_relayed) return false;
    enum tw_dial_cause cause = conn->cause;
    if (had_tcp && cause == TW_DIAL_NONE) cause = tw_dial_cause_of_status(why->status);
    tw_race_failed(&dialling->race, conn->candidate, cause, why);
    if (had_tcp && tw_race_is_over(&dialling->race)) return false;
    dialling->conns[conn->candidate] = NULL;
    conn->dialling = NULL;
    if (conn->link.tls.has_id && !dialling->has_id) {
        dialling->has_id = true;
        dialling->id = conn->link.tls.id;
    }
    tw_link_abort(&conn->link);
    tw_transport_soon(conn->transport);
    return true;
}

void tw_dialer_linked(struct tw_transport *t, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) {
        struct tw_dialling *dialling = t->dials[i];
        if (dialling == NULL || dialling->is_over || !dialling->lookup.is_done) continue;
        if (dialling->is_awaiting && tw_id_equal(&dialling->id, id))
            tw_dialer_over(dialling, TW_OK, id, "connected");
        if (dialling->is_over || dialling->is_awaiting) continue;
        if (!dialling->has_expected || !tw_id_equal(&dialling->expected, id)) continue;
        if (dialling->role != TW_ROLE_CONTROL) continue;
        bool is_greeting = false;
        for (unsigned k = 0; k < TW_DIAL_CANDIDATES_MAX; k++)
            is_greeting |=
                dialling->conns[k] != NULL && dialling->conns[k]->link.state > TW_LINK_SECURING;
        /* The other node has received our HELLO, and decides which of the links stays. */
        if (is_greeting) continue;
        for (unsigned k = 0; k < TW_DIAL_CANDIDATES_MAX; k++) {
            struct tw_conn *conn = dialling->conns[k];
            dialling->conns[k] = NULL;
            if (conn == NULL) continue;
            conn->dialling = NULL;
            tw_link_abort(&conn->link);
        }
        tw_dialer_over(dialling, TW_OK, NULL, "linked by another address");
    }
}

uint64_t tw_dialer_deadline_us(const struct tw_transport *t) {
    uint64_t next_us = UINT64_MAX;
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) {
        const struct tw_dialling *dialling = t->dials[i];
        if (dialling == NULL || dialling->is_over) continue;
        const uint64_t at_us = dialling->lookup.is_done && !dialling->is_awaiting
                                   ? tw_race_deadline(&dialling->race)
                                   : dialling->deadline_us;
        if (at_us < next_us) next_us = at_us;
    }
    return next_us;
}

static void result_report(const struct tw_transport *t, const struct tw_dialling *dialling) {
    char sentence[TW_DIAL_SENTENCE_BYTES] = "connected";
    struct tw_dial_result result = {
        .status = dialling->result.status,
        .id = dialling->has_id ? &dialling->id : NULL,
        .sentence = sentence,
    };
    if (result.status != TW_OK) {
        result.cause = dialling->cause != TW_DIAL_NONE ? dialling->cause
                                                       : tw_dial_cause_of_status(result.status);
        tw_dial_sentence(result.cause, dialling->address, dialling->result.message, sentence);
    }
    if (dialling->role == TW_ROLE_RELAY) {
        const struct tw_call *call = &dialling->call;
        if (call->is_caller && t->config.events.call_done != NULL)
            t->config.events.call_done(t->config.user, &call->relay, &call->other, &result);
    } else if (dialling->role == TW_ROLE_PROBE) {
        if (dialling->ask_token == 0 && t->config.events.probe_done != NULL)
            t->config.events.probe_done(t->config.user, dialling->address, &dialling->expected,
                                        &result);
    } else if (t->config.events.dial_done != NULL) {
        t->config.events.dial_done(t->config.user, dialling->address, &result);
    }
}

/* A lookup that already runs on a thread cannot be cancelled: it occupies the thread and this
 * memory until the resolver gives up. Queued lookups are cancelled, and libuv runs lookups on at
 * most half of its threads, so few are left over. */
static void dialling_free(struct tw_transport *t, struct tw_dialling *dialling) {
    if (!dialling->lookup.is_busy) {
        free(dialling);
        return;
    }
    dialling->is_orphan = true;
    t->orphans_count++;
    tw_lookup_cancel(&dialling->lookup);
}

static void dialling_step(struct tw_transport *t, unsigned at, uint64_t now_us) {
    struct tw_dialling *dialling = t->dials[at];
    if (!dialling->is_over && dialling->is_awaiting) {
        const struct tw_error said = dialling->result;
        if (now_us >= dialling->deadline_us)
            tw_dialer_over(dialling, said.status, NULL, said.message);
    } else if (!dialling->is_over && dialling->lookup.is_done) {
        race_step(t, dialling, now_us);
    } else if (!dialling->is_over && now_us >= dialling->deadline_us) {
        dialling->cause = TW_DIAL_DNS;
        tw_dialer_over(dialling, TW_IO, NULL, "no answer from the name server in time");
    }
    if (!dialling->is_over) return;
    t->dials[at] = NULL;
    result_report(t, dialling);
    dialling_free(t, dialling);
}

void tw_dialer_step(struct tw_transport *t, uint64_t now_us) {
    for (unsigned i = 0; i < TW_DIALS_MAX && !t->is_closing; i++) {
        if (t->dials[i] != NULL) dialling_step(t, i, now_us);
    }
}

void tw_dialer_close(struct tw_transport *t) {
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) {
        struct tw_dialling *dialling = t->dials[i];
        t->dials[i] = NULL;
        if (dialling == NULL) continue;
        for (unsigned k = 0; k < TW_DIAL_CANDIDATES_MAX; k++) {
            if (dialling->conns[k] != NULL) dialling->conns[k]->dialling = NULL;
        }
        dialling_free(t, dialling);
    }
}

/* ==== calls through a relay =================================================================== */

/* Links through a relay, at their two ends: PROTOCOL.md section 12.
 *
 *   caller  dials the relay, sends HELLO (role relay, token, called node's id)  tw_transport_call
 *   called  dials the relay, sends HELLO (role relay, token)                    tw_transport_answer
 *   both    receive the relay's HELLO: the connection is now an end of a pipe   tw_call_joined
 *
 * From then on it is an ordinary connection, which admit.c admits with the caller as its dialler.
 * Its bulk connection is a separate call through the same relay (dialer.c). */

/* Returns the linked peer that is to relay, or NULL with a reason: it is not linked, its own link
 * is relayed, or it does not relay. */
static struct tw_slot *relay_find(struct tw_transport *t, uint16_t peer, struct tw_error *err) {
    struct tw_slot *slot = &t->peers[peer];
    TW_ASSERT(peer < TW_PEERS_MAX);
    if (slot->state != TW_SLOT_UP || t->is_closing) {
        (void)tw_fail(err, TW_AGAIN, "the relay is not linked");
        return NULL;
    }
    if (slot->is_relayed || (slot->features & TW_FEATURE_RELAY) == 0) {
        (void)tw_fail(err, TW_AGAIN, "the peer cannot relay");
        return NULL;
    }
    return slot;
}

/* Fills the token with random bytes. Returns false if the system has none. */
static bool draw_token(uint8_t token[TW_RELAY_TOKEN_BYTES]) {
    return RAND_bytes(token, TW_RELAY_TOKEN_BYTES) == 1;
}

enum tw_status tw_transport_call(struct tw_transport *t, uint16_t relay, const struct tw_id *target,
                                 struct tw_error *err) {
    const struct tw_slot *slot = relay_find(t, relay, err);
    struct tw_call call = {.is_caller = true, .role = TW_ROLE_CONTROL, .other = *target};
    if (slot == NULL) return err->status;
    call.relay = slot->record.id;
    if (tw_id_equal(target, &call.relay) || tw_id_equal(target, &t->config.identity->id))
        return tw_fail(err, TW_AGAIN, "no relay leads to itself or to the caller");
    if (!draw_token(call.token)) return tw_fail(err, TW_IO, "no random bytes");
    return dial_relay(t, slot, &call, err);
}

/* Counts the calls that this node is answering: those through this relay, and those through all
 * relays. */
static void answers_count(const struct tw_transport *t, const struct tw_id *relay,
                          uint32_t *of_relay, uint32_t *all) {
    *of_relay = *all = 0;
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) {
        const struct tw_dialling *dialling = t->dials[i];
        if (dialling == NULL || dialling->role != TW_ROLE_RELAY) continue;
        if (dialling->call.is_caller) continue;
        ++*all;
        *of_relay += tw_id_equal(&dialling->call.relay, relay);
    }
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        const struct tw_conn *conn = t->conns[i];
        if (conn == NULL || !conn->is_relayed || conn->call.is_caller || conn->peer >= 0) continue;
        if (conn->link.state >= TW_LINK_DRAINING) continue;
        ++*all;
        *of_relay += tw_id_equal(&conn->call.relay, relay);
    }
}

enum tw_status tw_transport_answer(struct tw_transport *t, uint16_t relay, const struct tw_id *from,
                                   const uint8_t token[TW_RELAY_TOKEN_BYTES],
                                   struct tw_error *err) {
    struct tw_slot *slot = relay_find(t, relay, err);
    const uint64_t now_us = tw_now_us();
    struct tw_call call = {.role = TW_ROLE_CONTROL, .other = *from};
    uint32_t of_relay, all;
    if (slot == NULL) return err->status;
    if (t->rest[0] != '\0') return tw_fail(err, TW_AGAIN, "%s", t->rest);
    const int old = tw_peer_find(t, from);
    if (old >= 0 && !t->peers[old].is_relayed)
        return tw_fail(err, TW_AGAIN, "the caller is linked already");
    answers_count(t, &slot->record.id, &of_relay, &all);
    if (of_relay >= TW_RELAY_ANSWERS_PER_PEER || all >= TW_RELAY_ANSWERS_MAX)
        return tw_fail(err, TW_LIMIT, "%u calls are being answered", all);
    if (tw_rate_wait_us(&slot->answers, 1, now_us) > 0)
        return tw_fail(err, TW_LIMIT, "the relay passes on more than %d calls a second",
                       TW_RELAY_ANSWERS_PER_S);
    tw_rate_spend(&slot->answers, 1, now_us);
    call.relay = slot->record.id;
    memcpy(call.token, token, sizeof(call.token));
    return dial_relay(t, slot, &call, err);
}

void tw_call_secured(struct tw_conn *conn) {
    const struct tw_call *call = &conn->call;
    uint8_t extension[TW_RELAY_TOKEN_BYTES + sizeof(call->other.bytes)];
    memcpy(extension, call->token, TW_RELAY_TOKEN_BYTES);
    memcpy(extension + TW_RELAY_TOKEN_BYTES, call->other.bytes, sizeof(call->other.bytes));
    tw_admit_greet(conn, TW_ROLE_RELAY,
                   &(struct tw_greeting){.relay = extension,
                                         .relay_bytes = call->is_caller ? sizeof(extension)
                                                                        : TW_RELAY_TOKEN_BYTES});
}

void tw_call_joined(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    struct tw_call *call = &conn->call;
    struct tw_error err;
    if (conn->is_relayed || (call->is_caller && conn->dialling == NULL && conn->bulk_of < 0)) {
        tw_admit_refuse(conn, TW_PROTO, "this call was given up");
        return;
    }
    if (!call->is_caller && conn->dialling != NULL)
        tw_dialer_over(conn->dialling, TW_OK, &call->relay, "connected");
    if (!tw_extensions_seen(&hello->extensions, call->seen[0], call->seen[1]))
        call->seen[0][0] = call->seen[1][0] = '\0';
    conn->is_relayed = true;
    conn->is_dialled = call->is_caller;
    conn->role = call->role;
    conn->has_spoken = false;
    conn->secret = 0;
    conn->deadline_us = tw_now_us() + t->config.handshake_us;
    if (tw_link_nest(&conn->link, &t->tls, call->is_caller, &call->other, &err) != TW_OK)
        tw_link_fail(&conn->link, &err);
    tw_transport_soon(t);
}

/* ==== hole punching =========================================================================== */

/* TCP hole punching (PROTOCOL.md section 13). Both ends of a relayed link dial each other
 * at the same time, from the ports that the relay has seen. The router of each end thus takes the
 * other's dial for an answer (simultaneous open). daemon/router/punch_plan.h decides when to punch.
 *
 *     relayed link   control pipe, bulk pipe    the relay sees two ports of each end
 *     punch          lane 0,       lane 1       dialled from the same two ports, to the other end's
 *
 *  1. Both lanes dial until they are connected or the time is over. A refused dial is repeated: a
 *     router or host may have refused because the other end was not dialling yet.
 *
 *  2. The end that dialled the relayed link is the TLS client. It waits for both lanes: without a
 *     bulk connection the relayed link is better. Lane 0 then becomes an ordinary dialled control
 *     connection. Lane 1 is spare until tw_dialer_bulk uses it.
 *
 *  3. The other end treats each lane as an accepted connection as soon as it is connected.
 *
 * One member alone cannot make this node dial anywhere: the relay and the other end must name the
 * same address (tw_punch_is_agreed). The address must be public, unless the relay is in a private
 * network, and its port above 1023. */

enum { RETRY_US = 150 * 1000, PORT_MIN = 1024 };

/* ---- addresses ----------------------------------------------------------------------------- */

void tw_seen_address(const struct sockaddr_storage *from, char text[TW_ADDR_BYTES]) {
    char host[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)from;
    uint16_t port = 0;
    bool is_v6 = from->ss_family == AF_INET6;
    if (is_v6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        (void)uv_inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof(host));
        port = ntohs(in6->sin6_port);
        is_v6 = false;
    } else if (is_v6) {
        (void)uv_ip6_name(in6, host, sizeof(host));
        port = ntohs(in6->sin6_port);
    } else {
        (void)uv_ip4_name(in4, host, sizeof(host));
        port = ntohs(in4->sin_port);
    }
    (void)snprintf(text, TW_ADDR_BYTES, is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)port);
}

/* Returns false unless `text` is an IP address with a port above 1023. */
static bool address_read(const char *text, struct sockaddr_storage *out) {
    char host[TW_ADDR_BYTES];
    uint16_t port = 0;
    memset(out, 0, sizeof(*out));
    if (!tw_address_split(text, host, &port) || port < PORT_MIN) return false;
    return uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, port, (struct sockaddr_in6 *)out) == 0;
}

/* ---- may it be tried ----------------------------------------------------------------------- */

static enum tw_status lane_check(const struct tw_conn *conn, struct tw_error *err) {
    const struct tw_call *call = &conn->call;
    struct sockaddr_storage own, other;
    char relay[TW_ADDR_BYTES];
    if (call->seen[0][0] == '\0')
        return tw_fail(err, TW_AGAIN, "the relay does not say at which addresses it sees the two");
    if (!address_read(call->seen[0], &own) || !address_read(call->seen[1], &other))
        return tw_fail(err, TW_AGAIN, "the relay names no usable addresses");
    if (own.ss_family != other.ss_family)
        return tw_fail(err, TW_AGAIN, "one node reaches the relay by IPv6, the other by IPv4");
    tw_seen_address(&conn->remote, relay);
    if (tw_reachability_is_private(call->seen[1]) && !tw_reachability_is_private(relay))
        return tw_fail(err, TW_AGAIN, "the relay sees the other node in a private network");
    return TW_OK;
}

enum tw_status tw_transport_punch_info(const struct tw_transport *t, uint16_t peer,
                                       struct tw_punch_info *info, struct tw_error *err) {
    TW_ASSERT(peer < TW_PEERS_MAX);
    const struct tw_slot *slot = &t->peers[peer];
    if (slot->state != TW_SLOT_UP || t->is_closing || !slot->is_relayed)
        return tw_fail(err, TW_AGAIN, "the link is not relayed");
    if ((slot->features & TW_FEATURE_PUNCH) == 0)
        return tw_fail(err, TW_AGAIN, "the other node is too old for it");
    if (slot->bulk == NULL) return tw_fail(err, TW_AGAIN, "its bulk connection is not up yet");
    const struct tw_conn *const conns[2] = {slot->control, slot->bulk};
    *info = (struct tw_punch_info){.is_client = slot->is_dialled};
    for (unsigned i = 0; i < 2; i++) {
        TW_TRY(lane_check(conns[i], err));
        memcpy(info->own[i], conns[i]->call.seen[0], TW_ADDR_BYTES);
        memcpy(info->other[i], conns[i]->call.seen[1], TW_ADDR_BYTES);
    }
    return TW_OK;
}

bool tw_punch_is_agreed(const struct tw_punch_info *info, const struct tw_msg_punch *punch) {
    return strcmp(info->other[0], punch->control) == 0 && strcmp(info->other[1], punch->bulk) == 0;
}

enum tw_status tw_transport_punch(struct tw_transport *t, uint16_t peer, uint64_t delay_us,
                                  struct tw_error *err) {
    struct tw_punch_info info;
    TW_TRY(tw_transport_punch_info(t, peer, &info, err));
    const struct tw_slot *slot = &t->peers[peer];
    const struct tw_conn *const conns[2] = {slot->control, slot->bulk};
    struct tw_punch *punch = t->punches;
    for (unsigned i = 0; i < TW_PUNCHES_MAX; i++) {
        if (t->punches[i].is_used && tw_id_equal(&t->punches[i].id, &slot->record.id))
            return tw_fail(err, TW_AGAIN, "it is being tried already");
    }
    while (punch < t->punches + TW_PUNCHES_MAX && punch->is_used) punch++;
    if (punch == t->punches + TW_PUNCHES_MAX)
        return tw_fail(err, TW_LIMIT, "%d links are being punched already", TW_PUNCHES_MAX);
    const uint64_t begin_us = tw_now_us() + delay_us;
    const uint64_t most_us =
        t->config.connect_us < TW_PUNCH_US ? t->config.connect_us : (uint64_t)TW_PUNCH_US;
    *punch = (struct tw_punch){
        .is_client = info.is_client, .id = slot->record.id, .until_us = begin_us + most_us};
    for (unsigned i = 0; i < 2; i++) {
        int size = sizeof(punch->lanes[i].from);
        if (!address_read(info.other[i], &punch->lanes[i].to) ||
            uv_tcp_getsockname(&conns[i]->link.tcp, (struct sockaddr *)&punch->lanes[i].from,
                               &size) != 0)
            return tw_fail(err, TW_AGAIN, "the relayed connection has no address");
        punch->lanes[i].due_us = begin_us;
    }
    punch->is_used = true;
    tw_transport_soon(t);
    return TW_OK;
}

/* ---- dialling ------------------------------------------------------------------------------ */

static struct tw_punch *punch_of(const struct tw_conn *conn) {
    return conn->punch < 0 ? NULL : &conn->transport->punches[conn->punch / 2];
}

static void conn_let_go(struct tw_conn *conn) {
    struct tw_punch *punch = punch_of(conn);
    punch->lanes[conn->punch % 2].conn = NULL;
    punch->lanes[conn->punch % 2].is_over = true;
    conn->punch = -1;
    conn->is_punched = true;
}

static void conn_secure(struct tw_conn *conn, const struct tw_id *expected) {
    struct tw_transport *t = conn->transport;
    struct tw_error err;
    conn->deadline_us = tw_now_us() + t->config.handshake_us;
    const enum tw_status status = expected != NULL
                                      ? secure_dial(conn, expected, &err)
                                      : tw_link_secure(&conn->link, &t->tls, false, NULL, &err);
    if (status != TW_OK) tw_link_fail(&conn->link, &err);
}

/* Called at the TLS client when both lanes are connected: makes them the control connection and the
 * spare bulk connection. */
static void client_begin(struct tw_punch *punch) {
    struct tw_conn *control = punch->lanes[0].conn, *bulk = punch->lanes[1].conn;
    const struct tw_id id = punch->id;
    conn_let_go(control);
    conn_let_go(bulk);
    bulk->role = TW_ROLE_BULK;
    bulk->is_spare = true;
    bulk->call.other = id;
    bulk->deadline_us = tw_now_us() + 2 * bulk->transport->config.handshake_us;
    control->role = TW_ROLE_CONTROL;
    conn_secure(control, &id);
}

static void on_punched(uv_connect_t *request, int code) {
    struct tw_conn *conn = request->data;
    struct tw_punch *punch = punch_of(conn);
    struct tw_error err;
    if (conn->link.state != TW_LINK_OPENING || conn->link.is_failed || punch == NULL) return;
    if (code != 0) {
        (void)tw_fail(&err, TW_IO, "%s", uv_strerror(code));
        tw_link_fail(&conn->link, &err);
        return;
    }
    struct tw_lane *lane = &punch->lanes[conn->punch % 2];
    lane->is_connected = true;
    if (!punch->is_client) {
        tw_link_address_read(&conn->link);
        conn->is_dialled = false;
        conn->is_accepted = true;
        conn_let_go(conn);
        conn_secure(conn, NULL);
    } else if (punch->lanes[0].is_connected && punch->lanes[1].is_connected) {
        client_begin(punch);
    }
    tw_transport_soon(conn->transport);
}

void tw_punch_lost(struct tw_conn *conn) {
    struct tw_lane *lane = &punch_of(conn)->lanes[conn->punch % 2];
    lane->conn = NULL;
    lane->is_connected = false;
    lane->due_us = tw_now_us() + RETRY_US;
    conn->punch = -1;
    tw_link_abort(&conn->link);
    tw_transport_soon(conn->transport);
}

static void lane_dial(struct tw_transport *t, struct tw_punch *punch, unsigned i) {
    struct tw_lane *lane = &punch->lanes[i];
    struct tw_error err;
    uv_os_fd_t fd;
    lane->due_us = UINT64_MAX;
    struct tw_conn *conn = tw_conn_create(t, &err);
    if (conn == NULL) {
        lane->is_over = true;
        return;
    }
    conn->punch = (int)(2 * (punch - t->punches) + i);
    conn->is_dialled = true;
    conn->remote = lane->to;
    conn->deadline_us = UINT64_MAX; /* the punch has a deadline */
    conn->connect.data = conn;
    lane->conn = conn;
    int code = uv_tcp_bind(&conn->link.tcp, (const struct sockaddr *)&lane->from, 0);
    if (code == 0) code = tw_egress_tie(&t->egress, &conn->link.tcp, &err);
    if (uv_fileno((uv_handle_t *)&conn->link.tcp, &fd) == 0) tw_sockopt_small_packets(fd);
    if (code == 0)
        code = uv_tcp_connect(&conn->connect, &conn->link.tcp,
                              (const struct sockaddr *)&conn->remote, on_punched);
    if (code != 0) tw_punch_lost(conn);
}

/* ---- steps --------------------------------------------------------------------------------- */

static void punch_end(struct tw_punch *punch) {
    for (unsigned i = 0; i < 2; i++) {
        struct tw_conn *conn = punch->lanes[i].conn;
        if (conn == NULL) continue;
        conn->punch = -1;
        tw_link_abort(&conn->link);
    }
    *punch = (struct tw_punch){.is_used = false};
}

/* Returns true if the punch should go on: the node still has only its relayed link, or one lane has
 * already connected. */
static bool is_wanted(const struct tw_transport *t, const struct tw_punch *punch) {
    const int peer = tw_peer_find(t, &punch->id);
    if (punch->lanes[0].is_over || punch->lanes[1].is_over) return true;
    return peer >= 0 && t->peers[peer].is_relayed;
}

void tw_punch_step(struct tw_transport *t, uint64_t now_us) {
    for (unsigned k = 0; k < TW_PUNCHES_MAX; k++) {
        struct tw_punch *punch = &t->punches[k];
        if (!punch->is_used) continue;
        for (unsigned i = 0; i < 2; i++) {
            if (!punch->lanes[i].is_over && now_us >= punch->lanes[i].due_us)
                lane_dial(t, punch, i);
        }
        const bool is_over = punch->lanes[0].is_over && punch->lanes[1].is_over;
        if (is_over || now_us >= punch->until_us || !is_wanted(t, punch)) punch_end(punch);
    }
}

void tw_punch_close(struct tw_transport *t) {
    for (unsigned k = 0; k < TW_PUNCHES_MAX; k++) punch_end(&t->punches[k]);
}

uint64_t tw_punch_deadline_us(const struct tw_transport *t) {
    uint64_t next_us = UINT64_MAX;
    for (unsigned k = 0; k < TW_PUNCHES_MAX; k++) {
        const struct tw_punch *punch = &t->punches[k];
        if (!punch->is_used) continue;
        if (punch->until_us < next_us) next_us = punch->until_us;
        for (unsigned i = 0; i < 2; i++) {
            const struct tw_lane *lane = &punch->lanes[i];
            if (!lane->is_over && lane->due_us < next_us) next_us = lane->due_us;
        }
    }
    return next_us;
}

/* Returns the connection that a punch has made as the bulk connection to node `id`, or NULL. */
static struct tw_conn *find_spare(const struct tw_transport *t, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = t->conns[i];
        if (conn == NULL || !conn->is_spare || conn->link.is_failed) continue;
        if (conn->link.state == TW_LINK_OPENING && tw_id_equal(&conn->call.other, id)) return conn;
    }
    return NULL;
}
