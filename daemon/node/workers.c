#include "daemon/node/workers.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "daemon/api/history.h"
#include "daemon/api/status_view.h"
#include "daemon/node/admission.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/health.h"
#include "daemon/node/reports.h"
#include "daemon/pause/pauses.h"
#include "daemon/runlog/run_log.h"
#include "daemon/workerlink/supervisor.h"
#include "daemon/workerlink/worker_host.h"

struct tw_daemon_workers {
    struct tw_supervisor supervisor;
    struct tw_log_limit turned_away_limit; /* rate limit of log lines about refused processes */
    struct tw_pauses pauses;
    bool is_paused;
    bool is_awaiting;           /* training waits for the state of the run: awaits_state() */
    bool was_alone, was_member; /* was_alone: has waited for other nodes in vain */
    /* newest training figures of the worker */
    uint64_t started_us;
    float loss_mean, lr, grad_norm;
    bool has_loss;
    struct tw_wmsg_evaluated evaluated;
    struct tw_wmsg_sample sample; /* newest sample; step 0 and no text if there is none yet */
    uint64_t evaluated_us;
    bool has_evaluated, has_ready, is_stepping;
    bool is_untrained; /* parameters of the run's seed, which were in no merge yet */
    bool is_receiver;  /* the core fetches the run's state, or asks for a seat */
    bool comes_back;   /* READY says that another program restarts the worker after it has ended */
    uint64_t steps_skipped;
    uint64_t loaded_step; /* step of the loaded checkpoint; 0: none */
    uint64_t snapshot_step;
    char device[64];
    struct tw_wmsg_about about; /* description of the last worker that became ready */
    char error[TW_VIEW_TEXT_BYTES];
    bool is_device_fault; /* `error` is a fault of the compute device */
    pid_t pid;
};

/* ---- messages -------------------------------------------------------------------------- */

/* Logs the digest after a round, so that a person can compare it: within one lineage it must be the
 * same on all nodes. */
static void log_applied(const struct tw_daemon *daemon, const struct tw_event *event) {
    char digest[TW_ID_HEX_BYTES], lineage[9];
    tw_id_short(&daemon->lineage, lineage);
    tw_id_hex(&event->u.applied.digest, digest);
    digest[16] = '\0';
    tw_log(TW_LOG_DEBUG, "applied", "lineage=%s fragment=%u rounds=%llu ok=%d digest=%s", lineage,
           event->u.applied.fragment, (unsigned long long)event->u.applied.rounds, (int)event->ok,
           digest);
}

static void on_event(void *user, const struct tw_event *event) {
    if (event->kind == TW_EV_APPLIED) log_applied(user, event);
    tw_daemon_event(user, event);
}

static void on_attached(void *user, pid_t pid, const char *device) {
    struct tw_daemon *daemon = user;
    daemon->workers->pid = pid;
    (void)snprintf(daemon->workers->device, sizeof(daemon->workers->device), "%s", device);
    tw_supervisor_attached(&daemon->workers->supervisor, pid);
    /* until it is admitted, the worker keeps trying to attach */
    if (daemon->host->is_held) return;
    tw_daemon_note(daemon, TW_LOG_INFO, "worker_attached", "pid=%ld device=\"%s\"", (long)pid,
                   device);
}

static void on_welcomed(void *user, pid_t pid) {
    struct tw_daemon *daemon = user;
    tw_supervisor_linked(&daemon->workers->supervisor, pid);
}

static const char *start_name(uint32_t start) {
    switch (start) {
    case TW_START_FRESH: return "fresh";
    case TW_START_SNAPSHOT: return "snapshot";
    case TW_START_ANCHOR: return "anchor";
    case TW_START_KEPT: return "kept";
    default: return "unknown";
    }
}

static void check_stop_step(struct tw_daemon *daemon) {
    const uint64_t stop_step = daemon->setup->config.node.stop_step;
    if (stop_step == 0 || daemon->counts.step < stop_step || daemon->host->is_finished) return;
    daemon->host->is_finished = true;
    tw_supervisor_set_idle(&daemon->workers->supervisor, true);
    tw_supervisor_set_over(&daemon->workers->supervisor, true);
    tw_daemon_note(daemon, TW_LOG_INFO, "finished", "step=%llu text=\"stop_step is reached\"",
                   (unsigned long long)daemon->counts.step);
    tw_daemon_checkpoints_save(daemon, NULL);
}

static void on_ready(void *user, const struct tw_wmsg_ready *ready) {
    struct tw_daemon *daemon = user;
    if (!daemon->workers->has_ready) daemon->workers->started_us = tw_daemon_now_us();
    daemon->workers->has_ready = true;
    daemon->workers->is_stepping = daemon->setup->config.node.role != TW_NODE_ROLE_TRAIN;
    daemon->workers->comes_back = ready->comes_back == 1;
    daemon->workers->is_untrained = ready->start == TW_START_FRESH;
    daemon->counts.step = ready->step;
    daemon->counts.tokens = ready->tokens;
    daemon->workers->about = ready->about;
    daemon->workers->about.engine[sizeof(ready->about.engine) - 1] = '\0';
    tw_supervisor_ready(&daemon->workers->supervisor, ready->is_patient == 1);
    tw_supervisor_set_gpu(&daemon->workers->supervisor,
                          strncmp(daemon->workers->about.engine, "cuda:", 5) == 0);
    char behind[TW_VIEW_TEXT_BYTES] = "";
    const bool is_behind = tw_daemon_reached_is_behind(daemon, behind, sizeof(behind));
    tw_daemon_note(daemon, is_behind ? TW_LOG_WARN : TW_LOG_INFO, "worker_ready",
                   "start=%s step=%llu tokens=%llu%s%s%s", start_name(ready->start),
                   (unsigned long long)ready->step, (unsigned long long)ready->tokens,
                   is_behind ? " text=\"" : "", behind, is_behind ? "\"" : "");
    check_stop_step(daemon);
}

/* ---- parameters that are not the run's yet ---- */

void tw_daemon_workers_state(struct tw_daemon *daemon, enum tw_node_state state) {
    struct tw_daemon_workers *workers = daemon->workers;
    workers->is_receiver = state == TW_STATE_RECEIVER;
    if (!workers->is_untrained) return;
    if (workers->is_receiver) {
        workers->has_evaluated = workers->has_loss = false;
        memset(&workers->sample, 0, sizeof(workers->sample));
    }
    workers->is_untrained = state == TW_STATE_RECEIVER || state == TW_STATE_SOLO;
}

bool tw_daemon_workers_is_trained(const struct tw_daemon *daemon) {
    return daemon->workers->has_ready && !daemon->workers->is_untrained;
}

/* Returns true if figures of this step say nothing about the run: the parameters are those of the
 * seed, or will be replaced by the state that this node fetches. */
static bool is_void(struct tw_daemon *daemon, uint64_t step) {
    if (!daemon->workers->is_untrained) return false;
    if (step == 0) return true;
    if (!daemon->workers->is_receiver) return false;
    tw_node_view(daemon->node, &daemon->view);
    return daemon->view.fetch_fragments > 0;
}

static double utilisation(double step_us, double sync_us) {
    return step_us + sync_us > 0 ? step_us / (step_us + sync_us) : NAN;
}

/* Returns the current figures for the run log. */
static struct tw_run_step run_step(const struct tw_daemon *daemon) {
    const struct tw_daemon_workers *train = daemon->workers;
    const bool has_loss = train->has_loss;
    return (struct tw_run_step){
        .loss = has_loss ? train->loss_mean : NAN,
        .lr = has_loss ? train->lr : NAN,
        .grad_norm = has_loss ? train->grad_norm : NAN,
        .tokens_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_TOKENS),
        .utilisation = utilisation(tw_daemon_samples_rate(daemon, TW_SAMPLE_STEP_US),
                                   tw_daemon_samples_rate(daemon, TW_SAMPLE_SYNC_US)),
        .loss_live = train->evaluated.loss_live,
        .loss_anchor = train->evaluated.loss_anchor,
        .distance = train->evaluated.distance,
    };
}

static void on_stepped(void *user, const struct tw_wmsg_step *step) {
    struct tw_daemon *daemon = user;
    struct tw_daemon_workers *train = daemon->workers;
    struct tw_daemon_counts *counts = &daemon->counts;
    train->is_stepping = true;
    if (step->tokens > counts->tokens) {
        train->about.peak_flops_s =
            tw_view_peak(train->about.peak_flops_s,
                         (step->tokens - counts->tokens) * train->about.flops_token, step->step_us);
    }
    counts->steps_made++;
    counts->step = step->step;
    counts->tokens = step->tokens;
    counts->step_us += step->step_us;
    counts->sync_us += step->sync_us;
    train->lr = step->lr;
    if (step->is_skipped != 0) {
        train->steps_skipped++;
    } else if (!is_void(daemon, step->step)) {
        train->loss_mean =
            train->has_loss ? train->loss_mean + (step->loss - train->loss_mean) / 16 : step->loss;
        train->has_loss = true;
        train->grad_norm = step->grad_norm;
        const struct tw_view_loss point = {
            .step = step->step, .train = train->loss_mean, .live = NAN, .anchor = NAN};
        tw_history_loss(daemon->history, &point);
    }
    if (tw_run_log_is_due(daemon->run_log)) {
        const struct tw_run_step line = run_step(daemon);
        tw_run_log_step(daemon->run_log, &line);
    }
    tw_supervisor_stepped(&daemon->workers->supervisor, step->step_us);
    check_stop_step(daemon);
}

static void on_encoded(void *user, const struct tw_encoded *encoded) {
    tw_daemon_budget_encoded(user, encoded);
}

static void on_evaluated(void *user, const struct tw_wmsg_evaluated *evaluated) {
    struct tw_daemon *daemon = user;
    tw_supervisor_alive(&daemon->workers->supervisor);
    if (is_void(daemon, evaluated->step)) return;
    daemon->workers->evaluated_us = tw_daemon_now_us();
    daemon->workers->evaluated = *evaluated;
    daemon->workers->has_evaluated = true;
    const struct tw_view_loss point = {
        .step = evaluated->step,
        .train = daemon->workers->has_loss ? daemon->workers->loss_mean : NAN,
        .live = evaluated->loss_live,
        .anchor = evaluated->loss_anchor};
    tw_history_loss(daemon->history, &point);
    const struct tw_past_evaluation past = {.step = evaluated->step,
                                            .unix_us = tw_daemon_unix_us(),
                                            .live = evaluated->loss_live,
                                            .anchor = evaluated->loss_anchor,
                                            .distance = evaluated->distance};
    tw_history_evaluated(daemon->history, &past);
    const struct tw_run_step line = run_step(daemon);
    tw_run_log_evaluation(daemon->run_log, &line, evaluated->step);
    tw_daemon_health_evaluated(daemon, evaluated);
    tw_log(TW_LOG_DEBUG, "worker_evaluated", "step=%llu loss_live=%.4f loss_anchor=%.4f",
           (unsigned long long)evaluated->step, (double)evaluated->loss_live,
           (double)evaluated->loss_anchor);
}

static void on_sampled(void *user, const struct tw_wmsg_sample *sample) {
    struct tw_daemon *daemon = user;
    if (is_void(daemon, sample->step)) return;
    daemon->workers->sample = *sample;
    tw_run_log_sample(daemon->run_log, sample);
}

static void on_worked(void *user) {
    struct tw_daemon *daemon = user;
    tw_supervisor_alive(&daemon->workers->supervisor);
}

static void on_snapshot(void *user, uint32_t slot, uint64_t step) {
    struct tw_daemon *daemon = user;
    if (slot < TW_SNAPSHOT_SLOTS) {
        daemon->workers->snapshot_step = step;
        tw_supervisor_snapshot(&daemon->workers->supervisor, step);
    }
    tw_supervisor_alive(&daemon->workers->supervisor);
    tw_daemon_checkpoints_snapshot_done(daemon);
}

static void on_gone(void *user, const char *sentence) {
    struct tw_daemon *daemon = user;
    daemon->workers->pid = 0;
    daemon->workers->is_stepping = false;
    if (daemon->stage == TW_DAEMON_RUNNING && !daemon->host->is_held &&
        !daemon->host->is_finished && !daemon->is_resting && !daemon->host->has_left) {
        (void)snprintf(daemon->workers->error, sizeof(daemon->workers->error), "%s", sentence);
        tw_daemon_note(daemon, TW_LOG_WARN, "worker_gone", "text=\"%s\"", sentence);
    }
    const bool is_device_fault = daemon->host->last_status == TW_DEVICE;
    const int exit_status = is_device_fault          ? TW_EXIT_DEVICE
                            : daemon->host->has_left ? TW_EXIT_OK
                                                     : -1;
    tw_supervisor_unlinked(&daemon->workers->supervisor, exit_status);
    /* No worker can take a snapshot now: save the newest existing one. */
    tw_daemon_checkpoints_snapshot_done(daemon);
}

/* Rate-limited, because systemd restarts a refused worker every other second. */
static void on_turned_away(void *user, const char *sentence) {
    enum { LINE_US = 60 * 1000 * 1000 };
    struct tw_daemon *daemon = user;
    uint64_t held_back;
    if (!tw_log_may_say(&daemon->workers->turned_away_limit, tw_daemon_now_us(), LINE_US,
                        &held_back))
        return;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_refused", "text=\"%s\" held_back=%llu", sentence,
                   (unsigned long long)held_back);
}

static void on_frozen(void *user) {
    tw_daemon_checkpoints_frozen(user);
}

/* ---- the supervisor ----------------------------------------------------------------- */

/* Returns true if a worker that was never ready would exit with this status every time, so that a
 * person must act. */
static bool is_hopeless(const struct tw_daemon *daemon, const struct tw_worker_death *death) {
    if (daemon->workers->has_ready || death->signal != 0) return false;
    if (daemon->setup->config.node.worker_command[0] != '\0')
        return false; /* a foreign program's statuses mean something else */
    return death->exit_status == TW_EXIT_USAGE || death->exit_status == TW_EXIT_MANIFEST ||
           death->exit_status == TW_EXIT_DATA;
}

/* Returns the program or command that starts the worker. */
static const char *worker_name(const struct tw_daemon *daemon) {
    const char *const command = daemon->setup->config.node.worker_command;
    return command[0] != '\0' ? command : daemon->setup->worker_path;
}

/* Called when the pause before a restart is over: a worker that the daemon does not start itself
 * may attach now. */
static void on_admit(void *user) {
    struct tw_daemon *daemon = user;
    tw_worker_host_set_held(daemon->host, false);
}

static void on_cut(void *user) {
    struct tw_daemon *daemon = user;
    const bool has_exited = daemon->workers->supervisor.has_exited;
    char sentence[160];
    (void)snprintf(sentence, sizeof(sentence), "%s: its link is closed, and %s %ld may still run",
                   has_exited ? "the worker ended and its link did not"
                              : "the worker did not end when it was asked to",
                   has_exited ? "a child of process" : "process", (long)daemon->host->link.pid);
    tw_worker_link_drop(&daemon->host->link, sentence);
}

static void on_died(void *user, const struct tw_worker_death *death) {
    struct tw_daemon *daemon = user;
    if (death->is_wanted) {
        tw_daemon_leave_step(daemon);
        return;
    }
    if (death->is_rest) {
        tw_daemon_note(daemon, TW_LOG_INFO, "memory_given_back",
                       "step=%llu snapshot_step=%llu exit=%d signal=%d",
                       (unsigned long long)daemon->counts.step,
                       (unsigned long long)daemon->workers->supervisor.snapshot_step,
                       death->exit_status, death->signal);
        tw_worker_host_trim(daemon->host);
        return;
    }
    if (death->is_done) {
        daemon->workers->error[0] = '\0';
        tw_daemon_note(daemon, TW_LOG_INFO, "worker_done",
                       "text=\"the run is over, and the trainer has left\"");
        return;
    }
    if (death->has_left) {
        daemon->workers->error[0] = '\0';
        tw_daemon_note(daemon, TW_LOG_INFO, "worker_left",
                       "text=\"it took a snapshot and detached; the next one is welcome\"");
        return;
    }
    const bool is_foreign = !daemon->setup->spawns_worker;
    if (is_foreign) {
        tw_worker_host_set_held(daemon->host, true);
        if (death->was_hanging) {
            (void)snprintf(daemon->workers->error, sizeof(daemon->workers->error),
                           "cut off for hanging");
        }
    } else if (death->signal != 0) {
        (void)snprintf(daemon->workers->error, sizeof(daemon->workers->error),
                       "%s by signal %d (%s)", death->was_hanging ? "ended for hanging" : "killed",
                       death->signal, strsignal(death->signal));
    } else if (!daemon->workers->has_ready && daemon->workers->error[0] == '\0') {
        (void)snprintf(daemon->workers->error, sizeof(daemon->workers->error),
                       "%.160s ended with status %d before it attached to the daemon: is it a "
                       "Thinwire worker?",
                       worker_name(daemon), death->exit_status);
    }
    daemon->workers->is_device_fault = death->signal == 0 && death->exit_status == TW_EXIT_DEVICE;
    if (is_hopeless(daemon, death)) {
        if (daemon->workers->error[0] == '\0') {
            (void)snprintf(daemon->workers->error, sizeof(daemon->workers->error),
                           "the worker %.160s ended before it was ready; its own message is above",
                           daemon->setup->worker_path);
        }
        tw_daemon_note(daemon, TW_LOG_ERROR, "worker_failed", "exit=%d", death->exit_status);
        (void)fprintf(stderr, "thinwired: %s\n", daemon->workers->error);
        (void)tw_supervisor_stop(&daemon->workers->supervisor, 0);
        tw_daemon_leave(daemon, (enum tw_exit)death->exit_status);
        return;
    }
    const struct tw_restart_verdict *verdict = &death->verdict;
    tw_daemon_note(daemon, TW_LOG_WARN, "worker_died",
                   "exit=%d signal=%d deaths=%u restart_in_us=%llu skip_batches=%llu text=\"%s\"",
                   death->exit_status, death->signal, daemon->workers->supervisor.deaths,
                   (unsigned long long)verdict->pause_us, (unsigned long long)verdict->skip,
                   daemon->workers->error);
    switch (verdict->rung) {
    case TW_RESTART_PLAIN: return;
    case TW_RESTART_SKIP: daemon->host->batches_to_skip = verdict->skip; return;
    case TW_RESTART_ANCHOR: daemon->host->is_anchor_wanted = true; return;
    case TW_RESTART_GIVE_UP:
        tw_daemon_note(daemon, TW_LOG_ERROR, "worker_given_up",
                       "deaths=%u text=\"it dies without progress: the node goes on without "
                       "training; remove the cause, then restart the daemon\"",
                       daemon->workers->supervisor.deaths);
        return;
    }
}

/* ---- pauses -------------------------------------------------------------------------------- */

/* Returns the worker's process: it does not count as use of the machine by others. */
static pid_t on_worker_asked(void *user) {
    const struct tw_daemon *daemon = user;
    const pid_t own = daemon->workers->supervisor.pid;
    return own > 0 ? own : daemon->workers->pid;
}

static void wake_worker(struct tw_daemon *daemon) {
    struct tw_supervisor *supervisor = &daemon->workers->supervisor;
    daemon->is_resting = false;
    tw_supervisor_wake(supervisor);
    /* In other cases on_admit lets the next external worker attach, once the last one has ended. */
    if (daemon->setup->spawns_worker || supervisor->state == TW_SUPERVISOR_STOPPED)
        tw_worker_host_set_held(daemon->host, false);
    tw_daemon_caps_apply(daemon);
}

/* Tells the supervisor whether the worker is to take steps. If not, a lack of steps does not mean
 * that it hangs. */
static void tell_idle(struct tw_daemon *daemon) {
    const bool is_idle = daemon->workers->is_paused || daemon->workers->is_awaiting ||
                         daemon->host->is_finished ||
                         daemon->setup->config.node.role != TW_NODE_ROLE_TRAIN;
    tw_supervisor_set_idle(&daemon->workers->supervisor, is_idle);
}

/* Tells the worker and the supervisor whether steps are to be taken. */
static void tell_pause(struct tw_daemon *daemon) {
    const bool is_still = daemon->workers->is_paused || daemon->workers->is_awaiting;
    tw_worker_host_say(daemon->host, is_still ? TW_WMSG_PAUSE : TW_WMSG_RESUME);
    tell_idle(daemon);
}

/* Returns true while the worker should not train, because its weights would be thrown away: it
 * begins with fresh ones, and other nodes are about to give it the state of the run. It waits for
 * their links as long as the core waits with its first round (SOLO_HOLD_US), and for the state
 * while a peer is there. */
static bool awaits_state(struct tw_daemon *daemon, uint64_t now_us) {
    enum { LINK_US = 5 * 1000 * 1000 };
    struct tw_daemon_workers *const workers = daemon->workers;
    const struct tw_config *const config = &daemon->setup->config;
    if (config->node.role != TW_NODE_ROLE_TRAIN || daemon->transport == NULL) return false;
    if (daemon->setup->run.sync.topology != TW_TOPOLOGY_GROUP) return false;
    if (workers->loaded_step > 0 || workers->was_member || daemon->host->is_finished) return false;
    tw_node_view(daemon->node, &daemon->view);
    if (daemon->view.state == TW_STATE_RECEIVER) return daemon->view.alive > 0;
    if (daemon->view.state != TW_STATE_SOLO) workers->was_member = true;
    if (workers->was_member || workers->was_alone) return false;
    workers->was_alone = now_us >= daemon->started_us + LINK_US ||
                         (config->network.peers_count == 0 && !tw_daemon_reached_any(daemon));
    return !workers->was_alone;
}

static void watch_state(struct tw_daemon *daemon, uint64_t now_us) {
    const bool is_awaiting = awaits_state(daemon, now_us);
    if (is_awaiting == daemon->workers->is_awaiting) return;
    daemon->workers->is_awaiting = is_awaiting;
    tell_pause(daemon);
}

static void on_pause(void *user, bool is_paused) {
    struct tw_daemon *daemon = user;
    daemon->workers->is_paused = is_paused;
    tell_pause(daemon);
    if (is_paused) return;
    if (daemon->node != NULL) tw_daemon_health_resumed(daemon);
    if (daemon->is_resting) wake_worker(daemon);
}

/* Returns true if a worker that ends now can later continue from the same state. Its snapshot must
 * contain the whole state. Somebody must start it again: the daemon, or another program, as READY
 * tells. A command of the user may have more state than the daemon knows of. */
static bool may_rest(const struct tw_daemon *daemon) {
    const struct tw_setup *setup = daemon->setup;
    const bool is_ours = setup->spawns_worker && setup->config.node.worker_command[0] == '\0';
    if (setup->memory.snapshot == TW_SNAPSHOT_OFF || daemon->host->is_finished) return false;
    if (!is_ours && !daemon->workers->comes_back) return false;
    /* A merge in progress must end first. */
    return tw_worker_host_is_ready(daemon->host) && tw_calls_changes(daemon->host) == 0;
}

/* Also suspends the links (caps.h): a member without a worker would hold up the votes of its group.
 */
static void begin_rest(struct tw_daemon *daemon) {
    enum { GRACE_US = 60 * 1000 * 1000 }; /* time to save the snapshot of a large model */
    daemon->is_resting = true;
    tw_worker_host_set_held(daemon->host, true);
    tw_worker_host_say(daemon->host, TW_WMSG_EXIT);
    tw_supervisor_rest(&daemon->workers->supervisor, GRACE_US);
    tw_daemon_caps_apply(daemon);
}

static bool on_rest(void *user) {
    struct tw_daemon *daemon = user;
    if (!may_rest(daemon)) return false;
    begin_rest(daemon);
    return true;
}

static double on_gpu_asked(void *user) {
    enum { OLD_US = 2 * 1000 * 1000 };
    const struct tw_daemon *const daemon = user;
    struct tw_shm_device *const device = &tw_shm_control(&daemon->host->memory.shm)->device;
    const uint64_t percent = atomic_load(&device->others_percent);
    const bool is_new = tw_daemon_now_us() < atomic_load(&device->seen_us) + OLD_US;
    return percent > 0 && is_new ? (double)(percent - 1) / 100 : (double)NAN;
}

/* A worker that started in quiet hours would take memory only to wait. Somebody else's worker may
 * attach at any time. */
static bool starts_at_rest(const struct tw_daemon *daemon) {
    const uint32_t reasons = daemon->workers->pauses.manners.reasons;
    return daemon->setup->spawns_worker && (reasons & TW_PAUSE_HOURS) != 0;
}

static void on_pause_noted(void *user, bool is_warning, const char *name, const char *pairs) {
    tw_daemon_note(user, is_warning ? TW_LOG_WARN : TW_LOG_INFO, name, "%s", pairs);
}

static void init_pauses(struct tw_daemon *daemon) {
    const struct tw_pauses_config config = {
        .config = &daemon->setup->config,
        .minute_of_day = tw_daemon_caps_minute_of_day,
        .worker = on_worker_asked,
        .gpu_others = on_gpu_asked,
        .pause = on_pause,
        .rest = on_rest,
        .note = on_pause_noted,
        .user = daemon,
    };
    tw_pauses_init(&daemon->workers->pauses, &config);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* Logged before anything is allocated: on a machine without enough memory it is the last line, and
 * so explains the end. */
static void note_memory(struct tw_daemon *daemon) {
    const struct tw_memory_plan *const plan = &daemon->setup->memory;
    tw_daemon_note(daemon, TW_LOG_INFO, "memory",
                   "anchors=%s snapshot=%s anchor_bytes=%llu transit_bytes=%llu "
                   "snapshot_bytes=%llu copy_bytes=%llu",
                   plan->is_file ? "file" : "memory", tw_memory_plan_snapshot(plan),
                   (unsigned long long)plan->anchor_bytes, (unsigned long long)plan->transit_bytes,
                   (unsigned long long)plan->snapshot_bytes, (unsigned long long)plan->copy_bytes);
}

/* Returns a number that changes with each recall and rollback: both refuse lineages. */
static uint64_t history_of(const struct tw_setup *setup) {
    uint64_t history = setup->gate.recall.version + ((uint64_t)setup->refused.count << 32);
    for (uint32_t i = 0; i < setup->refused.count; i++)
        history ^= tw_get_u64(setup->refused.ids[i].bytes);
    return history;
}

enum tw_status tw_daemon_workers_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_setup *setup = daemon->setup;
    /* A node that reduces neither trains nor measures, so its worker needs no data. */
    const bool reads = setup->config.node.role != TW_NODE_ROLE_REDUCE;
    const struct tw_worker_host_config host = {
        .loop = &daemon->loop,
        .run = &setup->run,
        .layout = &setup->layout,
        .socket_path = setup->worker_socket,
        .worker_uid = setup->worker_uid,
        .data_path = reads ? setup->data_path : "",
        .compute = setup->config.worker,
        .snapshot_steps = setup->config.node.snapshot_steps,
        .eval_steps = reads ? setup->config.node.eval_steps : 0,
        .sample_bytes = reads ? setup->config.node.sample_bytes : 0,
        .follows = setup->config.node.role != TW_NODE_ROLE_TRAIN,
        .snapshot_mode = setup->memory.snapshot,
        .memory_folder = setup->memory.is_file ? setup->run_state_dir : NULL,
        .stop_step = setup->config.node.stop_step,
        .data_seed = tw_get_u64(setup->identity.id.bytes),
        .history = history_of(setup),
        .events = {.event = on_event,
                   .attached = on_attached,
                   .welcomed = on_welcomed,
                   .ready = on_ready,
                   .stepped = on_stepped,
                   .encoded = on_encoded,
                   .evaluated = on_evaluated,
                   .sampled = on_sampled,
                   .worked = on_worked,
                   .snapshot = on_snapshot,
                   .gone = on_gone,
                   .refused = on_turned_away,
                   .frozen = on_frozen},
        .user = daemon,
    };
    daemon->workers = tw_daemon_alloc(sizeof(*daemon->workers), err);
    if (daemon->workers == NULL) return TW_NOMEM;
    daemon->workers->snapshot_step = TW_VIEW_NEVER;
    daemon->workers->is_receiver = true; /* until the core reports another state */
    init_pauses(daemon);
    note_memory(daemon);
    TW_TRY(tw_worker_host_create(&daemon->host, &host, err));
    daemon->host->memory.shm.hashed = &daemon->moved;
    const struct tw_supervisor_config supervisor = {
        .loop = &daemon->loop,
        .worker_path = setup->spawns_worker ? setup->worker_path : NULL,
        .command =
            setup->config.node.worker_command[0] != '\0' ? setup->config.node.worker_command : NULL,
        .socket_path = setup->worker_socket,
        .nice = setup->config.manners.nice,
        .seed = tw_get_u64(setup->identity.id.bytes + 8),
        .died = on_died,
        .admit = on_admit,
        .cut = on_cut,
        .user = daemon,
    };
    tw_supervisor_init(&daemon->workers->supervisor, &supervisor);
    tw_supervisor_set_gpu(&daemon->workers->supervisor,
                          setup->config.worker.device.kind == TW_DEVICE_CUDA);
    return TW_OK;
}

enum tw_status tw_daemon_workers_start(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->workers->loaded_step = daemon->counts.step;
    watch_state(daemon, tw_daemon_now_us());
    if (daemon->is_data_awaited) return TW_OK;
    if (starts_at_rest(daemon)) begin_rest(daemon);
    return tw_supervisor_start(&daemon->workers->supervisor, err);
}

void tw_daemon_workers_pause(struct tw_daemon *daemon, bool is_paused, struct tw_error *answer) {
    tw_pauses_user(&daemon->workers->pauses, is_paused, tw_daemon_now_us(), answer);
}

void tw_daemon_workers_apply(struct tw_daemon *daemon) {
    const uint64_t now_us = tw_daemon_now_us();
    tw_pauses_apply(&daemon->workers->pauses, now_us);
    tw_pauses_run(&daemon->workers->pauses, tw_daemon_admission_is_paused(daemon), now_us);
}

void tw_daemon_workers_tick(struct tw_daemon *daemon, uint64_t now_us) {
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    tw_pauses_run(&daemon->workers->pauses, tw_daemon_admission_is_paused(daemon), now_us);
    tw_pauses_tick(&daemon->workers->pauses, now_us);
    watch_state(daemon, now_us);
}

void tw_daemon_workers_finished(struct tw_daemon *daemon) {
    tell_idle(daemon);
    tw_supervisor_set_over(&daemon->workers->supervisor, daemon->host->is_finished);
    if (daemon->host->is_finished) tw_daemon_checkpoints_save(daemon, NULL);
}

bool tw_daemon_workers_stop(struct tw_daemon *daemon, uint64_t grace_us) {
    tw_worker_host_set_held(daemon->host,
                            true); /* one that connects now waits for the next daemon */
    return tw_supervisor_stop(&daemon->workers->supervisor, grace_us);
}

bool tw_daemon_workers_is_running(const struct tw_daemon *daemon) {
    return tw_supervisor_is_running(&daemon->workers->supervisor);
}

void tw_daemon_workers_close(struct tw_daemon *daemon) {
    tw_supervisor_close(&daemon->workers->supervisor);
    tw_worker_host_close(daemon->host);
}

void tw_daemon_workers_free(struct tw_daemon *daemon) {
    tw_worker_host_destroy(daemon->host);
    free(daemon->workers);
}

/* ---- status -------------------------------------------------------------------------------- */

static uint64_t age(uint64_t now_us, uint64_t at_us) {
    return now_us > at_us ? now_us - at_us : 0;
}

/* Fills in the newest evaluation. After a restart this is one of the steps before the loaded
 * checkpoint, from the run log, until the worker measures again. */
static void fill_evaluation(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view) {
    const struct tw_daemon_workers *const train = daemon->workers;
    if (train->has_evaluated) {
        view->train.loss_live = train->evaluated.loss_live;
        view->train.loss_anchor = train->evaluated.loss_anchor;
        view->train.eval_step = train->evaluated.step;
        view->train.eval_age_us = age(now_us, train->evaluated_us);
        view->train.distance = train->evaluated.distance;
        return;
    }
    const struct tw_past_evaluation *const past =
        tw_history_evaluation(daemon->history, train->loaded_step);
    if (past == NULL) return;
    view->train.loss_live = past->live;
    view->train.loss_anchor = past->anchor;
    view->train.eval_step = past->step;
    view->train.eval_age_us = age(tw_daemon_unix_us(), past->unix_us);
    view->train.distance = past->distance;
}

static void fill_train(const struct tw_daemon *daemon, uint64_t now_us,
                       struct tw_status_view *view) {
    const struct tw_daemon_workers *train = daemon->workers;
    view->train.step = daemon->counts.step;
    view->train.tokens = daemon->counts.tokens;
    view->train.stop_step = daemon->setup->config.node.stop_step;
    view->train.tokens_per_s = tw_daemon_samples_rate(daemon, TW_SAMPLE_TOKENS);
    if (train->about.flops_token > 0) {
        view->train.flops_s = view->train.tokens_per_s * (double)train->about.flops_token;
    }
    view->train.mfu = tw_view_mfu(view->train.flops_s, train->about.peak_flops_s);
    if (train->has_loss) {
        view->train.loss = train->loss_mean;
        view->train.lr = train->lr;
        view->train.grad_norm = train->grad_norm;
    }
    fill_evaluation(daemon, now_us, view);
    view->train.sample = train->sample;
    view->train.steps_skipped = train->steps_skipped;
    view->train.utilisation =
        utilisation((double)daemon->counts.step_us, (double)daemon->counts.sync_us);
    view->train.utilisation_minute = utilisation(tw_daemon_samples_rate(daemon, TW_SAMPLE_STEP_US),
                                                 tw_daemon_samples_rate(daemon, TW_SAMPLE_SYNC_US));
    tw_history_fill(daemon->history, view);
}

/* Copies the GPU's state from the shared memory, where the worker updates it. An old state is not
 * shown, because the worker hangs or is gone. */
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

static enum tw_view_worker worker_state(const struct tw_daemon *daemon) {
    const bool is_there = tw_worker_link_is_open(&daemon->host->link);
    if (daemon->is_data_awaited) return TW_VIEW_WORKER_WAITING;
    if (daemon->is_resting) return TW_VIEW_WORKER_PAUSED;
    if (daemon->workers->supervisor.state == TW_SUPERVISOR_FAILED) return TW_VIEW_WORKER_FAILED;
    if (!is_there && !daemon->setup->spawns_worker) return TW_VIEW_WORKER_ABSENT;
    if (daemon->workers->supervisor.state == TW_SUPERVISOR_PAUSING)
        return TW_VIEW_WORKER_RESTARTING;
    if (!is_there) {
        return daemon->workers->supervisor.deaths > 0 ? TW_VIEW_WORKER_RESTARTING
                                                      : TW_VIEW_WORKER_STARTING;
    }
    if (daemon->host->is_finished) return TW_VIEW_WORKER_FINISHED;
    if (daemon->workers->is_paused) return TW_VIEW_WORKER_PAUSED;
    if (daemon->workers->is_awaiting) return TW_VIEW_WORKER_LOADING;
    return daemon->workers->is_stepping ? TW_VIEW_WORKER_RUNNING : TW_VIEW_WORKER_STARTING;
}

static bool is_working(enum tw_view_worker state) {
    return state == TW_VIEW_WORKER_STARTING || state == TW_VIEW_WORKER_RUNNING ||
           state == TW_VIEW_WORKER_RESTARTING;
}

static void fill_worker(const struct tw_daemon *daemon, uint64_t now_us,
                        struct tw_status_view *view) {
    const uint64_t beat = atomic_load(&tw_shm_control(&daemon->host->memory.shm)->heartbeat_us);
    view->worker.state = worker_state(daemon);
    if (!is_working(view->worker.state)) { /* the last minute's say nothing */
        view->train.tokens_per_s = 0;
        view->train.flops_s = view->train.mfu = NAN;
    }
    view->worker.pid = (uint32_t)daemon->workers->pid;
    view->worker.restarts = daemon->workers->supervisor.deaths;
    (void)snprintf(view->worker.device, sizeof(view->worker.device), "%s", daemon->workers->device);
    (void)snprintf(view->worker.engine, sizeof(view->worker.engine), "%s",
                   daemon->workers->about.engine);
    view->worker.memory_bytes = daemon->workers->about.memory_bytes;
    view->worker.is_service = !daemon->setup->spawns_worker && getenv("NOTIFY_SOCKET") != NULL;
    (void)snprintf(view->worker.error, sizeof(view->worker.error), "%s", daemon->workers->error);
    view->worker.is_device_fault = daemon->workers->is_device_fault;
    view->worker.snapshot_step = daemon->workers->snapshot_step;
    const uint64_t still_us = tw_supervisor_still_us(&daemon->workers->supervisor);
    if (still_us > 0 && view->worker.state == TW_VIEW_WORKER_RUNNING)
        view->worker.still_us = still_us;
    if (beat > 0) view->worker.heartbeat_us = age(now_us, beat);
    fill_gpu(daemon, now_us, &view->worker.gpu);
}

void tw_daemon_workers_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view) {
    fill_train(daemon, now_us, view);
    fill_worker(daemon, now_us, view);
    view->pause = tw_pauses_view(&daemon->workers->pauses, now_us);
    view->pause.is_memory_back =
        daemon->is_resting && !tw_supervisor_is_running(&daemon->workers->supervisor);
}
