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
 * These rules hold among links of one kind: direct links, or links through a relay (dialer.c). Both
 * ends know the kind. A direct link replaces a relayed one at both. A HELLO through a relay is
 * refused while a direct link exists, unless the other node restarted.
 *
 * Before rules 3 and 4, a HELLO from another process than the linked one waits in admit.c: that
 * process may be a second machine with the same key. */
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/net/transport_impl.h"
#include "proto/frame.h"

/* ==== admission =============================================================================== */

static const char DUPLICATE[] = "another link between these two nodes exists";
static const char software[] = "thinwire " TW_RELEASE;
_Static_assert(sizeof(software) <= TW_SOFTWARE_BYTES, "the software name fits HELLO");

/* ---- accept -------------------------------------------------------------------------------- */

static bool hold_newcomer(struct tw_conn *conn, const struct tw_hello *hello);
static void meet_self(struct tw_conn *conn, const struct tw_hello *hello);
static void guest_secured(struct tw_conn *conn);
static void guest_hello(struct tw_conn *conn, const struct tw_hello *hello);
static void guest_frame(struct tw_conn *conn, const struct tw_frame *frame);

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
 * count against its host's limit (bans.h). Until then it merely occupies a table
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

/* Fills this node's HELLO for `role`, without a proof. */
static void fill_hello(const struct tw_conn *conn, enum tw_role role, struct tw_hello *hello) {
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
    fill_hello(conn, role, &hello);
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
        guest_secured(conn);
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

/* Admits the sender of a control HELLO that passed every check as a peer, or refuses it. */
static void enter_peer(struct tw_conn *conn, const struct tw_hello *hello) {
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
        meet_self(conn, hello);
    else if (!hold_newcomer(conn, hello))
        enter_peer(conn, hello);
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
        guest_frame(conn, frame);
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
        fill_hello(conn, theirs.role, &ours);
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
    case TW_ROLE_GUEST: guest_hello(conn, &theirs); break;
    case TW_ROLE_RELAY:
        if (conn->is_dialled)
            tw_call_joined(conn, &theirs);
        else
            tw_relay_hello(conn, &theirs);
        break;
    case TW_ROLE_PROBE: probe_take(conn, &theirs); break;
    }
}

/* ==== a second process with the key =========================================================== */

/* A second process with the key of a linked node. Before the linked process is replaced,
 * it is asked whether it is alive (twin.h). Meanwhile the newcomer is *held*: its HELLO has no
 * answer yet. */

static const char WAITS[] = "an older link of this node is asked whether it is alive";

static struct tw_held *held_find(struct tw_transport *t, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_HELD_MAX; i++) {
        if (t->held[i].conn != NULL && tw_id_equal(&t->held[i].hello.id, id)) return &t->held[i];
    }
    return NULL;
}

void tw_held_forget(struct tw_conn *conn) {
    struct tw_transport *t = conn->transport;
    for (unsigned i = 0; i < TW_HELD_MAX; i++) {
        if (t->held[i].conn == conn) t->held[i].conn = NULL;
    }
    conn->is_held = false;
}

/* Returns the address of the machine that is linked under this key. */
static const char *slot_address(const struct tw_slot *slot) {
    if (slot->record.addrs[0][0] != '\0') return slot->record.addrs[0];
    return slot->is_relayed ? "" : slot->control->link.address;
}

static void twin_report(struct tw_transport *t, const struct tw_twin_report *report) {
    if (!tw_twins_found(&t->twins, &report->id, report->address, tw_now_us())) return;
    if (t->config.events.twin != NULL) t->config.events.twin(t->config.user, report);
}

/* Refuses the newcomer: two machines have that key, and the linked one stays. */
static void newcomer_refuse(struct tw_conn *conn, const struct tw_hello *hello, int linked) {
    struct tw_transport *t = conn->transport;
    char there[TW_ADDR_BYTES], here[TW_ADDR_BYTES];
    tw_peer_address(conn, hello, there);
    (void)snprintf(here, sizeof(here), "%s", slot_address(&t->peers[linked]));
    const struct tw_twin_report report = {.id = hello->id, .address = there, .linked = here};
    twin_report(t, &report);
    tw_admit_refuse(conn, TW_TWIN, here);
}

/* ---- asking -------------------------------------------------------------------------------- */

uint64_t tw_held_number(void) {
    uint8_t bytes[8];
    return RAND_bytes(bytes, sizeof(bytes)) == 1 ? tw_get_u64(bytes) | 1 : 0;
}

/* Asks the linked process whether it is alive, and so informs it that another machine has its key.
 * A nonce of 0 only informs it. */
static void question_send(struct tw_conn *conn, const struct tw_hello *hello, int linked,
                          uint64_t nonce) {
    struct tw_transport *t = conn->transport;
    struct tw_twin_word word = {.nonce = nonce};
    uint8_t body[TW_TWIN_BYTES_MAX];
    tw_peer_address(conn, hello, word.address);
    if (nonce != 0) tw_twins_asked(&t->twins, &hello->id, nonce, word.address, tw_now_us());
    const uint32_t size = tw_twin_encode(&word, body);
    tw_transport_send_control(t, (uint16_t)linked, TW_FRAME_TWIN, body, size);
}

/* Judges a control HELLO. Returns true if its connection is now held, or was refused. */
static bool hold_newcomer(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    const int linked = tw_peer_find(t, &hello->id);
    if (linked < 0) return false;
    const uint64_t process = tw_extensions_process(&hello->extensions);
    const enum tw_twin_verdict verdict = tw_twins_judge(&t->twins, &hello->id, process);
    if (verdict == TW_TWIN_NONE) return false;
    if (verdict == TW_TWIN_PROVEN) {
        question_send(conn, hello, linked, 0);
        newcomer_refuse(conn, hello, linked);
        return true;
    }
    if (verdict == TW_TWIN_ASK) {
        const uint64_t nonce = tw_held_number();
        if (nonce == 0) return false;
        question_send(conn, hello, linked, nonce);
    }
    unsigned at = 0;
    while (at < TW_HELD_MAX && t->held[at].conn != NULL) at++;
    /* A newcomer that this node dialled cannot be held: it considers the link up already and sends
     * on it. It is refused and dialled again. */
    if (conn->is_dialled || at == TW_HELD_MAX || held_find(t, &hello->id) != NULL) {
        tw_admit_refuse(conn, TW_AGAIN, WAITS);
    } else {
        t->held[at] = (struct tw_held){.conn = conn, .hello = *hello};
        conn->is_held = true;
    }
    tw_transport_soon(t);
    return true;
}

/* The answer proves that the linked process is alive, so the newcomer is a second machine. */
static void answer_take(struct tw_transport *t, int peer, uint64_t nonce) {
    const struct tw_id id = t->peers[peer].record.id;
    if (!tw_twins_answered(&t->twins, &id, nonce)) return;
    struct tw_held *held = held_find(t, &id);
    if (held != NULL) {
        newcomer_refuse(held->conn, &held->hello, peer);
        return;
    }
    /* The newcomer is not held: it left before the answer, or this node had dialled it. */
    const struct tw_twin_report report = {.id = id, .linked = slot_address(&t->peers[peer])};
    twin_report(t, &report);
}

void tw_held_frame(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_transport *t = conn->transport;
    struct tw_twin_word word;
    struct tw_error err;
    if (tw_twin_decode(frame->body, frame->body_bytes, &word, &err) != TW_OK) {
        tw_peer_blame(t, conn->peer, err.status, err.message);
        return;
    }
    if (word.is_answer) {
        answer_take(t, conn->peer, word.nonce);
        return;
    }
    const struct tw_twin_word answer = {.nonce = word.nonce, .is_answer = true};
    uint8_t body[TW_TWIN_BYTES_MAX];
    const uint32_t size = tw_twin_encode(&answer, body);
    tw_transport_send_control(t, (uint16_t)conn->peer, TW_FRAME_TWIN, body, size);
    tw_held_told(t, word.address);
}

/* Writes an address of this node, as the other end of `conn` would dial it. */
static void own_address(const struct tw_conn *conn, char address[TW_ADDR_BYTES]) {
    const struct tw_transport *t = conn->transport;
    struct sockaddr_storage own;
    char host[TW_ADDR_BYTES], text[TW_ADDR_BYTES];
    int size = sizeof(own);
    uint16_t port = 0, ignored = 0;
    address[0] = '\0';
    for (unsigned i = 0; i < TW_ADDRS_MAX && address[0] == '\0'; i++)
        tw_twin_address(t->self.addrs[i], address);
    if (address[0] != '\0' || !tw_address_split(t->self.addrs[0], host, &port)) return;
    if (uv_tcp_getsockname(&conn->link.tcp, (struct sockaddr *)&own, &size) != 0) return;
    tw_seen_address(&own, text);
    if (!tw_address_split(text, host, &ignored)) return;
    (void)snprintf(address, TW_ADDR_BYTES, strchr(host, ':') != NULL ? "[%.60s]:%u" : "%.60s:%u",
                   host, (unsigned)port);
}

/* ---- this node's own key ------------------------------------------------------------------- */

void tw_held_told(struct tw_transport *t, const char *text) {
    char address[TW_ADDR_BYTES];
    tw_twin_address(text, address);
    const struct tw_twin_report report = {.id = t->config.identity->id, .address = address};
    twin_report(t, &report);
}

/* Handles a control HELLO with this node's own id. */
static void meet_self(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    const uint64_t process = tw_extensions_process(&hello->extensions);
    char there[TW_ADDR_BYTES];
    if (process == 0 || process == t->process) {
        tw_admit_refuse(conn, TW_SELF, "");
        return;
    }
    tw_peer_address(conn, hello, there);
    tw_held_told(t, there);
    char here[TW_ADDR_BYTES];
    own_address(conn, here);
    tw_admit_refuse(conn, TW_TWIN, here);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Admits the newcomer, because the older link is gone. */
static void held_release(struct tw_held *held) {
    struct tw_conn *conn = held->conn;
    const struct tw_hello hello = held->hello;
    tw_held_forget(conn);
    if (conn->link.state == TW_LINK_GREETING) enter_peer(conn, &hello);
}

void tw_held_step(struct tw_transport *t, uint64_t now_us) {
    for (int i = 0; i < TW_PEERS_MAX && !t->is_closing; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP) continue;
        if (now_us < tw_twins_deadline_us(&t->twins, &slot->record.id)) continue;
        tw_twins_close(&t->twins, &slot->record.id);
        tw_peer_end(t, i, TW_AGAIN, "does not answer, and a newer process of the node is here");
        tw_peer_finish(t, i);
    }
    for (unsigned i = 0; i < TW_HELD_MAX && !t->is_closing; i++) {
        struct tw_held *held = &t->held[i];
        if (held->conn == NULL || held->conn->link.is_failed) continue;
        if (tw_peer_find(t, &held->hello.id) >= 0) continue;
        tw_twins_close(&t->twins, &held->hello.id);
        held_release(held);
    }
}

uint64_t tw_held_deadline_us(const struct tw_transport *t) {
    uint64_t next_us = UINT64_MAX;
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_slot *slot = &t->peers[i];
        if (slot->state != TW_SLOT_UP) continue;
        const uint64_t at_us = tw_twins_deadline_us(&t->twins, &slot->record.id);
        if (at_us < next_us) next_us = at_us;
    }
    return next_us;
}

/* ---- status -------------------------------------------------------------------------------- */

uint32_t tw_transport_twins(const struct tw_transport *t,
                            struct tw_twin_info twins[TW_TWIN_INFOS_MAX]) {
    const uint64_t now_us = tw_now_us();
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_KNOWN_MAX && count < TW_TWIN_INFOS_MAX; i++) {
        const struct tw_twin_row *row = &t->twins.rows[i];
        if (tw_id_is_zero(&row->id)) continue;
        if (tw_twins_find(&t->twins, &row->id, now_us) == NULL) continue;
        const int linked = tw_peer_find(t, &row->id);
        struct tw_twin_info *info = &twins[count++];
        *info = (struct tw_twin_info){.id = row->id};
        info->is_self = tw_id_equal(&row->id, &t->config.identity->id);
        (void)snprintf(info->address, sizeof(info->address), "%s", row->address);
        if (linked >= 0)
            (void)snprintf(info->linked, sizeof(info->linked), "%s",
                           slot_address(&t->peers[linked]));
    }
    return count;
}

/* ==== guests ================================================================================== */

/* Guests: nodes that present a ticket instead of the run secret, get a WELCOME and leave.
 *
 *   guest    HELLO (role guest, ticket's id, proven by its key)  -->
 *   inviter             <-- HELLO (role guest, proven by the key), WELCOME   or GOODBYE
 *   guest    GOODBYE -->
 *
 * The runtime judges the ticket. This file checks the rest of HELLO, as for any node. A guest never
 * gets a peer number. Its connection counts among the handshakes, with their time limit. */

/* ---- both sides ---------------------------------------------------------------------------- */

static void guest_hello_send(struct tw_conn *conn, const uint8_t *ticket_id, const uint8_t *key) {
    struct tw_hello hello;
    uint8_t body[TW_HELLO_BYTES_MAX];
    fill_hello(conn, TW_ROLE_GUEST, &hello);
    if (ticket_id != NULL)
        tw_extensions_add(&hello.extensions, TW_EXTENSION_TICKET, ticket_id, TW_TICKET_ID_BYTES);
    tw_extensions_add_name(&hello.extensions, conn->transport->config.name);
    tw_hello_prove_ticket(&hello, key, conn->ekm);
    conn->has_spoken = true;
    const uint32_t size = tw_hello_encode(&hello, body);
    const enum tw_status status = tw_link_send(&conn->link, TW_FRAME_HELLO, body, size);
    TW_ASSERT(status == TW_OK); /* the queue of a link has room for its first frame */
}

/* ---- guest ----------------------------------------------------------------------------- */

/* admit.c: connections with a ticket. */
static void guest_secured(struct tw_conn *conn) {
    const struct tw_dialling *dialling = conn->dialling;
    if (dialling != NULL) guest_hello_send(conn, dialling->ticket_id, dialling->ticket_key);
}

/* The inviter's HELLO must be proven with the ticket's key. */
static void inviter_hello_take(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_error err;
    if (conn->dialling == NULL) return; /* the dial was given up before the answer arrived */
    enum tw_status status =
        tw_hello_check_ticket(hello, conn->dialling->ticket_key, conn->ekm, &err);
    if (status == TW_OK) status = tw_link_admit(&conn->link, TW_ROLE_GUEST, &err);
    if (status != TW_OK) tw_admit_refuse(conn, status, err.message);
}

static void welcome_take(struct tw_conn *conn, const struct tw_frame *frame) {
    struct tw_transport *t = conn->transport;
    struct tw_dialling *dialling = conn->dialling;
    if (dialling == NULL) return;
    const struct tw_id id = conn->link.tls.id;
    if (t->config.events.welcomed != NULL)
        t->config.events.welcomed(t->config.user, frame->body, frame->body_bytes);
    tw_dialer_over(dialling, TW_OK, &id, "welcome");
    conn->deadline_us = UINT64_MAX;
    tw_link_close(&conn->link, TW_OK, "thank you");
}

/* ---- inviter --------------------------------------------------------------------------- */

static struct tw_conn *guest_find(struct tw_transport *t, uint32_t number) {
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = t->conns[i];
        if (conn == NULL || conn->guest != number || conn->link.is_failed) continue;
        return conn->link.state == TW_LINK_GREETING ? conn : NULL;
    }
    return NULL;
}

static void guest_hello_take(struct tw_conn *conn, const struct tw_hello *hello) {
    struct tw_transport *t = conn->transport;
    uint32_t size = 0;
    const uint8_t *ticket = tw_extensions_find(&hello->extensions, TW_EXTENSION_TICKET, &size);
    if (ticket == NULL || size != TW_TICKET_ID_BYTES || t->config.events.guest == NULL) {
        tw_admit_refuse(conn, TW_TICKET_UNKNOWN, "");
        return;
    }
    if (conn->guest != 0) { /* the guest repeats its HELLO while the first one waits for the disk */
        tw_admit_refuse(conn, TW_PROTO, "a second HELLO of a guest");
        return;
    }
    if (++t->guests_count == 0) t->guests_count = 1;
    conn->guest = t->guests_count;
    const struct tw_guest guest = {
        .number = conn->guest, .hello = hello, .ticket_id = ticket, .ekm = conn->ekm};
    t->config.events.guest(t->config.user, &guest);
}

void tw_transport_welcome(struct tw_transport *t, uint32_t guest, const uint8_t *ticket_key,
                          const uint8_t *body, uint32_t size) {
    struct tw_conn *conn = guest_find(t, guest);
    struct tw_error err;
    TW_ASSERT(size <= TW_WELCOME_BYTES_MAX);
    if (conn == NULL || t->is_closing) return;
    guest_hello_send(conn, NULL, ticket_key);
    if (tw_link_admit(&conn->link, TW_ROLE_GUEST, &err) != TW_OK) {
        tw_admit_refuse(conn, err.status, err.message);
        return;
    }
    conn->is_proven = true;
    const enum tw_status status = tw_link_send(&conn->link, TW_FRAME_WELCOME, body, size);
    TW_ASSERT(status == TW_OK); /* it fits: a WELCOME is far smaller than the control queue */
}

void tw_transport_turn_away(struct tw_transport *t, uint32_t guest, enum tw_status status,
                            const char *sentence) {
    struct tw_conn *conn = guest_find(t, guest);
    if (conn != NULL && !t->is_closing) tw_admit_refuse(conn, status, sentence);
}

/* ---- frames -------------------------------------------------------------------------------- */

/* Handles a guest's HELLO that is valid so far; its proof is not checked yet. */
static void guest_hello(struct tw_conn *conn, const struct tw_hello *hello) {
    if (conn->is_dialled)
        inviter_hello_take(conn, hello);
    else
        guest_hello_take(conn, hello);
}

static void guest_frame(struct tw_conn *conn, const struct tw_frame *frame) {
    TW_ASSERT(frame->kind == TW_FRAME_WELCOME); /* the link delivers no other kind of frame */
    if (conn->is_dialled)
        welcome_take(conn, frame);
    else
        tw_admit_refuse(conn, TW_PROTO, "a guest said WELCOME");
}
