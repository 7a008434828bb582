/* fake_worker.h - the worker at the other end of a fake daemon, in the same process: the real link
 * and trainer, with a stub learner. One a program. Asserts with cmocka. */
#ifndef TW_TESTS_FAKE_WORKER_H
#define TW_TESTS_FAKE_WORKER_H

#include "tests/worker/loop/fake_daemon.h"
#include "tests/worker/loop/stub_learner.h"
#include "worker/loop/trainer.h"

extern struct fake_daemon dae;
extern struct tw_daemon_link link_;
extern struct tw_wmsg_welcome welcome;
extern struct tw_shm shm;
extern struct stub_learner stub;
extern struct tw_learner learner;
extern struct tw_trainer trainer;
extern struct tw_error err;

/* Attaches to `dae`, which is open, and opens a learner of this kind. The trainer is the caller's
 * to init. */
void fake_worker_attach(const struct stub_learner *kind);
/* Ends the trainer, the learner and the link; `dae` stays open. */
void fake_worker_detach(void);

#endif
