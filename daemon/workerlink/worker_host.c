#include "daemon/workerlink/worker_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "compress/codec.h"
#include "compress/lattice.h"
#include "compress/pack.h"

/* ==== a worker comes and goes ================================================================= */

static void calls_thaw(struct tw_worker_host *host);
static void calls_act(struct tw_worker_host *host, const struct tw_action *action);
static bool calls_answer(struct tw_worker_host *host, const struct tw_worker_msg *msg);
static void calls_forget(struct tw_worker_host *host);

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
        if (!calls_answer(host, msg)) return false;
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
    calls_forget(host);
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
    case TW_ACT_JUDGE: calls_act(host, action); return;
    case TW_ACT_SEND:
    case TW_ACT_CLOSE:
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_GATHER:
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
    calls_thaw(host);
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

/* ==== the table of requests =================================================================== */

/* The table of requests: action of the core, message to the worker, answer, event to the core.
 *
 *   FREE --action--> AT_WORKER --answer--> FREE               APPLY SOLO LOAD, failures, CHECKED
 *   FREE --action--> AT_WORKER --answer--> HASHING --> FREE   ENCODE REDUCE EXPORT: hash the output
 *   FREE --VERIFY--> HASHING --> FREE, or --> AT_WORKER       a trial decode follows the hash
 *   FREE --action--> DEFERRED --thaw--> AT_WORKER             changes while frozen
 *   any --worker gone--> FREE (HASHING: when the thread is done; its result is discarded) */

enum { NO_ROW = TW_PAYLOADS_MAX, HASH_INLINE_BYTES = 256 * 1024 };
#define DISTANCE_MAX 1e6f /* larger distances of merged anchors are an error of the worker */

/* ---- rows ---------------------------------------------------------------------------------- */

static struct tw_call *call_take(struct tw_worker_host *host, enum tw_action_kind kind) {
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        struct tw_call *call = &host->calls[i];
        if (call->stage != TW_CALL_FREE) continue;
        *call = (struct tw_call){.host = host,
                                 .stage = TW_CALL_AT_WORKER,
                                 .kind = kind,
                                 .session = host->session,
                                 .order = ++host->calls_order};
        return call;
    }
    return NULL;
}

/* Releases the row's inputs and outputs. Outputs that were committed to the pool are no longer the
 * row's. */
static void call_free(struct tw_call *call) {
    struct tw_pool *pool = &call->host->payloads.pool;
    for (uint32_t i = 0; i < call->ins_count; i++) tw_pool_release(pool, call->ins[i]);
    for (uint32_t i = 0; i < call->outs_count; i++) {
        if (call->outs[i] != NO_ROW) tw_pool_put(pool, call->outs[i]);
    }
    call->stage = TW_CALL_FREE;
}

static bool call_hold(struct tw_call *call, const struct tw_id *hash, struct tw_span *span) {
    struct tw_payloads *payloads = &call->host->payloads;
    const int row = tw_pool_find(&payloads->pool, hash);
    if (row < 0 || payloads->pool.rows[row].state != TW_PAYLOAD_HELD) return false;
    TW_ASSERT(call->ins_count < TW_MEMBERS_MAX);
    tw_pool_hold(&payloads->pool, (uint32_t)row);
    call->ins[call->ins_count++] = (uint32_t)row;
    *span = tw_payloads_span(payloads, (uint32_t)row);
    return true;
}

static bool call_reserve(struct tw_call *call, uint64_t bytes, struct tw_span *span) {
    struct tw_payloads *payloads = &call->host->payloads;
    TW_ASSERT(call->outs_count < TW_PARTS_MAX);
    uint32_t row = NO_ROW;
    *span = (struct tw_span){0};
    if (bytes > TW_PAYLOAD_BYTES_MAX) return false;
    if (bytes > 0) {
        if (tw_pool_reserve(&payloads->pool, (uint32_t)bytes, &row, NULL) != TW_OK) return false;
        *span = tw_payloads_span(payloads, row);
    }
    call->outs[call->outs_count++] = row;
    return true;
}

/* Returns the oldest request at the worker with this kind and key, or NULL. */
static struct tw_call *call_find(struct tw_worker_host *host, enum tw_action_kind kind,
                                 uint64_t round, uint32_t part, uint32_t fragment) {
    struct tw_call *found = NULL;
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        struct tw_call *call = &host->calls[i];
        if (call->stage != TW_CALL_AT_WORKER || call->kind != kind) continue;
        if (call->round != round || call->part != part || call->fragment != fragment) continue;
        if (found == NULL || call->order < found->order) found = call;
    }
    return found;
}

static bool call_changes(const struct tw_call *call) {
    return call->event.kind == TW_EV_APPLIED;
}

uint32_t tw_calls_changes(const struct tw_worker_host *host) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        const struct tw_call *call = &host->calls[i];
        if (call->stage == TW_CALL_AT_WORKER && call_changes(call)) count++;
    }
    return count;
}

/* ---- events -------------------------------------------------------------------------------- */

/* Ends the call with an event. Frees the row first, because the event may cause new actions. */
static void call_finish(struct tw_call *call, bool ok) {
    struct tw_worker_host *host = call->host;
    const bool is_change = call_changes(call);
    struct tw_event event = call->event;
    event.ok = ok;
    call_free(call);
    host->config.events.event(host->config.user, &event);
    if (is_change && host->is_frozen && !host->is_freeze_told && tw_calls_changes(host) == 0) {
        host->is_freeze_told = true;
        if (host->config.events.frozen != NULL) host->config.events.frozen(host->config.user);
    }
}

/* ---- hashes --------------------------------------------------------------------------------- */

static void message_give(struct tw_call *call, struct tw_worker_msg *msg);

/* Called when the hash of a received payload is known: begins the trial decode, or ends the call.
 */
static void verify_named(struct tw_call *call) {
    struct tw_worker_host *host = call->host;
    const bool is_right = tw_id_equal(&call->hashes[0], &call->event.u.chunk.hash);
    if (is_right && call->check.content != TW_CONTENT_OPAQUE) {
        if (!tw_worker_host_is_ready(host) || call->session != host->session) {
            call_free(call);
            return;
        }
        struct tw_worker_msg msg = {.kind = TW_WMSG_CHECK, .u.check = call->check};
        call->stage = TW_CALL_AT_WORKER;
        call->round = msg.u.check.tag = call->order;
        msg.u.check.in = tw_payloads_span(&host->payloads, call->ins[0]);
        message_give(call, &msg);
        return;
    }
    const int row = tw_pool_find(&host->payloads.pool, &call->event.u.chunk.hash);
    if (is_right && row >= 0) tw_pool_verified(&host->payloads.pool, (uint32_t)row);
    call_finish(call, is_right && row >= 0);
}

/* Reports this node's contribution to the status and to the byte budget. */
static void encoded_tell(const struct tw_call *call) {
    const struct tw_worker_host *host = call->host;
    const bool is_pair = call->kind == TW_ACT_PAIR_ENCODE;
    if (host->config.events.encoded == NULL || (call->kind != TW_ACT_ENCODE && !is_pair)) return;
    struct tw_encoded encoded = {.round = call->round,
                                 .parts_count = is_pair ? 1 : call->outs_count};
    for (uint32_t k = 0; k < encoded.parts_count; k++) {
        uint64_t rungs[TW_AUTO_RUNGS];
        encoded.parts[k].bytes = call->out_bytes[k];
        encoded.parts[k].elements = call->out_elements[k];
        if (host->config.run->sync.codec != TW_CODEC_AUTO || call->outs[k] == NO_ROW) continue;
        /* If the payload's head is malformed, the status shows no codecs; other nodes will refuse
         * the payload. */
        if (tw_auto_mix(tw_payloads_bytes(&host->payloads, call->outs[k]), call->out_bytes[k],
                        (size_t)call->out_elements[k], rungs) == TW_OK)
            memcpy(encoded.parts[k].rungs, rungs, sizeof(rungs));
    }
    host->config.events.encoded(host->config.user, &encoded);
}

static void event_name_outputs(struct tw_call *call) {
    struct tw_event *event = &call->event;
    if (event->kind == TW_EV_ENCODED) {
        event->u.encoded.parts_count = call->outs_count;
        memcpy(event->u.encoded.hashes, call->hashes, sizeof(call->hashes));
        memcpy(event->u.encoded.bytes, call->out_bytes, sizeof(call->out_bytes));
    } else if (event->kind == TW_EV_REDUCED) {
        event->u.reduced.hash = call->hashes[0];
        event->u.reduced.bytes = call->out_bytes[0];
    } else {
        event->u.exported.hash = call->hashes[0];
        event->u.exported.bytes = call->out_bytes[0];
    }
}

static void outputs_named(struct tw_call *call) {
    struct tw_worker_host *host = call->host;
    if (call->session != host->session || !tw_worker_host_is_ready(host)) {
        call_free(call);
        return;
    }
    encoded_tell(call);
    for (uint32_t i = 0; i < call->outs_count; i++) {
        if (call->outs[i] == NO_ROW) continue;
        (void)tw_pool_commit(&host->payloads.pool, call->outs[i], &call->hashes[i],
                             call->out_bytes[i]);
        call->outs[i] = NO_ROW; /* the pool now owns the output, under its hash */
    }
    event_name_outputs(call);
    call_finish(call, true);
}

static void names_make(struct tw_call *call) {
    const struct tw_payloads *payloads = &call->host->payloads;
    if (call->kind == TW_ACT_VERIFY) {
        const struct tw_span span = tw_payloads_span(payloads, call->ins[0]);
        call->hashes[0] = tw_sha256(tw_payloads_bytes(payloads, call->ins[0]), span.bytes);
        return;
    }
    for (uint32_t i = 0; i < call->outs_count; i++) {
        if (call->outs[i] == NO_ROW) continue;
        const uint8_t *bytes = tw_payloads_bytes(payloads, call->outs[i]);
        call->hashes[i] = tw_sha256(bytes, call->out_bytes[i]);
    }
}

static void names_made(struct tw_call *call) {
    if (call->kind == TW_ACT_VERIFY) {
        verify_named(call);
    } else {
        outputs_named(call);
    }
}

/* Runs on a thread. Reads payloads that the call holds, so they stay in place. Writes call->hashes.
 */
static void on_hash_work(uv_work_t *work) {
    names_make(work->data);
}

static void on_hash_done(uv_work_t *work, int status) {
    struct tw_call *call = work->data;
    if (status != 0 || call->host->is_closing) {
        call_free(call);
        return;
    }
    names_made(call);
}

static void names_start(struct tw_call *call, uint64_t bytes) {
    call->stage = TW_CALL_HASHING;
    if (bytes <= HASH_INLINE_BYTES) {
        names_make(call);
        names_made(call);
        return;
    }
    call->work.data = call;
    TW_ASSERT(uv_queue_work(call->host->config.loop, &call->work, on_hash_work, on_hash_done) == 0);
}

/* ---- actions ------------------------------------------------------------------------------- */

/* Sends the message. While frozen, queues it if it changes (phi, u). */
static void message_give(struct tw_call *call, struct tw_worker_msg *msg) {
    struct tw_worker_host *host = call->host;
    if (!host->is_frozen || !call_changes(call)) {
        tw_worker_link_send(&host->link, msg, -1);
        return;
    }
    if (host->deferred_count == TW_DEFERRED_MAX) {
        call_finish(call, false);
        return;
    }
    call->stage = TW_CALL_DEFERRED;
    host->deferred[host->deferred_count++] = *msg;
}

static void calls_thaw(struct tw_worker_host *host) {
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        struct tw_call *call = &host->calls[i];
        if (call->stage == TW_CALL_DEFERRED) call->stage = TW_CALL_AT_WORKER;
    }
    for (uint32_t i = 0; i < host->deferred_count; i++) {
        tw_worker_link_send(&host->link, &host->deferred[i], -1);
    }
    host->deferred_count = 0;
}

/* The *_begin functions set the key (round, part or fragment) by which the answer finds the call.
 * They fill the message's spans: the places of inputs and outputs in shared memory. They return
 * false if an input is not held, or if the pool has no space for an output. */

static bool encode_begin(struct tw_call *call, const struct tw_id *inputs,
                         struct tw_worker_msg *msg) {
    const struct tw_codec *codec = tw_codec_get(call->host->config.run->sync.codec);
    struct tw_wmsg_encode *encode = &msg->u.encode;
    (void)inputs;
    call->round = call->event.u.encoded.round = encode->round;
    for (uint32_t i = 0; i < encode->parts_count; i++) {
        const size_t count = (size_t)encode->parts[i].count;
        call->out_elements[i] = count;
        if (!call_reserve(call, count > 0 ? codec->bound(count) : 0, &encode->parts[i].out))
            return false;
    }
    return true;
}

static bool reduce_begin(struct tw_call *call, const struct tw_id *inputs,
                         struct tw_worker_msg *msg) {
    const struct tw_codec *codec = tw_codec_get(call->host->config.run->sync.result);
    struct tw_wmsg_reduce *reduce = &msg->u.reduce;
    call->round = call->event.u.reduced.round = reduce->round;
    call->part = call->event.u.reduced.part = reduce->part;
    call->event.u.reduced.is_audit = reduce->is_audit != 0;
    for (uint32_t i = 0; i < reduce->inputs_count; i++) {
        if (!call_hold(call, &inputs[i], &reduce->inputs[i].in)) return false;
    }
    return call_reserve(call, codec->bound((size_t)reduce->count), &reduce->out);
}

static bool apply_begin(struct tw_call *call, const struct tw_id *inputs,
                        struct tw_worker_msg *msg) {
    struct tw_wmsg_apply *apply = &msg->u.apply;
    call->fragment = call->event.u.applied.fragment = apply->fragment;
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        if (apply->parts[i].mode == TW_APPLY_ABSENT) continue;
        if (call->host->is_theta_held) apply->parts[i].mode = TW_APPLY_STAY;
        if (!call_hold(call, &inputs[i], &apply->parts[i].in)) return false;
    }
    return true;
}

static bool solo_begin(struct tw_call *call, const struct tw_id *inputs,
                       struct tw_worker_msg *msg) {
    (void)inputs;
    call->fragment = call->event.u.applied.fragment = msg->u.solo.fragment;
    return true;
}

static bool load_begin(struct tw_call *call, const struct tw_id *inputs,
                       struct tw_worker_msg *msg) {
    call->fragment = call->event.u.applied.fragment = msg->u.load.fragment;
    return tw_id_is_zero(&inputs[0]) || call_hold(call, &inputs[0], &msg->u.load.in);
}

static bool export_begin(struct tw_call *call, const struct tw_id *inputs,
                         struct tw_worker_msg *msg) {
    const uint32_t fragment = msg->u.export.fragment;
    const uint64_t elements = tw_shm_fragment_elements(&call->host->memory.shm, fragment);
    (void)inputs;
    call->fragment = call->event.u.exported.fragment = fragment;
    return call_reserve(call, tw_pack_bound((size_t)elements), &msg->u.export.out);
}

static bool pair_encode_begin(struct tw_call *call, const struct tw_id *inputs,
                              struct tw_worker_msg *msg) {
    const struct tw_worker_host *host = call->host;
    const struct tw_codec *codec = tw_codec_get(host->config.run->sync.codec);
    struct tw_wmsg_pair_encode *encode = &msg->u.pair_encode;
    const size_t elements = (size_t)tw_shm_fragment_elements(&host->memory.shm, encode->fragment);
    (void)inputs;
    call->round = call->event.u.encoded.round = encode->round;
    call->out_elements[TW_PAIR_DELTA] = elements;
    return call_reserve(call, codec->bound(elements), &encode->delta) &&
           call_reserve(call, tw_lattice_bound(elements), &encode->phi);
}

static bool pair_apply_begin(struct tw_call *call, const struct tw_id *inputs,
                             struct tw_worker_msg *msg) {
    const struct tw_id *theirs = inputs + TW_PAIR_THEIRS;
    struct tw_wmsg_pair_apply *apply = &msg->u.pair_apply;
    call->fragment = call->event.u.applied.fragment = apply->fragment;
    /* While theta is held, the pair step is taken alone. The event then says so to the core, as if
     * the partner's payload were unusable. */
    call->event.u.applied.is_alone = apply->is_alone == 0 && call->host->is_theta_held;
    if (call->host->is_theta_held) apply->is_alone = 1;
    if (apply->is_alone != 0) return true;
    return call_hold(call, &inputs[TW_PAIR_DELTA], &apply->own.delta) &&
           call_hold(call, &inputs[TW_PAIR_PHI], &apply->own.phi) &&
           call_hold(call, &theirs[TW_PAIR_DELTA], &apply->theirs.delta) &&
           call_hold(call, &theirs[TW_PAIR_PHI], &apply->theirs.phi);
}

static bool judge_begin(struct tw_call *call, const struct tw_id *inputs,
                        struct tw_worker_msg *msg) {
    struct tw_wmsg_judge *judge = &msg->u.judge;
    call->round = call->event.u.judged.round = judge->round;
    call->fragment = judge->fragment;
    for (uint32_t k = 0; k < judge->parts_count; k++) {
        if (judge->parts[k].count == 0) continue;
        if (!call_hold(call, &inputs[k], &judge->parts[k].in)) return false;
    }
    return true;
}

static const struct verb {
    enum tw_worker_msg_kind request;
    enum tw_event_kind event; /* event that reports the answer to the core */
    bool (*begin)(struct tw_call *call, const struct tw_id *inputs, struct tw_worker_msg *msg);
} verbs[] = {
    [TW_ACT_ENCODE] = {TW_WMSG_ENCODE, TW_EV_ENCODED, encode_begin},
    [TW_ACT_REDUCE] = {TW_WMSG_REDUCE, TW_EV_REDUCED, reduce_begin},
    [TW_ACT_APPLY] = {TW_WMSG_APPLY, TW_EV_APPLIED, apply_begin},
    [TW_ACT_SOLO] = {TW_WMSG_SOLO, TW_EV_APPLIED, solo_begin},
    [TW_ACT_PAIR_ENCODE] = {TW_WMSG_PAIR_ENCODE, TW_EV_ENCODED, pair_encode_begin},
    [TW_ACT_PAIR_APPLY] = {TW_WMSG_PAIR_APPLY, TW_EV_APPLIED, pair_apply_begin},
    [TW_ACT_EXPORT] = {TW_WMSG_EXPORT, TW_EV_EXPORTED, export_begin},
    [TW_ACT_LOAD] = {TW_WMSG_LOAD, TW_EV_APPLIED, load_begin},
    [TW_ACT_JUDGE] = {TW_WMSG_JUDGE, TW_EV_JUDGED, judge_begin},
};

static void verify_start(struct tw_worker_host *host, struct tw_call *call,
                         const struct tw_action *action) {
    const struct tw_id *hash = &action->u.payload.hash;
    const int row = tw_pool_find(&host->payloads.pool, hash);
    call->event.kind = TW_EV_VERIFIED;
    call->event.u.chunk.hash = *hash;
    call->check = (struct tw_wmsg_check){.elements = action->u.payload.elements,
                                         .begin = action->u.payload.begin,
                                         .content = (uint32_t)action->u.payload.content,
                                         .fragment = action->u.payload.fragment};
    if (row < 0) {
        call_finish(call, false);
        return;
    }
    tw_pool_hold(&host->payloads.pool, (uint32_t)row);
    call->ins[call->ins_count++] = (uint32_t)row;
    names_start(call, host->payloads.pool.rows[row].bytes);
}

/* Begins a request to the ready worker, or a VERIFY, which may need no worker. */
static void calls_act(struct tw_worker_host *host, const struct tw_action *action) {
    const bool needs_worker =
        action->kind != TW_ACT_VERIFY || action->u.payload.content != TW_CONTENT_OPAQUE;
    if (needs_worker && !tw_worker_host_is_ready(host)) return;
    struct tw_call *call = call_take(host, action->kind);
    if (call == NULL) {
        tw_worker_link_drop(&host->link, "the worker owes too many answers");
        return;
    }
    if (action->kind == TW_ACT_VERIFY) {
        verify_start(host, call, action);
        return;
    }
    const struct verb *verb = &verbs[action->kind];
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = (uint32_t)verb->request;
    memcpy(&msg.u, &action->u, tw_worker_msg_bytes(msg.kind) - offsetof(struct tw_worker_msg, u));
    call->event.kind = verb->event;
    if (!verb->begin(call, action->inputs, &msg)) {
        call_finish(call, false);
        return;
    }
    message_give(call, &msg);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* Notes that the worker wrote bytes[i] bytes into output i. Returns false if a size exceeds its
 * reservation or is 0. An empty part has no output. */
static bool outputs_take(struct tw_call *call, const uint32_t *bytes, uint64_t *total) {
    const struct tw_pool *pool = &call->host->payloads.pool;
    *total = 0;
    for (uint32_t i = 0; i < call->outs_count; i++) {
        const uint32_t capacity = call->outs[i] == NO_ROW ? 0 : pool->rows[call->outs[i]].bytes;
        if (bytes[i] > capacity || (bytes[i] == 0) != (capacity == 0)) return false;
        call->out_bytes[i] = bytes[i];
        *total += bytes[i];
    }
    return true;
}

static bool output_answer(struct tw_call *call, uint32_t status, const uint32_t *bytes) {
    uint64_t total = 0;
    if (status != TW_OK) {
        call_finish(call, false);
        return true;
    }
    if (!outputs_take(call, bytes, &total)) return false;
    names_start(call, total);
    return true;
}

static bool encoded_answer(struct tw_worker_host *host, const struct tw_wmsg_encoded *encoded) {
    struct tw_call *call = call_find(host, TW_ACT_ENCODE, encoded->round, 0, 0);
    if (call == NULL) call = call_find(host, TW_ACT_PAIR_ENCODE, encoded->round, 0, 0);
    if (call == NULL) return false;
    if (encoded->status == TW_OK && encoded->parts_count != call->outs_count) return false;
    call->event.u.encoded.step = encoded->step;
    call->event.u.encoded.tokens = encoded->tokens;
    call->event.u.encoded.cursor = encoded->cursor;
    return output_answer(call, encoded->status, encoded->bytes);
}

static bool reduced_answer(struct tw_worker_host *host, const struct tw_wmsg_reduced *reduced) {
    struct tw_call *call = call_find(host, TW_ACT_REDUCE, reduced->round, reduced->part, 0);
    if (call == NULL) return false;
    const uint64_t inputs = UINT64_MAX >> (TW_MEMBERS_MAX - call->ins_count);
    if ((reduced->refused & ~inputs) != 0 || reduced->refused == inputs) return false;
    call->event.u.reduced.refused = reduced->refused;
    memcpy(call->event.u.reduced.sizes, reduced->sizes, sizeof(reduced->sizes));
    return output_answer(call, reduced->status, &reduced->bytes);
}

static bool exported_answer(struct tw_worker_host *host, const struct tw_wmsg_exported *exported) {
    struct tw_call *call = call_find(host, TW_ACT_EXPORT, 0, 0, exported->fragment);
    if (call == NULL) return false;
    call->event.u.exported.rounds = exported->rounds;
    call->event.u.exported.digest = exported->digest;
    return output_answer(call, exported->status, &exported->bytes);
}

static bool applied_answer(struct tw_worker_host *host, const struct tw_wmsg_applied *applied) {
    static const enum tw_action_kind kinds[] = {TW_ACT_APPLY, TW_ACT_SOLO, TW_ACT_LOAD,
                                                TW_ACT_PAIR_APPLY};
    struct tw_call *oldest = NULL;
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct tw_call *call = call_find(host, kinds[i], 0, 0, applied->fragment);
        if (call != NULL && (oldest == NULL || call->order < oldest->order)) oldest = call;
    }
    if (oldest == NULL) return false;
    oldest->event.u.applied.rounds = applied->rounds;
    oldest->event.u.applied.digest = applied->digest;
    if (applied->is_alone != 0) oldest->event.u.applied.is_alone = true;
    oldest->event.u.applied.is_outlier = applied->is_outlier != 0;
    if (applied->distance > 0 && applied->distance < DISTANCE_MAX)
        host->partner_distance = applied->distance;
    call_finish(oldest, applied->status == TW_OK);
    return true;
}

static bool checked_answer(struct tw_worker_host *host, const struct tw_wmsg_checked *checked) {
    struct tw_call *call = call_find(host, TW_ACT_VERIFY, checked->tag, 0, 0);
    if (call == NULL || checked->sanity > TW_SANITY_EXTREME) return false;
    const int row = tw_pool_find(&host->payloads.pool, &call->event.u.chunk.hash);
    const bool ok = checked->status == TW_OK && row >= 0;
    if (ok) tw_pool_verified(&host->payloads.pool, (uint32_t)row);
    if (ok) call->event.u.chunk.sanity = (enum tw_sanity)checked->sanity;
    call->event.u.chunk.is_unfit = checked->status == TW_CORRUPT;
    call_finish(call, ok);
    return true;
}

static bool judged_answer(struct tw_worker_host *host, const struct tw_wmsg_judged *judged) {
    struct tw_call *call = call_find(host, TW_ACT_JUDGE, judged->round, 0, judged->fragment);
    if (call == NULL || judged->share > 1000) return false;
    call->event.u.judged.score = judged->score;
    call->event.u.judged.share = judged->share;
    call_finish(call, judged->status == TW_OK);
    return true;
}

/* Processes an answer. Returns false if it has no request or exceeds the request's limits:
 * disconnect the worker then. */
static bool calls_answer(struct tw_worker_host *host, const struct tw_worker_msg *msg) {
    switch (msg->kind) {
    case TW_WMSG_ENCODED: return encoded_answer(host, &msg->u.encoded);
    case TW_WMSG_EXPORTED: return exported_answer(host, &msg->u.exported);
    case TW_WMSG_APPLIED: return applied_answer(host, &msg->u.applied);
    case TW_WMSG_CHECKED: return checked_answer(host, &msg->u.checked);
    case TW_WMSG_REDUCED: return reduced_answer(host, &msg->u.reduced);
    case TW_WMSG_JUDGED: return judged_answer(host, &msg->u.judged);
    default: return false;
    }
}

/* Drops all requests of a worker that has ended. */
static void calls_forget(struct tw_worker_host *host) {
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        struct tw_call *call = &host->calls[i];
        if (call->stage == TW_CALL_AT_WORKER || call->stage == TW_CALL_DEFERRED) call_free(call);
    }
    host->deferred_count = 0;
    if (host->is_frozen && !host->is_freeze_told) {
        host->is_freeze_told = true;
        if (host->config.events.frozen != NULL) host->config.events.frozen(host->config.user);
    }
}
