#include "worker/merge/anchor_publish.h"

#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"
#include "worker/merge/momentum.h"

void tw_anchor_publish_begin(struct tw_merger *merger, uint32_t fragment,
                             struct tw_anchor_publish *stage) {
    struct tw_shm_view old;
    stage->fragment = fragment;
    stage->momentum = merger->shm->momentum;
    stage->elements = (size_t)tw_shm_fragment_elements(merger->shm, fragment);
    tw_shm_stage_begin(merger->shm, fragment, &stage->phi, &stage->u);
    tw_shm_view(merger->shm, fragment, &old);
    TW_ASSERT(old.phi != stage->phi);
    stage->phi_old = old.phi;
    stage->u_old = old.u;
    stage->live_old = tw_device_anchor_phi(&merger->twin, fragment);
    stage->live = NULL;
}

enum tw_status tw_anchor_publish_seal(const struct tw_anchor_publish *stage, uint64_t rounds,
                                      struct tw_shm_state *state, struct tw_error *err) {
    if (!tw_is_finite(stage->phi, stage->elements) ||
        !tw_momentum_is_finite(stage->momentum, stage->u, stage->elements)) {
        return tw_fail(err, TW_CORRUPT, "fragment %u would no longer be finite", stage->fragment);
    }
    *state = (struct tw_shm_state){.rounds = rounds};
    state->digest = tw_shm_digest(stage->phi, stage->u, stage->elements, stage->momentum);
    return TW_OK;
}

void tw_anchor_publish_publish(struct tw_merger *merger, struct tw_anchor_publish *stage,
                               const struct tw_shm_state *state) {
    tw_shm_stage_publish(merger->shm, stage->fragment, state);
    merger->changes_count++;
    stage->live = tw_device_anchor_next(&merger->twin, stage->fragment);
}

enum tw_status tw_anchor_publish_end(struct tw_merger *merger, struct tw_anchor_publish *stage,
                                     uint64_t rounds, const struct tw_id *expected,
                                     struct tw_error *err) {
    struct tw_shm_state state;
    TW_TRY(tw_anchor_publish_seal(stage, rounds, &state, err));
    if (expected != NULL && !tw_id_equal(&state.digest, expected)) {
        return tw_fail(err, TW_CORRUPT, "state of fragment %u does not have the digest it should",
                       stage->fragment);
    }
    tw_anchor_publish_publish(merger, stage, &state);
    return TW_OK;
}

void tw_anchor_publish_reply(const struct tw_merger *merger, uint32_t fragment,
                             enum tw_status status, struct tw_wmsg_applied *reply) {
    memset(reply, 0, sizeof(*reply));
    reply->fragment = fragment;
    reply->status = status;
    if (fragment >= merger->shm->fragments_count) return;
    struct tw_shm_view view;
    tw_shm_view(merger->shm, fragment, &view);
    reply->rounds = view.state.rounds;
    reply->digest = view.state.digest;
}

bool tw_anchor_publish_is_applied(const struct tw_merger *merger, uint32_t fragment,
                                  uint64_t round) {
    struct tw_shm_view view;
    tw_shm_view(merger->shm, fragment, &view);
    return view.state.rounds > round;
}
