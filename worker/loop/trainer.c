#include "worker/loop/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "kernels/norm.h"
#include "worker/loop/session.h"
#include "worker/merge/inflight.h"

/* ---- applying ahead -------------------------------------------------------------------------- */

static void lock(struct tw_apply_ahead *early) {
    TW_ASSERT(pthread_mutex_lock(&early->mutex) == 0);
}

static void unlock(struct tw_apply_ahead *early) {
    TW_ASSERT(pthread_mutex_unlock(&early->mutex) == 0);
}

/* `work` belongs to this thread while is_working is set, else to the loop's thread. */
static void *serve(void *argument) {
    struct tw_apply_ahead *early = argument;
    lock(early);
    while (!early->must_stop) {
        if (!early->is_working) {
            TW_ASSERT(pthread_cond_wait(&early->changed, &early->mutex) == 0);
            continue;
        }
        unlock(early);
        struct tw_error err = {.status = TW_OK};
        const enum tw_status status = tw_anchor_work(early->merger, &early->work, &err);
        lock(early);
        early->status = status;
        early->err = err;
        early->is_working = false;
        TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    }
    unlock(early);
    return NULL;
}

static int start(struct tw_apply_ahead *early) {
    sigset_t all, before; /* this thread blocks all signals, because they must reach the loop and
                             end its wait */
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&early->thread, NULL, serve, early);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return failed;
}

/* Starts the thread if is_host_idle. The struct must not move. Errors: TW_NOMEM. */
static enum tw_status ahead_init(struct tw_apply_ahead *early, struct tw_merger *merger,
                                 bool is_host_idle, struct tw_error *err) {
    const size_t elements = (size_t)merger->shm->geometry.spare_elements;
    memset(early, 0, sizeof(*early));
    early->merger = merger;
    if (!is_host_idle) return TW_OK;
    const struct tw_vectors *vectors = merger->vectors;
    float *merged = NULL;
    TW_TRY(vectors->host_alloc(vectors->self, &merged, elements, "merges beside steps", err));
    TW_ASSERT(pthread_mutex_init(&early->mutex, NULL) == 0);
    TW_ASSERT(pthread_cond_init(&early->changed, NULL) == 0);
    const int failed = start(early);
    if (failed == 0) {
        early->work.merged = merged;
        return TW_OK;
    }
    (void)pthread_cond_destroy(&early->changed);
    (void)pthread_mutex_destroy(&early->mutex);
    vectors->host_free(vectors->self, merged);
    return tw_fail(err, TW_NOMEM, "start the thread for merges: %s", strerror(failed));
}

static void ahead_deinit(struct tw_apply_ahead *early) {
    if (early->work.merged == NULL) return;
    lock(early);
    early->must_stop = true;
    TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    unlock(early);
    TW_ASSERT(pthread_join(early->thread, NULL) == 0);
    (void)pthread_cond_destroy(&early->changed);
    (void)pthread_mutex_destroy(&early->mutex);
    early->merger->vectors->host_free(early->merger->vectors->self, early->work.merged);
    memset(early, 0, sizeof(*early));
}

/* Returns whether the current work is for this request. Another request of the same round may have
 * other modes. */
static bool is_of(const struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    return early->is_begun && memcmp(&early->work.request, request, sizeof(*request)) == 0;
}

static bool is_working(struct tw_apply_ahead *early) {
    lock(early);
    const bool is_working = early->is_working;
    unlock(early);
    return is_working;
}

static void wait_for(struct tw_apply_ahead *early) {
    lock(early);
    while (early->is_working) TW_ASSERT(pthread_cond_wait(&early->changed, &early->mutex) == 0);
    unlock(early);
}

/* Starts the work. Returns false if the request is refused or needs no work. */
static bool begin(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    const struct tw_merger *merger = early->merger;
    if (request->fragment >= merger->shm->fragments_count ||
        tw_anchor_publish_is_applied(merger, request->fragment, request->round) ||
        tw_anchor_begin(early->merger, request, &early->work, NULL) != TW_OK)
        return false;
    early->is_begun = true;
    lock(early);
    early->is_working = true;
    TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    unlock(early);
    return true;
}

bool tw_apply_ahead_is_ready(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    if (early->work.merged == NULL) return true;
    if (early->is_begun) return is_of(early, request) && !is_working(early);
    return !begin(early, request);
}

/* Cancels the thread's work, so that another request can change the anchor. The work begins again
 * when the loop asks for it. */
static void ahead_give_up(struct tw_apply_ahead *early) {
    if (!early->is_begun) return;
    wait_for(early);
    early->is_begun = false;
}

enum tw_status tw_apply_ahead_begin(struct tw_apply_ahead *early,
                                    const struct tw_wmsg_apply *request,
                                    struct tw_wmsg_applied *reply, struct tw_error *err) {
    const bool is_begun = is_of(early, request);
    ahead_give_up(early);
    if (!is_begun) return tw_anchor_apply(early->merger, request, reply, err);
    if (early->status == TW_OK) {
        tw_anchor_land(early->merger, &early->work);
    } else {
        (void)tw_fail(err, early->status, "%s", early->err.message);
    }
    tw_anchor_publish_reply(early->merger, request->fragment, early->status, reply);
    return early->status;
}

/* ---- trainer --------------------------------------------------------------------------------- */

enum {
    WAIT_MS = 200,
    /* When a PAUSE arrives, a shorter step is completed. A longer one is stopped and run again
     * later. */
    CUT_US = 400 * 1000,
};

static uint64_t clock_us(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Returns the cost clock of merging: CPU time of this thread plus time blocked by the daemon. Wall
 * time would also count other processes: a send wakes the daemon, and on a busy machine other work
 * may run then. */
static uint64_t cost_us(const struct tw_trainer *trainer) {
    return clock_us(CLOCK_THREAD_CPUTIME_ID) + trainer->link->blocked_us;
}

enum tw_status tw_trainer_init(struct tw_trainer *trainer, struct tw_daemon_link *link,
                               const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                               const struct tw_learner *learner, struct tw_error *err) {
    memset(trainer, 0, sizeof(*trainer));
    trainer->link = link;
    trainer->welcome = welcome;
    trainer->shm = shm;
    trainer->learner = learner;
    trainer->snapshot_step = UINT64_MAX;
    trainer->snapshot_steps = 1;
    trainer->evaluated_step = trainer->evaluate_step = UINT64_MAX;
    trainer->waiting = calloc(TW_WAITING_MAX, sizeof(*trainer->waiting));
    if (trainer->waiting == NULL) return tw_fail(err, TW_NOMEM, "no memory for waiting requests");
    enum tw_status status =
        tw_merger_init(&trainer->merger, &welcome->run, shm, &learner->vectors, err);
    if (status == TW_OK) status = tw_pairing_init(&trainer->pairing, &trainer->merger, err);
    if (status == TW_OK) status = tw_step_server_init(&trainer->side, link, &trainer->merger, err);
    if (status == TW_OK)
        status = ahead_init(&trainer->early, &trainer->merger, learner->is_host_idle, err);
    if (status == TW_OK && learner->watch != NULL)
        learner->watch(learner->self, &trainer->side.is_cut);
    if (status != TW_OK) tw_trainer_deinit(trainer);
    return status;
}

void tw_trainer_deinit(struct tw_trainer *trainer) {
    const struct tw_learner *learner = trainer->learner;
    if (learner != NULL && learner->watch != NULL) learner->watch(learner->self, NULL);
    ahead_deinit(&trainer->early);
    tw_step_server_deinit(&trainer->side);
    tw_pairing_deinit(&trainer->pairing);
    tw_merger_deinit(&trainer->merger);
    tw_juror_end(&trainer->juror);
    free(trainer->waiting);
    memset(trainer, 0, sizeof(*trainer));
}

uint64_t tw_trainer_clock(struct tw_trainer *trainer) {
    const struct tw_wmsg_clock *told = &trainer->clock;
    const uint64_t budget = trainer->welcome->run.train.tokens;
    const uint64_t factor = told->contributors > 1 ? told->contributors : 1;
    const uint64_t own =
        trainer->tokens > told->tokens_listed ? trainer->tokens - told->tokens_listed : 0;
    uint64_t clock = budget;
    if (told->clock_tokens < budget && own <= (budget - told->clock_tokens) / factor) {
        clock = told->clock_tokens + own * factor;
    }
    if (clock > trainer->clock_tokens) trainer->clock_tokens = clock;
    return trainer->clock_tokens;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool takes_steps(const struct tw_trainer *trainer) {
    return !trainer->is_paused && !trainer->is_finished && trainer->welcome->follows == 0;
}

static bool is_running(const struct tw_trainer *trainer) {
    return takes_steps(trainer) && !trainer->is_over;
}

/* Returns the number of steps until the next snapshot, as configured. If none is configured, a
 * snapshot that costs took_us is repeated so rarely that snapshots use 1 % of the training time. */
static uint64_t snapshot_interval(const struct tw_trainer *trainer, uint64_t took_us) {
    if (trainer->welcome->snapshot_steps > 0) return trainer->welcome->snapshot_steps;
    if (trainer->step_us_mean == 0) return 1; /* no step yet */
    const uint64_t steps = (took_us * 100 + trainer->step_us_mean - 1) / trainer->step_us_mean;
    return steps > 0 ? steps : 1;
}

static enum tw_status snapshot_take(struct tw_trainer *trainer, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    const struct tw_train_state state = {
        .theta = learner->theta,
        .m = learner->m,
        .v = learner->v,
        .step = trainer->step,
        .tokens = trainer->tokens,
        .updates = *learner->updates,
        .cursor = trainer->cursor,
    };
    struct tw_worker_msg done = {.kind = TW_WMSG_SNAPSHOT_DONE};
    const uint64_t begin_us = cost_us(trainer);
    if (trainer->welcome->snapshot_mode != TW_SNAPSHOT_OFF)
        TW_TRY(tw_host_mirror_pull_all(learner, TW_ENGINE_STATE, trainer->shm, err));
    if (learner->release != NULL && is_running(trainer)) learner->release(learner->self);
    TW_TRY(tw_snapshot_save(trainer->shm, (enum tw_snapshot_mode)trainer->welcome->snapshot_mode,
                            &state, &done.u.snapshot_done.slot, err));
    trainer->snapshot_step = trainer->step;
    trainer->snapshot_steps = snapshot_interval(trainer, cost_us(trainer) - begin_us);
    done.u.snapshot_done.step = trainer->step;
    const uint32_t answers = trainer->snapshots_asked > 0 ? trainer->snapshots_asked : 1;
    trainer->snapshots_asked = 0;
    /* at the end, the worker does not wait for a daemon that no longer reads */
    if (trainer->is_over) {
        (void)tw_daemon_link_try_send(trainer->link, &done, NULL);
        return TW_OK;
    }
    for (uint32_t i = 0; i < answers; i++) TW_TRY(tw_daemon_link_send(trainer->link, &done, err));
    return TW_OK;
}

static bool snapshot_is_due(const struct tw_trainer *trainer) {
    if (trainer->snapshots_asked > 0) return true;
    if (trainer->welcome->snapshot_mode == TW_SNAPSHOT_OFF) return false;
    if (trainer->snapshot_step == UINT64_MAX) return true;
    return trainer->step >= trainer->snapshot_step + trainer->snapshot_steps;
}

/* Takes a snapshot and evaluates, if due. A snapshot counts as merging time (sync_us), an
 * evaluation does not. */
static enum tw_status boundary_extras(struct tw_trainer *trainer, struct tw_error *err) {
    if (snapshot_is_due(trainer)) TW_TRY(snapshot_take(trainer, err));
    if (!tw_evaluation_is_due(trainer)) return TW_OK;
    const uint64_t begin_us = cost_us(trainer);
    const enum tw_status status = tw_evaluation_run(trainer, err);
    trainer->boundary_us += cost_us(trainer) - begin_us;
    return status;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Returns whether the request may be done now. waiting[0..before) are the requests queued before
 * it. */
static bool is_due(struct tw_trainer *trainer, const struct tw_worker_msg *msg, uint32_t before) {
    const bool is_idle = !takes_steps(trainer);
    const uint64_t min_step = msg->kind == TW_WMSG_APPLY        ? msg->u.apply.min_step
                              : msg->kind == TW_WMSG_PAIR_APPLY ? msg->u.pair_apply.min_step
                                                                : 0;
    const int64_t fragment = tw_request_fragment_of(msg);
    for (uint32_t i = 0; i < before; i++) {
        if (fragment >= 0 && tw_request_fragment_of(&trainer->waiting[i]) == fragment) return false;
    }
    if (is_idle)
        return true; /* no steps are running, so the thread of trainer.h would save no time */
    const bool is_ready = msg->kind != TW_WMSG_APPLY || trainer->is_behind ||
                          tw_apply_ahead_is_ready(&trainer->early, &msg->u.apply);
    return is_ready && min_step <= trainer->step;
}

static void note_inner(struct tw_trainer *trainer) {
    const struct tw_learner *learner = trainer->learner;
    const double beta2 = trainer->welcome->run.train.beta2_millionths / 1e6;
    trainer->merger.inner.m = learner->vectors.m;
    trainer->merger.inner.v = learner->vectors.v;
    trainer->merger.inner.lr = learner->lr(learner->self, tw_trainer_clock(trainer));
    trainer->merger.inner.correction2 = (float)(1.0 - pow(beta2, (double)*learner->updates));
}

/* Returns the position in the data, or 0 if some of the work may be of other windows than those
 * before it: those that replaced windows of missing shards, or were drawn before a restart. */
static uint64_t told_cursor(const struct tw_trainer *trainer) {
    enum { PERIODS = 2 };
    const uint64_t wanted = (uint64_t)PERIODS * trainer->welcome->run.sync.period;
    return trainer->whole_steps >= wanted ? trainer->cursor : 0;
}

/* Handles a request and fills `reply`. Returns false if the message is not a request. */
static bool request_answer(struct tw_trainer *trainer, const struct tw_worker_msg *msg,
                           struct tw_worker_msg *reply, enum tw_status *status,
                           struct tw_error *err) {
    struct tw_merger *merger = &trainer->merger;
    switch (msg->kind) {
    case TW_WMSG_ENCODE:
        reply->kind = TW_WMSG_ENCODED;
        *status = tw_merger_encode(merger, &msg->u.encode, &reply->u.encoded, err);
        reply->u.encoded.step = trainer->step;
        reply->u.encoded.tokens = trainer->tokens;
        reply->u.encoded.cursor = told_cursor(trainer);
        return true;
    case TW_WMSG_APPLY:
        reply->kind = TW_WMSG_APPLIED;
        note_inner(trainer);
        *status = tw_apply_ahead_begin(&trainer->early, &msg->u.apply, &reply->u.applied, err);
        return true;
    case TW_WMSG_SOLO:
        ahead_give_up(&trainer->early);
        reply->kind = TW_WMSG_APPLIED;
        *status = tw_anchor_solo(merger, &msg->u.solo, &reply->u.applied, err);
        return true;
    case TW_WMSG_PAIR_ENCODE:
        reply->kind = TW_WMSG_ENCODED;
        *status = tw_pairing_encode(&trainer->pairing, &msg->u.pair_encode, &reply->u.encoded, err);
        reply->u.encoded.step = trainer->step;
        reply->u.encoded.tokens = trainer->tokens;
        return true;
    case TW_WMSG_PAIR_APPLY:
        ahead_give_up(&trainer->early);
        reply->kind = TW_WMSG_APPLIED;
        *status = tw_pairing_apply(&trainer->pairing, &msg->u.pair_apply, &reply->u.applied, err);
        return true;
    case TW_WMSG_EXPORT:
        reply->kind = TW_WMSG_EXPORTED;
        *status = tw_anchor_export(merger, &msg->u.export, &reply->u.exported, err);
        return true;
    case TW_WMSG_LOAD:
        ahead_give_up(&trainer->early);
        reply->kind = TW_WMSG_APPLIED;
        *status = tw_anchor_load(merger, &msg->u.load, &reply->u.applied, err);
        return true;
    default: return false;
    }
}

static bool is_at_stop(const struct tw_trainer *trainer) {
    const uint64_t stop_step = trainer->welcome->stop_step;
    return stop_step > 0 && trainer->step >= stop_step;
}

static enum tw_status state_change(struct tw_trainer *trainer, const struct tw_worker_msg *msg,
                                   struct tw_error *err) {
    switch (msg->kind) {
    case TW_WMSG_CLOCK:
        /* Committed tokens of a lineage never decrease. Fewer tokens mean another lineage, so the
         * clock restarts. */
        if (msg->u.clock.clock_tokens < trainer->clock.clock_tokens) trainer->clock_tokens = 0;
        trainer->clock = msg->u.clock;
        return TW_OK;
    case TW_WMSG_SNAPSHOT: trainer->snapshots_asked++; return TW_OK;
    case TW_WMSG_PAUSE: trainer->is_paused = true; break;
    case TW_WMSG_RESUME: trainer->is_paused = false; break;
    case TW_WMSG_FINISH:
        trainer->is_finished = msg->u.finish.goes_on == 0 || is_at_stop(trainer);
        trainer->is_settled = msg->u.finish.is_settled != 0;
        break;
    case TW_WMSG_EXIT: trainer->is_over = true; break;
    default:
        return tw_fail(err, TW_PROTO,
                       "the daemon sent a message of kind %u, which only workers send", msg->kind);
    }
    tw_log(TW_LOG_INFO, "state", "step=%" PRIu64 " paused=%d finished=%d over=%d", trainer->step,
           trainer->is_paused, trainer->is_finished, trainer->is_over);
    return TW_OK;
}

/* Finds the range of theta that a request reads or changes. Returns false if there is none. */
static bool request_range(const struct tw_trainer *trainer, const struct tw_worker_msg *msg,
                          uint64_t *begin, uint64_t *n) {
    const struct tw_shm *shm = trainer->shm;
    const int64_t fragment = tw_request_fragment_of(msg);
    if (fragment < 0 || fragment >= shm->fragments_count) return false;
    const bool is_all = msg->kind == TW_WMSG_LOAD && msg->u.load.mode == TW_LOAD_TURN;
    *begin = is_all ? 0 : shm->fragment_begin[fragment];
    *n = is_all ? shm->geometry.elements : tw_shm_fragment_elements(shm, (uint32_t)fragment);
    return msg->kind != TW_WMSG_EXPORT;
}

/* Borrows the range of a request from a learner that steps on another thread. A LOAD and the last
 * merges of a run replace theta, so the learner may not step meanwhile. */
static enum tw_status request_borrow(const struct tw_trainer *trainer,
                                     const struct tw_worker_msg *msg, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    uint64_t begin, n;
    if (learner->borrow == NULL || !request_range(trainer, msg, &begin, &n)) return TW_OK;
    TW_TRY(learner->borrow(learner->self, begin, n, err));
    const bool replaces = msg->kind == TW_WMSG_LOAD ||
                          (msg->kind == TW_WMSG_APPLY && msg->u.apply.is_final != 0) ||
                          (msg->kind == TW_WMSG_PAIR_APPLY && msg->u.pair_apply.is_final != 0);
    if (!replaces && is_running(trainer)) learner->release(learner->self);
    return TW_OK;
}

/* Makes theta ready for the next step after a request. Also needed after a refused request, which
 * may have returned work in flight to theta. A device fault ends the worker. */
static enum tw_status request_settle(const struct tw_trainer *trainer,
                                     const struct tw_worker_msg *msg, struct tw_error *err) {
    const struct tw_vectors *vectors = &trainer->learner->vectors;
    uint64_t begin, n;
    if (request_range(trainer, msg, &begin, &n))
        vectors->written(vectors->self, (size_t)begin, (size_t)n);
    return vectors->finish(vectors->self, err);
}

/* ---- checks of contributions ----------------------------------------------------------------- */

static enum tw_status judged_tell(struct tw_trainer *trainer, struct tw_worker_msg *judged,
                                  const struct tw_error *reason, struct tw_error *err) {
    const enum tw_status status = (enum tw_status)judged->u.judged.status;
    if (status == TW_DEVICE) {
        *err = *reason;
        return status;
    }
    if (status != TW_OK)
        tw_log(TW_LOG_DEBUG, "not_judged", "round=%" PRIu64 " why=\"%s\"", judged->u.judged.round,
               reason->message);
    return tw_daemon_link_send(trainer->link, judged, err);
}

/* Begins a check, which is answered when it is over. */
static enum tw_status judge(struct tw_trainer *trainer, const struct tw_wmsg_judge *request,
                            struct tw_error *err) {
    struct tw_worker_msg judged = {.kind = TW_WMSG_JUDGED};
    struct tw_error reason = {.status = TW_OK};
    const enum tw_status status =
        takes_steps(trainer) ? tw_juror_begin(&trainer->juror, &trainer->merger, trainer->learner,
                                              &trainer->welcome->run, request, &reason)
                             : tw_fail(&reason, TW_AGAIN, "this worker takes no steps now");
    if (status == TW_OK) return TW_OK;
    judged.u.judged.round = request->round;
    judged.u.judged.fragment = request->fragment;
    judged.u.judged.status = (uint32_t)status;
    return judged_tell(trainer, &judged, &reason, err);
}

/* Goes on with a running check. A worker that rests gives it up. */
static enum tw_status juror_turn(struct tw_trainer *trainer, struct tw_error *err) {
    enum { TIME_SHARE = 2 };
    struct tw_juror *juror = &trainer->juror;
    struct tw_worker_msg judged = {.kind = TW_WMSG_JUDGED};
    struct tw_error reason = {.status = TW_OK};
    double score = 0;
    if (!juror->is_busy) return TW_OK;
    const uint64_t seed = juror->seed;
    judged.u.judged.round = juror->round;
    judged.u.judged.fragment = juror->fragment;
    judged.u.judged.share = (uint32_t)lround(juror->share * 1000);
    enum tw_status status = TW_OK;
    if (takes_steps(trainer)) {
        status = tw_juror_advance(juror, trainer->learner, trainer->step_us_mean / TIME_SHARE,
                                  &score, &reason);
        if (status == TW_AGAIN) return TW_OK;
    } else {
        tw_juror_end(juror);
        status = tw_fail(&reason, TW_AGAIN, "this worker takes no more steps");
    }
    if (status == TW_OK)
        tw_log(TW_LOG_INFO, "judged", "round=%" PRIu64 " seed=%016" PRIx64 " score=%.2f share=%.2f",
               judged.u.judged.round, seed, score, judged.u.judged.share / 1000.0);
    judged.u.judged.status = (uint32_t)status;
    judged.u.judged.score = (int32_t)lround(score * 1000);
    return judged_tell(trainer, &judged, &reason, err);
}

/* ---- requests, performed --------------------------------------------------------------------- */

/* Loads the run's result into a foreign trainer (worker/lib), which must have it once the run has
 * settled. A node that received a state at the end and trained on would otherwise keep its own
 * parameters. */
static enum tw_status result_take(struct tw_trainer *trainer, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    const struct tw_wmsg_load turn = {.mode = TW_LOAD_TURN};
    const size_t elements = (size_t)trainer->shm->geometry.elements;
    struct tw_wmsg_applied reply;
    TW_TRY(learner->borrow(learner->self, 0, elements, err));
    TW_TRY(tw_anchor_load(&trainer->merger, &turn, &reply, err));
    learner->vectors.written(learner->vectors.self, 0, elements);
    return learner->vectors.finish(learner->vectors.self, err);
}

/* Notes which fragments have merged with others, for a daemon that comes back with an older anchor
 * (snapshot.h). A LOAD that is no shift of an anchor with merges changes the lineage. */
static void note_merge(struct tw_trainer *trainer, const struct tw_worker_msg *msg,
                       const struct tw_worker_msg *reply) {
    const int64_t fragment = tw_request_fragment_of(msg);
    if (fragment < 0 || fragment >= trainer->shm->fragments_count) return;
    uint64_t *const rounds = &trainer->merged_rounds[fragment];
    if (*rounds == UINT64_MAX) return;
    const bool is_load = msg->kind == TW_WMSG_LOAD;
    if (is_load && msg->u.load.mode == TW_LOAD_TURN) {
        memset(trainer->merged_rounds, 0xff, sizeof(trainer->merged_rounds));
    } else if (is_load && msg->u.load.mode != TW_LOAD_SHIFT && *rounds > 0) {
        *rounds = UINT64_MAX;
    } else if (is_load || msg->kind == TW_WMSG_APPLY || msg->kind == TW_WMSG_PAIR_APPLY) {
        *rounds = reply->u.applied.rounds;
    }
}

/* Once every fragment is loaded, as of a node that joins, the last evaluation was of other
 * parameters. */
static void note_load(struct tw_trainer *trainer) {
    if (++trainer->loads_count < trainer->shm->fragments_count) return;
    trainer->loads_count = 0;
    tw_evaluation_soon(trainer);
}

static enum tw_status perform(struct tw_trainer *trainer, const struct tw_worker_msg *msg,
                              struct tw_error *err) {
    struct tw_worker_msg reply;
    struct tw_error reason = {.status = TW_OK};
    enum tw_status status = TW_OK;
    memset(&reply, 0, sizeof(reply));
    if (tw_step_server_answer(trainer->link, &trainer->merger, msg, &status, err)) return status;
    if (msg->kind == TW_WMSG_JUDGE) return judge(trainer, &msg->u.judge, err);
    TW_TRY(request_borrow(trainer, msg, err));
    if (!request_answer(trainer, msg, &reply, &status, &reason)) {
        TW_TRY(state_change(trainer, msg, err));
        const bool has_result = msg->kind == TW_WMSG_FINISH && msg->u.finish.is_settled != 0;
        return has_result && trainer->learner->borrow != NULL ? result_take(trainer, err) : TW_OK;
    }
    TW_TRY(request_settle(trainer, msg, err));
    if (msg->kind == TW_WMSG_LOAD && status == TW_OK) note_load(trainer);
    if (status == TW_OK) note_merge(trainer, msg, &reply);
    reason.status = status;
    if (status != TW_OK)
        tw_refusal_log_note(&trainer->link->refused, msg->kind, &reason, clock_us(CLOCK_MONOTONIC));
    return tw_daemon_link_send(trainer->link, &reply, err);
}

/* Performs the waiting requests that are due, in order, and closes the gaps in the queue. */
static enum tw_status waiting_perform(struct tw_trainer *trainer, struct tw_error *err) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < trainer->waiting_count; i++) {
        if (is_due(trainer, &trainer->waiting[i], kept)) {
            TW_TRY(perform(trainer, &trainer->waiting[i], err));
            continue;
        }
        if (kept != i) trainer->waiting[kept] = trainer->waiting[i];
        kept++;
    }
    trainer->waiting_count = kept;
    return TW_OK;
}

/* Returns whether several APPLYs wait for the thread. The thread finishes one APPLY per step, which
 * is too slow if rounds come faster than steps. */
static bool is_behind(const struct tw_trainer *trainer) {
    uint32_t due_count = 0;
    for (uint32_t i = 0; i < trainer->waiting_count; i++) {
        const struct tw_worker_msg *msg = &trainer->waiting[i];
        due_count += msg->kind == TW_WMSG_APPLY && msg->u.apply.min_step <= trainer->step;
    }
    return due_count > 1;
}

/* Reads every packet that has arrived. Requests that are not due yet are queued. */
static enum tw_status drain(struct tw_trainer *trainer, struct tw_error *err) {
    while (!trainer->is_over && trainer->waiting_count < TW_WAITING_MAX) {
        struct tw_worker_msg *msg = &trainer->waiting[trainer->waiting_count];
        const enum tw_status status = tw_step_server_recv(&trainer->side, msg, err);
        if (status == TW_AGAIN) return TW_OK;
        TW_TRY(status);
        if (is_due(trainer, msg, trainer->waiting_count)) {
            TW_TRY(perform(trainer, msg, err));
        } else {
            trainer->waiting_count++;
        }
    }
    return TW_OK;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static enum tw_status step_tell(struct tw_trainer *trainer, const struct tw_step_result *result,
                                float lr, struct tw_error *err) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_STEP};
    msg.u.step.step = trainer->step;
    msg.u.step.tokens = trainer->tokens;
    msg.u.step.step_us = trainer->step_us;
    msg.u.step.sync_us = trainer->sync_us;
    msg.u.step.loss = result->loss;
    msg.u.step.grad_norm = result->grad_norm;
    msg.u.step.lr = lr;
    msg.u.step.is_skipped = result->is_skipped;
    const enum tw_status status = tw_daemon_link_try_send(trainer->link, &msg, err);
    if (status == TW_AGAIN) return TW_OK;
    trainer->step_us = 0;
    trainer->sync_us = 0;
    return status;
}

/* Adds a step to this node's count of work. A node that has just started trains at a lower learning
 * rate, so its step counts less. */
static void work_note(struct tw_trainer *trainer, const struct tw_step_result *result, float lr) {
    const struct tw_run *run = &trainer->welcome->run;
    const float full = tw_schedule_lr(run, trainer->clock_tokens, UINT64_MAX);
    trainer->merger.work.is_known = true;
    if (!result->is_skipped && full > 0) trainer->merger.work.done += (double)(lr / full);
}

static enum tw_status inner_step(struct tw_trainer *trainer, struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    const float lr = learner->lr(learner->self, tw_trainer_clock(trainer));
    struct tw_step_result result;
    const uint64_t begin_us = clock_us(CLOCK_MONOTONIC);
    const bool is_whole = learner->has_all_data == NULL || learner->has_all_data(learner->self);
    tw_step_server_open(&trainer->side,
                        trainer->step_us_mean == 0 || trainer->step_us_mean > CUT_US);
    const enum tw_status status = learner->step(learner->self, &trainer->cursor, lr, &result, err);
    const uint64_t side_us = tw_step_server_close(&trainer->side);
    if (status == TW_AGAIN && atomic_load(&trainer->side.is_cut)) {
        trainer->sync_us += side_us;
        trainer->boundary_us = cost_us(trainer);
        return TW_OK;
    }
    TW_TRY(status);
    const bool is_timed = learner->times != NULL;
    const uint64_t took_us =
        is_timed ? learner->times->step_us : clock_us(CLOCK_MONOTONIC) - begin_us;
    trainer->sync_us += is_timed ? learner->times->held_us : side_us;
    trainer->boundary_us = cost_us(trainer);

    trainer->step++;
    trainer->whole_steps = is_whole ? trainer->whole_steps + 1 : 0;
    trainer->tokens += learner->tokens_per_step;
    trainer->step_us += took_us;
    trainer->step_us_mean =
        trainer->step_us_mean == 0 ? took_us : (7 * trainer->step_us_mean + took_us) / 8;
    atomic_store_explicit(&tw_shm_control(trainer->shm)->step, trainer->step, memory_order_relaxed);

    work_note(trainer, &result, lr);
    trainer->skips_in_a_row = result.is_skipped ? trainer->skips_in_a_row + 1 : 0;
    if (trainer->skips_in_a_row == TW_SKIPS_MAX) {
        return tw_fail(err, TW_CORRUPT, "gradients of %d steps in a row are not finite",
                       TW_SKIPS_MAX);
    }
    if (trainer->step == trainer->welcome->stop_step) trainer->is_finished = true;
    return step_tell(trainer, &result, lr, err);
}

/* Does all work between two steps. Its cost counts from boundary_us on. */
static enum tw_status boundary(struct tw_trainer *trainer, struct tw_error *err) {
    atomic_store(&trainer->side.is_cut, false); /* the PAUSE or EXIT that set it is read below */
    TW_TRY(waiting_perform(trainer, err));
    TW_TRY(drain(trainer, err));
    /* A PAUSE or FINISH just read makes waiting APPLYs due. */
    trainer->is_behind = is_behind(trainer);
    TW_TRY(waiting_perform(trainer, err));
    trainer->is_behind = false;
    TW_TRY(juror_turn(trainer, err));
    if (trainer->is_over) return tw_trainer_finish(trainer, err);
    TW_TRY(boundary_extras(trainer, err));
    if (trainer->learner->times == NULL)
        trainer->sync_us += cost_us(trainer) - trainer->boundary_us;
    return TW_OK;
}

/* Returns whether parameters or step have changed since the last evaluation. */
static bool has_changed(const struct tw_trainer *trainer) {
    return trainer->evaluated_changes != trainer->merger.changes_count ||
           trainer->evaluated_step != trainer->step;
}

static enum tw_rest rest_of(const struct tw_trainer *trainer) {
    if (!trainer->is_finished) return TW_REST_PAUSED;
    const bool is_settled = trainer->is_settled || is_at_stop(trainer);
    return is_settled && !has_changed(trainer) ? TW_REST_SETTLED : TW_REST_FINISHED;
}

/* After the last rounds: takes a snapshot and evaluates the result. */
static enum tw_status finished_settle(struct tw_trainer *trainer, struct tw_error *err) {
    if (!trainer->is_finished || !has_changed(trainer) || trainer->waiting_count > 0) return TW_OK;
    trainer->evaluated_changes = trainer->merger.changes_count;
    trainer->evaluated_step = trainer->step;
    TW_TRY(snapshot_take(trainer, err));
    return trainer->welcome->eval_steps > 0 ? tw_evaluation_run(trainer, err) : TW_OK;
}

enum tw_status tw_trainer_turn(struct tw_trainer *trainer, struct tw_error *err) {
    TW_ASSERT(!trainer->is_over);
    if (takes_steps(trainer)) {
        /* If is_cut is set, an evaluation was stopped for a message, which must be read before the
         * next step. */
        if (!atomic_load(&trainer->side.is_cut)) TW_TRY(inner_step(trainer, err));
        return boundary(trainer, err);
    }
    const struct tw_learner *learner = trainer->learner;
    if (learner->rest != NULL) {
        learner->rest(learner->self, rest_of(trainer));
    }
    const enum tw_status status = tw_step_server_has_kept(&trainer->side)
                                      ? TW_OK
                                      : tw_daemon_link_wait(trainer->link, WAIT_MS, err);
    if (status == TW_AGAIN && tw_evaluation_is_due(trainer)) return tw_evaluation_run(trainer, err);
    if (status == TW_AGAIN) return finished_settle(trainer, err);
    TW_TRY(status);
    trainer->boundary_us = cost_us(trainer);
    TW_TRY(boundary(trainer, err));
    if (trainer->is_paused) trainer->sync_us = 0; /* the time of a pause is not merging time */
    return TW_OK;
}

enum tw_status tw_trainer_finish(struct tw_trainer *trainer, struct tw_error *err) {
    trainer->is_over = true;
    return snapshot_take(trainer, err);
}

static const char *const start_names[] = {[TW_START_FRESH] = "fresh",
                                          [TW_START_SNAPSHOT] = "snapshot",
                                          [TW_START_ANCHOR] = "anchor",
                                          [TW_START_KEPT] = "kept"};

/* Sends READY. */
static enum tw_status ready_say(struct tw_trainer *trainer, enum tw_worker_start start,
                                struct tw_error *err) {
    struct tw_worker_msg ready = {.kind = TW_WMSG_READY};
    trainer->has_state = true;
    trainer->is_finished = is_at_stop(trainer);
    atomic_store_explicit(&tw_shm_control(trainer->shm)->step, trainer->step, memory_order_relaxed);
    ready.u.ready.start = start;
    ready.u.ready.comes_back = trainer->learner->comes_back;
    ready.u.ready.is_patient = trainer->learner->is_patient;
    ready.u.ready.step = trainer->step;
    ready.u.ready.tokens = trainer->tokens;
    ready.u.ready.about = trainer->learner->about;
    TW_TRY(tw_daemon_link_send(trainer->link, &ready, err));
    tw_log(TW_LOG_INFO, "ready", "start=%s step=%" PRIu64 " tokens=%" PRIu64, start_names[start],
           trainer->step, trainer->tokens);
    return TW_OK;
}

static enum tw_status first_boundary(struct tw_trainer *trainer, struct tw_error *err) {
    tw_evaluation_soon(trainer);
    trainer->boundary_us = cost_us(trainer);
    TW_TRY(boundary(trainer, err));
    trainer->sync_us = 0; /* the time that the start took does not count as merging */
    return TW_OK;
}

enum tw_status tw_trainer_start(struct tw_trainer *trainer, struct tw_error *err) {
    struct tw_train_state state;
    enum tw_worker_start start;
    tw_start_state_build(trainer->welcome, trainer->shm, trainer->learner, &state, &start);
    TW_TRY(tw_host_mirror_push_all(trainer->learner, TW_ENGINE_STATE, trainer->shm, err));
    trainer->step = state.step;
    trainer->tokens = state.tokens;
    trainer->cursor = state.cursor;
    if (start == TW_START_SNAPSHOT) trainer->snapshot_step = state.step;
    TW_TRY(ready_say(trainer, start, err));
    if (trainer->learner->begun != NULL)
        trainer->learner->begun(trainer->learner->self, &state, start);
    return first_boundary(trainer, err);
}

enum tw_status tw_trainer_start_again(struct tw_trainer *trainer, const struct tw_kept_state *kept,
                                      struct tw_error *err) {
    if (!tw_kept_state_is_usable(kept, trainer->welcome)) return tw_trainer_start(trainer, err);
    TW_TRY(tw_kept_state_put(kept, trainer->welcome, trainer->shm, trainer->learner, err));
    trainer->step = kept->step;
    trainer->tokens = kept->tokens;
    trainer->cursor = kept->cursor;
    trainer->step_us_mean = kept->step_us_mean;
    memcpy(trainer->merged_rounds, kept->merged_rounds, sizeof(trainer->merged_rounds));
    TW_TRY(ready_say(trainer, TW_START_KEPT, err));
    return first_boundary(trainer, err);
}

enum tw_status tw_trainer_keep(struct tw_trainer *trainer, struct tw_kept_state *kept,
                               struct tw_error *err) {
    const struct tw_learner *learner = trainer->learner;
    if (!trainer->has_state) return tw_fail(err, TW_AGAIN, "training has not begun");
    ahead_give_up(&trainer->early);
    TW_TRY(tw_kept_state_take(kept, &trainer->merger, learner, err));
    if (learner->rest != NULL) learner->rest(learner->self, TW_REST_PAUSED);
    memcpy(kept->merged_rounds, trainer->merged_rounds, sizeof(kept->merged_rounds));
    kept->step = trainer->step;
    kept->tokens = trainer->tokens;
    kept->cursor = trainer->cursor;
    kept->step_us_mean = trainer->step_us_mean;
    kept->history = trainer->welcome->history;
    kept->data_seed = trainer->welcome->data_seed;
    return TW_OK;
}
