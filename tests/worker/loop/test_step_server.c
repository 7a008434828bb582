/* Tests of worker/loop/step_server.c: which requests are answered during a step, and which wait. */
#include "tests/test.h"

#include <poll.h>
#include <unistd.h>

#include "proto/worker_request.h"
#include "tests/worker/loop/fake_worker.h"

enum { PATIENCE_MS = 60000 };

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    fake_worker_attach(&(struct stub_learner){0});
    assert_int_equal(tw_trainer_init(&trainer, &link_, &welcome, &shm, &learner, &err), TW_OK);
    struct tw_worker_msg msg; /* skips HELLO */
    assert_false(fake_daemon_recv(&dae, TW_WMSG_CHECKED, &msg));
    return 0;
}

static int close_all(void **state) {
    fake_worker_detach();
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

/* Sends a request that always fails. Its answer holds the status. */
static void send_check(uint64_t tag) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_CHECK;
    msg.u.check.tag = tag;
    msg.u.check.elements = UINT64_MAX;
    fake_daemon_send(&dae, &msg);
}

static void send_solo(uint64_t round) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_SOLO;
    msg.u.solo.round = round;
    fake_daemon_send(&dae, &msg);
}

static uint64_t next_checked(void) {
    struct tw_worker_msg msg;
    struct pollfd wanted = {.fd = dae.fd, .events = POLLIN};
    assert_int_equal(poll(&wanted, 1, PATIENCE_MS), 1);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_CHECKED, &msg));
    assert_int_equal(msg.u.checked.status, TW_PROTO);
    return msg.u.checked.tag;
}

static bool is_silent(int ms) {
    struct pollfd wanted = {.fd = dae.fd, .events = POLLIN};
    return poll(&wanted, 1, ms) == 0;
}

FACT(checks_are_answered_while_a_step_runs) {
    tw_step_server_open(&trainer.side, false);
    for (uint64_t tag = 1; tag <= 100; tag++) {
        send_check(tag);
        assert_int_equal(next_checked(), tag);
    }
    (void)tw_step_server_close(&trainer.side);
}

FACT(the_rest_waits_for_the_boundary_in_order) {
    struct tw_worker_msg msg;
    tw_step_server_open(&trainer.side, false);
    for (uint64_t round = 0; round < 5; round++) {
        send_solo(round);
        send_check(round);
        assert_int_equal(next_checked(), round);
    }
    assert_true(is_silent(20));
    (void)tw_step_server_close(&trainer.side);
    send_solo(5);
    for (uint64_t round = 0; round < 6; round++) {
        assert_int_equal(tw_step_server_recv(&trainer.side, &msg, &err), TW_OK);
        assert_int_equal(msg.kind, TW_WMSG_SOLO);
        assert_int_equal(msg.u.solo.round, round);
    }
    assert_int_equal(tw_step_server_recv(&trainer.side, &msg, &err), TW_AGAIN);
}

FACT(closed_it_leaves_the_socket_alone) {
    struct tw_worker_msg msg;
    for (int i = 0; i < 50; i++) { /* the thread may be in poll or waiting for the next step */
        tw_step_server_open(&trainer.side, false);
        (void)tw_step_server_close(&trainer.side);
        send_check((uint64_t)i);
        if (i == 0) assert_true(is_silent(20));
        assert_int_equal(tw_step_server_recv(&trainer.side, &msg, &err), TW_OK);
        assert_int_equal(msg.u.check.tag, i);
    }
}

FACT(more_than_it_keeps_stays_in_the_socket) {
    struct tw_worker_msg msg;
    uint64_t seen = 0;
    tw_step_server_open(&trainer.side, false);
    for (uint64_t round = 0; round < TW_STEP_SERVER_KEPT_MAX; round++) {
        send_solo(round);
        if (round + 1 == TW_STEP_SERVER_KEPT_MAX) break;
        send_check(round); /* so that the socket buffer can hold all packets */
        assert_int_equal(next_checked(), round);
    }
    send_solo(TW_STEP_SERVER_KEPT_MAX);
    (void)tw_step_server_close(&trainer.side);
    /* its list is full or nearly full: no packet may be lost */
    tw_step_server_open(&trainer.side, false);
    (void)tw_step_server_close(&trainer.side);
    while (tw_step_server_recv(&trainer.side, &msg, &err) == TW_OK) {
        assert_int_equal(msg.u.solo.round, seen);
        seen++;
    }
    assert_int_equal(seen, TW_STEP_SERVER_KEPT_MAX + 1);
}

FACT(the_end_of_the_daemon_is_reported_once_all_is_read) {
    struct tw_worker_msg msg;
    tw_step_server_open(&trainer.side, false);
    send_solo(7);
    send_check(1);
    assert_int_equal(next_checked(), 1);
    assert_return_code(close(dae.fd), 0);
    dae.fd = -1;
    (void)poll(NULL, 0, 20);
    (void)tw_step_server_close(&trainer.side);
    assert_int_equal(tw_step_server_recv(&trainer.side, &msg, &err), TW_OK);
    assert_int_equal(msg.u.solo.round, 7);
    assert_int_equal(tw_step_server_recv(&trainer.side, &msg, &err), TW_IO);
    assert_int_equal(tw_trainer_turn(&trainer, &err), TW_IO);
}
