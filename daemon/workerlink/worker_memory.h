/* worker_memory.h - the memory shared with the worker: one sealed memfd, or a file without a name,
 * mapped by the daemon and passed with WELCOME. It outlives every worker, so a killed worker loses
 * only the steps since its last snapshot. Pages are allocated by the kernel at the first write. */
#ifndef TW_DAEMON_WORKERLINK_WORKER_MEMORY_H
#define TW_DAEMON_WORKERLINK_WORKER_MEMORY_H

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/shm.h"
#include "proto/worker_request.h"

struct tw_worker_memory {
    int fd; /* owned; -1 = closed */
    bool is_file;
    struct tw_shm shm;
};

struct tw_worker_memory_config {
    const struct tw_layout *layout;
    enum tw_snapshot_mode mode;
    uint64_t pool_bytes;
    const char *folder; /* folder of the file; NULL: a memfd */
};

/* Creates, seals (the size is then fixed), maps and formats. A file has no name, so it goes with
 * the process, and all of its disk space is reserved: a full disk is an error here, never a signal
 * later. TW_IO names the size. */
enum tw_status tw_worker_memory_open(struct tw_worker_memory *memory,
                                     const struct tw_worker_memory_config *config,
                                     struct tw_error *err);
void tw_worker_memory_close(struct tw_worker_memory *memory);

/* Gives the pages of all snapshots but the newest valid one back to the system; without a valid one
 * none. Reads the snapshots. No worker may be attached. */
void tw_worker_memory_trim(struct tw_worker_memory *memory);

/* Largest size in bytes of a payload of that run: struct tw_sizes of sync/core/config.h. */
uint64_t tw_worker_bytes_max(const void *run, enum tw_content content, uint64_t elements);

/* Bytes that the pool of a run needs, for the largest fragment: encoded outer gradients of every
 * member, results kept for members that missed them, and packed fragments for nodes that join. This
 * is address space; unused pages cost no memory. */
uint64_t tw_worker_pool_bytes(const struct tw_run *run, const struct tw_layout *layout);

#endif
