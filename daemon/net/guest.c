/* guest.c - guests: nodes that present a ticket instead of the run secret, get a WELCOME and leave.
 *
 *   guest    HELLO (role guest, ticket's id, proven by its key)  -->
 *   inviter             <-- HELLO (role guest, proven by the key), WELCOME   or GOODBYE
 *   guest    GOODBYE -->
 *
 * The runtime judges the ticket. This file checks the rest of HELLO, as for any node. A guest never
 * gets a peer number. Its connection counts among the handshakes, with their time limit. */
#include <string.h>

#include "base/assert.h"
#include "daemon/net/transport_impl.h"

/* ---- both sides ---------------------------------------------------------------------------- */

static void hello_send(struct tw_conn *conn, const uint8_t *ticket_id, const uint8_t *key) {
    struct tw_hello hello;
    uint8_t body[TW_HELLO_BYTES_MAX];
    tw_admit_hello(conn, TW_ROLE_GUEST, &hello);
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

void tw_guest_secured(struct tw_conn *conn) {
    const struct tw_dialling *dialling = conn->dialling;
    if (dialling != NULL) hello_send(conn, dialling->ticket_id, dialling->ticket_key);
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
    hello_send(conn, NULL, ticket_key);
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

void tw_guest_hello(struct tw_conn *conn, const struct tw_hello *hello) {
    if (conn->is_dialled)
        inviter_hello_take(conn, hello);
    else
        guest_hello_take(conn, hello);
}

void tw_guest_frame(struct tw_conn *conn, const struct tw_frame *frame) {
    TW_ASSERT(frame->kind == TW_FRAME_WELCOME); /* the link delivers no other kind of frame */
    if (conn->is_dialled)
        welcome_take(conn, frame);
    else
        tw_admit_refuse(conn, TW_PROTO, "a guest said WELCOME");
}
