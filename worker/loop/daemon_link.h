/* daemon_link.h - the worker's end of the socket to the daemon: whole packets of worker_msg.h, and
 * the shared memory that is passed with the first of them. For one thread at a time. */
#ifndef TW_WORKER_LOOP_DAEMON_LINK_H
#define TW_WORKER_LOOP_DAEMON_LINK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/loop/juror.h"

struct tw_daemon_link {
    int fd;                        /* owned; -1 = closed */
    uint64_t blocked_us;           /* total time that send has waited for the daemon */
    struct tw_refusal_log refused; /* log of this link's refused requests */
};

/* Tries once to connect to the daemon's socket. Returns TW_AGAIN if no process listens there (yet),
 * TW_LIMIT if the path is too long for a socket, else TW_IO. */
enum tw_status tw_daemon_link_open(struct tw_daemon_link *link, const char *path,
                                   struct tw_error *err);
void tw_daemon_link_close(struct tw_daemon_link *link);

/* Sends HELLO. Returns TW_DENIED if the daemon refuses this worker. */
enum tw_status tw_daemon_link_greet(struct tw_daemon_link *link, const char *device,
                                    struct tw_error *err);

/* Waits for the answer to HELLO. Stores *welcome, checked (version, run, strings), and the memfd,
 * which the caller owns. Errors: TW_DENIED if the daemon refuses, TW_VERSION, TW_PROTO, and
 * TW_AGAIN if no answer came within timeout_ms: it may still come. */
enum tw_status tw_daemon_link_attach(struct tw_daemon_link *link, int timeout_ms,
                                     struct tw_wmsg_welcome *welcome, int *memfd_out,
                                     struct tw_error *err);

/* Maps the shared memory that a WELCOME describes, after checks of seals, size, geometry and magic.
 * Always closes memfd. The mapping lasts until tw_daemon_link_unmap. */
enum tw_status tw_daemon_link_map(int memfd, const struct tw_wmsg_welcome *welcome,
                                  const struct tw_layout *layout, struct tw_shm *shm,
                                  struct tw_error *err);
void tw_daemon_link_unmap(struct tw_shm *shm);

/* Sends the member of msg->u that belongs to msg->kind, and sets msg->bytes. May block. Returns
 * TW_IO if the daemon is gone. */
enum tw_status tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Works like tw_daemon_link_send, but returns TW_AGAIN if the socket is full. */
enum tw_status tw_daemon_link_try_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                       struct tw_error *err);

/* Receives the next packet without blocking. Returns TW_AGAIN if there is none, TW_IO if the daemon
 * is gone, and TW_PROTO for a kind or size unknown to worker_msg.h. Unexpected descriptors are
 * closed. */
enum tw_status tw_daemon_link_recv(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Waits until a packet or the end of the stream can be read. Returns TW_AGAIN after timeout_ms (-1:
 * no limit) or on a signal. */
enum tw_status tw_daemon_link_wait(struct tw_daemon_link *link, int timeout_ms,
                                   struct tw_error *err);

/* A thread that shows in the shared memory that this process is alive, however long a step takes.
 * The thread ends the process when the daemon has been gone for TW_WORKER_ORPHAN_US: the daemon may
 * have disconnected a hung worker, and cannot send signals to a worker under another user. */

enum { TW_WORKER_HEARTBEAT_MS = 500, TW_WORKER_ORPHAN_US = 30 * 1000 * 1000 };

struct tw_heartbeat {
    struct tw_shm_control *control; /* borrowed */
    int daemon_fd;                  /* borrowed socket to the daemon; -1: none */
    uint64_t orphan_us;             /* time that this process may outlive the daemon */
    uint64_t gone_us;               /* time when the daemon was found gone; 0: it is connected */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Starts a thread that writes a heartbeat at once and then every TW_WORKER_HEARTBEAT_MS. The thread
 * also watches the socket to the daemon (-1: none). `orphan_us` is TW_WORKER_ORPHAN_US except in
 * tests. The struct must not move. Returns TW_NOMEM if the thread cannot start. */
enum tw_status tw_heartbeat_open(struct tw_heartbeat *heartbeat, struct tw_shm_control *control,
                                 int daemon_fd, uint64_t orphan_us, struct tw_error *err);

/* Ends the thread, without waiting for its next beat. */
void tw_heartbeat_close(struct tw_heartbeat *heartbeat);

#endif
