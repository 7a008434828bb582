/* dialer.c - connections that this node opens: control to given addresses, and bulk to peers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport_impl.h"

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

enum tw_status tw_dialer_secure(struct tw_conn *conn, const struct tw_id *expected,
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
    if (tw_dialer_secure(conn, expected, &err) != TW_OK) tw_link_fail(&conn->link, &err);
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
    struct tw_conn *conn = tw_punch_spare(t, &slot->record.id);
    if (conn == NULL) return tw_fail(err, TW_AGAIN, "the second punched connection is gone");
    conn->is_spare = false;
    conn->bulk_of = peer;
    slot->bulk_dial = conn;
    conn->deadline_us = tw_now_us() + t->config.handshake_us;
    return tw_dialer_secure(conn, &slot->record.id, err);
}

enum tw_status tw_dialer_bulk(struct tw_transport *t, int peer, struct tw_error *err) {
    struct tw_slot *slot = &t->peers[peer];
    if (slot->is_punched) return spare_use(t, peer, err);
    enum tw_dial_cause ignored = TW_DIAL_NONE;
    struct tw_call call = {.is_caller = true, .role = TW_ROLE_BULK, .relay = slot->relay};
    call.other = slot->record.id;
    if (slot->is_relayed && !tw_call_token(call.token))
        return tw_fail(err, TW_IO, "no random bytes");
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

enum tw_status tw_dialer_relay(struct tw_transport *t, const struct tw_slot *slot,
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
