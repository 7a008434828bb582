#include "daemon/api/status_view.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/units.h"

void tw_status_view_init(struct tw_status_view *view) {
    memset(view, 0, sizeof(*view));
    view->run.eta_us = TW_VIEW_NEVER;
    view->run.period_us = view->sync.partner_age_us = TW_VIEW_NEVER;
    view->train.tokens_per_s = view->run.tokens_per_s = view->join.bytes_per_s = NAN;
    view->train.eval_age_us = view->join.eta_us = TW_VIEW_NEVER;
    view->train.flops_s = view->train.mfu = NAN;
    view->train.loss = view->train.lr = view->train.grad_norm = NAN;
    view->train.loss_live = view->train.loss_anchor = view->train.distance = NAN;
    view->train.utilisation = view->train.utilisation_minute = NAN;
    view->train.token_share = view->data.in_bytes_per_s = NAN;
    view->data.eta_us = view->net.reach_age_us = TW_VIEW_NEVER;
    view->spend.bits = view->spend.used_bytes_per_s = view->spend.rest_bytes_per_s = NAN;
    view->sync.partner_distance = NAN;
    view->sync.alone_us = TW_VIEW_NEVER;
    view->net.in_bytes_per_s = view->net.out_bytes_per_s = NAN;
    view->pause.age_us = TW_VIEW_NEVER;
    view->pause.others_cpu = view->pause.others_gpu = (double)NAN;
    view->worker.snapshot_step = view->worker.heartbeat_us = TW_VIEW_NEVER;
    view->worker.still_us = TW_VIEW_NEVER;
    view->checkpoint.step = view->checkpoint.age_us = view->checkpoint.rounds = TW_VIEW_NEVER;
    view->scores.age_us = view->scores.took_us = TW_VIEW_NEVER;
}

struct tw_view_peer *tw_status_view_peer(struct tw_status_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->peers_count && !tw_id_is_zero(id); i++) {
        if (tw_id_equal(&view->peers[i].id, id)) return &view->peers[i];
    }
    if (view->peers_count == TW_VIEW_PEERS_MAX) return NULL;
    struct tw_view_peer *row = &view->peers[view->peers_count++];
    row->id = *id;
    row->rtt_us = row->last_mixed_round = row->heard_us = row->absent_us = TW_VIEW_NEVER;
    row->loss = row->reliability = NAN;
    row->ahead_s = TW_VIEW_NO_CLOCK;
    return row;
}

const char *tw_status_view_label(const struct tw_status_view *view, const struct tw_id *id,
                                 char label[TW_VIEW_LABEL_BYTES]) {
    char hex[9];
    tw_id_short(id, hex);
    (void)snprintf(label, TW_VIEW_LABEL_BYTES, "%s", hex);
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        if (tw_id_equal(&view->peers[i].id, id) && view->peers[i].name[0] != '\0')
            (void)snprintf(label, TW_VIEW_LABEL_BYTES, "%s (%s)", view->peers[i].name, hex);
    }
    return label;
}

void tw_view_large_text(uint32_t merges, uint32_t large, uint32_t tenths, char *text, size_t size) {
    (void)snprintf(text, size,
                   "its work was %.1f times the others' for the steps that it claims, in %u of %u "
                   "merges here: merges scale such work down",
                   tenths / 10.0, large, merges);
}

const char *tw_view_absence(const struct tw_view_peer *peer, char text[TW_VIEW_TEXT_BYTES]) {
    char time[TW_UNITS_BYTES];
    text[0] = '\0';
    if (peer->is_shut_out)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "shut out by the owner of the run");
    if (peer->is_shut_out || peer->absent_us == TW_VIEW_NEVER) return text;
    if (peer->absent_us < UINT64_C(10000000))
        (void)snprintf(time, sizeof(time), "a few seconds");
    else
        (void)tw_units_duration(time, (double)(peer->absent_us / 1000000));
    if (peer->link == TW_VIEW_LINK_LEFT)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "left %s ago", time);
    else if (peer->link == TW_VIEW_LINK_PAUSED)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "paused %s ago%s%s", time,
                       peer->said[0] != '\0' ? ": " : "", peer->said);
    else if (peer->link == TW_VIEW_LINK_AWAY || peer->link == TW_VIEW_LINK_GONE)
        (void)snprintf(text, TW_VIEW_TEXT_BYTES, "not heard for %s", time);
    return text;
}

const char *tw_view_state_name(enum tw_node_state state) {
    switch (state) {
    case TW_STATE_SOLO: return "solo";
    case TW_STATE_RECEIVER: return "receiver";
    case TW_STATE_MEMBER: return "member";
    case TW_STATE_FINISHED: return "finished";
    }
    return "unknown";
}

const char *tw_view_role_name(enum tw_node_role role) {
    switch (role) {
    case TW_NODE_ROLE_TRAIN: return "train";
    case TW_NODE_ROLE_FOLLOW: return "follow";
    case TW_NODE_ROLE_REDUCE: return "reduce";
    }
    return "unknown";
}

const char *tw_status_view_state(const struct tw_status_view *view) {
    if (view->worker.state == TW_VIEW_WORKER_FAILED) return "worker_failed";
    return tw_view_state_name(view->node.state);
}

double tw_view_mfu(double flops_s, uint64_t peak_flops_s) {
    if (peak_flops_s == 0 || isnan(flops_s)) return (double)NAN;
    return fmin(flops_s / (double)peak_flops_s, 1);
}

uint64_t tw_view_peak(uint64_t peak_flops_s, uint64_t flops, uint64_t took_us) {
    if (peak_flops_s == 0 || took_us == 0) return peak_flops_s;
    const double reached = ceil((double)flops * 1e6 / (double)took_us);
    return reached > (double)peak_flops_s && reached < 1e19 ? (uint64_t)reached : peak_flops_s;
}

const char *tw_view_worker_name(enum tw_view_worker worker) {
    switch (worker) {
    case TW_VIEW_WORKER_ABSENT: return "absent";
    case TW_VIEW_WORKER_WAITING: return "waiting";
    case TW_VIEW_WORKER_STARTING: return "starting";
    case TW_VIEW_WORKER_LOADING: return "loading";
    case TW_VIEW_WORKER_RUNNING: return "running";
    case TW_VIEW_WORKER_PAUSED: return "paused";
    case TW_VIEW_WORKER_RESTARTING: return "restarting";
    case TW_VIEW_WORKER_FAILED: return "failed";
    case TW_VIEW_WORKER_FINISHED: return "finished";
    }
    return "unknown";
}

const char *tw_view_link_name(enum tw_view_link link) {
    switch (link) {
    case TW_VIEW_LINK_KNOWN: return "known";
    case TW_VIEW_LINK_DIALING: return "dialing";
    case TW_VIEW_LINK_UP: return "up";
    case TW_VIEW_LINK_ALIVE: return "alive";
    case TW_VIEW_LINK_REFUSED: return "refused";
    case TW_VIEW_LINK_LEFT: return "left";
    case TW_VIEW_LINK_PAUSED: return "paused";
    case TW_VIEW_LINK_AWAY: return "away";
    case TW_VIEW_LINK_GONE: return "gone";
    }
    return "unknown";
}

const char *tw_view_pace_name(enum tw_link_pace_mode mode) {
    switch (mode) {
    case TW_LINK_PACE_AUTO: return "auto";
    case TW_LINK_PACE_OFF: return "off";
    case TW_LINK_PACE_FIXED: return "fixed";
    }
    return "unknown";
}

const char *tw_view_topology_name(enum tw_topology topology) {
    switch (topology) {
    case TW_TOPOLOGY_GROUP: return "group";
    case TW_TOPOLOGY_PAIR: return "pair";
    case TW_TOPOLOGY_SOLO: return "solo";
    }
    return "unknown";
}

const char *tw_view_join_name(enum tw_view_join_phase phase) {
    switch (phase) {
    case TW_VIEW_JOIN_NONE: return "none";
    case TW_VIEW_JOIN_DATA: return "data";
    case TW_VIEW_JOIN_STATE: return "state";
    case TW_VIEW_JOIN_SEAT: return "seat";
    }
    return "unknown";
}

const char *tw_view_data_name(enum tw_view_data data) {
    switch (data) {
    case TW_VIEW_DATA_TEXT: return "text";
    case TW_VIEW_DATA_TRAINER: return "trainer";
    case TW_VIEW_DATA_WAITING: return "waiting";
    case TW_VIEW_DATA_FETCHING: return "fetching";
    case TW_VIEW_DATA_PARTIAL: return "partial";
    case TW_VIEW_DATA_WHOLE: return "whole";
    case TW_VIEW_DATA_UNUSABLE: return "unusable";
    }
    return "unknown";
}

const char *tw_view_time(uint64_t unix_us, char text[TW_VIEW_TIME_BYTES]) {
    const time_t seconds = (time_t)(unix_us / 1000000);
    struct tm utc;
    (void)gmtime_r(&seconds, &utc);
    const size_t size = strftime(text, TW_VIEW_TIME_BYTES - 8, "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text + size, TW_VIEW_TIME_BYTES - size, ".%03uZ",
                   (unsigned)(unix_us / 1000 % 1000));
    return text;
}

void tw_event_ring_add(struct tw_event_ring *ring, uint64_t now_us, uint64_t unix_us,
                       bool is_warning, const char *name, const char *fmt, ...) {
    struct tw_view_event *const event = &ring->events[ring->added++ % TW_VIEW_EVENTS_MAX];
    va_list args;
    event->id = ring->added;
    event->unix_us = unix_us;
    event->age_us = now_us;
    event->is_warning = is_warning;
    (void)snprintf(event->name, sizeof(event->name), "%s", name);
    va_start(args, fmt);
    (void)vsnprintf(event->text, sizeof(event->text), fmt, args);
    va_end(args);
}

void tw_event_ring_fill(const struct tw_event_ring *ring, uint64_t now_us,
                        struct tw_status_view *view) {
    const uint64_t kept = ring->added < TW_VIEW_EVENTS_MAX ? ring->added : TW_VIEW_EVENTS_MAX;
    for (uint64_t i = 0; i < kept; i++) {
        view->events[i] = ring->events[(ring->added - 1 - i) % TW_VIEW_EVENTS_MAX];
        view->events[i].age_us = now_us - view->events[i].age_us;
    }
    view->events_count = (uint32_t)kept;
}

void tw_round_ring_add(struct tw_round_ring *ring, uint64_t now_us,
                       const struct tw_view_round *round) {
    struct tw_view_round *const kept = &ring->rounds[ring->added++ % TW_VIEW_ROUNDS_MAX];
    *kept = *round;
    kept->age_us = now_us;
}

void tw_round_ring_pair(struct tw_round_ring *ring, const struct tw_id *partner) {
    if (ring->added == 0) return;
    ring->rounds[(ring->added - 1) % TW_VIEW_ROUNDS_MAX].partner = *partner;
}

void tw_round_ring_fill(const struct tw_round_ring *ring, uint64_t now_us,
                        struct tw_status_view *view) {
    const uint64_t kept = ring->added < TW_VIEW_ROUNDS_MAX ? ring->added : TW_VIEW_ROUNDS_MAX;
    for (uint64_t i = 0; i < kept; i++) {
        view->rounds[i] = ring->rounds[(ring->added - 1 - i) % TW_VIEW_ROUNDS_MAX];
        view->rounds[i].age_us = now_us - view->rounds[i].age_us;
    }
    view->rounds_count = (uint32_t)kept;
}
