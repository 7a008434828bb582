#include "daemon/workerlink/worker_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

bool tw_worker_host_is_ready(const struct tw_worker_host *host) {
    return host->state == TW_HOST_READY && tw_worker_link_is_open(&host->link);
}

/* ---- how a worker starts ------------------------------------------------------------------- */

static void welcome_send(struct tw_worker_host *host, int slot) {
    const struct tw_worker_host_config *config = &host->config;
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_WELCOME;
    struct tw_wmsg_welcome *welcome = &msg.u.welcome;
    welcome->version = TW_WORKER_VERSION;
    welcome->start = TW_START_FRESH;
    if (host->is_anchor_wanted) slot = -1;
    if (host->has_anchor) welcome->start = slot >= 0 ? TW_START_SNAPSHOT : TW_START_ANCHOR;
    welcome->slot = slot >= 0 ? (uint32_t)slot : 0;
    welcome->snapshot_mode = (uint32_t)config->snapshot_mode;
    welcome->snapshot_steps = config->snapshot_steps;
    welcome->eval_steps = config->eval_steps;
    welcome->sample_bytes = config->sample_bytes;
    welcome->follows = config->follows;
    welcome->compute = (uint32_t)config->compute.compute;
    welcome->recompute = (uint32_t)config->compute.recompute;
    welcome->threads = config->compute.threads;
    welcome->device = (uint32_t)config->compute.device.kind;
    welcome->ordinal = config->compute.device.ordinal;
    welcome->micro_batch = config->compute.micro_batch;
    welcome->memory_bytes = config->compute.memory_bytes;
    welcome->stop_step = config->stop_step;
    welcome->data_seed = config->data_seed;
    welcome->history = config->history;
    welcome->batches_to_skip = host->batches_to_skip;
    welcome->geometry = host->memory.shm.geometry;
    (void)snprintf(welcome->data_path, sizeof(welcome->data_path), "%s", config->data_path);
    welcome->run = *config->run;
    host->state = TW_HOST_STARTING;
    tw_worker_link_send(&host->link, &msg, host->memory.fd);
    if (config->events.welcomed != NULL) config->events.welcomed(config->user, host->link.pid);
}

/* Finds the newest valid snapshot on a thread, because that reads whole snapshots. No worker writes
 * meanwhile: the new one waits for its WELCOME. */
static void on_start_work(uv_work_t *work) {
    struct tw_worker_host *host = work->data;
    struct tw_snapshot_slot meta;
    host->start_slot = tw_shm_snapshot_newest(&host->memory.shm, &meta);
}

static void start_begin(struct tw_worker_host *host);

static void on_start_done(uv_work_t *work, int status) {
    struct tw_worker_host *host = work->data;
    host->is_start_running = false;
    if (status != 0 || host->is_closing || host->state != TW_HOST_VERIFYING) return;
    if (host->start_session != host->session) {
        start_begin(host);
        return;
    }
    welcome_send(host, host->start_slot);
}

static void start_begin(struct tw_worker_host *host) {
    if (host->is_trim_running) return; /* on_trim_done calls this again */
    if (host->is_start_running)
        return; /* the thread still reads for an earlier worker; on_start_done calls this again */
    host->is_start_running = true;
    host->start_session = host->session;
    host->start_work.data = host;
    TW_ASSERT(uv_queue_work(host->config.loop, &host->start_work, on_start_work, on_start_done) ==
              0);
}

static void on_hello(void *user, const struct tw_wmsg_hello *hello, pid_t pid) {
    struct tw_worker_host *host = user;
    char device[sizeof(hello->device) + 1] = {0};
    memcpy(device, hello->device, sizeof(hello->device));
    host->session++;
    host->state = TW_HOST_VERIFYING;
    host->last_words[0] = '\0';
    host->last_status = TW_OK;
    host->has_left = false;
    if (host->config.events.attached != NULL) {
        host->config.events.attached(host->config.user, pid, device);
    }
    if (!host->is_held) start_begin(host);
}

void tw_worker_host_set_held(struct tw_worker_host *host, bool is_held) {
    const bool has_waiting = host->is_held && host->state == TW_HOST_VERIFYING;
    host->is_held = is_held;
    if (has_waiting && !is_held) start_begin(host);
}

static void on_trim_work(uv_work_t *work) {
    struct tw_worker_host *host = work->data;
    tw_worker_memory_trim(&host->memory);
}

static void on_trim_done(uv_work_t *work, int status) {
    struct tw_worker_host *host = work->data;
    (void)status;
    host->is_trim_running = false;
    if (!host->is_closing && host->state == TW_HOST_VERIFYING && !host->is_held) start_begin(host);
}

void tw_worker_host_trim(struct tw_worker_host *host) {
    if (host->is_trim_running || host->is_start_running || host->state > TW_HOST_VERIFYING) return;
    host->is_trim_running = true;
    host->trim_work.data = host;
    TW_ASSERT(uv_queue_work(host->config.loop, &host->trim_work, on_trim_work, on_trim_done) == 0);
}

static void message_say(struct tw_worker_host *host, enum tw_worker_msg_kind kind) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = kind;
    tw_worker_link_send(&host->link, &msg, -1);
}

static void clock_send(struct tw_worker_host *host) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_CLOCK;
    msg.u.clock = host->clock;
    tw_worker_link_send(&host->link, &msg, -1);
}

static bool is_at_stop(const struct tw_worker_host *host) {
    return host->config.stop_step > 0 && host->step >= host->config.stop_step;
}

static void finish_say(struct tw_worker_host *host) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FINISH;
    msg.u.finish.goes_on = !host->is_finished;
    msg.u.finish.is_settled = host->is_finished && host->is_settled;
    tw_worker_link_send(&host->link, &msg, -1);
}

/* The worker is ready, so (phi, u) are valid: sends it the clock and modes, and tells the core. */
static void on_ready(struct tw_worker_host *host, const struct tw_wmsg_ready *ready) {
    const struct tw_shm *shm = &host->memory.shm;
    host->state = TW_HOST_READY;
    host->has_anchor = true;
    host->batches_to_skip = 0;
    host->is_anchor_wanted = false;
    host->step = ready->step;
    clock_send(host);
    if (host->is_paused) message_say(host, TW_WMSG_PAUSE);
    if (host->is_finished) finish_say(host);
    if (host->config.events.ready != NULL) host->config.events.ready(host->config.user, ready);

    struct tw_event event;
    memset(&event, 0, sizeof(event));
    event.kind = TW_EV_WORKER_UP;
    event.ok = true;
    event.u.worker = &host->told;
    host->told.step = ready->step;
    host->told.tokens = ready->tokens;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        host->told.fragment_rounds[p] = view.state.rounds;
        host->told.fragment_digests[p] = view.state.digest;
    }
    host->config.events.event(host->config.user, &event);
}

/* ---- messages of the worker --------------------------------------------------------------------
 */

static void on_step(struct tw_worker_host *host, const struct tw_wmsg_step *step) {
    host->step = step->step;
    if (host->config.events.stepped != NULL) host->config.events.stepped(host->config.user, step);
    struct tw_event event;
    memset(&event, 0, sizeof(event));
    event.kind = TW_EV_STEP;
    event.ok = true;
    event.u.step.step = step->step;
    event.u.step.tokens = step->tokens;
    host->config.events.event(host->config.user, &event);
}

static bool on_sample(struct tw_worker_host *host, const struct tw_wmsg_sample *sample) {
    const struct tw_worker_host_events *events = &host->config.events;
    if (sample->prompt[sizeof(sample->prompt) - 1] != 0) return false;
    if (sample->text[sizeof(sample->text) - 1] != 0) return false;
    if (events->sampled != NULL) events->sampled(host->config.user, sample);
    return true;
}

/* Returns whether the worker sends answers of this kind only between two steps. */
static bool is_of_boundary(uint32_t kind) {
    return kind == TW_WMSG_ENCODED || kind == TW_WMSG_APPLIED || kind == TW_WMSG_EXPORTED ||
           kind == TW_WMSG_JUDGED;
}

static bool on_news(struct tw_worker_host *host, const struct tw_worker_msg *msg) {
    const struct tw_worker_host_events *events = &host->config.events;
    switch (msg->kind) {
    case TW_WMSG_STEP: on_step(host, &msg->u.step); return true;
    case TW_WMSG_EVALUATED:
        if (events->evaluated != NULL) events->evaluated(host->config.user, &msg->u.evaluated);
        return true;
    case TW_WMSG_SAMPLE: return on_sample(host, &msg->u.sample);
    case TW_WMSG_SNAPSHOT_DONE:
        if (msg->u.snapshot_done.slot > TW_SNAPSHOT_NONE) return false;
        if (events->snapshot != NULL) {
            events->snapshot(host->config.user, msg->u.snapshot_done.slot,
                             msg->u.snapshot_done.step);
        }
        return true;
    default:
        if (!tw_calls_answer(host, msg)) return false;
        if (is_of_boundary(msg->kind) && events->worked != NULL) events->worked(host->config.user);
        return true;
    }
}

static void on_message(void *user, const struct tw_worker_msg *msg) {
    struct tw_worker_host *host = user;
    if (msg->kind == TW_WMSG_FATAL) {
        host->last_status = msg->u.fatal.status;
        host->has_left = msg->u.fatal.status == TW_OK;
        (void)snprintf(host->last_words, sizeof(host->last_words), "%.*s",
                       (int)sizeof(msg->u.fatal.text), msg->u.fatal.text);
        return;
    }
    if (msg->kind == TW_WMSG_READY && host->state == TW_HOST_STARTING) {
        on_ready(host, &msg->u.ready);
        return;
    }
    if (host->state != TW_HOST_READY || msg->kind == TW_WMSG_READY || !on_news(host, msg)) {
        char sentence[128];
        (void)snprintf(sentence, sizeof(sentence),
                       "the worker sent a message of kind %u nobody asked for, or that says too "
                       "much",
                       msg->kind);
        tw_worker_link_drop(&host->link, sentence);
    }
}

static void on_closed(void *user, const char *sentence) {
    struct tw_worker_host *host = user;
    const bool was_ready = host->state == TW_HOST_READY;
    host->state = TW_HOST_NOBODY;
    tw_calls_forget(host);
    if (was_ready) {
        struct tw_event event;
        memset(&event, 0, sizeof(event));
        event.kind = TW_EV_WORKER_DOWN;
        host->config.events.event(host->config.user, &event);
    }
    if (host->config.events.gone != NULL) {
        host->config.events.gone(host->config.user,
                                 host->last_words[0] != '\0' ? host->last_words : sentence);
    }
}

static void on_payload_free(void *user, uint64_t offset, uint64_t bytes) {
    struct tw_worker_host *const host = user;
    tw_worker_memory_give_back(&host->memory, offset, bytes);
}

static void on_refused(void *user, const char *sentence) {
    struct tw_worker_host *host = user;
    if (host->config.events.refused != NULL) {
        host->config.events.refused(host->config.user, sentence);
    }
}

/* ---- requests of the daemon ----------------------------------------------------------------- */

static void payload_expect(struct tw_worker_host *host, const struct tw_action *action) {
    uint32_t row;
    const enum tw_status status = tw_pool_expect(&host->payloads.pool, &action->u.payload.hash,
                                                 action->u.payload.bytes, &row, NULL);
    if (status == TW_OK) return;
    struct tw_event event;
    memset(&event, 0, sizeof(event));
    event.kind = TW_EV_VERIFIED;
    event.u.chunk.hash = action->u.payload.hash;
    host->config.events.event(host->config.user, &event);
}

void tw_worker_host_act(struct tw_worker_host *host, const struct tw_action *action) {
    int row;
    switch (action->kind) {
    case TW_ACT_EXPECT: payload_expect(host, action); return;
    case TW_ACT_DROP:
        row = tw_pool_find(&host->payloads.pool, &action->u.payload.hash);
        if (row >= 0) tw_pool_put(&host->payloads.pool, (uint32_t)row);
        return;
    case TW_ACT_CLOCK:
        host->clock = action->u.clock;
        if (tw_worker_host_is_ready(host)) clock_send(host);
        return;
    case TW_ACT_FINISH:
        /* A node with a stop step stays finished even if the run goes on. */
        host->is_finished = !action->u.finish.goes_on || is_at_stop(host);
        if (tw_worker_host_is_ready(host)) finish_say(host);
        return;
    case TW_ACT_VERIFY:
    case TW_ACT_ENCODE:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_JUDGE: tw_calls_act(host, action); return;
    case TW_ACT_SEND:
    case TW_ACT_CLOSE:
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_REPORT: break;
    }
    TW_NEVER("an action of somebody else");
}

void tw_worker_host_set_settled(struct tw_worker_host *host, bool is_settled) {
    if (is_settled == host->is_settled) return;
    host->is_settled = is_settled;
    if (host->is_finished && tw_worker_host_is_ready(host)) finish_say(host);
}

void tw_worker_host_say(struct tw_worker_host *host, enum tw_worker_msg_kind kind) {
    if (kind == TW_WMSG_PAUSE) host->is_paused = true;
    if (kind == TW_WMSG_RESUME) host->is_paused = false;
    if (tw_worker_host_is_ready(host)) message_say(host, kind);
}

bool tw_worker_host_freeze(struct tw_worker_host *host) {
    TW_ASSERT(!host->is_frozen);
    host->is_frozen = true;
    host->is_freeze_told = tw_calls_changes(host) == 0;
    return host->is_freeze_told;
}

void tw_worker_host_thaw(struct tw_worker_host *host) {
    TW_ASSERT(host->is_frozen);
    host->is_frozen = false;
    tw_calls_thaw(host);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_worker_host_create(struct tw_worker_host **host_out,
                                     const struct tw_worker_host_config *config,
                                     struct tw_error *err) {
    struct tw_worker_host *host = calloc(1, sizeof(*host));
    struct tw_worker_msg *deferred = calloc(TW_DEFERRED_MAX, sizeof(*deferred));
    if (host == NULL || deferred == NULL) {
        free(host);
        free(deferred);
        return tw_fail(err, TW_NOMEM, "no memory for the worker's side of the daemon");
    }
    host->config = *config;
    host->deferred = deferred;
    const uint64_t pool_bytes = config->pool_bytes > 0
                                    ? config->pool_bytes
                                    : tw_worker_pool_bytes(config->run, config->layout);
    const struct tw_worker_memory_config memory = {.layout = config->layout,
                                                   .mode = config->snapshot_mode,
                                                   .pool_bytes = pool_bytes,
                                                   .folder = config->memory_folder};
    enum tw_status status = tw_worker_memory_open(&host->memory, &memory, err);
    if (status == TW_OK) {
        tw_payloads_init(&host->payloads, &host->memory.shm);
        host->payloads.pool.on_free = on_payload_free;
        host->payloads.pool.user = host;
        const struct tw_worker_link_config link = {
            .loop = config->loop,
            .socket_path = config->socket_path,
            .worker_uid = config->worker_uid,
            .events = {on_hello, on_message, on_closed, on_refused},
            .user = host,
        };
        status = tw_worker_link_open(&host->link, &link, err);
    }
    if (status != TW_OK) {
        host->link.listen_fd = -1;
        tw_worker_host_destroy(host);
        return status;
    }
    *host_out = host;
    return TW_OK;
}

void tw_worker_host_close(struct tw_worker_host *host) {
    host->is_closing = true;
    tw_worker_link_close(&host->link);
}

void tw_worker_host_destroy(struct tw_worker_host *host) {
    if (host == NULL) return;
    TW_ASSERT(host->link.listen_fd < 0);
    tw_worker_memory_close(&host->memory);
    free(host->deferred);
    free(host);
}
