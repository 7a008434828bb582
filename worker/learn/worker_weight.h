/* worker_weight.h - memory of a worker in bytes, by the side that holds it, before it starts. */
#ifndef TW_WORKER_LEARN_WORKER_WEIGHT_H
#define TW_WORKER_LEARN_WORKER_WEIGHT_H

#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/engine/engine.h"

struct tw_worker_weight {
    uint64_t host, device; /* thinwire-worker, with activations; 0: the engine knows no plan */
    uint64_t device_limit; /* free memory of the device; 0: none is used */
    uint64_t library;      /* libthinwire in a trainer, without the trainer's own memory */
};

/* `plan`: the engine's, made with tw_worker_sync_bytes; NULL: the engine does not know the model.
 */
struct tw_worker_weight tw_worker_weigh(const struct tw_run *run, const struct tw_layout *layout,
                                        const struct tw_engine_plan *plan);

/* Device memory of merging, for tw_engine_config.sync_bytes. */
uint64_t tw_worker_sync_bytes(const struct tw_run *run, const struct tw_layout *layout);

#endif
