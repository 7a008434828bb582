/* worker_link.h - the daemon's end of the worker socket: a SOCK_SEQPACKET Unix socket in the run
 * folder, for at most one worker. It carries whole packets of worker_msg.h in both directions.
 *
 *   nobody --connect, right user--> greeting --HELLO--> open --close or fault--> nobody
 *
 * Only root, the daemon's own user and the worker's user may connect. A packet is exactly one
 * message. The daemon disconnects a worker that sends any other packet, sends no HELLO within
 * TW_WORKER_GREETING_US, or does not read while TW_WORKER_QUEUE packets are queued. The supervisor
 * then ends its process. Callbacks are called only from the event loop, never inside a
 * tw_worker_link_* call. */
#ifndef TW_DAEMON_WORKERLINK_WORKER_LINK_H
#define TW_DAEMON_WORKERLINK_WORKER_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/status.h"
#include "proto/worker_msg.h"

enum { TW_WORKER_QUEUE = 256, TW_WORKER_GREETING_US = 5 * 1000 * 1000 };

struct tw_worker_link_events {
    /* A worker sent HELLO. No other message is delivered before that. */
    void (*hello)(void *user, const struct tw_wmsg_hello *hello, pid_t pid);
    /* A later message of the worker. Its kind and size are checked, its contents are not. */
    void (*message)(void *user, const struct tw_worker_msg *msg);
    /* The worker that sent HELLO is disconnected. */
    void (*closed)(void *user, const char *sentence);
    /* A connection was refused before HELLO. */
    void (*refused)(void *user, const char *sentence);
};

struct tw_worker_link_config {
    uv_loop_t *loop;
    const char *socket_path;
    uint32_t worker_uid; /* second user that may connect; 0: none */
    struct tw_worker_link_events events;
    void *user;
};

struct tw_worker_packet {
    uint32_t bytes;
    int fd; /* descriptor passed with the packet; -1 = none */
    union {
        uint8_t raw[TW_WORKER_MSG_BYTES_MAX];
        uint32_t header[2];
    } u;
};

struct tw_worker_link {
    struct tw_worker_link_config config;
    char socket_path[108];
    int listen_fd, fd; /* -1 = closed */
    bool is_greeted, is_closing;
    pid_t pid;
    char sentence[160]; /* reason for closing the link */
    uv_poll_t listener, poll;
    uv_timer_t greeting;
    bool is_poll_open;
    uint32_t queue_first, queue_count;
    struct tw_worker_packet *queue; /* TW_WORKER_QUEUE packets, owned */
};

/* Listens at the socket path. Replaces a socket file without a listening process. Returns TW_IO if
 * the address is in use or refused, or TW_CONFIG if the path is too long. The error names the path.
 */
enum tw_status tw_worker_link_open(struct tw_worker_link *link,
                                   const struct tw_worker_link_config *config,
                                   struct tw_error *err);

/* Stops listening, disconnects the worker and removes the socket file; no callback follows. *link
 * must stay valid until the event loop has run the close callbacks. */
void tw_worker_link_close(struct tw_worker_link *link);

bool tw_worker_link_is_open(const struct tw_worker_link *link);

/* Sends or queues a message. The caller sets msg->kind and the union; this function sets
 * msg->bytes. `fd` (-1 = none) is borrowed. Does nothing if there is no worker. */
void tw_worker_link_send(struct tw_worker_link *link, struct tw_worker_msg *msg, int fd);

/* Closes the connection to the worker; `closed` follows from the event loop. */
void tw_worker_link_drop(struct tw_worker_link *link, const char *sentence);

#endif
