/* Tests of daemon/dataset/data_store.c: its queue, its callbacks, and a failing disk. The disk
 * is simulated; libuv's thread pool is real. */
#include "tests/test.h"

#include <errno.h>

#include "base/hash.h"
#include "daemon/dataset/data_store.h"
#include "dataset_sample.h"
#include "tests/daemon/store/disk.h"

enum { RETRY_MS = 5 };

static struct {
    uv_loop_t loop;
    struct dataset_sample sample;
    struct tw_disk *disk;
    struct tw_data_store *store;
    struct tw_error err;
    unsigned opened, stored, checked, finished, troubles, cleared;
    unsigned finished_before_trouble; /* `finished` at the first trouble */
    enum tw_status status;
    enum tw_fetch_result result;
    uint32_t number, index_bytes, file;
    bool is_whole;
    char sentence[256];
    uint64_t answered[2]; /* one bit per chunk number */
} t;

#define PUMP_UNTIL(condition)                                                                      \
    while (!(condition)) (void)uv_run(&t.loop, UV_RUN_ONCE)

static void on_opened(void *user, enum tw_status status, const char *sentence) {
    t.opened++;
    t.status = status;
    (void)snprintf(t.sentence, sizeof(t.sentence), "%s", sentence);
}

static void on_stored(void *user, uint32_t number, enum tw_fetch_result result, uint32_t bytes) {
    t.stored++;
    t.result = result;
    t.number = number;
    t.index_bytes = bytes;
    assert_int_equal(t.answered[number / 64] >> (number % 64) & 1, 0);
    t.answered[number / 64] |= UINT64_C(1) << (number % 64);
}

static void on_checked(void *user, uint32_t file, enum tw_status status, const char *sentence) {
    t.checked++;
    t.file = file;
    t.status = status;
    (void)snprintf(t.sentence, sizeof(t.sentence), "%s", sentence);
}

static void on_finished(void *user, uint32_t file, bool is_whole) {
    t.finished++;
    t.file = file;
    t.is_whole = is_whole;
}

static void on_trouble(void *user, const char *sentence) {
    if (sentence != NULL && t.troubles++ == 0) t.finished_before_trouble = t.finished;
    t.cleared += sentence == NULL;
    if (sentence != NULL) (void)snprintf(t.sentence, sizeof(t.sentence), "%s", sentence);
}

static void store_open(void) {
    const struct tw_data_store_config config = {
        .loop = &t.loop,
        .ops = tw_disk_ops(t.disk),
        .path = "/tmp",
        .hash = t.sample.hash,
        .is_ours = true,
        .retry_ms = RETRY_MS,
        .events = {.opened = on_opened,
                   .stored = on_stored,
                   .checked = on_checked,
                   .finished = on_finished,
                   .trouble = on_trouble},
    };
    assert_int_equal(tw_data_store_create(&t.store, &config, &t.err), TW_OK);
}

static void store_end(void) {
    if (t.store == NULL) return;
    tw_data_store_close(t.store);
    (void)uv_run(&t.loop, UV_RUN_DEFAULT);
    tw_data_store_destroy(t.store);
    t.store = NULL;
}

static int setup(void **state) {
    memset(&t, 0, sizeof(t));
    assert_int_equal(uv_loop_init(&t.loop), 0);
    const struct sample_options options = {.train = 2, .heldout = 1, .tokenizer_bytes = 300000};
    dataset_sample_make(&t.sample, &options);
    t.disk = tw_disk_create();
    store_open();
    return 0;
}

static int teardown(void **state) {
    store_end();
    assert_int_equal(uv_loop_close(&t.loop), 0);
    tw_disk_destroy(t.disk);
    dataset_sample_free(&t.sample);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

/* Stores a chunk of the sample's file. The folder need not know that file yet. */
static void take(uint32_t file, uint32_t idx, uint32_t number) {
    const struct sample_file *from = &t.sample.files[file];
    uint64_t offset = (uint64_t)idx * TW_CHUNK_BYTES_MAX;
    uint32_t size = (uint32_t)(from->size - offset < TW_CHUNK_BYTES_MAX ? from->size - offset
                                                                        : TW_CHUNK_BYTES_MAX);
    if (file != TW_DATA_INDEX) {
        tw_fetch_range(&t.store->folder.files[file], idx, &offset, &size);
    }
    const struct tw_data_op op = {.file = file, .idx = idx, .size = size, .number = number};
    t.answered[number / 64] &= ~(UINT64_C(1) << (number % 64));
    assert_int_equal(tw_data_store_take(t.store, &op, from->bytes + offset), TW_OK);
}

static void get_index(void) {
    PUMP_UNTIL(t.opened == 1);
    assert_int_equal(t.status, TW_AGAIN);
    take(TW_DATA_INDEX, 0, 0);
    PUMP_UNTIL(t.stored == 1);
    assert_int_equal(t.result, TW_FETCH_OK);
    assert_int_equal(t.index_bytes, t.sample.files[0].size);
    tw_data_store_check(t.store, TW_DATA_INDEX);
    PUMP_UNTIL(t.checked == 1);
    assert_int_equal(t.status, TW_OK);
    assert_true(t.store->is_open);
    t.stored = t.checked = 0;
}

/* Stores all chunks of a file, and finishes it. */
static void get_file(uint32_t file) {
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[file]);
    t.stored = t.finished = 0;
    for (uint32_t i = 0; i < chunks; i++) take(file, i, i);
    PUMP_UNTIL(t.stored == chunks);
    assert_int_equal(t.result, TW_FETCH_OK);
    tw_data_store_finish(t.store, file);
    PUMP_UNTIL(t.finished == 1);
    assert_int_equal(t.file, file);
}

static void assert_whole_on_disk(uint32_t file) {
    size_t size = 0;
    const uint8_t *bytes = tw_disk_bytes(t.disk, t.sample.files[file].name, &size);
    assert_non_null(bytes);
    assert_int_equal(size, t.sample.files[file].size);
    assert_memory_equal(bytes, t.sample.files[file].bytes, size);
}

FACT(empty_folder_is_filled_file_by_file) {
    get_index();
    for (uint32_t file = 1; file < t.store->folder.files_count; file++) {
        get_file(file);
        assert_true(t.is_whole);
        assert_int_equal(t.store->folder.rows[file].state, TW_DATA_WHOLE);
        assert_whole_on_disk(file);
    }
    assert_int_equal(t.troubles, 0);
    assert_non_null(t.store->buffers[0]);
    tw_data_store_trim(t.store);
    assert_null(t.store->buffers[0]);
    store_end();
    t.opened = 0;
    store_open();
    PUMP_UNTIL(t.opened == 1);
    assert_int_equal(t.status, TW_OK);
    assert_int_equal(tw_data_folder_train_whole(&t.store->folder), 2);
}

FACT(wrong_chunks_are_answered_wrong) {
    PUMP_UNTIL(t.opened == 1);
    t.sample.files[0].bytes[0] ^= 1;
    take(TW_DATA_INDEX, 0, 7);
    PUMP_UNTIL(t.stored == 1);
    assert_int_equal(t.result, TW_FETCH_WRONG);
    assert_int_equal(t.number, 7);
    t.sample.files[0].bytes[0] ^= 1;
    take(TW_DATA_INDEX, 0, 8);
    PUMP_UNTIL(t.stored == 2);
    assert_int_equal(t.result, TW_FETCH_OK);
    const struct tw_data_op beyond = {.file = TW_DATA_INDEX, .idx = 1, .size = 10, .number = 9};
    assert_int_equal(tw_data_store_take(t.store, &beyond, t.sample.files[0].bytes), TW_OK);
    PUMP_UNTIL(t.stored == 3);
    assert_int_equal(t.result, TW_FETCH_WRONG);
    tw_data_store_check(t.store, TW_DATA_INDEX);
    PUMP_UNTIL(t.checked == 1);
    assert_int_equal(t.status, TW_OK);

    take(2, 0, 0);
    t.sample.files[2].bytes[t.store->folder.files[2].head_bytes + 11] ^= 1;
    take(2, 1, 1);
    take(2, 2, 2);
    PUMP_UNTIL(t.stored == 6);
    assert_int_equal(t.result, TW_FETCH_OK);
    assert_int_equal(t.store->ops_count, 0);
    take(2, 1, 127);
    PUMP_UNTIL(t.stored == 7);
    assert_int_equal(t.result, TW_FETCH_WRONG);
    assert_int_equal(t.number, 127);
}

FACT(index_with_a_wrong_byte_is_thrown_away) {
    PUMP_UNTIL(t.opened == 1);
    t.sample.files[0].bytes[80] ^= 1;
    take(TW_DATA_INDEX, 0, 0);
    tw_data_store_check(t.store, TW_DATA_INDEX);
    PUMP_UNTIL(t.checked == 1);
    assert_int_equal(t.status, TW_CORRUPT);
    assert_false(t.store->is_open);
    t.sample.files[0].bytes[80] ^= 1;
    t.opened = 1;
    t.status = TW_AGAIN;
    t.stored = t.checked = 0;
    get_index(); /* as if another peer sent it */
}

FACT(a_full_disk_stops_the_queue_until_there_is_room) {
    get_index();
    tw_disk_set_capacity(t.disk, t.sample.files[0].size + 1000);
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[2]);
    for (uint32_t i = 0; i < chunks; i++) take(2, i, i);
    PUMP_UNTIL(t.troubles >= 3);
    assert_int_equal(t.stored, 0);
    assert_int_equal(t.store->ops_count, chunks);
    assert_non_null(strstr(t.sentence, "free some space"));
    while (t.store->is_busy && !uv_is_active((uv_handle_t *)&t.store->retry)) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    tw_disk_set_capacity(t.disk, 0);
    PUMP_UNTIL(t.stored == chunks);
    assert_int_equal(t.cleared, 1);
    tw_data_store_finish(t.store, 2);
    PUMP_UNTIL(t.finished == 1);
    assert_true(t.is_whole);
    assert_whole_on_disk(2);
}

FACT(a_file_the_disk_forgot_is_wanted_again_after_a_while) {
    get_index();
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[2]);
    for (uint32_t i = 0; i < chunks; i++) take(2, i, i);
    PUMP_UNTIL(t.stored == chunks);
    tw_disk_fail_at(t.disk, tw_disk_calls(t.disk), EIO); /* the sync */
    tw_data_store_finish(t.store, 2);
    PUMP_UNTIL(t.finished == 1);
    assert_int_equal(t.troubles, 1);
    assert_int_equal(t.finished_before_trouble, 0);
    assert_false(t.is_whole);
    assert_false(tw_disk_exists(t.disk, t.sample.files[2].name));
    get_file(2);
    assert_true(t.is_whole);
    assert_whole_on_disk(2);
}

FACT(a_store_that_was_killed_goes_on_where_it_was) {
    get_index();
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[2]);
    take(2, 0, 0);
    take(2, 2, 1);
    for (uint32_t i = 0; i < chunks; i++) take(3, i, 2 + i); /* all chunks, but not finished */
    PUMP_UNTIL(t.stored == 2 + chunks);
    store_end();
    t.opened = 0;
    store_open();
    PUMP_UNTIL(t.opened == 1);
    assert_int_equal(t.status, TW_OK);
    assert_int_equal(t.store->folder.rows[3].state, TW_DATA_WHOLE);
    assert_whole_on_disk(3);
    assert_int_equal(t.store->found_count, 1);
    assert_int_equal(t.store->found[0].file, 2);
    assert_int_equal(t.store->found[0].have[0], 5);
    t.stored = 0;
    take(2, 1, 5);
    take(2, 3, 6);
    PUMP_UNTIL(t.stored == 2);
    assert_int_equal(t.result, TW_FETCH_OK);
    tw_data_store_finish(t.store, 2);
    PUMP_UNTIL(t.finished == 1);
    assert_true(t.is_whole);
    assert_whole_on_disk(2);
}

/* Each chunk belongs to another file than the previous one. So every .part file is opened again
 * and again, and none stays open. */
FACT(more_files_arrive_than_are_open_at_a_time) {
    dataset_sample_free(&t.sample);
    const struct sample_options options = {.train = TW_DATA_PARTS_OPEN + 3, .tokens = 1400000};
    dataset_sample_make(&t.sample, &options);
    store_end();
    t.opened = 0;
    store_open();
    get_index();
    const uint32_t files = t.store->folder.files_count;
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[1]);
    assert_true(chunks * (files - 1) > 64); /* more than the handles of the simulated disk */
    for (uint32_t idx = 0; idx < chunks; idx++) {
        t.stored = 0;
        for (uint32_t i = 1; i < files; i++) take(i, idx, i);
        PUMP_UNTIL(t.stored == files - 1);
        assert_int_equal(t.troubles, 0);
    }
    for (uint32_t i = 1; i < files; i++) tw_data_store_finish(t.store, i);
    PUMP_UNTIL(t.finished == files - 1);
    for (uint32_t i = 0; i < files; i++) assert_whole_on_disk(i);
}

FACT(a_store_is_closed_in_the_middle_of_its_work) {
    get_index();
    for (uint32_t i = 0; i < 4; i++) take(2, i, i);
    store_end(); /* no callback comes any more, and no memory leaks */
    assert_int_equal(t.stored, 0);
}

FACT(an_unusable_index_is_reported_with_its_reason) {
    PUMP_UNTIL(t.opened == 1);
    store_end();
    char *at = strstr((char *)t.sample.files[0].bytes, "heldout");
    assert_non_null(at);
    at[0] = 'H';
    t.sample.hash = tw_sha256(t.sample.files[0].bytes, t.sample.files[0].size);
    t.opened = 0;
    store_open();
    PUMP_UNTIL(t.opened == 1);
    take(TW_DATA_INDEX, 0, 0);
    tw_data_store_check(t.store, TW_DATA_INDEX);
    PUMP_UNTIL(t.checked == 1);
    assert_int_equal(t.status, TW_DATA);
    assert_true(strlen(t.sentence) > 10);
    assert_false(t.store->is_open);
}
