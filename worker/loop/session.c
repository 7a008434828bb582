#include "worker/loop/session.h"

#include <stddef.h>
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

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Waits for the daemon. Returns TW_AGAIN if must_end ended the wait, or if none came in time. If
 * the worker was attached before (is_again), a daemon that turns it away may still be ending. */
static enum tw_status daemon_attach(const struct tw_session_config *config, bool is_again,
                                    struct tw_daemon_link *link, struct tw_wmsg_welcome *welcome,
                                    int *memfd, struct tw_error *err) {
    const uint64_t first =
        config->is_embedded ? 10 : 0; /* a program that embeds the worker informs its user itself */
    const uint64_t away_us = is_again ? TW_SESSION_AWAY_US : TW_SESSION_NEW_US;
    uint64_t listened_us = now_us(), taken_us = listened_us;
    for (uint64_t tries = 0; !config->must_end(config->self); tries++) {
        enum tw_status status = tw_daemon_link_open(link, config->socket, err);
        if (status == TW_OK) {
            listened_us = now_us();
            status = answer_await(config, link, welcome, memfd, err);
            if (status == TW_OK) return TW_OK;
            tw_daemon_link_close(link);
        }
        const bool may_change =
            is_again && status == TW_DENIED && now_us() - taken_us < TW_SESSION_REFUSED_US;
        if (status != TW_DENIED) taken_us = now_us();
        if (status != TW_AGAIN && !may_change) return status;
        if (config->comes_back && now_us() - listened_us >= away_us) return TW_AGAIN;
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
    struct tw_kept_state kept;
    bool is_kept; /* the daemon is gone, and training goes on with the next one */
};

/* Keeps the state of training if the worker may wait for the next daemon: this one is gone, or has
 * asked a worker to end whose process goes on. */
static void state_keep(struct session *session, struct tw_trainer *trainer, enum tw_status status) {
    const struct tw_session_config *config = session->config;
    struct tw_error why;
    const bool is_gone = status == TW_IO && (config->is_embedded || config->comes_back);
    const bool was_sent_away = status == TW_OK && config->is_embedded;
    session->is_kept = false;
    if ((!is_gone && !was_sent_away) || config->must_end(config->self)) return;
    session->is_kept = tw_trainer_keep(trainer, &session->kept, &why) == TW_OK;
    if (!session->is_kept) tw_log(TW_LOG_WARN, "not_kept", "text=\"%s\"", why.message);
}

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
    status = tw_trainer_start_again(&trainer, &session->kept, err);
    while (status == TW_OK && !trainer.is_over) {
        if (!config->must_end(config->self)) status = tw_trainer_turn(&trainer, err);
        if (status == TW_AGAIN) status = TW_OK; /* must_end stopped the step: no failure */
        if (status == TW_OK && !trainer.is_over && config->must_end(config->self))
            status = tw_trainer_finish(&trainer, err);
    }
    state_keep(session, &trainer, status);
    if (session->is_kept && status == TW_OK) (void)tw_fail(err, TW_OK, "the daemon ends in order");
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

/* Serves one link: opens the heartbeat, and the learner unless it was kept, and trains. The shared
 * memory must be mapped. */
static enum tw_status link_serve(struct session *session, struct tw_learner *learner, bool *is_open,
                                 struct tw_error *err) {
    const struct tw_session_config *config = session->config;
    const struct tw_wmsg_welcome *welcome = &session->welcome;
    const int watched_fd = config->is_embedded ? -1 : session->link.fd;
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
    enum tw_status status = TW_OK;
    if (!*is_open) status = config->learner_open(config->self, learner, &wanted, err);
    if (status == TW_OK) {
        *is_open = true;
        watch_open(&watch, &session->shm, learner);
        tw_log(TW_LOG_INFO, "attached", "run=%s params=%llu threads=%u", welcome->run.name,
               (unsigned long long)session->layout.params, wanted.compute.threads);
        status = train(session, learner, err);
        tw_device_watch_close(&watch);
    }
    tw_heartbeat_close(&heartbeat);
    return status;
}

/* Returns whether the learner that was opened for `old` fits the node of `new`. */
static bool is_same_node(const struct tw_wmsg_welcome *old, const struct tw_wmsg_welcome *new) {
    return memcmp(&old->run, &new->run, sizeof(old->run)) == 0 &&
           strcmp(old->data_path, new->data_path) == 0 && old->data_seed == new->data_seed &&
           old->compute == new->compute && old->recompute == new->recompute &&
           old->threads == new->threads && old->micro_batch == new->micro_batch &&
           old->device == new->device && old->ordinal == new->ordinal &&
           old->memory_bytes == new->memory_bytes;
}

/* Waits for the next daemon, with the learner kept. Returns TW_OK with is_kept = false if the next
 * daemon needs another learner, and TW_AGAIN if none came. */
static enum tw_status next_await(struct session *session, int *memfd, struct tw_error *err) {
    struct tw_wmsg_welcome *const next = malloc(sizeof(*next));
    if (next == NULL) return tw_fail(err, TW_NOMEM, "no memory for a WELCOME");
    tw_daemon_link_close(&session->link);
    tw_log(TW_LOG_WARN, "daemon_gone",
           "step=%llu text=\"%s; the parameters stay, and wait for it\"",
           (unsigned long long)session->kept.step, err->message);
    enum tw_status status = daemon_attach(session->config, true, &session->link, next, memfd, err);
    if (status == TW_OK) {
        session->is_kept = is_same_node(&session->welcome, next);
        /* Path and run, at the end, are the same, and the learner reads them. */
        if (session->is_kept)
            memcpy(&session->welcome, next, offsetof(struct tw_wmsg_welcome, data_path));
    }
    free(next);
    if (status == TW_OK && !session->is_kept) (void)close(*memfd);
    return status;
}

/* Trains with one daemon after the other. Owns memfd. */
static enum tw_status attached_run(struct session *session, int memfd, struct tw_error *err) {
    struct tw_learner learner;
    bool is_open = false;
    enum tw_status status = tw_layout_init(&session->layout, &session->welcome.run, err);
    if (status != TW_OK) {
        (void)close(memfd);
        return status;
    }
    do {
        session->is_kept = false;
        status = tw_daemon_link_map(memfd, &session->welcome, &session->layout, &session->shm, err);
        if (status != TW_OK) break;
        status = link_serve(session, &learner, &is_open, err);
        tw_daemon_link_unmap(&session->shm);
        if (session->is_kept) status = next_await(session, &memfd, err);
    } while (status == TW_OK && session->is_kept);
    if (is_open) session->config->learner_close(session->config->self);
    return status;
}

/* Tells the daemon, if it is still connected, why the worker ends: TW_OK for an end in order, which
 * is no death. */
static void end_tell(struct tw_daemon_link *link, enum tw_status status,
                     const struct tw_error *err) {
    struct tw_worker_msg msg;
    if (link->fd < 0) return;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FATAL;
    msg.u.fatal.status = status;
    if (status != TW_OK) memcpy(msg.u.fatal.text, err->message, sizeof(msg.u.fatal.text) - 1);
    (void)tw_daemon_link_try_send(link, &msg, NULL);
}

enum tw_status tw_session_serve(const struct tw_session_config *config, struct tw_error *err) {
    struct session *session = calloc(1, sizeof(*session));
    int memfd = -1;
    if (session == NULL) return tw_fail(err, TW_NOMEM, "no memory for a session");
    session->config = config;
    session->link.fd = -1;
    enum tw_status status =
        daemon_attach(config, false, &session->link, &session->welcome, &memfd, err);
    if (status == TW_OK) {
        status = attached_run(session, memfd, err);
        if (status == TW_IO) {
            tw_log(TW_LOG_WARN, "daemon_gone", "text=\"%s; the state that it holds is kept\"",
                   err->message);
            status = config->comes_back ? TW_OK : TW_AGAIN;
        } else {
            end_tell(&session->link, status == TW_AGAIN ? TW_OK : status, err);
        }
    }
    tw_daemon_link_close(&session->link);
    tw_kept_state_free(&session->kept);
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
    /* Started again at once, it would only wait again: it starts with its daemon. */
    if (status == TW_AGAIN && own.comes_back && !has_signal(NULL)) {
        tw_log(TW_LOG_INFO, "no_daemon", "text=\"%s; ending until it starts\"", err.message);
        return TW_EXIT_NO_DAEMON;
    }
    if (status == TW_OK || status == TW_AGAIN) return TW_EXIT_OK;
    tw_log(TW_LOG_ERROR, "ended", "status=%s exit=%d text=\"%s\"", tw_status_name(status),
           exit_of(status), err.message);
    return exit_of(status);
}
