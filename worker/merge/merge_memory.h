/* merge_memory.h - memory of merging, from the manifest and the layout alone: how much a worker
 * needs is known before it starts, also in a build without codecs and shared memory. */
#ifndef TW_WORKER_MERGE_MERGE_MEMORY_H
#define TW_WORKER_MERGE_MERGE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"

/* Arrays of the size of the model in struct tw_inflight, in this order. */
enum tw_inflight_array {
    TW_INFLIGHT_RESIDUAL,
    TW_INFLIGHT_RESIDUAL_NEXT,
    TW_INFLIGHT_GIVEN,
    TW_INFLIGHT_SHARE,
    TW_INFLIGHT_AHEAD,
    TW_INFLIGHT_AHEAD_U,
    TW_INFLIGHT_ARRAYS
};

/* Marks the arrays that the run needs; returns their number. */
uint32_t tw_merge_inflight_arrays(const struct tw_run *run, bool used[TW_INFLIGHT_ARRAYS]);

/* Number of decoded contributions that the merge rule holds at a time; 0: one, in other memory. */
uint64_t tw_merge_reduce_inputs(const struct tw_run *run);

/* Elements of a device's copy of the anchor, with room for the next value of one fragment. */
uint64_t tw_merge_anchor_elements(const struct tw_layout *layout);

/* Bytes that tw_merger_init allocates on the device that holds the parameters. */
uint64_t tw_merge_live_bytes(const struct tw_run *run, const struct tw_layout *layout);

/* Bytes of host memory that tw_merger_init allocates. is_host: the host holds the parameters. */
uint64_t tw_merge_host_bytes(const struct tw_run *run, const struct tw_layout *layout,
                             bool is_host);

#endif
