#include "daemon/node/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/auth/signature.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/health.h"
#include "daemon/node/links.h"
#include "daemon/node/reached.h"
#include "daemon/node/reports.h"
#include "daemon/node/votes.h"
#include "daemon/node/workers.h"
#include "daemon/recorder/recorder.h"
#include "daemon/runlog/ledger_file.h"
#include "daemon/workerlink/worker_host.h"
#include "daemon/workerlink/worker_memory.h"

enum { NODE_ALIGN = 64 };

static void close_link(struct tw_daemon *daemon, const struct tw_action *action) {
    char silent[48];
    (void)snprintf(silent, sizeof(silent), "no message arrived for %d s",
                   TW_PEER_SILENCE_US / 1000000);
    if (daemon->transport == NULL) return;
    tw_transport_close(daemon->transport, action->peer, action->u.reason,
                       action->u.reason == TW_AGAIN ? silent : tw_status_meaning(action->u.reason));
}

static void do_action(struct tw_daemon *daemon, struct tw_action *action) {
    switch (action->kind) {
    case TW_ACT_SEND:
        tw_daemon_send(daemon, action->peer, tw_daemon_reached_tell(daemon, action->u.message));
        return;
    case TW_ACT_CLOSE: close_link(daemon, action); return;
    case TW_ACT_SEND_CHUNK: tw_daemon_links_chunk(daemon, action); return;
    case TW_ACT_DROP:
        tw_daemon_links_drop(daemon, &action->u.payload.hash);
        tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_ENCODE:
        tw_daemon_reports_opening(daemon, action->u.encode.round);
        if (tw_daemon_budget_grant(daemon, action)) tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_PAIR_ENCODE:
        tw_daemon_reports_opening(daemon, action->u.pair_encode.round);
        if (tw_daemon_budget_grant(daemon, action)) tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_FINISH:
        tw_worker_host_act(daemon->host, action);
        tw_daemon_workers_finished(daemon);
        return;
    case TW_ACT_LOAD:
        daemon->counts.states_taken += !tw_id_is_zero(&action->inputs[0]);
        tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_JUDGE:
    case TW_ACT_CLOCK: tw_worker_host_act(daemon->host, action); return;
    case TW_ACT_STORE_VOTE: tw_daemon_votes_store(daemon, action); return;
    case TW_ACT_REPORT:
        tw_daemon_reports_show(daemon, action);
        if (action->u.report.kind == TW_REPORT_STATE)
            tw_daemon_workers_state(daemon, action->u.report.state);
        if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) tw_daemon_reached_round(daemon);
        if (action->u.report.kind == TW_REPORT_DIFFERS &&
            tw_id_equal(&action->u.report.id, &daemon->setup->identity.id))
            tw_daemon_health_differs(daemon, action->u.report.round);
        return;
    }
}

/* Signs, and records the signature, since a replay has no key to compute it. */
static void sign(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]) {
    const struct tw_daemon *const daemon = key;
    tw_sign(daemon->setup->identity.key, text, size, signature);
    tw_recorder_signed(daemon->recorder, signature);
}

static struct tw_node_config make_config(struct tw_daemon *daemon) {
    const struct tw_setup *setup = daemon->setup;
    const struct tw_run *run = &setup->run;
    const uint32_t fragments = setup->layout.fragments_count;
    const uint32_t period = run->sync.period / fragments;
    struct tw_node_config config = {
        .self = setup->identity.id,
        .run = setup->run_id,
        .boot = setup->boot,
        .fragments_count = fragments,
        .period_steps = period > 0 ? period : 1,
        .overlap_steps = run->sync.overlap,
        .pace_us = run->sync.pace == TW_PACE_CLOCK ? (uint64_t)run->sync.pace_ms * 1000 : 0,
        .overlap_us = run->sync.overlap * tw_run_step_us(run),
        .quorum = run->sync.quorum,
        .jury_millionths = run->sync.jury_millionths,
        .grace_us = (uint64_t)run->sync.grace_ms * 1000,
        .budget_tokens = run->train.tokens,
        .members_max = run->sync.members,
        .together_tokens = tw_run_together_tokens(run),
        .alone_nodes = tw_run_together_tokens(run) < run->train.tokens ? run->sync.nodes : 0,
        .is_pair = run->sync.topology == TW_TOPOLOGY_PAIR,
        .has_own_start = run->model.family == TW_FAMILY_TENSORS,
        .step_tokens = (uint64_t)run->train.batch * run->model.context,
        .has_result_codec = run->sync.result != run->sync.codec,
        .signing = {.key = daemon, .sign = sign, .is_signed = tw_is_signed},
        .sizes = {.run = run, .bytes_max = tw_worker_bytes_max},
        .weight = 1,
        .has_rights = setup->has_gate,
        .lacks_vote = !tw_daemon_admission_has_vote(daemon),
        .role = setup->config.node.role,
        .download = tw_daemon_caps_download(daemon),
        .orphan_us = (uint64_t)120 * 1000 * 1000,
        .judges_min = TW_JUDGES_MIN,
        .refused_count = setup->refused.count,
        .awaited = setup->awaited,
    };
    memcpy(config.refused, setup->refused.ids, sizeof(config.refused));
    for (uint32_t p = 0; p < fragments; p++) {
        config.fragment_elements[p] =
            setup->layout.fragment_begin[p + 1] - setup->layout.fragment_begin[p];
    }
    TW_ASSERT(uv_random(NULL, NULL, &config.seed, sizeof(config.seed), 0, NULL) == 0);
    return config;
}

/* If the recorder cannot be opened, the node runs without it. */
static void open_recorder(struct tw_daemon *daemon) {
    const struct tw_setup *setup = daemon->setup;
    struct tw_recorder_about about = {.id = setup->identity.id,
                                      .run = setup->run_id,
                                      .manifest = setup->manifest,
                                      .bytes_max = setup->config.node.recorder_bytes};
    char folder[TW_PATH_BYTES + sizeof("/" TW_RECORDER_FOLDER)];
    struct tw_error err;
    if (about.bytes_max == 0) return;
    (void)snprintf(about.node, sizeof(about.node), "%s", setup->config.node.name);
    (void)snprintf(folder, sizeof(folder), "%s/%s", setup->run_state_dir, TW_RECORDER_FOLDER);
    if (tw_recorder_create(&daemon->recorder, folder, &about, &err) != TW_OK)
        tw_daemon_note(daemon, TW_LOG_WARN, "recorder_off", "text=\"%s\"", err.message);
}

void tw_daemon_core_tick(struct tw_daemon *daemon) {
    char error[128];
    const bool has_failed = tw_recorder_error(daemon->recorder, error, sizeof(error));
    if (has_failed == daemon->has_recorder_failed) return;
    daemon->has_recorder_failed = has_failed;
    if (has_failed) {
        tw_daemon_note(daemon, TW_LOG_WARN, "recorder_failed",
                       "text=\"the flight recorder has a gap: %s\"", error);
    } else {
        tw_daemon_note(daemon, TW_LOG_INFO, "recorder_writes", "text=\"it writes again\"");
    }
}

void tw_daemon_core_free(struct tw_daemon *daemon) {
    tw_recorder_destroy(daemon->recorder);
    daemon->recorder = NULL;
}

void tw_daemon_core_open(struct tw_daemon *daemon) {
    const struct tw_node_config config = make_config(daemon);
    daemon->download = config.download;
    open_recorder(daemon);
    const size_t bytes = (tw_node_bytes() + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
    daemon->node = aligned_alloc(NODE_ALIGN, bytes);
    TW_ASSERT(daemon->node != NULL);
    const struct tw_position *position = tw_daemon_checkpoints_position(daemon);
    const bool has_tip = position != NULL && position->has_tip != 0;
    tw_ledger_file_begin(daemon->ledger, has_tip ? &position->tip : NULL);
    tw_node_init(daemon->node, &config, position, tw_daemon_votes_loaded(daemon),
                 tw_daemon_now_us());
    daemon->act = do_action;
    daemon->is_pumping = true;
    struct tw_action action;
    while (tw_node_next_action(daemon->node, &action)) do_action(daemon, &action);
    daemon->is_pumping = false;
    tw_daemon_event_measured(daemon); /* tells the core whether this node relays */
    tw_daemon_arm(daemon);
}
