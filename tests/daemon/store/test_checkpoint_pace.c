/* Tests when the next checkpoint is due: the promise, its haste and its cost. */
#include "tests/test.h"

#include "daemon/store/generations.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)
#define MINUTES(n) SECONDS(60 * (n))
#define GB(n) ((uint64_t)((n)*1e9))

static struct tw_checkpoint_pace pace;

/* One checkpoint, begun when it was due. */
static void save(uint64_t took_us, uint64_t bytes) {
    tw_checkpoint_pace_began(&pace, pace.due_us);
    tw_checkpoint_pace_wrote(&pace, took_us, bytes);
}

TEST(small_checkpoints_keep_the_promise) {
    tw_checkpoint_pace_init(&pace, MINUTES(2), SECONDS(7));
    assert_int_equal(pace.due_us, SECONDS(127));
    save(SECONDS(1), GB(0.3));
    assert_int_equal(pace.due_us, SECONDS(247));
    assert_int_equal(pace.cost, TW_CHECKPOINT_CHEAP);
    tw_checkpoint_pace_init(&pace, 0, SECONDS(7));
    tw_checkpoint_pace_hurry(&pace, SECONDS(2), SECONDS(8));
    tw_checkpoint_pace_began(&pace, SECONDS(9)); /* on request */
    assert_true(pace.due_us == UINT64_MAX);
}

TEST(first_merge_and_deaths_are_saved_soon) {
    tw_checkpoint_pace_init(&pace, MINUTES(2), 0);
    tw_checkpoint_pace_hurry(&pace, SECONDS(2), SECONDS(10));
    assert_int_equal(pace.due_us, SECONDS(12));
    save(SECONDS(1), GB(0.1));
    tw_checkpoint_pace_hurry(&pace, SECONDS(3), SECONDS(14));
    assert_int_equal(pace.due_us, SECONDS(42)); /* flapping links do not write all the time */
    tw_checkpoint_pace_hurry(&pace, SECONDS(3), SECONDS(200));
    assert_int_equal(pace.due_us, SECONDS(42)); /* never later than it was due */
}

TEST(large_or_slow_files_are_written_less_often) {
    tw_checkpoint_pace_init(&pace, MINUTES(2), 0);
    save(SECONDS(5), GB(2.4));
    assert_int_equal(pace.spaced_us, MINUTES(10));
    assert_int_equal(pace.cost, TW_CHECKPOINT_WEARS);
    assert_int_equal(pace.due_us, MINUTES(12));
    tw_checkpoint_pace_hurry(&pace, SECONDS(3), MINUTES(3));
    assert_int_equal(pace.due_us, SECONDS(270)); /* a quarter of the interval in force */
    save(SECONDS(60), GB(240));
    assert_int_equal(pace.spaced_us, MINUTES(20)); /* a twentieth of the time */
    assert_int_equal(pace.cost, TW_CHECKPOINT_SLOW);
    save(MINUTES(30), GB(240));
    assert_int_equal(pace.spaced_us, MINUTES(60));
    save(SECONDS(1), GB(0.1));
    assert_int_equal(pace.spaced_us, MINUTES(2)); /* the disk is fast again */
}

TEST(short_interval_is_taken_as_it_is) {
    tw_checkpoint_pace_init(&pace, SECONDS(5), 0);
    save(SECONDS(20), GB(240));
    assert_int_equal(pace.spaced_us, SECONDS(5));
    tw_checkpoint_pace_init(&pace, MINUTES(120), 0);
    save(MINUTES(1), GB(240));
    assert_int_equal(pace.spaced_us, MINUTES(120));
}
