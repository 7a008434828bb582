#include "daemon/api/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

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

static void put_training(struct out *to, const struct tw_status_view *view) {
    put_total(to, "train_steps_total", "Inner steps of this node in the run.", view->train.step);
    put_total(to, "train_tokens_total", "Tokens that this node trained on in the run.",
              view->train.tokens);
    put_total(to, "train_steps_skipped_total", "Inner steps whose gradients were not finite.",
              view->train.steps_skipped);
    put_gauge(to, "train_tokens_per_second", "Training speed over the last minute.",
              view->train.tokens_per_s);
    put_gauge(to, "run_tokens_per_second", "Training speed of all nodes together.",
              view->run.tokens_per_s);
    put_gauge(to, "train_flops_per_second", "Arithmetic of the inner steps at that speed.",
              view->train.flops_s);
    put_gauge(to, "train_mfu_ratio", "Model FLOPs utilisation: that to the measured peak.",
              view->train.mfu);
    put_gauge(to, "train_loss_nats", "Training loss per token, smoothed.",
              (double)view->train.loss);
    put_gauge(to, "train_learning_rate", "Inner learning rate in force.", (double)view->train.lr);
    put_gauge(to, "train_grad_norm", "Gradient norm before clipping.",
              (double)view->train.grad_norm);
    put_gauge(to, "validation_live_loss_nats", "Held-out loss per token of the live parameters.",
              (double)view->train.loss_live);
    put_gauge(to, "validation_anchor_loss_nats", "Held-out loss per token of the anchor.",
              (double)view->train.loss_anchor);
    put_gauge(to, "consensus_distance_ratio", "Relative distance of live parameters and anchor.",
              (double)view->train.distance);
    put_gauge(to, "utilisation_ratio", "Time in inner steps to all time, since the start.",
              view->train.utilisation);
    put_gauge(to, "utilisation_minute_ratio",
              "Time in inner steps to all time, over the last minute.",
              view->train.utilisation_minute);
}

static void put_sync(struct out *to, const struct tw_status_view *view) {
    put_gauge(to, "run_clock_tokens", "Run clock: tokens of all listed contributions.",
              (double)view->run.clock_tokens);
    put_gauge(to, "run_budget_tokens", "Token budget of the run.", (double)view->run.budget_tokens);
    put_gauge(to, "lineage_rounds", "Committed rounds of this node's lineage.",
              (double)view->sync.rounds_committed);
    put_total(to, "rounds_contributed_total", "Committed rounds that list this node.",
              view->sync.rounds_contributed);
    put_total(to, "rounds_missed_total", "Committed rounds that do not list this node.",
              view->sync.rounds_missed);
    put_total(to, "pairs_merged_total", "Rounds merged with a partner.", view->sync.pairs_merged);
    put_total(to, "pairs_alone_total", "Rounds in pairs that were taken alone.",
              view->sync.pairs_alone);
    put_total(to, "pairs_one_sided_total", "Rounds that the partner did not merge.",
              view->sync.pairs_one_sided);
    put_total(to, "training_checks_total", "Contributions whose training this node checked.",
              view->sync.checks);
    put_total(to, "audits_total", "Merges of other owners that this node checked.",
              view->sync.audits);
    put_total(to, "contributions_refused_total",
              "Contributions too large to be merged in this node's parts.",
              view->sync.contributions_refused);
    put_total(to, "pairs_struck_total", "Partners struck for unreadable or outlier payloads.",
              view->sync.pairs_struck);
    put_total(to, "lineage_changes_total", "Forks and adoptions of a lineage.",
              view->sync.lineage_changes);
    put_gauge(to, "roster_members", "Members of the roster.", (double)view->sync.roster_count);
    put_gauge(to, "peers_known", "Peers in the member table.", view->sync.known);
    put_gauge(to, "peers_alive", "Peers that send messages.", view->sync.alive);
    put_gauge(to, "peers_mixed", "Peers whose contributions were merged lately.", view->sync.mixed);
    put_head(to, "fragment_rounds", "gauge", "Rounds applied to each fragment.");
    for (uint32_t i = 0; i < view->run.fragments_count && i < TW_FRAGMENTS_MAX; i++) {
        put(to, "thinwire_fragment_rounds{fragment=\"%" PRIu32 "\"} %" PRIu64 "\n", i,
            view->run.fragment_versions[i]);
    }
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
    if (view->net.upload_cap_bytes_s > 0) {
        put_gauge(to, "upload_cap_bytes_per_second", "Configured upload cap.",
                  (double)view->net.upload_cap_bytes_s);
    }
    if (view->spend.budget_bytes_per_s > 0) {
        put_gauge(to, "budget_bytes_per_second", "Configured budget of this node.",
                  view->spend.budget_bytes_per_s);
        put_gauge(to, "budget_rest_bytes_per_second", "Bytes at the sockets besides contributions.",
                  view->spend.rest_bytes_per_s);
    }
    put_gauge(to, "contribution_bytes_per_parameter", "Size of the latest contributions.",
              view->spend.bits / 8);
    put_total(to, "rounds_left_out_total", "Rounds without a contribution because of the budget.",
              view->spend.rounds_left_out);
    put_total(to, "links_refused_total", "Connections refused, by either side.",
              view->net.links_refused);
    put_gauge(to, "twins", "Keys of nodes, this one included, that two machines have.",
              (double)view->twins_count);
    put_gauge(to, "peers_banned", "Nodes banned for a while because they broke the protocol.",
              (double)view->net.banned);
    put_total(to, "punches_total", "Attempts to punch a relayed link.", view->net.punch_tries);
    put_gauge(to, "port_mapped", "1 if the router forwards this node's port.",
              view->net.mapping_address[0] != '\0' ? 1 : 0);
    put_total(to, "relayed_bytes_total", "Bytes carried for other nodes.", view->relay.bytes);
    put_total(to, "served_bytes_total", "Bytes that served other nodes alone.",
              view->serving.bytes);
    put_total(to, "serving_refused_total", "Requests of other nodes beyond their budgets.",
              view->serving.refused_node + view->serving.refused_outside +
                  view->serving.refused_half);
    put_gauge(to, "relay_pipes", "Connections carried for other nodes.", (double)view->relay.pipes);
    put_total(to, "relay_calls_refused_total", "Calls of other nodes that this relay refused.",
              view->relay.calls_refused);
    put_total(to, "relay_own_calls_failed_total", "Calls of this node through relays that failed.",
              view->relay.own_calls_failed);
    put_gauge(to, "pool_bytes", "Memory for payloads.", (double)view->net.pool_bytes);
    put_gauge(to, "pool_used_bytes", "Memory for payloads in use.",
              (double)view->net.pool_used_bytes);
}

static void put_data(struct out *to, const struct tw_status_view *view) {
    put_gauge(to, "train_token_share_ratio", "Share of the run's tokens that this node trained on.",
              view->train.token_share);
    if (view->data.state == TW_VIEW_DATA_TEXT || view->data.state == TW_VIEW_DATA_TRAINER) return;
    put_gauge(to, "data_ready", "1 when a whole training shard is here.",
              view->data.train_whole > 0);
    put_gauge(to, "data_files", "Files of the run's dataset.", view->data.files);
    put_gauge(to, "data_local_files", "Files of the run's dataset that are here.",
              view->data.files_whole);
    put_gauge(to, "data_size_bytes", "Bytes of the run's dataset.", (double)view->data.bytes);
    put_gauge(to, "data_local_bytes", "Bytes of the run's dataset that are here.",
              (double)view->data.bytes_here);
    put_gauge(to, "data_donors", "Peers that sent dataset chunks lately.", view->data.donors);
    put_head(to, "data_transferred_bytes_total", "counter", "Dataset bytes from and to peers.");
    put(to, "thinwire_data_transferred_bytes_total{direction=\"in\"} %" PRIu64 "\n",
        view->data.in_bytes);
    put(to, "thinwire_data_transferred_bytes_total{direction=\"out\"} %" PRIu64 "\n",
        view->data.out_bytes);
    put_total(to, "data_chunks_refused_total", "Dataset chunks with a wrong hash.",
              view->data.chunks_refused);
}

/* A gauge of 0 means "not known" and is omitted. Only a load of 0 is real: the GPU is idle. */
static void put_gpu(struct out *to, const struct tw_view_gpu *gpu) {
    if (!gpu->is_seen) return;
    if (gpu->temperature_c > 0)
        put_gauge(to, "gpu_temperature_celsius", "Temperature of the worker's GPU.",
                  gpu->temperature_c);
    if (gpu->power_w > 0)
        put_gauge(to, "gpu_power_watts", "Power that the GPU draws.", gpu->power_w);
    if (gpu->memory_used_bytes > 0)
        put_gauge(to, "gpu_memory_used_bytes", "GPU memory in use by all processes.",
                  (double)gpu->memory_used_bytes);
    if (gpu->memory_bytes > 0)
        put_gauge(to, "gpu_memory_bytes", "Memory of the GPU.", (double)gpu->memory_bytes);
    put_gauge(to, "gpu_load_ratio", "Share of the time in which a kernel ran on the GPU.",
              gpu->load_percent / 100.0);
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
    put_total(to, "worker_restarts_total", "Deaths of the worker.", view->worker.restarts);
    put_pause(to, &view->pause);
    put_gpu(to, &view->worker.gpu);
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
    put_training(&to, view);
    put_scores(&to, &view->scores);
    put_data(&to, view);
    put_sync(&to, view);
    put_network(&to, view);
    put_peers(&to, view);
    return to.size;
}
