#include "worker/loop/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"
#include "kernels/norm.h"
#include "worker/engine/engine.h"
#include "worker/loop/session.h"

/* ---- mirror ---------------------------------------------------------------------------------- */

enum tw_status tw_host_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err) {
    if (learner->pull == NULL) return TW_OK;
    return learner->pull(learner->self, arrays, 0, shm->geometry.elements, err);
}

enum tw_status tw_host_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                       const struct tw_shm *shm, struct tw_error *err) {
    if (learner->push == NULL) return TW_OK;
    return learner->push(learner->self, arrays, 0, shm->geometry.elements, err);
}

/* ---- kept state ------------------------------------------------------------------------------ */

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

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Addresses of theta, m and v in a snapshot, and the size of one moment array. */
struct slot_map {
    uint8_t *theta, *m, *v;
    size_t elements, moment_bytes;
};

static struct slot_map slot_map(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                uint32_t slot) {
    struct slot_map map = {.theta = tw_shm_snapshot_data(shm, slot)};
    map.elements = (size_t)shm->geometry.elements;
    map.moment_bytes = map.elements * (mode == TW_SNAPSHOT_FULL ? 4 : 2);
    map.m = map.theta + map.elements * 4;
    map.v = map.m + map.moment_bytes;
    return map;
}

static enum tw_status moment_put(const struct slot_map *map, enum tw_snapshot_mode mode,
                                 uint8_t *to, const float *moment) {
    if (mode == TW_SNAPSHOT_FULL) {
        memcpy(to, moment, map->moment_bytes);
        return TW_OK;
    }
    size_t bytes;
    return tw_codec_get(TW_CODEC_BF16)
        ->encode(moment, map->elements, to, map->moment_bytes, &bytes);
}

static enum tw_status moment_get(const struct slot_map *map, enum tw_snapshot_mode mode,
                                 const uint8_t *from, float *moment) {
    if (mode == TW_SNAPSHOT_FULL) {
        memcpy(moment, from, map->moment_bytes);
        return TW_OK;
    }
    return tw_codec_get(TW_CODEC_BF16)->decode(from, map->moment_bytes, moment, map->elements);
}

enum tw_status tw_snapshot_save(const struct tw_shm *shm, enum tw_snapshot_mode mode,
                                const struct tw_train_state *state, uint32_t *slot_out,
                                struct tw_error *err) {
    *slot_out = TW_SNAPSHOT_NONE;
    if (mode == TW_SNAPSHOT_OFF) return TW_OK;
    const size_t elements = (size_t)shm->geometry.elements;
    if (!tw_is_finite(state->theta, elements) || !tw_is_finite(state->m, elements) ||
        !tw_is_finite(state->v, elements)) {
        return tw_fail(err, TW_CORRUPT, "step %llu left numbers that are not finite",
                       (unsigned long long)state->step);
    }
    struct tw_snapshot_slot meta;
    memset(&meta, 0, sizeof(meta));
    meta.step = state->step;
    meta.tokens = state->tokens;
    meta.updates = state->updates;
    meta.cursor = state->cursor;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        meta.fragment_rounds[p] = view.state.rounds;
    }

    const uint32_t slot = tw_shm_snapshot_oldest(shm);
    const struct slot_map map = slot_map(shm, mode, slot);
    tw_shm_snapshot_begin(shm, slot);
    memcpy(map.theta, state->theta, elements * sizeof(float));
    TW_TRY(moment_put(&map, mode, map.m, state->m));
    TW_TRY(moment_put(&map, mode, map.v, state->v));
    tw_shm_snapshot_end(shm, slot, &meta);
    *slot_out = slot;
    return TW_OK;
}

enum tw_status tw_snapshot_load(const struct tw_shm *shm, enum tw_snapshot_mode mode, uint32_t slot,
                                struct tw_train_state *state, uint32_t *fragments_reset,
                                struct tw_error *err) {
    if (mode == TW_SNAPSHOT_OFF) return tw_fail(err, TW_CORRUPT, "snapshots are off");
    struct tw_snapshot_slot meta;
    TW_TRY(tw_shm_snapshot_check(shm, slot, &meta, err));
    const struct slot_map map = slot_map(shm, mode, slot);
    TW_TRY(moment_get(&map, mode, map.m, state->m));
    TW_TRY(moment_get(&map, mode, map.v, state->v));
    memcpy(state->theta, map.theta, map.elements * sizeof(float));
    state->step = meta.step;
    state->tokens = meta.tokens;
    state->updates = meta.updates;
    state->cursor = meta.cursor;

    uint32_t reset = 0;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        if (view.state.rounds == meta.fragment_rounds[p]) continue;
        memcpy(state->theta + shm->fragment_begin[p], view.phi,
               (size_t)view.elements * sizeof(float));
        reset++;
    }
    if (fragments_reset != NULL) *fragments_reset = reset;
    return TW_OK;
}
