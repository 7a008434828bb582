/* link.h - one TCP connection under TLS that carries whole frames. Knows nothing of runs or peers.
 *
 *   state      entered when                        left for
 *   OPENING    init                                SECURING by tw_link_secure
 *   SECURING   TCP is connected                    GREETING when TLS is done: `secured`
 *   GREETING   first frames; at most 1 KiB each    UP by tw_link_admit
 *   UP         frames of the role's kinds          -
 *   DRAINING   tw_link_close                       CLOSED: all written and the other side closed
 *                                                  too, or TW_LINK_DRAIN_US passed
 *   CLOSED     uv_close                            `gone`, then the memory is the owner's again
 *
 * Out: frames are queued as plaintext in a buffer of fixed size; records of at most
 * TW_TLS_RECORD_BYTES_MAX are encrypted only while less than TW_INFLIGHT_BYTES_MAX of ciphertext
 * waits outside the kernel. A control link encrypts by itself; a bulk link when tw_link_push is
 * called, so that its owner can meter it. A frame once begun must end: in 10 s plus a second per 4
 * KiB on control, in 30 s plus a second per 512 bytes on bulk, where many may share a slow uplink;
 * time that the link is paused does not count. In: a paused link reads nothing; at most one socket
 * read and one frame are held. */
#ifndef TW_DAEMON_NET_LINK_H
#define TW_DAEMON_NET_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "base/limits.h"
#include "base/status.h"
#include "daemon/net/handshake.h"
#include "daemon/net/tls.h"
#include "proto/frame.h"

enum { TW_LINK_DRAIN_US = 2 * 1000 * 1000 };

enum tw_link_state {
    TW_LINK_OPENING,
    TW_LINK_SECURING,
    TW_LINK_GREETING,
    TW_LINK_UP,
    TW_LINK_DRAINING,
    TW_LINK_CLOSED,
};

struct tw_link;

/* `secured`, `frame`, `writable` and `gone` are called by the loop alone. `failed` may be called
 * from inside any function below: note it, and close the link later from the loop. */
struct tw_link_events {
    void (*secured)(struct tw_link *link);
    void (*frame)(struct tw_link *link, const struct tw_frame *frame);
    void (*writable)(struct tw_link *link); /* ciphertext left for the kernel */
    void (*failed)(struct tw_link *link);   /* link->error says why; once */
    void (*spent)(struct tw_link *link, size_t ciphertext_bytes); /* was encrypted: meter it */
    void (*gone)(struct tw_link *link);
};

struct tw_link {
    const struct tw_link_events *events;
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct tw_tls tls;
    enum tw_link_state state;
    enum tw_role role;
    bool is_paused, is_reading, is_writing, is_ended, is_shut, has_eof, is_failed;
    struct tw_error error;
    uint64_t deadline_us; /* DRAINING: when to stop waiting */
    uint64_t frame_us;    /* when the frame now arriving began; 0 = none is */
    uint64_t bytes_in;    /* ciphertext read from the socket */
    uint64_t bytes_out;   /* ciphertext given to libuv; after CLOSED: taken by the kernel */
    uint64_t bytes_spent; /* ciphertext made */

    struct tw_reader reader;
    uint8_t *in;    /* buffer of the reader */
    uint8_t *queue; /* plaintext frames: [queue_begin, queue_end) waits */
    size_t queue_capacity, queue_begin, queue_end;
    uint8_t *cipher;             /* bytes of the write under way; TW_INFLIGHT_BYTES_MAX */
    char address[TW_ADDR_BYTES]; /* of the other end, once connected */
};

/* Caller's memory, zeroed by this; must not move until `gone`. TW_NOMEM or TW_IO: nothing to undo.
 */
enum tw_status tw_link_init(struct tw_link *link, uv_loop_t *loop,
                            const struct tw_link_events *events, struct tw_error *err);

/* Fills `address`, of a TCP connection that stands. */
void tw_link_address_read(struct tw_link *link);

/* The TCP connection stands (accepted or dialled): goes on with TLS. */
enum tw_status tw_link_secure(struct tw_link *link, const struct tw_tls_context *context,
                              bool is_dialled, const struct tw_id *expected, struct tw_error *err);

/* Gives the link its role: from now on frames of full size. Call from `frame` or `secured`. */
enum tw_status tw_link_admit(struct tw_link *link, enum tw_role role, struct tw_error *err);

/* Queues a whole frame; a control link starts to send it. TW_LIMIT when it does not fit. */
enum tw_status tw_link_send(struct tw_link *link, uint16_t kind, const void *body,
                            uint32_t body_bytes);

/* Bulk: queues a CHUNK frame built in place, when the queue is empty. Copies the bytes. */
void tw_link_load_chunk(struct tw_link *link, const struct tw_id *payload, uint32_t chunk_idx,
                        const uint8_t *bytes, uint32_t size);

/* Bulk: encrypts one record from the queue and starts writing; returns the ciphertext bytes. */
size_t tw_link_push(struct tw_link *link);

/* Can another record be encrypted within the bounds? */
bool tw_link_has_room(const struct tw_link *link);
size_t tw_link_queued(const struct tw_link *link);

void tw_link_pause(struct tw_link *link);
/* Takes up reading again; frames held are delivered by tw_link_pump, from the loop. */
void tw_link_resume(struct tw_link *link);
void tw_link_pump(struct tw_link *link);

/* Notes a failure found by the owner: reading stops, `failed` is called. Once; later ones are lost.
 */
void tw_link_fail(struct tw_link *link, const struct tw_error *why);

/* Starts the end. With a sentence: a GOODBYE goes first where frames still can. Any state. */
void tw_link_close(struct tw_link *link, enum tw_status status, const char *sentence);

/* When the link must be looked at next: the end of DRAINING, or of a frame's time; UINT64_MAX. */
uint64_t tw_link_deadline_us(const struct tw_link *link);

/* Closes at once if a DRAINING link is past its deadline; fails one whose frame takes too long. */
void tw_link_sweep(struct tw_link *link, uint64_t now_us);

/* Ends without ceremony: `gone` follows. */
void tw_link_abort(struct tw_link *link);

/* Ciphertext bytes the kernel has taken so far. */
uint64_t tw_link_bytes_out(const struct tw_link *link);

uint64_t tw_now_us(void);

#endif
