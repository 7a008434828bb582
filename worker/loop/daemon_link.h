/* daemon_link.h - the worker's end of the socket to the daemon: whole packets of worker_msg.h, and
 * the shared memory that comes with the first of them. One caller. */
#ifndef TW_WORKER_LOOP_DAEMON_LINK_H
#define TW_WORKER_LOOP_DAEMON_LINK_H

#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/loop/refusal_log.h"

struct tw_daemon_link {
    int fd;                        /* owned; -1 = closed */
    uint64_t blocked_us;           /* total time that send has waited for the daemon */
    struct tw_refusal_log refused; /* refused requests of this link */
};

/* One attempt to connect to the daemon's socket. TW_AGAIN when no process listens there (yet),
 * TW_LIMIT when the path is too long for a socket, TW_IO otherwise. */
enum tw_status tw_daemon_link_open(struct tw_daemon_link *link, const char *path,
                                   struct tw_error *err);
void tw_daemon_link_close(struct tw_daemon_link *link);

/* Sends HELLO. TW_DENIED when the daemon turns this worker away. */
enum tw_status tw_daemon_link_greet(struct tw_daemon_link *link, const char *device,
                                    struct tw_error *err);

/* Waits for the answer to HELLO: *welcome, checked (version, run, strings), and the memfd, which
 * the caller owns. TW_DENIED when the daemon refuses, TW_VERSION, TW_PROTO, TW_AGAIN when no answer
 * came within timeout_ms: it may still come. */
enum tw_status tw_daemon_link_attach(struct tw_daemon_link *link, int timeout_ms,
                                     struct tw_wmsg_welcome *welcome, int *memfd_out,
                                     struct tw_error *err);

/* Maps the memory of a welcome after checks of seals, size, geometry and magic. Always closes
 * memfd. The mapping lasts until tw_daemon_link_unmap. */
enum tw_status tw_daemon_link_map(int memfd, const struct tw_wmsg_welcome *welcome,
                                  const struct tw_layout *layout, struct tw_shm *shm,
                                  struct tw_error *err);
void tw_daemon_link_unmap(struct tw_shm *shm);

/* Sends u.<member> of msg->kind; fills msg->bytes. May block. TW_IO: the daemon is gone. */
enum tw_status tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Like tw_daemon_link_send, but returns TW_AGAIN if the socket is full. */
enum tw_status tw_daemon_link_try_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                       struct tw_error *err);

/* Receives the next packet without blocking. TW_AGAIN: none. TW_IO: the daemon is gone. TW_PROTO: a
 * packet with a kind or size unknown to worker_msg.h. Unexpected descriptors are closed. */
enum tw_status tw_daemon_link_recv(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Waits until a packet or the end of the stream can be read. TW_AGAIN after timeout_ms (-1: no
 * limit) or on a signal. */
enum tw_status tw_daemon_link_wait(struct tw_daemon_link *link, int timeout_ms,
                                   struct tw_error *err);

#endif
