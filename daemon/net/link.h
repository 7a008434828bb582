/* link.h - one TCP connection under TLS that carries whole frames. Independent of runs and peers.
 *
 *   state      entered when                        left for
 *   OPENING    init                                SECURING by tw_link_secure
 *   SECURING   TCP is connected                    GREETING when TLS is done: `secured`
 *   GREETING   first frames; at most 1 KiB each    UP by tw_link_admit, SECURING by tw_link_nest
 *   UP         frames of the role's kinds          DRAINING by tw_link_close, as from any state
 *   DRAINING   tw_link_close                       CLOSED: all is written and the other end is
 *                                                  closed; or TW_LINK_DRAIN_US passed; or an end
 *                                                  that was never UP sent TW_LINK_DRAIN_BYTES
 *   CLOSED     uv_close                            `gone`: the memory is the owner's again
 *
 * Sending: frames are queued as plaintext in a buffer of fixed size. Records of at most
 * TW_TLS_RECORD_BYTES_MAX are encrypted only while less than TW_INFLIGHT_BYTES_MAX of ciphertext
 * waits outside the kernel. A control link encrypts as soon as it can. A bulk link encrypts only
 * when tw_link_push is called, so that its owner can meter it.
 *
 * Receiving: at most one socket read and one frame are buffered. A paused link reads nothing. A
 * started frame must end in time: on control within 10 s plus 1 s per 4 KiB, on bulk within 30 s
 * plus 1 s per 512 bytes, as many nodes may share a slow uplink. Time in which the link is paused
 * does not count.
 *
 * Two kinds serve relayed links (PROTOCOL.md section 12). A *nested* link is an end of a relay's
 * pipe: its TLS session runs inside the session with the relay. A *pipe* is two links of a relay,
 * joined by tw_link_join. Bytes that arrive on one wait in the queue of the other until
 * tw_link_push. If that queue is full, the first link is paused. */
#ifndef TW_DAEMON_NET_LINK_H
#define TW_DAEMON_NET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/auth/tickets.h"
#include "daemon/net/handshake.h"
#include "daemon/net/tls.h"
#include "proto/frame.h"

enum {
    TW_LINK_DRAIN_US = 2 * 1000 * 1000,
    TW_LINK_DRAIN_BYTES = 64 * 1024, /* bytes read while DRAINING, after which reading stops; a link
                                        never UP is closed */
};

enum tw_link_state {
    TW_LINK_OPENING,
    TW_LINK_SECURING,
    TW_LINK_GREETING,
    TW_LINK_UP,
    TW_LINK_DRAINING,
    TW_LINK_CLOSED,
};

struct tw_link;

/* Only the event loop calls `secured`, `frame`, `writable` and `gone`. Any function below may call
 * `failed` before it returns: note the failure, and close the link later from the loop. */
struct tw_link_events {
    void (*secured)(struct tw_link *link);
    void (*frame)(struct tw_link *link, const struct tw_frame *frame);
    void (*writable)(struct tw_link *link); /* the kernel accepted ciphertext */
    void (*failed)(struct tw_link *link);   /* called once; link->error has the cause */
    void (*spent)(struct tw_link *link,
                  size_t ciphertext_bytes); /* this many ciphertext bytes were produced: charge them
                                               to the upload cap */
    void (*gone)(struct tw_link *link);
};

struct tw_link {
    const struct tw_link_events *events;
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct tw_tls tls;
    bool is_nested;
    struct tw_tls outer;  /* nested: session with the relay, which carries `tls` */
    struct tw_link *sink; /* on a relay: the other link of the pipe, or NULL */
    enum tw_link_state state;
    enum tw_role role;
    bool is_paused, is_reading, is_writing, is_ended, is_shut, has_eof, is_failed;
    bool was_up; /* DRAINING: the link was UP before */
    struct tw_error error;
    char knock[TW_KNOCK_NAME_BYTES]; /* dialled: server name for its ClientHello, or "" */
    /* Accepted: callback of the same name in struct tw_tls, called with the link as user; or NULL.
     */
    enum tw_status (*judge)(void *link, const char *name, size_t size, struct tw_error *err);
    uint64_t deadline_us; /* latest end of DRAINING */
    uint64_t frame_us;    /* start time of the frame now arriving; 0 = none */
    uint64_t bytes_in;    /* ciphertext read from the socket */
    uint64_t drained;     /* part of bytes_in that was read while DRAINING */
    uint64_t bytes_out;   /* ciphertext bytes given to libuv; after CLOSED: those that the kernel
                             accepted */
    uint64_t bytes_spent; /* ciphertext bytes produced */

    struct tw_reader reader;
    uint8_t *in;    /* buffer of the frame reader */
    uint8_t *queue; /* plaintext frames; [queue_begin, queue_end) waits to be sent */
    size_t queue_capacity, queue_begin, queue_end;
    uint8_t *cipher;             /* bytes of the write in progress, at most TW_INFLIGHT_BYTES_MAX */
    char address[TW_ADDR_BYTES]; /* address of the other end, once connected */
};

/* Zeroes and initialises the caller's memory, which must not move until `gone`. After TW_NOMEM or
 * TW_IO there is nothing to undo. */
enum tw_status tw_link_init(struct tw_link *link, uv_loop_t *loop,
                            const struct tw_link_events *events, struct tw_error *err);

/* Fills `address`. The TCP connection must be established. */
void tw_link_address_read(struct tw_link *link);

/* Starts TLS on an established TCP connection, accepted or dialled. Uses link->knock and
 * link->judge. */
enum tw_status tw_link_secure(struct tw_link *link, const struct tw_tls_context *context,
                              bool is_dialled, const struct tw_id *expected, struct tw_error *err);

/* Makes the link an end of the pipe that the relay at the other end has opened: a new TLS handshake
 * begins inside this session. Call from `frame`. Returns TW_PROTO if frames of this node still wait
 * in the queue. */
enum tw_status tw_link_nest(struct tw_link *link, const struct tw_tls_context *context,
                            bool is_dialled, const struct tw_id *expected, struct tw_error *err);

/* Joins two links with the role relay to a pipe. Part them before either is closed. */
void tw_link_join(struct tw_link *a, struct tw_link *b);
void tw_link_part(struct tw_link *a, struct tw_link *b);

/* Returns true if a paused link of a pipe has room again. The caller then resumes and pumps it. */
bool tw_link_can_flow(const struct tw_link *link);

/* Gives the link its role: from now on frames may have full size. Call from `frame` or
 * `secured`. */
enum tw_status tw_link_admit(struct tw_link *link, enum tw_role role, struct tw_error *err);

/* Queues a whole frame, which a control link starts to send. Returns TW_LIMIT if it does not fit.
 */
enum tw_status tw_link_send(struct tw_link *link, uint16_t kind, const void *body,
                            uint32_t body_bytes);

/* On a bulk link with an empty queue, builds a CHUNK frame in the queue. Copies the bytes. */
void tw_link_load_chunk(struct tw_link *link, const struct tw_id *payload, uint32_t chunk_idx,
                        const uint8_t *bytes, uint32_t size);

/* On a bulk or relay link, encrypts one record from the queue and starts to write it. Returns the
 * number of ciphertext bytes. */
size_t tw_link_push(struct tw_link *link);

/* Returns true if another record can be encrypted within TW_INFLIGHT_BYTES_MAX. */
bool tw_link_has_room(const struct tw_link *link);
size_t tw_link_queued(const struct tw_link *link);

void tw_link_pause(struct tw_link *link);
/* Resumes reading. Frames that were already buffered wait for tw_link_pump, which the loop calls.
 */
void tw_link_resume(struct tw_link *link);
void tw_link_pump(struct tw_link *link);

/* Reports a failure found by the owner: reading stops and `failed` is called. Later failures are
 * ignored. */
void tw_link_fail(struct tw_link *link, const struct tw_error *why);

/* Starts to close the link, in any state. If `sentence` is given and frames can still be sent, a
 * GOODBYE is sent first. */
void tw_link_close(struct tw_link *link, enum tw_status status, const char *sentence);

/* Returns the time of the next tw_link_sweep: the latest end of DRAINING, or of the frame now
 * arriving. UINT64_MAX if there is none. */
uint64_t tw_link_deadline_us(const struct tw_link *link);

/* Closes a DRAINING link that is past its deadline. Fails a link whose frame has not arrived in
 * time. */
void tw_link_sweep(struct tw_link *link, uint64_t now_us);

/* Closes at once, without GOODBYE or draining. `gone` is called later. */
void tw_link_abort(struct tw_link *link);

/* Returns the ciphertext bytes that the kernel has accepted so far. */
uint64_t tw_link_bytes_out(const struct tw_link *link);

uint64_t tw_now_us(void);

#endif
