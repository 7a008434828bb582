/* fake_daemon.h - the daemon's side of the worker link, in the worker's own process: a small model,
 * a sealed memfd, a socket pair. Asserts with cmocka. */
#ifndef TW_TESTS_FAKE_DAEMON_H
#define TW_TESTS_FAKE_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"

struct fake_daemon {
    int fd, worker_fd; /* the two ends of the socket pair; worker_fd is passed to tw_daemon_link */
    int memfd;
    struct tw_run run;
    struct tw_layout layout;
    struct tw_shm shm;
    struct tw_wmsg_welcome welcome; /* may be changed before fake_daemon_welcome */
    uint64_t pool_used;
    uint64_t steps_seen; /* STEP messages skipped by recv */
    struct tw_wmsg_step last_step;
};

/* Fills in a run with two layers, three fragments, bf16, plain averaging in the outer step, and mix
 * 0.5. */
void fake_run(struct tw_run *run);

void fake_daemon_open(struct fake_daemon *daemon, const struct tw_run *run,
                      enum tw_snapshot_mode mode);
void fake_daemon_close(struct fake_daemon *daemon);

/* Makes a new socket pair, for a second worker on the same memory. */
void fake_daemon_reconnect(struct fake_daemon *daemon);

/* Queues WELCOME with the memfd; the worker's HELLO may come later. */
void fake_daemon_welcome(struct fake_daemon *daemon);

/* Queues one packet; fills msg->bytes. */
void fake_daemon_send(struct fake_daemon *daemon, struct tw_worker_msg *msg);

/* Receives the next packet of this kind, skipping STEP, SNAPSHOT_DONE, EVALUATED and HELLO. Returns
 * false if none has arrived. */
bool fake_daemon_recv(struct fake_daemon *daemon, uint32_t kind, struct tw_worker_msg *msg);

/* Allocates room in the pool, which is never freed. */
struct tw_span fake_daemon_room(struct fake_daemon *daemon, uint32_t bytes);

#endif
