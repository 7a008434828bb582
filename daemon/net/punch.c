/* punch.c - TCP hole punching (PROTOCOL.md section 13). Both ends of a relayed link dial each other
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
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/sockopt.h"
#include "daemon/net/transport_impl.h"

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
                                      ? tw_dialer_secure(conn, expected, &err)
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

struct tw_conn *tw_punch_spare(const struct tw_transport *t, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = t->conns[i];
        if (conn == NULL || !conn->is_spare || conn->link.is_failed) continue;
        if (conn->link.state == TW_LINK_OPENING && tw_id_equal(&conn->call.other, id)) return conn;
    }
    return NULL;
}
