/* test_fetch.c - fetchers among honest peers: order, shares, windows, joiners. */
#include "tests/sync/fetch_world.h"
#include "tests/test.h"

static struct world world;

enum { SECOND = 1000 * 1000, MBIT = 125 * 1000 };

static int teardown(void **state) {
    world_deinit(&world);
    return 0;
}

#define FACT(name) TEST_IN(NULL, teardown, name)

/* Runs 10 ms. Returns false once limit_us is past. */
static bool tick(uint64_t limit_us) {
    world_run_until(&world, world.now_us + SECOND / 100);
    return world.now_us < limit_us;
}

/* Every chunk was asked for once and arrived. */
static void assert_every_chunk_once(uint16_t at) {
    const struct world_fetcher *node = &world.nodes[at];
    for (uint32_t i = 0; i < world.files_count; i++) {
        for (uint32_t idx = 0; idx < tw_fetch_chunks(&world.files[i]); idx++)
            assert_int_equal(node->copies[i][idx], 1);
    }
    assert_int_equal(node->chunks_taken, world_chunks(&world));
    assert_int_equal(world_view(&world, at).chunks_dropped, 0);
    assert_int_equal(node->strikes, 0);
}

/* ---- one donor ----------------------------------------------------------------------------- */

FACT(one_donor_gives_every_chunk_once) {
    world_init(&world, 2, 6, 20, 1);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_STARTS);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_every_chunk_once(joiner);
    assert_int_equal(world.nodes[donor].pulls_sent, 0);
    assert_true(tw_fetch_deadline(world.nodes[joiner].fetch) ==
                UINT64_MAX); /* the fetcher is idle */
}

FACT(first_shard_then_heldout_then_the_rest) {
    world_init(&world, 2, 6, 20, 2);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    const struct world_fetcher *node = &world.nodes[joiner];
    assert_int_equal(node->order_count, 9);
    uint32_t first =
        0; /* the tokenizer may finish while the head of the first shard is under way */
    while (world.files[node->order[first]].kind == TW_FETCH_TOKENIZER) first++;
    for (uint32_t i = 0; i < 9; i++) {
        const bool is_train = world.files[node->order[i]].kind == TW_FETCH_TRAIN;
        assert_int_equal(is_train, i == first || i >= 4);
    }
}

FACT(orders_of_two_nodes_differ) {
    world_init(&world, 0, 40, 2, 3);
    const uint16_t donor = world_donor(&world, 100 * MBIT);
    const uint16_t a = world_joiner(&world, MBIT), b = world_joiner(&world, MBIT);
    world_link(&world, donor, a);
    world_link(&world, donor, b);
    world_run_whole(&world, a, 60 * SECOND);
    world_run_whole(&world, b, 60 * SECOND);
    uint32_t same = 0;
    for (uint32_t i = 0; i < 41; i++) same += world.nodes[a].order[i] == world.nodes[b].order[i];
    assert_true(same < 10);
}

/* Asserts that a transfer takes at most `permille` / 1000 longer than its bytes need. */
static void assert_link_is_full(uint64_t bytes_per_s, uint64_t latency_us, uint64_t permille) {
    world_init(&world, 1, 4, 60, 4);
    world.latency_us = latency_us;
    const uint16_t donor = world_donor(&world, bytes_per_s), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 10000 * (uint64_t)SECOND);
    const uint64_t needed_us = world_bytes(&world) * SECOND / bytes_per_s;
    if (world.now_us > needed_us + needed_us * permille / 1000)
        fail_msg("%llu ms where %llu suffice", (unsigned long long)(world.now_us / 1000),
                 (unsigned long long)(needed_us / 1000));
    assert_every_chunk_once(joiner);
    world_deinit(&world);
}

FACT(links_fast_and_slow_are_kept_full) {
    assert_link_is_full(20 * MBIT, 50 * 1000, 30);
    assert_link_is_full(100 * MBIT, 30 * 1000, 50);
    assert_link_is_full(1 * MBIT, 50 * 1000, 30);
    assert_link_is_full(MBIT / 4, 50 * 1000, 30);
    world_init(&world, 0, 1, 1, 1);
}

FACT(slow_link_has_two_chunks_under_way) {
    world_init(&world, 0, 2, 20, 5);
    const uint16_t donor = world_donor(&world, MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    for (uint32_t i = 0; i < 60; i++) {
        world_run_until(&world, i * SECOND);
        assert_true(world_view(&world, joiner).asked <= 2);
    }
    assert_in_range(world_view(&world, joiner).peers[donor].chunk_us, 2090000, 2110000);
}

/* A cap of 1 Mbit/s on a link of 100 Mbit/s: requests keep to the cap, and other traffic goes
 * first. */
FACT(download_cap_limits_the_requests) {
    struct tw_rate download;
    world_init(&world, 0, 4, 60, 6);
    const uint16_t donor = world_donor(&world, 100 * MBIT), joiner = world_joiner(&world, MBIT);
    tw_rate_init(&download, MBIT, tw_rate_burst_bytes(MBIT), 0);
    tw_fetch_set_download(world.nodes[joiner].fetch, &download);
    world_link(&world, donor, joiner);
    world_run_until(&world, 60 * SECOND);
    const uint64_t taken = world_view(&world, joiner).chunks_taken;
    assert_in_range(taken * TW_CHUNK_BYTES_MAX, 57 * (uint64_t)MBIT, 62 * (uint64_t)MBIT);
    /* Other traffic always fills the whole cap. The fetcher still gets one chunk in ten seconds. */
    for (uint32_t i = 1; i <= 1000; i++) {
        world_run_until(&world, 60 * SECOND + i * (uint64_t)SECOND / 10);
        if (tw_rate_wait_us(&download, 1, world.now_us) == 0)
            tw_rate_spend(&download, TW_CHUNK_BYTES_MAX, world.now_us);
    }
    assert_in_range(world_view(&world, joiner).chunks_taken - taken, 5, 12);
    tw_rate_set(&download, 0, 0, world.now_us);
    world_run_whole(&world, joiner, 400 * (uint64_t)SECOND);
}

FACT(fast_link_has_eight_chunks_under_way) {
    world_init(&world, 0, 4, 60, 6);
    const uint16_t donor = world_donor(&world, 100 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_until(&world, 2 * SECOND);
    assert_int_equal(world_view(&world, joiner).asked, TW_FETCH_WINDOW_MAX);
}

/* ---- many nodes ------------------------------------------------------------------------------ */

static uint64_t time_with(uint32_t donors) {
    world_init(&world, 1, 8, 60, 7);
    for (uint32_t i = 0; i < donors; i++) (void)world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    for (uint16_t i = 0; i < joiner; i++) world_link(&world, joiner, i);
    world_run_whole(&world, joiner, 1000 * SECOND);
    assert_every_chunk_once(joiner);
    for (uint16_t i = 0; i < joiner; i++)
        assert_true(world.nodes[i].chunks_sent >= world_chunks(&world) / (2 * donors));
    world_deinit(&world);
    return world.now_us;
}

FACT(eight_donors_are_seven_times_as_fast_as_one) {
    const uint64_t one_us = time_with(1), eight_us = time_with(8);
    assert_true(eight_us * 7 < one_us);
    world_init(&world, 0, 1, 1, 1);
}

FACT(joiners_serve_each_other) {
    enum { JOINERS = 8 };
    world_init(&world, 1, 40, 16, 8);
    const uint16_t donor = world_donor(&world, 10 * MBIT);
    for (uint32_t i = 0; i < JOINERS; i++) (void)world_joiner(&world, 10 * MBIT);
    world_mesh(&world);
    for (uint16_t i = 1; i <= JOINERS; i++) world_run_whole(&world, i, 2000 * SECOND);
    const uint64_t copies_hundredths = 100 * world.nodes[donor].chunks_sent / world_chunks(&world);
    (void)printf("# %llu.%02llu copies left the donor for %d joiners\n",
                 (unsigned long long)(copies_hundredths / 100),
                 (unsigned long long)(copies_hundredths % 100), JOINERS);
    assert_true(copies_hundredths < 250);
    for (uint16_t i = 1; i <= JOINERS; i++)
        assert_true(world.nodes[i].chunks_taken <=
                    world_chunks(&world) + world_chunks(&world) / 50);
}

/* A joiner has one file in ten. Asked for random files, it would answer MISSING nine times of ten,
 * and 32 such answers in 30 s end the requests. Asked in the order in which it fetches, it has most
 * files. */
FACT(joiner_is_asked_for_files_that_it_has) {
    world_init(&world, 0, 600, 1, 19);
    const uint16_t donor = world_donor(&world, 40 * MBIT);
    const uint16_t a = world_joiner(&world, 40 * MBIT), b = world_joiner(&world, MBIT);
    world_link(&world, donor, a);
    while (world_view(&world, a).files_whole < 60) assert_true(tick(10 * SECOND));
    world_unlink(&world, donor, a);
    world_link(&world, a, b);
    world_run_until(&world, world.now_us + 20 * SECOND);
    assert_in_range(world_view(&world, b).files_whole, 54, 70);
}

FACT(donor_that_leaves_is_replaced) {
    world_init(&world, 1, 4, 30, 9);
    const uint16_t a = world_donor(&world, 10 * MBIT), b = world_donor(&world, 10 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    world_link(&world, a, joiner);
    world_run_until(&world, 4 * SECOND);
    assert_true(world.nodes[joiner].chunks_taken > 4);
    world_unlink(&world, a, joiner);
    world_run_until(&world, 5 * SECOND);
    assert_int_equal(world_view(&world, joiner).asked, 0);
    world_link(&world, b, joiner);
    world_run_whole(&world, joiner, 100 * SECOND);
    /* Only chunks that were under way are asked for again. */
    assert_true(world.nodes[joiner].chunks_taken <= world_chunks(&world) + 2);
}

/* A slow donor needs 20 s for a chunk, and is known to be slow only after 10 s. */
FACT(slow_donor_does_not_hold_up_the_first_shard) {
    world_init(&world, 1, 20, 12, 10);
    const uint16_t slow = world_donor(&world, MBIT / 10), fast = world_donor(&world, 20 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    world_link(&world, fast, joiner);
    world_run_until(&world, SECOND / 2); /* the joiner has the index */
    world_link(&world, slow, joiner);
    while (world_view(&world, joiner).train_whole == 0) assert_true(tick(4 * SECOND));
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_true(world_view(&world, joiner).chunks_taken <= world_chunks(&world));
}

FACT(slow_donor_does_not_hold_up_the_end) {
    world_init(&world, 1, 6, 12, 10);
    const uint16_t slow = world_donor(&world, MBIT / 10), fast = world_donor(&world, 20 * MBIT);
    const uint16_t joiner = world_joiner(&world, MBIT);
    world_link(&world, fast, joiner);
    while (world_view(&world, joiner).files_whole < 7) assert_true(tick(20 * SECOND));
    world_link(&world, slow, joiner);
    world_run_whole(&world, joiner, 4 * SECOND);
    assert_int_equal(world.nodes[joiner].asked_of[slow], 1);
}

/* A slow donor holds up a chunk, so a second copy is requested. If that peer leaves, another peer
 * is asked. */
FACT(second_copy_is_asked_of_another_when_its_peer_leaves) {
    world_init(&world, 0, 1, 20, 17);
    const uint16_t slow = world_donor(&world, MBIT / 10), joiner = world_joiner(&world, MBIT);
    const uint16_t a = world_donor(&world, 8 * MBIT), b = world_donor(&world, 8 * MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    tw_fetch_init(node->fetch, &node->id, 0);
    node->has[0] = true;
    world_know(&world, joiner);
    world_link(&world, a, joiner);
    world_run_until(&world, SECOND); /* the joiner has the head */
    world_link(&world, slow, joiner);
    assert_int_equal(node->copies[1][9], 1);
    assert_int_equal(node->asked_of[slow], 1);
    world_link(&world, b, joiner);
    while (node->copies[1][9] < 2) assert_true(tick(9 * SECOND)); /* the slow donor's chunk */
    world.nodes[a].manner = world.nodes[b].manner = MUTE;
    const uint64_t pulls = node->pulls_of[a] + node->pulls_of[b];
    const uint16_t asked = node->last_pull_us[a] > node->last_pull_us[b] ? a : b;
    const uint16_t other = asked == a ? b : a;
    world.nodes[other].manner = HONEST;
    world_run_until(&world, world.now_us + SECOND);
    assert_int_equal(node->pulls_of[a] + node->pulls_of[b], pulls); /* two copies at most */
    world_unlink(&world, asked, joiner);
    world_run_whole(&world, joiner, SECOND);
    assert_true(world.now_us < 10 * SECOND); /* before the slow donor counts as silent */
}

FACT(chunks_under_way_are_bounded_in_all) {
    world_init(&world, 1, 70, 60, 11);
    world.latency_us = 100 * 1000;
    const uint16_t joiner = world_joiner(&world, MBIT);
    world.nodes[joiner].store_us = 4 * SECOND; /* a slow disk */
    for (uint32_t i = 1; i < WORLD_NODES_MAX; i++) (void)world_donor(&world, 400 * MBIT);
    for (uint16_t i = 1; i < WORLD_NODES_MAX; i++) world_link(&world, joiner, i);
    for (uint64_t at_us = 0; at_us < 60 * SECOND; at_us += SECOND / 4) {
        world_run_until(&world, at_us);
        assert_true(world.nodes[joiner].checks_open + world_view(&world, joiner).asked <=
                    TW_FETCH_ASKED_MAX);
    }
    assert_int_equal(world.nodes[joiner].checks_most, TW_FETCH_ASKED_MAX);
}

/* ---- files in the folder --------------------------------------------------------------------- */

FACT(chunks_already_here_are_not_asked_for) {
    world_init(&world, 1, 6, 20, 12);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    tw_fetch_init(node->fetch, &node->id, 0); /* a restart, with the index and half a shard */
    node->has[0] = node->has[3] = true;
    world_know(&world, joiner);
    for (uint32_t idx = 0; idx < 11; idx++) world_have(&world, joiner, 5, idx);
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_REST);
    assert_int_equal(world_view(&world, joiner).files_whole, 2);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(node->chunks_taken, world_chunks(&world) - 2 - 3 - 21 - 11);
    assert_int_equal(node->order[0], 1); /* held out */
    assert_int_equal(node->order[1], 5); /* the file that was begun before the restart */
}

FACT(begun_shard_is_the_first) {
    world_init(&world, 1, 20, 20, 13);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    tw_fetch_init(node->fetch, &node->id, 0);
    world_know(&world, joiner);
    world_have(&world, joiner, 9, 0);
    world_have(&world, joiner, 17, 0);
    world_have(&world, joiner, 17, 3);
    assert_int_equal(world_view(&world, joiner).file, 17);
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_FIRST);
    assert_int_equal(world_view(&world, joiner).chunks_here, 2);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(node->order[0], 17);
}

FACT(file_that_was_copied_in_stops_its_transfer) {
    world_init(&world, 0, 1, 40, 14);
    const uint16_t donor = world_donor(&world, 2 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_until(&world, 20 * SECOND);
    const uint32_t here = world_view(&world, joiner).chunks_here;
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_FIRST);
    assert_in_range(here, 5, 35);
    tw_fetch_have_file(world.nodes[joiner].fetch, 1);
    world_drain(&world, joiner);
    world.nodes[joiner].has[1] = true;
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_REST);
    world_run_whole(&world, joiner, 20 * SECOND);
    world_run_until(&world, world.now_us + 10 * SECOND);
    assert_in_range(world.nodes[joiner].asked_of[donor], here + 2 + 3, here + 2 + 3 + 3);
    assert_in_range(world_view(&world, joiner).chunks_dropped, 1, 3); /* were under way */
}

FACT(lost_file_is_fetched_again) {
    world_init(&world, 0, 3, 10, 15);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    world_link(&world, donor, joiner);
    world_run_whole(&world, joiner, 60 * SECOND);
    for (uint32_t file = 0; file < 4; file++) {
        world_lose(&world, joiner, file);
        world_lose(&world, joiner, file); /* no further effect */
    }
    assert_int_equal(world_view(&world, joiner).stage, TW_FETCH_FIRST);
    assert_int_equal(world_view(&world, joiner).bytes_here, 0);
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(world.nodes[joiner].chunks_taken, 2 * world_chunks(&world) - 2);
}

/* If a file is lost during its CHECK, the answer says nothing about the bytes that replace it. */
FACT(file_lost_while_it_is_checked_is_fetched_again) {
    world_init(&world, 0, 1, 2, 18);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    struct world_fetcher *node = &world.nodes[joiner];
    tw_fetch_init(node->fetch, &node->id, 0);
    node->has[1] = true;
    node->store_us = SECOND;
    world_know(&world, joiner);
    world_link(&world, donor, joiner);
    while (world_view(&world, joiner).bytes_here < world_view(&world, joiner).bytes_count)
        assert_true(tick(20 * SECOND));
    assert_false(node->has[0]);
    world_lose(&world, joiner, 0);
    world_run_until(&world, world.now_us + SECOND + SECOND / 2); /* the answer comes */
    assert_false(node->has[0]);
    world_run_whole(&world, joiner, 20 * SECOND);
    assert_int_equal(node->chunks_taken, 6);
}

FACT(full_disk_is_nobodys_fault) {
    world_init(&world, 0, 3, 10, 16);
    const uint16_t donor = world_donor(&world, 20 * MBIT), joiner = world_joiner(&world, MBIT);
    world.nodes[joiner].fails_to_store = true;
    world_link(&world, donor, joiner);
    world_run_until(&world, 60 * SECOND);
    assert_int_equal(world.nodes[joiner].strikes, 0);
    assert_in_range(world.nodes[joiner].pulls_sent, 5, 7); /* every 10 s */
    world.nodes[joiner].fails_to_store = false;
    world_run_whole(&world, joiner, 60 * SECOND);
    assert_int_equal(world.nodes[joiner].strikes, 0);
}

/* ---- files --------------------------------------------------------------------------------- */

TEST(ranges_cover_a_file) {
    const struct tw_fetch_file files[] = {
        {.bytes = 1},
        {.bytes = TW_CHUNK_BYTES_MAX},
        {.bytes = TW_CHUNK_BYTES_MAX + 1},
        {.bytes = 4096, .head_bytes = 4096},
        {.bytes = 4097, .head_bytes = 4096},
        {.bytes = 4096 + 3 * (uint64_t)TW_CHUNK_BYTES_MAX, .head_bytes = 4096},
    };
    const uint32_t chunks[] = {1, 1, 2, 1, 2, 4};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t at = 0, offset = 0;
        uint32_t bytes = 0;
        assert_int_equal(tw_fetch_chunks(&files[i]), chunks[i]);
        for (uint32_t idx = 0; idx < chunks[i]; idx++) {
            tw_fetch_range(&files[i], idx, &offset, &bytes);
            assert_int_equal(offset, at);
            assert_in_range(bytes, 1, TW_CHUNK_BYTES_MAX);
            if (idx == 0 && files[i].head_bytes > 0) assert_int_equal(bytes, 4096);
            at += bytes;
        }
        assert_int_equal(at, files[i].bytes);
    }
}

static void assert_plan_is_refused(const struct tw_fetch_file *file, uint32_t count,
                                   const char *word) {
    struct tw_error err;
    size_t bytes = 0;
    assert_int_equal(tw_fetch_plan(file, count, &bytes, &err), TW_LIMIT);
    if (strstr(err.message, word) == NULL) fail_msg("no '%s' in: %s", word, err.message);
}

TEST(memory_is_bounded_by_the_index) {
    struct tw_error err;
    size_t bytes = 0;
    const struct tw_fetch_file none = {.head_bytes = 0};
    const struct tw_fetch_file head = {.bytes = 1, .head_bytes = 2};
    const struct tw_fetch_file long_head = {.bytes = UINT64_MAX,
                                            .head_bytes = TW_CHUNK_BYTES_MAX + 1};
    const struct tw_fetch_file huge = {.bytes = UINT64_MAX, .head_bytes = 4096};
    const struct tw_fetch_file over = {.bytes = 4096 * (uint64_t)TW_CHUNK_BYTES_MAX + 1};
    assert_plan_is_refused(&none, 1, "file 0 of the dataset has 0 chunks");
    assert_plan_is_refused(&head, 1, "head of file 0");
    assert_plan_is_refused(&long_head, 1, "head of file 0");
    assert_plan_is_refused(&huge, 1, "chunks, not 1 to 4096");
    assert_plan_is_refused(&over, 1, "4097 chunks");
    assert_plan_is_refused(&over, TW_FETCH_FILES_MAX + 1, "65538 files");
    struct tw_fetch_file *files = calloc(TW_FETCH_FILES_MAX, sizeof(*files));
    assert_non_null(files);
    for (uint32_t i = 0; i < TW_FETCH_FILES_MAX; i++) files[i].bytes = over.bytes - 1;
    assert_int_equal(tw_fetch_plan(files, TW_FETCH_FILES_MAX, &bytes, &err), TW_OK);
    assert_true(bytes <= 35 * (size_t)MB);
    assert_true(tw_fetch_bytes() <= 128 * 1024);
    free(files);
    assert_int_equal(tw_fetch_plan(NULL, 0, &bytes, &err), TW_OK);
    assert_int_equal(bytes, 0);
}

TEST(dataset_of_65536_files_is_ordered_and_asked_for) {
    struct tw_error err;
    size_t bytes = 0;
    struct tw_fetch_file *files = calloc(TW_FETCH_FILES_MAX, sizeof(*files));
    assert_non_null(files);
    for (uint32_t i = 0; i < TW_FETCH_FILES_MAX; i++)
        files[i] =
            (struct tw_fetch_file){.hash = {{2, (uint8_t)i, (uint8_t)(i >> 8), (uint8_t)(i >> 16)}},
                                   .head_bytes = 4096,
                                   .bytes = 4097};
    assert_int_equal(tw_fetch_plan(files, TW_FETCH_FILES_MAX, &bytes, &err), TW_OK);
    void *memory = malloc(bytes);
    struct tw_fetch *fetch = aligned_alloc(64, (tw_fetch_bytes() + 63) / 64 * 64);
    assert_non_null(memory);
    assert_non_null(fetch);
    const struct tw_id self = {{7}};
    tw_fetch_init(fetch, &self, 0);
    tw_fetch_files(fetch, files, TW_FETCH_FILES_MAX, memory, 0);
    const struct tw_fetch_event up = {.kind = TW_FETCH_PEER_UP, .peer = 63, .id = {{1}}};
    tw_fetch_event(fetch, &up, 0);
    /* Fetches all files one after the other: at each WHOLE, the next head is requested. */
    static struct tw_fetch_action pulls[TW_FETCH_ASKED_MAX];
    uint32_t pulls_count = 0, whole = 0, taken_count = 0;
    uint64_t now_us = 0;
    while (whole < TW_FETCH_FILES_MAX) {
        struct tw_fetch_action action;
        while (tw_fetch_next_action(fetch, &action)) {
            if (action.kind == TW_FETCH_PULL) pulls[pulls_count++] = action;
            whole += action.kind == TW_FETCH_WHOLE;
        }
        if (whole == TW_FETCH_FILES_MAX) break;
        assert_in_range(pulls_count, 1, TW_FETCH_WINDOW_MAX);
        const struct tw_fetch_action pull = pulls[0];
        memmove(pulls, pulls + 1, --pulls_count * sizeof(pulls[0]));
        assert_int_equal(pull.count, 1);
        const struct tw_fetch_arrival arrival = {
            .peer = 63, .hash = pull.hash, .idx = pull.first, .size = pull.first == 0 ? 4096 : 1};
        struct tw_fetch_taken taken;
        assert_int_equal(tw_fetch_chunk(fetch, &arrival, &taken, ++now_us), TW_FETCH_TAKE);
        taken_count++;
        while (tw_fetch_next_action(fetch, &action)) pulls[pulls_count++] = action;
        const struct tw_fetch_event stored = {.kind = TW_FETCH_STORED, .number = taken.number};
        tw_fetch_event(fetch, &stored, now_us);
    }
    assert_int_equal(taken_count, 2 * TW_FETCH_FILES_MAX);
    assert_true(tw_fetch_deadline(fetch) == UINT64_MAX);
    free(files);
    free(memory);
    free(fetch);
}
