/* worker_memory.h - the memory shared with the worker: one sealed memfd, mapped here, handed over
 * with WELCOME. It outlives every worker, so a killed worker loses no more than the steps since its
 * last snapshot. Pages are taken from the system when they are first written. */
#ifndef TW_DAEMON_WORKERLINK_WORKER_MEMORY_H
#define TW_DAEMON_WORKERLINK_WORKER_MEMORY_H

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/shm.h"

struct tw_worker_memory {
    int fd; /* owned; -1 = closed */
    struct tw_shm shm;
};

/* Creates, seals (its size can never change again), maps and formats. TW_IO with the size asked. */
enum tw_status tw_worker_memory_open(struct tw_worker_memory *memory,
                                     const struct tw_layout *layout, enum tw_snapshot_mode mode,
                                     uint64_t pool_bytes, struct tw_error *err);
void tw_worker_memory_close(struct tw_worker_memory *memory);

/* What the pool of a run needs: encoded outer gradients of every member's part, the results kept
 * for those who missed them and the packed fragments for those who join, of the largest fragment.
 * Address space more than memory: pages that were never used cost nothing. */
uint64_t tw_worker_pool_bytes(const struct tw_run *run, const struct tw_layout *layout);

#endif
