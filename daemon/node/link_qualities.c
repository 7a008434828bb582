#include "daemon/node/link_qualities.h"

#include <stdlib.h>
#include <time.h>

#include "daemon/api/status_view.h"
#include "daemon/net/link_quality.h"
#include "daemon/net/transport.h"
#include "daemon/node/caps.h"
#include "daemon/store/cache_file.h"

enum {
    JUDGE_US = 1000 * 1000,
    /* Smaller changes of the upload rate are not reported: they would only move parts between
     * owners. */
    UPLOAD_STEP_PERCENT = 20,
};

static const char FILE_NAME[] = "crowd";

struct tw_daemon_link_qualities {
    struct tw_link_quality table;
    uint64_t judge_us;
    bool is_changed; /* a peer came up since the last TW_EV_MEASURED */
    char text[TW_LINK_QUALITY_FILE_MAX];
};

void tw_daemon_link_qualities_peer_up(struct tw_daemon *daemon, uint16_t peer) {
    struct tw_peer_net net = {.boot = 0};
    (void)tw_transport_peer(daemon->transport, peer, &net);
    tw_link_quality_up(&daemon->link_qualities->table, &daemon->peers[peer].id, net.boot,
                       tw_daemon_now_us());
    /* outliers are reported by peer number, and the node may have a new one */
    daemon->link_qualities->is_changed = true;
}

void tw_daemon_link_qualities_peer_down(struct tw_daemon *daemon, uint16_t peer,
                                        enum tw_status reason) {
    const enum tw_link_quality_end end = reason == TW_OK      ? TW_LINK_QUALITY_GOODBYE
                                         : reason == TW_AGAIN ? TW_LINK_QUALITY_SILENCE
                                                              : TW_LINK_QUALITY_BREAK;
    tw_link_quality_down(&daemon->link_qualities->table, &daemon->peers[peer].id, end,
                         tw_daemon_now_us());
}

static void measure_peer(struct tw_daemon *daemon, uint16_t peer, uint64_t now_us, bool *is_busy) {
    struct tw_peer_net net;
    if (!tw_transport_peer(daemon->transport, peer, &net)) return;
    const struct tw_link_quality_look look = {
        .is_pulling = tw_node_is_pulling(daemon->node, peer),
        .rtt_us = net.rtt_us,
        .path_bytes_s = net.path_bytes_per_s,
        .retransmits = net.retransmits,
        .segments = net.segments,
        .control_bytes = net.control.bytes_in,
    };
    tw_link_quality_look(&daemon->link_qualities->table, &daemon->peers[peer].id, &look, now_us);
    *is_busy |= net.chunks_queued > 0;
}

static uint64_t find_outliers(const struct tw_daemon *daemon) {
    uint64_t outliers = 0;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (!daemon->peers[i].is_up) continue;
        const struct tw_link_quality_peer *peer =
            tw_link_quality_find(&daemon->link_qualities->table, &daemon->peers[i].id);
        if (peer != NULL && tw_link_quality_is_odd(peer)) outliers |= UINT64_C(1) << i;
    }
    return outliers;
}

static bool is_far(uint32_t sent, uint32_t now) {
    const uint32_t step = sent / 100 * UPLOAD_STEP_PERCENT;
    return sent == 0 ? now != 0 : now > sent + step || now + step < sent;
}

static void note_anomaly(struct tw_daemon *daemon, uint16_t i, bool was_outlier, bool is_outlier) {
    char hex[9], evidence[TW_LINK_QUALITY_TEXT_BYTES];
    const struct tw_link_quality_peer *peer =
        tw_link_quality_find(&daemon->link_qualities->table, &daemon->peers[i].id);
    if (was_outlier == is_outlier || peer == NULL) return;
    tw_id_short(&peer->id, hex);
    tw_link_quality_evidence(peer, evidence);
    if (is_outlier)
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_out_of_line", "peer=%s text=\"%s\"", hex,
                       evidence);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "peer_in_line", "peer=%s", hex);
}

static void tell_core(struct tw_daemon *daemon) {
    struct tw_daemon_measured *measured = &daemon->measured;
    struct tw_daemon_link_qualities *qualities = daemon->link_qualities;
    const uint64_t kib = qualities->table.upload_bytes_s / 1024;
    const uint32_t upload = kib < UINT32_MAX ? (uint32_t)kib : UINT32_MAX;
    const uint64_t outliers = find_outliers(daemon);
    if (!qualities->is_changed && outliers == measured->outliers &&
        !is_far(measured->upload_kib_s, upload))
        return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up)
            note_anomaly(daemon, i, (measured->outliers >> i & 1) != 0, (outliers >> i & 1) != 0);
    }
    if (is_far(measured->upload_kib_s, upload)) measured->upload_kib_s = upload;
    measured->outliers = outliers;
    qualities->is_changed = false;
    tw_daemon_event_measured(daemon);
}

void tw_daemon_link_qualities_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_link_qualities *qualities = daemon->link_qualities;
    bool is_busy = false;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up) measure_peer(daemon, i, now_us, &is_busy);
    }
    if (now_us < qualities->judge_us) return;
    qualities->judge_us = now_us + JUDGE_US;
    tw_link_quality_sent(&qualities->table, tw_transport_traffic(daemon->transport).bytes_out,
                         is_busy, tw_daemon_caps_upload(daemon), now_us);
    tw_link_quality_judge(&qualities->table, now_us);
    tell_core(daemon);
}

void tw_daemon_link_qualities_arrived(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
    const bool is_last = !tw_node_is_pulling(daemon->node, peer);
    tw_link_quality_arrived(&daemon->link_qualities->table, &daemon->peers[peer].id, bytes, is_last,
                            tw_daemon_now_us());
}

void tw_daemon_link_qualities_fill(const struct tw_daemon *daemon, uint16_t peer, uint64_t now_us,
                                   struct tw_view_peer *row) {
    const struct tw_link_quality_peer *of =
        tw_link_quality_find(&daemon->link_qualities->table, &daemon->peers[peer].id);
    if (of == NULL) return;
    if (of->rtt_us > 0) row->rtt_us = of->rtt_us;
    row->in_bytes_s = of->in_bytes_s;
    row->out_bytes_s = of->out_bytes_s;
    if (of->has_loss) row->loss = (double)of->loss_ppm / 1e6;
    row->reliability = (double)tw_link_quality_reliability(of, now_us) / 1e3;
    tw_link_quality_evidence(of, row->anomaly);
}

/* ---- life ---------------------------------------------------------------------------------- */

static uint64_t wall_s(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

enum tw_status tw_daemon_link_qualities_open(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_link_qualities *qualities = tw_daemon_alloc(sizeof(*qualities), err);
    if (qualities == NULL) return TW_NOMEM;
    daemon->link_qualities = qualities;
    if (!daemon->setup->config.network.links) return TW_OK;
    const size_t size = tw_cache_file_load(daemon->setup->run_state_dir, FILE_NAME, qualities->text,
                                           TW_LINK_QUALITY_FILE_MAX);
    const uint32_t skipped = tw_link_quality_decode(&qualities->table, qualities->text, size,
                                                    tw_daemon_now_us(), wall_s());
    if (skipped > 0) tw_log(TW_LOG_WARN, "link_qualities_damaged", "lines_skipped=%u", skipped);
    return TW_OK;
}

void tw_daemon_link_qualities_save(struct tw_daemon *daemon) {
    struct tw_daemon_link_qualities *qualities = daemon->link_qualities;
    if (daemon->transport == NULL) return;
    const size_t size =
        tw_link_quality_encode(&qualities->table, qualities->text, tw_daemon_now_us(), wall_s());
    tw_cache_file_save(daemon->setup->run_state_dir, FILE_NAME, qualities->text, size);
}

void tw_daemon_link_qualities_free(struct tw_daemon *daemon) {
    free(daemon->link_qualities);
}
