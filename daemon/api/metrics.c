#include "daemon/api/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api/view_json.h"
#include "daemon/api/view_warning.h"

struct out {
    char *text;
    size_t capacity, size; /* size: bytes of the whole text, even if it does not fit */
};

static void TW_PRINTF(2, 3) put(struct out *to, const char *fmt, ...) {
    const size_t room = to->size < to->capacity ? to->capacity - to->size : 0;
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(room > 0 ? to->text + to->size : NULL, room, fmt, args);
    va_end(args);
    if (n > 0) to->size += (size_t)n;
}

static void put_head(struct out *to, const char *name, const char *type, const char *help) {
    put(to, "# HELP thinwire_%s %s\n# TYPE thinwire_%s %s\n", name, help, name, type);
}

static void put_gauge(struct out *to, const char *name, const char *help, double value) {
    if (isnan(value)) return;
    put_head(to, name, "gauge", help);
    put(to, "thinwire_%s %.9g\n", name, value);
}

static void put_total(struct out *to, const char *name, const char *help, uint64_t value) {
    put_head(to, name, "counter", help);
    put(to, "thinwire_%s %" PRIu64 "\n", name, value);
}

static void put_time(struct out *to, const char *name, const char *help, uint64_t unix_us) {
    put_head(to, name, "gauge", help);
    put(to, "thinwire_%s %.3f\n", name, (double)unix_us / 1e6);
}

static double seconds(uint64_t us) {
    return us == TW_VIEW_NEVER ? (double)NAN : (double)us / 1e6;
}

/* Writes a value of the list of view_status.c. */
static void put_listed(void *user, const struct tw_view_metric *metric) {
    struct out *const to = user;
    const size_t length = strlen(metric->name);
    if (length > 6 && strcmp(metric->name + length - 6, "_total") == 0)
        put_total(to, metric->name, metric->help, metric->count);
    else
        put_gauge(to, metric->name, metric->help, metric->value);
}

/* Writes a label value: escapes backslash, quote and newline, and omits other control bytes. */
static void put_label(struct out *to, const char *value) {
    for (; *value != 0; value++) {
        if (*value == '\\' || *value == '"') {
            put(to, "\\%c", *value);
        } else if (*value == '\n') {
            put(to, "\\n");
        } else if ((unsigned char)*value >= 32) {
            put(to, "%c", *value);
        }
    }
}

static void put_info(struct out *to, const struct tw_status_view *view) {
    char id[TW_ID_HEX_BYTES], run[TW_ID_HEX_BYTES];
    tw_id_hex(&view->node.id, id);
    tw_id_hex(&view->run.id, run);
    put_head(to, "node_info", "gauge", "Identity of this node and of its run.");
    put(to, "thinwire_node_info{id=\"%s\",name=\"", id);
    put_label(to, view->node.name);
    put(to, "\",version=\"");
    put_label(to, view->node.version);
    put(to, "\",run=\"%s\",run_name=\"", run);
    put_label(to, view->run.name);
    put(to, "\"} 1\n");

    put_head(to, "node_role", "gauge", "1 for the role of this node.");
    put(to, "thinwire_node_role{role=\"%s\"} 1\n", tw_view_role_name(view->node.role));

    static const enum tw_node_state STATES[] = {TW_STATE_SOLO, TW_STATE_RECEIVER, TW_STATE_MEMBER,
                                                TW_STATE_FINISHED};
    put_head(to, "sync_state", "gauge", "1 for the present state of this node.");
    for (unsigned i = 0; i < sizeof(STATES) / sizeof(STATES[0]); i++) {
        put(to, "thinwire_sync_state{state=\"%s\"} %d\n", tw_view_state_name(STATES[i]),
            view->node.state == STATES[i]);
    }
}

/* The lineage of this node. A scraper of several nodes can thus see that a group has split. */
static void put_lineage(struct out *to, const struct tw_status_view *view) {
    char run[TW_ID_HEX_BYTES], lineage[9];
    tw_id_hex(&view->run.id, run);
    tw_id_short(&view->run.lineage, lineage);
    put_head(to, "lineage_info", "gauge", "Lineage that this node trains in.");
    put(to, "thinwire_lineage_info{run=\"%s\",lineage=\"%s\",topology=\"%s\"} 1\n", run, lineage,
        tw_view_topology_name(view->sync.topology));
}

static void put_fragments(struct out *to, const struct tw_status_view *view) {
    put_head(to, "fragment_rounds", "gauge", "Rounds applied to each fragment.");
    for (uint32_t i = 0; i < view->run.fragments_count && i < TW_FRAGMENTS_MAX; i++) {
        put(to, "thinwire_fragment_rounds{fragment=\"%" PRIu32 "\"} %" PRIu64 "\n", i,
            view->run.fragment_versions[i]);
    }
}

static void put_drops(struct out *to, const struct tw_status_view *view) {
    put_head(to, "dropped_total", "counter", "Messages of peers without effect, by reason.");
    for (unsigned why = TW_DROP_NONE + 1; why < TW_DROPS_COUNT; why++)
        put(to, "thinwire_dropped_total{reason=\"%s\"} %" PRIu64 "\n", tw_drop_word(why),
            view->sync.dropped[why]);
}

static void put_network(struct out *to, const struct tw_status_view *view) {
    const struct {
        const char *direction, *plane;
        uint64_t bytes;
    } flows[] = {{"in", "control", view->net.control_in_bytes},
                 {"out", "control", view->net.control_out_bytes},
                 {"in", "bulk", view->net.bulk_in_bytes},
                 {"out", "bulk", view->net.bulk_out_bytes}};
    put_head(to, "network_bytes_total", "counter", "Bytes at the sockets.");
    for (unsigned i = 0; i < sizeof(flows) / sizeof(flows[0]); i++) {
        put(to, "thinwire_network_bytes_total{direction=\"%s\",plane=\"%s\"} %" PRIu64 "\n",
            flows[i].direction, flows[i].plane, flows[i].bytes);
    }
    put_gauge(to, "contribution_bytes_per_parameter", "Size of the latest contributions.",
              view->spend.bits / 8);
    put_gauge(to, "twins", "Keys of nodes, this one included, that two machines have.",
              (double)view->twins_count);
    put_gauge(to, "port_mapped", "1 if the router forwards this node's port.",
              view->net.mapping_address[0] != '\0' ? 1 : 0);
    put_total(to, "serving_refused_total", "Requests of other nodes beyond their budgets.",
              view->serving.refused_node + view->serving.refused_outside +
                  view->serving.refused_half);
}

static void put_data(struct out *to, const struct tw_status_view *view) {
    if (view->data.state == TW_VIEW_DATA_TEXT || view->data.state == TW_VIEW_DATA_TRAINER) return;
    put_gauge(to, "data_ready", "1 when a whole training shard is here.",
              view->data.train_whole > 0);
    put_head(to, "data_transferred_bytes_total", "counter", "Dataset bytes from and to peers.");
    put(to, "thinwire_data_transferred_bytes_total{direction=\"in\"} %" PRIu64 "\n",
        view->data.in_bytes);
    put(to, "thinwire_data_transferred_bytes_total{direction=\"out\"} %" PRIu64 "\n",
        view->data.out_bytes);
}

static void put_pause(struct out *to, const struct tw_view_pause *pause) {
    const struct {
        const char *reason;
        bool holds;
    } reasons[] = {{"owner", pause->is_by_owner},
                   {"hours", pause->is_by_hours},
                   {"run", pause->is_by_run},
                   {"user", pause->is_by_user}};
    put_head(to, "worker_paused", "gauge", "1 while training is paused for this reason.");
    for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        put(to, "thinwire_worker_paused{reason=\"%s\"} %d\n", reasons[i].reason, reasons[i].holds);
    put_gauge(to, "worker_memory_given_back", "1 while a pause has ended the worker.",
              pause->is_memory_back);
    if (pause->yield_percent == 0) return;
    put_gauge(to, "others_cpu_ratio", "Share of all processors that others use.",
              pause->others_cpu);
}

static void put_process(struct out *to, const struct tw_status_view *view) {
    put_time(to, "start_time_seconds", "When the daemon started, since 1970.",
             view->node.started_unix_us);
    put_gauge(to, "loop_lag_seconds", "Longest turn of the loop within the last minute.",
              seconds(view->node.loop_lag_us));
    put_gauge(to, "worker_up", "1 when a worker is attached.",
              view->worker.state != TW_VIEW_WORKER_ABSENT &&
                  view->worker.state != TW_VIEW_WORKER_WAITING &&
                  view->worker.state != TW_VIEW_WORKER_RESTARTING &&
                  view->worker.state != TW_VIEW_WORKER_FAILED && !view->pause.is_memory_back);
    put_pause(to, &view->pause);
    if (view->worker.gpu.is_seen)
        put_gauge(to, "gpu_load_ratio", "Share of the time in which a kernel ran on the GPU.",
                  view->worker.gpu.load_percent / 100.0);
    if (view->checkpoint.age_us == TW_VIEW_NEVER) return;
    put_time(to, "checkpoint_timestamp_seconds", "When the last checkpoint was saved, since 1970.",
             view->node.unix_us - view->checkpoint.age_us);
    put_gauge(to, "checkpoint_bytes", "Size of the last checkpoint.",
              (double)view->checkpoint.bytes);
}

/* Score names need no escaping: daemon/api/scores.c accepts only harmless characters. */
static void put_scores(struct out *to, const struct tw_view_scores *scores) {
    if (scores->age_us == TW_VIEW_NEVER) return;
    put_gauge(to, "evaluation_rounds", "Committed rounds of the model evaluated last.",
              (double)scores->rounds);
    put_head(to, "evaluation", "gauge", "Values that the program `evaluate` of [node] printed.");
    for (uint32_t i = 0; i < scores->scores.count; i++)
        put(to, "thinwire_evaluation{name=\"%s\"} %.9g\n", scores->scores.rows[i].name,
            scores->scores.rows[i].value);
}

/* Every kind has a line at all times, so that an alert rule sees a warning begin and end. */
static void put_warnings(struct out *to, const struct tw_status_view *view) {
    struct tw_warning warnings[TW_WARNINGS_MAX];
    uint32_t counts[TW_WARNING_KINDS] = {0};
    const uint32_t count = tw_view_warnings(view, warnings);
    for (uint32_t i = 0; i < count; i++) counts[warnings[i].kind]++;
    put_head(to, "warnings", "gauge", "Warnings of this kind that last now.");
    for (enum tw_warning_kind kind = 0; kind < TW_WARNING_KINDS; kind++)
        put(to, "thinwire_warnings{kind=\"%s\"} %" PRIu32 "\n", tw_warning_name(kind),
            counts[kind]);
}

/* Linked peers only, so the number of series is bounded. */
static void put_peers(struct out *to, const struct tw_status_view *view) {
    put_head(to, "peer_network_bytes_total", "counter", "Bytes at the sockets by linked peer.");
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        char id[9];
        if (peer->link != TW_VIEW_LINK_UP && peer->link != TW_VIEW_LINK_ALIVE) continue;
        tw_id_short(&peer->id, id);
        put(to, "thinwire_peer_network_bytes_total{peer=\"%s\",direction=\"out\"} %" PRIu64 "\n",
            id, peer->up_bytes);
        put(to, "thinwire_peer_network_bytes_total{peer=\"%s\",direction=\"in\"} %" PRIu64 "\n", id,
            peer->down_bytes);
    }
    put_head(to, "peer_rtt_seconds", "gauge", "Round-trip time by linked peer.");
    for (uint32_t i = 0; i < view->peers_count && i < TW_VIEW_PEERS_MAX; i++) {
        const struct tw_view_peer *const peer = &view->peers[i];
        char id[9];
        if (peer->link != TW_VIEW_LINK_ALIVE || peer->rtt_us == TW_VIEW_NEVER) continue;
        tw_id_short(&peer->id, id);
        put(to, "thinwire_peer_rtt_seconds{peer=\"%s\"} %.6f\n", id, seconds(peer->rtt_us));
    }
}

size_t tw_metrics_encode(const struct tw_status_view *view, char *text, size_t capacity) {
    struct out to = {text, capacity, 0};
    if (capacity > 0) text[0] = 0;
    put_info(&to, view);
    put_lineage(&to, view);
    put_warnings(&to, view);
    put_process(&to, view);
    tw_view_metrics(view, put_listed, &to);
    put_scores(&to, &view->scores);
    put_data(&to, view);
    put_fragments(&to, view);
    put_drops(&to, view);
    put_network(&to, view);
    put_peers(&to, view);
    return to.size;
}
