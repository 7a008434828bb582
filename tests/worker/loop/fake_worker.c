#include "tests/worker/loop/fake_worker.h"

#include "tests/test.h"

struct fake_daemon dae;
struct tw_daemon_link link_;
struct tw_wmsg_welcome welcome;
struct tw_shm shm;
struct stub_learner stub;
struct tw_learner learner;
struct tw_trainer trainer;
struct tw_error err;

void fake_worker_attach(const struct stub_learner *kind) {
    int memfd;
    link_.fd = dae.worker_fd;
    fake_daemon_welcome(&dae);
    assert_int_equal(tw_daemon_link_greet(&link_, "stub", &err), TW_OK);
    assert_int_equal(tw_daemon_link_attach(&link_, 1000, &welcome, &memfd, &err), TW_OK);
    assert_int_equal(tw_daemon_link_map(memfd, &welcome, &dae.layout, &shm, &err), TW_OK);
    const struct tw_learner_config config = {
        .run = &welcome.run, .layout = &dae.layout, .data_seed = welcome.data_seed};
    stub = *kind;
    assert_int_equal(stub_learner_open(&stub, &learner, &config, &err), TW_OK);
}

void fake_worker_detach(void) {
    tw_trainer_deinit(&trainer);
    stub_learner_close(&stub);
    tw_daemon_link_unmap(&shm);
    tw_daemon_link_close(&link_);
}
