#include "daemon/node/status.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/api/run_pace.h"
#include "daemon/api/status_view.h"
#include "daemon/node/admission.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/data.h"
#include "daemon/node/health.h"
#include "daemon/node/links.h"
#include "daemon/node/ports.h"
#include "daemon/node/probes.h"
#include "daemon/node/punches.h"
#include "daemon/node/reached.h"
#include "daemon/node/refusals.h"
#include "daemon/node/relays.h"
#include "daemon/node/reports.h"
#include "daemon/node/samples.h"
#include "daemon/node/votes.h"
#include "daemon/node/workers.h"
#include "daemon/runlog/evaluations.h"
#include "daemon/workerlink/worker_host.h"

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
    view->node.unix_us = tw_daemon_unix_us();
    view->node.started_unix_us = daemon->started_unix_us;
    view->node.boot = daemon->setup->boot;
    view->node.uptime_us = age(now_us, daemon->started_us);
    view->node.state = daemon->view.state;
    view->node.is_leaving = daemon->stage != TW_DAEMON_RUNNING;
    view->node.links = daemon->transport != NULL;
    view->node.role = daemon->setup->config.node.role;
    view->node.loop_lag_us = tw_loop_lag_us(&daemon->lag);
}

static void fill_run(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_setup *setup = daemon->setup;
    view->run.id = setup->run_id;
    (void)snprintf(view->run.name, sizeof(view->run.name), "%s", setup->run.name);
    view->run.lineage = daemon->view.lineage;
    view->run.tip = daemon->view.tip;
    view->run.clock_tokens = daemon->view.clock_tokens;
    view->run.budget_tokens = setup->run.train.tokens;
    view->run.fragments_count = setup->layout.fragments_count;
    for (uint32_t p = 0; p < setup->layout.fragments_count; p++) {
        struct tw_shm_view fragment;
        tw_shm_view(&daemon->host->memory.shm, p, &fragment);
        view->run.fragment_versions[p] = fragment.state.rounds;
    }
    view->run.params = setup->layout.params;
    view->run.is_any_model = setup->run.model.family == TW_FAMILY_TENSORS;
}

static void fill_sync(const struct tw_daemon *daemon, struct tw_status_view *view) {
    view->sync.roster_count = daemon->view.roster_count;
    for (uint32_t i = 0; i < daemon->view.roster.count; i++)
        view->sync.voters += !daemon->view.roster.members[i].lacks_vote;
    view->sync.vote_merges = daemon->view.vote_merges;
    view->sync.members_max = daemon->setup->run.sync.members;
    view->sync.is_shut_out = daemon->view.is_shut_out;
    view->sync.alive = daemon->view.alive;
    /* A receiver follows the rounds of others: nothing was mixed into its own work yet. */
    view->sync.mixed = daemon->view.state == TW_STATE_RECEIVER ? 0 : daemon->view.mixed;
    view->sync.rounds_committed = daemon->view.rounds;
    view->sync.rounds_contributed = daemon->view.rounds_contributed;
    view->sync.rounds_missed = daemon->view.rounds_missed;
    view->sync.audits = daemon->view.audits;
    view->sync.checks = daemon->view.checks;
    view->sync.contributions_refused = daemon->view.unmerged;
    view->sync.pairs_merged = daemon->view.pairs.merged;
    view->sync.pairs_alone = daemon->view.pairs.alone;
    view->sync.pairs_one_sided = daemon->view.pairs.one_sided;
    view->sync.pairs_refused = daemon->view.pairs.refused;
    view->sync.topology =
        daemon->view.is_apart ? TW_TOPOLOGY_SOLO : daemon->setup->run.sync.topology;
    if (daemon->host->partner_distance > 0)
        view->sync.partner_distance = daemon->host->partner_distance;
}

/* Fills the run's speed and its time left, which are the same on all nodes of a group. Without a
 * group each node has a clock of its own. A node alone announces its speed to nobody: the run has
 * the speed that the same screen shows for this node. */
static void fill_pace(const struct tw_daemon *daemon, uint64_t now_us,
                      struct tw_status_view *view) {
    const struct tw_run_pace *pace = tw_daemon_reports_pace(daemon);
    view->run.others = pace->speeds.others;
    if (view->sync.topology != TW_TOPOLOGY_GROUP)
        view->run.tokens_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_CLOCK_TOKENS);
    else if (tw_run_pace_is_alone(pace))
        view->run.tokens_per_s = view->train.tokens_per_s;
    else
        view->run.tokens_per_s = tw_run_pace_rate(pace, now_us);
    view->run.eta_us = tw_run_pace_left_us(pace, now_us, view->run.tokens_per_s,
                                           view->run.clock_tokens, view->run.budget_tokens);
}

/* Fills the transfers that a joining node waits for: first its data, without which it has no
 * worker, then the run's state. */
static void fill_join(const struct tw_daemon *daemon, struct tw_status_view *view) {
    enum { FIRST_US = 15 * 1000 * 1000 };
    struct tw_view_join *join = &view->join;
    if (view->worker.state == TW_VIEW_WORKER_WAITING) {
        join->phase = TW_VIEW_JOIN_DATA;
        join->bytes = (uint64_t)view->data.chunks_count * TW_CHUNK_BYTES_MAX;
        join->bytes_here = (uint64_t)view->data.chunks_here * TW_CHUNK_BYTES_MAX;
        /* the last chunk of a file is short, so the dataset may be smaller than its chunks */
        if (view->data.bytes > 0 && join->bytes > view->data.bytes) join->bytes = view->data.bytes;
        if (join->bytes_here > join->bytes) join->bytes_here = join->bytes;
        join->bytes_per_s = view->data.in_bytes_per_s;
    } else if (view->node.state == TW_STATE_RECEIVER && view->sync.alive > 0) {
        const bool is_here = daemon->view.fetch_fragments == 0;
        join->phase = is_here ? TW_VIEW_JOIN_SEAT : TW_VIEW_JOIN_STATE;
        join->bytes = daemon->view.fetch_bytes;
        join->bytes_here = daemon->view.fetch_bytes_here;
        join->bytes_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_STATE_IN);
        /* until there are samples of ten seconds, none does not mean that nothing arrives */
        if (join->bytes_per_s == 0 && view->node.uptime_us < FIRST_US) join->bytes_per_s = NAN;
    }
    join->is_return = tw_daemon_workers_is_trained(daemon);
    if (join->bytes > join->bytes_here && join->bytes_per_s > 0)
        join->eta_us =
            (uint64_t)((double)(join->bytes - join->bytes_here) / join->bytes_per_s * 1e6);
}

/* Computes each node's share of the run's tokens. If each node has its own text, that is the weight
 * of its text. The run clock lacks the tokens since the last round, so the sum of all nodes' tokens
 * is used if it is larger. */
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
    const uint64_t now_us = tw_daemon_now_us();
    tw_node_view(daemon->node, &daemon->view);
    fill_node(daemon, now_us, view);
    fill_run(daemon, view);
    fill_sync(daemon, view);
    tw_daemon_reports_fill(daemon, now_us, view);
    tw_daemon_workers_fill(daemon, now_us, view);
    tw_daemon_health_fill(daemon, view);
    tw_daemon_checkpoints_fill(daemon, now_us, view);
    tw_daemon_reached_fill(daemon, now_us, view);
    tw_evaluations_fill(daemon->evaluations, now_us, view);
    tw_daemon_votes_fill(daemon, view);
    tw_daemon_links_fill(daemon, view);
    tw_daemon_caps_fill(daemon, view);
    tw_daemon_refusals_fill(daemon, view);
    tw_daemon_probes_fill(daemon, now_us, view);
    tw_daemon_ports_fill(daemon, view);
    tw_daemon_punches_fill(daemon, view);
    tw_daemon_relays_fill(daemon, view);
    tw_daemon_budget_fill(daemon, view); /* after tw_daemon_links_fill, whose rates it reads */
    tw_daemon_admission_fill(daemon, view);
    tw_daemon_data_fill(daemon, now_us, view);
    tw_daemon_status_peers_fill(daemon, now_us, view);
    fill_shares(view); /* after the peers, which it reads */
    fill_pace(daemon, now_us, view);
    fill_join(daemon, view);
    tw_event_ring_fill(daemon->event_ring, now_us, view);
}
