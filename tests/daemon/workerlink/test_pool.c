/* Tests of daemon/workerlink/pool.c. */

#include "base/rng.h"
#include "daemon/workerlink/pool.h"
#include "tests/test.h"

static struct tw_pool pool;

static struct tw_id id_of(uint64_t number) {
    struct tw_id id = {{0}};
    for (unsigned i = 0; i < 8; i++) id.bytes[i] = (uint8_t)(number >> (8 * i));
    id.bytes[31] = 1;
    return id;
}

static uint32_t reserve(uint32_t bytes) {
    uint32_t idx = UINT32_MAX;
    struct tw_error err;
    assert_int_equal(tw_pool_reserve(&pool, bytes, &idx, &err), TW_OK);
    return idx;
}

TEST(payload_gets_a_name_when_committed) {
    tw_pool_init(&pool, 4096);
    const struct tw_id id = id_of(7);
    const uint32_t idx = reserve(1000);
    assert_int_equal(tw_pool_find(&pool, &id), -1);
    assert_int_equal(tw_pool_commit(&pool, idx, &id, 100), idx);
    assert_int_equal(tw_pool_find(&pool, &id), (int)idx);
    assert_int_equal(pool.rows[idx].state, TW_PAYLOAD_HELD);
    assert_int_equal(pool.used, 128); /* the unused rest of the reservation is free again */
    tw_pool_put(&pool, idx);
    assert_int_equal(pool.used, 0);
    assert_int_equal(tw_pool_find(&pool, &id), -1);
}

static struct {
    uint64_t offset, bytes;
    unsigned count;
} freed;

static void note_freed(void *user, uint64_t offset, uint64_t bytes) {
    assert_ptr_equal(user, &freed);
    freed.offset = offset, freed.bytes = bytes;
    freed.count++;
}

TEST(large_payload_is_reported_when_its_last_reader_is_gone) {
    tw_pool_init(&pool, UINT64_C(4) * TW_POOL_GIVE_BACK);
    pool.on_free = note_freed;
    pool.user = &freed;
    const uint32_t small = reserve(TW_POOL_GIVE_BACK - 1), large = reserve(TW_POOL_GIVE_BACK + 7);
    tw_pool_put(&pool, small);
    assert_int_equal(freed.count, 0);
    tw_pool_hold(&pool, large);
    tw_pool_put(&pool, large);
    assert_int_equal(freed.count, 0);
    tw_pool_release(&pool, large);
    assert_int_equal(freed.count, 1);
    assert_int_equal(freed.offset, TW_POOL_GIVE_BACK);
    assert_int_equal(freed.bytes, TW_POOL_GIVE_BACK + 7);
}

TEST(equal_payloads_are_one) {
    tw_pool_init(&pool, 4096);
    const struct tw_id id = id_of(1);
    const uint32_t first = reserve(64), second = reserve(64);
    assert_int_equal(tw_pool_commit(&pool, first, &id, 64), first);
    assert_int_equal(tw_pool_commit(&pool, second, &id, 64), first);
    assert_int_equal(pool.count, 1);
    uint32_t idx;
    assert_int_equal(tw_pool_expect(&pool, &id, 64, &idx, NULL), TW_OK);
    assert_int_equal(idx, first);
    assert_int_equal(tw_pool_expect(&pool, &id, 65, &idx, NULL), TW_PROTO);
}

TEST(own_copy_replaces_one_still_arriving) {
    tw_pool_init(&pool, 4096);
    const struct tw_id id = id_of(1);
    uint32_t arriving;
    assert_int_equal(tw_pool_expect(&pool, &id, 64, &arriving, NULL), TW_OK);
    const uint32_t made = reserve(64);
    assert_int_equal(tw_pool_commit(&pool, made, &id, 64), made);
    assert_int_equal(tw_pool_find(&pool, &id), (int)made);
    assert_int_equal(pool.count, 1);
}

TEST(full_pool_refuses_and_counts) {
    tw_pool_init(&pool, 256);
    uint32_t idx;
    struct tw_error err;
    (void)reserve(200);
    assert_int_equal(tw_pool_reserve(&pool, 1, &idx, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "no room"));
    assert_int_equal(pool.refused, 1);
    tw_pool_init(&pool, (uint64_t)TW_PAYLOADS_MAX * 128);
    for (unsigned i = 0; i < TW_PAYLOADS_MAX; i++) (void)reserve(1);
    assert_int_equal(tw_pool_reserve(&pool, 1, &idx, &err), TW_LIMIT);
}

TEST(reader_keeps_a_dropped_payload_in_place) {
    tw_pool_init(&pool, 128);
    const struct tw_id id = id_of(1);
    const uint32_t idx = tw_pool_commit(&pool, reserve(128), &id, 128);
    uint32_t other;
    tw_pool_hold(&pool, idx);
    tw_pool_hold(&pool, idx);
    tw_pool_put(&pool, idx);
    assert_int_equal(tw_pool_find(&pool, &id), -1);
    tw_pool_release(&pool, idx);
    assert_int_equal(tw_pool_reserve(&pool, 128, &other, NULL), TW_LIMIT);
    tw_pool_release(&pool, idx);
    assert_int_equal(tw_pool_reserve(&pool, 128, &other, NULL), TW_OK);
}

TEST(freed_neighbours_become_one_gap) {
    tw_pool_init(&pool, 4 * 64);
    uint32_t rows[4], idx;
    for (unsigned i = 0; i < 4; i++) rows[i] = reserve(64);
    tw_pool_put(&pool, rows[1]);
    assert_int_equal(tw_pool_reserve(&pool, 128, &idx, NULL), TW_LIMIT);
    tw_pool_put(&pool, rows[2]);
    assert_int_equal(tw_pool_reserve(&pool, 128, &idx, NULL), TW_OK);
    assert_int_equal(pool.rows[idx].offset, 64);
}

/* Random operations keep the invariants: blocks are in bounds and do not overlap, `used` is
 * exact, and the pool is empty at the end. */
TEST(random_use_never_overlaps) {
    enum { LIVE_MAX = 40, OPS = 20000 };
    const uint64_t seed = 20260131;
    print_message("seed %llu\n", (unsigned long long)seed);
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    tw_pool_init(&pool, 64 * 1024);
    uint32_t live[LIVE_MAX];
    unsigned live_count = 0;
    for (unsigned op = 0; op < OPS; op++) {
        uint32_t idx;
        if (live_count < LIVE_MAX && tw_rng_below(&rng, 2) == 0) {
            const uint32_t bytes = 1 + (uint32_t)tw_rng_below(&rng, 5000);
            if (tw_pool_reserve(&pool, bytes, &idx, NULL) == TW_OK) live[live_count++] = idx;
        } else if (live_count > 0) {
            const unsigned pick = (unsigned)tw_rng_below(&rng, live_count);
            tw_pool_put(&pool, live[pick]);
            live[pick] = live[--live_count];
        }
        uint64_t end = 0, used = 0;
        assert_int_equal(pool.count, live_count);
        for (unsigned i = 0; i < pool.count; i++) {
            const struct tw_payload *row = &pool.rows[pool.order[i]];
            const uint64_t bytes = (row->bytes + 63u) / 64 * 64;
            assert_true(row->offset >= end);
            end = row->offset + bytes;
            used += bytes;
        }
        assert_true(end <= pool.bytes);
        assert_int_equal(pool.used, used);
    }
    while (live_count > 0) tw_pool_put(&pool, live[--live_count]);
    assert_int_equal(pool.used, 0);
}
