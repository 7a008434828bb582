/* node_memory.h - memory of a node for a model, before its first pass. */
#ifndef TW_DAEMON_CLI_RUN_NODE_MEMORY_H
#define TW_DAEMON_CLI_RUN_NODE_MEMORY_H

#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/worker_msg.h"

/* Memory in bytes, without payloads in transit and activations, which depend on more than the
 * model. */
struct node_memory {
    uint64_t shared; /* shared by daemon and worker: anchor, its momentum, snapshots */
    uint64_t engine; /* parameters, gradient, both moments */
};
struct node_memory node_memory(const struct tw_layout *layout, enum tw_snapshot_mode mode);

#endif
