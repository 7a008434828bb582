/* link_qualities.c - measuring peers, and telling the core what it should know of them. */
#include <string.h>

#include "daemon/node/runtime.h"

enum {
    JUDGE_US = 1000 * 1000,
    UPLOAD_STEP_PERCENT = 20, /* a smaller change would move every part for nothing */
};

void tw_daemon_link_quality_peer_up(struct tw_daemon *daemon, uint16_t peer) {
    tw_link_quality_up(&daemon->quality.quality, &daemon->peers[peer].id, tw_daemon_now_us());
    daemon->quality.is_changed = true; /* it may be known, by another number */
}

void tw_daemon_link_quality_peer_down(struct tw_daemon *daemon, uint16_t peer,
                                      enum tw_status reason) {
    tw_link_quality_down(&daemon->quality.quality, &daemon->peers[peer].id, reason != TW_OK,
                         tw_daemon_now_us());
}

static void look(struct tw_daemon *daemon, uint16_t peer, uint64_t now_us, bool *is_busy) {
    struct tw_peer_net net;
    if (!tw_transport_peer(daemon->transport, peer, &net)) return;
    const struct tw_link_quality_look look = {
        .is_pulling = tw_node_is_pulling(daemon->node, peer),
        .rtt_us = net.rtt_us,
        .path_bytes_s = net.path_bytes_per_s,
        .retransmits = net.retransmits,
        .segments = net.segments,
    };
    tw_link_quality_look(&daemon->quality.quality, &daemon->peers[peer].id, &look, now_us);
    *is_busy |= net.chunks_queued > 0;
}

static uint64_t odd_peers(const struct tw_daemon *daemon) {
    uint64_t odd = 0;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (!daemon->peers[i].is_up) continue;
        const struct tw_link_quality_peer *peer =
            tw_link_quality_find(&daemon->quality.quality, &daemon->peers[i].id);
        if (peer != NULL && tw_link_quality_is_odd(peer)) odd |= UINT64_C(1) << i;
    }
    return odd;
}

static bool is_far(uint32_t told, uint32_t now) {
    const uint32_t step = told / 100 * UPLOAD_STEP_PERCENT;
    return told == 0 ? now != 0 : now > told + step || now + step < told;
}

static void anomaly_note(struct tw_daemon *daemon, uint16_t i, bool was_odd, bool is_odd) {
    char hex[9], evidence[TW_LINK_QUALITY_TEXT_BYTES];
    const struct tw_link_quality_peer *peer =
        tw_link_quality_find(&daemon->quality.quality, &daemon->peers[i].id);
    if (was_odd == is_odd || peer == NULL) return;
    tw_id_short(&peer->id, hex);
    tw_link_quality_evidence(peer, evidence);
    if (is_odd)
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_out_of_line", "peer=%s text=\"%s\"", hex,
                       evidence);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "peer_in_line", "peer=%s", hex);
}

void tw_daemon_link_quality_tell(struct tw_daemon *daemon) {
    struct tw_event event;
    memset(&event, 0, sizeof(event));
    event.kind = TW_EV_MEASURED;
    event.u.measured.upload_kib_s = daemon->quality.upload_kib_s;
    event.u.measured.odd = daemon->quality.odd;
    event.u.measured.is_short = daemon->budget.is_short;
    tw_daemon_event(daemon, &event);
}

static void tell(struct tw_daemon *daemon) {
    struct tw_daemon_link_quality *quality = &daemon->quality;
    const uint64_t kib = quality->quality.upload_bytes_s / 1024;
    const uint32_t upload = kib < UINT32_MAX ? (uint32_t)kib : UINT32_MAX;
    const uint64_t odd = odd_peers(daemon);
    if (!quality->is_changed && odd == quality->odd && !is_far(quality->upload_kib_s, upload))
        return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up)
            anomaly_note(daemon, i, (quality->odd >> i & 1) != 0, (odd >> i & 1) != 0);
    }
    if (is_far(quality->upload_kib_s, upload)) quality->upload_kib_s = upload;
    quality->odd = odd;
    quality->is_changed = false;
    tw_daemon_link_quality_tell(daemon);
}

void tw_daemon_link_quality_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_link_quality *quality = &daemon->quality;
    bool is_busy = false;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up) look(daemon, i, now_us, &is_busy);
    }
    if (now_us < quality->judge_us) return;
    quality->judge_us = now_us + JUDGE_US;
    tw_link_quality_sent(&quality->quality, tw_transport_traffic(daemon->transport).bytes_out,
                         is_busy, daemon->caps.upload_now, now_us);
    tw_link_quality_judge(&quality->quality, now_us);
    tell(daemon);
}

void tw_daemon_link_quality_arrived(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
    const bool is_last = !tw_node_is_pulling(daemon->node, peer);
    tw_link_quality_arrived(&daemon->quality.quality, &daemon->peers[peer].id, bytes, is_last,
                            tw_daemon_now_us());
}

void tw_daemon_link_quality_fill(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                 struct tw_view_peer *row) {
    const struct tw_link_quality_peer *of =
        tw_link_quality_find(&daemon->quality.quality, &daemon->peers[peer].id);
    if (of == NULL) return;
    if (of->rtt_us > 0) row->rtt_us = of->rtt_us;
    row->in_bytes_s = of->in_bytes_s;
    row->out_bytes_s = of->out_bytes_s;
    if (of->has_loss) row->loss = (double)of->loss_ppm / 1e6;
    row->reliability = (double)tw_link_quality_reliability(of, now_us) / 1e3;
    tw_link_quality_evidence(of, row->anomaly);
}
