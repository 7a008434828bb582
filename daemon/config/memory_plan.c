#include "daemon/config/memory_plan.h"

#include "compress/codec.h"
#include "daemon/store/checkpoint.h"
#include "proto/run/layout.h"
#include "proto/shm.h"

static struct tw_memory_plan plan_of(const struct tw_layout *layout, enum tw_snapshot_mode snapshot,
                                     bool is_file) {
    struct tw_memory_plan plan = {.snapshot = snapshot, .is_file = is_file};
    struct tw_shm_geometry geometry = {0};
    if (tw_shm_geometry_init(&geometry, layout, snapshot, 0, NULL) != TW_OK) {
        plan.anchor_bytes = UINT64_MAX / 4; /* fits no memory */
        return plan;
    }
    plan.snapshot_bytes = TW_SNAPSHOT_SLOTS * geometry.snapshot_bytes;
    plan.anchor_bytes = geometry.bytes - plan.snapshot_bytes;
    if (snapshot != TW_SNAPSHOT_OFF)
        plan.copy_bytes = layout->elements * (sizeof(float) + tw_momentum_bytes(layout->momentum)) +
                          geometry.snapshot_bytes;
    return plan;
}

uint64_t tw_memory_plan_bytes(const struct tw_memory_plan *plan) {
    const uint64_t shared = plan->anchor_bytes + plan->snapshot_bytes;
    return (plan->is_file ? 0 : shared + plan->transit_bytes) + plan->copy_bytes;
}

uint64_t tw_memory_plan_disk(const struct tw_memory_plan *plan, const struct tw_layout *layout,
                             bool has_file) {
    enum { SPARE_BYTES = 256 << 20 }; /* votes, member cache and logs */
    const uint64_t file = plan->anchor_bytes + plan->snapshot_bytes;
    return SPARE_BYTES + layout->params * TW_CHECKPOINTS_BYTES_PARAM +
           (plan->is_file && !has_file ? file : 0);
}

struct tw_memory_plan tw_memory_plan(const struct tw_config *config, const struct tw_layout *layout,
                                     uint64_t free_bytes, uint64_t engine_bytes) {
    const uint64_t left = free_bytes > engine_bytes ? free_bytes - engine_bytes : 0;
    const uint64_t room = left - left / 4;
    const bool has_wish = config->node.snapshot != TW_SNAPSHOT_WISH_AUTO;
    const int first = has_wish ? (int)config->node.snapshot : TW_SNAPSHOT_FULL;
    const int last = has_wish ? first : TW_SNAPSHOT_OFF;
    struct tw_memory_plan plan = {.is_file = false};
    for (int snapshot = first; snapshot <= last; snapshot++) {
        plan = plan_of(layout, (enum tw_snapshot_mode)snapshot,
                       config->node.anchors == TW_ANCHORS_FILE);
        /* Never `auto` snapshots in a file: they would be written to the disk again and again. */
        const bool is_off = plan.snapshot == TW_SNAPSHOT_OFF;
        if (tw_memory_plan_bytes(&plan) <= room && (!plan.is_file || has_wish || is_off))
            return plan;
    }
    plan.is_file = config->node.anchors != TW_ANCHORS_MEMORY;
    return plan;
}

uint64_t tw_memory_plan_engine(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_layout *layout) {
    enum { ELEMENT_BYTES = 16 }; /* float32 parameters, gradient and both moments */
    const bool is_here =
        config->worker.device.kind != TW_DEVICE_CUDA && tw_run_check_engine(run, NULL) == TW_OK;
    return is_here ? layout->elements * ELEMENT_BYTES : 0;
}

struct tw_memory_plan tw_memory_plan_of(const struct tw_config *config, const struct tw_run *run,
                                        const struct tw_layout *layout, uint64_t free_bytes) {
    const size_t largest = (size_t)tw_layout_largest(layout);
    const uint64_t transit =
        tw_kept_transit_bytes(run, layout, tw_codec_get(run->sync.codec)->bound(largest),
                              tw_codec_get(run->sync.result)->bound(largest));
    struct tw_memory_plan plan = tw_memory_plan(
        config, layout, free_bytes, tw_memory_plan_engine(config, run, layout) + transit);
    plan.transit_bytes = transit;
    return plan;
}

const char *tw_memory_plan_snapshot(const struct tw_memory_plan *plan) {
    switch (plan->snapshot) {
    case TW_SNAPSHOT_FULL: return "full";
    case TW_SNAPSHOT_BF16_MOMENTS: return "bf16-moments";
    case TW_SNAPSHOT_OFF: break;
    }
    return "off";
}
