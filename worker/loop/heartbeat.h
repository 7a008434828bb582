/* heartbeat.h - a thread that shows in the shared memory that this process is alive, however long a
 * step takes. The thread ends the process when the daemon has been gone for TW_WORKER_ORPHAN_US:
 * the daemon may have disconnected a hung worker, and cannot send signals to a worker under another
 * user. */
#ifndef TW_WORKER_LOOP_HEARTBEAT_H
#define TW_WORKER_LOOP_HEARTBEAT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "proto/worker_msg.h"

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
