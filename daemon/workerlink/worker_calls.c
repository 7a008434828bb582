/* worker_calls.c - the table of requests: an action in, a message out, an answer back, an event.
 *
 *   FREE --action--> AT_WORKER --answer--> FREE               APPLY SOLO LOAD, failures, CHECKED
 *   FREE --action--> AT_WORKER --answer--> HASHING --> FREE   ENCODE REDUCE EXPORT: name the output
 *   FREE --VERIFY--> HASHING --> FREE, or --> AT_WORKER       a trial decode follows the name
 *   FREE --action--> DEFERRED --thaw--> AT_WORKER             changes while frozen
 *   any --worker gone--> FREE (HASHING: when the thread is done; its result is thrown away) */
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "compress/codec.h"
#include "compress/lattice.h"
#include "compress/pack.h"
#include "daemon/workerlink/worker_host.h"

enum { NO_ROW = TW_PAYLOADS_MAX, HASH_INLINE_BYTES = 256 * 1024 };
#define DISTANCE_MAX 1e6f /* of anchors that were merged; a worker that says more errs */

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

/* Lets go of everything the row holds. Outputs that were committed are out of the row already. */
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

/* Oldest request of this kind at the present worker for which `is_it` holds. */
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

static bool kind_changes(enum tw_action_kind kind) {
    return kind == TW_ACT_APPLY || kind == TW_ACT_SOLO || kind == TW_ACT_LOAD ||
           kind == TW_ACT_PAIR_APPLY;
}

uint32_t tw_calls_changes(const struct tw_worker_host *host) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        const struct tw_call *call = &host->calls[i];
        if (call->stage == TW_CALL_AT_WORKER && kind_changes(call->kind)) count++;
    }
    return count;
}

/* ---- events -------------------------------------------------------------------------------- */

static void event_send(const struct tw_call *call, const struct tw_event *event) {
    call->host->config.events.event(call->host->config.user, event);
}

static void event_of(const struct tw_call *call, bool ok, struct tw_event *event) {
    memset(event, 0, sizeof(*event));
    event->ok = ok;
    switch (call->kind) {
    case TW_ACT_ENCODE:
    case TW_ACT_PAIR_ENCODE:
        event->kind = TW_EV_ENCODED;
        event->u.encoded.round = call->round;
        event->u.encoded.step = call->step;
        event->u.encoded.tokens = call->tokens;
        event->u.encoded.parts_count = call->outs_count;
        memcpy(event->u.encoded.hashes, call->hashes, sizeof(call->hashes));
        memcpy(event->u.encoded.bytes, call->out_bytes, sizeof(call->out_bytes));
        return;
    case TW_ACT_REDUCE:
        event->kind = TW_EV_REDUCED;
        event->u.reduced.round = call->round;
        event->u.reduced.part = call->part;
        event->u.reduced.bytes = call->out_bytes[0];
        event->u.reduced.hash = call->hashes[0];
        event->u.reduced.refused = call->refused;
        event->u.reduced.is_audit = call->is_audit;
        return;
    case TW_ACT_EXPORT:
        event->kind = TW_EV_EXPORTED;
        event->u.exported.fragment = call->fragment;
        event->u.exported.rounds = call->rounds;
        event->u.exported.digest = call->digest;
        event->u.exported.hash = call->hashes[0];
        event->u.exported.bytes = call->out_bytes[0];
        return;
    case TW_ACT_VERIFY:
        event->kind = TW_EV_VERIFIED;
        event->u.chunk.hash = call->digest;
        event->u.chunk.sanity = call->sanity;
        event->u.chunk.is_unfit = call->is_unfit;
        return;
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_LOAD:
        event->kind = TW_EV_APPLIED;
        event->u.applied.is_alone = call->is_alone;
        event->u.applied.is_outlier = call->is_outlier;
        event->u.applied.fragment = call->fragment;
        event->u.applied.rounds = call->rounds;
        event->u.applied.digest = call->digest;
        return;
    case TW_ACT_SEND:
    case TW_ACT_CLOSE:
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_EXPECT:
    case TW_ACT_DROP:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_CLOCK:
    case TW_ACT_FINISH:
    case TW_ACT_REPORT: TW_NEVER("an action that is no call");
    }
}

/* Ends the call: frees the row first, for the event may bring new actions. */
static void call_finish(struct tw_call *call, bool ok) {
    struct tw_worker_host *host = call->host;
    const bool is_change = kind_changes(call->kind);
    struct tw_event event;
    event_of(call, ok, &event);
    call_free(call);
    event_send(call, &event);
    if (is_change && host->is_frozen && !host->is_freeze_told && tw_calls_changes(host) == 0) {
        host->is_freeze_told = true;
        if (host->config.events.frozen != NULL) host->config.events.frozen(host->config.user);
    }
}

/* ---- names --------------------------------------------------------------------------------- */

static void message_give(struct tw_call *call, struct tw_worker_msg *msg);

/* After the name of an expected payload was found right: the trial decode, or done. */
static void verify_named(struct tw_call *call) {
    struct tw_worker_host *host = call->host;
    const bool is_right = tw_id_equal(&call->hashes[0], &call->digest);
    if (is_right && call->content != TW_CONTENT_OPAQUE) {
        if (!tw_worker_host_is_ready(host) || call->session != host->session) {
            call_free(call);
            return;
        }
        struct tw_worker_msg msg = {.kind = TW_WMSG_CHECK};
        call->stage = TW_CALL_AT_WORKER;
        call->round = call->order; /* the tag */
        msg.u.check.tag = call->order;
        msg.u.check.elements = call->elements;
        msg.u.check.content = (uint32_t)call->content;
        msg.u.check.fragment = call->of_fragment;
        msg.u.check.begin = call->begin;
        msg.u.check.in = tw_payloads_span(&host->payloads, call->ins[0]);
        message_give(call, &msg);
        return;
    }
    const int row = tw_pool_find(&host->payloads.pool, &call->digest);
    if (is_right && row >= 0) tw_pool_verified(&host->payloads.pool, (uint32_t)row);
    call_finish(call, is_right && row >= 0);
}

/* For people, and for who keeps a budget: what was contributed. */
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
        /* Heads that make no sense are for other nodes to judge, and nothing to show. */
        if (tw_auto_mix(tw_payloads_bytes(&host->payloads, call->outs[k]), call->out_bytes[k],
                        (size_t)call->out_elements[k], rungs) == TW_OK)
            memcpy(encoded.parts[k].rungs, rungs, sizeof(rungs));
    }
    host->config.events.encoded(host->config.user, &encoded);
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
        call->outs[i] = NO_ROW; /* its name owns it now */
    }
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

/* On a thread: reads rows this call holds, which nobody moves, and writes the call's hashes. */
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

/* To the worker, or aside while frozen. */
static void message_give(struct tw_call *call, struct tw_worker_msg *msg) {
    struct tw_worker_host *host = call->host;
    if (!host->is_frozen || !kind_changes(call->kind)) {
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

void tw_calls_thaw(struct tw_worker_host *host) {
    for (uint32_t i = 0; i < TW_CALLS_MAX; i++) {
        struct tw_call *call = &host->calls[i];
        if (call->stage == TW_CALL_DEFERRED) call->stage = TW_CALL_AT_WORKER;
    }
    for (uint32_t i = 0; i < host->deferred_count; i++) {
        tw_worker_link_send(&host->link, &host->deferred[i], -1);
    }
    host->deferred_count = 0;
}

static bool encode_build(struct tw_call *call, const struct tw_action *action,
                         struct tw_worker_msg *msg) {
    const struct tw_codec *codec = tw_codec_get(call->host->config.run->sync.codec);
    call->round = action->u.encode.round;
    msg->kind = TW_WMSG_ENCODE;
    msg->u.encode.round = action->u.encode.round;
    msg->u.encode.fragment = action->u.encode.fragment;
    msg->u.encode.parts_count = action->u.encode.parts_count;
    for (uint32_t i = 0; i < action->u.encode.parts_count; i++) {
        const uint64_t count = action->u.encode.count[i];
        msg->u.encode.parts[i].begin = action->u.encode.begin[i];
        msg->u.encode.parts[i].count = count;
        call->out_elements[i] = count;
        msg->u.encode.parts[i].bytes_max = action->u.encode.bytes_max[i];
        const uint64_t bytes = count > 0 ? codec->bound((size_t)count) : 0;
        if (!call_reserve(call, bytes, &msg->u.encode.parts[i].out)) return false;
    }
    return true;
}

static bool reduce_build(struct tw_call *call, const struct tw_action *action,
                         struct tw_worker_msg *msg) {
    const struct tw_codec *codec = tw_codec_get(call->host->config.run->sync.result);
    struct tw_wmsg_reduce *reduce = &msg->u.reduce;
    call->round = action->u.reduce.round;
    call->part = action->u.reduce.part;
    msg->kind = TW_WMSG_REDUCE;
    reduce->round = action->u.reduce.round;
    reduce->begin = action->u.reduce.begin;
    reduce->count = action->u.reduce.count;
    reduce->fragment = action->u.reduce.fragment;
    reduce->part = action->u.reduce.part;
    reduce->inputs_count = action->u.reduce.inputs_count;
    reduce->is_audit = action->u.reduce.is_audit;
    call->is_audit = action->u.reduce.is_audit;
    for (uint32_t i = 0; i < reduce->inputs_count; i++) {
        reduce->inputs[i].tokens = action->u.reduce.inputs[i].tokens;
        reduce->inputs[i].steps = action->u.reduce.inputs[i].steps;
        if (!call_hold(call, &action->u.reduce.inputs[i].hash, &reduce->inputs[i].in)) return false;
    }
    return call_reserve(call, codec->bound((size_t)reduce->count), &reduce->out);
}

static bool apply_build(struct tw_call *call, const struct tw_action *action,
                        struct tw_worker_msg *msg) {
    struct tw_wmsg_apply *apply = &msg->u.apply;
    call->fragment = action->u.apply.fragment;
    msg->kind = TW_WMSG_APPLY;
    apply->round = action->u.apply.round;
    apply->version = action->u.apply.version;
    apply->min_step = action->u.apply.min_step;
    apply->fragment = action->u.apply.fragment;
    apply->parts_count = action->u.apply.parts_count;
    apply->is_final = action->u.apply.is_final;
    apply->steps = action->u.apply.steps;
    for (uint32_t i = 0; i < apply->parts_count; i++) {
        const struct tw_apply_part *part = &action->u.apply.parts[i];
        apply->parts[i].begin = part->begin;
        apply->parts[i].count = part->count;
        apply->parts[i].mode = (uint32_t)part->mode;
        apply->parts[i].contributors = part->contributors;
        if (part->mode == TW_APPLY_ABSENT) continue;
        if (!call_hold(call, &part->hash, &apply->parts[i].in)) return false;
    }
    return true;
}

static bool load_build(struct tw_call *call, const struct tw_action *action,
                       struct tw_worker_msg *msg) {
    call->fragment = action->u.load.fragment;
    msg->kind = TW_WMSG_LOAD;
    msg->u.load.fragment = action->u.load.fragment;
    msg->u.load.mode = (uint32_t)action->u.load.mode;
    msg->u.load.rounds = action->u.load.rounds;
    msg->u.load.digest = action->u.load.digest;
    if (action->u.load.bytes == 0) return true;
    return call_hold(call, &action->u.load.hash, &msg->u.load.in);
}

static bool export_build(struct tw_call *call, const struct tw_action *action,
                         struct tw_worker_msg *msg) {
    const struct tw_shm *shm = &call->host->memory.shm;
    call->fragment = action->u.load.fragment;
    msg->kind = TW_WMSG_EXPORT;
    msg->u.export.fragment = action->u.load.fragment;
    const uint64_t elements = tw_shm_fragment_elements(shm, call->fragment);
    return call_reserve(call, tw_pack_bound((size_t)elements), &msg->u.export.out);
}

/* The two outputs, in the order of TW_PAIR_DELTA and TW_PAIR_PHI. */
static bool pair_encode_build(struct tw_call *call, const struct tw_action *action,
                              struct tw_worker_msg *msg) {
    const struct tw_worker_host *host = call->host;
    const struct tw_codec *codec = tw_codec_get(host->config.run->sync.codec);
    struct tw_wmsg_pair_encode *encode = &msg->u.pair_encode;
    const size_t elements =
        (size_t)tw_shm_fragment_elements(&host->memory.shm, action->u.pair.fragment);
    call->round = action->u.pair.round;
    msg->kind = TW_WMSG_PAIR_ENCODE;
    encode->round = action->u.pair.round;
    encode->fragment = action->u.pair.fragment;
    encode->is_whole = action->u.pair.is_whole;
    call->out_elements[0] = elements;
    encode->delta_bytes_max = action->u.pair.bytes_max;
    return call_reserve(call, codec->bound(elements), &encode->delta) &&
           call_reserve(call, tw_lattice_bound(elements), &encode->phi);
}

static bool pair_apply_build(struct tw_call *call, const struct tw_action *action,
                             struct tw_worker_msg *msg) {
    struct tw_wmsg_pair_apply *apply = &msg->u.pair_apply;
    call->fragment = action->u.pair.fragment;
    msg->kind = TW_WMSG_PAIR_APPLY;
    apply->round = action->u.pair.round;
    apply->version = action->u.pair.version;
    apply->min_step = action->u.pair.min_step;
    apply->fragment = action->u.pair.fragment;
    apply->is_alone = action->u.pair.is_alone;
    apply->is_final = action->u.pair.is_final;
    if (action->u.pair.is_alone) return true;
    return call_hold(call, &action->u.pair.own[TW_PAIR_DELTA].hash, &apply->own.delta) &&
           call_hold(call, &action->u.pair.own[TW_PAIR_PHI].hash, &apply->own.phi) &&
           call_hold(call, &action->u.pair.theirs[TW_PAIR_DELTA].hash, &apply->theirs.delta) &&
           call_hold(call, &action->u.pair.theirs[TW_PAIR_PHI].hash, &apply->theirs.phi);
}

static bool call_build(struct tw_call *call, const struct tw_action *action,
                       struct tw_worker_msg *msg) {
    switch (call->kind) {
    case TW_ACT_ENCODE: return encode_build(call, action, msg);
    case TW_ACT_REDUCE: return reduce_build(call, action, msg);
    case TW_ACT_APPLY: return apply_build(call, action, msg);
    case TW_ACT_LOAD: return load_build(call, action, msg);
    case TW_ACT_PAIR_ENCODE: return pair_encode_build(call, action, msg);
    case TW_ACT_PAIR_APPLY: return pair_apply_build(call, action, msg);
    case TW_ACT_EXPORT: return export_build(call, action, msg);
    case TW_ACT_SOLO:
        call->fragment = action->u.apply.fragment;
        msg->kind = TW_WMSG_SOLO;
        msg->u.solo.round = action->u.apply.round;
        msg->u.solo.fragment = action->u.apply.fragment;
        return true;
    case TW_ACT_SEND:
    case TW_ACT_CLOSE:
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_DROP:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_CLOCK:
    case TW_ACT_FINISH:
    case TW_ACT_REPORT: break;
    }
    TW_NEVER("an action the worker does not do");
}

static void verify_start(struct tw_worker_host *host, struct tw_call *call,
                         const struct tw_action *action) {
    call->digest = action->u.payload.hash;
    call->elements = action->u.payload.elements;
    call->content = action->u.payload.content;
    call->of_fragment = action->u.payload.fragment;
    call->begin = action->u.payload.begin;
    const int row = tw_pool_find(&host->payloads.pool, &call->digest);
    if (row < 0) {
        call_finish(call, false);
        return;
    }
    tw_pool_hold(&host->payloads.pool, (uint32_t)row);
    call->ins[call->ins_count++] = (uint32_t)row;
    names_start(call, host->payloads.pool.rows[row].bytes);
}

void tw_calls_act(struct tw_worker_host *host, const struct tw_action *action) {
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
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    if (!call_build(call, action, &msg)) {
        call_finish(call, false);
        return;
    }
    message_give(call, &msg);
}

/* ---- answers ------------------------------------------------------------------------------- */

/* The worker wrote bytes[i] into output i: within what was reserved, and something. */
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
    call->step = encoded->step;
    call->tokens = encoded->tokens;
    return output_answer(call, encoded->status, encoded->bytes);
}

static bool reduced_answer(struct tw_worker_host *host, const struct tw_wmsg_reduced *reduced) {
    struct tw_call *call = call_find(host, TW_ACT_REDUCE, reduced->round, reduced->part, 0);
    if (call == NULL) return false;
    const uint64_t inputs = UINT64_MAX >> (TW_MEMBERS_MAX - call->ins_count);
    if ((reduced->refused & ~inputs) != 0 || reduced->refused == inputs) return false;
    call->refused = reduced->refused;
    return output_answer(call, reduced->status, &reduced->bytes);
}

static bool exported_answer(struct tw_worker_host *host, const struct tw_wmsg_exported *exported) {
    struct tw_call *call = call_find(host, TW_ACT_EXPORT, 0, 0, exported->fragment);
    if (call == NULL) return false;
    call->rounds = exported->rounds;
    call->digest = exported->digest;
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
    oldest->rounds = applied->rounds;
    oldest->digest = applied->digest;
    oldest->is_alone = applied->is_alone != 0;
    oldest->is_outlier = applied->is_outlier != 0;
    if (applied->distance > 0 && applied->distance < DISTANCE_MAX)
        host->partner_distance = applied->distance;
    call_finish(oldest, applied->status == TW_OK);
    return true;
}

static bool checked_answer(struct tw_worker_host *host, const struct tw_wmsg_checked *checked) {
    struct tw_call *call = call_find(host, TW_ACT_VERIFY, checked->tag, 0, 0);
    if (call == NULL || checked->sanity > TW_SANITY_EXTREME) return false;
    const int row = tw_pool_find(&host->payloads.pool, &call->digest);
    const bool ok = checked->status == TW_OK && row >= 0;
    if (ok) tw_pool_verified(&host->payloads.pool, (uint32_t)row);
    if (ok) call->sanity = (enum tw_sanity)checked->sanity;
    call->is_unfit = checked->status == TW_CORRUPT;
    call_finish(call, ok);
    return true;
}

bool tw_calls_answer(struct tw_worker_host *host, const struct tw_worker_msg *msg) {
    switch (msg->kind) {
    case TW_WMSG_ENCODED: return encoded_answer(host, &msg->u.encoded);
    case TW_WMSG_EXPORTED: return exported_answer(host, &msg->u.exported);
    case TW_WMSG_APPLIED: return applied_answer(host, &msg->u.applied);
    case TW_WMSG_CHECKED: return checked_answer(host, &msg->u.checked);
    case TW_WMSG_REDUCED: return reduced_answer(host, &msg->u.reduced);
    default: return false;
    }
}

void tw_calls_forget(struct tw_worker_host *host) {
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
