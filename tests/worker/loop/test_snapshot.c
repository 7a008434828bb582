/* Tests of worker/loop/snapshot.c. */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/worker/loop/fake_daemon.h"
#include "worker/loop/snapshot.h"

static struct fake_daemon dae;
static struct tw_train_state saved, loaded;
static size_t elements;
static struct tw_error err;

static float *array(uint64_t seed) {
    struct tw_rng rng;
    float *values = malloc(elements * sizeof(float));
    assert_non_null(values);
    tw_rng_seed(&rng, seed);
    for (size_t i = 0; i < elements; i++) values[i] = (float)tw_rng_unit(&rng) - 0.25f;
    return values;
}

static void open_mode(enum tw_snapshot_mode mode) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, mode);
    elements = (size_t)dae.shm.geometry.elements;
    saved = (struct tw_train_state){.theta = array(1), .m = array(2), .v = array(3)};
    loaded = (struct tw_train_state){.theta = array(4), .m = array(5), .v = array(6)};
    saved.step = 12;
    saved.tokens = 12 * 32;
    saved.updates = 11;
    saved.cursor = 999;
}

static int close_all(void **state) {
    float *arrays[] = {saved.theta, saved.m, saved.v, loaded.theta, loaded.m, loaded.v};
    for (size_t i = 0; i < 6; i++) free(arrays[i]);
    (void)close(dae.worker_fd);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

FACT(full_snapshot_loads_to_the_same_bits) {
    uint32_t slot, reset = 77;
    open_mode(TW_SNAPSHOT_FULL);
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slot, &err), TW_OK);
    assert_int_equal(tw_snapshot_load(&dae.shm, TW_SNAPSHOT_FULL, slot, &loaded, &reset, &err),
                     TW_OK);
    assert_memory_equal(saved.theta, loaded.theta, elements * sizeof(float));
    assert_memory_equal(saved.m, loaded.m, elements * sizeof(float));
    assert_memory_equal(saved.v, loaded.v, elements * sizeof(float));
    assert_int_equal(loaded.step, 12);
    assert_int_equal(loaded.tokens, 12 * 32);
    assert_int_equal(loaded.updates, 11);
    assert_int_equal(loaded.cursor, 999);
    assert_int_equal(reset, 0);
}

FACT(bf16_moments_are_rounded_and_theta_is_not) {
    uint32_t slot;
    open_mode(TW_SNAPSHOT_BF16_MOMENTS);
    assert_true(dae.shm.geometry.snapshot_bytes == elements * 8);
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_BF16_MOMENTS, &saved, &slot, &err),
                     TW_OK);
    assert_int_equal(
        tw_snapshot_load(&dae.shm, TW_SNAPSHOT_BF16_MOMENTS, slot, &loaded, NULL, &err), TW_OK);
    assert_memory_equal(saved.theta, loaded.theta, elements * sizeof(float));
    for (size_t i = 0; i < elements; i++) {
        assert_true(fabsf(loaded.m[i] - saved.m[i]) <= fabsf(saved.m[i]) / 256);
        assert_true(fabsf(loaded.v[i] - saved.v[i]) <= fabsf(saved.v[i]) / 256);
    }
}

FACT(slots_alternate) {
    uint32_t slots[4];
    open_mode(TW_SNAPSHOT_FULL);
    for (int i = 0; i < 4; i++) {
        saved.step++;
        assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slots[i], &err),
                         TW_OK);
    }
    assert_int_not_equal(slots[0], slots[1]);
    assert_int_equal(slots[0], slots[2]);
    assert_int_equal(slots[1], slots[3]);
}

FACT(merged_fragment_restarts_at_the_anchor) {
    uint32_t slot, reset = 0;
    open_mode(TW_SNAPSHOT_FULL);
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slot, &err), TW_OK);
    float *phi;
    void *u;
    const size_t n = (size_t)tw_shm_fragment_elements(&dae.shm, 1);
    tw_shm_stage_begin(&dae.shm, 1, &phi, &u);
    for (size_t i = 0; i < n; i++) phi[i] = (float)i;
    const struct tw_shm_state merged = {.rounds = 5};
    tw_shm_stage_publish(&dae.shm, 1, &merged);

    assert_int_equal(tw_snapshot_load(&dae.shm, TW_SNAPSHOT_FULL, slot, &loaded, &reset, &err),
                     TW_OK);
    assert_int_equal(reset, 1);
    const size_t begin = (size_t)dae.shm.fragment_begin[1];
    for (size_t i = 0; i < n; i++) assert_true(loaded.theta[begin + i] == (float)i);
    assert_memory_equal(loaded.theta, saved.theta, begin * sizeof(float));
    assert_memory_equal(loaded.theta + begin + n, saved.theta + begin + n,
                        (elements - begin - n) * sizeof(float));
}

FACT(damaged_slot_loads_nothing) {
    uint32_t slot;
    open_mode(TW_SNAPSHOT_FULL);
    const float before = loaded.theta[3];
    assert_int_equal(tw_snapshot_load(&dae.shm, TW_SNAPSHOT_FULL, 0, &loaded, NULL, &err),
                     TW_CORRUPT); /* slot 0 is empty */
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slot, &err), TW_OK);
    ((uint8_t *)tw_shm_snapshot_data(&dae.shm, slot))[elements * 12 - 1] ^= 0x80;
    assert_int_equal(tw_snapshot_load(&dae.shm, TW_SNAPSHOT_FULL, slot, &loaded, NULL, &err),
                     TW_CORRUPT);
    assert_true(loaded.theta[3] == before);
    assert_int_equal(loaded.step, 0);
}

FACT(non_finite_state_touches_no_slot) {
    uint32_t slot;
    struct tw_snapshot_slot meta;
    open_mode(TW_SNAPSHOT_FULL);
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slot, &err), TW_OK);
    saved.step = 13;
    saved.m[7] = INFINITY;
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_FULL, &saved, &slot, &err), TW_CORRUPT);
    assert_int_equal(slot, TW_SNAPSHOT_NONE);
    assert_int_equal(tw_shm_snapshot_newest(&dae.shm, &meta), 0);
    assert_int_equal(meta.step, 12);
    assert_int_equal(atomic_load(&tw_shm_control(&dae.shm)->snapshots[1].seq), 0);
}

FACT(snapshots_can_be_off) {
    uint32_t slot;
    open_mode(TW_SNAPSHOT_OFF);
    assert_int_equal(dae.shm.geometry.snapshot_bytes, 0);
    assert_int_equal(tw_snapshot_save(&dae.shm, TW_SNAPSHOT_OFF, &saved, &slot, &err), TW_OK);
    assert_int_equal(slot, TW_SNAPSHOT_NONE);
    assert_int_equal(tw_snapshot_load(&dae.shm, TW_SNAPSHOT_OFF, 0, &loaded, NULL, &err),
                     TW_CORRUPT);
}
