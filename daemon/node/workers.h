/* workers.h - the worker process: its messages, the supervisor that keeps it running, and the
 * training figures for the status. */
#ifndef TW_DAEMON_NODE_WORKERS_H
#define TW_DAEMON_NODE_WORKERS_H

#include "daemon/node/runtime.h"

struct tw_status_view;

/* Creates the worker's socket and shared memory. Returns TW_IO if the socket is in use. */
enum tw_status tw_daemon_workers_open(struct tw_daemon *daemon, struct tw_error *err);
/* Starts the first worker. While the dataset is awaited, does nothing: data.c calls this again. */
enum tw_status tw_daemon_workers_start(struct tw_daemon *daemon, struct tw_error *err);

/* Begins or ends the user's pause. *answer gets the sentence for the user. */
void tw_daemon_workers_pause(struct tw_daemon *daemon, bool is_paused, struct tw_error *answer);
/* Applies the configuration's keys for pauses that may change while the daemon runs. */
void tw_daemon_workers_apply(struct tw_daemon *daemon);
/* Checks whether training must pause or may go on (daemon/pause). */
void tw_daemon_workers_tick(struct tw_daemon *daemon, uint64_t now_us);
/* Called when the core changes its state. A node that joins forgets the figures of the weights that
 * it drops for the run's. */
void tw_daemon_workers_state(struct tw_daemon *daemon, enum tw_node_state state);
/* Returns whether the parameters come from the run, and not from the seed alone. */
bool tw_daemon_workers_is_trained(const struct tw_daemon *daemon);
/* Called after TW_ACT_FINISH: saves a checkpoint once the training has ended. */
void tw_daemon_workers_finished(struct tw_daemon *daemon);

/* Ends the worker for good, by SIGTERM after `grace_us`. Returns false if none runs. */
bool tw_daemon_workers_stop(struct tw_daemon *daemon, uint64_t grace_us);
bool tw_daemon_workers_is_running(const struct tw_daemon *daemon);

void tw_daemon_workers_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view);
void tw_daemon_workers_close(struct tw_daemon *daemon);
void tw_daemon_workers_free(struct tw_daemon *daemon);

#endif
