/* start_state.h - where a worker begins: fresh, from a snapshot, or from the anchor alone. */
#ifndef TW_WORKER_LOOP_START_STATE_H
#define TW_WORKER_LOOP_START_STATE_H

#include <stdint.h>

#include "base/status.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learn/learner.h"
#include "worker/loop/snapshot.h"

/* Builds the start state a WELCOME names: theta, m, v in the learner, for a fresh start also
 * (phi, u) in the memory, and the counters in *state. A snapshot that is not whole is no error:
 * then *start_used is TW_START_ANCHOR. After it (phi, u) are valid. */
void tw_start_state_build(const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                          const struct tw_learner *learner, struct tw_train_state *state,
                          enum tw_worker_start *start_used);

#endif
