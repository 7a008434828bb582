/* Tests of worker/loop/trainer.c. */
#include "tests/test.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

#include "proto/worker_request.h"
#include "tests/worker/loop/fake_worker.h"

/* The real link and loop, in one thread with a fake daemon: a test queues requests, then runs
 * turns. */
static void worker_open(void) {
    fake_worker_attach(&(struct stub_learner){0});
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
}

static void worker_start(void) {
    worker_open();
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
}

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
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

static void send_kind(uint32_t kind) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = kind;
    fake_daemon_send(&dae, &msg);
}

static bool answered(uint32_t kind) {
    struct tw_worker_msg msg;
    return fake_daemon_recv(&dae, kind, &msg);
}

/* An APPLY without parts: all parts are absent, but the round still counts. */
static struct tw_worker_msg apply_of(uint64_t round, uint64_t min_step) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_APPLY;
    msg.u.apply.round = round;
    msg.u.apply.fragment = (uint32_t)(round % 3);
    msg.u.apply.min_step = min_step;
    return msg;
}

static struct tw_worker_msg solo_of(uint64_t round) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_SOLO;
    msg.u.solo.round = round;
    msg.u.solo.fragment = (uint32_t)(round % 3);
    return msg;
}

FACT(fresh_worker_says_ready_and_trains) {
    struct tw_worker_msg msg;
    worker_start();
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_FRESH);
    assert_int_equal(msg.u.ready.step, 0);
    float *phi;
    void *u;
    tw_shm_home(&dae.shm, 0, &phi, &u);
    assert_memory_equal(phi, learner.theta, dae.shm.geometry.elements * sizeof(float));
    for (uint32_t p = 0; p < 3; p++) {
        struct tw_shm_view view;
        tw_shm_view(&dae.shm, p, &view);
        const struct tw_id digest =
            tw_shm_digest(view.phi, view.u, view.elements, dae.shm.momentum);
        assert_memory_equal(&digest, &view.state.digest, sizeof(digest));
        assert_int_equal(view.state.rounds, 0);
    }
    turns(3);
    assert_false(answered(TW_WMSG_READY));
    assert_int_equal(dae.steps_seen, 3);
    assert_int_equal(dae.last_step.step, 3);
    assert_int_equal(dae.last_step.tokens, 3 * 2 * 16);
    assert_int_equal(atomic_load(&tw_shm_control(&dae.shm)->step), 3);
}

FACT(apply_waits_for_its_step) {
    struct tw_worker_msg msg = apply_of(0, 3);
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    fake_daemon_send(&dae, &msg);
    turns(2);
    assert_false(answered(TW_WMSG_APPLIED));
    turns(1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg));
    assert_int_equal(msg.u.applied.status, TW_OK);
    assert_int_equal(msg.u.applied.rounds, 1);
    turns(3);
    assert_false(answered(TW_WMSG_APPLIED)); /* once */
}

FACT(one_fragment_keeps_its_order) {
    struct tw_worker_msg apply = apply_of(0, 2), solo_same = solo_of(3), solo_other = solo_of(1);
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    fake_daemon_send(&dae, &apply);
    fake_daemon_send(&dae, &solo_same);
    fake_daemon_send(&dae, &solo_other);
    turns(1);
    struct tw_worker_msg msg;
    /* fragment 1 does not wait for fragment 0 */
    assert_true(fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg));
    assert_int_equal(msg.u.applied.fragment, 1);
    assert_false(answered(TW_WMSG_APPLIED));
    turns(1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg));
    assert_int_equal(msg.u.applied.rounds, 1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg));
    assert_int_equal(msg.u.applied.rounds, 4);
    assert_false(answered(TW_WMSG_APPLIED));
}

FACT(full_queue_leaves_packets_in_the_socket) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    int got = 0;
    for (int i = 0; i < TW_WAITING_MAX + 6; i++) {
        struct tw_worker_msg msg = apply_of((uint64_t)i * 3, 20);
        fake_daemon_send(&dae, &msg);
        if (i % 8 == 7) turns(1); /* so that the socket buffer never fills */
    }
    assert_int_equal(trainer.waiting_count, TW_WAITING_MAX);
    assert_int_equal(trainer.step, 8);
    turns(12);
    while (answered(TW_WMSG_APPLIED)) got++;
    assert_int_equal(got, TW_WAITING_MAX + 6);
    assert_int_equal(trainer.waiting_count, 0);
}

FACT(paused_worker_answers_and_does_not_step) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    send_kind(TW_WMSG_PAUSE);
    turns(1); /* this turn takes a step, the next one pauses */
    struct tw_worker_msg msg = apply_of(0, 1000);
    fake_daemon_send(&dae, &msg);
    turns(1);
    /* a paused worker does not wait for min_step, which it would never reach */
    assert_true(answered(TW_WMSG_APPLIED));
    assert_int_equal(trainer.step, 1);
    send_kind(TW_WMSG_RESUME);
    turns(2);
    assert_int_equal(trainer.step, 2);
}

/* A PAUSE stops a long step at once and leaves everything as before that step. */
FACT(long_step_is_given_up_for_a_pause_and_taken_again) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    const size_t bytes = dae.shm.geometry.elements * sizeof(float);
    float *const before = malloc(bytes);
    memcpy(before, learner.theta, bytes);
    stub.step_us = 3600u * 1000 * 1000;
    send_kind(TW_WMSG_PAUSE);
    turns(1);
    assert_true(trainer.is_paused);
    assert_int_equal(trainer.step, 0);
    assert_int_equal(trainer.cursor, 0);
    assert_int_equal(trainer.tokens, 0);
    assert_memory_equal(learner.theta, before, bytes);
    free(before);
    struct tw_worker_msg msg = apply_of(0, 1000); /* an APPLY is answered as in any pause */
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_true(answered(TW_WMSG_APPLIED));
    stub.step_us = 0;
    send_kind(TW_WMSG_RESUME);
    turns(3);
    assert_int_equal(trainer.step, 2);
    assert_int_equal(trainer.cursor, 2 * 2 * 16);
}

FACT(short_step_is_completed_before_a_pause) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    trainer.step_us_mean = 1000;
    stub.step_us = 200 * 1000;
    send_kind(TW_WMSG_PAUSE);
    turns(1);
    assert_true(trainer.is_paused);
    assert_int_equal(trainer.step, 1);
}

FACT(exit_gives_a_long_step_up_too) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    stub.step_us = 3600u * 1000 * 1000;
    send_kind(TW_WMSG_EXIT);
    turns(1);
    assert_true(trainer.is_over);
    struct tw_worker_msg msg;
    assert_true(fake_daemon_recv(&dae, TW_WMSG_SNAPSHOT_DONE, &msg));
}

static unsigned evaluations;
static enum tw_status (*stub_heldout)(void *self, const float *params, double *loss,
                                      struct tw_error *error);

/* Computes a held-out loss. The second one is interrupted by a PAUSE. */
static enum tw_status heldout_and_pause(void *self, const float *params, double *loss,
                                        struct tw_error *error) {
    evaluations++;
    if (evaluations == 2) {
        stub.heldout_us = 3600u * 1000 * 1000;
        send_kind(TW_WMSG_PAUSE);
    }
    while (stub.stop != NULL && evaluations == 2 && !atomic_load(stub.stop)) continue;
    return stub_heldout(self, params, loss, error);
}

FACT(evaluation_is_given_up_for_a_pause_and_done_afterwards) {
    struct tw_worker_msg msg;
    dae.welcome.eval_steps = 1;
    evaluations = 0;
    worker_open();
    stub_heldout = learner.heldout;
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    assert_true(answered(TW_WMSG_READY)); /* start has also evaluated step 0 */
    learner.heldout = heldout_and_pause;
    turns(2); /* the loss of the anchor is stopped, then PAUSE is read */
    assert_true(trainer.is_paused);
    assert_int_equal(trainer.step, 1);
    turns(1);
    assert_int_equal(evaluations, 2); /* no evaluation begins during the pause */
    while (fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg))
        assert_int_equal(msg.u.evaluated.step, 0);
    stub.heldout_us = 0;
    send_kind(TW_WMSG_RESUME);
    turns(1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg));
    assert_int_equal(msg.u.evaluated.step, 1);
}

/* A node that joins has other parameters, and its next regular evaluation may be far away. */
FACT(loaded_parameters_are_evaluated_soon) {
    struct tw_worker_msg msg;
    dae.welcome.eval_steps = 1000;
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    assert_true(answered(TW_WMSG_EVALUATED)); /* at the start */
    turns(100);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg));
    assert_int_equal(msg.u.evaluated.step, 100);
    turns(50);
    for (uint32_t p = 0; p < dae.shm.fragments_count; p++) {
        assert_false(answered(TW_WMSG_EVALUATED));
        struct tw_worker_msg load = {.kind = TW_WMSG_LOAD};
        struct tw_shm_view view;
        tw_shm_view(&dae.shm, p, &view);
        load.u.load = (struct tw_wmsg_load){.fragment = p,
                                            .rounds = view.state.rounds,
                                            .digest = view.state.digest,
                                            .mode = TW_LOAD_KEEP};
        fake_daemon_send(&dae, &load);
        turns(1);
        assert_true(answered(TW_WMSG_APPLIED));
    }
    const uint64_t loaded_step = trainer.step;
    turns(99);
    assert_false(answered(TW_WMSG_EVALUATED));
    turns(2);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg));
    assert_in_range(msg.u.evaluated.step, loaded_step + 99, loaded_step + 101);
    turns(200);
    assert_false(answered(TW_WMSG_EVALUATED));
}

FACT(finished_worker_goes_on_when_it_is_told) {
    worker_start();
    struct tw_worker_msg msg = {.kind = TW_WMSG_FINISH};
    fake_daemon_send(&dae, &msg);
    turns(3);
    assert_int_equal(trainer.step, 1);
    msg.u.finish.goes_on = 1;
    fake_daemon_send(&dae, &msg);
    turns(3);
    assert_int_equal(trainer.step, 3); /* the turn that reads FINISH takes no step */
}

FACT(finished_worker_evaluates_when_all_is_quiet) {
    dae.welcome.eval_steps = 1000;
    dae.welcome.stop_step = 2;
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    assert_true(answered(TW_WMSG_EVALUATED)); /* at the start */
    turns(2);
    assert_true(trainer.is_finished);
    assert_false(answered(TW_WMSG_EVALUATED));
    struct tw_worker_msg msg = solo_of(0);
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_true(answered(TW_WMSG_APPLIED));
    turns(1); /* in this turn no message arrives */
    assert_true(fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg));
    assert_int_equal(msg.u.evaluated.step, 2);
    assert_true(isfinite(msg.u.evaluated.loss_anchor));
    /* two fragments of the anchor lag behind the live parameters */
    assert_true(msg.u.evaluated.loss_live < msg.u.evaluated.loss_anchor);
    assert_true(msg.u.evaluated.distance > 0);
    turns(1);
    assert_false(answered(TW_WMSG_EVALUATED));
    assert_int_equal(trainer.step, 2);
    assert_int_equal(trainer.snapshot_step, 2);
}

FACT(exit_takes_a_snapshot) {
    struct tw_snapshot_slot meta;
    worker_start();
    turns(5);
    send_kind(TW_WMSG_EXIT);
    turns(1);
    assert_true(trainer.is_over);
    assert_true(tw_shm_snapshot_newest(&dae.shm, &meta) >= 0);
    assert_int_equal(meta.step, 6);
    assert_int_equal(meta.updates, 6);
    assert_int_equal(meta.tokens, 6 * 2 * 16);
}

FACT(asked_snapshot_is_answered) {
    struct tw_worker_msg msg;
    dae.welcome.snapshot_steps = 1000;
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    assert_true(fake_daemon_recv(&dae, TW_WMSG_SNAPSHOT_DONE, &msg)); /* the first */
    turns(3);
    assert_false(answered(TW_WMSG_SNAPSHOT_DONE));
    send_kind(TW_WMSG_SNAPSHOT);
    send_kind(TW_WMSG_SNAPSHOT); /* two requests: one snapshot, two answers */
    turns(1);
    assert_true(answered(TW_WMSG_SNAPSHOT_DONE));
    assert_true(fake_daemon_recv(&dae, TW_WMSG_SNAPSHOT_DONE, &msg));
    assert_int_equal(msg.u.snapshot_done.step, 4);
    assert_false(answered(TW_WMSG_SNAPSHOT_DONE));
    struct tw_snapshot_slot meta;
    assert_int_equal(tw_shm_snapshot_check(&dae.shm, msg.u.snapshot_done.slot, &meta, &err), TW_OK);
    assert_int_equal(meta.step, 4);
}

FACT(restarted_worker_goes_on_from_its_snapshot) {
    worker_start();
    turns(8); /* snapshots at 0, 4, 8 */
    const float at_8 = learner.theta[100];
    turns(2);
    const float at_10 = learner.theta[100];
    struct tw_worker_msg msg = solo_of(1); /* a merge of one fragment after the snapshot */
    fake_daemon_send(&dae, &msg);
    turns(1);
    fake_worker_detach(); /* killed */

    struct tw_snapshot_slot meta;
    fake_daemon_reconnect(&dae);
    dae.welcome.start = TW_START_SNAPSHOT;
    dae.welcome.slot = (uint32_t)tw_shm_snapshot_newest(&dae.shm, &meta);
    worker_start();
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_SNAPSHOT);
    assert_int_equal(msg.u.ready.step, 8);
    assert_true(learner.theta[100] == at_8);
    struct tw_shm_view view;
    /* phi contains the merge of this fragment, but the snapshot does not */
    tw_shm_view(&dae.shm, 1, &view);
    assert_memory_equal(learner.theta + dae.layout.fragment_begin[1], view.phi,
                        view.elements * sizeof(float));
    turns(2);
    assert_true(learner.theta[100] == at_10); /* the same batches are drawn again */
}

FACT(skipped_batches_are_not_drawn) {
    dae.welcome.batches_to_skip = 3;
    worker_start();
    assert_int_equal(trainer.cursor, 3 * 2 * 16);
    assert_int_equal(trainer.tokens, 0);
}

FACT(unusable_snapshot_starts_from_the_anchor) {
    struct tw_worker_msg msg;
    worker_start();
    turns(5);
    msg = solo_of(1);
    fake_daemon_send(&dae, &msg);
    turns(1);
    fake_worker_detach();
    fake_daemon_reconnect(&dae);
    dae.welcome.start = TW_START_SNAPSHOT;
    dae.welcome.slot = 0;
    ((uint8_t *)tw_shm_snapshot_data(&dae.shm, 0))[9] ^= 1;
    worker_start();
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_ANCHOR);
    assert_int_equal(msg.u.ready.step, 6);
    assert_int_equal(stub.updates, 0);
    for (uint32_t p = 0; p < 3; p++) {
        struct tw_shm_view view;
        tw_shm_view(&dae.shm, p, &view);
        assert_memory_equal(learner.theta + dae.layout.fragment_begin[p], view.phi,
                            view.elements * sizeof(float));
    }
}

FACT(clock_runs_with_the_contributors) {
    worker_start();
    turns(3);
    /* before the first CLOCK, the clock counts this node's own tokens */
    assert_int_equal(tw_trainer_clock(&trainer), 96);
    struct tw_worker_msg msg = {.kind = TW_WMSG_CLOCK};
    msg.u.clock =
        (struct tw_wmsg_clock){.clock_tokens = 1000, .tokens_listed = 96, .contributors = 4};
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_int_equal(tw_trainer_clock(&trainer), 1000 + 32 * 4);
    /* the estimate was too fast: the clock waits, but does not go back */
    msg.u.clock.clock_tokens = 1001;
    msg.u.clock.tokens_listed = 128;
    msg.u.clock.contributors = 0;
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_int_equal(tw_trainer_clock(&trainer), 1128);
    msg.u.clock.clock_tokens = UINT64_MAX;
    msg.u.clock.contributors = UINT32_MAX;
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_int_equal(tw_trainer_clock(&trainer), dae.run.train.tokens);
    msg.u.clock.clock_tokens = 500; /* another lineage may have fewer tokens */
    msg.u.clock.contributors = 1;
    fake_daemon_send(&dae, &msg);
    turns(1);
    assert_in_range(tw_trainer_clock(&trainer), 500, 1000);
}

FACT(times_add_up) {
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    stub.step_us = 2000;
    uint64_t step_us = 0, sync_us = 0;
    for (int i = 0; i < 5; i++) {
        turns(1);
        (void)answered(TW_WMSG_FATAL);
        step_us += dae.last_step.step_us;
        sync_us += dae.last_step.sync_us;
    }
    assert_true(step_us >= 10000);            /* the steps slept */
    assert_true(sync_us < UINT64_C(1) << 40); /* never wrapped */
    assert_int_equal(trainer.step_us, 0);     /* sent in STEP */
}

enum { EVALUATION_CPU_US = 40000 };

static uint64_t thread_cpu_us(void) {
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static enum tw_status costly_heldout(void *self, const float *params, double *loss,
                                     struct tw_error *reason) {
    const uint64_t end_us = thread_cpu_us() + EVALUATION_CPU_US;
    *loss = 1;
    while (thread_cpu_us() < end_us) {
    }
    return TW_OK;
}

FACT(evaluation_and_pause_are_not_sync) {
    dae.welcome.eval_steps = 2;
    worker_open();
    learner.heldout = costly_heldout;
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    turns(2);
    assert_int_equal(trainer.evaluated_step, 2);
    assert_true(trainer.sync_us < EVALUATION_CPU_US);
    send_kind(TW_WMSG_PAUSE);
    turns(2); /* the second turn waits in vain for a packet */
    assert_true(trainer.sync_us < EVALUATION_CPU_US);
}

FACT(poisoned_model_gives_up) {
    worker_start();
    stub.nan_from_step = 2;
    turns(TW_SKIPS_MAX);
    assert_int_equal(tw_trainer_turn(&trainer, &err), TW_CORRUPT);
}

FACT(non_finite_theta_is_never_saved) {
    worker_start();
    turns(3);
    learner.theta[5] = NAN;
    /* fails at the snapshot of step 4 */
    assert_int_equal(tw_trainer_turn(&trainer, &err), TW_CORRUPT);
    struct tw_snapshot_slot meta;
    assert_true(tw_shm_snapshot_newest(&dae.shm, &meta) >= 0);
    assert_int_equal(meta.step, 0);
}

FACT(gone_daemon_ends_the_loop) {
    worker_start();
    turns(1);
    (void)close(dae.fd);
    dae.fd = dup(0);
    assert_int_equal(tw_trainer_turn(&trainer, &err), TW_IO);
    assert_int_equal(trainer.step, 2); /* the worker completes its step first */
}

/* The daemon dies, and one with other memory comes: its checkpoint has phi = `phi` everywhere, with
 * `rounds` rounds in each fragment. With rounds = 0 it has none. */
static void next_daemon(struct tw_kept_state *kept, float phi, uint64_t rounds, uint64_t history) {
    int memfd;
    struct tw_run run = dae.run;
    assert_int_equal(tw_trainer_keep(&trainer, kept, &err), TW_OK);
    tw_trainer_deinit(&trainer);
    tw_daemon_link_unmap(&shm);
    tw_daemon_link_close(&link_);
    fake_daemon_close(&dae);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    dae.welcome.history = history;
    if (rounds > 0) dae.welcome.start = TW_START_SNAPSHOT;
    for (uint32_t p = 0; p < 3 && rounds > 0; p++) {
        float *home;
        void *u;
        const uint64_t elements = tw_shm_fragment_elements(&dae.shm, p);
        tw_shm_home(&dae.shm, p, &home, &u);
        for (uint64_t i = 0; i < elements; i++) home[i] = phi;
        const struct tw_shm_state anchor = {
            .rounds = rounds, .digest = tw_shm_digest(home, u, elements, dae.shm.momentum)};
        tw_shm_home_set(&dae.shm, p, &anchor);
    }
    link_.fd = dae.worker_fd;
    fake_daemon_welcome(&dae);
    assert_int_equal(tw_daemon_link_greet(&link_, "stub", &err), TW_OK);
    assert_int_equal(tw_daemon_link_attach(&link_, 1000, &welcome, &memfd, &err), TW_OK);
    assert_int_equal(tw_daemon_link_map(memfd, &welcome, &dae.layout, &shm, &err), TW_OK);
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
    assert_int_equal(tw_trainer_start_again(&trainer, kept, &err), TW_OK);
    tw_kept_state_free(kept);
}

/* Own work since the checkpoint stays in theta. Merges with others since then are taken out: the
 * node gets them again. */
FACT(worker_outlives_its_daemon) {
    enum { ROUNDS = 6 };
    struct tw_kept_state kept = {.phi = NULL};
    struct tw_worker_msg merge = apply_of(ROUNDS + 1, 0), solo = solo_of(ROUNDS + 2);
    worker_start();
    assert_true(answered(TW_WMSG_READY));
    turns(3);
    fake_daemon_send(&dae, &merge); /* fragment 1 */
    fake_daemon_send(&dae, &solo);  /* fragment 2 */
    turns(4);
    const size_t elements = (size_t)dae.shm.geometry.elements;
    float *const theta = malloc(elements * sizeof(float));
    memcpy(theta, learner.theta, elements * sizeof(float));
    struct tw_shm_view view;
    tw_shm_view(&dae.shm, 1, &view);
    const uint64_t begin = dae.layout.fragment_begin[1], end = dae.layout.fragment_begin[2];
    float *const anchor = malloc((size_t)view.elements * sizeof(float));
    memcpy(anchor, view.phi, (size_t)view.elements * sizeof(float));
    const uint64_t updates = stub.updates;

    struct tw_worker_msg msg;
    next_daemon(&kept, 0.25f, ROUNDS, 0);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_KEPT);
    assert_int_equal(msg.u.ready.step, 7);
    assert_int_equal(msg.u.ready.tokens, 7 * 2 * 16);
    assert_int_equal(stub.updates, updates);
    for (uint64_t i = 0; i < elements; i++) {
        const bool was_merged = i >= begin && i < end;
        const float wanted = was_merged ? theta[i] + (0.25f - anchor[i - begin]) : theta[i];
        assert_true(learner.theta[i] == wanted);
    }
    struct tw_snapshot_slot meta; /* at once: the checkpoint of the next save has this state */
    assert_true(tw_shm_snapshot_newest(&dae.shm, &meta) >= 0);
    assert_int_equal(meta.step, 7);
    turns(2);
    assert_int_equal(trainer.step, 9);

    /* A daemon without a checkpoint begins with the run's first weights, and theta stays in
     * fragments that were not merged. */
    memcpy(theta, learner.theta, elements * sizeof(float));
    next_daemon(&kept, 0, 0, 0);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_KEPT);
    assert_int_equal(msg.u.ready.step, 9);
    assert_memory_equal(learner.theta, theta, begin * sizeof(float));
    assert_memory_not_equal(learner.theta + begin, theta + begin, (end - begin) * sizeof(float));
    tw_shm_view(&dae.shm, 0, &view);
    const struct tw_id digest = tw_shm_digest(view.phi, view.u, view.elements, dae.shm.momentum);
    assert_memory_equal(&digest, &view.state.digest, sizeof(digest));
    assert_memory_not_equal(view.phi, theta, view.elements * sizeof(float));
    free(theta);
    free(anchor);
}

FACT(a_return_to_an_earlier_state_is_obeyed) {
    struct tw_worker_msg msg;
    struct tw_kept_state kept = {.phi = NULL};
    worker_start();
    turns(3);
    next_daemon(&kept, 0.25f, 6, 1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
    assert_int_equal(msg.u.ready.start, TW_START_ANCHOR); /* the checkpoint has no snapshot */
    assert_true(learner.theta[100] == 0.25f);
}

/* Its rounds do not compare with those of the checkpoint, so all of it came from others. */
FACT(another_lineage_is_taken_out) {
    struct tw_kept_state kept = {.phi = NULL};
    struct tw_worker_msg msg;
    worker_start();
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_LOAD;
    msg.u.load.mode = TW_LOAD_TURN;
    fake_daemon_send(&dae, &msg);
    turns(1);
    struct tw_shm_view view;
    tw_shm_view(&dae.shm, 0, &view);
    const float wanted = learner.theta[100] + (0.25f - view.phi[100]);
    next_daemon(&kept, 0.25f, 1000, 0);
    assert_true(learner.theta[100] == wanted);
}
