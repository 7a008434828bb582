/* workers.c - the worker as the daemon sees it: what it says, and what keeps it running. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/node/runtime.h"

/* ---- what it says -------------------------------------------------------------------------- */

/* Equal rounds of a lineage must mean equal digests everywhere: the log lets anybody compare. */
static void applied_log(const struct tw_daemon *daemon, const struct tw_event *event) {
    char digest[TW_ID_HEX_BYTES], lineage[9];
    tw_id_short(&daemon->lineage, lineage);
    tw_id_hex(&event->u.applied.digest, digest);
    digest[16] = '\0';
    tw_log(TW_LOG_DEBUG, "applied", "lineage=%s fragment=%u rounds=%llu ok=%d digest=%s", lineage,
           event->u.applied.fragment, (unsigned long long)event->u.applied.rounds, (int)event->ok,
           digest);
}

static void on_event(void *user, const struct tw_event *event) {
    if (event->kind == TW_EV_APPLIED) applied_log(user, event);
    tw_daemon_event(user, event);
}

static void on_attached(void *user, pid_t pid, const char *device) {
    struct tw_daemon *daemon = user;
    daemon->train.pid = pid;
    (void)snprintf(daemon->train.device, sizeof(daemon->train.device), "%s", device);
    tw_supervisor_attached(&daemon->supervisor, pid);
    if (daemon->host->is_held) return; /* it comes and goes until it is welcome */
    tw_daemon_note(daemon, TW_LOG_INFO, "worker_attached", "pid=%ld device=\"%s\"", (long)pid,
                   device);
}

static void on_welcomed(void *user, pid_t pid) {
    struct tw_daemon *daemon = user;
    tw_supervisor_linked(&daemon->supervisor, pid);
}

static const char *start_name(uint32_t start) {
    switch (start) {
    case TW_START_FRESH: return "fresh";
    case TW_START_SNAPSHOT: return "snapshot";
    case TW_START_ANCHOR: return "anchor";
    default: return "unknown";
    }
}

static void finish_seen(struct tw_daemon *daemon) {
    const uint64_t stop_step = daemon->setup->config.node.stop_step;
    if (stop_step == 0 || daemon->train.step < stop_step || daemon->host->is_finished) return;
    daemon->host->is_finished = true;
    tw_supervisor_set_idle(&daemon->supervisor, true);
    tw_daemon_note(daemon, TW_LOG_INFO, "finished", "step=%llu text=\"stop_step is reached\"",
                   (unsigned long long)daemon->train.step);
    tw_daemon_save(daemon, NULL);
}

static void on_ready(void *user, const struct tw_wmsg_ready *ready) {
    struct tw_daemon *daemon = user;
    if (!daemon->train.has_ready) daemon->train.started_us = tw_daemon_now_us();
    daemon->train.has_ready = true;
    daemon->train.is_stepping = false;
    daemon->train.step = ready->step;
    daemon->train.tokens = ready->tokens;
    daemon->train.about = ready->about;
    daemon->train.about.engine[sizeof(ready->about.engine) - 1] = '\0';
    tw_supervisor_ready(&daemon->supervisor);
    tw_supervisor_set_gpu(&daemon->supervisor,
                          strncmp(daemon->train.about.engine, "cuda:", 5) == 0);
    tw_daemon_note(daemon, TW_LOG_INFO, "worker_ready", "start=%s step=%llu tokens=%llu",
                   start_name(ready->start), (unsigned long long)ready->step,
                   (unsigned long long)ready->tokens);
    finish_seen(daemon);
}

static void on_stepped(void *user, const struct tw_wmsg_step *step) {
    struct tw_daemon *daemon = user;
    struct tw_daemon_train *train = &daemon->train;
    train->is_stepping = true;
    if (step->tokens > train->tokens) {
        train->about.peak_flops_s =
            tw_view_peak(train->about.peak_flops_s,
                         (step->tokens - train->tokens) * train->about.flops_token, step->step_us);
    }
    train->step = step->step;
    train->tokens = step->tokens;
    train->step_us += step->step_us;
    train->sync_us += step->sync_us;
    train->lr = step->lr;
    if (step->is_skipped != 0) {
        train->steps_skipped++;
    } else {
        train->loss_mean =
            train->has_loss ? train->loss_mean + (step->loss - train->loss_mean) / 16 : step->loss;
        train->has_loss = true;
        train->grad_norm = step->grad_norm;
        const struct tw_view_loss point = {
            .step = step->step, .train = train->loss_mean, .live = NAN, .anchor = NAN};
        tw_loss_history_add(&train->losses, &point);
    }
    tw_supervisor_stepped(&daemon->supervisor, step->step_us);
    finish_seen(daemon);
}

static void on_encoded(void *user, const struct tw_encoded *encoded) {
    tw_daemon_budget_encoded(user, encoded);
}

static void on_evaluated(void *user, const struct tw_wmsg_evaluated *evaluated) {
    struct tw_daemon *daemon = user;
    daemon->train.evaluated = *evaluated;
    daemon->train.has_evaluated = true;
    const struct tw_view_loss point = {.step = evaluated->step,
                                       .train =
                                           daemon->train.has_loss ? daemon->train.loss_mean : NAN,
                                       .live = evaluated->loss_live,
                                       .anchor = evaluated->loss_anchor};
    tw_loss_history_add(&daemon->train.losses, &point);
    tw_supervisor_alive(&daemon->supervisor);
    tw_log(TW_LOG_DEBUG, "heard_evaluated", "step=%llu loss_live=%.4f loss_anchor=%.4f",
           (unsigned long long)evaluated->step, (double)evaluated->loss_live,
           (double)evaluated->loss_anchor);
}

static void on_snapshot(void *user, uint32_t slot, uint64_t step) {
    struct tw_daemon *daemon = user;
    if (slot < TW_SNAPSHOT_SLOTS) {
        daemon->train.snapshot_step = step;
        tw_supervisor_snapshot(&daemon->supervisor, step);
    }
    tw_supervisor_alive(&daemon->supervisor);
    tw_daemon_save_snapshot_done(daemon);
}

static void on_gone(void *user, const char *sentence) {
    struct tw_daemon *daemon = user;
    daemon->train.pid = 0;
    daemon->train.is_stepping = false;
    if (daemon->stage == TW_DAEMON_RUNNING && !daemon->host->is_held) {
        (void)snprintf(daemon->train.error, sizeof(daemon->train.error), "%s", sentence);
        tw_daemon_note(daemon, TW_LOG_WARN, "worker_gone", "text=\"%s\"", sentence);
    }
    const bool is_device_fault = daemon->host->last_status == TW_DEVICE;
    tw_supervisor_unlinked(&daemon->supervisor, is_device_fault ? TW_EXIT_DEVICE : -1);
    tw_daemon_save_snapshot_done(daemon); /* nobody answers any more: what is there will do */
}

/* systemd starts it again every other second. */
static void on_turned_away(void *user, const char *sentence) {
    enum { LINE_US = 60 * 1000 * 1000 };
    struct tw_daemon *daemon = user;
    uint64_t held_back;
    if (!tw_log_may_say(&daemon->turned_away_limit, tw_daemon_now_us(), LINE_US, &held_back))
        return;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_refused", "text=\"%s\" held_back=%llu", sentence,
                   (unsigned long long)held_back);
}

static void on_frozen(void *user) {
    tw_daemon_save_frozen(user);
}

/* ---- what keeps it running ----------------------------------------------------------------- */

/* A worker that ends like this before it ever worked will do so every time: the person must act. */
static bool is_hopeless(const struct tw_daemon *daemon, const struct tw_worker_death *death) {
    if (daemon->train.has_ready || death->signal != 0) return false;
    return death->exit_status == TW_EXIT_USAGE || death->exit_status == TW_EXIT_MANIFEST ||
           death->exit_status == TW_EXIT_DATA;
}

/* Of a worker that somebody else starts: whoever comes next waits until its restart is due. */
static void on_admit(void *user) {
    struct tw_daemon *daemon = user;
    tw_worker_host_set_held(daemon->host, false);
}

static void on_cut(void *user) {
    struct tw_daemon *daemon = user;
    const bool has_exited = daemon->supervisor.has_exited;
    char sentence[160];
    (void)snprintf(sentence, sizeof(sentence), "%s: its link is closed, and %s %ld may be left",
                   has_exited ? "the worker ended and its link did not"
                              : "the worker did not end when it was told to",
                   has_exited ? "a child of process" : "process", (long)daemon->host->link.pid);
    tw_worker_link_drop(&daemon->host->link, sentence);
}

static void on_died(void *user, const struct tw_worker_death *death) {
    struct tw_daemon *daemon = user;
    if (death->is_wanted) {
        tw_daemon_leave_step(daemon);
        return;
    }
    const bool is_foreign = !daemon->setup->config.node.spawn_worker;
    if (is_foreign) {
        tw_worker_host_set_held(daemon->host, true);
        if (death->was_hanging) {
            (void)snprintf(daemon->train.error, sizeof(daemon->train.error), "ended for hanging");
        }
    } else if (death->signal != 0) {
        (void)snprintf(daemon->train.error, sizeof(daemon->train.error), "%s by signal %d (%s)",
                       death->was_hanging ? "ended for hanging" : "killed", death->signal,
                       strsignal(death->signal));
    } else if (!daemon->train.has_ready && daemon->train.error[0] == '\0') {
        (void)snprintf(daemon->train.error, sizeof(daemon->train.error),
                       "%.160s ended with status %d before it attached to the daemon: is it a "
                       "Thinwire worker?",
                       daemon->setup->worker_path, death->exit_status);
    }
    daemon->train.is_device_fault = death->signal == 0 && death->exit_status == TW_EXIT_DEVICE;
    if (is_hopeless(daemon, death)) {
        if (daemon->train.error[0] == '\0') {
            (void)snprintf(daemon->train.error, sizeof(daemon->train.error),
                           "the worker %.160s ended before it began, its own words are above",
                           daemon->setup->worker_path);
        }
        tw_daemon_note(daemon, TW_LOG_ERROR, "worker_failed", "exit=%d", death->exit_status);
        (void)fprintf(stderr, "thinwired: %s\n", daemon->train.error);
        (void)tw_supervisor_stop(&daemon->supervisor, 0);
        tw_daemon_leave(daemon, (enum tw_exit)death->exit_status);
        return;
    }
    const struct tw_restart_verdict *verdict = &death->verdict;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_died",
                   "exit=%d signal=%d deaths=%u restart_in_us=%llu skip_batches=%llu text=\"%s\"",
                   death->exit_status, death->signal, daemon->supervisor.deaths,
                   (unsigned long long)verdict->pause_us, (unsigned long long)verdict->skip,
                   daemon->train.error);
    switch (verdict->rung) {
    case TW_RESTART_PLAIN: return;
    case TW_RESTART_SKIP: daemon->host->batches_to_skip = verdict->skip; return;
    case TW_RESTART_ANCHOR: daemon->host->is_anchor_wanted = true; return;
    case TW_RESTART_GIVE_UP:
        tw_daemon_note(daemon, TW_LOG_ERROR, "worker_given_up",
                       "deaths=%u text=\"it dies without progress: the node goes on without "
                       "training, restart the daemon once the cause is gone\"",
                       daemon->supervisor.deaths);
        return;
    }
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_worker_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_setup *setup = daemon->setup;
    const struct tw_worker_host_config host = {
        .loop = &daemon->loop,
        .run = &setup->run,
        .layout = &setup->layout,
        .socket_path = setup->worker_socket,
        .data_path = setup->data_path,
        .compute = setup->config.worker,
        .snapshot_steps = setup->config.node.snapshot_steps,
        .eval_steps = setup->config.node.eval_steps,
        .snapshot_mode = setup->config.node.snapshot,
        .stop_step = setup->config.node.stop_step,
        .data_seed = tw_get_u64(setup->identity.id.bytes),
        .events = {.event = on_event,
                   .attached = on_attached,
                   .welcomed = on_welcomed,
                   .ready = on_ready,
                   .stepped = on_stepped,
                   .encoded = on_encoded,
                   .evaluated = on_evaluated,
                   .snapshot = on_snapshot,
                   .gone = on_gone,
                   .refused = on_turned_away,
                   .frozen = on_frozen},
        .user = daemon,
    };
    TW_TRY(tw_worker_host_create(&daemon->host, &host, err));
    daemon->host->memory.shm.hashed = &daemon->save.moved;
    const struct tw_supervisor_config supervisor = {
        .loop = &daemon->loop,
        .worker_path = setup->config.node.spawn_worker ? setup->worker_path : NULL,
        .socket_path = setup->worker_socket,
        .seed = tw_get_u64(setup->identity.id.bytes + 8),
        .died = on_died,
        .admit = on_admit,
        .cut = on_cut,
        .user = daemon,
    };
    tw_supervisor_init(&daemon->supervisor, &supervisor);
    tw_supervisor_set_gpu(&daemon->supervisor, setup->config.worker.device.kind == TW_DEVICE_CUDA);
    return TW_OK;
}

enum tw_status tw_daemon_worker_start(struct tw_daemon *daemon, struct tw_error *err) {
    if (daemon->data.is_waiting) return TW_OK;
    return tw_supervisor_start(&daemon->supervisor, err);
}

void tw_daemon_worker_pause(struct tw_daemon *daemon, bool is_paused) {
    daemon->is_paused = is_paused;
    tw_worker_host_say(daemon->host, is_paused ? TW_WMSG_PAUSE : TW_WMSG_RESUME);
    tw_supervisor_set_idle(&daemon->supervisor, is_paused || daemon->host->is_finished);
    tw_daemon_note(daemon, TW_LOG_INFO, is_paused ? "paused" : "resumed", "by=user");
}

enum tw_view_worker tw_daemon_worker_state(const struct tw_daemon *daemon) {
    const bool is_there = tw_worker_link_is_open(&daemon->host->link);
    if (daemon->data.is_waiting) return TW_VIEW_WORKER_WAITING;
    if (daemon->supervisor.state == TW_SUPERVISOR_FAILED) return TW_VIEW_WORKER_FAILED;
    if (!is_there && !daemon->setup->config.node.spawn_worker) return TW_VIEW_WORKER_ABSENT;
    if (daemon->supervisor.state == TW_SUPERVISOR_PAUSING) return TW_VIEW_WORKER_RESTARTING;
    if (!is_there) {
        return daemon->supervisor.deaths > 0 ? TW_VIEW_WORKER_RESTARTING : TW_VIEW_WORKER_STARTING;
    }
    if (daemon->host->is_finished) return TW_VIEW_WORKER_FINISHED;
    if (daemon->is_paused) return TW_VIEW_WORKER_PAUSED;
    return daemon->train.is_stepping ? TW_VIEW_WORKER_RUNNING : TW_VIEW_WORKER_STARTING;
}
