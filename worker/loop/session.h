/* session.h - one worker process from connect to end: wait for the daemon, attach, make a learner,
 * train, and report why it ended. The engine's worker and the stub worker of the tests share it. */
#ifndef TW_WORKER_LOOP_SESSION_H
#define TW_WORKER_LOOP_SESSION_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/learn/learner.h"

struct tw_session_config {
    const char *socket; /* path of the daemon's socket */
    const char *device; /* for HELLO, at most 63 characters */
    uint32_t threads;   /* 0 = as in WELCOME */

    /* Makes the learner when the run is known. learner_close undoes a successful learner_open. */
    enum tw_status (*learner_open)(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err);
    void (*learner_close)(void *self);
    void *self;
};

/* Runs a session. On SIGTERM or SIGINT it takes a snapshot at the next step boundary and ends.
 * Waits for the daemon without limit. Returns the exit status of the process (base/exit_codes.h);
 * the reason was logged, and sent to the daemon if it is connected. */
int tw_session_run(const struct tw_session_config *config);

#endif
