/* call.c - links through a relay, at their two ends: PROTOCOL.md section 12.
 *
 *   caller  dials the relay, sends HELLO (role relay, token, called node's id)  tw_transport_call
 *   called  dials the relay, sends HELLO (role relay, token)                    tw_transport_answer
 *   both    receive the relay's HELLO: the connection is now an end of a pipe   tw_call_joined
 *
 * From then on it is an ordinary connection, which admit.c admits with the caller as its dialler.
 * Its bulk connection is a separate call through the same relay (dialer.c). */
#include <string.h>

#include <openssl/rand.h>

#include "base/assert.h"
#include "daemon/net/transport_impl.h"

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

bool tw_call_token(uint8_t token[TW_RELAY_TOKEN_BYTES]) {
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
    if (!tw_call_token(call.token)) return tw_fail(err, TW_IO, "no random bytes");
    return tw_dialer_relay(t, slot, &call, err);
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
    return tw_dialer_relay(t, slot, &call, err);
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
