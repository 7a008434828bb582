#include "worker/loop/kept_state.h"

#include <stdlib.h>
#include <string.h>

#include "worker/engine/engine.h"
#include "worker/loop/host_mirror.h"
#include "worker/loop/start_state.h"

/* Returns work in flight to theta. A learner on another thread is held meanwhile. */
static enum tw_status recall_all(struct tw_merger *merger, const struct tw_learner *learner,
                                 struct tw_error *err) {
    const struct tw_shm *shm = merger->shm;
    const struct tw_vectors *vectors = &learner->vectors;
    const uint64_t elements = shm->geometry.elements;
    if (learner->borrow != NULL) TW_TRY(learner->borrow(learner->self, 0, elements, err));
    for (uint32_t p = 0; p < shm->fragments_count; p++)
        tw_inflight_clear(&merger->inflight, p, tw_merger_theta(merger, p));
    vectors->written(vectors->self, 0, (size_t)elements);
    return vectors->finish(vectors->self, err);
}

enum tw_status tw_kept_state_take(struct tw_kept_state *kept, struct tw_merger *merger,
                                  const struct tw_learner *learner, struct tw_error *err) {
    const struct tw_shm *shm = merger->shm;
    const size_t elements = (size_t)shm->geometry.elements;
    float *const phi = calloc(elements, sizeof(*phi));
    if (phi == NULL)
        return tw_fail(err, TW_NOMEM, "no memory to keep an anchor of %zu parameters", elements);
    const enum tw_status status = recall_all(merger, learner, err);
    if (status != TW_OK) {
        free(phi);
        return status;
    }
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        memcpy(phi + shm->fragment_begin[p], view.phi, (size_t)view.elements * sizeof(float));
    }
    tw_kept_state_free(kept);
    kept->phi = phi;
    return TW_OK;
}

bool tw_kept_state_is_usable(const struct tw_kept_state *kept,
                             const struct tw_wmsg_welcome *welcome) {
    const bool is_measure =
        welcome->batches_to_skip > 0 ||
        (welcome->start == TW_START_ANCHOR && welcome->snapshot_mode != TW_SNAPSHOT_OFF);
    return kept->phi != NULL && !is_measure && kept->history == welcome->history &&
           kept->data_seed == welcome->data_seed;
}

/* Makes the anchor of a run that has no checkpoint yet. The learner's theta stays. */
static enum tw_status fresh_anchor(const struct tw_shm *shm, const struct tw_learner *learner,
                                   struct tw_error *err) {
    const size_t bytes = (size_t)shm->geometry.elements * sizeof(float);
    float *const theta = malloc(bytes);
    if (theta == NULL) return tw_fail(err, TW_NOMEM, "no memory for the run's first weights");
    memcpy(theta, learner->theta, bytes);
    tw_start_state_fresh(shm, learner);
    memcpy(learner->theta, theta, bytes);
    free(theta);
    return TW_OK;
}

enum tw_status tw_kept_state_put(const struct tw_kept_state *kept,
                                 const struct tw_wmsg_welcome *welcome, const struct tw_shm *shm,
                                 const struct tw_learner *learner, struct tw_error *err) {
    TW_TRY(tw_host_mirror_pull_all(learner, TW_ENGINE_THETA, shm, err));
    if (welcome->start == TW_START_FRESH) TW_TRY(fresh_anchor(shm, learner, err));
    bool is_changed = false;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        if (kept->merged_rounds[p] <= view.state.rounds) continue;
        float *const theta = learner->theta + shm->fragment_begin[p];
        const float *const phi = kept->phi + shm->fragment_begin[p];
        for (uint64_t i = 0; i < view.elements; i++) theta[i] += view.phi[i] - phi[i];
        is_changed = true;
    }
    if (!is_changed) return TW_OK;
    TW_TRY(tw_host_mirror_push_all(learner, TW_ENGINE_THETA, shm, err));
    if (learner->borrow != NULL) return TW_OK; /* nothing is derived from its parameters here */
    learner->vectors.written(learner->vectors.self, 0, (size_t)shm->geometry.elements);
    return learner->vectors.finish(learner->vectors.self, err);
}

void tw_kept_state_free(struct tw_kept_state *kept) {
    free(kept->phi);
    kept->phi = NULL;
}
