/* mirror.h - what the loop reads and writes of theta, m and v, where a learner keeps them on a
 * device and the arrays are mirrors (learner.h).
 *
 * Whoever works on these arrays runs between a pull and a push of this file; there is no other
 * place:
 *
 *     start                 writes all of theta, m, v
 *     snapshot              reads all of them
 *     evaluation            reads theta
 *     a request on a fragment
 *       ENCODE, PAIR_ENCODE reads theta; writes it (outbox.h: departs, recalled)
 *       APPLY, PAIR_APPLY   reads and writes theta; with sync.lead reads m and v, writes m
 *       SOLO, LOAD          reads and writes theta
 *     REDUCE, CHECK, EXPORT none: they may run beside a step
 *
 * A request that is refused may have taken back what was under way: it is pushed like any other. */
#ifndef TW_WORKER_MIRROR_H
#define TW_WORKER_MIRROR_H

#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/learner.h"

/* All elements. TW_DEVICE. */
enum tw_status tw_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                  const struct tw_shm *shm, struct tw_error *err);
enum tw_status tw_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                  const struct tw_shm *shm, struct tw_error *err);

/* What `msg` will read, and what it may have written. Nothing for what is no request, or is of no
 * fragment of the run. TW_DEVICE. */
enum tw_status tw_mirror_pull(const struct tw_learner *learner, const struct tw_shm *shm,
                              const struct tw_run *run, const struct tw_worker_msg *msg,
                              struct tw_error *err);
enum tw_status tw_mirror_push(const struct tw_learner *learner, const struct tw_shm *shm,
                              const struct tw_run *run, const struct tw_worker_msg *msg,
                              struct tw_error *err);

#endif
