/* Tests of daemon/workerlink/worker_memory.c: the memory that a long pause gives back. */
#include "daemon/workerlink/worker_memory.h"

#include <sys/stat.h>

#include "tests/test.h"

static struct tw_run run;
static struct tw_layout layout;
static struct tw_worker_memory memory;

static int open_memory(void **state) {
    (void)state;
    struct tw_error err;
    tw_run_defaults(&run);
    if (tw_layout_init(&layout, &run, &err) != TW_OK ||
        tw_worker_memory_open(&memory, &layout, TW_SNAPSHOT_FULL, 1 << 20, &err) != TW_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int close_memory(void **state) {
    (void)state;
    tw_worker_memory_close(&memory);
    return 0;
}

static uint64_t bytes_held(void) {
    struct stat stat;
    assert_int_equal(fstat(memory.fd, &stat), 0);
    return (uint64_t)stat.st_blocks * 512;
}

static void fill(uint32_t slot, uint64_t step) {
    struct tw_snapshot_slot meta;
    memset(&meta, 0, sizeof(meta));
    meta.step = step;
    tw_shm_snapshot_begin(&memory.shm, slot);
    memset(tw_shm_snapshot_data(&memory.shm, slot), (int)step,
           (size_t)memory.shm.geometry.snapshot_bytes);
    tw_shm_snapshot_end(&memory.shm, slot, &meta);
}

static void older_snapshot_is_given_back(void **state) {
    (void)state;
    const uint64_t bytes = memory.shm.geometry.snapshot_bytes;
    struct tw_snapshot_slot meta;
    for (uint32_t newest = 0; newest < 2; newest++) {
        fill(newest, 20);
        fill(1 - newest, 10);
        const uint64_t before = bytes_held();
        tw_worker_memory_trim(&memory);
        assert_true(bytes_held() + bytes / 10 * 9 < before);
        assert_int_equal(tw_shm_snapshot_newest(&memory.shm, &meta), newest);
        assert_int_equal(meta.step, 20);
        assert_int_equal(tw_shm_snapshot_oldest(&memory.shm), 1 - newest); /* is written next */
        fill(1 - newest, 30);
        assert_int_equal(tw_shm_snapshot_newest(&memory.shm, &meta), 1 - newest);
    }
}

static void snapshot_that_is_not_whole_costs_no_other(void **state) {
    (void)state;
    struct tw_snapshot_slot meta;
    fill(0, 10);
    fill(1, 20);
    ((uint8_t *)tw_shm_snapshot_data(&memory.shm, 1))[5] ^= 1; /* an accident to the newer one */
    tw_worker_memory_trim(&memory);
    assert_int_equal(tw_shm_snapshot_newest(&memory.shm, &meta), 0);
    ((uint8_t *)tw_shm_snapshot_data(&memory.shm, 0))[5] ^= 1;
    const uint64_t before = bytes_held();
    tw_worker_memory_trim(&memory); /* none is valid, so none is touched */
    assert_true(bytes_held() >= before);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_memory, close_memory)
    const struct CMUnitTest tests[] = {
        TEST(older_snapshot_is_given_back),
        TEST(snapshot_that_is_not_whole_costs_no_other),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
