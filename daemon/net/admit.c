/* admit.c - from a TCP connection to a peer: limits, HELLO both ways, one link per pair.
 *
 * Of two control connections between the same nodes, one stays. The node with the higher id decides
 * alone, so the two cannot disagree:
 *
 *   1. The dialler sends HELLO first. The other node answers with its own HELLO, or refuses with
 *      GOODBYE.
 *   2. A dialler gives up by itself if it already has a link to that id, or another unanswered
 *      HELLO to it. Receiving a HELLO thus proves that its sender has no other working link.
 *   3. At the node with the lower id, a HELLO from the higher id replaces any existing link.
 *   4. The node with the higher id refuses a HELLO while it has a link, or has sent a HELLO that is
 *      not answered yet. It accepts the HELLO in two cases: the other node restarted (a higher
 *      boot), or the other node had dialled the existing link and by rule 2 has lost it.
 *
 * Crossing dials therefore end with the connection that the higher id dialled.
 *
 * These rules hold among links of one kind: direct links, or links through a relay (call.c). Both
 * ends know the kind. A direct link replaces a relayed one at both. A HELLO through a relay is
 * refused while a direct link exists, unless the other node restarted.
 *
 * Before rules 3 and 4, a HELLO from another process than the linked one waits in held.c: that
 * process may be a second machine with the same key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/net/transport_impl.h"
#include "proto/twin.h"

static const char DUPLICATE[] = "another link between these two nodes exists";
static const char software[] = "thinwire " TW_RELEASE;
_Static_assert(sizeof(software) <= TW_SOFTWARE_BYTES, "the software name fits HELLO");

/* ---- accept -------------------------------------------------------------------------------- */

static bool is_in_handshake(const struct tw_conn *conn) {
    return conn->is_accepted && conn->peer < 0 && conn->pipe < 0 &&
           conn->link.state < TW_LINK_CLOSED;
}

/* Makes room for `fresh`, or fails with the reason. If the table is full, drops the oldest
 * handshake of an unknown host, or the oldest of all if every host is known. An attacker thus has
 * to reconnect constantly, while an honest node finishes within a few round trips. */
static enum tw_status accept_check(struct tw_conn *fresh, struct tw_error *err) {
    struct tw_transport *t = fresh->transport;
    struct tw_conn *oldest = NULL;
    unsigned count = 0, same_count = 0;
    const uint64_t now_us = tw_now_us();
    fresh->is_known = tw_handshake_limiter_is_known(&t->limiter, &fresh->remote, now_us);
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = t->conns[i];
        if (conn == NULL || conn == fresh || !is_in_handshake(conn)) continue;
        count++;
        same_count += tw_handshake_limiter_is_same_host(&conn->remote, &fresh->remote);
        if (oldest == NULL || conn->is_known < oldest->is_known ||
            (conn->is_known == oldest->is_known && conn->since_us < oldest->since_us))
            oldest = conn;
    }
    if (same_count >= TW_HANDSHAKES_PER_HOST)
        return tw_fail(err, TW_LIMIT, "%u handshakes of this host are under way", same_count);
    if (count < TW_HANDSHAKES_MAX) return TW_OK;
    TW_ASSERT(oldest != NULL);
    tw_link_abort(&oldest->link);
    return TW_OK;
}

static bool has_knocked(struct tw_transport *t, const char *name, size_t size) {
    static const struct tw_secret none;
    const uint64_t now_s = (uint64_t)time(NULL);
    struct tw_knock_key key = {.bytes = none.bytes, .size = TW_SECRET_BYTES, .run = t->config.run};
    bool is_right = t->secrets.count == 0 && tw_knock_is_of(&key, name, size, now_s);
    for (uint32_t i = 0; i < t->secrets.count && !is_right; i++) {
        key.bytes = t->secrets.list[i].bytes;
        is_right = tw_knock_is_of(&key, name, size, now_s);
    }
    if (!is_right && t->config.events.is_knock != NULL)
        is_right = t->config.events.is_knock(t->config.user, name, size);
    return is_right && tw_knocks_add(&t->knocks, name);
}

/* Called when the ClientHello of an accepted connection has arrived. Only now does the connection
 * count against its host's limit (handshake_limiter.h). Until then it merely occupies a table
 * entry. Strangers that have used up their share are turned away here too, and not before: a knock
 * in the ClientHello shows that its sender is none. */
static enum tw_status judge_hello(void *user, const char *name, size_t size, struct tw_error *err) {
    struct tw_conn *conn = user;
    struct tw_transport *t = conn->transport;
    const bool knocked = has_knocked(t, name, size);
    conn->is_known |= knocked;
    if (t->are_strangers_out && !conn->is_known) {
        t->strangers_refused++;
        return tw_fail(err, TW_LIMIT, "strangers have used up their share of this day");
    }
    return tw_handshake_limiter_take(&t->limiter, &conn->remote, knocked, tw_now_us(), err);
}

/* Returns false if connections arrive too fast: this one then waits in the kernel's accept queue
 * for a moment. Otherwise the loop would only accept, and established links would wait. */
static bool accept_may(struct tw_transport *t, struct tw_listener *listener) {
    const uint64_t now_us = tw_now_us();
    const uint64_t wait_us = tw_rate_wait_us(&t->accepts, 1, now_us);
    if (wait_us > 0) {
        listener->is_stalled = true;
        t->accept_due_us = now_us + wait_us;
        tw_transport_soon(t);
        return false;
    }
    tw_rate_spend(&t->accepts, 1, now_us);
    return true;
}

static void refusal_report(const struct tw_conn *conn, enum tw_status reason,
                           const char *sentence) {
    struct tw_transport *t = conn->transport;
    const enum tw_dial_cause cause = tw_dial_cause_of_status(reason);
    char whole[TW_DIAL_SENTENCE_BYTES];
    if (t->config.events.refused == NULL || t->is_closing) return;
    /* The report of a refusal also tells a person how to resolve it. Other failures are reported
     * unchanged. */
    if (!tw_dial_is_refusal(cause))
        (void)snprintf(whole, sizeof(whole), "%s", sentence);
    else
        tw_dial_sentence(cause, conn->link.address, sentence, whole);
    t->config.events.refused(t->config.user, conn->link.address, reason, whole);
}

void tw_admit_accepted(uv_stream_t *server, int status) {
    struct tw_transport *t = server->data;
    struct tw_error err;
    if (status != 0 || t->is_closing) return;
    if (!accept_may(t, (struct tw_listener *)(void *)server)) return;
    struct tw_conn *conn = tw_conn_create(t, &err);
    if (conn == NULL) {
        /* No new connection is reported until another one ends. */
        ((struct tw_listener *)(void *)server)->is_stalled = true;
        return;
    }
    conn->is_accepted = true;
    int size = sizeof(conn->remote);
    if (uv_accept(server, (uv_stream_t *)&conn->link.tcp) != 0 ||
        uv_tcp_getpeername(&conn->link.tcp, (struct sockaddr *)&conn->remote, &size) != 0) {
        tw_link_abort(&conn->link);
        return;
    }
    if (t->rest[0] != '\0') { /* links are suspended: drop the connection at the lowest cost */
        tw_link_abort(&conn->link);
        return;
    }
    tw_link_address_read(&conn->link);
    if (accept_check(conn, &err) != TW_OK) {
        refusal_report(conn, err.status, err.message);
        tw_link_abort(&conn->link);
        return;
    }
    conn->link.judge = judge_hello;
    if (tw_link_secure(&conn->link, &t->tls, false, NULL, &err) != TW_OK)
        tw_link_fail(&conn->link, &err);
    tw_transport_soon(t);
}

/* ---- refusing ------------------------------------------------------------------------------ */

void tw_admit_refuse(struct tw_conn *conn, enum tw_status status, const char *sentence) {
    struct tw_transport *t = conn->transport;
    const struct tw_id *id = conn->link.tls.has_id ? &conn->link.tls.id : NULL;
    if (conn->is_held) tw_held_forget(conn);
    if (conn->dialling != NULL) {
        tw_dialer_over(conn->dialling, status, id, sentence);
    } else if (conn->bulk_of >= 0) {
        struct tw_slot *slot = &t->peers[conn->bulk_of];
        slot->bulk_dial = NULL;
        slot->bulk_retry_us = tw_now_us() + TW_BULK_RETRY_US;
        (void)tw_fail(&slot->bulk_error, status, "%s", sentence);
    } else if (conn->is_accepted && status != TW_AGAIN) {
        refusal_report(conn, status, sentence);
    }
    conn->bulk_of = -1;
    conn->deadline_us = UINT64_MAX;
    tw_link_close(&conn->link, status, sentence);
}

void tw_admit_failed(struct tw_conn *conn) {
    const struct tw_error error = conn->link.error;
    if (conn->pipe >= 0) {
        tw_relay_lost(conn);
        return;
    }
    if (conn->punch >= 0) {
        tw_punch_lost(conn);
        return;
    }
    /* The name may have other addresses, which are tried next. */
    if (tw_dialer_lost(conn, &error)) return;
    if (conn->link.tls.is_turned_away) { /* closed without sending a byte, so its table entry is
                                            free at once */
        refusal_report(conn, error.status, error.message);
        tw_link_abort(&conn->link);
        return;
    }
    if (conn->dialling != NULL) conn->dialling->cause = conn->cause;
    tw_admit_refuse(conn, error.status, error.message);
}

/* ---- HELLO --------------------------------------------------------------------------------- */

void tw_admit_hello(const struct tw_conn *conn, enum tw_role role, struct tw_hello *hello) {
    const struct tw_transport *t = conn->transport;
    *hello = (struct tw_hello){
        .version_min = TW_WIRE_VERSION,
        .version_max = TW_WIRE_VERSION,
        .role = role,
        .boot = t->config.boot,
        .run = t->config.run,
        .id = t->config.identity->id,
    };
    while (hello->addrs_count < TW_ADDRS_MAX && t->self.addrs[hello->addrs_count][0] != '\0') {
        memcpy(hello->addrs[hello->addrs_count], t->self.addrs[hello->addrs_count], TW_ADDR_BYTES);
        hello->addrs_count++;
    }
    uint8_t features[8];
    tw_put_u64(features, TW_FEATURES);
    tw_extensions_add(&hello->extensions, TW_EXTENSION_FEATURES, features, sizeof(features));
    tw_extensions_add(&hello->extensions, TW_EXTENSION_SOFTWARE, software, sizeof(software) - 1);
    if (t->config.gate != NULL) {
        uint8_t bytes[TW_GATE_BYTES_MAX];
        const uint32_t size = tw_gate_encode(t->config.gate, bytes);
        tw_extensions_add(&hello->extensions, TW_EXTENSION_CERTIFICATES, bytes, size);
    }
}

void tw_admit_greet(struct tw_conn *conn, enum tw_role role, const struct tw_greeting *greeting) {
    struct tw_transport *t = conn->transport;
    struct tw_hello hello;
    uint8_t body[TW_HELLO_BYTES_MAX];
    tw_admit_hello(conn, role, &hello);
    if (greeting != NULL && greeting->tag != NULL)
        memcpy(hello.link_tag, greeting->tag, TW_LINK_TAG_BYTES);
    if (greeting != NULL && greeting->relay_bytes > 0)
        tw_extensions_add(&hello.extensions, TW_EXTENSION_RELAY, greeting->relay,
                          greeting->relay_bytes);
    if (greeting != NULL && greeting->seen_own != NULL)
        tw_extensions_add_seen(&hello.extensions, greeting->seen_own, greeting->seen_other);
    if (greeting != NULL && greeting->ask_token != 0) {
        uint8_t token[8];
        tw_put_u64(token, greeting->ask_token);
        tw_extensions_add(&hello.extensions, TW_EXTENSION_ASK_SEEN, token, sizeof(token));
    }
    if (role == TW_ROLE_CONTROL && t->process != 0) {
        uint8_t process[8];
        tw_put_u64(process, t->process);
        tw_extensions_add(&hello.extensions, TW_EXTENSION_PROCESS, process, sizeof(process));
    }
    if (role == TW_ROLE_CONTROL) tw_extensions_add_name(&hello.extensions, t->config.name);
    tw_hello_prove(&hello, t->secrets.count > 0 ? &t->secrets.list[conn->secret] : NULL, conn->ekm);
    const uint32_t size = tw_hello_encode(&hello, body);
    conn->has_spoken = true;
    const enum tw_status status = tw_link_send(&conn->link, TW_FRAME_HELLO, body, size);
    TW_ASSERT(status == TW_OK); /* the queue of a link has room for its first frame */
}

static void hello_send(struct tw_conn *conn, enum tw_role role, const uint8_t *tag) {
    tw_admit_greet(conn, role, &(struct tw_greeting){.tag = tag});
}

/* Returns true if this node has sent `id` a HELLO over that kind of link, direct or relayed, and
 * waits for the answer. */
static bool is_greeting(const struct tw_transport *t, const struct tw_id *id, bool is_relayed) {
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        const struct tw_conn *conn = t->conns[i];
        if (conn == NULL || !conn->is_dialled || conn->role != TW_ROLE_CONTROL) continue;
        if (conn->peer >= 0 || !conn->has_spoken || conn->link.is_failed) continue;
        if (conn->is_relayed != is_relayed) continue;
        if (conn->link.state == TW_LINK_GREETING && tw_id_equal(&conn->link.tls.id, id))
            return true;
    }
    return false;
}

/* Returns TW_BANNED, with a sentence for both ends, if the node is banned. */
static enum tw_status ban_check(const struct tw_transport *t, const struct tw_id *id,
                                struct tw_error *err) {
    const uint64_t now_s = (uint64_t)time(NULL), left_s = tw_bans_left_s(&t->bans, id, now_s);
    if (left_s == 0) return TW_OK;
    const time_t until = (time_t)(now_s + left_s);
    struct tm utc;
    char they[9], we[9], when[32] = "";
    tw_id_short(id, they);
    tw_id_short(&t->config.identity->id, we);
    if (gmtime_r(&until, &utc) != NULL) (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &utc);
    /* Naming the end of the ban, not the time left, keeps the sentence equal each time, so the log
     * does not repeat it. */
    return tw_fail(err, TW_BANNED, "node %s by node %s, until %s UTC", they, we, when);
}

/* Returns true if a link to `id` exists, or is being made, that is at least as good as this dialled
 * connection. */
static bool is_useless(const struct tw_conn *conn, const struct tw_id *id) {
    const struct tw_transport *t = conn->transport;
    const int old = tw_peer_find(t, id);
    if (old >= 0 && (conn->is_relayed || !t->peers[old].is_relayed)) return true;
    return is_greeting(t, id, conn->is_relayed);
}

static void duplicate_end(struct tw_conn *conn, const struct tw_id *id) {
    if (conn->dialling != NULL) tw_dialer_await(conn->dialling, id, DUPLICATE);
    tw_admit_refuse(conn, TW_OK, DUPLICATE);
}

void tw_admit_secured(struct tw_conn *conn) {
    struct tw_transport *t = conn->transport;
    const struct tw_id *id = &conn->link.tls.id;
    struct tw_error err;
    /* The other end has this node's own id. Only the HELLO of a control connection shows whether it
     * is this process or another machine with the same key. Other connections fail here. */
    if (tw_id_equal(id, &t->config.identity->id) && conn->is_dialled &&
        conn->role != TW_ROLE_CONTROL) {
        tw_conn_fail(conn, TW_SELF, "");
        return;
    }
    if (ban_check(t, id, &err) != TW_OK) {
        tw_link_fail(&conn->link, &err);
        return;
    }
    if (tw_tls_export(&conn->link.tls, TW_HELLO_EXPORT, conn->ekm, &err) != TW_OK) {
        tw_link_fail(&conn->link, &err);
        return;
    }
    if (!conn->is_dialled) return; /* the dialler speaks first */
    if (conn->role == TW_ROLE_BULK) {
        if (conn->bulk_of >= 0) hello_send(conn, TW_ROLE_BULK, t->peers[conn->bulk_of].tag);
        return;
    }
    if (conn->role == TW_ROLE_PROBE)
        tw_admit_greet(conn, TW_ROLE_PROBE, &(struct tw_greeting){.ask_token = conn->ask_token});
    else if (conn->role == TW_ROLE_GUEST)
        tw_guest_secured(conn);
    else if (conn->role == TW_ROLE_RELAY)
        tw_call_secured(conn);
    else if (is_useless(conn, id))
        duplicate_end(conn, id);
    else
        hello_send(conn, TW_ROLE_CONTROL, NULL);
}

/* Applies rules 3 and 4. Returns false if the HELLO is refused. */
static bool control_may_enter(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    const int old = tw_peer_find(t, &hello->id);
    const bool we_decide = tw_id_compare(&t->config.identity->id, &hello->id) > 0;
    if (we_decide && !conn->is_dialled && is_greeting(t, &hello->id, conn->is_relayed))
        return false;
    if (old < 0) return true;
    const struct tw_slot *slot = &t->peers[old];
    if (conn->is_relayed != slot->is_relayed) {
        if (conn->is_relayed && hello->boot <= slot->boot) return false;
    } else {
        const bool is_stale = hello->boot > slot->boot || (!slot->is_dialled && !conn->is_dialled);
        if (we_decide && !is_stale) return false;
    }
    tw_peer_end(t, old, TW_AGAIN, "replaced by a newer link of the same node");
    tw_peer_finish(t, old);
    return true;
}

/* Reports to the runtime that older links to this node have ended, before the new link is up. */
static void ends_report(struct tw_transport *t, const struct tw_id *id) {
    for (int i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state == TW_SLOT_ENDING && tw_id_equal(&slot->record.id, id))
            tw_peer_finish(t, i);
    }
}

void tw_admit_enter(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    struct tw_error err;
    if (!control_may_enter(conn, hello)) {
        tw_admit_refuse(conn, TW_AGAIN, DUPLICATE);
        return;
    }
    ends_report(t, &hello->id);
    if (t->is_closing) return; /* the runtime's peer_down callback closed the transport */
    const int peer = tw_peer_open(conn, hello, &err);
    if (peer < 0) {
        tw_admit_refuse(conn, err.status, err.message);
        return;
    }
    if (!conn->is_dialled) hello_send(conn, TW_ROLE_CONTROL, NULL);
    struct tw_dialling *dialling = conn->dialling;
    if (dialling != NULL) tw_dialer_over(dialling, TW_OK, &hello->id, "connected");
    if (!conn->is_relayed) {
        tw_dialer_linked(t, &hello->id);
        tw_handshake_limiter_admitted(&t->limiter, &conn->remote, tw_now_us());
    }
    const struct tw_member_row record = t->peers[peer].record;
    t->config.events.peer_up(t->config.user, (uint16_t)peer, &record);
}

static void control_enter(struct tw_conn *conn, const struct tw_hello *hello) {
    if (tw_id_equal(&hello->id, &conn->transport->config.identity->id))
        tw_held_self(conn, hello);
    else if (!tw_held_take(conn, hello))
        tw_admit_enter(conn, hello);
}

static void bulk_enter(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    struct tw_error err;
    const int peer = tw_peer_find(t, &hello->id);
    const struct tw_slot *slot = peer < 0 ? NULL : &t->peers[peer];
    const bool is_ours =
        slot != NULL && slot->is_dialled == conn->is_dialled &&
        (conn->is_dialled ? conn->bulk_of == peer
                          : memcmp(slot->tag, hello->link_tag, TW_LINK_TAG_BYTES) == 0);
    if (!is_ours) {
        tw_admit_refuse(conn, TW_AGAIN,
                        "no control connection that this bulk connection belongs to");
        return;
    }
    if (slot->bulk != NULL) {
        /* The dialler has lost the bulk connection that we still hold. Bytes sent on it may be
         * lost, so start over. */
        tw_peer_end(t, peer, TW_AGAIN, "the bulk connection was lost");
        tw_admit_refuse(conn, TW_AGAIN, "the bulk connection was lost");
        return;
    }
    if (!conn->is_dialled) hello_send(conn, TW_ROLE_BULK, slot->tag);
    if (tw_link_admit(&conn->link, TW_ROLE_BULK, &err) != TW_OK) {
        tw_admit_refuse(conn, err.status, err.message);
        return;
    }
    if (conn->is_dialled) t->peers[peer].bulk_dial = NULL;
    conn->bulk_of = -1;
    tw_peer_attach_bulk(conn, peer);
}

/* Returns true if the word of the dialled node counts although its HELLO has not come: it has this
 * node's own key, this dial expected exactly that id, or the id was linked before or is a member's.
 * An address alone, also a configured one, proves nothing about the node that answers there. */
static bool is_believed(const struct tw_conn *conn) {
    const struct tw_transport *t = conn->transport;
    const struct tw_id *id = &conn->link.tls.id;
    const bool is_expected = conn->dialling != NULL && conn->dialling->has_expected &&
                             tw_id_equal(&conn->dialling->expected, id);
    if (is_expected || tw_id_equal(id, &t->config.identity->id)) return true;
    if (tw_twins_was_linked(&t->twins, id)) return true;
    return t->config.events.is_wanted != NULL && t->config.events.is_wanted(t->config.user, id);
}

static void goodbye_take(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_goodbye goodbye;
    struct tw_error err;
    char sentence[sizeof(goodbye.sentence) + 16];
    if (tw_goodbye_decode(frame->body, frame->body_bytes, &goodbye, &err) != TW_OK) {
        tw_admit_refuse(conn, err.status, err.message);
        return;
    }
    if (goodbye.status == TW_SELF &&
        tw_id_equal(&conn->link.tls.id, &conn->transport->config.identity->id)) {
        tw_conn_fail(conn, TW_SELF, ""); /* the name may have other addresses, which lead to another
                                            machine: they are tried next */
        return;
    }
    if (goodbye.status == TW_TWIN && conn->is_dialled && conn->role == TW_ROLE_CONTROL) {
        /* The other machine is named, or it is the dialled one itself. */
        const struct tw_transport *const t = conn->transport;
        const bool is_it = tw_id_equal(&conn->link.tls.id, &t->config.identity->id);
        char there[TW_ADDR_BYTES];
        if (!is_believed(conn)) {
            tw_admit_refuse(conn, TW_TWIN, "it says so, but has not proved that it is in the run");
            return;
        }
        tw_twin_address(is_it ? conn->link.address : goodbye.sentence, there);
        tw_held_told(conn->transport, there);
        (void)snprintf(sentence, sizeof(sentence), "%s%s", there[0] != '\0' ? "at " : "", there);
        tw_admit_refuse(conn, TW_TWIN, sentence);
        return;
    }
    /* The sender has not proved its right to be in the run, so its GOODBYE must not count as
     * success. On a control connection, OK and AGAIN mean that another link exists or soon will:
     * wait for that link. For a probe, OK does mean success: it reached the right node. */
    if (conn->dialling != NULL && conn->role == TW_ROLE_PROBE) {
        tw_admit_refuse(conn, goodbye.status, goodbye.sentence);
        return;
    }
    (void)snprintf(sentence, sizeof(sentence), "it says: %s", goodbye.sentence);
    if (goodbye.status == TW_OK) goodbye.status = TW_AGAIN;
    if (conn->dialling != NULL && conn->role == TW_ROLE_CONTROL && goodbye.status == TW_AGAIN)
        tw_dialer_await(conn->dialling, &conn->link.tls.id, sentence);
    tw_admit_refuse(conn, goodbye.status, sentence);
}

/* In a run with an owner: checks that the certificates admit the node that TLS proved. */
static enum tw_status certs_check(struct tw_conn *conn, const struct tw_hello *theirs,
                                  struct tw_error *err) {
    const struct tw_gate *gate = conn->transport->config.gate;
    uint32_t size = 0;
    if (gate == NULL || theirs->role == TW_ROLE_GUEST)
        return TW_OK; /* a guest has none; a probe must have some */
    const uint8_t *bytes =
        tw_extensions_find(&theirs->extensions, TW_EXTENSION_CERTIFICATES, &size);
    conn->clock_s = tw_gate_their_clock_s(bytes, size);
    return tw_gate_check(gate, &conn->link.tls.id, bytes, size, &conn->certs, err);
}

static void probe_take(struct tw_conn *conn, const struct tw_hello *hello) {
    const struct tw_transport_events *events = &conn->transport->config.events;
    uint32_t size = 0;
    const uint8_t *token = tw_extensions_find(&hello->extensions, TW_EXTENSION_ASK_SEEN, &size);
    if (token != NULL && events->observed != NULL && conn->is_accepted) {
        char address[TW_ADDR_BYTES];
        tw_seen_address(&conn->remote, address);
        events->observed(conn->transport->config.user, &hello->id, tw_get_u64(token), address);
    }
    tw_admit_refuse(conn, TW_OK, "this address can be dialled");
}

void tw_admit_frame(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_transport *t = conn->transport;
    struct tw_hello theirs, ours;
    struct tw_error err;
    if (frame->kind == TW_FRAME_GOODBYE) {
        goodbye_take(conn, frame);
        return;
    }
    if (frame->kind == TW_FRAME_WELCOME) {
        tw_guest_frame(conn, frame);
        return;
    }
    /* The link's state lets no other kind of frame through. */
    TW_ASSERT(frame->kind == TW_FRAME_HELLO);
    if (conn->is_held) {
        tw_admit_refuse(conn, TW_PROTO, "a second HELLO");
        return;
    }
    enum tw_status status = tw_hello_decode(frame->body, frame->body_bytes, &theirs, &err);
    if (status == TW_OK) {
        tw_admit_hello(conn, theirs.role, &ours);
        status = tw_hello_check(&theirs, &ours, &conn->link.tls.id, &err);
    }
    if (status == TW_OK && theirs.role != TW_ROLE_GUEST)
        status = tw_hello_check_proof(&theirs, &ours, &t->secrets, conn->ekm, &conn->secret, &err);
    if (status == TW_OK) status = certs_check(conn, &theirs, &err);
    if (status == TW_OK && conn->is_dialled && theirs.role != conn->role)
        status = tw_fail(&err, TW_PROTO, "HELLO answers with another role");
    if (status != TW_OK) {
        tw_admit_refuse(conn, status, err.message);
        return;
    }
    conn->is_proven = theirs.role != TW_ROLE_GUEST;
    switch (theirs.role) {
    case TW_ROLE_CONTROL: control_enter(conn, &theirs); break;
    case TW_ROLE_BULK: bulk_enter(conn, &theirs); break;
    case TW_ROLE_GUEST: tw_guest_hello(conn, &theirs); break;
    case TW_ROLE_RELAY:
        if (conn->is_dialled)
            tw_call_joined(conn, &theirs);
        else
            tw_relay_hello(conn, &theirs);
        break;
    case TW_ROLE_PROBE: probe_take(conn, &theirs); break;
    }
}
