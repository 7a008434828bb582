/* worker.c - implements thinwire/worker.h: one worker of a trainer, its session on a thread of its
 * own. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/data/data.h"
#include "worker/learn/learner.h"
#include "worker/learn/learner_engine.h"
#include "worker/lib/bridge.h"
#include "worker/lib/include/thinwire/worker.h"
#include "worker/loop/session.h"
#include "worker/support/utf8.h"

/* ---- the facts about a run that thinwire/worker.h shows to a trainer ------------------------- */

struct tw_run_view {
    struct thinwire_run run;         /* facts for the trainer; its pointers point into the fields
                                        below */
    struct tw_run settings;          /* the manifest */
    struct tw_layout *layout;        /* owned */
    struct thinwire_tensor *tensors; /* (tensors_count), owned */
    char *data_path;                 /* owned */
    char *manifest;                  /* owned: lines "key = value", each ended by NUL */
    size_t manifest_bytes;
    double peak_lr;
};

/* ---- worker ---------------------------------------------------------------------------------- */

struct thinwire_worker {
    struct tw_bridge bridge;
    pthread_t thread; /* the session's */
    pid_t pid;        /* id of the process that opened the worker */
    char *socket;     /* owned */
    char device[64];
    struct tw_error failure; /* reason for the end of the session's thread; valid after that end */

    /* the next fields are protected by the handover's mutex */
    bool is_attached; /* `view` is filled and no longer changes */
    bool is_started;  /* bridge.trainer is filled */
    struct tw_run_view view;

    /* only the trainer's thread uses the fields below */
    struct thinwire_next next; /* values given to the trainer last */
    bool may_step;             /* the last call asked for a step */
    bool knows_end;            /* the last call returned THINWIRE_FINISHED */
    uint64_t left_us, held_us; /* in us: time at which the last call returned; how long it held the
                                  trainer */
    uint64_t cursor;           /* position in the data, in tokens */
    bool has_drawn; /* a batch was drawn for the current step, so `cursor` is already after it */
    struct tw_data data; /* opened at the first draw */
};

static enum thinwire_status status_of(enum tw_status status) {
    switch ((int)status) { /* cast to int, because a worker never sees most values of the enum */
    case TW_OK: return THINWIRE_OK;
    case TW_AGAIN: return THINWIRE_WAIT;
    case TW_DENIED: return THINWIRE_DENIED;
    case TW_DATA: return THINWIRE_DATA;
    case TW_CORRUPT:
    case TW_DEVICE: return THINWIRE_TRAINER;
    default: return THINWIRE_FAILED;
    }
}

/* Fills *error (may be NULL) from a status and its reason. Returns the status that it holds. */
static enum thinwire_status tell(struct thinwire_error *error, enum tw_status status,
                                 const struct tw_error *reason) {
    const enum thinwire_status told = status_of(status);
    if (error == NULL) return told;
    error->status = told;
    error->message[0] = '\0';
    if (status == TW_OK) return told;
    (void)snprintf(error->message, sizeof(error->message), "%s", reason->message);
    return told;
}

/* Returns THINWIRE_INVALID, with `sentence` as the message. */
static enum thinwire_status refuse(struct thinwire_error *error, const char *sentence) {
    if (error != NULL) {
        error->status = THINWIRE_INVALID;
        (void)snprintf(error->message, sizeof(error->message), "%s", sentence);
    }
    return THINWIRE_INVALID;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Opens the run's data or, if they are open, looks for shards that have arrived. */
static enum tw_status data_ready(struct thinwire_worker *worker, struct tw_error *err) {
    if (worker->data.inner == NULL) {
        if (worker->view.data_path[0] == '\0')
            return tw_fail(err, TW_DATA, "the run names no data: the trainer brings its own");
        return tw_data_open(&worker->data, worker->view.data_path, &worker->view.settings, err);
    }
    tw_data_refresh(&worker->data);
    return TW_OK;
}

enum thinwire_status thinwire_worker_draw(struct thinwire_worker *worker, uint32_t *tokens,
                                          struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    if (!worker->may_step) return refuse(error, "a batch is drawn for a step that was asked for");
    enum tw_status status = data_ready(worker, &reason);
    if (status == TW_OK) {
        status = tw_data_draw(&worker->data, worker->view.run.data_seed, &worker->cursor,
                              (uint32_t)worker->view.run.batch, tokens, &reason);
        worker->has_drawn |= status == TW_OK;
    }
    return status == TW_OK ? THINWIRE_OK : tell(error, status, &reason);
}

uint64_t thinwire_worker_heldout_count(struct thinwire_worker *worker,
                                       struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    const enum tw_status status = data_ready(worker, &reason);
    (void)tell(error, status, &reason);
    return status == TW_OK ? tw_data_heldout_count(&worker->data) : 0;
}

enum thinwire_status thinwire_worker_heldout(struct thinwire_worker *worker, uint64_t index,
                                             uint64_t count, uint32_t *tokens,
                                             struct thinwire_error *error) {
    struct tw_error reason = {.status = TW_OK};
    enum tw_status status = data_ready(worker, &reason);
    if (status == TW_OK && (index >= count || count > tw_data_heldout_count(&worker->data)))
        return refuse(error, "there is no held-out window of this number");
    if (status == TW_OK) status = tw_data_heldout(&worker->data, index, count, tokens, &reason);
    return status == TW_OK ? THINWIRE_OK : tell(error, status, &reason);
}

/* ---- the run as a trainer sees it ------------------------------------------------------------ */

/* Splits the canonical text of the manifest into lines that end in NUL. */
static enum tw_status manifest_make(struct tw_run_view *view, struct tw_error *err) {
    view->manifest = calloc(1, TW_MANIFEST_BYTES_MAX + 1);
    if (view->manifest == NULL) return tw_fail(err, TW_NOMEM, "no memory for a manifest");
    tw_run_encode(&view->settings, view->manifest, &view->manifest_bytes);
    for (size_t i = 0; i < view->manifest_bytes; i++) {
        if (view->manifest[i] == '\n') view->manifest[i] = '\0';
    }
    return TW_OK;
}

/* Returns the manifest's value of a key, or NULL if there is no such key. */
static const char *view_setting(const struct tw_run_view *view, const char *key) {
    const size_t length = strlen(key);
    const char *end = view->manifest + view->manifest_bytes;
    for (const char *line = view->manifest; line < end; line += strlen(line) + 1) {
        if (strncmp(line, key, length) == 0 && strncmp(line + length, " = ", 3) == 0)
            return line + length + 3;
    }
    return NULL;
}

static enum tw_status tensors_make(struct tw_run_view *view, const struct tw_layout *layout,
                                   struct tw_error *err) {
    view->layout = malloc(sizeof(*view->layout));
    view->tensors = calloc(layout->tensors_count, sizeof(*view->tensors));
    if (view->layout == NULL || view->tensors == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for a list of tensors");
    *view->layout = *layout;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &view->layout->tensors[i];
        view->tensors[i] = (struct thinwire_tensor){
            .name = tensor->name,
            .elements = (uint64_t)tensor->rows * tensor->cols,
            .rank = tensor->shape.rank,
        };
        for (uint32_t side = 0; side < tensor->shape.rank; side++)
            view->tensors[i].shape[side] = tensor->shape.sides[side];
    }
    return TW_OK;
}

/* Fills *view for a run. Fails with TW_NOMEM; free the view then, too. */
static enum tw_status view_make(struct tw_run_view *view, const struct tw_learner_config *config,
                                struct tw_error *err) {
    const struct tw_run *run = config->run;
    view->settings = *run;
    view->peak_lr = run->train.lr_millionths / 1e6;
    TW_TRY(tensors_make(view, config->layout, err));
    TW_TRY(manifest_make(view, err));
    view->data_path = strdup(config->data_path);
    if (view->data_path == NULL) return tw_fail(err, TW_NOMEM, "no memory for a path");
    const struct tw_id id = tw_run_id(run);
    view->run = (struct thinwire_run){
        .name = view->settings.name,
        .tensors = view->tensors,
        .tensors_count = config->layout->tensors_count,
        .parameters = config->layout->params,
        .batch = run->train.batch,
        .context = run->model.context,
        .tokens_per_step = (uint64_t)run->train.batch * run->model.context,
        .tokens = run->train.tokens,
        .data_path = view->data_path,
        .data_seed = config->data_seed,
        .heldout_windows = tw_eval_windows(run),
        .threads = config->compute.threads,
    };
    tw_id_hex(&id, view->run.id);
    return TW_OK;
}

static void view_free(struct tw_run_view *view) {
    free(view->layout);
    free(view->tensors);
    free(view->data_path);
    free(view->manifest);
    memset(view, 0, sizeof(*view));
}

/* Whether the view shows this run. */
static bool view_is_of(const struct tw_run_view *view, const struct tw_run *run) {
    const struct tw_id shown = tw_run_id(&view->settings), other = tw_run_id(run);
    return tw_id_equal(&shown, &other);
}

/* ---- worker ---------------------------------------------------------------------------------- */

static const char default_socket[] = "/run/thinwire/worker.sock";

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- the session's thread -------------------------------------------------------------------- */

/* Shows the run to the trainer's thread, and waits until this thread has started or closes the
 * worker. */
static enum tw_status trainer_await(struct thinwire_worker *worker,
                                    const struct tw_learner_config *config, struct tw_error *err) {
    struct tw_handover *handover = &worker->bridge.handover;
    enum tw_status status = TW_OK;
    TW_ASSERT(pthread_mutex_lock(&handover->mutex) == 0);
    if (!worker->is_attached) {
        status = view_make(&worker->view, config, err);
        worker->is_attached = status == TW_OK;
        TW_ASSERT(pthread_cond_broadcast(&handover->changed) == 0);
    } else if (!view_is_of(&worker->view, config->run)) {
        status = tw_fail(err, TW_CONFIG, "the daemon now trains another run, %s: start again",
                         config->run->name);
    }
    while (status == TW_OK && !worker->is_started && !handover->must_end)
        TW_ASSERT(pthread_cond_wait(&handover->changed, &handover->mutex) == 0);
    if (status == TW_OK && !worker->is_started) status = tw_fail(err, TW_AGAIN, "closed");
    TW_ASSERT(pthread_mutex_unlock(&handover->mutex) == 0);
    return status;
}

static enum tw_status learner_open(void *self, struct tw_learner *learner,
                                   const struct tw_learner_config *config, struct tw_error *err) {
    struct thinwire_worker *worker = self;
    TW_TRY(trainer_await(worker, config, err));
    return tw_bridge_open(&worker->bridge, learner, config, err);
}

static void learner_close(void *self) {
    struct thinwire_worker *worker = self;
    tw_bridge_close(&worker->bridge);
}

static bool must_end(void *self) {
    struct thinwire_worker *worker = self;
    return tw_handover_must_end(&worker->bridge.handover);
}

static void *serve(void *argument) {
    struct thinwire_worker *worker = argument;
    const struct tw_session_config config = {
        .socket = worker->socket,
        .device = worker->device,
        .is_embedded = true,
        .must_end = must_end,
        .learner_open = learner_open,
        .learner_close = learner_close,
        .self = worker,
    };
    enum tw_status status = TW_OK;
    while ((status == TW_OK || status == TW_AGAIN) && !must_end(worker))
        status = tw_session_serve(&config, &worker->failure);
    worker->failure.status = status;
    tw_handover_say_ended(&worker->bridge.handover);
    return NULL;
}

/* Starts the session's thread with all signals blocked; threads that it starts inherit this.
 * Signals are thus left to the handlers of the trainer's process. */
static int thread_start(struct thinwire_worker *worker) {
    sigset_t all, before;
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&worker->thread, NULL, serve, worker);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return failed;
}

/* ---- open, close ----------------------------------------------------------------------------- */

static void worker_free(struct thinwire_worker *worker) {
    tw_data_close(&worker->data);
    view_free(&worker->view);
    tw_handover_deinit(&worker->bridge.handover);
    free(worker->socket);
    free(worker);
}

static struct thinwire_worker *worker_make(const struct thinwire_config *config) {
    const char *socket = config == NULL ? NULL : config->socket;
    const char *device = config == NULL ? NULL : config->device;
    struct thinwire_worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL) return NULL;
    if (socket == NULL) socket = getenv("THINWIRE_WORKER_SOCKET");
    worker->socket = strdup(socket == NULL ? default_socket : socket);
    worker->pid = getpid();
    tw_handover_init(&worker->bridge.handover);
    (void)snprintf(worker->device, sizeof(worker->device), "%s", device == NULL ? "" : device);
    if (worker->socket != NULL) return worker;
    worker_free(worker);
    return NULL;
}

/* Waits until the run is known, or the session's thread has ended. Returns true if the run is
 * known. */
static bool attached_await(struct thinwire_worker *worker, int timeout_ms) {
    struct tw_handover *handover = &worker->bridge.handover;
    struct timespec deadline;
    int failed = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += timeout_ms / 1000;
    deadline.tv_nsec += timeout_ms % 1000 * 1000000L;
    deadline.tv_sec += deadline.tv_nsec / 1000000000L;
    deadline.tv_nsec %= 1000000000L;
    TW_ASSERT(pthread_mutex_lock(&handover->mutex) == 0);
    while (!worker->is_attached && !handover->is_ended && failed == 0) {
        failed = timeout_ms < 0
                     ? pthread_cond_wait(&handover->changed, &handover->mutex)
                     : pthread_cond_timedwait(&handover->changed, &handover->mutex, &deadline);
    }
    const bool is_attached = worker->is_attached;
    TW_ASSERT(pthread_mutex_unlock(&handover->mutex) == 0);
    return is_attached;
}

enum thinwire_status thinwire_worker_open(struct thinwire_worker **worker,
                                          const struct thinwire_config *config, int timeout_ms,
                                          struct thinwire_error *error) {
    const struct tw_error no_memory = {.status = TW_NOMEM, .message = "no memory for a worker"};
    *worker = NULL;
    tw_log_set_level(config != NULL && config->is_talkative ? TW_LOG_INFO : TW_LOG_WARN);
    struct thinwire_worker *made = worker_make(config);
    if (made == NULL) return tell(error, TW_NOMEM, &no_memory);
    if (thread_start(made) != 0) {
        worker_free(made);
        return tell(error, TW_NOMEM, &no_memory);
    }
    if (attached_await(made, timeout_ms)) {
        *worker = made;
        return THINWIRE_OK;
    }
    tw_handover_end(&made->bridge.handover);
    TW_ASSERT(pthread_join(made->thread, NULL) == 0);
    struct tw_error reason = made->failure;
    if (reason.status == TW_OK) reason.status = TW_AGAIN;
    worker_free(made);
    return tell(error, reason.status, &reason);
}

void thinwire_worker_close(struct thinwire_worker *worker) {
    if (worker == NULL || worker->pid != getpid()) return;
    tw_handover_end(&worker->bridge.handover);
    while (tw_handover_wait(&worker->bridge.handover, true, -1) != TW_TURN_ENDED) continue;
    TW_ASSERT(pthread_join(worker->thread, NULL) == 0);
    worker_free(worker);
}

const struct thinwire_run *thinwire_worker_run(const struct thinwire_worker *worker) {
    return &worker->view.run;
}

const char *thinwire_worker_setting(const struct thinwire_worker *worker, const char *key) {
    return view_setting(&worker->view, key);
}

/* Copies as many whole characters of a text as fit. Returns false if it is not UTF-8. */
static bool copy_text(char to[TW_SAMPLE_BYTES_MAX], const char *text) {
    const size_t size = strlen(text);
    size_t kept = 0;
    for (size_t at = 0; at < size;) {
        const int one = tw_utf8_size((const uint8_t *)text + at, size - at);
        if (one <= 0) return false;
        at += (size_t)one;
        if (at < TW_SAMPLE_BYTES_MAX) kept = at;
    }
    memcpy(to, text, kept);
    memset(to + kept, 0, TW_SAMPLE_BYTES_MAX - kept);
    return true;
}

enum thinwire_status thinwire_worker_sample(struct thinwire_worker *worker, const char *prompt,
                                            const char *text, struct thinwire_error *error) {
    struct tw_bridge *bridge = &worker->bridge;
    struct tw_wmsg_sample sample = {0};
    if (!copy_text(sample.prompt, prompt) || !copy_text(sample.text, text))
        return refuse(error, "a sample of text is UTF-8");
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    bridge->text = sample;
    bridge->has_text = true;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    return THINWIRE_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

enum thinwire_status thinwire_worker_start(struct thinwire_worker *worker,
                                           const struct thinwire_trainer *trainer,
                                           struct thinwire_error *error) {
    struct tw_handover *handover = &worker->bridge.handover;
    if (trainer->read == NULL || trainer->write == NULL)
        return refuse(error, "a trainer needs the callbacks read and write");
    TW_ASSERT(pthread_mutex_lock(&handover->mutex) == 0);
    const bool is_second = worker->is_started;
    if (!is_second) {
        worker->bridge.trainer = *trainer;
        worker->is_started = true;
        TW_ASSERT(pthread_cond_broadcast(&handover->changed) == 0);
    }
    TW_ASSERT(pthread_mutex_unlock(&handover->mutex) == 0);
    if (is_second) return refuse(error, "the worker was started before");
    return THINWIRE_OK;
}

/* Reports the step that was taken. Its duration is the time from the return of the last call until
 * `came_us`. */
static void step_report(struct thinwire_worker *worker, const struct thinwire_step *done,
                        uint64_t came_us) {
    const struct tw_report report = {
        .result = {.loss = done->loss,
                   .grad_norm = done->grad_norm,
                   .is_skipped = done->is_skipped},
        .times = {.step_us = came_us - worker->left_us, .held_us = worker->held_us},
        .cursor =
            worker->has_drawn ? worker->cursor : worker->cursor + worker->view.run.tokens_per_step,
    };
    worker->cursor = report.cursor;
    worker->has_drawn = false;
    worker->next.step++;
    worker->next.tokens += worker->view.run.tokens_per_step;
    if (!done->is_skipped) worker->next.updates++;
    tw_handover_report(&worker->bridge.handover, &report);
}

static void next_fill(struct thinwire_worker *worker, struct thinwire_next *next) {
    struct tw_bridge *bridge = &worker->bridge;
    TW_ASSERT(pthread_mutex_lock(&bridge->handover.mutex) == 0);
    worker->next.is_restored = bridge->position.is_restored;
    if (bridge->position.is_restored) {
        worker->next.step = bridge->position.step;
        worker->next.tokens = bridge->position.tokens;
        worker->next.updates = bridge->position.updates;
        worker->cursor = bridge->position.cursor;
        worker->has_drawn = false;
        bridge->position.is_restored = false;
    }
    worker->next.lr = bridge->position.lr;
    TW_ASSERT(pthread_mutex_unlock(&bridge->handover.mutex) == 0);
    worker->next.lr_share = (float)(worker->next.lr / worker->view.peak_lr);
    *next = worker->next;
}

static enum thinwire_status turn_tell(struct thinwire_worker *worker, enum tw_turn turn,
                                      struct thinwire_next *next, struct thinwire_error *error) {
    worker->may_step = turn == TW_TURN_STEP;
    worker->knows_end = turn == TW_TURN_SETTLED;
    switch (turn) {
    case TW_TURN_STEP: next_fill(worker, next); return THINWIRE_OK;
    case TW_TURN_SETTLED: return THINWIRE_FINISHED;
    case TW_TURN_ENDED: return tell(error, worker->failure.status, &worker->failure);
    case TW_TURN_WAIT: break;
    }
    return THINWIRE_WAIT;
}

enum thinwire_status thinwire_worker_step(struct thinwire_worker *worker,
                                          const struct thinwire_step *done, int timeout_ms,
                                          struct thinwire_next *next,
                                          struct thinwire_error *error) {
    const uint64_t came_us = now_us();
    struct tw_error reason = {.status = TW_OK};
    if (!worker->is_started) return refuse(error, "thinwire_worker_start must come before a step");
    if ((done != NULL) != worker->may_step) {
        return refuse(error, done == NULL ? "the step that was asked for is missing"
                                          : "a step was taken that was not asked for");
    }
    if (done != NULL) step_report(worker, done, came_us);
    const enum tw_turn turn =
        tw_handover_wait(&worker->bridge.handover, worker->knows_end, timeout_ms);
    const enum tw_status status =
        turn == TW_TURN_ENDED ? TW_OK : tw_bridge_settle(&worker->bridge, &reason);
    if (status != TW_OK) return tell(error, status, &reason);
    worker->left_us = now_us();
    const bool is_held = done != NULL && !tw_handover_has_rested(&worker->bridge.handover);
    worker->held_us = is_held ? worker->left_us - came_us : 0;
    return turn_tell(worker, turn, next, error);
}
