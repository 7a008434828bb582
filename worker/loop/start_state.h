/* start_state.h - the state in which a worker starts: fresh, from a snapshot, or from the anchor.
 */
#ifndef TW_WORKER_LOOP_START_STATE_H
#define TW_WORKER_LOOP_START_STATE_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/loop/snapshot.h"

/* Writes the run's first weights to the learner's theta and to phi, with u = 0. */
void tw_start_state_fresh(const struct tw_shm *shm, const struct tw_learner *learner);

/* Builds the start state that a WELCOME names: theta, m and v in the learner, the counters in
 * *state, and for a fresh start (phi, u) in the shared memory. An incomplete or damaged snapshot is
 * no error: *start_used is then TW_START_ANCHOR. Afterwards (phi, u) are valid. */
void tw_start_state_build(const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                          const struct tw_learner *learner, struct tw_train_state *state,
                          enum tw_worker_start *start_used);

#endif
