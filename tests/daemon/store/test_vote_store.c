/* Tests of daemon/store/vote_store.c on the simulated disk. */
#include "tests/test.h"

#include <errno.h>

#include "daemon/store/vote_store.h"
#include "state_sample.h"
#include "tests/daemon/store/disk.h"

static struct tw_disk *disk;
static struct tw_vote_store store;
static struct tw_vote vote;
static struct tw_error err;

static int make_disk(void **state) {
    disk = tw_disk_create();
    memset(&vote, 0, sizeof(vote));
    return 0;
}

static int drop_disk(void **state) {
    tw_disk_destroy(disk);
    return 0;
}

#define FACT(name) TEST_IN(make_disk, drop_disk, name)

static enum tw_vote_found look(struct tw_disk *on) {
    enum tw_vote_found found;
    if (tw_vote_store_open(&store, tw_disk_ops(on), "votes", &vote, &found, &err) != TW_OK) {
        fail_msg("%s", err.message);
    }
    return found;
}

/* Saves a vote for round `number`. */
static enum tw_status save(uint64_t number) {
    struct tw_vote next;
    sample_vote(&next, number, number);
    return tw_vote_store_save(&store, &next, &err);
}

static void fill(uint64_t count) {
    assert_int_equal(look(disk), TW_VOTE_NONE);
    for (uint64_t i = 1; i <= count; i++) assert_int_equal(save(i), TW_OK);
    tw_vote_store_close(&store);
}

FACT(the_newest_vote_comes_back_to_the_bit) {
    for (uint64_t count = 1; count <= 5; count++) {
        struct tw_vote expected;
        fill(count);
        assert_int_equal(look(disk), TW_VOTE_VALID);
        sample_vote(&expected, count, count);
        assert_memory_equal(&vote, &expected, sizeof(vote));
        tw_vote_store_close(&store);
        tw_disk_remove(disk, "vote.a");
        tw_disk_remove(disk, "vote.b");
    }
}

/* Flips a bit of every byte in both files. The damaged file may have held the newest vote, so
 * voting must stop. */
FACT(one_flipped_bit_is_never_voted_on) {
    fill(4);
    for (int f = 0; f < 2; f++) {
        size_t size;
        const char *name = f == 0 ? "vote.a" : "vote.b";
        assert_non_null(tw_disk_bytes(disk, name, &size));
        for (size_t i = 0; i < size; i++) {
            tw_disk_flip(disk, name, i, (uint8_t)(1 << i % 8));
            assert_int_equal(look(disk), TW_VOTE_CORRUPT);
            tw_vote_store_close(&store);
            tw_disk_flip(disk, name, i, (uint8_t)(1 << i % 8));
        }
    }
    assert_int_equal(look(disk), TW_VOTE_VALID);
}

FACT(a_lost_or_copied_file_is_noticed) {
    size_t size, other_size;
    fill(4);
    struct tw_disk *copy = tw_disk_copy(disk);
    tw_disk_remove(copy, "vote.b");
    assert_int_equal(look(copy), TW_VOTE_CORRUPT);
    assert_non_null(strstr(err.message, "vote.b is missing"));
    tw_disk_destroy(copy);
    copy = tw_disk_copy(disk);
    tw_disk_remove(copy, "vote.a");
    assert_int_equal(look(copy), TW_VOTE_CORRUPT);
    tw_disk_destroy(copy);
    /* Saves one vote twice. Now both files have the same length, so one can replace the other. */
    assert_int_equal(look(disk), TW_VOTE_VALID);
    assert_int_equal(save(5), TW_OK);
    assert_int_equal(save(5), TW_OK);
    const uint8_t *from = tw_disk_bytes(disk, "vote.a", &size);
    const uint8_t *to = tw_disk_bytes(disk, "vote.b", &other_size);
    assert_int_equal(size, other_size);
    for (size_t i = 0; i < size; i++) tw_disk_flip(disk, "vote.b", i, from[i] ^ to[i]);
    assert_int_equal(look(disk), TW_VOTE_CORRUPT);
    assert_non_null(strstr(err.message, "copy"));
}

FACT(an_unreadable_file_is_not_no_file) {
    enum tw_vote_found found;
    fill(2);
    for (uint64_t call = 1; call <= 8; call++) {
        tw_disk_fail_at(disk, tw_disk_calls(disk) + call, EIO);
        assert_int_equal(look(disk), TW_VOTE_VALID); /* a transient read error is tolerated */
        tw_vote_store_close(&store);
    }
    tw_disk_fail_at(disk, tw_disk_calls(disk), EACCES);
    assert_int_equal(tw_vote_store_open(&store, tw_disk_ops(disk), "votes", &vote, &found, &err),
                     TW_IO);
    for (int f = 0; f < 2; f++) {
        struct tw_disk *bad = tw_disk_copy(disk);
        tw_disk_set_bad(bad, f == 0 ? "vote.a" : "vote.b");
        assert_int_equal(look(bad), TW_VOTE_CORRUPT);
        assert_non_null(strstr(err.message, "Input/output error"));
        tw_disk_destroy(bad);
    }
}

/* Interrupts the save of vote `next` at each of its calls, and tests every subset of the pending
 * writes that a crash may keep. Returns the number of crash states. */
static unsigned crash_everywhere(struct tw_disk *base, uint64_t next, bool is_foul,
                                 enum tw_vote_found before_found) {
    unsigned states = 0;
    for (uint64_t stop = 0;; stop++) {
        struct tw_disk *trial = tw_disk_copy(base);
        assert_int_equal(look(trial), before_found);
        tw_disk_stop_at(trial, tw_disk_calls(trial) + stop);
        const bool is_acknowledged = save(next) == TW_OK;
        const size_t units = tw_disk_pending(trial);
        assert_true(units < 16);
        for (uint32_t set = 0; set < 1u << units; set++) {
            bool keep[16];
            struct tw_disk *after = tw_disk_copy(trial);
            for (size_t i = 0; i < units; i++) keep[i] = (set >> i & 1) != 0;
            tw_disk_crash(after, keep);
            const enum tw_vote_found found = look(after);
            if (is_acknowledged) {
                assert_int_equal(found, TW_VOTE_VALID);
                assert_int_equal(vote.round, next);
            } else if (is_foul) {
                /* neither an old vote nor "no vote" */
                assert_true(found == TW_VOTE_CORRUPT ||
                            (found == TW_VOTE_VALID && vote.round == next));
            } else if (before_found == TW_VOTE_VALID) {
                assert_int_equal(found, TW_VOTE_VALID);
                assert_true(vote.round == next || vote.round == next - 1);
            } else {
                assert_true(found == TW_VOTE_NONE ||
                            (found == TW_VOTE_VALID && vote.round == next));
            }
            tw_vote_store_close(&store);
            tw_disk_destroy(after);
            states++;
        }
        tw_disk_destroy(trial);
        if (is_acknowledged) return states;
    }
}

FACT(no_crash_loses_an_acknowledged_vote) {
    unsigned states = 0;
    for (int named = 0; named < 2; named++) {
        struct tw_disk *empty = tw_disk_create();
        tw_disk_set_named_only(empty, named == 1);
        states += crash_everywhere(empty, 1, false, TW_VOTE_NONE);
        tw_disk_destroy(empty);
        for (uint64_t count = 1; count <= 3; count++) {
            struct tw_disk *base = tw_disk_create();
            tw_disk_set_named_only(base, named == 1);
            assert_int_equal(look(base), TW_VOTE_NONE);
            for (uint64_t i = 1; i <= count; i++) assert_int_equal(save(i), TW_OK);
            states += crash_everywhere(base, count + 1, false, TW_VOTE_VALID);
            tw_disk_destroy(base);
        }
    }
    print_message("%u crash states\n", states);
    assert_true(states > 500);
}

FACT(saving_over_damage_never_brings_an_old_vote_back) {
    unsigned states = 0;
    for (int f = 0; f < 3; f++) {
        struct tw_disk *base = tw_disk_create();
        assert_int_equal(look(base), TW_VOTE_NONE);
        for (uint64_t i = 1; i <= 3; i++) assert_int_equal(save(i), TW_OK);
        if (f != 1) tw_disk_flip(base, "vote.a", 30, 1);
        if (f != 0) tw_disk_flip(base, "vote.b", 30, 1);
        states += crash_everywhere(base, 9, true, TW_VOTE_CORRUPT);
        assert_int_equal(look(base), TW_VOTE_CORRUPT);
        assert_int_equal(save(9), TW_OK);
        assert_int_equal(save(10), TW_OK);
        assert_int_equal(look(base), TW_VOTE_VALID);
        assert_int_equal(vote.round, 10);
        tw_disk_destroy(base);
    }
    print_message("%u crash states\n", states);
}

FACT(a_failed_save_may_be_tried_again) {
    const int errors[] = {EIO, ENOSPC, EINTR};
    fill(2);
    for (size_t e = 0; e < 3; e++) {
        for (uint64_t call = 0; call < 14; call++) {
            struct tw_disk *trial = tw_disk_copy(disk);
            assert_int_equal(look(trial), TW_VOTE_VALID);
            tw_disk_fail_at(trial, tw_disk_calls(trial) + call, errors[e]);
            const enum tw_status first = save(3);
            if (first != TW_OK) {
                assert_int_equal(first, TW_IO);
                assert_int_equal(save(3), TW_OK);
            }
            struct tw_rng rng;
            tw_rng_seed(&rng, call);
            tw_disk_crash_random(trial, &rng);
            assert_int_equal(look(trial), TW_VOTE_VALID);
            assert_int_equal(vote.round, 3);
            tw_disk_destroy(trial);
        }
    }
}
