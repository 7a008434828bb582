#include "worker/merge/merge_memory.h"

#include "base/limits.h"
#include "kernels/merge.h"
#include "proto/run/run_key.h"

uint32_t tw_merge_inflight_arrays(const struct tw_run *run, bool used[TW_INFLIGHT_ARRAYS]) {
    const bool is_eager = run->sync.sent == TW_SENT_EAGER;
    uint32_t count = 0;
    used[TW_INFLIGHT_RESIDUAL] = run->sync.feedback_millionths > 0;
    used[TW_INFLIGHT_RESIDUAL_NEXT] = run->sync.feedback_millionths > 0;
    used[TW_INFLIGHT_GIVEN] = run->sync.sent != TW_SENT_MIX;
    used[TW_INFLIGHT_SHARE] = is_eager;
    used[TW_INFLIGHT_AHEAD] = is_eager;
    used[TW_INFLIGHT_AHEAD_U] = is_eager;
    for (unsigned i = 0; i < TW_INFLIGHT_ARRAYS; i++) count += used[i];
    return count;
}

uint64_t tw_merge_reduce_inputs(const struct tw_run *run) {
    if (tw_run_is_robust(run->sync.merge)) return run->sync.members;
    return run->sync.merge == TW_MERGE_RDA ? 2 : 0; /* one input and the sum of directions */
}

uint64_t tw_merge_anchor_elements(const struct tw_layout *layout) {
    return layout->elements + tw_layout_largest(layout);
}

uint64_t tw_merge_live_bytes(const struct tw_run *run, const struct tw_layout *layout) {
    bool used[TW_INFLIGHT_ARRAYS];
    const uint64_t arrays = tw_merge_inflight_arrays(run, used) * layout->elements;
    return (tw_merge_anchor_elements(layout) + tw_layout_largest(layout) + arrays) * sizeof(float);
}

/* Elements of decoded contributions whose memory a merge touches. A robust rule holds the planned
 * nodes' contributions to one part of a fragment, and half of the owners of parts may be away. */
static uint64_t reduce_elements(const struct tw_run *run, uint64_t largest) {
    const uint64_t nodes = run->sync.nodes;
    if (!tw_run_is_robust(run->sync.merge)) return tw_merge_reduce_inputs(run) * largest;
    if (nodes < TW_ROBUST_LEAST) return 0; /* so few are merged by the mean, one by one */
    const uint64_t owners = nodes < TW_PARTS_MAX ? nodes : TW_PARTS_MAX;
    return nodes * largest / (owners / 2);
}

uint64_t tw_merge_host_bytes(const struct tw_run *run, const struct tw_layout *layout,
                             bool is_host) {
    bool used[TW_INFLIGHT_ARRAYS];
    const uint64_t largest = tw_layout_largest(layout);
    const uint64_t arrays = tw_merge_inflight_arrays(run, used) * layout->elements;
    return (largest + (is_host ? arrays : largest) + reduce_elements(run, largest)) * sizeof(float);
}
