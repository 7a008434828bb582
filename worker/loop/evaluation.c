#include "worker/loop/evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "base/log.h"
#include "kernels/norm.h"
#include "worker/loop/trainer.h"

enum {
    SOON_SHARE = 10,    /* an additional evaluation comes after eval_steps / SOON_SHARE steps */
    SAMPLE_SHARE = 200, /* samples use at most 1 / SAMPLE_SHARE of the time */
    FOLLOW_SHARE = 20,  /* evaluations of a following node use at most 1 / FOLLOW_SHARE */
    FOLLOW_US = 10 * 1000 * 1000, /* shortest pause between two evaluations of a following node */
};

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

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
