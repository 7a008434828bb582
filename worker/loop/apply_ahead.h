/* apply_ahead.h - a thread does the host work of an APPLY while inner steps run on a device.
 *
 * When steps run on a device, the host is idle, and the host work of an APPLY (decoding, the outer
 * step, digests) takes as long as many steps. A thread computes the new anchor beside the published
 * one. At the first step boundary after that, the loop publishes it and updates theta. There is one
 * spare buffer for (phi, u), so the thread works on one APPLY at a time and the others wait in
 * order. If several are due, the loop does them itself.
 *
 * The loop calls all functions, at step boundaries. Without `init`, or if the host is not idle
 * during steps, every APPLY counts as ready, and the loop does its work when it begins. */
#ifndef TW_WORKER_LOOP_APPLY_AHEAD_H
#define TW_WORKER_LOOP_APPLY_AHEAD_H

#include <pthread.h>
#include <stdbool.h>

#include "worker/merge/anchor.h"

struct tw_apply_ahead {
    struct tw_merger *merger;   /* borrowed */
    struct tw_anchor_work work; /* work.merged is owned; it is NULL if there is no thread */
    bool is_begun; /* `work` belongs to a request that is neither published nor cancelled yet */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex */
    bool is_working, must_stop;
    enum tw_status status; /* result of the work, once it has ended */
    struct tw_error err;
};

/* Starts the thread if is_host_idle. The struct must not move. Errors: TW_NOMEM. */
enum tw_status tw_apply_ahead_init(struct tw_apply_ahead *early, struct tw_merger *merger,
                                   bool is_host_idle, struct tw_error *err);
void tw_apply_ahead_deinit(struct tw_apply_ahead *early); /* zeros are fine */

/* Returns whether the thread has finished the host work of this APPLY. If not, and the thread is
 * idle, the work begins. No request on the same fragment may be due before this one. An APPLY that
 * will be refused counts as ready: tw_apply_ahead_begin gives the reason. */
bool tw_apply_ahead_is_ready(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request);

/* Works like tw_anchor_apply, but waits for the thread's result and uses it. */
enum tw_status tw_apply_ahead_begin(struct tw_apply_ahead *early,
                                    const struct tw_wmsg_apply *request,
                                    struct tw_wmsg_applied *reply, struct tw_error *err);

/* Cancels the thread's work, so that another request can change the anchor. The work begins again
 * when the loop asks for it. */
void tw_apply_ahead_give_up(struct tw_apply_ahead *early);

#endif
