/* held.c - a second process with the key of a linked node. Before the linked process is replaced,
 * it is asked whether it is alive (twin.h). Meanwhile the newcomer is *held*: its HELLO has no
 * answer yet. */
#include <stdio.h>
#include <string.h>

#include <openssl/rand.h>

#include "base/address.h"
#include "base/bytes.h"
#include "daemon/net/transport_impl.h"
#include "proto/twin.h"

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

bool tw_held_take(struct tw_conn *conn, const struct tw_hello *hello) {
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

void tw_held_self(struct tw_conn *conn, const struct tw_hello *hello) {
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
    if (conn->link.state == TW_LINK_GREETING) tw_admit_enter(conn, &hello);
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
