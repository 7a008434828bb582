/* worker_weight.h - predicts a worker's memory in bytes, on host and device, before the worker
 * starts. */
#ifndef TW_WORKER_LEARN_WORKER_WEIGHT_H
#define TW_WORKER_LEARN_WORKER_WEIGHT_H

#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/engine/engine.h"

struct tw_worker_weight {
    uint64_t host, device; /* memory of thinwire-worker, with activations; 0: the engine has no plan
                              for the model */
    uint64_t device_limit; /* free memory of the device; 0: no device is used */
    uint64_t library; /* memory of libthinwire in a trainer, without the trainer's own memory */
};

/* Fills the struct from the engine's plan, which must include tw_worker_sync_bytes. `plan` is NULL
 * if the engine does not implement the model. */
struct tw_worker_weight tw_worker_weigh(const struct tw_run *run, const struct tw_layout *layout,
                                        const struct tw_engine_plan *plan);

/* Returns the device memory that merging needs, for tw_engine_config.sync_bytes. */
uint64_t tw_worker_sync_bytes(const struct tw_run *run, const struct tw_layout *layout);

#endif
