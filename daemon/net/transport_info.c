/* transport_info.c - statistics of a transport's links: bytes at the socket, round trips. */
#include <string.h>

#include "base/assert.h"
#include "daemon/net/reachability.h"
#include "daemon/net/transport_impl.h"

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
        if (t->conns[i] != NULL && tw_conn_is_stranger(t->conns[i]))
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
