/* outgoing.c - connections this node opens: to addresses it was told to dial, and bulk to peers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/transport_impl.h"

static void on_connect(uv_connect_t *request, int code) {
    struct tw_conn *conn = request->data;
    struct tw_error err;
    if (conn->link.state != TW_LINK_OPENING || conn->link.is_failed) return;
    struct tw_dialling *dialling = conn->dialling;
    if (code != 0) {
        if (dialling != NULL)
            dialling->cause =
                tw_dial_cause_of_errno(code, tw_now_us() - dialling->candidate_us, &conn->remote);
        (void)tw_fail(&err, TW_IO, "%s", uv_strerror(code));
        tw_link_fail(&conn->link, &err);
        return;
    }
    const struct tw_id *expected = NULL;
    if (conn->bulk_of >= 0) expected = &conn->transport->peers[conn->bulk_of].record.id;
    if (dialling != NULL && dialling->has_expected) expected = &dialling->expected;
    conn->deadline_us = tw_now_us() + conn->transport->config.handshake_us;
    if (tw_link_secure(&conn->link, &conn->transport->tls, true, expected, &err) != TW_OK)
        tw_link_fail(&conn->link, &err);
}

/* NULL: *err and, where the system told it, *cause say why, and nothing is left. */
static struct tw_conn *conn_dial(struct tw_transport *t, const struct sockaddr_storage *to,
                                 enum tw_role role, enum tw_dial_cause *cause,
                                 struct tw_error *err) {
    struct tw_conn *conn = tw_conn_create(t, err);
    if (conn == NULL) return NULL;
    conn->is_dialled = true;
    conn->role = role;
    conn->remote = *to;
    conn->connect.data = conn;
    const int code = uv_tcp_connect(&conn->connect, &conn->link.tcp,
                                    (const struct sockaddr *)&conn->remote, on_connect);
    if (code == 0) return conn;
    *cause = tw_dial_cause_of_errno(code, 0, &conn->remote);
    (void)tw_fail(err, TW_IO, "%s", uv_strerror(code));
    tw_link_abort(&conn->link);
    return NULL;
}

enum tw_status tw_outgoing_bulk(struct tw_transport *t, int peer, struct tw_error *err) {
    struct tw_slot *slot = &t->peers[peer];
    enum tw_dial_cause ignored = TW_DIAL_NONE;
    struct tw_conn *conn = conn_dial(t, &slot->control->remote, TW_ROLE_BULK, &ignored, err);
    if (conn == NULL) return err->status;
    conn->bulk_of = peer;
    slot->bulk_dial = conn;
    return TW_OK;
}

/* ---- control ------------------------------------------------------------------------------- */

static void on_lookup(struct tw_lookup *lookup) {
    struct tw_dialling *dialling =
        (struct tw_dialling *)((char *)lookup - offsetof(struct tw_dialling, lookup));
    struct tw_transport *t = dialling->transport;
    if (dialling->is_orphan) {
        TW_ASSERT(t->orphans_count > 0);
        t->orphans_count--;
        free(dialling);
    }
    tw_transport_soon(t);
}

enum tw_status tw_transport_connect(struct tw_transport *t, const char *address,
                                    const struct tw_id *expected, struct tw_error *err) {
    unsigned at = 0;
    while (at < TW_DIALS_MAX && t->dials[at] != NULL) at++;
    if (at == TW_DIALS_MAX)
        return tw_fail(err, TW_LIMIT, "%d dials are under way already", TW_DIALS_MAX);
    if (!tw_address_is_valid(address))
        return tw_fail(err, TW_CONFIG, "%.80s is not host:port", address);
    struct tw_dialling *dialling = calloc(1, sizeof(*dialling));
    if (dialling == NULL) return tw_fail(err, TW_NOMEM, "no memory for a dial");
    dialling->transport = t;
    (void)snprintf(dialling->address, sizeof(dialling->address), "%s", address);
    dialling->has_expected = expected != NULL;
    if (expected != NULL) dialling->expected = *expected;
    dialling->deadline_us = tw_now_us() + TW_CONNECT_US;
    const enum tw_status status =
        tw_lookup_start(&dialling->lookup, t->config.loop, address, on_lookup, err);
    if (status != TW_OK) {
        free(dialling);
        return status;
    }
    t->dials[at] = dialling;
    tw_transport_soon(t);
    return TW_OK;
}

void tw_outgoing_over(struct tw_dialling *dialling, enum tw_status status, const struct tw_id *id,
                      const char *sentence) {
    if (dialling->is_over) return;
    dialling->is_over = true;
    dialling->has_id = id != NULL;
    if (id != NULL) dialling->id = *id;
    (void)tw_fail(&dialling->result, status, "%s", sentence);
    if (dialling->conn != NULL) dialling->conn->dialling = NULL;
    dialling->conn = NULL;
    tw_transport_soon(dialling->transport);
}

/* Tries the next address of the name; the last failure is the answer. */
static void candidate_next(struct tw_transport *t, struct tw_dialling *dialling, uint64_t now_us) {
    struct tw_lookup *lookup = &dialling->lookup;
    struct tw_error err = lookup->error;
    while (dialling->next < lookup->count && now_us < dialling->deadline_us) {
        const uint32_t remaining = lookup->count - dialling->next;
        const struct sockaddr_storage *to = &lookup->candidates[dialling->next++];
        dialling->candidate_us = now_us;
        dialling->cause = TW_DIAL_NONE;
        dialling->conn = conn_dial(t, to, TW_ROLE_CONTROL, &dialling->cause, &err);
        if (dialling->conn == NULL) continue;
        dialling->conn->dialling = dialling;
        dialling->conn->deadline_us =
            now_us + tw_dial_share_us(now_us, dialling->deadline_us, remaining);
        return;
    }
    if (dialling->result.status != TW_OK) err = dialling->result;
    if (err.status == TW_OK) (void)tw_fail(&err, TW_IO, "nothing came back in time");
    if (lookup->count == 0) dialling->cause = TW_DIAL_DNS;
    tw_outgoing_over(dialling, err.status, NULL, err.message);
}

static void dial_tell(const struct tw_transport *t, const struct tw_dialling *dialling) {
    char sentence[TW_DIAL_SENTENCE_BYTES] = "connected";
    struct tw_dial_result result = {
        .status = dialling->result.status,
        .id = dialling->has_id ? &dialling->id : NULL,
        .sentence = sentence,
    };
    if (t->config.events.dial_done == NULL) return;
    if (result.status != TW_OK) {
        result.cause = dialling->cause != TW_DIAL_NONE ? dialling->cause
                                                       : tw_dial_cause_of_status(result.status);
        tw_dial_sentence(result.cause, dialling->address, dialling->result.message, sentence);
    }
    t->config.events.dial_done(t->config.user, dialling->address, &result);
}

static void dialling_step(struct tw_transport *t, unsigned at, uint64_t now_us) {
    struct tw_dialling *dialling = t->dials[at];
    if (!dialling->is_over && dialling->conn == NULL && dialling->lookup.is_done)
        candidate_next(t, dialling, now_us);
    if (!dialling->is_over) return;
    t->dials[at] = NULL;
    dial_tell(t, dialling);
    free(dialling);
}

void tw_outgoing_step(struct tw_transport *t, uint64_t now_us) {
    for (unsigned i = 0; i < TW_DIALS_MAX && !t->is_closing; i++) {
        if (t->dials[i] != NULL) dialling_step(t, i, now_us);
    }
}

void tw_outgoing_close(struct tw_transport *t) {
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) {
        struct tw_dialling *dialling = t->dials[i];
        t->dials[i] = NULL;
        if (dialling == NULL) continue;
        if (dialling->conn != NULL) dialling->conn->dialling = NULL;
        if (!dialling->lookup.is_busy) {
            free(dialling);
            continue;
        }
        dialling->is_orphan = true;
        t->orphans_count++;
        tw_lookup_cancel(&dialling->lookup);
    }
}
