/* worker_inner.h - a worker of thinwire/worker.h from inside. */
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
    struct tw_error failure; /* why the session's thread ended; valid after that */

    /* under the handover's mutex */
    bool is_attached; /* `view` is filled, and does not change any more */
    bool is_started;  /* bridge.trainer is filled */
    struct tw_run_view view;

    /* the fields below belong to the trainer's thread */
    struct thinwire_next next; /* values given to the trainer last */
    bool may_step;             /* the last call asked for a step */
    bool knows_end;            /* the last call said that the run is over */
    uint64_t left_us, held_us; /* when the last call returned; how long it held the trainer */
    uint64_t cursor;           /* cursor in the data, in tokens */
    bool has_drawn; /* a batch was drawn for the step being taken, so `cursor` is already behind it
                     */
    struct tw_data data; /* opened at the first draw */
};

/* Fills *error (may be NULL) and returns its status. */
enum thinwire_status tw_worker_tell(struct thinwire_error *error, enum tw_status status,
                                    const struct tw_error *reason);
/* THINWIRE_INVALID with this sentence. */
enum thinwire_status tw_worker_refuse(struct thinwire_error *error, const char *sentence);

#endif
