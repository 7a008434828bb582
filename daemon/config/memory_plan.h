/* memory_plan.h - host memory and disk space that a daemon needs for a model: which snapshots it
 * keeps, and whether anchor and momentum are in memory or in a file. The plan is made before
 * anything is allocated. */
#ifndef TW_DAEMON_CONFIG_MEMORY_PLAN_H
#define TW_DAEMON_CONFIG_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config/config.h"
#include "proto/run/layout.h"

struct tw_memory_plan {
    enum tw_snapshot_mode snapshot;
    bool is_file;            /* the shared memory is a file in the state folder */
    uint64_t anchor_bytes;   /* anchor, momentum and a spare of the largest fragment */
    uint64_t snapshot_bytes; /* bytes of both snapshot slots */
    uint64_t transit_bytes;  /* most bytes of payloads that are in memory at a time, in a group of
                                two or more; 0: the codecs are not known */
    uint64_t copy_bytes;     /* copy of the state for a checkpoint; 0: written directly, without a
                                copy */
};

/* Decides the settings that are `auto`. `free_bytes`: the machine's unused memory. `engine_bytes`:
 * memory of a worker on the same machine, which has precedence. */
struct tw_memory_plan tw_memory_plan(const struct tw_config *config, const struct tw_layout *layout,
                                     uint64_t free_bytes, uint64_t engine_bytes);

/* Like tw_memory_plan, with the memory of thinwire-worker if it trains this run on this host. */
struct tw_memory_plan tw_memory_plan_of(const struct tw_config *config, const struct tw_run *run,
                                        const struct tw_layout *layout, uint64_t free_bytes);

/* Returns the bytes that thinwire-worker needs in host memory, without activations. Returns 0 if it
 * computes on a GPU, or if another program trains the run. */
uint64_t tw_memory_plan_engine(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_layout *layout);

/* Returns the bytes of memory that the plan needs. A file counts as 0: the system can reclaim its
 * pages. */
uint64_t tw_memory_plan_bytes(const struct tw_memory_plan *plan);

/* Returns the bytes that the state folder's disk must have free for a node of this size:
 * checkpoints, votes, logs, and the file of the plan. A node keeps them free: it fetches no part of
 * a dataset that would leave less. A running daemon has its file already: `has_file`. */
uint64_t tw_memory_plan_disk(const struct tw_memory_plan *plan, const struct tw_layout *layout,
                             bool has_file);

/* Returns "full", "bf16-moments" or "off", as in the configuration. Static storage. */
const char *tw_memory_plan_snapshot(const struct tw_memory_plan *plan);

#endif
