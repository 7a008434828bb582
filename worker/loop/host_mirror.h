/* host_mirror.h - theta, m and v on the host, where a learner keeps them on a device and its arrays
 * are mirrors (learner.h). Two things alone look at them there: the start of a worker, which writes
 * all of them, and a snapshot, which reads all. What a sync does, it does where they are
 * (vectors.h).
 */
#ifndef TW_WORKER_LOOP_HOST_MIRROR_H
#define TW_WORKER_LOOP_HOST_MIRROR_H

#include "proto/shm.h"
#include "worker/learn/learner.h"

/* All elements. TW_DEVICE. */
enum tw_status tw_host_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);
enum tw_status tw_host_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);

#endif
