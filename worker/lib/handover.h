/* handover.h - synchronises two threads of a worker: the trainer's thread, which owns the
 * parameters, and the session's thread, which runs worker/loop.
 *
 * The trainer's thread reaches a step boundary with the report of a step. There it waits, and runs
 * the calls that the session's thread hands it, until the session asks for a step or lets the
 * trainer step while the session computes. Every change of the parameters is thus made by the
 * trainer's thread.
 *
 *     trainer:  step | boundary: calls ... | step          | boundary | step ...
 *     session:         borrow, release ----> encode, merge   (next call waits for a boundary) */
#ifndef TW_WORKER_LIB_HANDOVER_H
#define TW_WORKER_LIB_HANDOVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/learn/learner.h"

enum { TW_REPORTS_MAX = 64 }; /* steps by which the trainer may be ahead of the session */

/* Report of a step that the trainer has taken. */
struct tw_report {
    struct tw_step_result result;
    struct tw_learner_times times;
    uint64_t cursor; /* position in the data after the step, in tokens */
};

/* The next action of the trainer's thread. */
enum tw_turn {
    TW_TURN_WAIT,    /* wait at the step boundary */
    TW_TURN_STEP,    /* take a step */
    TW_TURN_SETTLED, /* nothing: the run is over, and its last rounds are in the parameters */
    TW_TURN_ENDED,   /* nothing: the session's thread has ended */
};

struct tw_handover {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* all fields below are protected by the mutex */
    bool must_end;    /* the trainer is closing the worker */
    bool is_ended;    /* the session's thread has ended */
    bool is_settled;  /* the run is over, and its last rounds are in the parameters */
    bool is_released; /* the trainer may take steps while the session computes */
    bool wants_step;  /* the session waits for a report */
    bool has_rested;  /* the session has held the trainer for a pause since the last report */
    bool is_asked;    /* `call` is waiting for the trainer's thread */
    enum tw_status (*call)(void *self, struct tw_error *err);
    void *call_self;
    enum tw_status call_status;
    struct tw_error *call_err;
    uint32_t reports_begin, reports_count; /* ring */
    struct tw_report reports[TW_REPORTS_MAX];
};

void tw_handover_init(struct tw_handover *handover);
void tw_handover_deinit(struct tw_handover *handover);

/* ---- the trainer's thread -------------------------------------------------------------------- */

/* Adds the report of a step that tw_handover_wait asked for. */
void tw_handover_report(struct tw_handover *handover, const struct tw_report *report);

/* Whether a pause, or the end of the run, has held the trainer since the last report. */
bool tw_handover_has_rested(struct tw_handover *handover);

/* Runs calls until the turn is other than TW_TURN_WAIT, or timeout_ms milliseconds have passed (-1:
 * no limit). Returns the turn. knows_end: the trainer already knows that the run is over, so
 * TW_TURN_SETTLED does not end the waiting. */
enum tw_turn tw_handover_wait(struct tw_handover *handover, bool knows_end, int timeout_ms);

/* Asks the session to end. The trainer's thread must then call tw_handover_wait until ENDED. */
void tw_handover_end(struct tw_handover *handover);

/* ---- the session's thread -------------------------------------------------------------------- */

/* Holds the trainer at its next step boundary, runs call(self, err) on its thread, and returns the
 * status. Afterwards the trainer is still held. */
enum tw_status tw_handover_call(struct tw_handover *handover,
                                enum tw_status (*call)(void *self, struct tw_error *err),
                                void *self, struct tw_error *err);

/* Lets the trainer take steps until the next call. */
void tw_handover_release(struct tw_handover *handover);

/* Takes the oldest report; if there is none, asks for a step and waits. Fails with TW_AGAIN if the
 * worker must end. */
enum tw_status tw_handover_take(struct tw_handover *handover, struct tw_report *report);

/* Holds the trainer at its next step boundary until the next tw_handover_take. */
void tw_handover_rest(struct tw_handover *handover, bool is_settled);

/* Drops all reports, because the steps that they describe are no longer in the parameters. */
void tw_handover_forget(struct tw_handover *handover);

void tw_handover_say_ended(struct tw_handover *handover);
bool tw_handover_must_end(struct tw_handover *handover);

#endif
