#include "daemon/node/runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "daemon/api/history.h"
#include "daemon/api/known_peers.h"
#include "daemon/api/status_view.h"
#include "daemon/net/transport.h"
#include "daemon/recorder/recorder.h"
#include "daemon/workerlink/worker_host.h"
#include "proto/control.h"

enum { EVENTS_MAX = 256 };

/* ---- life ---------------------------------------------------------------------------------- */

void *tw_daemon_alloc(size_t bytes, struct tw_error *err) {
    void *memory = calloc(1, bytes);
    if (memory == NULL) (void)tw_fail(err, TW_NOMEM, "no memory for the daemon's own tables");
    return memory;
}

enum tw_status tw_daemon_create(struct tw_daemon **out, struct tw_setup *setup,
                                struct tw_error *err) {
    struct tw_daemon *daemon = tw_daemon_alloc(sizeof(*daemon), err);
    if (daemon == NULL) return TW_NOMEM;
    daemon->events = calloc(EVENTS_MAX, sizeof(*daemon->events));
    daemon->event_ring = calloc(1, sizeof(*daemon->event_ring));
    daemon->history = calloc(1, sizeof(*daemon->history));
    daemon->body = malloc(TW_CONTROL_BYTES_MAX);
    if (daemon->events == NULL || daemon->event_ring == NULL || daemon->history == NULL ||
        daemon->body == NULL) {
        free(daemon->events);
        free(daemon->event_ring);
        free(daemon->history);
        free(daemon->body);
        free(daemon);
        return tw_fail(err, TW_NOMEM, "no memory for the daemon's own tables");
    }
    daemon->setup = setup;
    daemon->started_us = tw_daemon_now_us();
    daemon->started_unix_us = tw_daemon_unix_us();
    TW_ASSERT(uv_loop_init(&daemon->loop) == 0);
    tw_loop_lag_open(&daemon->lag, &daemon->loop);
    TW_ASSERT(uv_timer_init(&daemon->loop, &daemon->core_timer) == 0);
    daemon->core_timer.data = daemon;
    *out = daemon;
    return TW_OK;
}

void tw_daemon_close(struct tw_daemon *daemon) {
    uv_close((uv_handle_t *)&daemon->core_timer, NULL);
    uv_close((uv_handle_t *)&daemon->leave_wake, NULL);
    tw_loop_lag_close(&daemon->lag);
}

void tw_daemon_destroy(struct tw_daemon *daemon) {
    TW_ASSERT(uv_loop_close(&daemon->loop) == 0);
    free(daemon->node);
    free(daemon->events);
    free(daemon->event_ring);
    free(daemon->history);
    free(daemon->body);
    free(daemon);
}

uint64_t tw_daemon_now_us(void) {
    return uv_hrtime() / 1000;
}

uint64_t tw_daemon_unix_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void tw_daemon_note(struct tw_daemon *daemon, enum tw_log_level level, const char *name,
                    const char *fmt, ...) {
    char text[TW_VIEW_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tw_log(level, name, "%s", text);
    tw_event_ring_add(daemon->event_ring, tw_daemon_now_us(), tw_daemon_unix_us(),
                      level <= TW_LOG_WARN, name, "%s", text);
}

/* ---- the core ------------------------------------------------------------------------------ */

static void pump_event(struct tw_daemon *daemon, const struct tw_event *event) {
    struct tw_action action;
    const uint64_t now_us = tw_daemon_now_us();
    tw_recorder_event(daemon->recorder, daemon->node, event, daemon->download, now_us);
    tw_node_event(daemon->node, event, now_us);
    while (tw_node_next_action(daemon->node, &action)) {
        tw_recorder_action(daemon->recorder, &action);
        daemon->act(daemon, &action);
    }
    tw_recorder_done(daemon->recorder);
}

static void on_core_timer(uv_timer_t *timer) {
    static const struct tw_event tick = {.kind = TW_EV_TICK};
    tw_daemon_event(timer->data, &tick);
}

void tw_daemon_arm(struct tw_daemon *daemon) {
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
        TW_ASSERT(event->kind != TW_EV_MESSAGE); /* a message is borrowed from the caller, so it
                                                    cannot be queued */
        if (daemon->events_count == EVENTS_MAX) {
            tw_worker_link_drop(&daemon->host->link, "the core has too many answers waiting");
            return;
        }
        const uint32_t last = (daemon->events_first + daemon->events_count) % EVENTS_MAX;
        daemon->events[last] = *event;
        daemon->events_count++;
        return;
    }
    daemon->is_pumping = true;
    pump_event(daemon, event);
    while (daemon->events_count > 0) {
        const struct tw_event next = daemon->events[daemon->events_first];
        daemon->events_first = (daemon->events_first + 1) % EVENTS_MAX;
        daemon->events_count--;
        pump_event(daemon, &next);
    }
    daemon->is_pumping = false;
    tw_daemon_arm(daemon);
}

void tw_daemon_event_measured(struct tw_daemon *daemon) {
    struct tw_event event = {.kind = TW_EV_MEASURED};
    event.u.measured.upload_kib_s = daemon->measured.upload_kib_s;
    event.u.measured.odd = daemon->measured.outliers;
    event.u.measured.is_relay = daemon->measured.is_relay;
    event.u.measured.is_short = daemon->measured.is_short;
    tw_daemon_event(daemon, &event);
}

/* ---- peers --------------------------------------------------------------------------------- */

void tw_daemon_send(struct tw_daemon *daemon, uint16_t peer, const struct tw_message *message) {
    size_t size = 0;
    struct tw_error err = {0};
    if (daemon->transport == NULL) return;
    if (tw_control_encode(message, daemon->body, TW_CONTROL_BYTES_MAX, &size, &err) != TW_OK) {
        tw_log(TW_LOG_ERROR, "not_encoded", "kind=%s text=\"%s\"", tw_message_name(message->kind),
               err.message);
        return;
    }
    if (message->kind == TW_MSG_PULL) daemon->peers[peer].chunks_asked += message->u.pull.count;
    tw_transport_send_control(daemon->transport, peer, (uint16_t)message->kind, daemon->body,
                              (uint32_t)size);
}

bool tw_daemon_is_partner(const struct tw_daemon *daemon, const struct tw_id *id) {
    if (daemon->setup->run.sync.topology != TW_TOPOLOGY_PAIR) return false;
    const struct tw_known_peer *row = tw_known_peers_find(daemon->known, id);
    return row != NULL && row->has_merged;
}

/* ---- leaving ------------------------------------------------------------------------------- */

void tw_daemon_leave_step(struct tw_daemon *daemon) {
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    TW_ASSERT(uv_async_send(&daemon->leave_wake) == 0);
}

void tw_daemon_leave(struct tw_daemon *daemon, enum tw_exit code) {
    if (daemon->stage != TW_DAEMON_RUNNING || daemon->is_leave_wanted) return;
    daemon->is_leave_wanted = true;
    daemon->leave_code = code;
    tw_daemon_leave_step(daemon);
}
