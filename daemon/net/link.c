#include "daemon/net/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/net/sockopt.h"
#include "proto/message.h"

enum {
    READ_BYTES = 64 * 1024,
    GREETING_BYTES = TW_FRAME_HEADER_BYTES + TW_HELLO_BYTES_MAX,
    CHUNK_FRAME_BYTES = TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX,
    RECORD_OVERHEAD = 128, /* upper bound of the bytes that TLS 1.3 adds to a record, nested
                              sessions included */
    SECOND_US = 1000 * 1000,
    FRAME_CONTROL_US = 10 * SECOND_US, /* see link.h */
    FRAME_CONTROL_PER_S = 4 * 1024,
    FRAME_BULK_US = 30 * SECOND_US,
    FRAME_BULK_PER_S = 512,
};

/* Other memory of a TLS session: one socket read, records not yet decrypted, OpenSSL's own
 * state. */
enum { TLS_BYTES = 4 * READ_BYTES };
_Static_assert(TW_FRAME_HEADER_BYTES + TW_CONTROL_BYTES_MAX + TW_CONTROL_QUEUE_BYTES +
                       2 * TW_INFLIGHT_BYTES_MAX + TLS_BYTES <=
                   TW_PEER_CONTROL_BYTES,
               "a control connection keeps to its budget");
_Static_assert(2 * CHUNK_FRAME_BYTES + 2 * TW_INFLIGHT_BYTES_MAX + TLS_BYTES <= TW_PEER_BULK_BYTES,
               "and a bulk connection to its own");

static void flush_ciphertext(struct tw_link *link);
static void push_all(struct tw_link *link);

uint64_t tw_now_us(void) {
    return uv_hrtime() / 1000;
}

/* Returns the TLS session whose ciphertext is on the socket: of a nested link, the outer one. */
static struct tw_tls *carrier(struct tw_link *link) {
    return link->is_nested ? &link->outer : &link->tls;
}

/* Returns true for a bulk or relay link, whose owner decides when it sends. */
static bool is_metered(const struct tw_link *link) {
    return link->role == TW_ROLE_BULK || link->role == TW_ROLE_RELAY;
}

static bool is_open(const struct tw_link *link) {
    return link->state < TW_LINK_DRAINING && !link->is_failed;
}

void tw_link_fail(struct tw_link *link, const struct tw_error *why) {
    if (!is_open(link)) return;
    link->is_failed = true;
    link->error = *why;
    if (link->is_reading) (void)uv_read_stop((uv_stream_t *)&link->tcp);
    link->is_reading = false;
    link->events->failed(link);
}

static void fail_uv(struct tw_link *link, const char *what, int code) {
    struct tw_error err;
    (void)tw_fail(&err, TW_IO, "%s: %s", what, uv_strerror(code));
    tw_link_fail(link, &err);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void buffers_free(struct tw_link *link) {
    free(link->in);
    free(link->queue);
    free(link->cipher);
    link->in = link->queue = link->cipher = NULL;
}

enum tw_status tw_link_init(struct tw_link *link, uv_loop_t *loop,
                            const struct tw_link_events *events, struct tw_error *err) {
    *link = (struct tw_link){.events = events, .queue_capacity = (size_t)2 * GREETING_BYTES};
    link->in = malloc(GREETING_BYTES);
    link->queue = malloc(link->queue_capacity);
    link->cipher = malloc(TW_INFLIGHT_BYTES_MAX);
    if (link->in == NULL || link->queue == NULL || link->cipher == NULL) {
        buffers_free(link);
        return tw_fail(err, TW_NOMEM, "no memory for a connection");
    }
    const int code = uv_tcp_init(loop, &link->tcp);
    if (code != 0) {
        buffers_free(link);
        return tw_fail(err, TW_IO, "no socket for a connection: %s", uv_strerror(code));
    }
    tw_reader_init(&link->reader, link->in, GREETING_BYTES);
    link->tcp.data = link;
    return TW_OK;
}

static void on_closed(uv_handle_t *handle) {
    struct tw_link *link = handle->data;
    tw_tls_deinit(&link->tls);
    tw_tls_deinit(&link->outer);
    buffers_free(link);
    link->events->gone(link);
}

void tw_link_abort(struct tw_link *link) {
    if (link->state == TW_LINK_CLOSED) return;
    link->bytes_out = tw_link_bytes_out(link);
    link->state = TW_LINK_CLOSED;
    uv_close((uv_handle_t *)&link->tcp, on_closed);
}

uint64_t tw_link_bytes_out(const struct tw_link *link) {
    if (link->state == TW_LINK_CLOSED) return link->bytes_out;
    return link->bytes_out - uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp);
}

void tw_link_address_read(struct tw_link *link) {
    struct sockaddr_storage peer;
    int size = sizeof(peer);
    char host[INET6_ADDRSTRLEN] = "?";
    if (uv_tcp_getpeername(&link->tcp, (struct sockaddr *)&peer, &size) != 0) return;
    if (peer.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&peer;
        (void)uv_ip6_name(in6, host, sizeof(host));
        (void)snprintf(link->address, sizeof(link->address), "[%s]:%u", host,
                       (unsigned)ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)&peer;
        (void)uv_ip4_name(in4, host, sizeof(host));
        (void)snprintf(link->address, sizeof(link->address), "%s:%u", host,
                       (unsigned)ntohs(in4->sin_port));
    }
}

/* ---- in ------------------------------------------------------------------------------------ */

enum fate { DELIVER, SKIP, REFUSE };

/* Unknown kinds of frames are skipped, so that newer nodes can talk to older ones. Kinds in the
 * wrong place, and anything but HELLO before admission, are refused. */
static enum fate fate_of(const struct tw_link *link, const struct tw_frame *frame) {
    const bool is_of_owners = frame->kind == TW_FRAME_REVOKE || frame->kind == TW_FRAME_RENEW ||
                              frame->kind == TW_FRAME_CERTS || frame->kind == TW_FRAME_RECALL;
    const bool is_message = is_of_owners || frame->kind == TW_FRAME_TWIN ||
                            tw_message_name((enum tw_message_kind)frame->kind)[0] != '?';
    if (frame->kind == TW_FRAME_GOODBYE) return DELIVER;
    if (link->state == TW_LINK_GREETING) return frame->kind == TW_FRAME_HELLO ? DELIVER : REFUSE;
    if (frame->kind == TW_FRAME_HELLO) return REFUSE;
    if (frame->kind == TW_FRAME_WELCOME) return link->role == TW_ROLE_GUEST ? DELIVER : REFUSE;
    if (frame->kind == TW_FRAME_CHUNK) {
        const bool is_whole = frame->body_bytes > TW_CHUNK_HEADER_BYTES;
        return link->role == TW_ROLE_BULK && is_whole ? DELIVER : REFUSE;
    }
    if (is_message) return link->role == TW_ROLE_CONTROL ? DELIVER : REFUSE;
    return SKIP;
}

static void frame_take(struct tw_link *link, const struct tw_frame *frame) {
    struct tw_error err;
    switch (fate_of(link, frame)) {
    case SKIP: return;
    case DELIVER: link->events->frame(link, frame); return;
    case REFUSE: break;
    }
    (void)tw_fail(&err, TW_PROTO, "a frame of kind 0x%x and %u bytes has no place here",
                  frame->kind, frame->body_bytes);
    tw_link_fail(link, &err);
}

/* On a nested link, decrypts bytes from the relay and feeds them to the inner session. Returns
 * false if there are none. */
static bool pull_nested(struct tw_link *link, uint64_t now_us) {
    static _Thread_local uint8_t bytes[TW_TLS_RECORD_BYTES_MAX];
    struct tw_error err = {0};
    size_t got = 0;
    if (!link->is_nested) return false;
    enum tw_status status = tw_tls_read(&link->outer, bytes, sizeof(bytes), now_us, &got, &err);
    if (status == TW_AGAIN) return false;
    if (status == TW_OK) {
        status = tw_tls_feed(&link->tls, bytes, got, &err);
    } else { /* bad bytes in the outer session are the relay's fault */
        char cause[sizeof(err.message)];
        memcpy(cause, err.message, sizeof(cause));
        (void)tw_fail(&err, TW_IO, "the relay's connection: %.160s", cause);
    }
    if (status != TW_OK) tw_link_fail(link, &err);
    return true;
}

static uint8_t *queue_space(struct tw_link *link, size_t size);

/* Moves one batch of decrypted bytes from one end of a pipe to the queue of the other end. */
static enum tw_status pipe_step(struct tw_link *link, uint64_t now_us, struct tw_error *err) {
    struct tw_link *sink = link->sink;
    size_t got = 0;
    uint8_t *to = queue_space(sink, TW_TLS_RECORD_BYTES_MAX);
    if (to == NULL) {
        tw_link_pause(link);
        return TW_AGAIN;
    }
    TW_TRY(tw_tls_read(&link->tls, to, TW_TLS_RECORD_BYTES_MAX, now_us, &got, err));
    sink->queue_end += got;
    sink->events->writable(sink);
    return TW_OK;
}

/* Performs one step of decoding. Returns false if it needs more bytes. */
static bool pump_step(struct tw_link *link, uint64_t now_us) {
    struct tw_error err = {0};
    struct tw_frame frame;
    enum tw_status status;
    if (link->state == TW_LINK_SECURING) {
        status = tw_tls_handshake(&link->tls, &err);
        flush_ciphertext(link);
        if (status == TW_OK) {
            link->state = TW_LINK_GREETING;
            link->events->secured(link);
        }
    } else if (link->sink != NULL) {
        status = pipe_step(link, now_us, &err);
    } else {
        status = tw_reader_next(&link->reader, &frame, &err);
        if (status == TW_OK) {
            link->frame_us = 0;
            frame_take(link, &frame);
        } else if (status == TW_AGAIN) {
            size_t space = 0, got = 0;
            uint8_t *to = tw_reader_space(&link->reader, &space);
            TW_ASSERT(space > 0);
            status = tw_tls_read(&link->tls, to, space, now_us, &got, &err);
            if (status == TW_OK) tw_reader_fill(&link->reader, got);
        }
    }
    if (status == TW_AGAIN) return pull_nested(link, now_us);
    if (status != TW_OK) tw_link_fail(link, &err);
    return true;
}

void tw_link_pump(struct tw_link *link) {
    const uint64_t now_us = tw_now_us();
    while (is_open(link) && link->state >= TW_LINK_SECURING && !link->is_paused) {
        if (!pump_step(link, now_us)) break;
    }
    if (is_open(link) && link->state < TW_LINK_UP && link->bytes_in > TW_HANDSHAKE_BYTES_MAX) {
        struct tw_error err;
        (void)tw_fail(&err, TW_LIMIT, "more than %d bytes before admission",
                      TW_HANDSHAKE_BYTES_MAX);
        tw_link_fail(link, &err);
    }
    if (link->is_paused || link->reader.begin == link->reader.end)
        link->frame_us = 0;
    else if (link->frame_us == 0)
        link->frame_us = now_us;
    if (is_open(link)) flush_ciphertext(link); /* TLS may have produced an answer */
}

/* All links of a thread share one buffer: libuv fills it and calls on_read at once. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    static _Thread_local uint8_t bytes[READ_BYTES];
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init((char *)bytes, sizeof(bytes));
}

static void on_end(struct tw_link *link, ssize_t code) {
    link->has_eof = true;
    if (link->state == TW_LINK_DRAINING) {
        tw_link_abort(link);
        return;
    }
    if (code == UV_EOF) {
        struct tw_error err;
        (void)tw_fail(&err, TW_IO, "the other side closed the connection");
        tw_link_fail(link, &err);
        return;
    }
    fail_uv(link, "the connection broke", (int)code);
}

/* A draining link reads only to notice that the other end closes. After TW_LINK_DRAIN_BYTES it is
 * aborted. A link that was up may have much data in flight and must still deliver our GOODBYE, so
 * reading just stops. */
static void drain_read(struct tw_link *link, size_t got) {
    if (link->state != TW_LINK_DRAINING) return;
    link->drained += got;
    if (link->drained < TW_LINK_DRAIN_BYTES) return;
    if (!link->was_up)
        tw_link_abort(link);
    else if (link->is_reading)
        (void)uv_read_stop((uv_stream_t *)&link->tcp);
    link->is_reading = false;
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf) {
    struct tw_link *link = stream->data;
    struct tw_error err;
    if (got == 0) return;
    if (got < 0) {
        on_end(link, got);
        return;
    }
    link->bytes_in += (uint64_t)got;
    if (!is_open(link)) {
        drain_read(link, (size_t)got);
        return;
    }
    if (tw_tls_feed(carrier(link), (const uint8_t *)buf->base, (size_t)got, &err) != TW_OK) {
        tw_link_fail(link, &err);
        return;
    }
    tw_link_pump(link);
}

static void read_start(struct tw_link *link) {
    if (link->is_reading || link->has_eof) return;
    const int code = uv_read_start((uv_stream_t *)&link->tcp, on_alloc, on_read);
    if (code != 0) {
        fail_uv(link, "cannot read", code);
        return;
    }
    link->is_reading = true;
}

void tw_link_pause(struct tw_link *link) {
    link->is_paused = true;
    if (link->state >= TW_LINK_DRAINING) return;
    if (link->is_reading) (void)uv_read_stop((uv_stream_t *)&link->tcp);
    link->is_reading = false;
}

void tw_link_resume(struct tw_link *link) {
    link->is_paused = false;
    if (is_open(link) && link->state >= TW_LINK_SECURING) read_start(link);
}

/* ---- out ----------------------------------------------------------------------------------- */

static void drain_step(struct tw_link *link);

static void on_written(uv_write_t *write, int code) {
    struct tw_link *link = write->data;
    link->is_writing = false;
    if (link->state == TW_LINK_CLOSED) return;
    if (code != 0) {
        if (link->state == TW_LINK_DRAINING)
            tw_link_abort(link);
        else
            fail_uv(link, "the connection broke", code);
        return;
    }
    if (!is_metered(link) || link->state == TW_LINK_DRAINING) push_all(link);
    flush_ciphertext(link);
    if (link->state == TW_LINK_DRAINING)
        drain_step(link);
    else
        link->events->writable(link);
}

/* On a nested link, encrypts the inner session's output a second time, for the relay. */
static void wrap_nested(struct tw_link *link) {
    static _Thread_local uint8_t bytes[TW_TLS_RECORD_BYTES_MAX];
    struct tw_error err;
    size_t size;
    while (link->is_nested && (size = tw_tls_take(&link->tls, bytes, sizeof(bytes))) > 0) {
        if (tw_tls_write(&link->outer, bytes, size, &err) == TW_OK) continue;
        tw_link_fail(link, &err);
        return;
    }
}

/* Counts new ciphertext and passes pending bytes to libuv, one write at a time. */
static void flush_ciphertext(struct tw_link *link) {
    wrap_nested(link);
    const size_t pending = tw_tls_pending(carrier(link));
    const uint64_t made = link->bytes_out + pending;
    if (made > link->bytes_spent) {
        const size_t fresh = (size_t)(made - link->bytes_spent);
        link->bytes_spent = made;
        link->events->spent(link, fresh);
    }
    if (link->is_writing || link->is_shut || pending == 0) return;
    const size_t size = tw_tls_take(carrier(link), link->cipher, TW_INFLIGHT_BYTES_MAX);
    const uv_buf_t buf = uv_buf_init((char *)link->cipher, (unsigned)size);
    link->write.data = link;
    const int code = uv_write(&link->write, (uv_stream_t *)&link->tcp, &buf, 1, on_written);
    if (code != 0) {
        fail_uv(link, "cannot write", code);
        return;
    }
    link->is_writing = true;
    link->bytes_out += size;
}

bool tw_link_has_room(const struct tw_link *link) {
    const size_t waiting = tw_tls_pending(link->is_nested ? &link->outer : &link->tls) +
                           uv_stream_get_write_queue_size((const uv_stream_t *)&link->tcp);
    return waiting + TW_TLS_RECORD_BYTES_MAX + RECORD_OVERHEAD <= TW_INFLIGHT_BYTES_MAX;
}

size_t tw_link_queued(const struct tw_link *link) {
    return link->queue_end - link->queue_begin;
}

static void push_record(struct tw_link *link) {
    struct tw_error err;
    size_t size = tw_link_queued(link);
    if (size > TW_TLS_RECORD_BYTES_MAX) size = TW_TLS_RECORD_BYTES_MAX;
    const enum tw_status status =
        tw_tls_write(&link->tls, link->queue + link->queue_begin, size, &err);
    if (status != TW_OK) {
        link->queue_begin = link->queue_end = 0;
        tw_link_fail(link, &err);
        return;
    }
    link->queue_begin += size;
    if (link->queue_begin == link->queue_end) link->queue_begin = link->queue_end = 0;
}

static void push_all(struct tw_link *link) {
    if (!link->tls.is_secured) return;
    while (tw_link_queued(link) > 0 && tw_link_has_room(link)) push_record(link);
}

size_t tw_link_push(struct tw_link *link) {
    TW_ASSERT(is_metered(link));
    if (!is_open(link) || tw_link_queued(link) == 0) return 0;
    const uint64_t before = link->bytes_spent;
    push_record(link);
    flush_ciphertext(link);
    return (size_t)(link->bytes_spent - before);
}

/* Makes room for `size` bytes at the end of the queue. Returns NULL if the queue is full. */
static uint8_t *queue_space(struct tw_link *link, size_t size) {
    const size_t queued = tw_link_queued(link);
    if (size > link->queue_capacity - queued) return NULL;
    if (size > link->queue_capacity - link->queue_end) {
        memmove(link->queue, link->queue + link->queue_begin, queued);
        link->queue_begin = 0;
        link->queue_end = queued;
    }
    return link->queue + link->queue_end;
}

enum tw_status tw_link_send(struct tw_link *link, uint16_t kind, const void *body,
                            uint32_t body_bytes) {
    const size_t size = TW_FRAME_HEADER_BYTES + (size_t)body_bytes;
    uint8_t *to = queue_space(link, size);
    if (to == NULL) return TW_LIMIT;
    tw_frame_header(to, kind, 0, body, body_bytes);
    if (body_bytes > 0) memcpy(to + TW_FRAME_HEADER_BYTES, body, body_bytes);
    link->queue_end += size;
    if (!is_metered(link) || link->state == TW_LINK_GREETING) {
        push_all(link);
        flush_ciphertext(link);
    }
    return TW_OK;
}

void tw_link_load_chunk(struct tw_link *link, const struct tw_id *payload, uint32_t chunk_idx,
                        const uint8_t *bytes, uint32_t size) {
    TW_ASSERT(link->state == TW_LINK_UP && link->role == TW_ROLE_BULK);
    TW_ASSERT(size > 0 && size <= TW_CHUNK_BYTES_MAX && tw_link_queued(link) == 0);
    tw_frame_chunk_headers(link->queue, payload, chunk_idx, bytes, size);
    memcpy(link->queue + TW_FRAME_CHUNK_HEADERS_BYTES, bytes, size);
    link->queue_begin = 0;
    link->queue_end = TW_FRAME_CHUNK_HEADERS_BYTES + (size_t)size;
}

/* ---- states -------------------------------------------------------------------------------- */

enum tw_status tw_link_secure(struct tw_link *link, const struct tw_tls_context *context,
                              bool is_dialled, const struct tw_id *expected, struct tw_error *err) {
    TW_ASSERT(link->state == TW_LINK_OPENING);
    uv_os_fd_t fd = -1;
    tw_link_address_read(link);
    if (uv_fileno((const uv_handle_t *)&link->tcp, &fd) == 0) tw_sockopt_set(fd, TW_ROLE_CONTROL);
    TW_TRY(tw_tls_init(&link->tls, context, is_dialled, expected, err));
    if (link->knock[0] != '\0') tw_tls_name(&link->tls, link->knock);
    link->tls.judge = link->judge;
    link->tls.judge_user = link;
    link->state = TW_LINK_SECURING;
    read_start(link);
    tw_link_pump(link);
    return TW_OK;
}

enum tw_status tw_link_admit(struct tw_link *link, enum tw_role role, struct tw_error *err) {
    TW_ASSERT(link->state == TW_LINK_GREETING);
    const bool is_bulk = role == TW_ROLE_BULK;
    const size_t in_capacity = is_bulk ? CHUNK_FRAME_BYTES
                               : role == TW_ROLE_RELAY
                                   ? GREETING_BYTES
                                   : TW_FRAME_HEADER_BYTES + TW_CONTROL_BYTES_MAX;
    const size_t queue_capacity = is_bulk                 ? CHUNK_FRAME_BYTES
                                  : role == TW_ROLE_RELAY ? TW_RELAY_QUEUE_BYTES
                                                          : TW_CONTROL_QUEUE_BYTES;
    uint8_t *in = malloc(in_capacity), *queue = malloc(queue_capacity);
    if (in == NULL || queue == NULL) {
        free(in);
        free(queue);
        return tw_fail(err, TW_NOMEM, "no memory for a peer");
    }
    /* Move the content of the old buffers: bytes that arrived behind the HELLO, and frames queued
     * before the role was known. */
    const size_t held = link->reader.end - link->reader.begin, queued = tw_link_queued(link);
    memcpy(in, link->in + link->reader.begin, held);
    memcpy(queue, link->queue + link->queue_begin, queued);
    tw_reader_init(&link->reader, in, in_capacity);
    link->reader.end = held;
    free(link->in);
    free(link->queue);
    link->in = in;
    link->queue = queue;
    link->queue_capacity = queue_capacity;
    link->queue_begin = 0;
    link->queue_end = queued;
    link->role = role;
    link->state = TW_LINK_UP;
    uv_os_fd_t fd = -1;
    if (is_bulk && uv_fileno((const uv_handle_t *)&link->tcp, &fd) == 0)
        tw_sockopt_set(fd, TW_ROLE_BULK);
    return TW_OK;
}

enum tw_status tw_link_nest(struct tw_link *link, const struct tw_tls_context *context,
                            bool is_dialled, const struct tw_id *expected, struct tw_error *err) {
    TW_ASSERT(link->state == TW_LINK_GREETING && !link->is_nested);
    struct tw_reader *reader = &link->reader;
    if (tw_link_queued(link) > 0)
        return tw_fail(err, TW_PROTO, "the relay opened a pipe before it knew the call");
    tw_tls_move(&link->outer, &link->tls);
    link->is_nested = true;
    TW_TRY(tw_tls_init(&link->tls, context, is_dialled, expected, err));
    /* Bytes that arrived behind the relay's HELLO belong to the pipe. */
    TW_TRY(tw_tls_feed(&link->tls, link->in + reader->begin, reader->end - reader->begin, err));
    tw_reader_init(reader, link->in, GREETING_BYTES);
    link->state = TW_LINK_SECURING;
    return TW_OK;
}

void tw_link_join(struct tw_link *a, struct tw_link *b) {
    TW_ASSERT(a->role == TW_ROLE_RELAY && b->role == TW_ROLE_RELAY);
    a->sink = b;
    b->sink = a;
}

void tw_link_part(struct tw_link *a, struct tw_link *b) {
    a->sink = b->sink = NULL;
}

bool tw_link_can_flow(const struct tw_link *link) {
    return link->is_paused && link->sink != NULL &&
           tw_link_queued(link->sink) <= TW_RELAY_QUEUE_BYTES / 2;
}

static void on_shut(uv_shutdown_t *shutdown, int code) {
    struct tw_link *link = shutdown->data;
    if (link->state == TW_LINK_CLOSED) return;
    if (code != 0 || link->has_eof) tw_link_abort(link);
}

/* When everything is written, ends our direction of the connection and waits for the other side to
 * end its own. */
static void drain_step(struct tw_link *link) {
    if (tw_link_queued(link) == 0 && !link->is_ended) {
        link->is_ended = true;
        tw_tls_shutdown(&link->tls);
        flush_ciphertext(link);
        if (link->is_nested) tw_tls_shutdown(&link->outer);
        flush_ciphertext(link);
    }
    if (!link->is_ended || link->is_writing || link->is_shut) return;
    link->is_shut = true;
    link->shutdown.data = link;
    if (uv_shutdown(&link->shutdown, (uv_stream_t *)&link->tcp, on_shut) != 0) tw_link_abort(link);
}

void tw_link_close(struct tw_link *link, enum tw_status status, const char *sentence) {
    if (link->state >= TW_LINK_DRAINING) return;
    const bool is_between_frames = link->role != TW_ROLE_BULK || tw_link_queued(link) == 0;
    if (link->state == TW_LINK_OPENING || link->has_eof ||
        (link->is_failed && link->error.status == TW_IO)) {
        tw_link_abort(link);
        return;
    }
    /* A pipe's queued bytes belong to other nodes: a GOODBYE would break their session. */
    const bool is_pipe = link->role == TW_ROLE_RELAY;
    if (sentence != NULL && link->tls.is_secured && is_between_frames && !is_pipe) {
        uint8_t body[TW_HELLO_BYTES_MAX];
        const uint32_t size = tw_goodbye_encode(status, sentence, body);
        (void)tw_link_send(link, TW_FRAME_GOODBYE, body,
                           size); /* the GOODBYE is lost if the queue is full */
    }
    if (link->role == TW_ROLE_BULK && !is_between_frames) link->queue_begin = link->queue_end = 0;
    link->was_up = link->state == TW_LINK_UP;
    link->state = TW_LINK_DRAINING;
    link->deadline_us = tw_now_us() + TW_LINK_DRAIN_US;
    read_start(link);
    push_all(link);
    flush_ciphertext(link);
    drain_step(link);
}

uint64_t tw_link_deadline_us(const struct tw_link *link) {
    if (link->state == TW_LINK_DRAINING) return link->deadline_us;
    if (link->state != TW_LINK_UP || link->is_failed || link->frame_us == 0) return UINT64_MAX;
    const uint64_t bytes = tw_reader_frame_bytes(&link->reader);
    return link->role == TW_ROLE_BULK
               ? link->frame_us + FRAME_BULK_US + bytes * SECOND_US / FRAME_BULK_PER_S
               : link->frame_us + FRAME_CONTROL_US + bytes * SECOND_US / FRAME_CONTROL_PER_S;
}

void tw_link_sweep(struct tw_link *link, uint64_t now_us) {
    if (now_us < tw_link_deadline_us(link)) return;
    if (link->state == TW_LINK_DRAINING) {
        tw_link_abort(link);
        return;
    }
    struct tw_error err;
    (void)tw_fail(&err, TW_IO, "a frame of %zu bytes that began %llu s ago has not ended",
                  tw_reader_frame_bytes(&link->reader),
                  (unsigned long long)((now_us - link->frame_us) / SECOND_US));
    tw_link_fail(link, &err);
}
