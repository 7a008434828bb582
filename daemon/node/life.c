#include "daemon/node/life.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/api/api.h"
#include "daemon/auth/identity.h"
#include "daemon/net/transport.h"
#include "daemon/node/admission.h"
#include "daemon/node/archive.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/data.h"
#include "daemon/node/health.h"
#include "daemon/node/invites.h"
#include "daemon/node/links.h"
#include "daemon/node/reports.h"
#include "daemon/node/runtime.h"
#include "daemon/node/status.h"
#include "daemon/node/verbs.h"
#include "daemon/node/ways.h"
#include "daemon/node/workers.h"
#include "daemon/process/service.h"
#include "daemon/recorder/recorder.h"
#include "daemon/runlog/alerts.h"
#include "daemon/runlog/run_log.h"
#include "daemon/workerlink/worker_host.h"
#include "daemon/workerlink/worker_memory.h"

/* ==== actions of the core ===================================================================== */

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
    case TW_ACT_APPLY:
        tw_daemon_archive_apply(daemon, action);
        tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_REDUCE:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_JUDGE:
    case TW_ACT_CLOCK: tw_worker_host_act(daemon->host, action); return;
    case TW_ACT_GATHER: TW_NEVER("the daemon takes part in no crew");
    case TW_ACT_STORE_VOTE: tw_daemon_votes_store(daemon, action); return;
    case TW_ACT_REPORT:
        tw_daemon_reports_show(daemon, action);
        if (action->u.report.kind == TW_REPORT_STATE)
            tw_daemon_workers_state(daemon, action->u.report.state);
        if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) {
            tw_daemon_archive_decided(daemon, action->u.report.record);
            tw_daemon_reached_round(daemon);
        }
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

/* Logs when the flight recorder stops being able to write, and when it can write again. */
static void core_tick(struct tw_daemon *daemon) {
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

/* Ends the flight recorder. */
static void core_free(struct tw_daemon *daemon) {
    tw_recorder_destroy(daemon->recorder);
    daemon->recorder = NULL;
}

/* Starts the core from the loaded position and vote. All concerns must be open already. */
static void core_open(struct tw_daemon *daemon) {
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

/* ==== the life of a daemon ==================================================================== */

enum {
    TICK_US = 250 * 1000,
    LEAVE_US = 30 * 1000 * 1000, /* time without progress after which leaving is given up */
    CLOSE_US = 5 * 1000 * 1000,
    EXIT_GRACE_US = 5 * 1000 * 1000,
};

struct tw_daemon_life {
    uv_timer_t tick_timer;
    /* LEAVING: next check of `moved`; CLOSING: forced end */
    uv_timer_t leave_timer;
    uv_signal_t sigterm, sigint, sighup;
    bool has_terminal;   /* standard input was a terminal at the start */
    bool is_worker_gone; /* the worker has ended, or was asked to end */
    uint64_t moved;      /* daemon->moved at the last check */
    /* interval and time of the next watchdog report; 0 = the service manager expects none */
    uint64_t watchdog_us, watchdog_due_us;
};

/* ---- leaving ------------------------------------------------------------------------------- */

/* Ends the process although a thread still waits, for example for a DNS server. Its result is not
 * needed: everything that must survive is on disk. */
static void on_close_late(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    /* The service manager restarts a daemon only after a failure. */
    if (daemon->setup->is_restart_wanted) daemon->exit_code = TW_EXIT_FAILURE;
    tw_log(TW_LOG_INFO, "ended", "exit=%d text=\"a thread was still waiting\"",
           (int)daemon->exit_code);
    _exit((int)daemon->exit_code);
}

static void begin_closing(struct tw_daemon *daemon) {
    struct tw_daemon_life *life = daemon->life;
    daemon->stage = TW_DAEMON_CLOSING;
    TW_ASSERT(uv_timer_start(&life->leave_timer, on_close_late, CLOSE_US / 1000, 0) == 0);
    uv_unref((uv_handle_t *)&life->leave_timer); /* the timer must not keep the loop alive; it is
                                                    closed later */
    tw_alerts_close(daemon->alerts);
    tw_evaluations_close(daemon->evaluations);
    tw_run_log_close(daemon->run_log, (int)daemon->exit_code);
    tw_daemon_caps_close(daemon);
    tw_daemon_links_close(daemon);
    tw_api_close(daemon->api);
    daemon->api = NULL;
    tw_daemon_data_close(daemon);
    tw_daemon_workers_close(daemon);
    tw_daemon_votes_close(daemon);
    tw_ledger_file_close(daemon->ledger);
    uv_close((uv_handle_t *)&life->tick_timer, NULL);
    uv_close((uv_handle_t *)&life->sigterm, NULL);
    uv_close((uv_handle_t *)&life->sigint, NULL);
    uv_close((uv_handle_t *)&life->sighup, NULL);
    tw_daemon_close(daemon);
}

static bool is_saving(const struct tw_daemon *daemon) {
    return tw_daemon_checkpoints_is_saving(daemon) || tw_daemon_votes_is_saving(daemon) ||
           tw_daemon_reached_is_saving(daemon) || tw_daemon_invites_is_saving(daemon) ||
           tw_daemon_archive_is_saving(daemon) || tw_daemon_ports_is_leaving(daemon);
}

/* Performs the next step of leaving: first the checkpoint, then the worker, then everything else.
 */
static void go_on_leaving(struct tw_daemon *daemon) {
    if (is_saving(daemon)) return;
    if (!daemon->life->is_worker_gone) {
        /* A worker that is not ready yet reads no message, and has no state to lose. */
        const bool is_ready = tw_worker_host_is_ready(daemon->host);
        /* At a restart of the daemon, a worker that somebody else started stays and connects again.
         */
        if (!daemon->setup->is_restart_wanted || daemon->setup->spawns_worker)
            tw_worker_host_say(daemon->host, TW_WMSG_EXIT);
        daemon->life->is_worker_gone = true;
        if (tw_daemon_workers_stop(daemon, is_ready ? EXIT_GRACE_US : 0)) return;
    }
    /* The end of the worker calls this function again. */
    if (tw_daemon_workers_is_running(daemon)) return;
    begin_closing(daemon);
}

/* Kills a worker that does not answer, so that the last checkpoint is still saved. Once the worker
 * is dead, nothing writes to the shared memory, and its newest snapshot can be saved. */
static void give_up_worker(struct tw_daemon *daemon) {
    if (daemon->life->is_worker_gone) return;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_hangs",
                   "text=\"the worker does not answer: killing it\"");
    daemon->life->is_worker_gone = true;
    (void)tw_daemon_workers_stop(daemon, 0);
}

static void on_leave_late(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    const uint64_t moved = atomic_load(&daemon->moved);
    if (moved != daemon->life->moved) {
        daemon->life->moved = moved;
        tw_notify("EXTEND_TIMEOUT_USEC=%u\nSTATUS=leaving: saving the checkpoint",
                  (unsigned)TW_NOTIFY_EXTEND_US);
        TW_ASSERT(uv_timer_start(timer, on_leave_late, LEAVE_US / 1000, 0) == 0);
        return;
    }
    tw_log(TW_LOG_ERROR, "leave_late", "text=\"no progress for %u s: ending without a checkpoint\"",
           (unsigned)(LEAVE_US / 1000000));
    if (daemon->exit_code == TW_EXIT_OK) daemon->exit_code = TW_EXIT_FAILURE;
    if (daemon->has_leave_request) {
        tw_api_answer(daemon->api, daemon->leave_request, TW_IO,
                      "no progress any more: the daemon ended without a checkpoint");
        tw_api_close(daemon->api); /* sends the answer */
    }
    _exit((int)daemon->exit_code);
}

static void begin_leaving(struct tw_daemon *daemon, enum tw_exit code) {
    static const struct tw_event leave = {.kind = TW_EV_LEAVE};
    daemon->exit_code = code;
    const bool is_restart = daemon->setup->is_restart_wanted;
    tw_notify(is_restart ? "STATUS=starting anew" : "STOPPING=1\nSTATUS=leaving");
    tw_daemon_note(daemon, TW_LOG_INFO, "leaving", "exit=%d", (int)code);
    tw_daemon_event(daemon, &leave);
    daemon->stage = TW_DAEMON_LEAVING;
    daemon->life->moved = atomic_load(&daemon->moved);
    TW_ASSERT(uv_timer_start(&daemon->life->leave_timer, on_leave_late, LEAVE_US / 1000, 0) == 0);
    tw_daemon_ports_leave(daemon);
    /* A restart gives the present state up, so it must not replace an older one on disk. */
    if (!is_restart)
        tw_daemon_checkpoints_save(daemon,
                                   daemon->has_leave_request ? &daemon->leave_request : NULL);
    go_on_leaving(daemon);
}

static void on_leave_wake(uv_async_t *wake) {
    struct tw_daemon *daemon = wake->data;
    if (daemon->stage == TW_DAEMON_RUNNING && daemon->is_leave_wanted)
        begin_leaving(daemon, daemon->leave_code);
    else if (daemon->stage == TW_DAEMON_LEAVING)
        go_on_leaving(daemon);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct tw_daemon *daemon = handle->data;
    if (daemon->stage == TW_DAEMON_RUNNING) {
        tw_log(TW_LOG_INFO, "signal",
               "signal=%d text=\"saving and leaving; a second signal ends the daemon at once\"",
               signum);
        begin_leaving(daemon, TW_EXIT_OK);
        return;
    }
    _exit(128 + signum);
}

/* SIGHUP has two meanings. If the daemon's terminal was closed, nobody could stop the daemon any
 * more, so it saves and leaves. Otherwise it reloads the configuration. */
static void on_hangup(uv_signal_t *handle, int signum) {
    struct tw_daemon *daemon = handle->data;
    struct tw_error answer = {0};
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    if (daemon->life->has_terminal && tcgetpgrp(STDIN_FILENO) < 0) {
        on_signal(handle, signum);
        return;
    }
    (void)tw_daemon_verbs_reload(daemon, &answer); /* the answer is also in the log */
}

/* ---- life ---------------------------------------------------------------------------------- */

static void tick_evaluations(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_evaluations_now now = {0};
    if (daemon->setup->config.node.evaluate[0] == '\0') return;
    tw_node_view(daemon->node, &daemon->view);
    now.rounds = daemon->view.rounds;
    tw_daemon_checkpoints_newest(daemon, &now);
    tw_evaluations_tick(daemon->evaluations, &now, now_us);
}

static void on_tick(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    struct tw_daemon_life *life = daemon->life;
    const uint64_t now_us = tw_daemon_now_us();
    tw_daemon_links_tick(daemon, now_us);
    tw_daemon_admission_tick(daemon, now_us);
    tw_daemon_invites_tick(daemon, now_us);
    if (daemon->stage == TW_DAEMON_LEAVING && tw_daemon_checkpoints_is_late(daemon, now_us))
        give_up_worker(daemon);
    tw_daemon_checkpoints_tick(daemon, now_us);
    tw_daemon_reached_tick(daemon, now_us);
    tw_daemon_data_tick(daemon, now_us);
    tw_daemon_budget_tick(daemon, now_us);
    tw_daemon_workers_tick(daemon, now_us);
    tw_daemon_caps_tick(daemon, now_us);
    tw_daemon_samples_tick(daemon, now_us);
    tw_daemon_reports_tick(daemon, now_us);
    tw_daemon_health_tick(daemon, now_us);
    tw_ledger_file_tick(daemon->ledger, now_us);
    if (daemon->stage == TW_DAEMON_RUNNING) {
        tw_alerts_tick(daemon->alerts, now_us);
        tick_evaluations(daemon, now_us);
    }
    core_tick(daemon);
    tw_run_log_tick(daemon->run_log);
    if (life->watchdog_us > 0 && now_us >= life->watchdog_due_us) {
        tw_notify("WATCHDOG=1");
        life->watchdog_due_us = now_us + life->watchdog_us;
    }
}

static enum tw_status open_life(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_life *life = tw_daemon_alloc(sizeof(*life), err);
    if (life == NULL) return TW_NOMEM;
    daemon->life = life;
    TW_ASSERT(uv_timer_init(&daemon->loop, &life->tick_timer) == 0);
    TW_ASSERT(uv_timer_init(&daemon->loop, &life->leave_timer) == 0);
    TW_ASSERT(uv_async_init(&daemon->loop, &daemon->leave_wake, on_leave_wake) == 0);
    life->tick_timer.data = life->leave_timer.data = daemon->leave_wake.data = daemon;
    life->watchdog_us = tw_notify_watchdog_us();
    return TW_OK;
}

/* Catches signals. Called only after the checkpoint is loaded. Before that, a signal ends the
 * process at once, and nothing is lost. */
static void open_signals(struct tw_daemon *daemon) {
    struct tw_daemon_life *life = daemon->life;
    TW_ASSERT(uv_signal_init(&daemon->loop, &life->sigterm) == 0);
    TW_ASSERT(uv_signal_init(&daemon->loop, &life->sigint) == 0);
    TW_ASSERT(uv_signal_init(&daemon->loop, &life->sighup) == 0);
    life->sigterm.data = life->sigint.data = life->sighup.data = daemon;
    TW_ASSERT(uv_signal_start(&life->sigterm, on_signal, SIGTERM) == 0);
    TW_ASSERT(uv_signal_start(&life->sigint, on_signal, SIGINT) == 0);
    TW_ASSERT(uv_signal_start(&life->sighup, on_hangup, SIGHUP) == 0);
    life->has_terminal = isatty(STDIN_FILENO) == 1;
}

static void fill_moment(void *user, struct tw_run_moment *moment) {
    struct tw_daemon *daemon = user;
    const struct tw_setup *setup = daemon->setup;
    tw_node_view(daemon->node, &daemon->view);
    *moment = (struct tw_run_moment){.unix_us = tw_daemon_unix_us(),
                                     .boot = setup->boot,
                                     .node = &setup->identity.id,
                                     .run = &setup->run_id,
                                     .node_name = setup->config.node.name,
                                     .run_name = setup->run.name,
                                     .step = daemon->counts.step,
                                     .tokens = daemon->counts.tokens,
                                     .clock_tokens = daemon->view.clock_tokens};
}

static void on_run_log_failed(void *user, const char *reason) {
    if (reason != NULL)
        tw_daemon_note(user, TW_LOG_WARN, "run_log_failed",
                       "text=\"lines of the run log are lost: %s\"", reason);
    else
        tw_daemon_note(user, TW_LOG_INFO, "run_log_writes", "text=\"it writes again\"");
}

static void on_hook_failed(void *user, const char *text) {
    tw_daemon_note(user, TW_LOG_WARN, "hook_failed", "text=\"%s\"", text);
}

static void save_for_evaluation(void *user) {
    tw_daemon_checkpoints_save(user, NULL);
}

static void note_evaluation(void *user, bool is_warning, const char *name, const char *text) {
    tw_daemon_note(user, is_warning ? TW_LOG_WARN : TW_LOG_INFO, name, "%s", text);
}

static enum tw_status open_evaluations(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_setup *const setup = daemon->setup;
    const struct tw_evaluations_config config = {
        .loop = &daemon->loop,
        .log = daemon->run_log,
        .command = setup->config.node.evaluate,
        .rounds = setup->config.node.evaluate_rounds,
        .timeout_us = setup->config.node.evaluate_timeout_us,
        .folder = setup->run_state_dir,
        .config_path = setup->config.path,
        .manifest_path = setup->config.node.run,
        .data_path = setup->data_path,
        .user = daemon,
        .save = save_for_evaluation,
        .note = note_evaluation,
    };
    return tw_evaluations_open(&daemon->evaluations, &config, err);
}

static enum tw_status open_run_log(struct tw_daemon *daemon, struct tw_error *err) {
    char folder[TW_PATH_BYTES + sizeof("/runlog")];
    const struct tw_run_log_config config = {
        .loop = &daemon->loop,
        .folder = folder,
        .bytes_max = daemon->setup->config.node.run_log_bytes,
        .history = daemon->history,
        .user = daemon,
        .moment = fill_moment,
        .failed = on_run_log_failed,
    };
    (void)snprintf(folder, sizeof(folder), "%s/runlog", daemon->setup->run_state_dir);
    TW_TRY(tw_run_log_open(&daemon->run_log, &config, err));
    const struct tw_alerts_config alerts = {
        .loop = &daemon->loop,
        .log = daemon->run_log,
        .hook = daemon->setup->config.node.hook,
        .config_path = daemon->setup->config.path,
        .user = daemon,
        .fill = tw_daemon_status_fill,
        .failed = on_hook_failed,
    };
    return tw_alerts_open(&daemon->alerts, &alerts, err);
}

/* Opens the concerns that fail only for lack of memory. */
static enum tw_status open_tables(struct tw_daemon *daemon, struct tw_error *err) {
    TW_TRY(open_life(daemon, err));
    TW_TRY(open_run_log(daemon, err));
    TW_TRY(open_evaluations(daemon, err));
    TW_TRY(tw_daemon_samples_open(daemon, err));
    TW_TRY(tw_ledger_file_open(&daemon->ledger, daemon->setup->run_state_dir, err));
    TW_TRY(tw_daemon_reports_open(daemon, err));
    TW_TRY(tw_daemon_budget_open(daemon, err));
    TW_TRY(tw_daemon_health_open(daemon, err));
    TW_TRY(tw_daemon_refusals_open(daemon, err));
    TW_TRY(tw_daemon_probes_open(daemon, err));
    TW_TRY(tw_daemon_ports_open(daemon, err));
    TW_TRY(tw_daemon_punches_open(daemon, err));
    TW_TRY(tw_daemon_relays_open(daemon, err));
    TW_TRY(tw_daemon_link_qualities_open(daemon, err));
    TW_TRY(tw_daemon_admission_open(daemon, err));
    TW_TRY(tw_daemon_checkpoints_open(daemon, err));
    TW_TRY(tw_daemon_reached_open(daemon, err));
    return tw_daemon_invites_open(daemon, err);
}

/* Returns the exit status for the result of opening a listener. */
static enum tw_exit exit_of(enum tw_status status) {
    if (status == TW_OK) return TW_EXIT_OK;
    if (status == TW_NOMEM) return TW_EXIT_FAILURE;
    return status == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
}

static enum tw_exit open_all(struct tw_daemon *daemon, struct tw_error *err) {
    if (open_tables(daemon, err) != TW_OK) return TW_EXIT_FAILURE;
    enum tw_exit code = exit_of(tw_daemon_workers_open(daemon, err));
    if (code != TW_EXIT_OK) return code;
    if (tw_daemon_caps_open(daemon, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_daemon_votes_open(daemon, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_daemon_archive_open(daemon, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_daemon_data_open(daemon, err) != TW_OK) return TW_EXIT_FAILURE;
    code = tw_daemon_checkpoints_load(daemon, err);
    if (code != TW_EXIT_OK) return code;
    tw_daemon_reached_loaded(daemon);
    tw_daemon_checkpoints_measure(daemon, tw_daemon_reached_steps_before(daemon));
    open_signals(daemon);
    code = exit_of(tw_daemon_links_open(daemon, err));
    if (code == TW_EXIT_OK) code = exit_of(tw_daemon_verbs_open(daemon, err));
    if (code != TW_EXIT_OK) return code;
    tw_daemon_caps_apply(daemon);
    tw_daemon_workers_apply(daemon);
    core_open(daemon);
    tw_run_log_start(daemon->run_log);
    if (tw_daemon_workers_start(daemon, err) != TW_OK) return TW_EXIT_USAGE;
    const uint64_t tick_ms = TICK_US / 1000;
    TW_ASSERT(uv_timer_start(&daemon->life->tick_timer, on_tick, tick_ms, tick_ms) == 0);
    return TW_EXIT_OK;
}

static void free_all(struct tw_daemon *daemon) {
    core_free(daemon);
    tw_daemon_links_free(daemon);
    tw_daemon_data_free(daemon);
    tw_daemon_votes_free(daemon);
    tw_daemon_archive_free(daemon);
    tw_daemon_caps_free(daemon);
    tw_daemon_workers_free(daemon);
    tw_daemon_invites_free(daemon);
    tw_daemon_reached_free(daemon);
    tw_daemon_checkpoints_free(daemon);
    tw_daemon_admission_free(daemon);
    tw_daemon_link_qualities_free(daemon);
    tw_daemon_relays_free(daemon);
    tw_daemon_punches_free(daemon);
    tw_daemon_ports_free(daemon);
    tw_daemon_probes_free(daemon);
    tw_daemon_refusals_free(daemon);
    tw_daemon_budget_free(daemon);
    tw_daemon_health_free(daemon);
    tw_daemon_reports_free(daemon);
    tw_ledger_file_free(daemon->ledger);
    tw_daemon_samples_free(daemon);
    tw_alerts_free(daemon->alerts);
    tw_evaluations_free(daemon->evaluations);
    tw_run_log_free(daemon->run_log);
    free(daemon->life);
    tw_daemon_destroy(daemon);
}

enum tw_exit tw_daemon_run(struct tw_setup *setup) {
    static struct tw_daemon *daemon; /* static: still reachable, and so no leak, if the process ends
                                        without freeing it */
    struct tw_error err = {0};
    enum tw_exit code = TW_EXIT_FAILURE;
    if (tw_daemon_create(&daemon, setup, &err) == TW_OK) code = open_all(daemon, &err);
    /* nothing runs yet, so the end of the process frees all memory */
    if (code != TW_EXIT_OK) {
        (void)fprintf(stderr, "thinwired: %s\n", err.message);
        if (daemon != NULL && daemon->host != NULL) tw_worker_host_close(daemon->host);
        if (daemon != NULL) tw_api_close(daemon->api);
        return code;
    }
    char id[9], run[9];
    tw_id_short(&setup->identity.id, id);
    tw_id_short(&setup->run_id, run);
    tw_daemon_note(daemon, TW_LOG_INFO, "started", "node=%s run=%s boot=%u links=%s", id, run,
                   setup->boot, daemon->transport != NULL ? "on" : "off");
    tw_notify("READY=1\nSTATUS=started");
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&daemon->life->leave_timer, NULL);
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    code = daemon->exit_code;
    tw_log(TW_LOG_INFO, "ended", "exit=%d", (int)code);
    free_all(daemon);
    return code;
}
