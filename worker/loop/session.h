/* session.h - a worker from connect to end: wait for the daemon, attach, make a learner, train, and
 * report the reason of the end. A worker that may wait keeps its learner while the daemon is away,
 * and goes on with the next one (snapshot.h). Shared by the engine's worker, libthinwire
 * (worker/lib) and the stub worker of the tests. */
#ifndef TW_WORKER_LOOP_SESSION_H
#define TW_WORKER_LOOP_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/loop/snapshot.h"
#include "worker/support/nvml.h"

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

/* A thread that writes the state of the GPU (temperature, power, memory, load, use by others) into
 * the shared memory. A query of the driver can take milliseconds, so it must not delay training or
 * the heartbeat. */

struct tw_device_watch {
    struct tw_shm_device *device; /* borrowed */
    struct tw_nvml *nvml;         /* NULL if no GPU is watched */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t stop;
    bool must_stop; /* under the mutex */
};

/* Queries the GPU at PCI address `pci` at once and then every TW_DEVICE_WATCH_MS. With an empty
 * address there is no GPU, and no thread starts. The struct must not move. After TW_DEVICE
 * (from tw_nvml_open) or TW_NOMEM no GPU is watched, and training can go on. Close it in any case.
 */
enum tw_status tw_device_watch_open(struct tw_device_watch *watch, struct tw_shm_device *device,
                                    const char *pci, struct tw_error *err);

/* Ends the thread, after its current query of the driver. */
void tw_device_watch_close(struct tw_device_watch *watch);

/* ---- held-out losses of theta and anchor, and a sample of text, between steps ---------------- */

struct tw_trainer;

/* Makes an evaluation due a tenth of eval_steps from now, in addition to the regular ones: at ten
 * seconds a step, nobody should wait half an hour for the first one. */
void tw_evaluation_soon(struct tw_trainer *trainer);

/* Returns whether an evaluation is due. A training node evaluates every eval_steps steps, as the
 * daemon configures. A following node evaluates when merges have changed the model, for at most a
 * twentieth of the time. */
bool tw_evaluation_is_due(const struct tw_trainer *trainer);

/* Evaluates, and sends EVALUATED to the daemon, then SAMPLE if one is due. Samples use at most a
 * two-hundredth of the time. An evaluation that is stopped for a pause is due again later. */
enum tw_status tw_evaluation_run(struct tw_trainer *trainer, struct tw_error *err);

/* ---- the state in which a worker starts: fresh, from a snapshot, or from the anchor ---------- */

/* Writes the run's first weights to the learner's theta and to phi, with u = 0. */
void tw_start_state_fresh(const struct tw_shm *shm, const struct tw_learner *learner);

/* Builds the start state that a WELCOME names: theta, m and v in the learner, the counters in
 * *state, and for a fresh start (phi, u) in the shared memory. An incomplete or damaged snapshot is
 * no error: *start_used is then TW_START_ANCHOR. Afterwards (phi, u) are valid. */
void tw_start_state_build(const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                          const struct tw_learner *learner, struct tw_train_state *state,
                          enum tw_worker_start *start_used);

#endif
