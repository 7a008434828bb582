/* session.h - one worker process from the first connect to the end: wait for the daemon, attach,
 * make a learner, train, and say why it ended. The engine's worker and the stub of the tests share
 * it. */
#ifndef TW_WORKER_LOOP_SESSION_H
#define TW_WORKER_LOOP_SESSION_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/learn/learner.h"

struct tw_session_config {
    const char *socket; /* the daemon's */
    const char *device; /* for HELLO, at most 63 characters */
    uint32_t threads;   /* 0 = as the daemon says */

    /* Makes the learner once the run is known; close undoes a successful open. */
    enum tw_status (*learner_open)(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err);
    void (*learner_close)(void *self);
    void *self;
};

/* Catches SIGTERM and SIGINT: the session then takes a snapshot at the next step boundary and ends.
 * Waits for a daemon that is not there yet for as long as it takes. Returns the process's exit
 * status of base/exit_codes.h; the reason was logged, and told to the daemon if there is one. */
int tw_session_run(const struct tw_session_config *config);

#endif
