#include "daemon/node/links.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rate.h"
#include "daemon/api/known_peers.h"
#include "daemon/api/status_view.h"
#include "daemon/net/bans.h"
#include "daemon/net/dial.h"
#include "daemon/net/link_quality.h"
#include "daemon/net/reachability.h"
#include "daemon/net/socket.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/archive.h"
#include "daemon/node/caps.h"
#include "daemon/node/data.h"
#include "daemon/node/invites.h"
#include "daemon/node/reports.h"
#include "daemon/node/ways.h"
#include "daemon/router/dial_budget.h"
#include "daemon/store/file.h"
#include "daemon/workerlink/worker_host.h"
#include "proto/control.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "sync/fetch/fetch.h"
#include "sync/members/members.h"

/* ==== measured links ========================================================================== */

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

static void qualities_peer_up(struct tw_daemon *daemon, uint16_t peer) {
    struct tw_peer_net net = {.boot = 0};
    (void)tw_transport_peer(daemon->transport, peer, &net);
    tw_link_quality_up(&daemon->link_qualities->table, &daemon->peers[peer].id, net.boot,
                       tw_daemon_now_us());
    /* outliers are reported by peer number, and the node may have a new one */
    daemon->link_qualities->is_changed = true;
}

static void qualities_peer_down(struct tw_daemon *daemon, uint16_t peer, enum tw_status reason) {
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

static void qualities_tick(struct tw_daemon *daemon, uint64_t now_us) {
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

/* Called when payload bytes arrived, after the core was given their TW_EV_CHUNK. */
static void qualities_arrived(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
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

static void qualities_save(struct tw_daemon *daemon) {
    struct tw_daemon_link_qualities *qualities = daemon->link_qualities;
    if (daemon->transport == NULL) return;
    const size_t size =
        tw_link_quality_encode(&qualities->table, qualities->text, tw_daemon_now_us(), wall_s());
    tw_cache_file_save(daemon->setup->run_state_dir, FILE_NAME, qualities->text, size);
}

void tw_daemon_link_qualities_free(struct tw_daemon *daemon) {
    free(daemon->link_qualities);
}

/* ==== links =================================================================================== */

enum {
    GOSSIP_US = 10 * 1000 * 1000,
    NEWS_US = 1000 * 1000, /* least time between two PEERS messages sent because of new peers */
    FRESH_PAUSE_S = 10,    /* time between two events about nodes that are not wanted, neither
                              members nor configured */
    FRESH_BURST = 8,
    REFRESH_US = 2 * 1000 * 1000,
    MINUTE_US = 60 * 1000 * 1000,
    UNASKED_MAX = 64, /* unrequested chunks that a peer may send before its link is closed */
};

static const char MEMBERS_NAME[] = "members", HOSTS_NAME[] = "hosts", KNOWN_NAME[] = "known";

struct tw_daemon_links {
    struct tw_rate fresh_events; /* rate limit of events about links of nodes that are not wanted */
    struct tw_dial_history dials;
    uv_interface_address_t *interfaces; /* of this machine, at the last look; owned */
    int interfaces_count;
    struct tw_dial_budget dial_budget; /* of addresses that no dial has proved */
    /* Chunks queued at the transport, by row of the payload pool. */
    uint32_t sends[TW_PAYLOADS_MAX];
    uint64_t gossip_due_us, minute_due_us;
    uint64_t news_due_us;    /* earliest time of the next PEERS message because of new peers */
    bool has_news;           /* a peer came up since the last PEERS message */
    uint64_t refresh_due_us; /* time of the next check of this machine's addresses */
    /* Control traffic of each linked peer up to the last tick. */
    struct tw_traffic control[TW_PEERS_MAX];
    struct tw_traffic bulk[TW_PEERS_MAX]; /* bulk traffic of each linked peer up to the last tick */
    struct tw_traffic bulk_gone;          /* bulk traffic of links that have ended */
    char members_text[TW_MEMBERS_TEXT_MAX]; /* also for the text of the known nodes */
};

_Static_assert((int)TW_MEMBERS_TEXT_MAX >= (int)TW_KNOWN_TEXT_MAX, "one buffer holds either text");

_Static_assert((int)TW_DIAL_HISTORY_CONFIGURED == (int)TW_BOOTSTRAP_MAX &&
                   (int)TW_VIEW_BOOTSTRAP_MAX == (int)TW_BOOTSTRAP_MAX,
               "every configured address is shown");

/* ---- sending ------------------------------------------------------------------------------- */

static void end_sends(struct tw_daemon *daemon, uint32_t row, uint32_t count) {
    daemon->links->sends[row] -= count;
    if (daemon->links->sends[row] == 0) tw_pool_release(&daemon->host->payloads.pool, row);
}

void tw_daemon_links_chunk(struct tw_daemon *daemon, const struct tw_action *action) {
    struct tw_payloads *payloads = &daemon->host->payloads;
    struct tw_chunk chunk = {.payload = action->u.payload.hash, .idx = action->u.payload.idx};
    uint32_t row;
    if (daemon->transport == NULL) return;
    if (tw_transport_has_chunk(daemon->transport, action->peer, &chunk.payload, chunk.idx)) return;
    if (tw_payloads_chunk_get(payloads, &chunk.payload, chunk.idx, &chunk.bytes, &chunk.size,
                              &row) != TW_OK) {
        return;
    }
    /* All queued chunks of a row share one reference to the payload, because a drop releases all of
     * them at once. */
    if (daemon->links->sends[row]++ > 0) tw_pool_release(&payloads->pool, row);
    if (tw_transport_send_chunk(daemon->transport, action->peer, &chunk))
        tw_daemon_caps_queued(daemon, action->peer, &chunk, row);
    else
        end_sends(daemon, row, 1); /* the link is closing */
}

static void on_released(void *user, uint16_t peer, const struct tw_chunk *chunk, bool sent) {
    struct tw_daemon *daemon = user;
    if (tw_daemon_data_released(daemon, peer, chunk, sent)) return;
    const int row = tw_payloads_row_at(&daemon->host->payloads, chunk->bytes);
    if (sent) daemon->counts.payload_out_bytes += chunk->size;
    if (row < 0 || daemon->links->sends[row] == 0) return;
    if (!tw_id_equal(&daemon->host->payloads.pool.rows[row].hash, &chunk->payload)) return;
    if (!sent) tw_daemon_caps_unsent(daemon, peer, chunk, row);
    end_sends(daemon, (uint32_t)row, 1);
}

void tw_daemon_links_drop(struct tw_daemon *daemon, const struct tw_id *payload) {
    const int row = tw_pool_find(&daemon->host->payloads.pool, payload);
    if (daemon->transport == NULL || row < 0 || daemon->links->sends[row] == 0) return;
    tw_transport_drop(daemon->transport, payload);
    end_sends(daemon, (uint32_t)row, daemon->links->sends[row]);
}

/* ---- arriving ------------------------------------------------------------------------------ */

/* Returns false, and closes the link, if the peer sends too many unrequested chunks. An honest
 * peer sends few, because it sends each requested chunk once. */
static bool is_asked(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
    struct tw_daemon_peer *from = &daemon->peers[peer];
    if (from->chunks_asked > 0) {
        from->chunks_asked--;
        daemon->counts.asked_in_bytes += bytes;
        return true;
    }
    if (++from->chunks_unasked <= UNASKED_MAX) return true;
    tw_transport_blame(daemon->transport, peer, TW_PROTO, "it sends chunks that nobody asked for");
    return false;
}

static void take_chunk(struct tw_daemon *daemon, uint16_t peer, const struct tw_frame *frame) {
    struct tw_fetch_arrival chunk = {.peer = peer};
    struct tw_error err = {0};
    const uint8_t *bytes;
    if (tw_frame_chunk_decode(frame, &chunk.hash, &chunk.idx, &bytes, &chunk.size, &err) != TW_OK) {
        tw_transport_blame(daemon->transport, peer, TW_PROTO, err.message);
        return;
    }
    if (!is_asked(daemon, peer, chunk.size)) return;
    if (tw_daemon_data_chunk(daemon, &chunk, bytes)) return;
    daemon->counts.payload_in_bytes += chunk.size;
    /* A late, repeated or unrequested chunk must not overwrite bytes in the pool. */
    if (!tw_node_wants_chunk(daemon->node, peer, &chunk.hash, chunk.idx)) {
        /* If the payload is still in the pool, this chunk arrived twice. */
        if (tw_pool_find(&daemon->host->payloads.pool, &chunk.hash) >= 0)
            daemon->counts.payload_again_bytes += chunk.size;
        return;
    }
    const enum tw_status status =
        tw_payloads_chunk_put(&daemon->host->payloads, &chunk.hash, chunk.idx, bytes, chunk.size);
    if (status == TW_OK) {
        const struct tw_event event = {
            .kind = TW_EV_CHUNK, .peer = peer, .u.chunk = {.hash = chunk.hash, .idx = chunk.idx}};
        tw_daemon_event(daemon, &event);
        qualities_arrived(daemon, peer, chunk.size);
    } else if (status != TW_AGAIN) { /* TW_AGAIN: requested, but not needed any more */
        tw_transport_close(daemon->transport, peer, status,
                           "it sent a chunk that does not fit its payload");
    }
}

/* Returns true if the teller may tell of the address. The address of a relayed peer is not known.
 * But a peer behind this node's own router may tell of its own address in their network. */
static bool may_tell(const struct tw_daemon *daemon, const struct tw_peer_net *teller,
                     const struct tw_id *of, const char *text) {
    const char *const from = teller->is_relayed ? "" : teller->address;
    if (tw_reachability_may_tell(from, text, false)) return true;
    if (!tw_local_address_is_on_link(daemon->links->interfaces, daemon->links->interfaces_count,
                                     text))
        return false;
    if (tw_reachability_may_tell(from, text, true)) return true;
    return teller->is_neighbour && tw_id_equal(of, &teller->id) &&
           tw_reachability_is_private(text) && !tw_reachability_is_local(text);
}

/* Drops addresses that the teller may not tell of: they may lead to machines of this network that
 * run no node. */
static void sift_addresses(struct tw_daemon *daemon, uint16_t teller, struct tw_member_row *row) {
    struct tw_peer_net net = {.boot = 0};
    unsigned kept = 0;
    (void)tw_transport_peer(daemon->transport, teller, &net);
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        char text[TW_ADDR_BYTES];
        memcpy(text, row->addrs[i], sizeof(text));
        memset(row->addrs[i], 0, sizeof(row->addrs[i]));
        if (text[0] == '\0') continue;
        if (may_tell(daemon, &net, &row->id, text)) memcpy(row->addrs[kept++], text, sizeof(text));
    }
}

static void on_frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    struct tw_daemon *daemon = user;
    static struct tw_message message; /* static, because it is too large for the stack; only the
                                         loop uses it */
    struct tw_error err = {0};
    if (is_bulk) {
        take_chunk(daemon, peer, frame);
        return;
    }
    if (tw_daemon_admission_frame(daemon, peer, frame)) return;
    if (tw_control_decode(frame->kind, frame->body, frame->body_bytes, &message, &err) != TW_OK) {
        tw_transport_blame(daemon->transport, peer, TW_PROTO, err.message);
        return;
    }
    if (message.kind == TW_MSG_PEERS) {
        for (uint32_t i = 0; i < message.u.peers.count; i++)
            sift_addresses(daemon, peer, &message.u.peers.rows[i]);
        tw_members_merge(daemon->members, &daemon->peers[peer].id, &message.u.peers,
                         tw_daemon_now_us());
    }
    if (message.kind == TW_MSG_LEAVE) daemon->peers[peer].has_left = true;
    if (message.kind == TW_MSG_MISSING && message.u.missing.retry_s > 0)
        daemon->peers[peer].gives_none_us =
            tw_daemon_now_us() + message.u.missing.retry_s * UINT64_C(1000000);
    tw_daemon_probes_message(daemon, peer, &message);
    tw_daemon_relays_message(daemon, peer, &message);
    tw_daemon_punches_message(daemon, peer, &message);
    if (tw_daemon_data_message(daemon, peer, &message)) return;
    if (message.kind == TW_MSG_PULL && !tw_daemon_caps_pull(daemon, peer, &message.u.pull)) return;
    const struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = peer, .u.message = &message};
    tw_daemon_event(daemon, &event);
}

/* ---- peers --------------------------------------------------------------------------------- */

/* Returns true if all peers are to be sent PEERS: regularly, and soon after a new peer. A pause in
 * between keeps a series of new links from causing a PEERS each. */
static bool is_gossip_due(const struct tw_daemon_links *links, uint64_t now_us) {
    return now_us >= links->gossip_due_us || (links->has_news && now_us >= links->news_due_us);
}

static void send_gossip(struct tw_daemon *daemon, uint16_t peer) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PEERS;
    tw_members_records(daemon->members, tw_daemon_now_us(), &message.u.peers);
    tw_daemon_send(daemon, peer, &message);
}

static bool on_is_wanted(void *user, const struct tw_id *id) {
    struct tw_daemon *daemon = user;
    tw_node_view(daemon->node, &daemon->view);
    return tw_members_is_bootstrap(daemon->members, id) || tw_daemon_is_partner(daemon, id) ||
           tw_roster_find(&daemon->view.roster, id) >= 0;
}

/* Writes one line to the log. If `is_event`, also adds one row to /v1/events. */
static void TW_PRINTF(5, 6)
    note_link(struct tw_daemon *daemon, bool is_event, enum tw_log_level level, const char *name,
              const char *fmt, ...) {
    char text[TW_VIEW_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (is_event)
        tw_daemon_note(daemon, level, name, "%s", text);
    else
        tw_log(level, name, "%s", text);
}

/* Returns true if a link of this node is to be shown as an event. Nodes that are not wanted come
 * and go, and only few of their links are shown: many would displace other events. The log has all
 * links. */
static bool is_event(struct tw_daemon *daemon, const struct tw_id *id) {
    struct tw_rate *fresh = &daemon->links->fresh_events;
    if (on_is_wanted(daemon, id)) return true;
    if (tw_rate_wait_us(fresh, FRESH_PAUSE_S, tw_daemon_now_us()) > 0) return false;
    tw_rate_spend(fresh, FRESH_PAUSE_S, tw_daemon_now_us());
    return true;
}

/* Logs the link. Returns true if it runs through a relay. */
static bool note_peer_up(struct tw_daemon *daemon, uint16_t peer,
                         const struct tw_member_row *hello) {
    struct tw_peer_net net = {.is_relayed = false};
    char hex[9], name[TW_KNOWN_LABEL_BYTES], via[9] = "none";
    (void)tw_transport_peer(daemon->transport, peer, &net);
    tw_known_peers_linked(daemon->known, &hello->id, net.name, tw_daemon_now_us());
    tw_members_rest(daemon->members, &hello->id, 0);
    if (net.is_relayed) tw_id_short(&net.relay, via);
    tw_id_short(&hello->id, hex);
    daemon->peers[peer].is_event = is_event(daemon, &hello->id);
    note_link(daemon, daemon->peers[peer].is_event, TW_LOG_INFO, "peer_up",
              "peer=%s name=%s addr=%s via=%s", hex,
              tw_known_peers_label(daemon->known, &hello->id, name),
              hello->addrs[0][0] != '\0' ? hello->addrs[0] : "none", via);
    return net.is_relayed;
}

static void on_peer_up(void *user, uint16_t peer, const struct tw_member_row *hello) {
    struct tw_daemon *daemon = user;
    const struct tw_certs certs = tw_transport_certs(daemon->transport, peer);
    daemon->peers[peer] = (struct tw_daemon_peer){
        .is_up = true,
        .lacks_vote = daemon->setup->has_gate && !tw_certs_has_vote(&certs),
        .id = hello->id,
    };
    tw_daemon_archive_admitted(daemon, &hello->id, &certs);
    for (unsigned a = 0; a < TW_ADDRS_MAX && hello->addrs[a][0] != '\0'; a++)
        tw_dial_history_worked(&daemon->links->dials, hello->addrs[a]);
    tw_daemon_probes_peer_up(daemon);
    const bool is_relayed = note_peer_up(daemon, peer, hello);
    struct tw_member_row row = *hello;
    sift_addresses(daemon, peer, &row);
    if (is_relayed)
        tw_members_relayed(daemon->members, &row, tw_daemon_now_us());
    else
        tw_members_connected(daemon->members, &row, tw_daemon_now_us());
    tw_daemon_relays_peer_up(daemon, peer);
    struct tw_peer_net net = {.features = 0};
    (void)tw_transport_peer(daemon->transport, peer, &net);
    struct tw_event event = {.kind = TW_EV_PEER_UP,
                             .peer = peer,
                             .is_relayed = is_relayed,
                             .lacks_vote = daemon->peers[peer].lacks_vote,
                             .lacks_roles = (net.features & TW_FEATURE_ROLES) == 0};
    event.u.id = hello->id;
    tw_daemon_event(daemon, &event);
    tw_daemon_data_peer_up(daemon, peer, &hello->id);
    qualities_peer_up(daemon, peer);
    tw_daemon_admission_peer_up(daemon, peer);
    daemon->links->has_news = true;
}

/* Notes with which linked peers this node has merged. */
static void note_merged(struct tw_daemon *daemon) {
    tw_node_view(daemon->node, &daemon->view);
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up && daemon->view.peers[i].last_mixed_round > 0)
            tw_known_peers_merged(daemon->known, &daemon->peers[i].id);
    }
}

static void on_peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    struct tw_daemon *daemon = user;
    char hex[9], name[TW_KNOWN_LABEL_BYTES];
    tw_id_short(&daemon->peers[peer].id, hex);
    const bool is_event =
        daemon->peers[peer].is_event || on_is_wanted(daemon, &daemon->peers[peer].id);
    const struct tw_id *const id = &daemon->peers[peer].id;
    note_merged(daemon);
    tw_known_peers_parted(daemon->known, id, reason, daemon->peers[peer].has_left, sentence,
                          tw_daemon_now_us());
    const bool is_polite = tw_known_peers_is_absent(daemon->known, id, tw_daemon_now_us());
    note_link(daemon, is_event, is_polite ? TW_LOG_INFO : TW_LOG_WARN, "peer_down",
              "peer=%s name=%s reason=%s text=\"%s\"", hex,
              tw_known_peers_label(daemon->known, id, name), tw_status_name(reason),
              sentence != NULL ? sentence : "");
    tw_members_disconnected(daemon->members, &daemon->peers[peer].id, tw_daemon_now_us());
    tw_daemon_relays_peer_down(daemon, peer);
    qualities_peer_down(daemon, peer, reason);
    daemon->links->bulk_gone.bytes_in += daemon->links->bulk[peer].bytes_in;
    daemon->links->bulk_gone.bytes_out += daemon->links->bulk[peer].bytes_out;
    daemon->links->control[peer] = daemon->links->bulk[peer] = (struct tw_traffic){0};
    daemon->peers[peer] = (struct tw_daemon_peer){0};
    const struct tw_event event = {.kind = TW_EV_PEER_DOWN, .peer = peer};
    tw_daemon_event(daemon, &event);
    tw_daemon_data_peer_down(daemon, peer);
    tw_daemon_admission_peer_down(daemon, peer);
}

/* Returns true if a failed dial tells a person nothing. Addresses from other nodes may be old: then
 * the member that they belonged to left, or another one has them now. */
static bool is_no_news(struct tw_daemon *daemon, const char *address, enum tw_dial_cause cause) {
    const bool is_configured = tw_dial_history_is_configured(&daemon->links->dials, address);
    bool is_known = false, is_missed = is_configured && tw_dial_is_refusal(cause);
    for (uint32_t e = 0; e < TW_KNOWN_MAX; e++) {
        const struct tw_member_entry *entry = &daemon->members->entries[e];
        for (unsigned a = 0; entry->is_used && entry->has_id && a < TW_ADDRS_MAX; a++) {
            if (strcmp(entry->addrs[a].text, address) != 0) continue;
            is_known = true;
            is_missed |= !tw_known_peers_is_absent(daemon->known, &entry->id, tw_daemon_now_us()) &&
                         (entry->was_connected || on_is_wanted(daemon, &entry->id));
        }
    }
    return (cause == TW_DIAL_WRONG_ID && !is_configured) || (is_known && !is_missed);
}

static void note_dial_failed(struct tw_daemon *daemon, const char *address,
                             const struct tw_dial_result *result) {
    const bool is_other = result->cause == TW_DIAL_WRONG_ID;
    if (is_no_news(daemon, address, result->cause)) {
        tw_log(TW_LOG_DEBUG, "dial_failed", "addr=%s text=\"%s\"", address, result->sentence);
        return;
    }
    const struct tw_dial_failure failure = {.cause = result->cause,
                                            .sentence = result->sentence,
                                            .other = is_other ? result->id : NULL};
    uint64_t held_back;
    if (!tw_dial_history_failed(&daemon->links->dials, address, &failure, tw_daemon_now_us(),
                                &held_back))
        return;
    const struct tw_dial_row *row = tw_dial_history_find(&daemon->links->dials, address);
    note_link(daemon, tw_dial_history_is_event(&daemon->links->dials, address), TW_LOG_WARN,
              tw_dial_is_refusal(result->cause) ? "peer_refused" : "dial_failed",
              "addr=%s reason=%s failures=%u text=\"%s\" held_back=%llu", address,
              tw_dial_cause_name(result->cause), row != NULL ? row->failures : 1, result->sentence,
              (unsigned long long)held_back);
}

static bool is_linked_at_all(const struct tw_daemon *daemon) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++)
        if (daemon->peers[i].is_up) return true;
    return false;
}

static void on_dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    struct tw_daemon *daemon = user;
    const bool is_linked = result->status == TW_OK;
    tw_dial_budget_ended(&daemon->links->dial_budget, address, is_linked, is_linked_at_all(daemon),
                         tw_daemon_now_us());
    const bool is_stale =
        tw_members_dialled(daemon->members, address, is_linked, result->id, tw_daemon_now_us());
    daemon->counts.stale_addresses += is_stale;
    /* This node's own address is no mistake: the configuration may list it. */
    const bool is_self = result->id != NULL && tw_id_equal(result->id, &daemon->setup->identity.id);
    if (is_linked || is_stale || is_self)
        tw_dial_history_worked(&daemon->links->dials, address);
    else
        note_dial_failed(daemon, address, result);
}

static void on_call_done(void *user, const struct tw_id *relay, const struct tw_id *target,
                         const struct tw_dial_result *result) {
    tw_daemon_relays_called(user, relay, target, result);
}

static enum tw_status on_relay_judge(void *user, const struct tw_id *caller,
                                     const struct tw_id *called, uint64_t bytes,
                                     struct tw_error *err) {
    return tw_daemon_caps_relayed(user, caller, called, bytes, err);
}

static void on_relayed(void *user, const struct tw_relay_pipe *pipe) {
    tw_daemon_relays_carried(user, pipe);
}

static void on_probe_done(void *user, const char *address, const struct tw_id *expected,
                          const struct tw_dial_result *result) {
    tw_daemon_probes_done(user, address, expected, result);
}

static void on_observed(void *user, const struct tw_id *id, uint64_t token, const char *address) {
    tw_daemon_probes_observed(user, id, token, address);
}

static void on_guest(void *user, const struct tw_guest *guest) {
    tw_daemon_invites_guest(user, guest);
}

static bool on_is_knock(void *user, const char *name, size_t size) {
    return tw_daemon_invites_is_knock(user, name, size);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* `entry` is "host:port" or "host:port=id". */
static enum tw_status add_bootstrap(struct tw_daemon *daemon, const char *entry,
                                    struct tw_error *err) {
    const size_t size = strcspn(entry, "=");
    TW_TRY(tw_members_bootstrap(daemon->members, entry, tw_daemon_now_us(), err));
    char address[TW_ADDR_BYTES];
    (void)snprintf(address, sizeof(address), "%.*s", (int)size, entry);
    tw_dial_history_configure(&daemon->links->dials, address);
    return TW_OK;
}

static enum tw_status read_peers_file(struct tw_daemon *daemon, const char *path,
                                      struct tw_error *err) {
    char line[256];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        tw_daemon_note(daemon, TW_LOG_WARN, "no_peers_file",
                       "text=\"%s cannot be read: its peers are not dialled\"", path);
        return TW_OK; /* not fatal: other nodes may dial this one */
    }
    enum tw_status status = TW_OK;
    while (status == TW_OK && fgets(line, sizeof(line), file) != NULL) {
        char entry[256];
        if (sscanf(line, " %255[^# \t\r\n]", entry) != 1) continue;
        struct tw_error reason;
        status = add_bootstrap(daemon, entry, &reason);
        if (status != TW_OK) (void)tw_fail(err, status, "%s: %s", path, reason.message);
    }
    (void)fclose(file);
    return status;
}

enum tw_status tw_daemon_links_bootstrap(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_config *config = &daemon->setup->config;
    for (uint32_t i = 0; i < config->network.peers_count; i++) {
        const struct tw_bootstrap *peer = &config->network.peers[i];
        char entry[TW_ADDR_BYTES + TW_ID_HEX_BYTES + 1], hex[TW_ID_HEX_BYTES];
        tw_id_hex(&peer->id, hex);
        (void)snprintf(entry, sizeof(entry), "%s%s%s", peer->address.text, peer->has_id ? "=" : "",
                       peer->has_id ? hex : "");
        TW_TRY(add_bootstrap(daemon, entry, err));
    }
    if (config->network.peers_file[0] != '\0') {
        TW_TRY(read_peers_file(daemon, config->network.peers_file, err));
    }
    return TW_OK;
}

static void load_members(struct tw_daemon *daemon) {
    char *text = daemon->links->members_text;
    const size_t size =
        tw_cache_file_load(daemon->setup->run_state_dir, MEMBERS_NAME, text, TW_MEMBERS_TEXT_MAX);
    uint32_t skipped = tw_members_decode(daemon->members, text, size, tw_daemon_now_us());
    char hosts[TW_HANDSHAKE_LIMITER_TEXT_MAX];
    const size_t hosts_size =
        tw_cache_file_load(daemon->setup->run_state_dir, HOSTS_NAME, hosts, sizeof(hosts));
    skipped += tw_handshake_limiter_decode(tw_transport_limiter(daemon->transport), hosts,
                                           hosts_size, tw_daemon_now_us(), (uint64_t)time(NULL));
    const size_t known_size =
        tw_cache_file_load(daemon->setup->run_state_dir, KNOWN_NAME, text, TW_KNOWN_TEXT_MAX);
    skipped += tw_known_peers_decode(daemon->known, text, known_size, tw_daemon_now_us(),
                                     (uint64_t)time(NULL));
    if (skipped > 0) tw_log(TW_LOG_WARN, "cache_damaged", "lines_skipped=%u", skipped);
}

static void save_members(struct tw_daemon *daemon) {
    char *text = daemon->links->members_text;
    size_t size = 0;
    tw_members_encode(daemon->members, text, TW_MEMBERS_TEXT_MAX, &size);
    tw_cache_file_save(daemon->setup->run_state_dir, MEMBERS_NAME, text, size);
    char hosts[TW_HANDSHAKE_LIMITER_TEXT_MAX];
    size = tw_handshake_limiter_encode(tw_transport_limiter(daemon->transport), tw_daemon_now_us(),
                                       (uint64_t)time(NULL), hosts);
    tw_cache_file_save(daemon->setup->run_state_dir, HOSTS_NAME, hosts, size);
    size = tw_known_peers_encode(daemon->known, text, tw_daemon_now_us(), (uint64_t)time(NULL));
    tw_cache_file_save(daemon->setup->run_state_dir, KNOWN_NAME, text, size);
}

static enum tw_status open_members(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_members_config members = {.self = daemon->setup->identity.id};
    TW_ASSERT(uv_random(NULL, NULL, &members.seed, sizeof(members.seed), 0, NULL) == 0);
    tw_members_init(daemon->members, &members);
    tw_members_set_self(daemon->members, tw_transport_self(daemon->transport));
    TW_TRY(tw_daemon_links_bootstrap(daemon, err));
    load_members(daemon);
    tw_daemon_refusals_load(daemon);
    return TW_OK;
}

enum tw_status tw_daemon_links_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_config *config = &daemon->setup->config;
    daemon->links = tw_daemon_alloc(sizeof(*daemon->links), err);
    daemon->members = tw_daemon_alloc(sizeof(*daemon->members), err);
    daemon->known = tw_daemon_alloc(sizeof(*daemon->known), err);
    if (daemon->links == NULL || daemon->members == NULL || daemon->known == NULL) return TW_NOMEM;
    tw_known_peers_init(daemon->known, config->node.name, tw_daemon_now_us());
    tw_dial_budget_init(&daemon->links->dial_budget, tw_daemon_now_us());
    tw_rate_init(&daemon->links->fresh_events, 1, FRESH_BURST * FRESH_PAUSE_S, tw_daemon_now_us());
    if (!config->network.links) return TW_OK;
    struct tw_transport_config transport = {
        .loop = &daemon->loop,
        .identity = &daemon->setup->identity,
        .secrets = daemon->setup->secrets.count > 0 ? &daemon->setup->secrets : NULL,
        .gate = daemon->setup->has_gate ? &daemon->setup->gate : NULL,
        .run = daemon->setup->run_id,
        .boot = daemon->setup->boot,
        .listen_count = config->network.listen_count,
        .upload_bytes_per_s = config->network.upload_bytes_s,
        .pace = config->network.pace,
        .events = {.peer_up = on_peer_up,
                   .peer_down = on_peer_down,
                   .is_wanted = on_is_wanted,
                   .frame = on_frame,
                   .released = on_released,
                   .dial_done = on_dial_done,
                   .probe_done = on_probe_done,
                   .call_done = on_call_done,
                   .relay_judge = on_relay_judge,
                   .relayed = on_relayed,
                   .observed = on_observed,
                   .banned = tw_daemon_refusals_banned,
                   .is_knock = on_is_knock,
                   .guest = on_guest,
                   .twin = tw_daemon_refusals_twin,
                   .refused = tw_daemon_refusals_refused},
        .user = daemon,
    };
    tw_node_name_clean(config->node.name, transport.name);
    for (uint32_t i = 0; i < config->network.listen_count; i++) {
        memcpy(transport.listen[i], config->network.listen[i].text, TW_ADDR_BYTES);
    }
    for (uint32_t i = 0; i < config->network.advertise_count; i++) {
        memcpy(transport.advertise[i], config->network.advertise[i].text, TW_ADDR_BYTES);
    }
    for (uint32_t i = 0; i < config->network.bind_count; i++) {
        memcpy(transport.bind[i], config->network.bind[i].text, TW_ADDR_BYTES);
    }
    (void)snprintf(transport.interface, sizeof(transport.interface), "%s",
                   config->network.interface);
    TW_TRY(tw_transport_create(&transport, &daemon->transport, err));
    tw_daemon_relays_apply(daemon);
    return open_members(daemon, err);
}

static void dial_peers(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_dial_budget *budget = &daemon->links->dial_budget;
    struct tw_dial dial;
    while (tw_members_next_dial(daemon->members, now_us, &dial)) {
        struct tw_error err = {0};
        if (dial.has_id && tw_daemon_admission_is_out(daemon, &dial.id)) {
            tw_members_dialled(daemon->members, dial.address, false, NULL, now_us);
            continue;
        }
        const uint64_t wait_us =
            dial.is_unproven ? tw_dial_budget_ask(budget, dial.address, now_us) : 0;
        if (wait_us > 0) {
            tw_members_put_off(daemon->members, dial.address, now_us + wait_us);
            continue;
        }
        const struct tw_id *id = dial.has_id ? &dial.id : NULL;
        const enum tw_status status =
            dial.is_hearsay
                ? tw_transport_connect_hearsay(daemon->transport, dial.address, id, &err)
                : tw_transport_connect(daemon->transport, dial.address, id, &err);
        if (status == TW_OK) continue;
        tw_dial_budget_ended(budget, dial.address, false, false, now_us);
        tw_members_dialled(daemon->members, dial.address, false, NULL, now_us);
        if (status == TW_LIMIT) return; /* enough dials are in progress */
        const struct tw_dial_result result = {.status = status, .sentence = err.message};
        note_dial_failed(daemon, dial.address, &result);
    }
}

static void on_forget(void *user, const struct tw_id *id) {
    struct tw_daemon *daemon = user;
    tw_members_forget(daemon->members, id);
}

/* Sets how often each absent node is dialled, and forgets those that were absent for too long. */
static void review_known(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_known_peers *known = daemon->known;
    if (tw_daemon_caps_is_resting(daemon)) tw_known_peers_rest(known, now_us);
    note_merged(daemon);
    tw_known_peers_sweep(known, now_us, daemon, on_forget);
    tw_members_sweep(daemon->members, now_us);
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_known_peer *const row = &known->rows[i];
        if (row->is_used)
            tw_members_rest(daemon->members, &row->id, tw_known_peer_pause_us(row, now_us));
    }
}

static void look_at_interfaces(struct tw_daemon_links *links) {
    if (links->interfaces != NULL)
        uv_free_interface_addresses(links->interfaces, links->interfaces_count);
    links->interfaces = NULL;
    links->interfaces_count = 0;
    (void)uv_interface_addresses(&links->interfaces, &links->interfaces_count);
}

static void refresh_addresses(struct tw_daemon *daemon, uint64_t now_us) {
    daemon->links->refresh_due_us = now_us + REFRESH_US;
    look_at_interfaces(daemon->links);
    review_known(daemon, now_us);
    if (!tw_transport_refresh(daemon->transport)) return;
    const struct tw_member_row *self = tw_transport_self(daemon->transport);
    tw_daemon_note(daemon, TW_LOG_INFO, "address_changed", "addr=%s next=%s",
                   self->addrs[0][0] != '\0' ? self->addrs[0] : "none",
                   self->addrs[1][0] != '\0' ? self->addrs[1] : "none");
    tw_members_set_self(daemon->members, self);
    tw_members_moved(daemon->members, now_us);
    tw_dial_budget_forgive(&daemon->links->dial_budget);
    tw_daemon_probes_moved(daemon, now_us);
    tw_daemon_punches_moved(daemon, now_us);
}

void tw_daemon_links_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_links *links = daemon->links;
    if (daemon->transport == NULL) return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_peer_net net;
        if (!daemon->peers[i].is_up || !tw_transport_peer(daemon->transport, i, &net)) continue;
        links->control[i] = net.control;
        links->bulk[i] = net.bulk;
    }
    if (tw_daemon_ports_tick(daemon, now_us)) links->refresh_due_us = 0;
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    if (now_us >= daemon->links->refresh_due_us) refresh_addresses(daemon, now_us);
    if (!tw_daemon_caps_is_resting(daemon)) {
        dial_peers(daemon, now_us);
        tw_daemon_probes_tick(daemon, now_us);
        tw_daemon_relays_tick(daemon, now_us);
        tw_daemon_punches_tick(daemon, now_us);
    }
    qualities_tick(daemon, now_us);
    if (is_gossip_due(links, now_us)) {
        links->gossip_due_us = now_us + GOSSIP_US;
        links->news_due_us = now_us + NEWS_US;
        links->has_news = false;
        for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
            if (daemon->peers[i].is_up) send_gossip(daemon, i);
        }
    }
    if (now_us >= links->minute_due_us) {
        tw_daemon_refusals_look(daemon);
        if (links->minute_due_us != 0) {
            save_members(daemon);
            qualities_save(daemon);
        }
        links->minute_due_us = now_us + MINUTE_US;
    }
}

void tw_daemon_links_close(struct tw_daemon *daemon) {
    if (daemon->transport == NULL) return;
    save_members(daemon);
    qualities_save(daemon);
    tw_transport_destroy(daemon->transport, "this node is shutting down", NULL);
    daemon->transport = NULL;
}

void tw_daemon_links_free(struct tw_daemon *daemon) {
    free(daemon->known);
    free(daemon->members);
    if (daemon->links->interfaces != NULL)
        uv_free_interface_addresses(daemon->links->interfaces, daemon->links->interfaces_count);
    free(daemon->links);
}

/* ---- status -------------------------------------------------------------------------------- */

/* Sums the bytes at the sockets since the start. Bytes of failed handshakes count as control. */
static void sum_traffic(const struct tw_daemon *daemon, struct tw_traffic *control,
                        struct tw_traffic *bulk) {
    *control = *bulk = (struct tw_traffic){0};
    if (daemon->transport == NULL) return;
    const struct tw_traffic all = tw_transport_traffic(daemon->transport);
    struct tw_traffic live_bulk = daemon->links->bulk_gone;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        live_bulk.bytes_in += daemon->links->bulk[i].bytes_in;
        live_bulk.bytes_out += daemon->links->bulk[i].bytes_out;
    }
    *bulk = live_bulk;
    /* Bytes relayed for other nodes are counted twice, on arrival and on departure. A few are still
     * in flight. */
    const uint64_t carried = tw_transport_relay(daemon->transport).bytes;
    const uint64_t in = bulk->bytes_in + carried, out = bulk->bytes_out + carried;
    control->bytes_in = all.bytes_in > in ? all.bytes_in - in : 0;
    control->bytes_out = all.bytes_out > out ? all.bytes_out - out : 0;
}

void tw_daemon_links_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_config *config = &daemon->setup->config;
    struct tw_traffic control, bulk;
    sum_traffic(daemon, &control, &bulk);
    view->net.control_in_bytes = control.bytes_in;
    view->net.control_out_bytes = control.bytes_out;
    view->net.bulk_in_bytes = bulk.bytes_in;
    view->net.bulk_out_bytes = bulk.bytes_out;
    view->net.pace = config->network.pace.mode;
    view->net.payload_in_bytes = daemon->counts.payload_in_bytes;
    view->net.payload_out_bytes = daemon->counts.payload_out_bytes;
    view->net.payload_again_bytes = daemon->counts.payload_again_bytes;
    view->net.stale_addresses = daemon->counts.stale_addresses;
    view->net.pool_bytes = daemon->host->payloads.pool.bytes;
    view->net.pool_used_bytes = daemon->host->payloads.pool.used;
    if (daemon->transport == NULL) return;
    view->net.in_bytes_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_BYTES_IN);
    view->net.out_bytes_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_BYTES_OUT);
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->network.listen_count && count < TW_ADDRS_MAX; i++) {
        if (tw_transport_port(daemon->transport, i) == 0) continue;
        const char *text = config->network.listen[i].text, *colon = strrchr(text, ':');
        const int host_bytes = colon != NULL ? (int)(colon - text) : (int)strlen(text);
        (void)snprintf(view->net.listen[count], sizeof(view->net.listen[count]), "%.*s:%u",
                       host_bytes, text, tw_transport_port(daemon->transport, i));
        count++;
    }
}

const struct tw_dial_history *tw_daemon_links_dials(const struct tw_daemon *daemon) {
    return &daemon->links->dials;
}

struct tw_traffic tw_daemon_links_traffic(const struct tw_daemon *daemon, uint16_t peer) {
    const struct tw_daemon_links *links = daemon->links;
    return (struct tw_traffic){
        .bytes_in = links->control[peer].bytes_in + links->bulk[peer].bytes_in,
        .bytes_out = links->control[peer].bytes_out + links->bulk[peer].bytes_out,
    };
}
