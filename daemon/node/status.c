/* status.c - what people see: fills the status view, keeps a minute of samples and the rounds.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/node/runtime.h"

enum {
    SAMPLE_US = 1000 * 1000,
    DATA_SAMPLES = 11, /* ten seconds: data that stopped coming are to be seen soon */
};

/* ---- kept between two fills ---------------------------------------------------------------- */

/* Control and bulk bytes at the socket, this process. Failed handshakes count as control. */
static void traffic_sum(const struct tw_daemon *daemon, struct tw_traffic *control,
                        struct tw_traffic *bulk) {
    *control = *bulk = (struct tw_traffic){0};
    if (daemon->transport == NULL) return;
    const struct tw_traffic all = tw_transport_traffic(daemon->transport);
    struct tw_traffic live_bulk = daemon->bulk_gone;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        live_bulk.bytes_in += daemon->peers[i].bulk.bytes_in;
        live_bulk.bytes_out += daemon->peers[i].bulk.bytes_out;
    }
    *bulk = live_bulk;
    control->bytes_in = all.bytes_in > bulk->bytes_in ? all.bytes_in - bulk->bytes_in : 0;
    control->bytes_out = all.bytes_out > bulk->bytes_out ? all.bytes_out - bulk->bytes_out : 0;
}

void tw_daemon_status_tick(struct tw_daemon *daemon, uint64_t now_us) {
    if (now_us < daemon->minute_due_us) return;
    daemon->minute_due_us = now_us + SAMPLE_US;
    struct tw_minute_sample *sample = &daemon->minute[daemon->minute_next];
    *sample = (struct tw_minute_sample){
        .at_us = now_us,
        .tokens = daemon->train.tokens,
        .step_us = daemon->train.step_us,
        .sync_us = daemon->train.sync_us,
    };
    tw_node_view(daemon->node, &daemon->view);
    sample->clock_tokens = daemon->view.clock_tokens;
    /* Who joins sees the clock jump to that of the others: that is not how fast it runs. */
    const bool is_same_clock = tw_id_equal(&daemon->minute_lineage, &daemon->view.lineage) &&
                               daemon->view.state != TW_STATE_RECEIVER;
    daemon->minute_lineage = daemon->view.lineage;
    daemon->minute_clocks = is_same_clock ? daemon->minute_clocks + 1 : 0;
    if (daemon->transport != NULL) {
        const struct tw_traffic all = tw_transport_traffic(daemon->transport);
        sample->bytes_in = all.bytes_in;
        sample->bytes_out = all.bytes_out;
    }
    sample->data_in = daemon->data.bytes_in;
    daemon->minute_next = (daemon->minute_next + 1) % TW_MINUTE_SAMPLES;
    if (daemon->minute_count < TW_MINUTE_SAMPLES) daemon->minute_count++;
}

void tw_daemon_status_round(struct tw_daemon *daemon, const struct tw_record *record) {
    const uint64_t now = tw_daemon_now_us();
    const unsigned at = (unsigned)(record->round % TW_OPENINGS_MAX);
    tw_node_view(daemon->node, &daemon->view);
    struct tw_view_round row = {
        .round = record->round,
        .fragment = record->fragment,
        .contributors = record->contributors_count,
        .roster = daemon->view.roster_count,
        .is_ours = daemon->view.rounds_contributed > daemon->rounds_contributed,
        .is_solo = record->parts_count == 0,
        .took_us = TW_VIEW_NEVER,
    };
    if (daemon->openings[at].round == record->round + 1) {
        row.took_us = now - daemon->openings[at].at_us;
        row.bytes = daemon->chunk_bytes_in + daemon->chunk_bytes_out - daemon->openings[at].bytes;
    }
    if (daemon->last_round_us != 0) {
        const uint64_t since = now - daemon->last_round_us, mean = daemon->round_period_us;
        daemon->round_period_us = mean == 0 ? since : mean - mean / 8 + since / 8;
    }
    daemon->last_round_us = now;
    daemon->rounds_contributed = daemon->view.rounds_contributed;
    tw_round_ring_add(&daemon->round_ring, now, &row);
    char digest[TW_ID_HEX_BYTES];
    const struct tw_id id = tw_record_digest(record);
    tw_id_hex(&id, digest);
    digest[16] = '\0';
    tw_log(row.is_solo ? TW_LOG_DEBUG : TW_LOG_INFO, "round_done",
           "round=%llu fragment=%u contributors=%u roster=%u ours=%d bytes=%llu took_us=%llu "
           "digest=%s",
           (unsigned long long)row.round, row.fragment, row.contributors, row.roster,
           (int)row.is_ours, (unsigned long long)row.bytes,
           row.took_us == TW_VIEW_NEVER ? 0 : (unsigned long long)row.took_us, digest);
}

/* ---- filling ------------------------------------------------------------------------------- */

static uint64_t age(uint64_t now_us, uint64_t at_us) {
    return now_us > at_us ? now_us - at_us : 0;
}

static void fill_node(const struct tw_daemon *daemon, uint64_t now_us,
                      struct tw_status_view *view) {
    const struct tw_config *config = &daemon->setup->config;
    view->node.id = daemon->setup->identity.id;
    if (config->node.name[0] != '\0') {
        (void)snprintf(view->node.name, sizeof(view->node.name), "%s", config->node.name);
    } else {
        (void)gethostname(view->node.name, sizeof(view->node.name) - 1);
    }
    (void)snprintf(view->node.version, sizeof(view->node.version), "%s", TW_RELEASE);
    view->node.uptime_us = age(now_us, daemon->started_us);
    view->node.state = daemon->view.state;
    view->node.is_leaving = daemon->stage != TW_DAEMON_RUNNING;
    view->node.links = daemon->transport != NULL;
    view->node.loop_lag_us = tw_loop_lag_us(&daemon->lag);
}

/* What a value grew by over the newest samples, one a second, per second; NaN without two. */
static double samples_rate(const struct tw_daemon *daemon, size_t field, uint32_t samples) {
    const uint32_t count = daemon->minute_count < samples ? daemon->minute_count : samples;
    if (count < 2) return NAN;
    const uint32_t newest = (daemon->minute_next + TW_MINUTE_SAMPLES - 1) % TW_MINUTE_SAMPLES;
    const uint32_t oldest = (daemon->minute_next + TW_MINUTE_SAMPLES - count) % TW_MINUTE_SAMPLES;
    const uint64_t wall = daemon->minute[newest].at_us - daemon->minute[oldest].at_us;
    uint64_t from, to;
    memcpy(&from, (const char *)&daemon->minute[oldest] + field, sizeof(from));
    memcpy(&to, (const char *)&daemon->minute[newest] + field, sizeof(to));
    if (wall == 0 || to < from) return NAN;
    return (double)(to - from) * 1e6 / (double)wall;
}

static double minute_rate(const struct tw_daemon *daemon, size_t field) {
    return samples_rate(daemon, field, TW_MINUTE_SAMPLES);
}

double tw_daemon_status_speed(const struct tw_daemon *daemon) {
    return minute_rate(daemon, offsetof(struct tw_minute_sample, tokens));
}

static void fill_run(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_setup *setup = daemon->setup;
    view->run.id = setup->run_id;
    (void)snprintf(view->run.name, sizeof(view->run.name), "%s", setup->run.name);
    view->run.lineage = daemon->view.lineage;
    view->run.clock_tokens = daemon->view.clock_tokens;
    view->run.budget_tokens = setup->run.train.tokens;
    const double rate = samples_rate(daemon, offsetof(struct tw_minute_sample, clock_tokens),
                                     daemon->minute_clocks);
    if (rate > 0 && view->run.budget_tokens >= view->run.clock_tokens) {
        const double rest = (double)(view->run.budget_tokens - view->run.clock_tokens);
        view->run.eta_us = (uint64_t)(rest / rate * 1e6);
    }
    view->run.fragments_count = setup->layout.fragments_count;
    for (uint32_t p = 0; p < setup->layout.fragments_count; p++) {
        struct tw_shm_view fragment;
        tw_shm_view(&daemon->host->memory.shm, p, &fragment);
        view->run.fragment_versions[p] = fragment.state.rounds;
    }
    view->run.params = setup->layout.params;
    if (daemon->round_period_us > 0) view->run.period_us = daemon->round_period_us;
}

static double utilisation(double step_us, double sync_us) {
    return step_us + sync_us > 0 ? step_us / (step_us + sync_us) : NAN;
}

static void fill_train(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_daemon_train *train = &daemon->train;
    view->train.step = train->step;
    view->train.tokens = train->tokens;
    view->train.stop_step = daemon->setup->config.node.stop_step;
    view->train.tokens_per_s = tw_daemon_status_speed(daemon);
    if (train->about.flops_token > 0) {
        view->train.flops_s = view->train.tokens_per_s * (double)train->about.flops_token;
    }
    view->train.mfu = tw_view_mfu(view->train.flops_s, train->about.peak_flops_s);
    if (train->has_loss) {
        view->train.loss = train->loss_mean;
        view->train.lr = train->lr;
        view->train.grad_norm = train->grad_norm;
    }
    if (train->has_evaluated) {
        view->train.loss_live = train->evaluated.loss_live;
        view->train.loss_anchor = train->evaluated.loss_anchor;
        view->train.eval_step = train->evaluated.step;
        view->train.distance = train->evaluated.distance;
    }
    view->train.steps_skipped = train->steps_skipped;
    view->train.utilisation = utilisation((double)train->step_us, (double)train->sync_us);
    view->train.utilisation_minute =
        utilisation(minute_rate(daemon, offsetof(struct tw_minute_sample, step_us)),
                    minute_rate(daemon, offsetof(struct tw_minute_sample, sync_us)));
    view->train.losses_count = train->losses.count;
    memcpy(view->train.losses, train->losses.points, sizeof(view->train.losses));
}

static void fill_net(struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_config *config = &daemon->setup->config;
    struct tw_traffic control, bulk;
    traffic_sum(daemon, &control, &bulk);
    view->net.control_in_bytes = control.bytes_in;
    view->net.control_out_bytes = control.bytes_out;
    view->net.bulk_in_bytes = bulk.bytes_in;
    view->net.bulk_out_bytes = bulk.bytes_out;
    view->net.in_bytes_per_s = minute_rate(daemon, offsetof(struct tw_minute_sample, bytes_in));
    view->net.out_bytes_per_s = minute_rate(daemon, offsetof(struct tw_minute_sample, bytes_out));
    view->net.pace = config->network.pace.mode;
    view->net.upload_cap_bytes_s = daemon->caps.upload_now;
    view->net.payload_in_bytes = daemon->chunk_bytes_in;
    view->net.payload_out_bytes = daemon->chunk_bytes_out;
    view->net.payload_again_bytes = daemon->chunk_bytes_again;
    tw_daemon_caps_fill(daemon, view);
    view->net.links_refused = daemon->links_refused;
    if (daemon->transport != NULL) tw_daemon_bans_fill(daemon, view);
    view->net.pool_bytes = daemon->host->payloads.pool.bytes;
    view->net.pool_used_bytes = daemon->host->payloads.pool.used;
    if (daemon->transport == NULL) return;
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

/* What the worker's page says of its GPU: of a worker that hangs or is gone it is old. */
static void fill_gpu(const struct tw_daemon *daemon, uint64_t now_us, struct tw_view_gpu *gpu) {
    enum { OLD_US = 10 * 1000 * 1000 };
    struct tw_shm_device *const device = &tw_shm_control(&daemon->host->memory.shm)->device;
    const uint64_t seen_us = atomic_load(&device->seen_us);
    gpu->is_seen = seen_us > 0 && age(now_us, seen_us) < OLD_US;
    if (!gpu->is_seen) return;
    gpu->temperature_c = (uint32_t)atomic_load(&device->temperature_c);
    gpu->load_percent = (uint32_t)atomic_load(&device->load_percent);
    gpu->power_w = (double)atomic_load(&device->power_mw) / 1e3;
    gpu->power_max_w = (double)atomic_load(&device->power_max_mw) / 1e3;
    gpu->memory_used_bytes = atomic_load(&device->memory_used_bytes);
    gpu->memory_bytes = atomic_load(&device->memory_bytes);
}

static void fill_worker(const struct tw_daemon *daemon, uint64_t now_us,
                        struct tw_status_view *view) {
    const uint64_t beat = atomic_load(&tw_shm_control(&daemon->host->memory.shm)->heartbeat_us);
    view->worker.state = tw_daemon_worker_state(daemon);
    view->worker.pid = (uint32_t)daemon->train.pid;
    view->worker.restarts = daemon->supervisor.deaths;
    (void)snprintf(view->worker.device, sizeof(view->worker.device), "%s", daemon->train.device);
    (void)snprintf(view->worker.engine, sizeof(view->worker.engine), "%s",
                   daemon->train.about.engine);
    view->worker.memory_bytes = daemon->train.about.memory_bytes;
    (void)snprintf(view->worker.error, sizeof(view->worker.error), "%s", daemon->train.error);
    view->worker.is_device_fault = daemon->train.is_device_fault;
    view->worker.snapshot_step = daemon->train.snapshot_step;
    if (beat > 0) view->worker.heartbeat_us = age(now_us, beat);
    fill_gpu(daemon, now_us, &view->worker.gpu);
    if (daemon->save.has_step) {
        view->checkpoint.step = daemon->save.step;
        if (daemon->save.at_us != 0) view->checkpoint.age_us = age(now_us, daemon->save.at_us);
        view->checkpoint.bytes = daemon->save.bytes;
    }
    (void)snprintf(view->checkpoint.error, sizeof(view->checkpoint.error), "%s",
                   daemon->save.error);
    (void)snprintf(view->checkpoint.vote_error, sizeof(view->checkpoint.vote_error), "%s",
                   daemon->vote_error);
}

/* ---- peers --------------------------------------------------------------------------------- */

static struct tw_view_peer *peer_row(struct tw_status_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->peers_count; i++) {
        if (tw_id_equal(&view->peers[i].id, id)) return &view->peers[i];
    }
    if (view->peers_count == TW_VIEW_PEERS_MAX) return NULL;
    struct tw_view_peer *row = &view->peers[view->peers_count++];
    row->id = *id;
    row->rtt_us = row->last_mixed_round = row->heard_us = TW_VIEW_NEVER;
    row->loss = row->reliability = NAN;
    return row;
}

/* What the bulk connections say of their paths. */
static void fill_path(const struct tw_peer_net *net, struct tw_status_view *view) {
    char *const seen = view->net.congestion;
    if (!net->has_bulk) return;
    const bool is_other = seen[0] != '\0' && strcmp(seen, net->congestion) != 0;
    (void)snprintf(seen, sizeof(view->net.congestion), "%s", is_other ? "mixed" : net->congestion);
    if (net->path_bytes_per_s <= view->net.path_bytes_per_s) return;
    view->net.path_bytes_per_s = net->path_bytes_per_s;
    view->net.pace_bytes_per_s = net->pace_bytes_per_s;
}

/* What a struck peer may not do, for how long, and why. */
static void strike_show(const struct tw_daemon *daemon, uint16_t peer, struct tw_view_peer *row) {
    const unsigned long long left_min =
        daemon->view.peers[peer].strike.left_us / UINT64_C(60000000) + 1;
    const unsigned long long round = daemon->view.peers[peer].strike.round;
    const bool is_false = daemon->view.peers[peer].strike.is_false;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) {
        (void)snprintf(row->strike, sizeof(row->strike),
                       "not merged with for %llu min more: what it sent for our round %llu %s",
                       left_min, round,
                       is_false ? "could not be read" : "was far larger than what others send");
        return;
    }
    (void)snprintf(row->strike, sizeof(row->strike),
                   "merges nothing for %llu min more: its result of round %llu, part %u, %s",
                   left_min, round, daemon->view.peers[peer].strike.part,
                   is_false ? "is no merge of what it lists" : "was far larger than merges are");
}

/* Why rounds do not wait for a peer, and for how long. */
static void stall_show(const struct tw_daemon *daemon, uint16_t peer, struct tw_view_peer *row) {
    const uint64_t owner_us = daemon->view.peers[peer].owner_stall_us,
                   proposer_us = daemon->view.peers[peer].proposer_stall_us;
    if (owner_us == 0 && proposer_us == 0) return;
    const uint64_t left_us = owner_us > proposer_us ? owner_us : proposer_us;
    const char *const why = owner_us == 0      ? "it let its turns to close them pass, or took "
                                                 "those of others for nothing"
                            : proposer_us == 0 ? "what it had to merge did not come"
                                               : "what it had to merge did not come, nor did it "
                                                 "close those it should have";
    (void)snprintf(row->stall, sizeof(row->stall),
                   "rounds do not wait for it for %llu min more: %s",
                   (unsigned long long)(left_us / 60000000 + 1), why);
}

static void fill_linked(const struct tw_daemon *daemon, uint64_t now_us,
                        struct tw_status_view *view) {
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_daemon_peer *peer = &daemon->peers[i];
        if (!peer->is_up) continue;
        struct tw_view_peer *row = peer_row(view, &peer->id);
        if (row == NULL) return;
        struct tw_peer_net net;
        row->link = TW_VIEW_LINK_UP;
        row->up_bytes = peer->control.bytes_out + peer->bulk.bytes_out;
        row->down_bytes = peer->control.bytes_in + peer->bulk.bytes_in;
        if (tw_transport_peer(daemon->transport, i, &net)) {
            (void)snprintf(row->addr, sizeof(row->addr), "%s", net.address);
            if (net.rtt_us > 0) row->rtt_us = net.rtt_us;
            fill_path(&net, view);
        }
        tw_daemon_link_quality_fill(daemon, i, now_us, row);
        const struct tw_msg_status *said = &daemon->view.peers[i].status;
        if (!daemon->view.peers[i].is_up) continue;
        stall_show(daemon, i, row);
        if (daemon->view.peers[i].strike.count > 0) strike_show(daemon, i, row);
        if (daemon->view.peers[i].unmerged > 0) {
            (void)snprintf(row->refused, sizeof(row->refused),
                           "its last %u contributions to our part were far larger than is usual, "
                           "and are not in the merge",
                           daemon->view.peers[i].unmerged);
        }
        row->is_member = daemon->view.peers[i].is_member;
        if (daemon->view.peers[i].last_mixed_round > 0) {
            row->last_mixed_round = daemon->view.peers[i].last_mixed_round - 1;
        }
        if (tw_id_is_zero(&said->lineage)) continue; /* linked, has not spoken yet */
        row->heard_us = age(now_us, daemon->view.peers[i].heard_us);
        if (row->heard_us < TW_PEER_SILENCE_US) row->link = TW_VIEW_LINK_ALIVE;
        row->state = said->state;
        row->same_lineage = tw_id_equal(&said->lineage, &daemon->view.lineage);
        row->step = said->step;
        row->tokens = said->tokens;
        row->tokens_per_s = said->tokens_per_s;
        row->rounds = said->rounds;
    }
}

/* A node that was set up anew, or moved to where another one was: it is linked, and that its
 * address does not lead to the old one is nothing anybody has to act on. */
static bool is_settled(const struct tw_daemon *daemon, const struct tw_dial_row *dial) {
    for (uint16_t i = 0; i < TW_PEERS_MAX && !tw_id_is_zero(&dial->other); i++) {
        if (daemon->peers[i].is_up && tw_id_equal(&daemon->peers[i].id, &dial->other)) return true;
    }
    return false;
}

/* Known members without a link, and bootstrap addresses nobody is known at yet. */
static void fill_known(const struct tw_daemon *daemon, struct tw_status_view *view) {
    for (uint32_t e = 0; e < TW_KNOWN_MAX; e++) {
        const struct tw_member_entry *entry = &daemon->members->entries[e];
        if (!entry->is_used) continue;
        bool is_bootstrap = false;
        for (unsigned a = 0; a < TW_ADDRS_MAX; a++) is_bootstrap |= entry->addrs[a].is_bootstrap;
        if (is_bootstrap) {
            view->net.bootstrap_count++;
            view->net.bootstrap_alive += entry->is_connected;
        }
        const bool is_self = entry->has_id && tw_id_equal(&entry->id, &daemon->setup->identity.id);
        if (entry->is_connected || is_self || (!entry->has_id && !is_bootstrap)) continue;
        struct tw_view_peer *row = NULL;
        if (entry->has_id) {
            row = peer_row(view, &entry->id);
        } else if (view->peers_count < TW_VIEW_PEERS_MAX) {
            row = &view->peers[view->peers_count++];
            row->rtt_us = row->last_mixed_round = row->heard_us = TW_VIEW_NEVER;
            row->loss = row->reliability = NAN;
        }
        if (row == NULL) return;
        row->link = TW_VIEW_LINK_KNOWN;
        for (unsigned a = 0; a < TW_ADDRS_MAX; a++) {
            const struct tw_member_addr *addr = &entry->addrs[a];
            if (addr->text[0] == '\0') continue;
            if (row->addr[0] == '\0')
                (void)snprintf(row->addr, sizeof(row->addr), "%s", addr->text);
            if (addr->is_dialling) row->link = TW_VIEW_LINK_DIALING;
            const struct tw_dial_row *dial = tw_dial_history_find(&daemon->dials, addr->text);
            if (dial == NULL || dial->failures == 0) continue;
            (void)snprintf(row->error, sizeof(row->error), "%s", dial->sentence);
            if (tw_dial_is_refusal(dial->cause) && !is_settled(daemon, dial))
                row->link = TW_VIEW_LINK_REFUSED;
        }
    }
}

/* Where the table has an address: a linked member first, for one may stand in two rows, as
 * configured and as what a member that dialled us says of itself. NULL: nowhere. */
static const struct tw_member_entry *entry_at(const struct tw_daemon *daemon, const char *address,
                                              bool *is_dialling) {
    const struct tw_member_entry *found = NULL;
    *is_dialling = false;
    for (uint32_t e = 0; e < TW_KNOWN_MAX; e++) {
        const struct tw_member_entry *entry = &daemon->members->entries[e];
        for (unsigned a = 0; entry->is_used && a < TW_ADDRS_MAX; a++) {
            if (strcmp(entry->addrs[a].text, address) != 0) continue;
            *is_dialling |= entry->addrs[a].is_dialling;
            if (found == NULL || entry->is_connected) found = entry;
        }
    }
    return found;
}

/* How each configured address fares. */
static void fill_bootstrap(const struct tw_daemon *daemon, uint64_t now_us,
                           struct tw_status_view *view) {
    for (uint32_t b = 0; b < daemon->dials.configured_count; b++) {
        const struct tw_dial_row *row = &daemon->dials.rows[b];
        struct tw_view_bootstrap *out = &view->bootstrap[view->bootstrap_count++];
        bool is_dialling;
        const struct tw_member_entry *entry = entry_at(daemon, row->address, &is_dialling);
        (void)snprintf(out->address, sizeof(out->address), "%s", row->address);
        (void)snprintf(out->error, sizeof(out->error), "%s", row->sentence);
        out->cause = row->cause;
        out->failures = row->failures;
        out->failed_us = row->failures > 0 ? age(now_us, row->failed_us) : TW_VIEW_NEVER;
        if (entry != NULL && entry->has_id) out->id = entry->id;
        if (entry != NULL && entry->is_connected)
            out->link = TW_VIEW_LINK_UP;
        else if (is_settled(daemon, row))
            out->link = TW_VIEW_LINK_KNOWN;
        else if (is_dialling)
            out->link = TW_VIEW_LINK_DIALING;
        else
            out->link = tw_dial_is_refusal(row->cause) ? TW_VIEW_LINK_REFUSED : TW_VIEW_LINK_KNOWN;
    }
}

/* Who trained on how much of what the run has seen; where each node brings its own text that is how
 * much its text counts. The clock lags behind what was trained on since the last round. */
static void fill_shares(struct tw_status_view *view) {
    uint64_t sum = view->train.tokens;
    for (uint32_t i = 0; i < view->peers_count; i++) sum += view->peers[i].tokens;
    const uint64_t all = sum > view->run.clock_tokens ? sum : view->run.clock_tokens;
    if (all == 0) return;
    view->train.token_share = (double)view->train.tokens / (double)all;
    for (uint32_t i = 0; i < view->peers_count; i++) {
        view->peers[i].token_share = (double)view->peers[i].tokens / (double)all;
    }
}

void tw_daemon_status_fill(void *user, struct tw_status_view *view) {
    struct tw_daemon *daemon = user;
    const uint64_t now = tw_daemon_now_us();
    tw_node_view(daemon->node, &daemon->view);
    fill_node(daemon, now, view);
    fill_run(daemon, view);
    fill_train(daemon, view);
    view->sync.roster_count = daemon->view.roster_count;
    view->sync.members_max = daemon->setup->run.sync.members;
    view->sync.is_shut_out = daemon->view.is_shut_out;
    view->sync.alive = daemon->view.alive;
    view->sync.mixed = daemon->view.mixed;
    view->sync.rounds_committed = daemon->view.rounds;
    view->sync.rounds_contributed = daemon->view.rounds_contributed;
    view->sync.rounds_missed = daemon->view.rounds_missed;
    view->sync.lineage_changes = daemon->lineage_changes;
    view->sync.audits = daemon->view.audits;
    view->sync.contributions_refused = daemon->view.unmerged;
    view->sync.pairs_merged = daemon->view.pairs.merged;
    view->sync.pairs_alone = daemon->view.pairs.alone;
    view->sync.pairs_one_sided = daemon->view.pairs.one_sided;
    view->sync.pairs_refused = daemon->view.pairs.refused;
    view->sync.pairs_struck = daemon->partners_struck;
    view->sync.topology =
        daemon->view.is_apart ? TW_TOPOLOGY_SOLO : daemon->setup->run.sync.topology;
    view->sync.partner = daemon->partner;
    if (daemon->host->partner_distance > 0)
        view->sync.partner_distance = daemon->host->partner_distance;
    if (daemon->partner_us != 0) view->sync.partner_age_us = age(now, daemon->partner_us);
    fill_net(daemon, view);
    tw_daemon_probes_fill(daemon, now, view);
    tw_daemon_budget_fill(daemon, view);
    tw_daemon_admission_fill(daemon, view);
    fill_worker(daemon, now, view);
    tw_daemon_data_fill(
        daemon, now, samples_rate(daemon, offsetof(struct tw_minute_sample, data_in), DATA_SAMPLES),
        view);
    if (daemon->transport != NULL) {
        view->sync.known = tw_members_known(daemon->members);
        fill_linked(daemon, now, view);
        fill_known(daemon, view);
        fill_bootstrap(daemon, now, view);
    }
    fill_shares(view);
    tw_round_ring_fill(&daemon->round_ring, now, view);
    tw_event_ring_fill(&daemon->event_ring, now, view);
}
