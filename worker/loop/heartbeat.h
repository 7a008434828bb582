/* heartbeat.h - a thread that shows in the shared memory that this process is alive, however long a
 * step takes. The thread ends the process when the daemon has been gone for TW_WORKER_ORPHAN_US:
 * the daemon may have cut off a worker that hangs, and a worker with a user of its own is out of
 * reach of the daemon's signals. */
#ifndef TW_WORKER_LOOP_HEARTBEAT_H
#define TW_WORKER_LOOP_HEARTBEAT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "proto/worker_msg.h"

enum { TW_WORKER_HEARTBEAT_MS = 500, TW_WORKER_ORPHAN_US = 30 * 1000 * 1000 };

struct tw_heartbeat {
    struct tw_shm_control *control; /* borrowed */
    int daemon_fd;                  /* the socket to the daemon; borrowed, -1: none */
    uint64_t orphan_us;             /* time for which the process outlives the daemon */
    uint64_t gone_us;               /* when the daemon was found gone; 0: it is connected */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Beats at once and then every TW_WORKER_HEARTBEAT_MS, while it watches the socket to the daemon
 * (-1: none). `orphan_us` is TW_WORKER_ORPHAN_US but in tests. The struct must not move. TW_NOMEM:
 * no thread. */
enum tw_status tw_heartbeat_open(struct tw_heartbeat *heartbeat, struct tw_shm_control *control,
                                 int daemon_fd, uint64_t orphan_us, struct tw_error *err);

/* Ends the thread; returns at once. */
void tw_heartbeat_close(struct tw_heartbeat *heartbeat);

#endif
