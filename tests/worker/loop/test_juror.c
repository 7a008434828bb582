/* test_juror.c - checks of contributions by a worker (worker/loop/juror.h). */
#include "tests/test.h"

#include <math.h>
#include <unistd.h>

#include "tests/worker/loop/fake_worker.h"
#include "worker/loop/juror.h"

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_OFF);
    fake_worker_attach(&(struct stub_learner){.batch_noise = 3});
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    return 0;
}

static int close_all(void **state) {
    fake_worker_detach();
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

static void turns(int count) {
    for (int i = 0; i < count; i++) assert_int_equal(tw_trainer_turn(&trainer, &err), TW_OK);
}

/* Trains, and returns the check of that work. The fragment is one part. */
static struct tw_worker_msg contribution(void) {
    enum { FRAGMENT = 1 };
    struct tw_worker_msg encode = {.kind = TW_WMSG_ENCODE}, encoded, judge;
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &encoded));
    const uint64_t count = tw_shm_fragment_elements(&shm, FRAGMENT);
    turns(24);
    encode.u.encode.fragment = FRAGMENT;
    encode.u.encode.parts_count = 1;
    encode.u.encode.parts[0].count = count;
    encode.u.encode.parts[0].out = fake_daemon_room(&dae, (uint32_t)(4 * count + 4096));
    fake_daemon_send(&dae, &encode);
    turns(1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_ENCODED, &encoded));
    assert_int_equal(encoded.u.encoded.status, TW_OK);
    assert_int_equal(encoded.u.encoded.cursor, 25 * learner.tokens_per_step);
    memset(&judge, 0, sizeof(judge));
    judge.kind = TW_WMSG_JUDGE;
    judge.u.judge.round = 7;
    judge.u.judge.seed = welcome.data_seed;
    judge.u.judge.cursor = judge.u.judge.tokens = encoded.u.encoded.cursor;
    judge.u.judge.draw = 99;
    judge.u.judge.fragment = FRAGMENT;
    judge.u.judge.parts_count = 1;
    judge.u.judge.parts[0].count = count;
    judge.u.judge.parts[0].in = encode.u.encode.parts[0].out;
    judge.u.judge.parts[0].in.bytes = encoded.u.encoded.bytes[0];
    return judge;
}

/* Sends the request and takes steps until it is answered. */
static struct tw_wmsg_judged judged(struct tw_worker_msg *judge) {
    struct tw_worker_msg answer;
    fake_daemon_send(&dae, judge);
    for (int i = 0; i < 1000; i++) {
        turns(1);
        if (!fake_daemon_recv(&dae, TW_WMSG_JUDGED, &answer)) continue;
        assert_int_equal(answer.u.judged.round, judge->u.judge.round);
        assert_int_equal(answer.u.judged.fragment, judge->u.judge.fragment);
        return answer.u.judged;
    }
    fail_msg("no answer");
    return (struct tw_wmsg_judged){.status = TW_AGAIN};
}

FACT(own_windows_score_and_others_do_not) {
    struct tw_worker_msg judge = contribution();
    const struct tw_wmsg_judged own = judged(&judge);
    assert_int_equal(own.status, TW_OK);
    assert_true(own.score > 4000);
    /* 8 of 50 windows, the least number of a check */
    assert_int_equal(own.share, (uint32_t)lround(1000 * sqrt(8.0 / 50)));
    judge.u.judge.cursor += 100 * judge.u.judge.tokens;
    const struct tw_wmsg_judged other = judged(&judge);
    assert_int_equal(other.status, TW_OK);
    assert_in_range(other.score + 3000, 0, 6000);
    assert_true(own.score > other.score + 2000);
}

FACT(what_it_cannot_judge_is_answered) {
    const struct tw_worker_msg good = contribution();
    struct tw_worker_msg judge = good;
    judge.u.judge.tokens = learner.tokens_per_step; /* two windows */
    assert_int_equal(judged(&judge).status, TW_AGAIN);
    judge = good;
    judge.u.judge.tokens = judge.u.judge.cursor + 1; /* more than it ever drew */
    assert_int_equal(judged(&judge).status, TW_AGAIN);
    judge = good;
    judge.u.judge.cursor = judge.u.judge.tokens = UINT64_C(1) << 40; /* more than an epoch */
    assert_int_equal(judged(&judge).status, TW_AGAIN);
    judge = good;
    judge.u.judge.fragment = 77;
    assert_int_equal(judged(&judge).status, TW_PROTO);
    judge = good;
    judge.u.judge.parts_count = TW_PARTS_MAX + 1;
    assert_int_equal(judged(&judge).status, TW_PROTO);
    judge = good;
    judge.u.judge.parts[0].count--;
    assert_int_not_equal(judged(&judge).status, TW_OK);
    judge = good;
    judge.u.judge.parts[0].in.bytes = 3;
    assert_int_equal(judged(&judge).status, TW_CORRUPT);
    judge = good;
    assert_int_equal(judged(&judge).status, TW_OK);
    learner.drawn_losses = NULL; /* a program of others */
    assert_int_equal(judged(&judge).status, TW_AGAIN);
}

static bool lacks_data(void *self) {
    return false;
}

/* With shards missing, and for two periods after, the place in the data tells nothing. */
FACT(no_place_is_told_while_data_are_missing) {
    struct tw_worker_msg encode = {.kind = TW_WMSG_ENCODE}, encoded;
    const uint64_t count = tw_shm_fragment_elements(&shm, 1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &encoded));
    learner.has_all_data = lacks_data;
    turns(24);
    encode.u.encode.fragment = 1;
    encode.u.encode.parts_count = 1;
    encode.u.encode.parts[0].count = count;
    encode.u.encode.parts[0].out = fake_daemon_room(&dae, (uint32_t)(4 * count + 4096));
    for (int i = 0; i < 2; i++) {
        fake_daemon_send(&dae, &encode);
        turns(1);
        assert_true(fake_daemon_recv(&dae, TW_WMSG_ENCODED, &encoded));
        assert_int_equal(encoded.u.encoded.cursor, i == 0 ? 0 : 50 * learner.tokens_per_step);
        learner.has_all_data = NULL;
        turns(24);
    }
}

FACT(a_pause_ends_the_check) {
    struct tw_worker_msg judge = contribution(), pause = {.kind = TW_WMSG_PAUSE}, answer;
    fake_daemon_send(&dae, &judge);
    fake_daemon_send(&dae, &pause);
    turns(2);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_JUDGED, &answer));
    assert_int_equal(answer.u.judged.status, TW_AGAIN);
}

TEST(a_score_is_welchs_t) {
    const double a[] = {1, 2, 3, 4}, b[] = {0, 1, 0, 1}, none[] = {2, 2, 2, 2};
    /* means 2.5 and .5, variances 5/3 and 1/3: 2 / sqrt(2 / 4) */
    assert_true(fabs(tw_juror_score(a, b, 4) - 2 * sqrt(2)) < 1e-12);
    assert_true(fabs(tw_juror_score(b, a, 4) + 2 * sqrt(2)) < 1e-12);
    assert_true(tw_juror_score(none, none, 4) == 0);
}

TEST(a_check_costs_two_thirds_of_a_round_at_most) {
    assert_int_equal(tw_juror_windows(7, 1), 0);
    assert_int_equal(tw_juror_windows(8, 1), 8);
    assert_int_equal(tw_juror_windows(80, 2), 20);
    assert_int_equal(tw_juror_windows(80, 8), 8);
    assert_int_equal(tw_juror_windows(1 << 20, 4), TW_JUROR_WINDOWS_MAX);
}
