#include "worker/loop/session.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "kernels/norm.h"
#include "worker/loop/daemon_link.h"
#include "worker/loop/trainer.h"
#include "worker/support/signals.h"

enum {
    TW_SESSION_NEW_US = 10 * 1000 * 1000,      /* time without a daemon at the start of a worker */
    TW_SESSION_AWAY_US = 60 * 1000 * 1000,     /* time without a daemon that was there before */
    TW_SESSION_REFUSED_US = 120 * 1000 * 1000, /* time for which a daemon refuses a worker that was
                                                  there before */
};

enum { TW_DEVICE_WATCH_MS = 500 }; /* short enough to yield to another program in a second */

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- watch over the device ------------------------------------------------------------------- */

static void put(_Atomic uint64_t *to, uint64_t value) {
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void look(struct tw_device_watch *watch) {
    struct timespec now;
    struct tw_shm_device *const device = watch->device;
    struct tw_nvml_look seen;
    tw_nvml_look(watch->nvml, &seen);
    put(&device->temperature_c, seen.temperature_c);
    put(&device->power_mw, seen.power_mw);
    put(&device->power_max_mw, seen.power_max_mw);
    put(&device->memory_used_bytes, seen.memory_used_bytes);
    put(&device->memory_bytes, seen.memory_bytes);
    put(&device->load_percent, seen.load_percent);
    const double others = tw_nvml_others(watch->nvml);
    put(&device->others_percent, isnan(others) ? 0 : 1 + (uint64_t)lround(100 * others));
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    put(&device->seen_us, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

static void *watching(void *argument) {
    struct tw_device_watch *watch = argument;
    TW_ASSERT(pthread_mutex_lock(&watch->mutex) == 0);
    while (!watch->must_stop) {
        struct timespec next;
        (void)clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_nsec += TW_DEVICE_WATCH_MS * 1000L * 1000;
        next.tv_sec += next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&watch->stop, &watch->mutex, &next);
        if (!watch->must_stop) look(watch);
    }
    TW_ASSERT(pthread_mutex_unlock(&watch->mutex) == 0);
    return NULL;
}

enum tw_status tw_device_watch_open(struct tw_device_watch *watch, struct tw_shm_device *device,
                                    const char *pci, struct tw_error *err) {
    pthread_condattr_t attributes;
    sigset_t all, before;
    memset(watch, 0, sizeof(*watch));
    watch->device = device;
    if (pci[0] == '\0') return TW_OK;
    TW_TRY(tw_nvml_open(&watch->nvml, NULL, pci, err));
    look(watch);
    TW_ASSERT(pthread_condattr_init(&attributes) == 0);
    TW_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    TW_ASSERT(pthread_cond_init(&watch->stop, &attributes) == 0);
    TW_ASSERT(pthread_condattr_destroy(&attributes) == 0);
    TW_ASSERT(pthread_mutex_init(&watch->mutex, NULL) == 0);

    /* This thread blocks all signals: they must reach the loop and end its wait. */
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&watch->thread, NULL, watching, watch);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed == 0) return TW_OK;
    (void)pthread_cond_destroy(&watch->stop);
    (void)pthread_mutex_destroy(&watch->mutex);
    tw_nvml_close(watch->nvml);
    watch->nvml = NULL;
    return tw_fail(err, TW_NOMEM, "start the thread that watches the GPU: %s", strerror(failed));
}

void tw_device_watch_close(struct tw_device_watch *watch) {
    if (watch->nvml == NULL) return;
    TW_ASSERT(pthread_mutex_lock(&watch->mutex) == 0);
    watch->must_stop = true;
    TW_ASSERT(pthread_cond_signal(&watch->stop) == 0);
    TW_ASSERT(pthread_mutex_unlock(&watch->mutex) == 0);
    TW_ASSERT(pthread_join(watch->thread, NULL) == 0);
    (void)pthread_cond_destroy(&watch->stop);
    (void)pthread_mutex_destroy(&watch->mutex);
    tw_nvml_close(watch->nvml);
    memset(watch, 0, sizeof(*watch));
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum {
    SOON_SHARE = 10,    /* an additional evaluation comes after eval_steps / SOON_SHARE steps */
    SAMPLE_SHARE = 200, /* samples use at most 1 / SAMPLE_SHARE of the time */
    FOLLOW_SHARE = 20,  /* evaluations of a following node use at most 1 / FOLLOW_SHARE */
    FOLLOW_US = 10 * 1000 * 1000, /* shortest pause between two evaluations of a following node */
};

/* Returns whether a following node should evaluate: merges have changed the model, and the pause is
 * over. */
static bool is_follower_due(const struct tw_trainer *trainer) {
    const bool has_changed = trainer->evaluated_changes != trainer->merger.changes_count;
    return has_changed && !trainer->is_paused && !trainer->is_finished &&
           now_us() >= trainer->evaluate_due_us;
}

void tw_evaluation_soon(struct tw_trainer *trainer) {
    const uint32_t every = trainer->welcome->eval_steps;
    if (every >= SOON_SHARE) trainer->evaluate_step = trainer->step + every / SOON_SHARE;
}

bool tw_evaluation_is_due(const struct tw_trainer *trainer) {
    const uint32_t every = trainer->welcome->eval_steps;
    if (trainer->welcome->follows != 0) return every > 0 && is_follower_due(trainer);
    const bool is_turn =
        every > 0 && (trainer->step % every == 0 || trainer->step >= trainer->evaluate_step);
    return is_turn && !trainer->is_paused && trainer->step != trainer->evaluated_step;
}

/* Returns the step number that users see: this node's own. A following node takes no steps, so its
 * number is derived from the run clock. */
static uint64_t shown_step(struct tw_trainer *trainer) {
    if (trainer->welcome->follows == 0) return trainer->step;
    return tw_trainer_clock(trainer) / trainer->learner->tokens_per_step;
}

/* Computes the loss of params on held-out text. Requests are answered meanwhile, as during a step.
 */
static enum tw_status heldout(struct tw_trainer *trainer, const float *params, double *loss,
                              struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    tw_step_server_open(&trainer->side, !trainer->is_finished);
    const enum tw_status status = learner->heldout(learner->self, params, loss, err);
    trainer->sync_us += tw_step_server_close(&trainer->side);
    return status;
}

/* Sets *distance to ||theta - phi|| / ||phi||. */
static enum tw_status measure_distance(struct tw_trainer *trainer, const float *phi,
                                       float *distance, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    const struct tw_vectors *vectors = &learner->vectors;
    const size_t elements = (size_t)trainer->shm->geometry.elements;
    if (learner->borrow != NULL) TW_TRY(learner->borrow(learner->self, 0, elements, err));
    const double size = tw_norm_squared(phi, elements);
    const double apart = vectors->distance_squared(
        vectors->self, vectors->theta, tw_device_anchor_all(&trainer->merger.twin), elements);
    TW_TRY(vectors->finish(vectors->self, err));
    *distance = size > 0 ? (float)sqrt(apart / size) : 0;
    return TW_OK;
}

/* Sends a sample of text, if one can be generated. Lack of memory or data costs only this sample.
 */
static enum tw_status tell_sample(struct tw_trainer *trainer, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    const uint64_t begin_us = now_us();
    struct tw_worker_msg told = {.kind = TW_WMSG_SAMPLE};
    if (learner->sample == NULL || trainer->welcome->sample_bytes == 0 ||
        begin_us < trainer->sample_due_us) {
        return TW_OK;
    }
    tw_step_server_open(&trainer->side, !trainer->is_finished);
    const enum tw_status status =
        learner->sample(learner->self, trainer->welcome->sample_bytes, &told.u.sample, err);
    trainer->sync_us += tw_step_server_close(&trainer->side);
    if (status == TW_DEVICE) return status;
    if (status != TW_OK || atomic_load(&trainer->side.is_cut)) return TW_OK;
    trainer->sample_due_us = now_us() + SAMPLE_SHARE * (now_us() - begin_us);
    told.u.sample.step = shown_step(trainer);
    return tw_daemon_link_send(trainer->link, &told, err);
}

static enum tw_status evaluate(struct tw_trainer *trainer, struct tw_error *err) {
    struct tw_worker_msg told = {.kind = TW_WMSG_EVALUATED};
    struct tw_wmsg_evaluated *const evaluated = &told.u.evaluated;
    float *phi;
    void *u;
    tw_shm_settle(trainer->shm);
    tw_shm_home(trainer->shm, 0, &phi, &u);

    double live = 0, anchor = 0;
    enum tw_status status = heldout(trainer, trainer->learner->theta, &live, err);
    if (status == TW_OK) status = heldout(trainer, phi, &anchor, err);
    /* Stopped for a pause: the evaluation is due again when training goes on. */
    if (status == TW_AGAIN && atomic_load(&trainer->side.is_cut)) return TW_OK;
    trainer->evaluated_step = trainer->step;
    if (trainer->step >= trainer->evaluate_step) trainer->evaluate_step = UINT64_MAX;
    if (status == TW_AGAIN) return tell_sample(trainer, err); /* there may still be a sample */
    TW_TRY(status);
    TW_TRY(measure_distance(trainer, phi, &evaluated->distance, err));
    trainer->evaluated_changes = trainer->merger.changes_count;

    evaluated->step = shown_step(trainer);
    evaluated->loss_live = (float)live;
    evaluated->loss_anchor = (float)anchor;
    tw_log(TW_LOG_INFO, "evaluated",
           "step=%" PRIu64 " loss_live=%.4f loss_anchor=%.4f distance=%.5f", evaluated->step, live,
           anchor, (double)evaluated->distance);
    TW_TRY(tw_daemon_link_send(trainer->link, &told, err));
    return tell_sample(trainer, err);
}

enum tw_status tw_evaluation_run(struct tw_trainer *trainer, struct tw_error *err) {
    const uint64_t begin_us = now_us();
    const enum tw_status status = evaluate(trainer, err);
    const uint64_t pause_us = (FOLLOW_SHARE - 1) * (now_us() - begin_us);
    trainer->evaluate_due_us = now_us() + (pause_us > FOLLOW_US ? pause_us : FOLLOW_US);
    return status;
}

/* ---- the state to start from ----------------------------------------------------------------- */

void tw_start_state_fresh(const struct tw_shm *shm, const struct tw_learner *learner) {
    learner->init(learner->self, learner->theta);
    tw_shm_settle(shm);
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        const size_t elements = (size_t)tw_shm_fragment_elements(shm, p);
        float *phi;
        void *u;
        tw_shm_home(shm, p, &phi, &u);
        memcpy(phi, learner->theta + shm->fragment_begin[p], elements * sizeof(float));
        memset(u, 0, elements * (size_t)tw_momentum_bytes(shm->momentum));
        const struct tw_shm_state anchor = {.digest =
                                                tw_shm_digest(phi, u, elements, shm->momentum)};
        tw_shm_home_set(shm, p, &anchor);
    }
}

/* Sets theta to phi. The counters continue from the step in the control page. */
static void start_anchor(const struct tw_shm *shm, uint64_t tokens_per_step,
                         struct tw_train_state *state) {
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        memcpy(state->theta + shm->fragment_begin[p], view.phi,
               (size_t)view.elements * sizeof(float));
    }
    state->step = atomic_load_explicit(&tw_shm_control(shm)->step, memory_order_relaxed);
    state->tokens = state->step * tokens_per_step;
    state->cursor = state->tokens;
}

static enum tw_status start_snapshot(const struct tw_wmsg_welcome *welcome,
                                     const struct tw_shm *shm, struct tw_train_state *state) {
    struct tw_error reason = {.status = TW_OK};
    uint32_t fragments_reset = 0;
    const enum tw_status status =
        tw_snapshot_load(shm, (enum tw_snapshot_mode)welcome->snapshot_mode, welcome->slot, state,
                         &fragments_reset, &reason);
    if (status == TW_OK) {
        tw_log(TW_LOG_INFO, "snapshot_loaded", "slot=%u step=%" PRIu64 " fragments_reset=%u",
               welcome->slot, state->step, fragments_reset);
    } else {
        tw_log(TW_LOG_WARN, "snapshot_unusable", "slot=%u text=\"%s; starting from the anchor\"",
               welcome->slot, reason.message);
    }
    return status;
}

/* Zeros m and v, but never writes a zero over a zero. Pages that were never written use no memory,
 * and a trainer without moments leaves them unwritten. */
static void clear_moments(struct tw_train_state *state, size_t elements) {
    enum { PIECE = 1024 };
    static const float zeros[PIECE];
    for (size_t at = 0; at < elements; at += PIECE) {
        const size_t bytes = (elements - at < PIECE ? elements - at : PIECE) * sizeof(float);
        if (memcmp(state->m + at, zeros, bytes) != 0) memset(state->m + at, 0, bytes);
        if (memcmp(state->v + at, zeros, bytes) != 0) memset(state->v + at, 0, bytes);
    }
}

void tw_start_state_build(const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                          const struct tw_learner *learner, struct tw_train_state *state,
                          enum tw_worker_start *start_used) {
    const size_t elements = (size_t)shm->geometry.elements;
    memset(state, 0, sizeof(*state));
    state->theta = learner->theta;
    state->m = learner->m;
    state->v = learner->v;
    clear_moments(state, elements);
    *start_used = (enum tw_worker_start)welcome->start;
    switch ((enum tw_worker_start)welcome->start) {
    case TW_START_FRESH: tw_start_state_fresh(shm, learner); break;
    case TW_START_SNAPSHOT:
        if (start_snapshot(welcome, shm, state) == TW_OK) break;
        *start_used = TW_START_ANCHOR;
        clear_moments(state, elements);
        start_anchor(shm, learner->tokens_per_step, state);
        break;
    case TW_START_KEPT: /* daemon_link.c refuses such a WELCOME */
    case TW_START_ANCHOR: start_anchor(shm, learner->tokens_per_step, state); break;
    }
    *learner->updates = state->updates;
    state->cursor += welcome->batches_to_skip * learner->tokens_per_step;
}

/* ---- session --------------------------------------------------------------------------------- */

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
