/* Tests of daemon/config/memory_plan.c: the order in which parts are given up if memory is
 * short. */
#include "daemon/config/memory_plan.h"

#include "tests/test.h"

enum { PIECES = 32 };

static struct tw_config config;
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;

/* A model of 1.2 billion parameters in 32 fragments. */
static int open_large(void **state) {
    tw_config_defaults(&config, "test");
    tw_run_defaults(&run);
    assert_int_equal(tw_run_apply_tensors(&run, "w:300000x4000", &err), TW_OK);
    run.sync.fragments = PIECES;
    run.sync.period = PIECES * 4;
    run.sync.overlap = 2;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    return 0;
}

#define FACT(name) TEST_IN(open_large, NULL, name)

static struct tw_memory_plan plan_at(double bytes_a_parameter) {
    return tw_memory_plan(&config, &layout, (uint64_t)(bytes_a_parameter * 1.2e9), 0);
}

static double per_parameter(const struct tw_memory_plan *plan) {
    return (double)tw_memory_plan_bytes(plan) / 1.2e9;
}

/* Snapshots are given up first. The anchor leaves memory only when nothing else can be given up. */
FACT(less_memory_takes_less) {
    struct tw_memory_plan plan = plan_at(80);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_FULL);
    assert_false(plan.is_file);
    assert_true(per_parameter(&plan) > 52 && per_parameter(&plan) < 53);
    plan = plan_at(60);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_BF16_MOMENTS);
    assert_false(plan.is_file);
    plan = plan_at(20);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_OFF);
    assert_false(plan.is_file);
    assert_int_equal(plan.copy_bytes, 0);
    assert_true(per_parameter(&plan) < 10);
    plan = plan_at(10);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_OFF);
    assert_true(plan.is_file);
    assert_int_equal(tw_memory_plan_bytes(&plan), 0);
}

FACT(settings_of_the_owner_stay) {
    config.node.snapshot = TW_SNAPSHOT_WISH_FULL;
    config.node.anchors = TW_ANCHORS_MEMORY;
    struct tw_memory_plan plan = plan_at(1);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_FULL);
    assert_false(plan.is_file);
    config.node.anchors = TW_ANCHORS_AUTO;
    plan = plan_at(1);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_FULL);
    assert_true(plan.is_file);
    config.node.snapshot = TW_SNAPSHOT_WISH_AUTO;
    config.node.anchors = TW_ANCHORS_FILE;
    plan = plan_at(1000);
    assert_true(plan.is_file);
    /* snapshots in a file would wear out the disk */
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_OFF);
}

FACT(worker_on_this_host_has_its_memory_first) {
    const uint64_t bytes = UINT64_C(20) * 1200000000;
    assert_false(tw_memory_plan(&config, &layout, bytes, 0).is_file);
    assert_true(tw_memory_plan(&config, &layout, bytes, bytes / 2).is_file);
    assert_true(tw_memory_plan(&config, &layout, bytes, 2 * bytes).is_file);
    /* Another program trains the run, so the daemon's own worker needs nothing. */
    assert_int_equal(tw_memory_plan_engine(&config, &run, &layout), 0);
    tw_run_defaults(&run);
    assert_int_equal(tw_memory_plan_engine(&config, &run, &layout), layout.elements * 16);
    config.worker.device.kind = TW_DEVICE_CUDA;
    assert_int_equal(tw_memory_plan_engine(&config, &run, &layout), 0);
}

/* Packed states, results kept for others, and contributions: with 32 fragments about a byte per
 * parameter, and less where there is no momentum to pack. */
FACT(payloads_are_counted_in_memory) {
    run.sync.codec = run.sync.result = TW_CODEC_INT4;
    const struct tw_memory_plan plan =
        tw_memory_plan_of(&config, &run, &layout, UINT64_C(20) * 1200000000);
    assert_false(plan.is_file);
    assert_int_equal(plan.snapshot, TW_SNAPSHOT_OFF);
    assert_true((double)plan.transit_bytes > 1.0 * 1.2e9);
    assert_true((double)plan.transit_bytes < 1.7 * 1.2e9);
    assert_int_equal(tw_memory_plan_bytes(&plan), plan.anchor_bytes + plan.transit_bytes);
    layout.momentum = TW_MOMENTUM_NONE;
    const struct tw_memory_plan bare =
        tw_memory_plan_of(&config, &run, &layout, UINT64_C(20) * 1200000000);
    assert_true(plan.transit_bytes - bare.transit_bytes == layout.elements / 8 * 4);
    assert_true(plan.anchor_bytes - bare.anchor_bytes >= layout.elements * 4);
    config.node.snapshot = TW_SNAPSHOT_WISH_FULL; /* the copy for a checkpoint has no u, either */
    const struct tw_memory_plan saved = tw_memory_plan_of(&config, &run, &layout, UINT64_MAX / 2);
    assert_int_equal(saved.copy_bytes, layout.elements * (4 + 12));
    run.sync.topology = TW_TOPOLOGY_SOLO;
    assert_int_equal(
        tw_memory_plan_of(&config, &run, &layout, UINT64_C(20) * 1200000000).transit_bytes, 0);
}
