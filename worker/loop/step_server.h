/* step_server.h - a second thread that answers, while a step runs, what needs neither the
 * parameters nor a step boundary: REDUCE and CHECK.
 *
 * Without it a node whose steps are long holds up its part of every round by one. Everything else
 * it reads is kept, in order, for the boundary. Link and merger belong to one thread at a time: to
 * this one between open and close, to the loop otherwise. */
#ifndef TW_WORKER_LOOP_STEP_SERVER_H
#define TW_WORKER_LOOP_STEP_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/loop/daemon_link.h"
#include "worker/merge/merger.h"

enum { TW_STEP_SERVER_KEPT_MAX = 64 }; /* then the socket is not read until the boundary */

struct tw_step_server {
    struct tw_daemon_link *link; /* borrowed */
    struct tw_merger *merger;    /* borrowed */
    pthread_t thread;
    int wake_fd; /* readable: stop */
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    /* under the mutex */
    bool is_open, is_waiting, must_stop;
    enum tw_status status; /* of the link, where reading it failed */
    struct tw_error failure;
    uint32_t kept_begin, kept_count;
    struct tw_worker_msg *kept; /* (TW_STEP_SERVER_KEPT_MAX) */
    uint64_t cost_us;           /* of what was answered: computing, and held up by the daemon */
};

/* Starts the thread, closed. The struct must not move. TW_NOMEM, TW_IO. */
enum tw_status tw_step_server_init(struct tw_step_server *side, struct tw_daemon_link *link,
                                   struct tw_merger *merger, struct tw_error *err);

/* Ends the thread; it must be closed. Zeros are fine. */
void tw_step_server_deinit(struct tw_step_server *side);

/* A step begins: read and answer. */
void tw_step_server_open(struct tw_step_server *side);

/* The step is over. Waits for an answer under way. Returns what the answers cost, in us. */
uint64_t tw_step_server_close(struct tw_step_server *side);

/* While closed: packets are kept that tw_daemon_link_wait knows nothing of. */
bool tw_step_server_has_kept(const struct tw_step_server *side);

/* While closed: the next packet, kept or new, as tw_daemon_link_recv. */
enum tw_status tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Answers a REDUCE or CHECK; false for what is neither. TW_IO: the daemon is gone. */
bool tw_step_server_answer(struct tw_daemon_link *link, struct tw_merger *merger,
                           const struct tw_worker_msg *request, enum tw_status *status,
                           struct tw_error *err);

#endif
