#include "daemon/node/shell.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/node/notify.h"

enum { NODE_ALIGN = 64, EXIT_GRACE_US = 5 * 1000 * 1000 };

uint64_t tw_shell_now_us(void) {
    return uv_hrtime() / 1000;
}

void tw_shell_note(struct tw_shell *shell, enum tw_log_level level, const char *name,
                   const char *fmt, ...) {
    char text[TW_VIEW_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tw_log(level, name, "%s", text);
    tw_event_ring_add(&shell->event_ring, tw_shell_now_us(), level <= TW_LOG_WARN, name, "%s",
                      text);
}

/* ---- what the core reports ----------------------------------------------------------------- */

static void full_note(struct tw_shell *shell, const struct tw_id *id) {
    const unsigned members = shell->setup->run.sync.members;
    char hex[9];
    tw_id_short(id, hex);
    if (tw_id_equal(id, &shell->setup->identity.id)) {
        tw_shell_note(shell, TW_LOG_WARN, "group_full",
                      "members=%u text=\"this node follows and does not contribute until a member "
                      "leaves: sync.members of the manifest is %u\"",
                      members, members);
        return;
    }
    tw_shell_note(shell, TW_LOG_WARN, "join_refused",
                  "peer=%s members=%u text=\"sync.members of the manifest is %u: no seat is free\"",
                  hex, members, members);
}

static void struck_note(struct tw_shell *shell, const char *peer, const struct tw_action *action) {
    const unsigned long long round = (unsigned long long)action->u.report.round;
    const bool is_corrupt = action->u.report.reason == TW_CORRUPT;
    if (shell->setup->run.sync.topology == TW_TOPOLOGY_PAIR) {
        shell->partners_struck++;
        tw_shell_note(shell, TW_LOG_WARN, "partner_struck", "peer=%s round=%llu why=%s", peer,
                      round, is_corrupt ? "unreadable" : "insane");
        return;
    }
    tw_shell_note(shell, TW_LOG_WARN, "owner_struck", "peer=%s round=%llu part=%u why=%s", peer,
                  round, action->u.report.part, is_corrupt ? "false_merge" : "insane_result");
}

static void report_show(struct tw_shell *shell, const struct tw_action *action) {
    char hex[9];
    switch (action->u.report.kind) {
    case TW_REPORT_PEER_DEAD:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_WARN, "peer_dead", "peer=%s silent_us=%u", hex,
                      (unsigned)TW_PEER_SILENCE_US);
        return;
    case TW_REPORT_ROUND_COMMITTED: tw_shell_view_round(shell, action->u.report.close); return;
    case TW_REPORT_LINEAGE:
        tw_id_short(&action->u.report.id, hex);
        shell->lineage = action->u.report.id;
        shell->lineage_changes++;
        tw_shell_note(shell, TW_LOG_INFO, "lineage", "lineage=%s", hex);
        return;
    case TW_REPORT_STATE:
        tw_shell_note(shell, TW_LOG_INFO, "state", "state=%s",
                      tw_view_state_name(action->u.report.state));
        tw_notify("STATUS=%s", tw_view_state_name(action->u.report.state));
        return;
    case TW_REPORT_PAIRED:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_INFO, "paired", "peer=%s", hex);
        tw_round_ring_pair(&shell->round_ring, &action->u.report.id);
        shell->partner = action->u.report.id;
        shell->partner_us = tw_shell_now_us();
        return;
    case TW_REPORT_ONE_SIDED:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_INFO, "pair_one_sided", "peer=%s", hex);
        return;
    case TW_REPORT_MISBEHAVED:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_WARN, "misbehaved", "peer=%s reason=%s", hex,
                      tw_status_name(action->u.report.reason));
        return;
    case TW_REPORT_REFUSED:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_WARN, "contribution_refused", "peer=%s round=%llu times=%u",
                      hex, (unsigned long long)action->u.report.round, action->u.report.times);
        return;
    case TW_REPORT_FULL: full_note(shell, &action->u.report.id); return;
    case TW_REPORT_STRUCK:
        tw_id_short(&action->u.report.id, hex);
        struck_note(shell, hex, action);
        return;
    case TW_REPORT_STALLED:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_WARN, "peer_stalls",
                      "peer=%s text=\"it held up rounds: they do not wait for it for a while\"",
                      hex);
        return;
    case TW_REPORT_INSANE:
        tw_id_short(&action->u.report.id, hex);
        tw_shell_note(shell, TW_LOG_WARN, "result_refused", "peer=%s", hex);
        return;
    }
}

/* ---- the core ------------------------------------------------------------------------------ */

static void opening_note(struct tw_shell *shell, uint64_t round) {
    const unsigned at = (unsigned)(round % TW_OPENINGS_MAX);
    shell->openings[at].round = round + 1;
    shell->openings[at].at_us = tw_shell_now_us();
    shell->openings[at].bytes = shell->chunk_bytes_in + shell->chunk_bytes_out;
}

static void action_do(struct tw_shell *shell, struct tw_action *action) {
    switch (action->kind) {
    case TW_ACT_SEND: tw_shell_net_send(shell, action->peer, action->u.message); return;
    case TW_ACT_CLOSE:
        if (shell->transport != NULL) {
            tw_transport_close(shell->transport, action->peer, action->u.reason,
                               tw_status_meaning(action->u.reason));
        }
        return;
    case TW_ACT_SEND_CHUNK: tw_shell_net_chunk(shell, action); return;
    case TW_ACT_DROP:
        tw_shell_net_drop(shell, &action->u.payload.hash);
        tw_worker_host_act(shell->host, action);
        return;
    case TW_ACT_ENCODE:
        opening_note(shell, action->u.encode.round);
        if (tw_shell_budget_grant(shell, action)) tw_worker_host_act(shell->host, action);
        return;
    case TW_ACT_PAIR_ENCODE:
        opening_note(shell, action->u.pair.round);
        if (tw_shell_budget_grant(shell, action)) tw_worker_host_act(shell->host, action);
        return;
    case TW_ACT_FINISH:
        tw_worker_host_act(shell->host, action);
        tw_supervisor_set_idle(&shell->supervisor, shell->is_paused || shell->host->is_finished);
        if (shell->host->is_finished) tw_shell_save(shell, NULL);
        return;
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_CLOCK: tw_worker_host_act(shell->host, action); return;
    case TW_ACT_STORE_VOTE: tw_shell_vote_store(shell, action); return;
    case TW_ACT_REPORT: report_show(shell, action); return;
    }
}

static void event_pump(struct tw_shell *shell, const struct tw_event *event) {
    struct tw_action action;
    tw_node_event(shell->node, event, tw_shell_now_us());
    while (tw_node_next_action(shell->node, &action)) action_do(shell, &action);
}

static void on_core_timer(uv_timer_t *timer) {
    static const struct tw_event tick = {.kind = TW_EV_TICK};
    tw_shell_event(timer->data, &tick);
}

static void deadline_arm(struct tw_shell *shell) {
    const uint64_t deadline = tw_node_deadline(shell->node), now = tw_shell_now_us();
    if (deadline == UINT64_MAX || shell->stage == TW_SHELL_CLOSING) {
        (void)uv_timer_stop(&shell->core_timer);
        return;
    }
    const uint64_t delay_ms = deadline > now ? (deadline - now + 999) / 1000 : 0;
    uv_update_time(&shell->loop);
    TW_ASSERT(uv_timer_start(&shell->core_timer, on_core_timer, delay_ms, 0) == 0);
}

void tw_shell_event(struct tw_shell *shell, const struct tw_event *event) {
    if (shell->stage == TW_SHELL_CLOSING) return;
    if (shell->is_pumping) {
        TW_ASSERT(event->kind != TW_EV_MESSAGE); /* its message is borrowed */
        if (shell->events_count == TW_EVENT_QUEUE) {
            tw_worker_link_drop(&shell->host->link, "the core has too many answers waiting");
            return;
        }
        const uint32_t last = (shell->events_first + shell->events_count) % TW_EVENT_QUEUE;
        shell->events[last] = *event;
        shell->events_count++;
        return;
    }
    shell->is_pumping = true;
    event_pump(shell, event);
    while (shell->events_count > 0) {
        const struct tw_event next = shell->events[shell->events_first];
        shell->events_first = (shell->events_first + 1) % TW_EVENT_QUEUE;
        shell->events_count--;
        event_pump(shell, &next);
    }
    shell->is_pumping = false;
    deadline_arm(shell);
}

static struct tw_node_config core_config(struct tw_shell *shell) {
    const struct tw_setup *setup = shell->setup;
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
        .download = &shell->caps.download,
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

static void core_open(struct tw_shell *shell) {
    const struct tw_node_config config = core_config(shell);
    const size_t bytes = (tw_node_bytes() + NODE_ALIGN - 1) / NODE_ALIGN * NODE_ALIGN;
    shell->node = aligned_alloc(NODE_ALIGN, bytes);
    TW_ASSERT(shell->node != NULL);
    tw_node_init(shell->node, &config, shell->has_position ? &shell->position : NULL,
                 shell->has_vote ? &shell->vote : NULL, tw_shell_now_us());
    shell->is_pumping = true; /* what init asks for */
    struct tw_action action;
    while (tw_node_next_action(shell->node, &action)) action_do(shell, &action);
    shell->is_pumping = false;
    deadline_arm(shell);
}

/* ---- the API ------------------------------------------------------------------------------- */

static void on_reload(struct tw_shell *shell, uint32_t ticket) {
    struct tw_error answer = {0};
    const enum tw_status status = tw_shell_reload(shell, &answer);
    tw_api_answer(shell->api, ticket, status, answer.message);
}

static void on_limit(struct tw_shell *shell, uint32_t ticket) {
    struct tw_error answer = {0};
    const enum tw_status status =
        tw_shell_caps_limit(shell, tw_api_argument(shell->api, ticket, "upload"),
                            tw_api_argument(shell->api, ticket, "download"), &answer);
    tw_api_answer(shell->api, ticket, status, answer.message);
}

static void on_unban(struct tw_shell *shell, uint32_t ticket) {
    struct tw_error answer = {0};
    const char *node = tw_api_argument(shell->api, ticket, "node");
    const enum tw_status status = tw_shell_bans_lift(shell, node != NULL ? node : "", &answer);
    tw_api_answer(shell->api, ticket, status, answer.message);
}

/* From the loop: where nothing has to be saved the API ends at once, which it cannot from inside
 * one of its own requests. */
static void on_leave_asked(uv_timer_t *timer) {
    tw_shell_leave(timer->data, TW_EXIT_OK);
}

static void on_verb(void *user, enum tw_api_verb verb, uint32_t ticket) {
    struct tw_shell *shell = user;
    switch (verb) {
    case TW_API_CHECKPOINT: tw_shell_save(shell, &ticket); return;
    case TW_API_LEAVE:
        if (shell->stage != TW_SHELL_RUNNING || shell->has_leave_ticket) {
            tw_api_answer(shell->api, ticket, TW_OK, "it is leaving already");
            return;
        }
        shell->has_leave_ticket = true; /* the last checkpoint answers it */
        shell->leave_ticket = ticket;
        TW_ASSERT(uv_timer_start(&shell->leave_timer, on_leave_asked, 0, 0) == 0);
        return;
    case TW_API_PAUSE:
        tw_shell_worker_pause(shell, true);
        tw_api_answer(shell->api, ticket, TW_OK, "paused after the present step");
        return;
    case TW_API_RESUME:
        tw_shell_worker_pause(shell, false);
        tw_api_answer(shell->api, ticket, TW_OK, "training goes on");
        return;
    case TW_API_INVITE:
    case TW_API_INVITE_LIST:
    case TW_API_INVITE_REVOKE: tw_shell_invite_verb(shell, verb, ticket); return;
    case TW_API_RELOAD: on_reload(shell, ticket); return;
    case TW_API_LIMIT: on_limit(shell, ticket); return;
    case TW_API_UNBAN: on_unban(shell, ticket); return;
    }
}

static enum tw_status api_open(struct tw_shell *shell, struct tw_error *err) {
    const struct tw_config *config = &shell->setup->config;
    const struct tw_api_config api = {
        .loop = &shell->loop,
        .socket_path = config->api.socket,
        .group = config->api.group,
        .http = config->api.has_http ? config->api.http.text : NULL,
        .manifest = shell->setup->manifest,
        .user = shell,
        .fill = tw_shell_view_fill,
        .verb = on_verb,
    };
    return tw_api_open(&shell->api, &api, err);
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* What still runs on a thread (a name server that does not answer, a file that is looked at) is of
 * no use any more: everything that must last is on the disk. */
static void on_close_late(uv_timer_t *timer) {
    struct tw_shell *shell = timer->data;
    tw_log(TW_LOG_INFO, "ended", "exit=%d text=\"a thread is still waiting\"",
           (int)shell->exit_code);
    _exit((int)shell->exit_code);
}

static void closing_begin(struct tw_shell *shell) {
    shell->stage = TW_SHELL_CLOSING;
    TW_ASSERT(uv_timer_start(&shell->leave_timer, on_close_late, TW_CLOSE_US / 1000, 0) == 0);
    uv_unref((uv_handle_t *)&shell->leave_timer); /* closed when the loop has ended */
    (void)uv_timer_stop(&shell->core_timer);
    tw_shell_cache_save(shell);
    tw_shell_crowd_save(shell);
    tw_shell_caps_close(shell);
    tw_shell_net_close(shell);
    tw_api_close(shell->api);
    shell->api = NULL;
    tw_shell_data_close(shell);
    tw_supervisor_close(&shell->supervisor);
    tw_worker_host_close(shell->host);
    uv_close((uv_handle_t *)&shell->core_timer, NULL);
    uv_close((uv_handle_t *)&shell->chores_timer, NULL);
    uv_close((uv_handle_t *)&shell->vote_timer, NULL);
    uv_close((uv_handle_t *)&shell->sigterm, NULL);
    uv_close((uv_handle_t *)&shell->sigint, NULL);
    uv_close((uv_handle_t *)&shell->sighup, NULL);
    tw_loop_lag_close(&shell->lag);
}

/* The order: checkpoint, worker, everything else. */
void tw_shell_leave_step(struct tw_shell *shell) {
    if (shell->stage != TW_SHELL_LEAVING || shell->save.stage != TW_SAVE_IDLE) return;
    if (shell->vote_saving.is_used || tw_shell_invite_is_saving(shell)) return;
    if (!shell->is_worker_gone) {
        /* One that is not ready yet hears nothing, and has nothing to lose. */
        const bool hears = tw_worker_host_is_ready(shell->host);
        tw_worker_host_say(shell->host, TW_WMSG_EXIT);
        const bool runs = tw_supervisor_stop(&shell->supervisor, hears ? EXIT_GRACE_US : 0);
        shell->is_worker_gone = true; /* or its death calls again */
        if (runs) return;
    }
    if (tw_supervisor_is_running(&shell->supervisor)) return;
    closing_begin(shell);
}

static void on_leave_late(uv_timer_t *timer) {
    struct tw_shell *shell = timer->data;
    const uint64_t moved = atomic_load(&shell->save.moved);
    if (moved != shell->leave_moved) {
        shell->leave_moved = moved;
        tw_notify("EXTEND_TIMEOUT_USEC=%u\nSTATUS=leaving: the checkpoint goes to the disk",
                  (unsigned)TW_EXTEND_US);
        TW_ASSERT(uv_timer_start(timer, on_leave_late, TW_LEAVE_US / 1000, 0) == 0);
        return;
    }
    tw_log(TW_LOG_ERROR, "leave_late",
           "text=\"nothing has moved for %u s: ending without a checkpoint\"",
           (unsigned)(TW_LEAVE_US / 1000000));
    if (shell->exit_code == TW_EXIT_OK) shell->exit_code = TW_EXIT_FAILURE;
    if (shell->has_leave_ticket) {
        tw_api_answer(shell->api, shell->leave_ticket, TW_IO,
                      "nothing moved any more: it ended without a checkpoint");
        tw_api_close(shell->api); /* which lets the answer out */
    }
    _exit((int)shell->exit_code);
}

void tw_shell_leave(struct tw_shell *shell, enum tw_exit code) {
    if (shell->stage != TW_SHELL_RUNNING) return;
    static const struct tw_event leave = {.kind = TW_EV_LEAVE};
    shell->exit_code = code;
    tw_notify("STOPPING=1\nSTATUS=leaving");
    tw_shell_note(shell, TW_LOG_INFO, "leaving", "exit=%d", (int)code);
    tw_shell_event(shell, &leave);
    shell->stage = TW_SHELL_LEAVING;
    shell->leave_moved = atomic_load(&shell->save.moved);
    TW_ASSERT(uv_timer_start(&shell->leave_timer, on_leave_late, TW_LEAVE_US / 1000, 0) == 0);
    tw_shell_save(shell, shell->has_leave_ticket ? &shell->leave_ticket : NULL);
    tw_shell_leave_step(shell);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct tw_shell *shell = handle->data;
    if (shell->stage == TW_SHELL_RUNNING) {
        tw_log(TW_LOG_INFO, "signal", "signal=%d text=\"once more ends at once\"", signum);
        tw_shell_leave(shell, TW_EXIT_OK);
        return;
    }
    _exit(128 + signum);
}

/* Whose terminal was closed has nobody any more who could stop it: it saves and leaves. Everybody
 * else means that the configuration is to be read again. */
static void on_hangup(uv_signal_t *handle, int signum) {
    struct tw_shell *shell = handle->data;
    struct tw_error answer = {0};
    if (shell->stage != TW_SHELL_RUNNING) return;
    if (shell->has_terminal && tcgetpgrp(STDIN_FILENO) < 0) {
        on_signal(handle, signum);
        return;
    }
    (void)tw_shell_reload(shell, &answer); /* it is in the log */
}

/* ---- life ---------------------------------------------------------------------------------- */

static void on_chores(uv_timer_t *timer) {
    struct tw_shell *shell = timer->data;
    const uint64_t now = tw_shell_now_us();
    tw_shell_net_chores(shell, now);
    tw_shell_gate_chores(shell, now);
    tw_shell_invite_chores(shell, now);
    tw_shell_save_chores(shell, now);
    tw_shell_data_chores(shell, now);
    tw_shell_budget_chores(shell, now);
    tw_shell_caps_chores(shell, now);
    tw_shell_view_chores(shell, now);
    if (shell->watchdog_us > 0 && now >= shell->watchdog_due_us) {
        tw_notify("WATCHDOG=1");
        shell->watchdog_due_us = now + shell->watchdog_us;
    }
}

static void timers_open(struct tw_shell *shell) {
    uv_timer_t *const timers[] = {&shell->core_timer, &shell->chores_timer, &shell->leave_timer,
                                  &shell->vote_timer};
    for (unsigned i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        TW_ASSERT(uv_timer_init(&shell->loop, timers[i]) == 0);
        timers[i]->data = shell;
    }
    const uint64_t chores_ms = TW_CHORES_US / 1000;
    TW_ASSERT(uv_timer_start(&shell->chores_timer, on_chores, chores_ms, chores_ms) == 0);
    shell->watchdog_us = tw_notify_watchdog_us();
}

/* Only once the checkpoint is loaded: until then nothing has begun, and a signal ends the process
 * as it ends any other. */
static void signals_open(struct tw_shell *shell) {
    TW_ASSERT(uv_signal_init(&shell->loop, &shell->sigterm) == 0);
    TW_ASSERT(uv_signal_init(&shell->loop, &shell->sigint) == 0);
    TW_ASSERT(uv_signal_init(&shell->loop, &shell->sighup) == 0);
    shell->sigterm.data = shell;
    shell->sigint.data = shell;
    shell->sighup.data = shell;
    TW_ASSERT(uv_signal_start(&shell->sigterm, on_signal, SIGTERM) == 0);
    TW_ASSERT(uv_signal_start(&shell->sigint, on_signal, SIGINT) == 0);
    TW_ASSERT(uv_signal_start(&shell->sighup, on_hangup, SIGHUP) == 0);
    shell->has_terminal = isatty(STDIN_FILENO) == 1;
}

static bool memory_take(struct tw_shell *shell) {
    shell->events = calloc(TW_EVENT_QUEUE, sizeof(*shell->events));
    shell->body = malloc(TW_CONTROL_BYTES_MAX);
    shell->members = calloc(1, sizeof(*shell->members));
    shell->cache_text = malloc(TW_MEMBERS_TEXT_MAX);
    return shell->events != NULL && shell->body != NULL && shell->members != NULL &&
           shell->cache_text != NULL;
}

/* In this order: what can fail for a reason of its own exit status comes alone. */
static enum tw_exit shell_open(struct tw_shell *shell, struct tw_error *err) {
    if (!memory_take(shell)) {
        (void)tw_fail(err, TW_NOMEM, "no memory for the daemon's own tables");
        return TW_EXIT_FAILURE;
    }
    const enum tw_status host = tw_shell_worker_open(shell, err);
    if (host != TW_OK) return host == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    tw_shell_budget_open(shell);
    if (tw_shell_caps_open(shell, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_shell_votes_open(shell, err) != TW_OK) return TW_EXIT_STATE_DIR;
    if (tw_shell_data_open(shell, err) != TW_OK) return TW_EXIT_FAILURE;
    if (tw_shell_invite_open(shell, err) != TW_OK) return TW_EXIT_FAILURE;
    const enum tw_exit loaded = tw_shell_load(shell, err);
    if (loaded != TW_EXIT_OK) return loaded;
    signals_open(shell);
    const enum tw_status net = tw_shell_net_open(shell, err);
    if (net != TW_OK) return net == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    const enum tw_status api = api_open(shell, err);
    if (api != TW_OK) return api == TW_IO ? TW_EXIT_PORT : TW_EXIT_USAGE;
    tw_shell_caps_apply(shell);
    core_open(shell);
    if (tw_shell_worker_start(shell, err) != TW_OK) return TW_EXIT_USAGE;
    return TW_EXIT_OK;
}

static void shell_free(struct tw_shell *shell) {
    tw_shell_data_free(shell);
    tw_worker_host_destroy(shell->host);
    tw_checkpoint_destroy(shell->checkpoint);
    if (shell->has_votes) tw_vote_store_close(&shell->votes);
    free(shell->node);
    free(shell->events);
    free(shell->body);
    free(shell->members);
    free(shell->cache_text);
    tw_shell_invite_free(shell);
    free(shell->save.copy);
    free(shell);
}

enum tw_exit tw_shell_run(struct tw_setup *setup) {
    struct tw_shell *shell = calloc(1, sizeof(*shell));
    TW_ASSERT(shell != NULL);
    shell->setup = setup;
    shell->started_us = tw_shell_now_us();
    shell->train.snapshot_step = TW_VIEW_NEVER;
    TW_ASSERT(uv_loop_init(&shell->loop) == 0);
    tw_loop_lag_open(&shell->lag, &shell->loop);
    timers_open(shell);

    struct tw_error err = {0};
    enum tw_exit code = shell_open(shell, &err);
    if (code != TW_EXIT_OK) {
        /* Nothing runs yet: end here, the process gives everything back. Until then it is in use,
         * not leaked. */
        static struct tw_shell *ending;
        ending = shell;
        (void)fprintf(stderr, "thinwired: %s\n", err.message);
        if (ending->host != NULL) tw_worker_host_close(ending->host);
        if (ending->api != NULL) tw_api_close(ending->api);
        return code;
    }
    char id[9], run[9];
    tw_id_short(&setup->identity.id, id);
    tw_id_short(&setup->run_id, run);
    tw_shell_note(shell, TW_LOG_INFO, "started", "node=%s run=%s boot=%u links=%s", id, run,
                  setup->boot, shell->transport != NULL ? "on" : "off");
    tw_notify("READY=1\nSTATUS=started");
    (void)uv_run(&shell->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&shell->leave_timer, NULL);
    (void)uv_run(&shell->loop, UV_RUN_DEFAULT);
    code = shell->exit_code;
    tw_log(TW_LOG_INFO, "ended", "exit=%d", (int)code);
    TW_ASSERT(uv_loop_close(&shell->loop) == 0);
    shell_free(shell);
    return code;
}
