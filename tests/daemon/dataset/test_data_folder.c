/* Tests of daemon/dataset/data_folder.c on the simulated disk. */
#include "tests/test.h"

#include <errno.h>

#include "base/hash.h"
#include "daemon/dataset/data_folder.h"
#include "dataset_sample.h"
#include "tests/daemon/store/disk.h"

static struct dataset_sample sample;
static struct tw_disk *disk;
static struct tw_data_folder folder;
static struct tw_data_part part;
static struct tw_error err;
static uint8_t chunk[TW_CHUNK_BYTES_MAX];
static uint64_t have[TW_FETCH_FILE_CHUNKS_MAX / 64];

static int make_all(void **state) {
    const struct sample_options options = {.train = 2, .heldout = 1, .tokenizer_bytes = 300000};
    dataset_sample_make(&sample, &options);
    disk = tw_disk_create();
    memset(&folder, 0, sizeof(folder));
    folder.dir = part.handle = -1;
    return 0;
}

static int drop_all(void **state) {
    if (folder.ops != NULL) tw_data_folder_close(&folder);
    tw_disk_destroy(disk);
    dataset_sample_free(&sample);
    return 0;
}

#define FACT(name) TEST_IN(make_all, drop_all, name)

static void open_folder(bool is_ours) {
    if (folder.ops != NULL) tw_data_folder_close(&folder);
    if (tw_data_folder_open(&folder, tw_disk_ops(disk), "data", &sample.hash, is_ours, &err) !=
        TW_OK) {
        fail_msg("%s", err.message);
    }
}

static void disk_anew(void) {
    if (folder.ops != NULL) tw_data_folder_close(&folder);
    folder.ops = NULL;
    tw_disk_destroy(disk);
    disk = tw_disk_create();
}

/* Writes the first `size` bytes of the sample's file i to the disk, under a name. */
static void put(uint32_t i, const char *name, size_t size) {
    const struct tw_file_ops *ops = tw_disk_ops(disk);
    const int handle = ops->create(ops->ctx, ops->dir_open(ops->ctx, "data"), name);
    assert_true(handle >= 0);
    assert_int_equal(ops->write(ops->ctx, handle, sample.files[i].bytes, size, 0), (int64_t)size);
    assert_int_equal(ops->close(ops->ctx, handle), 0);
}

static void put_whole(uint32_t i) {
    put(i, sample.files[i].name, sample.files[i].size);
}

/* Opens a folder that contains only the index. */
static void open_with_index(void) {
    open_folder(true);
    assert_int_equal(tw_data_folder_put_index(&folder, (char *)sample.files[0].bytes,
                                              sample.files[0].size, &err),
                     TW_OK);
}

static void open_part(uint32_t file) {
    if (tw_data_part_open(&part, &folder, file, &err) != TW_OK) fail_msg("%s", err.message);
}

static enum tw_status write_chunk(uint32_t idx) {
    uint64_t offset;
    uint32_t bytes;
    tw_fetch_range(&folder.files[part.file], idx, &offset, &bytes);
    return tw_data_part_write(&part, idx, sample.files[part.file].bytes + offset, &err);
}

static uint32_t chunks(uint32_t file) {
    return tw_fetch_chunks(&folder.files[file]);
}

static void fill_part(uint32_t file) {
    open_part(file);
    for (uint32_t i = 0; i < chunks(file); i++) assert_int_equal(write_chunk(i), TW_OK);
}

static void assert_whole_on_disk(uint32_t file) {
    size_t size = 0;
    const uint8_t *bytes = tw_disk_bytes(disk, sample.files[file].name, &size);
    assert_non_null(bytes);
    assert_int_equal(size, sample.files[file].size);
    assert_memory_equal(bytes, sample.files[file].bytes, size);
}

static void assert_says(const char *words) {
    if (strstr(err.message, words) == NULL) fail_msg("%s: no \"%s\"", err.message, words);
}

/* ---- whole files --------------------------------------------------------------------------- */

FACT(empty_folder_lacks_the_index) {
    open_folder(true);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_AGAIN);
    assert_int_equal(folder.files_count, 1);
    assert_int_equal(tw_data_folder_find(&folder, &sample.hash), TW_DATA_INDEX);
    assert_int_equal(tw_data_folder_find(&folder, &sample.shards[0].name), -1);
}

FACT(users_folder_is_read_as_it_is) {
    for (uint32_t i = 0; i < sample.files_count; i++) {
        if (i != 3) put_whole(i);
    }
    put(3, sample.files[3].name, sample.files[3].size - 1);
    open_folder(false);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
    assert_int_equal(folder.files_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        char name[TW_DATASET_FILE_BYTES];
        tw_data_folder_name(&folder, i, name);
        assert_string_equal(name, sample.files[i].name);
        assert_int_equal(folder.rows[i].state, i == 3 ? TW_DATA_ABSENT : TW_DATA_WHOLE);
        assert_int_equal(tw_data_folder_find(&folder, &folder.files[i].hash), (int)i);
    }
    assert_int_equal(tw_data_folder_train_whole(&folder), 1);
}

FACT(every_chunk_of_a_whole_file_is_read) {
    for (uint32_t i = 0; i < sample.files_count; i++) put_whole(i);
    open_folder(false);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
    for (uint32_t file = 0; file < folder.files_count; file++) {
        size_t at = 0;
        for (uint32_t idx = 0; idx < chunks(file); idx++) {
            uint32_t size = 0;
            assert_int_equal(tw_data_folder_read(&folder, file, idx, chunk, &size, &err), TW_OK);
            assert_memory_equal(chunk, sample.files[file].bytes + at, size);
            at += size;
        }
        assert_int_equal(at, sample.files[file].size);
    }
}

FACT(file_that_went_away_is_reported) {
    uint32_t size = 0;
    for (uint32_t i = 0; i < sample.files_count; i++) put_whole(i);
    open_folder(false);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
    tw_disk_remove(disk, sample.files[2].name);
    assert_int_equal(tw_data_folder_read(&folder, 2, 0, chunk, &size, &err), TW_IO);
    assert_says(sample.files[2].name);
    tw_disk_set_bad(disk, sample.files[3].name);
    assert_int_equal(tw_data_folder_read(&folder, 3, 1, chunk, &size, &err), TW_IO);
}

FACT(index_of_another_dataset_is_refused) {
    put_whole(0);
    tw_disk_flip(disk, "dataset", 40, 1);
    open_folder(false);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_CORRUPT);
    assert_says("is another dataset than the run's");
    assert_true(tw_disk_exists(disk, "dataset"));
    open_folder(true);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_CORRUPT);
    /* A damaged index in the node's own folder is deleted and fetched again. */
    assert_false(tw_disk_exists(disk, "dataset"));
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_AGAIN);
}

FACT(index_without_bytes_or_with_a_bad_sector_is_reported) {
    put(0, "dataset", 0);
    open_folder(false);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_CORRUPT);
    assert_says("0 bytes");
    tw_disk_remove(disk, "dataset");
    put_whole(0);
    tw_disk_set_bad(disk, "dataset");
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_IO);
}

/* The index has the run's hash but is no valid index. Other peers cannot have a better one. */
FACT(hostile_index_with_the_right_hash_is_refused) {
    char text[16 * 1024];
    const char *const from[] = {"heldout 0.01", "train ", "vocab 300", "source text", "shard 0"};
    const char *const to[] = {"heldout 0.99", "train z", "vocab 000", "source ../x", "shard 9"};
    for (unsigned i = 0; i < 5; i++) {
        const size_t size = sample.files[0].size;
        memcpy(text, sample.files[0].bytes, size);
        text[size] = '\0';
        char *at = strstr(text, from[i]);
        if (at == NULL) at = strstr(text, "shard");
        memcpy(at, to[i], strlen(to[i]));
        const struct tw_id hash = tw_sha256(text, size);
        tw_data_folder_close(&folder);
        assert_int_equal(tw_data_folder_open(&folder, tw_disk_ops(disk), "data", &hash, true, &err),
                         TW_OK);
        const enum tw_status status = tw_data_folder_put_index(&folder, text, size, &err);
        if (status != TW_DATA && status != TW_LIMIT) fail_msg("%u: %d %s", i, status, err.message);
        assert_int_equal(folder.files_count, 1);
        assert_false(folder.has_index);
        tw_disk_remove(disk, "dataset");
    }
}

FACT(index_that_names_a_file_twice_is_refused) {
    sample.shards[1].name = sample.shards[0].name;
    size_t size = 0;
    char text[16 * 1024];
    assert_int_equal(tw_dataset_encode(&sample.index, text, sizeof(text), &size, &err), TW_OK);
    sample.hash = tw_sha256(text, size);
    open_folder(true);
    const enum tw_status status = tw_data_folder_put_index(&folder, text, size, &err);
    assert_int_equal(status, TW_DATA);
    assert_int_equal(err.status, TW_DATA);
    assert_says("twice");
}

FACT(index_that_came_wrong_leaves_nothing) {
    open_folder(true);
    sample.files[0].bytes[50] ^= 1;
    assert_int_equal(tw_data_folder_put_index(&folder, (char *)sample.files[0].bytes,
                                              sample.files[0].size, &err),
                     TW_CORRUPT);
    assert_false(tw_disk_exists(disk, "dataset"));
    sample.files[0].bytes[50] ^= 1;
    tw_disk_set_capacity(disk, 100);
    assert_int_equal(tw_data_folder_put_index(&folder, (char *)sample.files[0].bytes,
                                              sample.files[0].size, &err),
                     TW_IO);
    assert_false(folder.has_index);
    tw_disk_set_capacity(disk, 0);
    assert_int_equal(tw_data_folder_put_index(&folder, (char *)sample.files[0].bytes,
                                              sample.files[0].size, &err),
                     TW_OK);
    assert_true(folder.has_index);
    assert_whole_on_disk(0);
}

/* ---- arriving files ------------------------------------------------------------------------ */

FACT(every_file_arrives) {
    open_with_index();
    for (uint32_t file = 1; file < folder.files_count; file++) {
        fill_part(file);
        if (folder.files[file].head_bytes == 0) {
            assert_int_equal(tw_data_part_check(&part, &err), TW_OK);
        }
        assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
        assert_whole_on_disk(file);
    }
    open_folder(true);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
    for (uint32_t file = 0; file < folder.files_count; file++) {
        assert_int_equal(folder.rows[file].state, TW_DATA_WHOLE);
    }
}

FACT(wrong_chunk_is_refused_and_leaves_no_byte) {
    open_with_index();
    open_part(2);
    assert_int_equal(write_chunk(1), TW_AGAIN); /* the head first */
    sample.files[2].bytes[200] ^= 4;
    assert_int_equal(write_chunk(0), TW_CORRUPT);
    assert_false(part.has_head);
    sample.files[2].bytes[200] ^= 4;
    assert_int_equal(write_chunk(0), TW_OK);
    const size_t at = folder.files[2].head_bytes + 300000;
    sample.files[2].bytes[at] ^= 1;
    assert_int_equal(write_chunk(2), TW_CORRUPT);
    assert_says("chunk 2 of text-train-00000.shard");
    size_t size = 0;
    const uint8_t *bytes = tw_disk_bytes(disk, "text-train-00000.shard.part", &size);
    assert_int_equal(bytes[at], 0);
    sample.files[2].bytes[at] ^= 1;
    assert_int_equal(write_chunk(2), TW_OK);
    tw_data_part_close(&part);
}

FACT(wrong_tokenizer_is_found_when_it_is_whole) {
    open_with_index();
    sample.files[1].bytes[299999] ^= 1;
    fill_part(1);
    assert_int_equal(tw_data_part_check(&part, &err), TW_CORRUPT);
    sample.files[1].bytes[299999] ^= 1;
    assert_int_equal(write_chunk(1), TW_OK);
    assert_int_equal(tw_data_part_check(&part, &err), TW_OK);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
    assert_whole_on_disk(1);
}

FACT(shard_that_contradicts_the_index_is_named) {
    dataset_sample_free(&sample);
    const struct sample_options options = {.train = 1, .has_wrong_head = true};
    dataset_sample_make(&sample, &options);
    open_with_index();
    open_part(1);
    assert_int_equal(write_chunk(0), TW_DATA);
    assert_says("is not the shard that the index says");
    assert_false(part.has_head);
    tw_data_part_close(&part);
}

FACT(earlier_parts_are_found_again) {
    open_with_index();
    open_part(2);
    assert_int_equal(write_chunk(0), TW_OK);
    assert_int_equal(write_chunk(2), TW_OK);
    tw_data_part_close(&part);
    tw_disk_flip(disk, "text-train-00000.shard.part", folder.files[2].head_bytes + 262144, 0);
    open_folder(true);
    assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
    assert_int_equal(folder.rows[2].state, TW_DATA_PARTLY);
    assert_int_equal(folder.rows[3].state, TW_DATA_ABSENT);
    open_part(2);
    assert_true(part.has_head);
    assert_int_equal(tw_data_part_look(&part, have, chunk), 2);
    assert_int_equal(have[0], 5);
    assert_int_equal(write_chunk(1), TW_OK);
    assert_int_equal(write_chunk(3), TW_OK);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
    assert_whole_on_disk(2);
}

/* Another program changed, truncated or extended a .part file. */
FACT(damaged_part_keeps_its_correct_chunks) {
    char name[] = "text-train-00000.shard.part";
    open_with_index();
    const uint32_t head = folder.files[2].head_bytes;
    put(2, name, sample.files[2].size);
    tw_disk_flip(disk, name, head + 262144 + 5, 0x80); /* in chunk 2 */
    open_part(2);
    assert_int_equal(tw_data_part_look(&part, have, chunk), chunks(2) - 1);
    assert_int_equal(have[0] >> 2 & 1, 0);
    tw_data_part_close(&part);

    tw_disk_flip(disk, name, 130, 1); /* no chunk can be checked without an intact head */
    open_part(2);
    assert_false(part.has_head);
    assert_int_equal(tw_data_part_look(&part, have, chunk), 0);
    assert_int_equal(write_chunk(0), TW_OK);
    assert_int_equal(tw_data_part_look(&part, have, chunk), chunks(2) - 1);
    tw_data_part_close(&part);

    tw_disk_remove(disk, name);
    put(2, name, head + 262144 + 7); /* truncated within chunk 2 */
    open_part(2);
    assert_int_equal(tw_data_part_look(&part, have, chunk), 2);
    tw_data_part_close(&part);

    const uint32_t longer = sample.files[3].size > sample.files[2].size ? 3 : 2;
    tw_disk_remove(disk, name);
    put(longer, name, sample.files[longer].size);
    const struct tw_file_ops *ops = tw_disk_ops(disk);
    const int handle = ops->open_write(ops->ctx, folder.dir, name);
    assert_int_equal(ops->write(ops->ctx, handle, "x", 1, sample.files[2].size), 1);
    (void)ops->close(ops->ctx, handle);
    open_part(2); /* deletes the .part file and starts again */
    assert_false(part.has_head);
    tw_data_part_close(&part);
}

FACT(full_disk_is_reported_and_loses_nothing) {
    open_with_index();
    tw_disk_set_capacity(disk, sample.files[0].size + sample.files[2].size - 1);
    assert_int_equal(tw_data_part_open(&part, &folder, 2, &err), TW_IO);
    assert_says("free some space");
    assert_false(tw_disk_exists(disk, "text-train-00000.shard.part"));
    tw_disk_set_capacity(disk, sample.files[0].size + sample.files[2].size);
    fill_part(2);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
    assert_whole_on_disk(2);
    folder.reserve_bytes = 1000000;
    tw_disk_set_capacity(disk, sample.files[0].size + 2 * sample.files[2].size + 999999);
    assert_int_equal(tw_data_part_open(&part, &folder, 3, &err), TW_IO);
    assert_says("for checkpoints and logs: free some space");
}

/* Another program changes or deletes a .part file while chunks still arrive. */
FACT(part_that_was_changed_behind_our_back_is_not_made_whole) {
    open_with_index();
    fill_part(2);
    tw_disk_flip(disk, "text-train-00000.shard.part", 100000, 1);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_CORRUPT);
    assert_says("does not hold what was written");
    assert_false(tw_disk_exists(disk, sample.files[2].name));
    assert_false(tw_disk_exists(disk, "text-train-00000.shard.part"));
    fill_part(2);
    tw_disk_remove(disk, "text-train-00000.shard.part");
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_CORRUPT);
    open_part(2); /* an empty one */
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_CORRUPT);
    assert_false(tw_disk_exists(disk, sample.files[2].name));
    fill_part(2);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
    assert_whole_on_disk(2);
}

/* A fault at any system call while a file arrives gives an error status, and a second attempt
 * succeeds. */
FACT(any_fault_of_the_disk_is_survived) {
    open_with_index();
    const uint64_t begin = tw_disk_calls(disk);
    fill_part(2);
    assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
    const uint64_t calls = tw_disk_calls(disk) - begin;
    print_message("%u calls\n", (unsigned)calls);
    for (uint64_t at = 0; at < calls; at++) {
        disk_anew();
        open_with_index();
        tw_disk_fail_at(disk, tw_disk_calls(disk) + at, at % 2 == 0 ? EIO : ENOSPC);
        for (unsigned tries = 0; tries < 3; tries++) {
            enum tw_status status = tw_data_part_open(&part, &folder, 2, &err);
            for (uint32_t i = 0; i < chunks(2) && status == TW_OK; i++) status = write_chunk(i);
            if (status == TW_OK) status = tw_data_part_finish(&part, chunk, &err);
            tw_data_part_close(&part);
            if (status == TW_OK) break;
            assert_true(status == TW_IO || status == TW_CORRUPT);
            assert_true(tries < 2);
        }
        assert_whole_on_disk(2);
    }
}

/* After a power cut at any moment, a file that has its final name is complete. */
FACT(power_cut_leaves_no_false_file) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 7);
    for (unsigned cut = 0; cut < 60; cut++) {
        disk_anew();
        open_with_index();
        tw_disk_stop_at(disk, tw_disk_calls(disk) + cut / 3);
        enum tw_status status = tw_data_part_open(&part, &folder, 2, &err);
        for (uint32_t i = 0; i < 4 && status == TW_OK; i++) status = write_chunk(i);
        if (status == TW_OK) status = tw_data_part_finish(&part, chunk, &err);
        tw_disk_crash_random(disk, &rng);
        part.handle = -1;
        if (tw_disk_exists(disk, sample.files[2].name)) assert_whole_on_disk(2);
        open_folder(true);
        assert_int_equal(tw_data_folder_load(&folder, &err), TW_OK);
        if (folder.rows[2].state == TW_DATA_WHOLE) continue;
        open_part(2);
        (void)tw_data_part_look(&part, have, chunk);
        for (uint32_t i = 0; i < 4; i++) {
            if ((have[0] >> i & 1) == 0) assert_int_equal(write_chunk(i), TW_OK);
        }
        assert_int_equal(tw_data_part_finish(&part, chunk, &err), TW_OK);
        assert_whole_on_disk(2);
    }
}
