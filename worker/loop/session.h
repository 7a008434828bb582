/* session.h - a worker from connect to end: wait for the daemon, attach, make a learner, train, and
 * report the reason of the end. A worker that may wait keeps its learner while the daemon is away,
 * and goes on with the next one (kept_state.h). Shared by the engine's worker, libthinwire
 * (worker/lib) and the stub worker of the tests. */
#ifndef TW_WORKER_LOOP_SESSION_H
#define TW_WORKER_LOOP_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/learn/learner.h"

enum {
    TW_SESSION_NEW_US = 10 * 1000 * 1000,      /* time without a daemon at the start of a worker */
    TW_SESSION_AWAY_US = 60 * 1000 * 1000,     /* time without a daemon that was there before */
    TW_SESSION_REFUSED_US = 120 * 1000 * 1000, /* time for which a daemon refuses a worker that was
                                                  there before */
};

struct tw_session_config {
    const char *socket; /* path of the daemon's socket */
    const char *device; /* device name in HELLO, at most 63 characters */
    uint32_t threads;   /* 0 = as in WELCOME */
    bool is_embedded;   /* the worker runs inside a foreign process, which outlives the daemon: it
                           waits for daemons without limit, also after EXIT */
    bool comes_back;    /* the worker is started with its daemon. It waits at most for the times
                           above while no daemon listens. Without either flag the worker waits for
                           its first daemon without limit, and ends with it */

    /* Returns whether the worker must take a snapshot and end. Any thread may call it. */
    bool (*must_end)(void *self);
    /* Makes the learner once the run is known. learner_close undoes a successful learner_open. */
    enum tw_status (*learner_open)(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err);
    void (*learner_close)(void *self);
    void *self;
};

/* Waits for the daemon, then trains until the daemon or must_end ends it. Returns TW_OK after EXIT
 * or must_end, with a snapshot taken, and if the worker must be opened anew for another run.
 * Returns TW_AGAIN if the daemon is gone or none was found in time, or if must_end became true
 * before. Another status ends the worker; the daemon is told the reason if it is still connected.
 */
enum tw_status tw_session_serve(const struct tw_session_config *config, struct tw_error *err);

/* Runs a session as a whole process, which ends at SIGTERM and SIGINT; must_end is not used.
 * Returns the exit status (base/exit_codes.h), after logging the reason. */
int tw_session_run(const struct tw_session_config *config);

#endif
