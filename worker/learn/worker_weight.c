#include "worker/learn/worker_weight.h"

#include "worker/merge/merge_memory.h"

/* libthinwire keeps a second copy of all parameters, and a copy of one fragment's parameters from
 * before a merge. */
static uint64_t weigh_library(const struct tw_run *run, const struct tw_layout *layout) {
    return tw_merge_anchor_elements(layout) * sizeof(float) +
           tw_merge_host_bytes(run, layout, true);
}

struct tw_worker_weight tw_worker_weigh(const struct tw_run *run, const struct tw_layout *layout,
                                        const struct tw_engine_plan *plan) {
    struct tw_worker_weight weight = {.library = weigh_library(run, layout)};
    if (plan == NULL) return weight;
    weight.host = (plan->is_on_gpu ? plan->mirrors : plan->total) +
                  tw_merge_host_bytes(run, layout, !plan->is_on_gpu);
    if (plan->is_on_gpu) {
        weight.device = plan->total;
        weight.device_limit = plan->limit;
    }
    return weight;
}

uint64_t tw_worker_sync_bytes(const struct tw_run *run, const struct tw_layout *layout) {
    return tw_merge_live_bytes(run, layout);
}
