/* step_server.h - a thread that answers REDUCE and CHECK while a step runs, because these need
 * neither the parameters nor a step boundary.
 *
 * Without it, a node with long steps would delay its part of every round by a step. The thread
 * keeps all other packets, in order, for the step boundary. Link and merger belong to one thread at
 * a time: to the step server between open and close, else to the loop. */
#ifndef TW_WORKER_LOOP_STEP_SERVER_H
#define TW_WORKER_LOOP_STEP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/loop/daemon_link.h"
#include "worker/merge/merger.h"

/* Packets kept. When full, the socket is not read until the step boundary. */
enum { TW_STEP_SERVER_KEPT_MAX = 64 };

struct tw_step_server {
    struct tw_daemon_link *link; /* borrowed */
    struct tw_merger *merger;    /* borrowed */
    pthread_t thread;
    int wake_fd; /* readable if the thread must stop */
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    /* under the mutex */
    bool is_open, is_waiting, must_stop;
    enum tw_status status; /* status of the link to the daemon, if reading failed */
    struct tw_error failure;
    uint32_t kept_begin, kept_count;
    struct tw_worker_msg *kept; /* packets kept for the step boundary, (TW_STEP_SERVER_KEPT_MAX) */
    uint64_t cost_us; /* cost of the answers: computing time, and time blocked by the daemon */
    bool may_cut;     /* true if the loop's current work may be stopped for a PAUSE or EXIT */
    /* A PAUSE or EXIT arrived while may_cut: the loop stops its work and reads the message. Set by
     * the thread, cleared by the loop. */
    _Atomic bool is_cut;
};

/* Starts the thread in the closed state. The struct must not move. Errors: TW_NOMEM, TW_IO. */
enum tw_status tw_step_server_init(struct tw_step_server *side, struct tw_daemon_link *link,
                                   struct tw_merger *merger, struct tw_error *err);

/* Ends the thread, which must be in the closed state. Accepts a zeroed struct. */
void tw_step_server_deinit(struct tw_step_server *side);

/* Called when a step begins: the thread reads packets and answers them. With may_cut, a PAUSE or
 * EXIT sets is_cut, to stop the step early. */
void tw_step_server_open(struct tw_step_server *side, bool may_cut);

/* Called when the step has ended. Waits for an answer that is being computed. Returns the cost of
 * the answers in us (microseconds). */
uint64_t tw_step_server_close(struct tw_step_server *side);

/* While closed: returns whether there are kept packets, which tw_daemon_link_wait cannot see. */
bool tw_step_server_has_kept(const struct tw_step_server *side);

/* While closed: receives the next packet, kept or new, like tw_daemon_link_recv. */
enum tw_status tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                   struct tw_error *err);

/* Answers a REDUCE or CHECK. Returns false for any other message. Sets *status to TW_IO if the
 * daemon is gone. */
bool tw_step_server_answer(struct tw_daemon_link *link, struct tw_merger *merger,
                           const struct tw_worker_msg *request, enum tw_status *status,
                           struct tw_error *err);

#endif
