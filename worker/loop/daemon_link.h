/* link.h - the worker's end of the socket to the daemon: whole packets of worker_msg.h, and the
 * shared memory that comes with the first of them. Single caller. */
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
    uint64_t blocked_us;           /* time send has waited for the daemon, ever */
    struct tw_refusal_log refused; /* of what came over it */
};

/* One attempt to reach the daemon's socket. TW_AGAIN when nobody listens there (yet), TW_LIMIT for
 * a path that is too long to be one, TW_IO otherwise. */
enum tw_status tw_daemon_link_open(struct tw_daemon_link *link, const char *path,
                                   struct tw_error *err);
void tw_daemon_link_close(struct tw_daemon_link *link);

/* HELLO, then the daemon's answer: *welcome checked (version, run, strings) and the memfd, which
 * the caller owns. TW_DENIED when the daemon refuses, TW_VERSION, TW_PROTO, TW_AGAIN when no answer
 * came within timeout_ms. */
enum tw_status tw_daemon_link_attach(struct tw_daemon_link *link, const char *device,
                                     int timeout_ms, struct tw_wmsg_welcome *welcome,
                                     int *memfd_out, struct tw_error *err);

/* Maps the memory of a welcome: seals, size, geometry and magic are checked. Always closes memfd.
 * The mapping lasts until tw_daemon_link_unmap. */
enum tw_status tw_daemon_link_map(int memfd, const struct tw_wmsg_welcome *welcome,
                                  const struct tw_layout *layout, struct tw_shm *shm,
                                  struct tw_error *err);
void tw_daemon_link_unmap(struct tw_shm *shm);

/* Sends u.<member> of msg->kind; fills msg->bytes. May wait for the daemon. TW_IO: it is gone. */
enum tw_status tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* As send, but TW_AGAIN instead of waiting. */
enum tw_status tw_daemon_link_try_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                       struct tw_error *err);

/* The next packet, without waiting. TW_AGAIN: none. TW_IO: the daemon is gone. TW_PROTO: a packet
 * of another kind or size than worker_msg.h knows. Descriptors nobody asked for are closed. */
enum tw_status tw_daemon_link_recv(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Waits until a packet (or the end) can be read; TW_AGAIN after timeout_ms (-1: never) or when a
 * signal came. */
enum tw_status tw_daemon_link_wait(struct tw_daemon_link *link, int timeout_ms,
                                   struct tw_error *err);

#endif
