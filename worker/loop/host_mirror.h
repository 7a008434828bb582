/* host_mirror.h - copies of theta, m and v in host memory for a learner that keeps them on a
 * device; the learner's arrays are then mirrors (learner.h). They have two uses: the start of a
 * worker writes all of them, and a snapshot reads all of them. Merging works on the device
 * (vectors.h). */
#ifndef TW_WORKER_LOOP_HOST_MIRROR_H
#define TW_WORKER_LOOP_HOST_MIRROR_H

#include "proto/shm.h"
#include "worker/learn/learner.h"

/* Copies all elements of these arrays to the host. Errors: TW_DEVICE. */
enum tw_status tw_host_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);
enum tw_status tw_host_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err);

#endif
