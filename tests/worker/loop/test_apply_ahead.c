/* Tests of worker/loop/trainer.c. An APPLY computed by the thread during steps gives the same
 * bits as one that the loop computes itself at the same step. */
#include "tests/test.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>

#include "proto/worker_request.h"
#include "tests/worker/loop/fake_worker.h"

enum { ROOM = 65536, FRAGMENTS = 3, TURNS_MAX = 100000, ROUNDS_MAX = 16 };

#define NEVER ((uint64_t)1 << 40)

static void worker_open(bool is_host_idle, bool is_remote) {
    struct tw_worker_msg msg;
    struct tw_run run;
    fake_run(&run);
    run.sync.sent = TW_SENT_KEEP;
    run.sync.mix_millionths = 0;
    run.sync.lead_millionths = 500000;
    run.sync.feedback_millionths = 900000;
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    fake_worker_attach(&(struct stub_learner){.is_remote = is_remote, .far.can_pack = is_remote});
    learner.is_host_idle = is_host_idle;
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
    assert_int_equal(tw_trainer_start(&trainer, &err), TW_OK);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_READY, &msg));
}

static void worker_close(void) {
    fake_worker_detach();
    fake_daemon_close(&dae);
}

static void turn(void) {
    if (tw_trainer_turn(&trainer, &err) != TW_OK) fail_msg("%s", err.message);
}

/* Calls turn() until a message of this kind arrives. Yields the core each time, so that the
 * applying thread can run. */
static struct tw_worker_msg wait_for(uint32_t kind) {
    struct tw_worker_msg msg;
    for (int i = 0; i < TURNS_MAX; i++) {
        if (fake_daemon_recv(&dae, kind, &msg)) return msg;
        turn();
        (void)sched_yield();
    }
    fail_msg("no answer of kind %u", kind);
    return msg;
}

static struct tw_span encode(uint64_t round) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_ENCODE};
    msg.u.encode.round = round;
    msg.u.encode.fragment = (uint32_t)(round % FRAGMENTS);
    msg.u.encode.parts_count = 1;
    msg.u.encode.parts[0].count = tw_shm_fragment_elements(&dae.shm, msg.u.encode.fragment);
    msg.u.encode.parts[0].out = fake_daemon_room(&dae, ROOM);
    fake_daemon_send(&dae, &msg);
    struct tw_span span = msg.u.encode.parts[0].out;
    const struct tw_worker_msg reply = wait_for(TW_WMSG_ENCODED);
    assert_int_equal(reply.u.encoded.status, TW_OK);
    span.bytes = reply.u.encoded.bytes[0];
    return span;
}

static void send_apply(uint64_t round, enum tw_apply_mode mode, struct tw_span result,
                       uint64_t min_step) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_APPLY};
    msg.u.apply.round = round;
    msg.u.apply.version = round / FRAGMENTS;
    msg.u.apply.fragment = (uint32_t)(round % FRAGMENTS);
    msg.u.apply.min_step = min_step;
    msg.u.apply.steps = 4;
    msg.u.apply.parts_count = 1;
    msg.u.apply.parts[0].count = tw_shm_fragment_elements(&dae.shm, msg.u.apply.fragment);
    msg.u.apply.parts[0].mode = (uint32_t)mode;
    msg.u.apply.parts[0].contributors = 2;
    msg.u.apply.parts[0].in = result;
    fake_daemon_send(&dae, &msg);
}

static void send_solo(uint64_t round) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_SOLO};
    msg.u.solo.round = round;
    msg.u.solo.fragment = (uint32_t)(round % FRAGMENTS);
    fake_daemon_send(&dae, &msg);
}

static void send_kind(uint32_t kind) {
    struct tw_worker_msg msg = {.kind = kind};
    fake_daemon_send(&dae, &msg);
}

static void assert_applied(uint32_t fragment, enum tw_status status, uint64_t rounds) {
    const struct tw_worker_msg reply = wait_for(TW_WMSG_APPLIED);
    assert_int_equal(reply.u.applied.fragment, fragment);
    assert_int_equal(reply.u.applied.status, status);
    assert_int_equal(reply.u.applied.rounds, rounds);
}

/* ---- the same -------------------------------------------------------------------------------- */

/* The result of one training: the step at which each APPLY was applied, the anchor, and theta, m
 * and v. */
struct life {
    uint64_t landed[ROUNDS_MAX];
    struct tw_id digests[FRAGMENTS];
    size_t elements;
    float *state;
};

static void look(struct life *life) {
    life->elements = 3 * (size_t)dae.layout.elements;
    life->state = malloc(life->elements * sizeof(float));
    assert_non_null(life->state);
    far_unlock(&stub.far);
    memcpy(life->state, stub.is_remote ? stub.remote : stub.arrays, life->elements * sizeof(float));
    far_lock(&stub.far);
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        struct tw_shm_view view;
        tw_shm_view(&dae.shm, p, &view);
        life->digests[p] = view.state.digest;
    }
}

/* Trains for six rounds. During the third, a SOLO arrives while the thread computes the APPLY. `at`
 * is an earlier training that sets the step at which each APPLY is applied, or NULL. */
static void live(struct life *life, bool is_host_idle, bool is_remote, const struct life *at) {
    static const enum tw_apply_mode modes[] = {TW_APPLY_MIX, TW_APPLY_SHIFT};
    worker_open(is_host_idle, is_remote);
    turn();
    for (uint64_t round = 0; round < 6; round++) {
        const struct tw_span sent = encode(round);
        const uint64_t earliest = trainer.step + (round == 2 ? 6 : 1);
        send_apply(round, modes[round % 4 == 3], sent, at == NULL ? earliest : at->landed[round]);
        if (round == 2) {
            turn();
            send_solo(12); /* a SOLO step moves fragment 0 far ahead of the others */
            assert_applied(0, TW_OK, 13);
        }
        assert_applied((uint32_t)(round % FRAGMENTS), TW_OK, round == 3 ? 13 : round + 1);
        life->landed[round] = trainer.step;
        assert_true(round == 3 || trainer.step >= earliest);
    }
    look(life);
    worker_close();
}

static void check_same(bool is_remote) {
    struct life early = {.elements = 0}, plain = {.elements = 0};
    live(&early, true, is_remote, NULL);
    live(&plain, false, is_remote, &early);
    assert_memory_equal(early.landed, plain.landed, sizeof(early.landed));
    assert_memory_equal(early.digests, plain.digests, sizeof(early.digests));
    assert_int_equal(early.elements, plain.elements);
    assert_memory_equal(early.state, plain.state, early.elements * sizeof(float));
    free(early.state), free(plain.state);
}

TEST(work_of_the_thread_gives_the_same_bits) {
    check_same(false);
}

TEST(so_it_is_where_parameters_are_far) {
    check_same(true);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int open_idle(void **state) {
    worker_open(true, false);
    turn();
    return 0;
}

static int close_all(void **state) {
    worker_close();
    return 0;
}

#define FACT(name) TEST_IN(open_idle, close_all, name)

FACT(it_lands_no_earlier_than_it_may) {
    struct tw_worker_msg msg;
    const struct tw_span sent = encode(0);
    const uint64_t least = trainer.step + 20;
    send_apply(0, TW_APPLY_MIX, sent, least);
    while (trainer.step + 1 < least) turn();
    assert_false(fake_daemon_recv(&dae, TW_WMSG_APPLIED, &msg));
    assert_true(trainer.early.is_begun);
    assert_applied(0, TW_OK, 1);
    assert_true(trainer.step >= least);
    assert_false(trainer.early.is_begun);
}

FACT(others_wait_for_it) {
    const struct tw_span first = encode(0), second = encode(1);
    const uint64_t least = trainer.step + 10;
    send_apply(0, TW_APPLY_MIX, first, least);
    send_apply(1, TW_APPLY_MIX, second, 0);
    assert_applied(0, TW_OK, 1);
    assert_true(trainer.step >= least);
    assert_applied(1, TW_OK, 2);
}

/* If rounds are faster than steps, one APPLY per step would never catch up. */
FACT(several_that_are_due_are_done_at_once) {
    const struct tw_span sent[FRAGMENTS] = {encode(0), encode(1), encode(2)};
    const uint64_t step = trainer.step;
    for (uint32_t f = 0; f < FRAGMENTS; f++) send_apply(f, TW_APPLY_MIX, sent[f], 0);
    for (uint32_t f = 0; f < FRAGMENTS; f++) assert_applied(f, TW_OK, f + 1);
    assert_true(trainer.step <= step + 1);
}

/* A second request for the same round may have other modes, which then apply. */
FACT(another_request_of_its_round_is_done_as_it_says) {
    const struct tw_span sent = encode(0);
    struct tw_wmsg_applied reply;
    struct tw_wmsg_apply apply = {.round = 0, .fragment = 0, .parts_count = 1, .steps = 4};
    apply.parts[0].count = tw_shm_fragment_elements(&dae.shm, 0);
    apply.parts[0].mode = TW_APPLY_MIX;
    apply.parts[0].in = sent;
    (void)tw_apply_ahead_is_ready(&trainer.early, &apply);
    assert_true(trainer.early.is_begun);
    apply.is_final = true;
    assert_int_equal(tw_apply_ahead_begin(&trainer.early, &apply, &reply, &err), TW_OK);
    assert_false(trainer.early.is_begun);
    struct tw_shm_view view;
    tw_shm_view(&dae.shm, 0, &view);
    assert_memory_equal(learner.theta, view.phi, (size_t)view.elements * sizeof(float));
    /* applied already: no work is left */
    assert_true(tw_apply_ahead_is_ready(&trainer.early, &apply));
}

FACT(a_pause_makes_it_land) {
    send_apply(0, TW_APPLY_MIX, encode(0), NEVER);
    turn();
    assert_true(trainer.early.is_begun);
    send_kind(TW_WMSG_PAUSE);
    assert_applied(0, TW_OK, 1);
    assert_true(trainer.is_paused);
}

FACT(a_worker_may_end_meanwhile) {
    send_apply(0, TW_APPLY_MIX, encode(0), NEVER);
    turn();
    assert_true(trainer.early.is_begun);
    send_kind(TW_WMSG_EXIT);
    turn();
    assert_true(trainer.is_over);
}

/* ---- refused payloads ------------------------------------------------------------------------ */

/* Fills a payload with one bf16 value. */
static void overwrite(struct tw_span span, uint16_t bits) {
    uint8_t *bytes = tw_shm_pool(&dae.shm, span.offset, span.bytes);
    for (uint32_t i = 0; i + 1 < span.bytes; i += 2) {
        bytes[i] = (uint8_t)bits;
        bytes[i + 1] = (uint8_t)(bits >> 8);
    }
}

/* The thread that computes an APPLY ahead finds that its result cannot be decoded. */
FACT(undecodable_result_is_refused) {
    const struct tw_span sent = encode(0);
    overwrite(sent, 0x7fc0); /* NaN */
    send_apply(0, TW_APPLY_MIX, sent, 0);
    assert_applied(0, TW_CORRUPT, 0);
    assert_false(trainer.early.is_begun);
}

/* The thread detects an overflow of the anchor, too. */
FACT(overflowing_step_changes_nothing) {
    struct tw_shm_view before, after;
    float *phi;
    void *u;
    const struct tw_span sent = encode(0);
    overwrite(sent, 0x7f60); /* 3e38: added to another 3e38, it overflows */
    tw_shm_home(&dae.shm, 0, &phi, &u);
    phi[0] = -3e38f;
    tw_shm_view(&dae.shm, 0, &before);
    send_apply(0, TW_APPLY_MIX, sent, 0);
    assert_applied(0, TW_CORRUPT, 0);
    tw_shm_view(&dae.shm, 0, &after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_true(phi[0] == -3e38f);
    for (size_t i = 0; i < after.elements; i++) assert_true(fabsf(learner.theta[i]) < 1e3f);
    assert_false(trainer.early.is_begun);
}

TEST(busy_host_has_no_thread) {
    struct tw_wmsg_apply apply = {.round = 0};
    worker_open(false, false);
    assert_null(trainer.early.work.merged);
    assert_true(tw_apply_ahead_is_ready(&trainer.early, &apply));
    assert_false(trainer.early.is_begun);
    worker_close();
}
