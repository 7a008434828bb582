/* heartbeat.h - a thread that shows in the shared memory that this process is alive, however long a
 * step takes. */
#ifndef TW_WORKER_LOOP_HEARTBEAT_H
#define TW_WORKER_LOOP_HEARTBEAT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "proto/worker_msg.h"

enum { TW_WORKER_HEARTBEAT_MS = 500 };

struct tw_heartbeat {
    struct tw_shm_control *control; /* borrowed */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Beats at once and then every TW_WORKER_HEARTBEAT_MS. The struct must not move. TW_NOMEM: no
 * thread.
 */
enum tw_status tw_heartbeat_open(struct tw_heartbeat *heartbeat, struct tw_shm_control *control,
                                 struct tw_error *err);

/* Ends the thread; returns at once. */
void tw_heartbeat_close(struct tw_heartbeat *heartbeat);

#endif
