#include "daemon/node/runtime.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/node/notify.h"

enum { NODE_ALIGN = 64, EXIT_GRACE_US = 5 * 1000 * 1000 };

uint64_t tw_daemon_now_us(void) {
    return uv_hrtime() / 1000;
}

void tw_daemon_note(struct tw_daemon *daemon, enum tw_log_level level, const char *name,
                    const char *fmt, ...) {
    char text[TW_VIEW_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tw_log(level, name, "%s", text);
    tw_event_ring_add(&daemon->event_ring, tw_daemon_now_us(), level <= TW_LOG_WARN, name, "%s",
                      text);
}

/* ---- what the core reports ----------------------------------------------------------------- */

static void full_note(struct tw_daemon *daemon, const struct tw_id *id) {
    const unsigned members = daemon->setup->run.sync.members;
    char hex[9];
    tw_id_short(id, hex);
    if (tw_id_equal(id, &daemon->setup->identity.id)) {
        tw_daemon_note(daemon, TW_LOG_WARN, "group_full",
                       "members=%u text=\"this node follows and does not contribute until a member "
                       "leaves: sync.members of the manifest is %u\"",
                       members, members);
        return;
    }
    tw_daemon_note(
        daemon, TW_LOG_WARN, "join_refused",
        "peer=%s members=%u text=\"sync.members of the manifest is %u: no seat is free\"", hex,
        members, members);
}

static void struck_note(struct tw_daemon *daemon, const char *peer,
                        const struct tw_action *action) {
    const unsigned long long round = (unsigned long long)action->u.report.round;
    const bool is_corrupt = action->u.report.reason == TW_CORRUPT;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) {
        daemon->partners_struck++;
        tw_daemon_note(daemon, TW_LOG_WARN, "partner_struck", "peer=%s round=%llu why=%s", peer,
                       round, is_corrupt ? "unreadable" : "insane");
        return;
    }
    tw_daemon_note(daemon, TW_LOG_WARN, "owner_struck", "peer=%s round=%llu part=%u why=%s", peer,
                   round, action->u.report.part, is_corrupt ? "false_merge" : "insane_result");
}

static void report_show(struct tw_daemon *daemon, const struct tw_action *action) {
    char hex[9];
    switch (action->u.report.kind) {
    case TW_REPORT_PEER_DEAD:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_dead", "peer=%s silent_us=%u", hex,
                       (unsigned)TW_PEER_SILENCE_US);
        return;
    case TW_REPORT_ROUND_COMMITTED: tw_daemon_status_round(daemon, action->u.report.record); return;
    case TW_REPORT_LINEAGE:
        tw_id_short(&action->u.report.id, hex);
        daemon->lineage = action->u.report.id;
        daemon->lineage_changes++;
        tw_daemon_note(daemon, TW_LOG_INFO, "lineage", "lineage=%s", hex);
        return;
    case TW_REPORT_STATE:
        tw_daemon_note(daemon, TW_LOG_INFO, "state", "state=%s",
                       tw_view_state_name(action->u.report.state));
        tw_notify("STATUS=%s", tw_view_state_name(action->u.report.state));
        return;
    case TW_REPORT_PAIRED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_INFO, "paired", "peer=%s", hex);
        tw_round_ring_pair(&daemon->round_ring, &action->u.report.id);
        daemon->partner = action->u.report.id;
        daemon->partner_us = tw_daemon_now_us();
        return;
    case TW_REPORT_ONE_SIDED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_INFO, "pair_one_sided", "peer=%s", hex);
        return;
    case TW_REPORT_MISBEHAVED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "misbehaved", "peer=%s reason=%s", hex,
                       tw_status_name(action->u.report.reason));
        return;
    case TW_REPORT_REFUSED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "contribution_refused", "peer=%s round=%llu times=%u",
                       hex, (unsigned long long)action->u.report.round, action->u.report.times);
        return;
    case TW_REPORT_FULL: full_note(daemon, &action->u.report.id); return;
    case TW_REPORT_STRUCK:
        tw_id_short(&action->u.report.id, hex);
        struck_note(daemon, hex, action);
        return;
    case TW_REPORT_STALLED:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "peer_stalls",
                       "peer=%s text=\"it held up rounds: they do not wait for it for a while\"",
                       hex);
        return;
    case TW_REPORT_INSANE:
        tw_id_short(&action->u.report.id, hex);
        tw_daemon_note(daemon, TW_LOG_WARN, "result_refused", "peer=%s", hex);
        return;
    }
}

/* ---- the core ------------------------------------------------------------------------------ */

static void opening_note(struct tw_daemon *daemon, uint64_t round) {
    const unsigned at = (unsigned)(round % TW_OPENINGS_MAX);
    daemon->openings[at].round = round + 1;
    daemon->openings[at].at_us = tw_daemon_now_us();
    daemon->openings[at].bytes = daemon->chunk_bytes_in + daemon->chunk_bytes_out;
}

static void action_do(struct tw_daemon *daemon, struct tw_action *action) {
    switch (action->kind) {
    case TW_ACT_SEND: tw_daemon_links_send(daemon, action->peer, action->u.message); return;
    case TW_ACT_CLOSE:
        if (daemon->transport != NULL) {
            tw_transport_close(daemon->transport, action->peer, action->u.reason,
                               tw_status_meaning(action->u.reason));
        }
        return;
    case TW_ACT_SEND_CHUNK: tw_daemon_links_chunk(daemon, action); return;
    case TW_ACT_DROP:
        tw_daemon_links_drop(daemon, &action->u.payload.hash);
        tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_ENCODE:
        opening_note(daemon, action->u.encode.round);
        if (tw_daemon_budget_grant(daemon, action)) tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_PAIR_ENCODE:
        opening_note(daemon, action->u.pair.round);
        if (tw_daemon_budget_grant(daemon, action)) tw_worker_host_act(daemon->host, action);
        return;
    case TW_ACT_FINISH:
        tw_worker_host_act(daemon->host, action);
        tw_supervisor_set_idle(&daemon->supervisor, daemon->is_paused || daemon->host->is_finished);
        if (daemon->host->is_finished) tw_daemon_save(daemon, NULL);
        return;
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_CLOCK: tw_worker_host_act(daemon->host, action); return;
    case TW_ACT_STORE_VOTE: tw_daemon_vote_store(daemon, action); return;
    case TW_ACT_REPORT: report_show(daemon, action); return;
    }
}

static void event_pump(struct tw_daemon *daemon, const struct tw_event *event) {
    struct tw_action action;
    tw_node_event(daemon->node, event, tw_daemon_now_us());
    while (tw_node_next_action(daemon->node, &action)) action_do(daemon, &action);
}

static void on_core_timer(uv_timer_t *timer) {
    static const struct tw_event tick = {.kind = TW_EV_TICK};
    tw_daemon_event(timer->data, &tick);
}

static void deadline_arm(struct tw_daemon *daemon) {
    const uint64_t deadline = tw_node_deadline(daemon->node), now = tw_daemon_now_us();
    if (deadline == UINT64_MAX || daemon->stage == TW_DAEMON_CLOSING) {
        (void)uv_timer_stop(&daemon->core_timer);
        return;
    }
    const uint64_t delay_ms = deadline > now ? (deadline - now + 999) / 1000 : 0;
    uv_update_time(&daemon->loop);
    TW_ASSERT(uv_timer_start(&daemon->core_timer, on_core_timer, delay_ms, 0) == 0);
}

void tw_daemon_event(struct tw_daemon *daemon, const struct tw_event *event) {
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    if (daemon->is_pumping) {
        TW_ASSERT(event->kind != TW_EV_MESSAGE); /* its message is borrowed */
        if (daemon->events_count == TW_EVENT_QUEUE) {
            tw_worker_link_drop(&daemon->host->link, "the core has too many answers waiting");
            return;
        }
        const uint32_t last = (daemon->events_first + daemon->events_count) % TW_EVENT_QUEUE;
        daemon->events[last] = *event;
        daemon->events_count++;
        return;
    }
    daemon->is_pumping = true;
    event_pump(daemon, event);
    while (daemon->events_count > 0) {
        const struct tw_event next = daemon->events[daemon->events_first];
        daemon->events_first = (daemon->events_first + 1) % TW_EVENT_QUEUE;
        daemon->events_count--;
        event_pump(daemon, &next);
    }
    daemon->is_pumping = false;
    deadline_arm(daemon);
}

static struct tw_node_config core_config(struct tw_daemon *daemon) {
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
        .grace_us = (uint64_t)run->sync.grace_ms * 1000,
        .budget_tokens = run->train.tokens,
        .members_max = run->sync.members,
        .together_tokens = tw_run_together_tokens(run),
        .alone_nodes = tw_run_together_tokens(run) < run->train.tokens ? run->sync.nodes : 0,
        .is_pair = run->sync.topology == TW_TOPOLOGY_PAIR,
        .step_tokens = (uint64_t)run->train.batch * run->model.context,
        .has_result_codec = run->sync.result != run->sync.codec,
        .weight = 1,
        .download = &daemon->caps.download,
        .orphan_us = (uint64_t)120 * 1000 * 1000,
        .judges_min = TW_JUDGES_MIN,
    };
    for (uint32_t p = 0; p < fragments; p++) {
        config.fragment_elements[p] =
            setup->layout.fragment_begin[p + 1] - setup->layout.fragment_begin[p];
    }
    TW_ASSERT(uv_random(NULL, NULL, &config.seed, sizeof(config.seed), 0, NULL) == 0);
    return config;
}

static void core_open(struct tw_daemon *daemon) {
    const struct tw_node_config config = core_config(daemon);
    const size_t bytes = (tw_node_bytes() + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
    daemon->node = aligned_alloc(NODE_ALIGN, bytes);
    TW_ASSERT(daemon->node != NULL);
    tw_node_init(daemon->node, &config, daemon->has_position ? &daemon->position : NULL,
                 daemon->has_vote ? &daemon->vote : NULL, tw_daemon_now_us());
    daemon->is_pumping = true; /* what init asks for */
    struct tw_action action;
    while (tw_node_next_action(daemon->node, &action)) action_do(daemon, &action);
    daemon->is_pumping = false;
    deadline_arm(daemon);
}

/* ---- the API ------------------------------------------------------------------------------- */

static void on_reload(struct tw_daemon *daemon, uint32_t ticket) {
    struct tw_error answer = {0};
    const enum tw_status status = tw_daemon_reload(daemon, &answer);
    tw_api_answer(daemon->api, ticket, status, answer.message);
}

static void on_limit(struct tw_daemon *daemon, uint32_t ticket) {
    struct tw_error answer = {0};
    const enum tw_status status =
        tw_daemon_caps_limit(daemon, tw_api_argument(daemon->api, ticket, "upload"),
                             tw_api_argument(daemon->api, ticket, "download"), &answer);
    tw_api_answer(daemon->api, ticket, status, answer.message);
}

static void on_unban(struct tw_daemon *daemon, uint32_t ticket) {
    struct tw_error answer = {0};
    const char *node = tw_api_argument(daemon->api, ticket, "node");
    const enum tw_status status = tw_daemon_bans_lift(daemon, node != NULL ? node : "", &answer);
    tw_api_answer(daemon->api, ticket, status, answer.message);
}

/* From the loop: where nothing has to be saved the API ends at once, which it cannot from inside
 * one of its own requests. */
static void on_leave_asked(uv_timer_t *timer) {
    tw_daemon_leave(timer->data, TW_EXIT_OK);
}

static void on_verb(void *user, enum tw_api_verb verb, uint32_t ticket) {
    struct tw_daemon *daemon = user;
    switch (verb) {
    case TW_API_CHECKPOINT: tw_daemon_save(daemon, &ticket); return;
    case TW_API_LEAVE:
        if (daemon->stage != TW_DAEMON_RUNNING || daemon->has_leave_ticket) {
            tw_api_answer(daemon->api, ticket, TW_OK, "it is leaving already");
            return;
        }
        daemon->has_leave_ticket = true; /* the last checkpoint answers it */
        daemon->leave_ticket = ticket;
        TW_ASSERT(uv_timer_start(&daemon->leave_timer, on_leave_asked, 0, 0) == 0);
        return;
    case TW_API_PAUSE:
        tw_daemon_worker_pause(daemon, true);
        tw_api_answer(daemon->api, ticket, TW_OK, "paused after the present step");
        return;
    case TW_API_RESUME:
        tw_daemon_worker_pause(daemon, false);
        tw_api_answer(daemon->api, ticket, TW_OK, "training goes on");
        return;
    case TW_API_INVITE:
    case TW_API_INVITE_LIST:
    case TW_API_INVITE_REVOKE: tw_daemon_invites_verb(daemon, verb, ticket); return;
    case TW_API_RELOAD: on_reload(daemon, ticket); return;
    case TW_API_LIMIT: on_limit(daemon, ticket); return;
    case TW_API_UNBAN: on_unban(daemon, ticket); return;
    }
}

static enum tw_status api_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_config *config = &daemon->setup->config;
    const struct tw_api_config api = {
        .loop = &daemon->loop,
        .socket_path = config->api.socket,
        .group = config->api.group,
        .http = config->api.has_http ? config->api.http.text : NULL,
        .manifest = daemon->setup->manifest,
        .user = daemon,
        .fill = tw_daemon_status_fill,
        .verb = on_verb,
    };
    return tw_api_open(&daemon->api, &api, err);
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* What still runs on a thread (a name server that does not answer, a file that is looked at) is of
 * no use any more: everything that must last is on the disk. */
static void on_close_late(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    tw_log(TW_LOG_INFO, "ended", "exit=%d text=\"a thread is still waiting\"",
           (int)daemon->exit_code);
    _exit((int)daemon->exit_code);
}

static void closing_begin(struct tw_daemon *daemon) {
    daemon->stage = TW_DAEMON_CLOSING;
    TW_ASSERT(uv_timer_start(&daemon->leave_timer, on_close_late, TW_CLOSE_US / 1000, 0) == 0);
    uv_unref((uv_handle_t *)&daemon->leave_timer); /* closed when the loop has ended */
    (void)uv_timer_stop(&daemon->core_timer);
    tw_daemon_cache_save(daemon);
    tw_daemon_link_quality_save(daemon);
    tw_daemon_caps_close(daemon);
    tw_daemon_links_close(daemon);
    tw_api_close(daemon->api);
    daemon->api = NULL;
    tw_daemon_data_close(daemon);
    tw_supervisor_close(&daemon->supervisor);
    tw_worker_host_close(daemon->host);
    uv_close((uv_handle_t *)&daemon->core_timer, NULL);
    uv_close((uv_handle_t *)&daemon->chores_timer, NULL);
    uv_close((uv_handle_t *)&daemon->vote_timer, NULL);
    uv_close((uv_handle_t *)&daemon->sigterm, NULL);
    uv_close((uv_handle_t *)&daemon->sigint, NULL);
    uv_close((uv_handle_t *)&daemon->sighup, NULL);
    tw_loop_lag_close(&daemon->lag);
}

/* The order: checkpoint, worker, everything else. */
void tw_daemon_leave_step(struct tw_daemon *daemon) {
    if (daemon->stage != TW_DAEMON_LEAVING || daemon->save.stage != TW_SAVE_IDLE) return;
    if (daemon->vote_saving.is_used || tw_daemon_invites_is_saving(daemon)) return;
    if (!daemon->is_worker_gone) {
        /* One that is not ready yet hears nothing, and has nothing to lose. */
        const bool hears = tw_worker_host_is_ready(daemon->host);
        tw_worker_host_say(daemon->host, TW_WMSG_EXIT);
        const bool runs = tw_supervisor_stop(&daemon->supervisor, hears ? EXIT_GRACE_US : 0);
        daemon->is_worker_gone = true; /* or its death calls again */
        if (runs) return;
    }
    if (tw_supervisor_is_running(&daemon->supervisor)) return;
    closing_begin(daemon);
}

static void on_leave_late(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    const uint64_t moved = atomic_load(&daemon->save.moved);
    if (moved != daemon->leave_moved) {
        daemon->leave_moved = moved;
        tw_notify("EXTEND_TIMEOUT_USEC=%u\nSTATUS=leaving: the checkpoint goes to the disk",
                  (unsigned)TW_EXTEND_US);
        TW_ASSERT(uv_timer_start(timer, on_leave_late, TW_LEAVE_US / 1000, 0) == 0);
        return;
    }
    tw_log(TW_LOG_ERROR, "leave_late",
           "text=\"nothing has moved for %u s: ending without a checkpoint\"",
           (unsigned)(TW_LEAVE_US / 1000000));
    if (daemon->exit_code == TW_EXIT_OK) daemon->exit_code = TW_EXIT_FAILURE;
    if (daemon->has_leave_ticket) {
        tw_api_answer(daemon->api, daemon->leave_ticket, TW_IO,
                      "nothing moved any more: it ended without a checkpoint");
        tw_api_close(daemon->api); /* which lets the answer out */
    }
    _exit((int)daemon->exit_code);
}

void tw_daemon_leave(struct tw_daemon *daemon, enum tw_exit code) {
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    static const struct tw_event leave = {.kind = TW_EV_LEAVE};
    daemon->exit_code = code;
    tw_notify("STOPPING=1\nSTATUS=leaving");
    tw_daemon_note(daemon, TW_LOG_INFO, "leaving", "exit=%d", (int)code);
    tw_daemon_event(daemon, &leave);
    daemon->stage = TW_DAEMON_LEAVING;
    daemon->leave_moved = atomic_load(&daemon->save.moved);
    TW_ASSERT(uv_timer_start(&daemon->leave_timer, on_leave_late, TW_LEAVE_US / 1000, 0) == 0);
    tw_daemon_save(daemon, daemon->has_leave_ticket ? &daemon->leave_ticket : NULL);
    tw_daemon_leave_step(daemon);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct tw_daemon *daemon = handle->data;
    if (daemon->stage == TW_DAEMON_RUNNING) {
        tw_log(TW_LOG_INFO, "signal", "signal=%d text=\"once more ends at once\"", signum);
        tw_daemon_leave(daemon, TW_EXIT_OK);
        return;
    }
    _exit(128 + signum);
}

/* Whose terminal was closed has nobody any more who could stop it: it saves and leaves. Everybody
 * else means that the configuration is to be read again. */
static void on_hangup(uv_signal_t *handle, int signum) {
    struct tw_daemon *daemon = handle->data;
    struct tw_error answer = {0};
    if (daemon->stage != TW_DAEMON_RUNNING) return;
    if (daemon->has_terminal && tcgetpgrp(STDIN_FILENO) < 0) {
        on_signal(handle, signum);
        return;
    }
    (void)tw_daemon_reload(daemon, &answer); /* it is in the log */
}

/* ---- life ---------------------------------------------------------------------------------- */

static void on_chores(uv_timer_t *timer) {
    struct tw_daemon *daemon = timer->data;
    const uint64_t now = tw_daemon_now_us();
    tw_daemon_links_tick(daemon, now);
    tw_daemon_admission_tick(daemon, now);
    tw_daemon_invites_tick(daemon, now);
    tw_daemon_save_tick(daemon, now);
    tw_daemon_data_tick(daemon, now);
    tw_daemon_budget_tick(daemon, now);
    tw_daemon_caps_tick(daemon, now);
    tw_daemon_status_tick(daemon, now);
    if (daemon->watchdog_us > 0 && now >= daemon->watchdog_due_us) {
        tw_notify("WATCHDOG=1");
        daemon->watchdog_due_us = now + daemon->watchdog_us;
    }
}

static void timers_open(struct tw_daemon *daemon) {
    uv_timer_t *const timers[] = {&daemon->core_timer, &daemon->chores_timer, &daemon->leave_timer,
                                  &daemon->vote_timer};
    for (unsigned i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        TW_ASSERT(uv_timer_init(&daemon->loop, timers[i]) == 0);
        timers[i]->data = daemon;
    }
    const uint64_t chores_ms = TW_CHORES_US / 1000;
    TW_ASSERT(uv_timer_start(&daemon->chores_timer, on_chores, chores_ms, chores_ms) == 0);
    daemon->watchdog_us = tw_notify_watchdog_us();
}

/* Only once the checkpoint is loaded: until then nothing has begun, and a signal ends the process
 * as it ends any other. */
static void signals_open(struct tw_daemon *daemon) {
    TW_ASSERT(uv_signal_init(&daemon->loop, &daemon->sigterm) == 0);
    TW_ASSERT(uv_signal_init(&daemon->loop, &daemon->sigint) == 0);
    TW_ASSERT(uv_signal_init(&daemon->loop, &daemon->sighup) == 0);
    daemon->sigterm.data = daemon;
    daemon->sigint.data = daemon;
    daemon->sighup.data = daemon;
    TW_ASSERT(uv_signal_start(&daemon->sigterm, on_signal, SIGTERM) == 0);
    TW_ASSERT(uv_signal_start(&daemon->sigint, on_signal, SIGINT) == 0);
    TW_ASSERT(uv_signal_start(&daemon->sighup, on_hangup, SIGHUP) == 0);
    daemon->has_terminal = isatty(STDIN_FILENO) == 1;
}

static bool memory_take(struct tw_daemon *daemon) {
    daemon->events = calloc(TW_EVENT_QUEUE, sizeof(*daemon->events));
    daemon->body = malloc(TW_CONTROL_BYTES_MAX);
    daemon->members = calloc(1, sizeof(*daemon->members));
    daemon->cache_text = malloc(TW_MEMBERS_TEXT_MAX);
    return daemon->events != NULL && daemon->body != NULL && daemon->members != NULL &&
           daemon->cache_text != NULL;
}

/* In this order: what can fail for a reason of its own exit status comes alone. */
static enum tw_exit runtime_open(struct tw_daemon *daemon, struct tw_error *err) {
    if (!memory_take(daemon)) {
        (void)tw_fail(err, TW_NOMEM, "no memory for the daemon's own tables");
        return TW_EXIT_FAILURE;
    }
    const enum tw_status host = tw_daemon_worker_open(daemon, err);
    if (host != TW_OK) return host == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    tw_daemon_budget_open(daemon);
    if (tw_daemon_caps_open(daemon, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_daemon_votes_open(daemon, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_daemon_data_open(daemon, err) != TW_OK) return TW_EXIT_FAILURE;
    if (tw_daemon_invites_open(daemon, err) != TW_OK) return TW_EXIT_FAILURE;
    const enum tw_exit loaded = tw_daemon_load(daemon, err);
    if (loaded != TW_EXIT_OK) return loaded;
    signals_open(daemon);
    const enum tw_status net = tw_daemon_links_open(daemon, err);
    if (net != TW_OK) return net == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    const enum tw_status api = api_open(daemon, err);
    if (api != TW_OK) return api == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    tw_daemon_caps_apply(daemon);
    core_open(daemon);
    if (tw_daemon_worker_start(daemon, err) != TW_OK) return TW_EXIT_USAGE;
    return TW_EXIT_OK;
}

static void runtime_free(struct tw_daemon *daemon) {
    tw_daemon_data_free(daemon);
    tw_worker_host_destroy(daemon->host);
    tw_checkpoint_destroy(daemon->checkpoint);
    if (daemon->has_votes) tw_vote_store_close(&daemon->votes);
    free(daemon->node);
    free(daemon->events);
    free(daemon->body);
    free(daemon->members);
    free(daemon->cache_text);
    tw_daemon_invites_free(daemon);
    free(daemon->save.copy);
    free(daemon);
}

enum tw_exit tw_daemon_run(struct tw_setup *setup) {
    struct tw_daemon *daemon = calloc(1, sizeof(*daemon));
    TW_ASSERT(daemon != NULL);
    daemon->setup = setup;
    daemon->started_us = tw_daemon_now_us();
    daemon->train.snapshot_step = TW_VIEW_NEVER;
    TW_ASSERT(uv_loop_init(&daemon->loop) == 0);
    tw_loop_lag_open(&daemon->lag, &daemon->loop);
    timers_open(daemon);

    struct tw_error err = {0};
    enum tw_exit code = runtime_open(daemon, &err);
    if (code != TW_EXIT_OK) {
        /* Nothing runs yet: end here, the process gives everything back. Until then it is in use,
         * not leaked. */
        static struct tw_daemon *ending;
        ending = daemon;
        (void)fprintf(stderr, "thinwired: %s\n", err.message);
        if (ending->host != NULL) tw_worker_host_close(ending->host);
        if (ending->api != NULL) tw_api_close(ending->api);
        return code;
    }
    char id[9], run[9];
    tw_id_short(&setup->identity.id, id);
    tw_id_short(&setup->run_id, run);
    tw_daemon_note(daemon, TW_LOG_INFO, "started", "node=%s run=%s boot=%u links=%s", id, run,
                   setup->boot, daemon->transport != NULL ? "on" : "off");
    tw_notify("READY=1\nSTATUS=started");
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&daemon->leave_timer, NULL);
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    code = daemon->exit_code;
    tw_log(TW_LOG_INFO, "ended", "exit=%d", (int)code);
    TW_ASSERT(uv_loop_close(&daemon->loop) == 0);
    runtime_free(daemon);
    return code;
}
