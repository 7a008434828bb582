/* apply_ahead.h - APPLYs whose work on the host is done while steps go on.
 *
 * Where steps are a device's, the host has nothing to do meanwhile; and what an APPLY takes there
 * (decoding, the outer step, digests) is many steps long. So a thread works it out beside the
 * anchor that is published, and the loop only publishes it and carries it into theta, at the first
 * step boundary that finds it done. There is one spare for (phi, u), so there is one at a time;
 * others wait for it, in order; where several are due the loop does them itself.
 *
 * All functions are the loop's, at step boundaries. Without `init`, or where it was told that the
 * host is busy, every APPLY is ready at once and done when it is asked for. */
#ifndef TW_WORKER_LOOP_APPLY_AHEAD_H
#define TW_WORKER_LOOP_APPLY_AHEAD_H

#include <pthread.h>
#include <stdbool.h>

#include "worker/merge/anchor.h"

struct tw_apply_ahead {
    struct tw_merger *merger;   /* borrowed */
    struct tw_anchor_work work; /* work.merged owned; NULL: there is no thread */
    bool is_begun;              /* work is of a request that is neither landed nor given up */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex */
    bool is_working, must_stop;
    enum tw_status status; /* of the work, once it is over */
    struct tw_error err;
};

/* Starts the thread if is_host_idle. The struct must not move. TW_NOMEM. */
enum tw_status tw_apply_ahead_init(struct tw_apply_ahead *early, struct tw_merger *merger,
                                   bool is_host_idle, struct tw_error *err);
void tw_apply_ahead_deinit(struct tw_apply_ahead *early); /* zeros are fine */

/* Whether this APPLY, with which nothing on its fragment is to be done before, takes no more than
 * its landing. If it does not and nothing else is under way, it is begun. One that will be refused
 * is ready: tw_apply_ahead_begin says why. */
bool tw_apply_ahead_is_ready(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request);

/* tw_anchor_apply, by what was worked out. Waits for it. */
enum tw_status tw_apply_ahead_begin(struct tw_apply_ahead *early,
                                    const struct tw_wmsg_apply *request,
                                    struct tw_wmsg_applied *reply, struct tw_error *err);

/* Before something else begins a stage: what is under way is given up, and is begun again when it
 * is asked for. */
void tw_apply_ahead_give_up(struct tw_apply_ahead *early);

#endif
