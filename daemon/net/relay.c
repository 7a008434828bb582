/* relay.c - pipes that this node carries for other nodes: PROTOCOL.md section 12.
 *
 *     FREE    -- a caller's HELLO is within the bounds   --> CALLING: RELAY_CALL to the called node
 *     CALLING -- the called node dials with the token    --> OPEN: both HELLOs are answered
 *     CALLING -- TW_RELAY_CALL_US passed, or an end left --> ENDED
 *     OPEN    -- a connection, or the link to an end,
 *                has ended                               --> ENDED: both connections are closed
 *     ENDED   -- the loop has reported it                --> FREE
 *
 * Invariants:
 *
 *  1. Both ends are peers with a link that is not relayed, so there is no chain of relays.
 *
 *  2. A pipe in CALLING or OPEN points to its connections, and each of them to the pipe. A
 *     connection in a pipe is no handshake any more, so new connections do not displace it.
 *
 *  3. Bytes read from one end and not yet sent to the other are at most TW_RELAY_QUEUE_BYTES, one
 *     read and TW_INFLIGHT_BYTES_MAX.
 *
 *  4. At least one end of a pipe is wanted: in the roster, or configured. A pipe whose other end is
 *     not carries that node's first links, by which members learn of it and admit it. Its bytes
 * have a low rate, for that node and for all such nodes together.
 *
 *  5. A pipe carries at most TW_RELAY_JUDGE_BYTES and one record between two judgements
 *     (events.relay_judge).
 *
 * Records of all pipes are sent in turn, one at a time, within the cap for relayed bytes and the
 * upload cap. If there is an upload cap, relayed bytes get half of it at most. */
#include <string.h>

#include <openssl/crypto.h>

#include "base/assert.h"
#include "daemon/net/transport_impl.h"
#include "proto/control.h"

enum { JUDGE_US = 1000 * 1000 };

/* ---- pipes --------------------------------------------------------------------------------- */

static bool is_live(const struct tw_pipe *pipe) {
    return pipe->state == TW_PIPE_CALLING || pipe->state == TW_PIPE_OPEN;
}

static bool has_end(const struct tw_pipe *pipe, const struct tw_id *id) {
    return tw_id_equal(&pipe->caller, id) || tw_id_equal(&pipe->called, id);
}

static void pipe_end(struct tw_transport *t, struct tw_pipe *pipe, enum tw_status status,
                     const char *sentence) {
    const bool was_open = pipe->state == TW_PIPE_OPEN;
    if (!is_live(pipe)) return;
    pipe->state = TW_PIPE_ENDED;
    pipe->was_open = was_open;
    (void)tw_fail(&pipe->reason, status, "%s", sentence);
    if (was_open) tw_link_part(&pipe->ends[0]->link, &pipe->ends[1]->link);
    for (unsigned i = 0; i < 2; i++) {
        struct tw_conn *conn = pipe->ends[i];
        pipe->ends[i] = NULL;
        if (conn == NULL) continue;
        conn->pipe = -1;
        conn->deadline_us = UINT64_MAX;
        tw_link_close(&conn->link, status, was_open ? NULL : sentence);
    }
    tw_transport_soon(t);
}

void tw_relay_lost(struct tw_conn *conn) {
    TW_ASSERT(conn->pipe >= 0);
    const struct tw_error error = conn->link.error;
    pipe_end(conn->transport, &conn->transport->pipes[conn->pipe], TW_AGAIN,
             conn->link.is_failed ? error.message : "an end is gone");
}

void tw_relay_peer_gone(struct tw_transport *t, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        struct tw_pipe *pipe = &t->pipes[i];
        if (is_live(pipe) && has_end(pipe, id))
            pipe_end(t, pipe, TW_AGAIN, "the relay's own link to an end is gone");
    }
}

static void pipe_report(struct tw_transport *t, const struct tw_pipe *pipe, bool is_open) {
    const struct tw_relay_pipe row = {.caller = pipe->caller,
                                      .called = pipe->called,
                                      .bytes = pipe->bytes,
                                      .is_open = is_open,
                                      .sentence = is_open ? "open" : pipe->reason.message};
    if (t->config.events.relayed != NULL && !t->is_closing)
        t->config.events.relayed(t->config.user, &row);
}

/* ---- callers ------------------------------------------------------------------------------- */

/* Returns the direct link of a node that may be an end of a pipe, or NULL. */
static struct tw_slot *end_find(struct tw_transport *t, const struct tw_id *id) {
    const int peer = tw_peer_find(t, id);
    if (peer < 0 || t->peers[peer].is_relayed || t->peers[peer].is_punched) return NULL;
    if ((t->peers[peer].features & TW_FEATURE_RELAY) == 0) return NULL;
    return &t->peers[peer];
}

static enum tw_status bounds_check(const struct tw_transport *t, const struct tw_id *caller,
                                   const struct tw_id *called, struct tw_error *err) {
    uint32_t all = 0, calls = 0, pair = 0;
    uint32_t pipes_of[2] = {0, 0}, calls_of[2] = {0, 0};
    const struct tw_id *const ids[2] = {caller, called};
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        const struct tw_pipe *pipe = &t->pipes[i];
        if (pipe->state == TW_PIPE_FREE) continue;
        const bool is_calling = pipe->state == TW_PIPE_CALLING;
        all++;
        calls += is_calling;
        pair += has_end(pipe, caller) && has_end(pipe, called);
        for (unsigned k = 0; k < 2; k++) {
            pipes_of[k] += has_end(pipe, ids[k]);
            calls_of[k] += is_calling && has_end(pipe, ids[k]);
        }
    }
    if (all >= TW_RELAY_PIPES_MAX)
        return tw_fail(err, TW_AGAIN, "this relay carries %u connections, its limit", all);
    if (calls >= TW_RELAY_CALLS_MAX)
        return tw_fail(err, TW_AGAIN, "%u calls are open at this relay, its limit", calls);
    if (pair >= TW_RELAY_PIPES_PER_PAIR)
        return tw_fail(err, TW_AGAIN, "this relay carries %u connections of the pair", pair);
    for (unsigned k = 0; k < 2; k++) {
        if (pipes_of[k] < TW_RELAY_PIPES_PER_PEER && calls_of[k] < TW_RELAY_CALLS_PER_PEER)
            continue;
        return tw_fail(err, TW_AGAIN, "this relay carries %u connections of a node, and %u calls",
                       pipes_of[k], calls_of[k]);
    }
    return TW_OK;
}

/* Returns TW_OK if a pipe may be carried on, with the index of the end that is not wanted, or -1.
 * `bytes` were relayed since the last judgement. */
static enum tw_status pipe_judge(struct tw_transport *t, const struct tw_id *caller,
                                 const struct tw_id *called, uint64_t bytes, int *outside,
                                 struct tw_error *err) {
    const struct tw_transport_events *events = &t->config.events;
    const bool is_caller_in = tw_peer_is_wanted(t, caller);
    const bool is_called_in = tw_peer_is_wanted(t, called);
    *outside = !is_caller_in ? 0 : !is_called_in ? 1 : -1;
    if (!is_caller_in && !is_called_in)
        return tw_fail(err, TW_AGAIN, "neither end is in the roster of this relay");
    if (events->relay_judge == NULL) return TW_OK;
    return events->relay_judge(t->config.user, caller, called, bytes, err);
}

static enum tw_status call_check(struct tw_transport *t, const struct tw_id *caller,
                                 const struct tw_id *called, int *outside, struct tw_error *err) {
    struct tw_slot *from = end_find(t, caller);
    const uint64_t now_us = tw_now_us();
    if (!t->relay_is_on || t->rest[0] != '\0')
        return tw_fail(err, TW_AGAIN, "this node does not relay now");
    if (from == NULL) return tw_fail(err, TW_AGAIN, "the caller has no link of its own here");
    if (tw_id_equal(caller, called) || end_find(t, called) == NULL)
        return tw_fail(err, TW_AGAIN, "the called node has no link of its own here");
    if (tw_rate_wait_us(&from->calls, 1, now_us) > 0)
        return tw_fail(err, TW_AGAIN, "more than %d calls a second", TW_RELAY_CALLS_PER_S);
    tw_rate_spend(&from->calls, 1, now_us);
    TW_TRY(bounds_check(t, caller, called, err));
    return pipe_judge(t, caller, called, 0, outside, err);
}

static void caller_take(struct tw_conn *conn, const uint8_t *token, const struct tw_id *called) {
    struct tw_transport *t = conn->transport;
    const struct tw_id *caller = &conn->link.tls.id;
    struct tw_message message;
    struct tw_error err;
    uint8_t body[128];
    size_t size = 0;
    int outside = -1;
    if (call_check(t, caller, called, &outside, &err) != TW_OK) {
        t->relay_refused++;
        tw_admit_refuse(conn, err.status, err.message);
        return;
    }
    int at = 0;
    /* A row is free, as bounds_check has made sure. */
    while (t->pipes[at].state != TW_PIPE_FREE) at++;
    struct tw_pipe *pipe = &t->pipes[at];
    *pipe = (struct tw_pipe){.state = TW_PIPE_CALLING,
                             .caller = *caller,
                             .called = *called,
                             .outside = outside,
                             .deadline_us = tw_now_us() + TW_RELAY_CALL_US};
    memcpy(pipe->token, token, sizeof(pipe->token));
    pipe->ends[0] = conn;
    conn->pipe = at;
    conn->deadline_us = UINT64_MAX; /* the pipe has a deadline */
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_RELAY_CALL;
    message.u.relay_call.from = *caller;
    memcpy(message.u.relay_call.token, token, TW_RELAY_TOKEN_BYTES);
    const enum tw_status status = tw_control_encode(&message, body, sizeof(body), &size, &err);
    TW_ASSERT(status == TW_OK);
    tw_transport_send_control(t, (uint16_t)tw_peer_find(t, called), TW_MSG_RELAY_CALL, body,
                              (uint32_t)size);
    tw_transport_soon(t);
}

/* ---- called nodes -------------------------------------------------------------------------- */

static struct tw_pipe *call_find(struct tw_transport *t, const struct tw_id *called,
                                 const uint8_t *token) {
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        struct tw_pipe *pipe = &t->pipes[i];
        if (pipe->state != TW_PIPE_CALLING || !tw_id_equal(&pipe->called, called)) continue;
        if (CRYPTO_memcmp(pipe->token, token, sizeof(pipe->token)) == 0) return pipe;
    }
    return NULL;
}

static enum tw_status pipe_open(struct tw_pipe *pipe, struct tw_error *err) {
    char seen[2][TW_ADDR_BYTES];
    for (unsigned i = 0; i < 2; i++) tw_seen_address(&pipe->ends[i]->remote, seen[i]);
    for (unsigned i = 0; i < 2; i++) {
        struct tw_conn *conn = pipe->ends[i];
        const struct tw_reader *reader = &conn->link.reader;
        if (conn->link.is_failed) return tw_fail(err, TW_AGAIN, "an end is gone");
        if (reader->begin != reader->end)
            return tw_fail(err, TW_PROTO, "bytes for the pipe before it was open");
        tw_admit_greet(conn, TW_ROLE_RELAY,
                       &(struct tw_greeting){.seen_own = seen[i], .seen_other = seen[1 - i]});
        TW_TRY(tw_link_admit(&conn->link, TW_ROLE_RELAY, err));
        conn->deadline_us = UINT64_MAX;
    }
    tw_link_join(&pipe->ends[0]->link, &pipe->ends[1]->link);
    return TW_OK;
}

static void called_take(struct tw_conn *conn, const uint8_t *token) {
    struct tw_transport *t = conn->transport;
    struct tw_pipe *pipe = call_find(t, &conn->link.tls.id, token);
    struct tw_error err;
    if (pipe == NULL) {
        tw_admit_refuse(conn, TW_AGAIN, "no call with that token is open");
        return;
    }
    pipe->ends[1] = conn;
    conn->pipe = pipe->ends[0]->pipe;
    if (pipe_open(pipe, &err) != TW_OK) {
        pipe_end(t, pipe, err.status, err.message);
        return;
    }
    pipe->state = TW_PIPE_OPEN;
    pipe->judge_us = tw_now_us() + JUDGE_US;
    pipe_report(t, pipe, true);
    tw_transport_soon(t);
}

void tw_relay_hello(struct tw_conn *conn, const struct tw_hello *hello) {
    uint32_t size = 0;
    const uint8_t *bytes = tw_extensions_find(&hello->extensions, TW_EXTENSION_RELAY, &size);
    struct tw_id called;
    if (conn->pipe >= 0) {
        pipe_end(conn->transport, &conn->transport->pipes[conn->pipe], TW_PROTO,
                 "a second HELLO for the relay");
    } else if (bytes == NULL) {
        tw_admit_refuse(conn, TW_PROTO, "a HELLO for the relay without a token");
    } else if (size == TW_RELAY_TOKEN_BYTES) {
        called_take(conn, bytes);
    } else {
        memcpy(called.bytes, bytes + TW_RELAY_TOKEN_BYTES, sizeof(called.bytes));
        caller_take(conn, bytes, &called);
    }
}

/* ---- carrying ------------------------------------------------------------------------------ */

enum { ENDS = 2 * TW_RELAY_PIPES_MAX };

/* Returns the bucket of the end that is not wanted, or NULL if both are. */
static struct tw_rate *outside_rate(struct tw_transport *t, const struct tw_pipe *pipe) {
    if (pipe->outside < 0) return NULL;
    const int peer = tw_peer_find(t, pipe->outside == 0 ? &pipe->caller : &pipe->called);
    return peer < 0 ? NULL : &t->peers[peer].relayed;
}

/* Returns the time until a record of this pipe may be sent. */
static uint64_t pipe_wait_us(struct tw_transport *t, const struct tw_pipe *pipe, uint64_t now_us) {
    struct tw_rate *node = outside_rate(t, pipe);
    if (node == NULL) return 0;
    const uint64_t node_us = tw_rate_wait_us(node, TW_TLS_RECORD_BYTES_MAX, now_us);
    const uint64_t all_us = tw_rate_wait_us(&t->relay_outside, TW_TLS_RECORD_BYTES_MAX, now_us);
    return node_us > all_us ? node_us : all_us;
}

static bool is_judge_due(const struct tw_pipe *pipe) {
    return pipe->bytes - pipe->judged_bytes >= TW_RELAY_JUDGE_BYTES;
}

/* Returns the index of the end that sends next, or -1 if none has bytes, room and a rate that
 * allows them. *wait_us is then the time until a rate does, or 0. */
static int sender_next(struct tw_transport *t, uint64_t now_us, uint64_t *wait_us) {
    *wait_us = 0;
    for (uint32_t k = 1; k <= ENDS; k++) {
        const uint32_t at = (t->relay_turn + k) % ENDS;
        const struct tw_pipe *pipe = &t->pipes[at / 2];
        if (pipe->state != TW_PIPE_OPEN || is_judge_due(pipe)) continue;
        const struct tw_conn *conn = pipe->ends[at % 2];
        if (conn->link.is_failed || tw_link_queued(&conn->link) == 0) continue;
        if (!tw_link_has_room(&conn->link)) continue;
        const uint64_t pipe_us = pipe_wait_us(t, pipe, now_us);
        if (pipe_us == 0) return (int)at;
        if (*wait_us == 0 || pipe_us < *wait_us) *wait_us = pipe_us;
    }
    return -1;
}

static void send_all(struct tw_transport *t, uint64_t now_us) {
    int at;
    while ((at = sender_next(t, now_us, &t->relay_wait_us)) >= 0) {
        uint64_t wait_us = tw_rate_wait_us(&t->relay, TW_TLS_RECORD_BYTES_MAX, now_us);
        const uint64_t upload_us = tw_rate_wait_us(&t->upload, TW_TLS_RECORD_BYTES_MAX, now_us);
        if (upload_us > wait_us) wait_us = upload_us;
        t->relay_wait_us = wait_us;
        if (wait_us > 0) return;
        struct tw_pipe *pipe = &t->pipes[at / 2];
        struct tw_rate *node = outside_rate(t, pipe);
        const size_t bytes = tw_link_push(&pipe->ends[at % 2]->link);
        t->relay_turn = (uint32_t)at;
        tw_rate_spend(&t->relay, bytes, now_us);
        if (node != NULL) {
            tw_rate_spend(node, bytes, now_us);
            tw_rate_spend(&t->relay_outside, bytes, now_us);
        }
        pipe->bytes += bytes;
        t->relay_bytes += bytes;
        if (is_judge_due(pipe)) tw_transport_soon(t); /* the next step judges it */
    }
}

/* Judges an open pipe again: rosters change, and budgets are used up. */
static void pipe_review(struct tw_transport *t, struct tw_pipe *pipe, uint64_t now_us) {
    struct tw_error err = {0};
    if (pipe->state != TW_PIPE_OPEN || (now_us < pipe->judge_us && !is_judge_due(pipe))) return;
    const uint64_t bytes = pipe->bytes - pipe->judged_bytes;
    pipe->judge_us = now_us + JUDGE_US;
    pipe->judged_bytes = pipe->bytes;
    const enum tw_status status =
        pipe_judge(t, &pipe->caller, &pipe->called, bytes, &pipe->outside, &err);
    if (status == TW_OK) return;
    t->relay_cut++;
    pipe_end(t, pipe, status, err.message);
}

void tw_relay_step(struct tw_transport *t, uint64_t now_us) {
    char hex[9], sentence[64];
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX && !t->is_closing; i++) {
        struct tw_pipe *pipe = &t->pipes[i];
        if (pipe->state == TW_PIPE_CALLING && now_us >= pipe->deadline_us) {
            tw_id_short(&pipe->called, hex);
            (void)snprintf(sentence, sizeof(sentence), "node %s did not answer the call", hex);
            pipe_end(t, pipe, TW_AGAIN, sentence);
        }
        pipe_review(t, pipe, now_us);
        for (unsigned k = 0; k < 2 && pipe->state == TW_PIPE_OPEN; k++) {
            struct tw_link *link = &pipe->ends[k]->link;
            if (!tw_link_can_flow(link)) continue;
            tw_link_resume(link);
            tw_link_pump(link);
        }
        if (pipe->state != TW_PIPE_ENDED) continue;
        const struct tw_pipe ended = *pipe;
        *pipe = (struct tw_pipe){.state = TW_PIPE_FREE};
        if (ended.was_open) pipe_report(t, &ended, false);
    }
    if (!t->is_closing) send_all(t, now_us);
}

uint64_t tw_relay_deadline_us(const struct tw_transport *t, uint64_t now_us) {
    uint64_t next_us = t->relay_wait_us > 0 ? now_us + t->relay_wait_us : UINT64_MAX;
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        const struct tw_pipe *pipe = &t->pipes[i];
        if (pipe->state == TW_PIPE_CALLING && pipe->deadline_us < next_us)
            next_us = pipe->deadline_us;
        if (pipe->state == TW_PIPE_OPEN && pipe->judge_us < next_us) next_us = pipe->judge_us;
    }
    return next_us;
}

/* ---- calls of the runtime ------------------------------------------------------------------ */

void tw_relay_apply(struct tw_transport *t) {
    uint64_t per_s = t->relay_bytes_per_s;
    const uint64_t half = t->upload.per_s / 2;
    if (half > 0 && (per_s == 0 || per_s > half)) per_s = half;
    tw_rate_set(&t->relay, per_s, tw_rate_burst_bytes(per_s), tw_now_us());
}

void tw_transport_set_relay(struct tw_transport *t, bool is_on, uint64_t bytes_per_s) {
    t->relay_is_on = is_on;
    t->relay_bytes_per_s = bytes_per_s;
    tw_relay_apply(t);
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX && !is_on; i++)
        pipe_end(t, &t->pipes[i], TW_AGAIN, "this node does not relay any more");
    tw_transport_soon(t);
}

struct tw_relay_info tw_transport_relay(const struct tw_transport *t) {
    struct tw_relay_info info = {.is_on = t->relay_is_on,
                                 .bytes_per_s = t->relay.per_s,
                                 .bytes = t->relay_bytes,
                                 .refused = t->relay_refused,
                                 .cut = t->relay_cut};
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        info.pipes += t->pipes[i].state == TW_PIPE_OPEN;
        info.calls += t->pipes[i].state == TW_PIPE_CALLING;
    }
    return info;
}
