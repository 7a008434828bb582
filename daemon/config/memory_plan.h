/* memory_plan.h - host memory of a daemon for a model: which snapshots it keeps, and whether anchor
 * and momentum lie in memory or in a file. Known before anything is allocated. */
#ifndef TW_DAEMON_CONFIG_MEMORY_PLAN_H
#define TW_DAEMON_CONFIG_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config/config.h"
#include "proto/run/layout.h"

struct tw_memory_plan {
    enum tw_snapshot_mode snapshot;
    bool is_file;            /* the shared memory is a file in the state folder */
    uint64_t anchor_bytes;   /* anchor and momentum, and the spare of the largest fragment */
    uint64_t snapshot_bytes; /* both slots */
    uint64_t copy_bytes;     /* copy for a checkpoint; 0: it is written from the memory itself */
};

/* Chooses where the configuration says `auto`. `free_bytes`: memory of the machine that is not
 * in use; `engine_bytes`: memory of a worker on the same machine, which has precedence. */
struct tw_memory_plan tw_memory_plan(const struct tw_config *config, const struct tw_layout *layout,
                                     uint64_t free_bytes, uint64_t engine_bytes);

/* The same, with the memory of thinwire-worker if it trains this run on this host. */
struct tw_memory_plan tw_memory_plan_of(const struct tw_config *config, const struct tw_run *run,
                                        const struct tw_layout *layout, uint64_t free_bytes);

/* Memory of thinwire-worker on this host, without activations; 0: it computes on a GPU, or another
 * program trains the run. */
uint64_t tw_memory_plan_engine(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_layout *layout);

/* Bytes of memory that the plan takes, payloads in transit not counted. A file counts as none: the
 * system takes its pages back. */
uint64_t tw_memory_plan_bytes(const struct tw_memory_plan *plan);

/* "full", as in the configuration. Static storage. */
const char *tw_memory_plan_snapshot(const struct tw_memory_plan *plan);

#endif
