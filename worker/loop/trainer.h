/* trainer.h - the worker's loop: an inner step, then the requests of the daemon.
 *
 *      start --> READY --> [ inner step --> STEP --> requests --> snapshot, evaluation ] ...
 *
 * Parameters change at step boundaries only. States:
 *
 *   running    takes steps, with a boundary after each
 *   following  if WELCOME asks for it: as paused, for ever, and evaluates now and then
 *   paused     after PAUSE: no steps, waits for packets until RESUME. A long step or an
 *              evaluation is stopped for the PAUSE, and run again later
 *   finished   after FINISH or stop_step: as paused, until a FINISH with `goes_on`. Takes a
 *              snapshot and evaluates when the last rounds have changed the parameters and no
 *              packets arrive
 *   over       after EXIT: a snapshot was taken
 *
 * Requests on one fragment are done in the order of arrival. An APPLY waits for its min_step in a
 * bounded queue, and later requests on its fragment wait with it. When the queue is full, the
 * socket is not read until a request leaves the queue. REDUCE and CHECK are answered during steps
 * too: step_server.h. If steps leave the host idle, a thread works on an APPLY during steps, and
 * the APPLY waits for the thread in the same queue. */
#ifndef TW_WORKER_LOOP_TRAINER_H
#define TW_WORKER_LOOP_TRAINER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/loop/daemon_link.h"
#include "worker/loop/juror.h"
#include "worker/loop/snapshot.h"
#include "worker/loop/step_server.h"
#include "worker/merge/anchor.h"
#include "worker/merge/merger.h"
#include "worker/merge/pairing.h"

/* ---- a thread does the host work of an APPLY while inner steps run on a device --------------- */

/* When steps run on a device, the host is idle, and the host work of an APPLY (decoding, the outer
 * step, digests) takes as long as many steps. A thread computes the new anchor beside the published
 * one. At the first step boundary after that, the loop publishes it and updates theta. There is one
 * spare buffer for (phi, u), so the thread works on one APPLY at a time and the others wait in
 * order. If several are due, the loop does them itself.
 *
 * The loop calls all functions, at step boundaries. Without `init`, or if the host is not idle
 * during steps, every APPLY counts as ready, and the loop does its work when it begins. */

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

/* Returns whether the thread has finished the host work of this APPLY. If not, and the thread is
 * idle, the work begins. No request on the same fragment may be due before this one. An APPLY that
 * will be refused counts as ready: tw_apply_ahead_begin gives the reason. */
bool tw_apply_ahead_is_ready(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request);

/* Works like tw_anchor_apply, but waits for the thread's result and uses it. */
enum tw_status tw_apply_ahead_begin(struct tw_apply_ahead *early,
                                    const struct tw_wmsg_apply *request,
                                    struct tw_wmsg_applied *reply, struct tw_error *err);

/* ---- trainer --------------------------------------------------------------------------------- */

enum {
    TW_WAITING_MAX = 64, /* requests queued for a later boundary */
    TW_SKIPS_MAX = 16,   /* steps in a row without a finite gradient after which the worker ends */
};

struct tw_trainer {
    struct tw_daemon_link *link;
    const struct tw_wmsg_welcome *welcome;
    const struct tw_shm *shm;
    const struct tw_learner *learner;
    struct tw_merger merger;
    struct tw_pairing pairing;
    struct tw_step_server side;  /* thread that answers REDUCE and CHECK during steps */
    struct tw_apply_ahead early; /* thread that works on APPLYs during steps */
    struct tw_juror juror;       /* the check of another node's contribution */

    uint64_t step, tokens, cursor;
    uint64_t whole_steps; /* steps in a row of this process with all of the data here */
    uint32_t skips_in_a_row;
    bool is_paused, is_finished, is_over;
    bool is_settled; /* true if no further merge will change the parameters */

    struct tw_wmsg_clock clock; /* content of the newest CLOCK; zero before the first */
    uint64_t clock_tokens;      /* run clock for the schedule; never decreases within a lineage */

    uint64_t step_us, sync_us; /* time of steps and of merging since the last STEP message */
    uint64_t step_us_mean;     /* moving average */
    uint64_t boundary_us;      /* value of cost_us() at the start of this boundary */

    uint32_t snapshots_asked; /* SNAPSHOT requests not answered yet */
    uint64_t snapshot_step;   /* step of the newest snapshot; UINT64_MAX = none yet */
    uint64_t snapshot_steps;  /* steps from the newest snapshot to the next */
    uint64_t evaluated_step;  /* step of the last evaluation; UINT64_MAX = none yet */
    uint64_t evaluate_step; /* step of an evaluation besides the regular ones; UINT64_MAX = none */
    /* per fragment: rounds of the anchor after the last merge with other nodes; UINT64_MAX: the
     * fragment has changed its lineage, so that rounds do not compare */
    uint64_t merged_rounds[TW_FRAGMENTS_MAX];
    bool has_state;             /* the start state is built */
    uint32_t loads_count;       /* LOADs since the last time that all fragments were loaded */
    uint64_t evaluated_changes; /* merger.changes_count at the last evaluation */
    uint64_t sample_due_us;   /* CLOCK_MONOTONIC time before which no sample of text is generated */
    uint64_t evaluate_due_us; /* time before which a following node does not evaluate */

    uint32_t waiting_count;
    bool is_behind;                /* APPLYs pile up, so the loop does them without the thread */
    struct tw_worker_msg *waiting; /* queued requests in order of arrival, (TW_WAITING_MAX) */
};

/* Prepares a trainer, which borrows all arguments. Errors: TW_NOMEM. */
enum tw_status tw_trainer_init(struct tw_trainer *trainer, struct tw_daemon_link *link,
                               const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                               const struct tw_learner *learner, struct tw_error *err);
void tw_trainer_deinit(struct tw_trainer *trainer);

/* Builds the start state of the WELCOME (session.h) and sends READY. An incomplete or damaged
 * snapshot is no error: the worker starts from the anchor and reports this in READY. */
enum tw_status tw_trainer_start(struct tw_trainer *trainer, struct tw_error *err);

/* Works like tw_trainer_start, but goes on with the kept state if that is usable. */
enum tw_status tw_trainer_start_again(struct tw_trainer *trainer, const struct tw_kept_state *kept,
                                      struct tw_error *err);

/* After the link has ended: holds the learner, and keeps the state with which training goes on with
 * another link. Returns TW_AGAIN if there is nothing to keep yet. */
enum tw_status tw_trainer_keep(struct tw_trainer *trainer, struct tw_kept_state *kept,
                               struct tw_error *err);

/* Takes one inner step, then does the work of its boundary. If paused, finished or following, waits
 * up to 200 ms for a packet instead of the step. Returns TW_IO if the daemon is gone. After any
 * other error the worker cannot continue. */
enum tw_status tw_trainer_turn(struct tw_trainer *trainer, struct tw_error *err);

/* Takes the last snapshot, as after EXIT. Do not call tw_trainer_turn again. */
enum tw_status tw_trainer_finish(struct tw_trainer *trainer, struct tw_error *err);

/* Returns the estimated run clock between commits: clock_tokens + (own - listed) * contributors, at
 * most the budget. `own` counts this node's tokens, `listed` those already in the run clock. Before
 * any CLOCK, the estimate is this node's own tokens. Never decreases within a lineage. */
uint64_t tw_trainer_clock(struct tw_trainer *trainer);

#endif
