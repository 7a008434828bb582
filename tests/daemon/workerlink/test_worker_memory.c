/* Tests of daemon/workerlink/worker_memory.c: the memory that is given back in a long pause. */
#include "daemon/workerlink/worker_memory.h"

#include <sys/stat.h>

#include "tests/test.h"

static struct tw_run run;
static struct tw_layout layout;
static struct tw_worker_memory memory;

static struct tw_worker_memory_config config = {
    .layout = &layout, .mode = TW_SNAPSHOT_FULL, .pool_bytes = 1 << 20};

static int open_in(const char *folder) {
    struct tw_error err;
    tw_run_defaults(&run);
    config.folder = folder;
    if (tw_layout_init(&layout, &run, &err) != TW_OK ||
        tw_worker_memory_open(&memory, &config, &err) != TW_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int open_memory(void **state) {
    return open_in(NULL);
}

static int open_file(void **state) {
    return open_in(".");
}

static int close_memory(void **state) {
    tw_worker_memory_close(&memory);
    return 0;
}

#define FACT(name) TEST_IN(open_memory, close_memory, name)

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

FACT(older_snapshot_is_given_back) {
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

FACT(snapshot_that_is_not_whole_costs_no_other) {
    struct tw_snapshot_slot meta;
    fill(0, 10);
    fill(1, 20);
    ((uint8_t *)tw_shm_snapshot_data(&memory.shm, 1))[5] ^= 1; /* corrupts the newer snapshot */
    tw_worker_memory_trim(&memory);
    assert_int_equal(tw_shm_snapshot_newest(&memory.shm, &meta), 0);
    ((uint8_t *)tw_shm_snapshot_data(&memory.shm, 0))[5] ^= 1;
    const uint64_t before = bytes_held();
    tw_worker_memory_trim(&memory); /* no snapshot is valid, so none is freed */
    assert_true(bytes_held() >= before);
}

/* The file's disk space is allocated at once, and is freed when the process ends. */
FACT(freed_payload_is_given_back_and_its_neighbours_stay) {
    enum { PAGE = 4096, BEGIN = 3 * PAGE + 100, BYTES = 40 * PAGE };
    uint8_t *const bytes = tw_shm_pool(&memory.shm, memory.shm.geometry.pool, 64 * PAGE);
    memset(bytes, 7, 64 * PAGE);
    const uint64_t before = bytes_held();
    tw_worker_memory_give_back(&memory, BEGIN, BYTES);
    assert_int_equal(before - bytes_held(), memory.is_file ? 0 : 39 * PAGE);
    for (int i = 0; i < BEGIN; i++) assert_int_equal(bytes[i], 7);
    for (int i = BEGIN + BYTES; i < 64 * PAGE; i++) assert_int_equal(bytes[i], 7);
    tw_worker_memory_give_back(&memory, BEGIN, PAGE / 2); /* no whole page */
    assert_int_equal(bytes[BEGIN], 7);
}

TEST_IN(open_file, close_memory, file_has_no_name_and_no_holes) {
    struct stat stat;
    struct tw_snapshot_slot meta;
    assert_int_equal(fstat(memory.fd, &stat), 0);
    assert_true(S_ISREG(stat.st_mode));
    assert_int_equal(stat.st_nlink, 0);
    assert_int_equal((uint64_t)stat.st_size, memory.shm.geometry.bytes);
    assert_true(bytes_held() >= memory.shm.geometry.bytes);
    fill(0, 10);
    fill(1, 20);
    tw_worker_memory_trim(&memory);
    assert_true(bytes_held() >= memory.shm.geometry.bytes);
    assert_int_equal(tw_shm_snapshot_newest(&memory.shm, &meta), 1);
}

TEST_IN(open_file, close_memory, full_disk_is_an_error_with_a_way_out) {
    struct tw_worker_memory other;
    struct tw_worker_memory_config wanted = config;
    struct tw_error err;
    wanted.pool_bytes = UINT64_C(1) << 45;
    assert_int_equal(tw_worker_memory_open(&other, &wanted, &err), TW_IO);
    assert_non_null(strstr(err.message, "set node.anchors = memory"));
    wanted.folder = "no-such-folder";
    assert_int_equal(tw_worker_memory_open(&other, &wanted, &err), TW_IO);
    assert_non_null(strstr(err.message, "no-such-folder: No such file"));
}
