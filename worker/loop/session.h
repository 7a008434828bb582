/* session.h - a worker from connect to end: wait for the daemon, attach, make a learner, train, and
 * report why it ended. Shared by the engine's worker, libthinwire (worker/lib) and the stub worker
 * of the tests. */
#ifndef TW_WORKER_LOOP_SESSION_H
#define TW_WORKER_LOOP_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/learn/learner.h"

struct tw_session_config {
    const char *socket; /* path of the daemon's socket */
    const char *device; /* for HELLO, at most 63 characters */
    uint32_t threads;   /* 0 = as in WELCOME */
    bool is_embedded;   /* the worker runs inside a foreign process, which outlives the daemon */

    /* Whether the worker must take a snapshot and end. Any thread. */
    bool (*must_end)(void *self);
    /* Makes the learner when the run is known. learner_close undoes a successful learner_open. */
    enum tw_status (*learner_open)(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err);
    void (*learner_close)(void *self);
    void *self;
};

/* Waits for the daemon without limit, then trains until the daemon or must_end ends it. TW_OK: EXIT
 * or must_end, after a snapshot. TW_AGAIN: the daemon is gone, or must_end came before a daemon.
 * Another status ends the worker; the daemon was told the reason if it is still connected. */
enum tw_status tw_session_serve(const struct tw_session_config *config, struct tw_error *err);

/* A session that is a whole process: ends at SIGTERM and SIGINT; must_end is not used. Returns the
 * exit status (base/exit_codes.h); the reason was logged. */
int tw_session_run(const struct tw_session_config *config);

#endif
