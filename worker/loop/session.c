#include "worker/loop/session.h"

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
    switch ((int)status) { /* as int: most statuses never reach a worker */
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

/* Waits for the daemon without limit. TW_AGAIN: a signal ended the wait. */
static enum tw_status daemon_attach(const struct tw_session_config *config,
                                    struct tw_daemon_link *link, struct tw_wmsg_welcome *welcome,
                                    int *memfd, struct tw_error *err) {
    for (uint64_t tries = 0; !tw_signals_wanted(); tries++) {
        enum tw_status status = tw_daemon_link_open(link, config->socket, err);
        if (status == TW_OK) {
            status = tw_daemon_link_attach(link, config->device, ANSWER_MS, welcome, memfd, err);
            if (status == TW_OK) return TW_OK;
            tw_daemon_link_close(link);
        }
        if (status != TW_AGAIN) return status;
        if (tries % REMIND_TRIES == 0) {
            tw_log(TW_LOG_WARN, "daemon_awaited", "text=\"%s; trying every %d ms\"", err->message,
                   RETRY_MS);
        }
        pause_ms(RETRY_MS);
    }
    return TW_AGAIN;
}

/* Trains until the daemon or a signal ends it. */
static enum tw_status train(struct tw_daemon_link *link, const struct tw_wmsg_welcome *welcome,
                            const struct tw_shm *shm, const struct tw_learner *learner,
                            struct tw_error *err) {
    struct tw_trainer trainer;
    enum tw_status status = tw_trainer_init(&trainer, link, welcome, shm, learner, err);
    /* If the card has too little memory, other processes may be using it for a while. The snapshot
     * is not the cause. */
    if (status == TW_NOMEM && !learner->vectors.is_host) err->status = status = TW_DEVICE;
    TW_TRY(status);
    status = tw_trainer_start(&trainer, err);
    while (status == TW_OK && !trainer.is_over) {
        status =
            tw_signals_wanted() ? tw_trainer_finish(&trainer, err) : tw_trainer_turn(&trainer, err);
    }
    tw_trainer_deinit(&trainer);
    return status;
}

/* A failure is logged only: training does not need the watch. */
static void watch_open(struct tw_device_watch *watch, const struct tw_shm *shm,
                       const struct tw_learner *learner) {
    struct tw_error err;
    if (tw_device_watch_open(watch, &tw_shm_control(shm)->device, learner->gpu, &err) == TW_OK) {
        return;
    }
    tw_log(TW_LOG_WARN, "gpu_unseen", "text=\"%s\"", err.message);
}

/* With the memory mapped: makes the learner and trains. */
static enum tw_status learner_run(const struct tw_session_config *config,
                                  struct tw_daemon_link *link,
                                  const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                                  const struct tw_layout *layout, struct tw_error *err) {
    struct tw_learner learner;
    struct tw_heartbeat heartbeat;
    struct tw_device_watch watch;
    const struct tw_learner_config wanted = {
        .run = &welcome->run,
        .layout = layout,
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
    TW_TRY(tw_heartbeat_open(&heartbeat, tw_shm_control(shm), link->fd, TW_WORKER_ORPHAN_US, err));
    enum tw_status status = config->learner_open(config->self, &learner, &wanted, err);
    if (status == TW_OK) {
        watch_open(&watch, shm, &learner);
        tw_log(TW_LOG_INFO, "attached", "run=%s params=%llu threads=%u", welcome->run.name,
               (unsigned long long)layout->params, wanted.compute.threads);
        status = train(link, welcome, shm, &learner, err);
        tw_device_watch_close(&watch);
        config->learner_close(config->self);
    }
    tw_heartbeat_close(&heartbeat);
    return status;
}

/* Owns memfd. */
static enum tw_status attached_run(const struct tw_session_config *config,
                                   struct tw_daemon_link *link,
                                   const struct tw_wmsg_welcome *welcome, int memfd,
                                   struct tw_error *err) {
    static struct tw_layout layout; /* too large for a stack */
    struct tw_shm shm;
    enum tw_status status = tw_layout_init(&layout, &welcome->run, err);
    if (status != TW_OK) {
        (void)close(memfd);
        return status;
    }
    TW_TRY(tw_daemon_link_map(memfd, welcome, &layout, &shm, err));
    status = learner_run(config, link, welcome, &shm, &layout, err);
    tw_daemon_link_unmap(&shm);
    return status;
}

/* Sends the reason to the daemon if it is still connected. */
static void fatal_tell(struct tw_daemon_link *link, const struct tw_error *err) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FATAL;
    msg.u.fatal.status = err->status;
    memcpy(msg.u.fatal.text, err->message, sizeof(msg.u.fatal.text) - 1);
    (void)tw_daemon_link_try_send(link, &msg, NULL);
}

int tw_session_run(const struct tw_session_config *config) {
    static struct tw_wmsg_welcome welcome;
    struct tw_error err = {.status = TW_OK};
    struct tw_daemon_link link = {.fd = -1};
    int memfd = -1;
    tw_signals_catch(false);
    enum tw_status status = daemon_attach(config, &link, &welcome, &memfd, &err);
    if (status == TW_OK) {
        status = attached_run(config, &link, &welcome, memfd, &err);
        if (status == TW_IO) {
            tw_log(TW_LOG_WARN, "daemon_gone", "text=\"%s; what it holds is kept\"", err.message);
            status = TW_OK;
        } else if (status != TW_OK) {
            fatal_tell(&link, &err);
        }
    } else if (tw_signals_wanted()) {
        status = TW_OK;
    }
    tw_daemon_link_close(&link);
    if (status != TW_OK) {
        tw_log(TW_LOG_ERROR, "ended", "status=%s exit=%d text=\"%s\"", tw_status_name(status),
               exit_of(status), err.message);
    }
    return exit_of(status);
}
