#include "worker/loop/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/log.h"
#include "worker/loop/daemon_link.h"
#include "worker/loop/device_watch.h"
#include "worker/loop/heartbeat.h"
#include "worker/loop/trainer.h"
#include "worker/support/signals.h"

enum { RETRY_MS = 500, REMIND_TRIES = 60, ANSWER_MS = 10000 };

static int exit_of(enum tw_status status) {
    switch ((int)status) { /* cast to int, because a worker never sees most values of the enum */
    case TW_OK: return TW_EXIT_OK;
    case TW_CONFIG: return TW_EXIT_MANIFEST;
    case TW_DATA: return TW_EXIT_DATA;
    case TW_CORRUPT: return TW_EXIT_CORRUPT;
    case TW_DEVICE: return TW_EXIT_DEVICE;
    case TW_DENIED:
    case TW_VERSION:
    case TW_PROTO: return TW_EXIT_UNREACHABLE;
    default: return TW_EXIT_FAILURE;
    }
}

static void pause_ms(long ms) {
    const struct timespec wanted = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&wanted, NULL);
}

/* Sends HELLO to the daemon and waits for its answer, for at most ANSWER_MS. */
static enum tw_status answer_await(const struct tw_session_config *config,
                                   struct tw_daemon_link *link, struct tw_wmsg_welcome *welcome,
                                   int *memfd, struct tw_error *err) {
    TW_TRY(tw_daemon_link_greet(link, config->device, err));
    for (int waited_ms = 0; waited_ms < ANSWER_MS; waited_ms += RETRY_MS) {
        const enum tw_status status = tw_daemon_link_attach(link, RETRY_MS, welcome, memfd, err);
        if (status != TW_AGAIN || config->must_end(config->self)) return status;
    }
    return tw_fail(err, TW_AGAIN, "the daemon did not answer within %d ms", ANSWER_MS);
}

/* Waits for the daemon without limit. Returns TW_AGAIN if must_end ended the wait. */
static enum tw_status daemon_attach(const struct tw_session_config *config,
                                    struct tw_daemon_link *link, struct tw_wmsg_welcome *welcome,
                                    int *memfd, struct tw_error *err) {
    const uint64_t first =
        config->is_embedded ? 10 : 0; /* a program that embeds the worker informs its user itself */
    for (uint64_t tries = 0; !config->must_end(config->self); tries++) {
        enum tw_status status = tw_daemon_link_open(link, config->socket, err);
        if (status == TW_OK) {
            status = answer_await(config, link, welcome, memfd, err);
            if (status == TW_OK) return TW_OK;
            tw_daemon_link_close(link);
        }
        if (status != TW_AGAIN) return status;
        if (tries % REMIND_TRIES == first) {
            tw_log(TW_LOG_WARN, "daemon_awaited", "text=\"%s; trying every %d ms\"", err->message,
                   RETRY_MS);
        }
        if (!config->must_end(config->self)) pause_ms(RETRY_MS);
    }
    return TW_AGAIN;
}

/* One connection of the worker to the daemon. Too large for a stack. */
struct session {
    const struct tw_session_config *config;
    struct tw_daemon_link link;
    struct tw_wmsg_welcome welcome;
    struct tw_layout layout;
    struct tw_shm shm;
};

/* Trains until the daemon or must_end ends it. */
static enum tw_status train(struct session *session, const struct tw_learner *learner,
                            struct tw_error *err) {
    const struct tw_session_config *config = session->config;
    struct tw_trainer trainer;
    enum tw_status status =
        tw_trainer_init(&trainer, &session->link, &session->welcome, &session->shm, learner, err);
    /* If the card has too little memory, other processes may be using it for a while. TW_DEVICE
     * tells the supervisor that the snapshot is not the cause. */
    if (status == TW_NOMEM && !learner->vectors.is_host) err->status = status = TW_DEVICE;
    TW_TRY(status);
    status = tw_trainer_start(&trainer, err);
    while (status == TW_OK && !trainer.is_over) {
        if (!config->must_end(config->self)) status = tw_trainer_turn(&trainer, err);
        if (status == TW_AGAIN) status = TW_OK; /* must_end stopped the step: no failure */
        if (status == TW_OK && !trainer.is_over && config->must_end(config->self))
            status = tw_trainer_finish(&trainer, err);
    }
    tw_trainer_deinit(&trainer);
    return status;
}

/* Opens the watch of the GPU. A failure is only logged, because training does not need the watch.
 */
static void watch_open(struct tw_device_watch *watch, const struct tw_shm *shm,
                       const struct tw_learner *learner) {
    struct tw_error err;
    if (tw_device_watch_open(watch, &tw_shm_control(shm)->device, learner->gpu, &err) == TW_OK) {
        return;
    }
    tw_log(TW_LOG_WARN, "gpu_unseen", "text=\"%s\"", err.message);
}

/* Makes the learner and trains. The shared memory must be mapped. */
static enum tw_status learner_run(struct session *session, struct tw_error *err) {
    const struct tw_session_config *config = session->config;
    const struct tw_wmsg_welcome *welcome = &session->welcome;
    const int watched_fd = config->is_embedded ? -1 : session->link.fd;
    struct tw_learner learner;
    struct tw_heartbeat heartbeat;
    struct tw_device_watch watch;
    const struct tw_learner_config wanted = {
        .run = &welcome->run,
        .layout = &session->layout,
        .data_path = welcome->data_path,
        .data_seed = welcome->data_seed,
        .compute = {.device = {.kind = (enum tw_device_kind)welcome->device,
                               .ordinal = welcome->ordinal},
                    .compute = (enum tw_compute)welcome->compute,
                    .recompute = (enum tw_recompute)welcome->recompute,
                    .threads = config->threads > 0 ? config->threads : welcome->threads,
                    .micro_batch = welcome->micro_batch,
                    .memory_bytes = welcome->memory_bytes},
    };
    TW_TRY(tw_heartbeat_open(&heartbeat, tw_shm_control(&session->shm), watched_fd,
                             TW_WORKER_ORPHAN_US, err));
    enum tw_status status = config->learner_open(config->self, &learner, &wanted, err);
    if (status == TW_OK) {
        watch_open(&watch, &session->shm, &learner);
        tw_log(TW_LOG_INFO, "attached", "run=%s params=%llu threads=%u", welcome->run.name,
               (unsigned long long)session->layout.params, wanted.compute.threads);
        status = train(session, &learner, err);
        tw_device_watch_close(&watch);
        config->learner_close(config->self);
    }
    tw_heartbeat_close(&heartbeat);
    return status;
}

/* Owns memfd. */
static enum tw_status attached_run(struct session *session, int memfd, struct tw_error *err) {
    enum tw_status status = tw_layout_init(&session->layout, &session->welcome.run, err);
    if (status != TW_OK) {
        (void)close(memfd);
        return status;
    }
    TW_TRY(tw_daemon_link_map(memfd, &session->welcome, &session->layout, &session->shm, err));
    status = learner_run(session, err);
    tw_daemon_link_unmap(&session->shm);
    return status;
}

/* Sends the reason of a failure to the daemon, if it is still connected. */
static void fatal_tell(struct tw_daemon_link *link, const struct tw_error *err) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FATAL;
    msg.u.fatal.status = err->status;
    memcpy(msg.u.fatal.text, err->message, sizeof(msg.u.fatal.text) - 1);
    (void)tw_daemon_link_try_send(link, &msg, NULL);
}

enum tw_status tw_session_serve(const struct tw_session_config *config, struct tw_error *err) {
    struct session *session = calloc(1, sizeof(*session));
    int memfd = -1;
    if (session == NULL) return tw_fail(err, TW_NOMEM, "no memory for a session");
    session->config = config;
    session->link.fd = -1;
    enum tw_status status = daemon_attach(config, &session->link, &session->welcome, &memfd, err);
    if (status == TW_OK) {
        status = attached_run(session, memfd, err);
        if (status == TW_IO) {
            tw_log(TW_LOG_WARN, "daemon_gone", "text=\"%s; the state that it holds is kept\"",
                   err->message);
            status = TW_AGAIN;
        } else if (status != TW_OK) {
            fatal_tell(&session->link, err);
        }
    }
    tw_daemon_link_close(&session->link);
    free(session);
    return status;
}

static bool has_signal(void *self) {
    (void)self;
    return tw_signals_wanted();
}

int tw_session_run(const struct tw_session_config *config) {
    struct tw_session_config own = *config;
    struct tw_error err = {.status = TW_OK};
    own.must_end = has_signal;
    tw_signals_catch(false);
    const enum tw_status status = tw_session_serve(&own, &err);
    if (status == TW_OK || status == TW_AGAIN) return TW_EXIT_OK;
    tw_log(TW_LOG_ERROR, "ended", "status=%s exit=%d text=\"%s\"", tw_status_name(status),
           exit_of(status), err.message);
    return exit_of(status);
}
