/* worker_inner.h - the private state of a worker of thinwire/worker.h. */
#ifndef TW_WORKER_LIB_WORKER_INNER_H
#define TW_WORKER_LIB_WORKER_INNER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "worker/data/data.h"
#include "worker/lib/bridge.h"
#include "worker/lib/run_view.h"

struct thinwire_worker {
    struct tw_bridge bridge;
    pthread_t thread; /* the session's */
    pid_t pid;        /* id of the process that opened the worker */
    char *socket;     /* owned */
    char device[64];
    struct tw_error failure; /* reason for the end of the session's thread; valid after that end */

    /* the next fields are protected by the handover's mutex */
    bool is_attached; /* `view` is filled and no longer changes */
    bool is_started;  /* bridge.trainer is filled */
    struct tw_run_view view;

    /* only the trainer's thread uses the fields below */
    struct thinwire_next next; /* values given to the trainer last */
    bool may_step;             /* the last call asked for a step */
    bool knows_end;            /* the last call returned THINWIRE_FINISHED */
    uint64_t left_us, held_us; /* in us: time at which the last call returned; how long it held the
                                  trainer */
    uint64_t cursor;           /* position in the data, in tokens */
    bool has_drawn; /* a batch was drawn for the current step, so `cursor` is already after it */
    struct tw_data data; /* opened at the first draw */
};

/* Fills *error (may be NULL) from a status and its reason. Returns the status that it holds. */
enum thinwire_status tw_worker_tell(struct thinwire_error *error, enum tw_status status,
                                    const struct tw_error *reason);
/* Returns THINWIRE_INVALID, with `sentence` as the message. */
enum thinwire_status tw_worker_refuse(struct thinwire_error *error, const char *sentence);

#endif
