/* worker_memory.h - the memory shared with the worker: a sealed memfd, or a nameless file. The
 * daemon maps it and passes its descriptor with WELCOME. It outlives every worker, so a killed
 * worker loses only the steps since its last snapshot. The kernel allocates each page at its first
 * write. */
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
    const char *folder; /* folder of the nameless file; NULL: a memfd */
};

/* Creates the memory, seals its size, maps and formats it. A file is nameless, so it vanishes with
 * the process. All of its disk space is reserved: a full disk is an error here, never a SIGBUS
 * later. Returns TW_IO, with the size in the error. */
enum tw_status tw_worker_memory_open(struct tw_worker_memory *memory,
                                     const struct tw_worker_memory_config *config,
                                     struct tw_error *err);
void tw_worker_memory_close(struct tw_worker_memory *memory);

/* Frees the pages of all snapshots but the newest valid one. Without a valid one, frees none. Reads
 * all snapshots. No worker may be attached. */
void tw_worker_memory_trim(struct tw_worker_memory *memory);

/* Frees the pages that lie whole in a range of the pool, whose bytes are then undefined. */
void tw_worker_memory_give_back(struct tw_worker_memory *memory, uint64_t offset, uint64_t bytes);

/* Returns the largest size of a payload of that run, in bytes. Used for struct tw_sizes of
 * sync/core/interface.h. */
uint64_t tw_worker_bytes_max(const void *run, enum tw_content content, uint64_t elements);

/* Returns the bytes that a run's pool needs: for the largest fragment, the encoded outer gradients
 * of every member, results kept for members that missed them, and packed fragments for joining
 * nodes. This is address space; unused pages need no memory. */
uint64_t tw_worker_pool_bytes(const struct tw_run *run, const struct tw_layout *layout);

#endif
