#include "worker/loop/start_state.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

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
