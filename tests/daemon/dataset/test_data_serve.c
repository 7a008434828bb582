/* Tests of daemon/dataset/data_store.c over a real folder: requests of peers, and the answers. This
 * test plays the transport: it holds chunks until it releases them. */
#include "tests/test.h"

#include <unistd.h>

#include "daemon/dataset/data_store.h"
#include "dataset_sample.h"

enum { HELD_MAX = 64 };

static struct {
    uv_loop_t loop;
    struct dataset_sample sample;
    char dir[32];
    struct tw_data_store *store;
    struct tw_data_serve serve;
    bool is_open;
    unsigned held_count, missing, lost;
    uint16_t missing_peer;
    struct {
        uint16_t peer;
        struct tw_chunk chunk;
    } held[HELD_MAX];
    bool is_down; /* the transport refuses chunks */
    bool has_budget;
    uint64_t budget; /* bytes that may be given, if has_budget */
} t;

#define PUMP_UNTIL(condition)                                                                      \
    while (!(condition)) (void)uv_run(&t.loop, UV_RUN_ONCE)

static void on_opened(void *user, enum tw_status status, const char *sentence) {
    if (status != TW_OK) fail_msg("%s", sentence);
    t.is_open = true;
}

static bool on_send(void *user, uint16_t peer, const struct tw_chunk *chunk) {
    if (t.is_down) return false;
    t.budget -= chunk->size < t.budget ? chunk->size : t.budget;
    assert_true(t.held_count < HELD_MAX);
    t.held[t.held_count].peer = peer;
    t.held[t.held_count++].chunk = *chunk;
    return true;
}

static void on_missing(void *user, uint16_t peer, const struct tw_id *hash) {
    t.missing++;
    t.missing_peer = peer;
}

static bool on_may_give(void *user, uint16_t peer, uint32_t bytes) {
    return !t.has_budget || bytes <= t.budget;
}

static void on_lost(void *user, uint32_t file, const char *sentence) {
    assert_int_equal(file, 1);
    assert_true(strlen(sentence) > 0);
    t.lost++;
}

static int setup(void **state) {
    memset(&t, 0, sizeof(t));
    const struct sample_options options = {.train = 2, .tokens = 1500000};
    dataset_sample_make(&t.sample, &options);
    (void)snprintf(t.dir, sizeof(t.dir), "/tmp/tw-serve-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    dataset_sample_write(&t.sample, 0, t.dir);
    dataset_sample_write(&t.sample, 1, t.dir); /* the second shard is missing */
    assert_int_equal(uv_loop_init(&t.loop), 0);
    const struct tw_data_store_config config = {.loop = &t.loop,
                                                .ops = tw_file_system(),
                                                .path = t.dir,
                                                .hash = t.sample.hash,
                                                .events = {.opened = on_opened}};
    struct tw_error err;
    assert_int_equal(tw_data_store_create(&t.store, &config, &err), TW_OK);
    static const struct tw_data_serve_events events = {on_send, on_missing, on_lost, on_may_give};
    tw_data_serve_init(&t.serve, &t.loop, t.store, &events, NULL);
    for (uint16_t i = 0; i < 4; i++) tw_data_serve_peer_up(&t.serve, i);
    return 0;
}

static int teardown(void **state) {
    tw_data_store_close(t.store);
    tw_data_serve_close(&t.serve);
    (void)uv_run(&t.loop, UV_RUN_DEFAULT);
    tw_data_serve_deinit(&t.serve);
    tw_data_store_destroy(t.store);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    for (uint32_t i = 0; i < t.sample.files_count; i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", t.dir, t.sample.files[i].name);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(t.dir), 0);
    dataset_sample_free(&t.sample);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

static enum tw_status pull(uint16_t peer, uint32_t file, uint32_t first, uint32_t count) {
    const struct tw_msg_pull message = {.hash = file == 0 ? t.sample.hash
                                                          : t.sample.shards[file - 1].name,
                                        .first = first,
                                        .count = count};
    return tw_data_serve_pull(&t.serve, peer, &message);
}

static void let_go(unsigned i, bool was_sent) {
    const uint16_t peer = t.held[i].peer;
    const struct tw_chunk chunk = t.held[i].chunk;
    t.held[i] = t.held[--t.held_count];
    assert_true(tw_data_serve_released(&t.serve, peer, &chunk, was_sent));
}

FACT(chunks_come_as_they_lie_in_the_file) {
    assert_int_equal(pull(0, 1, 0, 1), TW_AGAIN); /* the folder has not been read yet */
    PUMP_UNTIL(t.is_open);
    assert_int_equal(pull(0, 0, 0, 1), TW_OK);
    PUMP_UNTIL(t.held_count == 1);
    assert_int_equal(t.held[0].chunk.size, t.sample.files[0].size);
    assert_memory_equal(t.held[0].chunk.bytes, t.sample.files[0].bytes, t.held[0].chunk.size);
    let_go(0, true);
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[1]);
    assert_int_equal(pull(0, 1, 0, chunks), TW_OK);
    for (uint32_t i = 0; i < chunks; i++) {
        uint64_t at;
        uint32_t size;
        unsigned k = 0;
        PUMP_UNTIL(t.held_count > 0);
        while (k < t.held_count && t.held[k].chunk.idx != i) k++;
        assert_true(k < t.held_count);
        const struct tw_chunk *chunk = &t.held[k].chunk;
        tw_fetch_range(&t.store->folder.files[1], i, &at, &size);
        assert_int_equal(chunk->size, size);
        assert_true(tw_id_equal(&chunk->payload, &t.sample.shards[0].name));
        assert_memory_equal(chunk->bytes, t.sample.files[1].bytes + at, size);
        let_go(k, true);
    }
    assert_int_equal(t.serve.bytes_served, t.sample.files[0].size + t.sample.files[1].size);
}

FACT(two_chunks_of_a_peer_are_under_way_and_peers_take_turns) {
    PUMP_UNTIL(t.is_open);
    assert_int_equal(pull(0, 1, 0, 6), TW_OK);
    assert_int_equal(pull(1, 1, 0, 6), TW_OK);
    PUMP_UNTIL(t.held_count == 4 && !t.serve.is_reading);
    unsigned of_first = 0;
    for (unsigned i = 0; i < 4; i++) of_first += t.held[i].peer == 0;
    assert_int_equal(of_first, 2);
    assert_int_equal(tw_data_serve_takers(&t.serve), 2);
    let_go(0, true);
    PUMP_UNTIL(t.held_count == 4 && !t.serve.is_reading);
    assert_int_equal(t.serve.chunks_served, 1);
}

FACT(impossible_requests_break_the_protocol) {
    PUMP_UNTIL(t.is_open);
    const uint32_t chunks = tw_fetch_chunks(&t.store->folder.files[1]);
    assert_int_equal(pull(0, 1, 0, 0), TW_PROTO);
    assert_int_equal(pull(0, 1, chunks, 1), TW_PROTO);
    assert_int_equal(pull(0, 1, chunks - 1, 2), TW_PROTO);
    assert_int_equal(pull(0, 1, UINT32_MAX, 2), TW_PROTO);
    assert_int_equal(pull(0, 1, 0, TW_DATA_PULL_MAX + 1), TW_PROTO);
    struct tw_msg_pull message = {.count = 1};
    memset(&message.hash, 9, sizeof(message.hash));
    assert_int_equal(tw_data_serve_pull(&t.serve, 0, &message), TW_AGAIN); /* maybe the core's */
    assert_int_equal(t.missing, 0);
    assert_false(t.serve.is_reading);
}

FACT(file_that_is_not_whole_is_missing) {
    PUMP_UNTIL(t.is_open);
    assert_int_equal(pull(3, 2, 0, 1), TW_OK);
    assert_int_equal(t.missing, 1);
    assert_int_equal(t.missing_peer, 3);
}

FACT(requests_too_far_ahead_are_served_up_to_the_limit) {
    PUMP_UNTIL(t.is_open);
    for (unsigned i = 0; i < 10 * TW_DATA_RANGES_MAX; i++) {
        assert_int_equal(pull(0, 1, 0, 1), TW_OK);
    }
    assert_true(t.serve.peers[0].ranges_count <= TW_DATA_RANGES_MAX);
    for (unsigned i = 0; i < TW_DATA_RANGES_MAX; i++) {
        PUMP_UNTIL(t.held_count > 0);
        let_go(0, true);
    }
    assert_int_equal(pull(1, 1, 0, 1), TW_OK);
    PUMP_UNTIL(t.held_count > 0);
}

/* A peer without a budget is told that the file is missing, once, and asks another peer. */
FACT(peer_that_has_had_its_share_is_told_missing) {
    PUMP_UNTIL(t.is_open);
    t.has_budget = true;
    t.budget = TW_CHUNK_BYTES_MAX + TW_CHUNK_BYTES_MAX / 2; /* chunk 0 is short */
    assert_int_equal(pull(0, 1, 1, 3), TW_OK);
    assert_int_equal(pull(0, 1, 4, 2), TW_OK);
    PUMP_UNTIL(t.held_count == 1 && !t.serve.is_reading);
    assert_int_equal(t.missing, 1);
    assert_int_equal(t.serve.peers[0].ranges_count, 0);
    assert_int_equal(pull(1, 0, 0, 1), TW_OK); /* the index is small */
    PUMP_UNTIL(t.held_count == 2);
    assert_int_equal(pull(1, 1, 1, 1), TW_OK);
    assert_int_equal(t.missing, 2);
    t.has_budget = false;
    assert_int_equal(pull(1, 1, 1, 1), TW_OK);
    PUMP_UNTIL(t.held_count == 3);
}

FACT(peer_that_goes_leaves_nothing_behind) {
    PUMP_UNTIL(t.is_open);
    assert_int_equal(pull(2, 1, 0, 6), TW_OK);
    PUMP_UNTIL(t.held_count == 1);
    assert_true(t.serve.is_reading); /* the second chunk */
    tw_data_serve_peer_down(&t.serve, 2);
    let_go(0, false);
    PUMP_UNTIL(!t.serve.is_reading);
    assert_int_equal(t.held_count, 0);
    tw_data_serve_peer_up(&t.serve, 2); /* another peer */
    assert_int_equal(pull(2, 1, 0, 2), TW_OK);
    PUMP_UNTIL(t.held_count == 2);
    assert_int_equal(t.serve.chunks_served, 0);
    t.is_down = true; /* the transport refuses: nothing is released, and no buffer stays in use */
    let_go(0, true);
    let_go(0, true);
    assert_int_equal(pull(2, 1, 0, 4), TW_OK);
    PUMP_UNTIL(!t.serve.is_reading && t.serve.peers[2].ranges_count == 0);
    assert_int_equal(tw_data_serve_takers(&t.serve), 0);
}

FACT(vanished_file_is_missing_for_every_requester) {
    char path[128];
    PUMP_UNTIL(t.is_open);
    (void)snprintf(path, sizeof(path), "%s/%s", t.dir, t.sample.files[1].name);
    assert_int_equal(truncate(path, 5000), 0);
    assert_int_equal(pull(0, 1, 3, 2), TW_OK);
    assert_int_equal(pull(1, 1, 3, 2), TW_OK);
    PUMP_UNTIL(t.lost == 1);
    assert_int_equal(t.missing, 2);
    assert_int_equal(t.held_count, 0);
    assert_int_equal(pull(0, 1, 0, 1), TW_OK);
    assert_int_equal(t.missing, 3);
}

static void change_byte(uint32_t file, long at) {
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", t.dir, t.sample.files[file].name);
    FILE *to = fopen(path, "r+");
    assert_non_null(to);
    assert_int_equal(fseek(to, at, SEEK_SET), 0);
    assert_int_equal(fputc(t.sample.files[file].bytes[at] ^ 1, to),
                     t.sample.files[file].bytes[at] ^ 1);
    assert_int_equal(fclose(to), 0);
}

/* A chunk with changed bytes is not sent, nor is any chunk if the head, which checks all chunks,
 * has changed. The file is then no longer served. */
FACT(bytes_that_changed_on_the_disk_are_not_served) {
    PUMP_UNTIL(t.is_open);
    uint64_t at;
    uint32_t size;
    tw_fetch_range(&t.store->folder.files[1], 2, &at, &size);
    change_byte(1, (long)at + 100);
    assert_int_equal(pull(0, 1, 1, 1), TW_OK);
    PUMP_UNTIL(t.held_count == 1); /* other chunks are correct */
    let_go(0, true);
    assert_int_equal(pull(0, 1, 2, 1), TW_OK);
    PUMP_UNTIL(t.lost == 1);
    assert_int_equal(t.held_count, 0);
    assert_int_equal(t.missing, 1);
    assert_int_equal(pull(0, 1, 1, 1), TW_OK);
    assert_int_equal(t.missing, 2);
    uint32_t next = 0;
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 0); /* same size */
}

FACT(head_that_changed_on_the_disk_is_found) {
    PUMP_UNTIL(t.is_open);
    change_byte(1, 3000);
    assert_int_equal(pull(0, 1, 2, 1), TW_OK);
    PUMP_UNTIL(t.lost == 1);
    assert_int_equal(t.held_count, 0);
}

FACT(file_that_is_copied_back_is_served_again) {
    char path[128];
    uint32_t next = 0;
    PUMP_UNTIL(t.is_open);
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", t.dir, t.sample.files[1].name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pull(0, 1, 2, 1), TW_OK);
    PUMP_UNTIL(t.lost == 1);
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 0);
    dataset_sample_write(&t.sample, 2, t.dir); /* file 2 did not exist before */
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 2);
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 0);
    dataset_sample_write(&t.sample, 1, t.dir);
    assert_int_equal(truncate(path, 5000), 0); /* in progress */
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 0);
    dataset_sample_write(&t.sample, 1, t.dir);
    assert_int_equal(tw_data_folder_look(&t.store->folder, &next), 1);
    assert_int_equal(pull(0, 1, 2, 1), TW_OK);
    PUMP_UNTIL(t.held_count == 1);
    let_go(0, true);
}
