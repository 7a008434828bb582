#include "worker/mirror.h"

#include "worker/request.h"

enum tw_status tw_mirror_pull_all(const struct tw_learner *learner, uint32_t arrays,
                                  const struct tw_shm *shm, struct tw_error *err) {
    if (learner->pull == NULL) return TW_OK;
    return learner->pull(learner->self, arrays, 0, shm->geometry.elements, err);
}

enum tw_status tw_mirror_push_all(const struct tw_learner *learner, uint32_t arrays,
                                  const struct tw_shm *shm, struct tw_error *err) {
    if (learner->push == NULL) return TW_OK;
    return learner->push(learner->self, arrays, 0, shm->geometry.elements, err);
}

/* Whether the request also works on the moments. */
static bool is_lead(const struct tw_run *run, const struct tw_worker_msg *msg) {
    return msg->kind == TW_WMSG_APPLY && run->sync.lead_millionths > 0;
}

static bool has_mirrors(const struct tw_shm *shm, const struct tw_worker_msg *msg) {
    const int64_t fragment = tw_request_fragment_of(msg);
    return fragment >= 0 && fragment < shm->fragments_count && msg->kind != TW_WMSG_EXPORT;
}

enum tw_status tw_mirror_pull(const struct tw_learner *learner, const struct tw_shm *shm,
                              const struct tw_run *run, const struct tw_worker_msg *msg,
                              struct tw_error *err) {
    if (learner->pull == NULL || !has_mirrors(shm, msg)) return TW_OK;
    const uint32_t fragment = (uint32_t)tw_request_fragment_of(msg);
    return learner->pull(learner->self, is_lead(run, msg) ? TW_ENGINE_STATE : TW_ENGINE_THETA,
                         shm->fragment_begin[fragment], tw_shm_fragment_elements(shm, fragment),
                         err);
}

enum tw_status tw_mirror_push(const struct tw_learner *learner, const struct tw_shm *shm,
                              const struct tw_run *run, const struct tw_worker_msg *msg,
                              struct tw_error *err) {
    if (learner->push == NULL || !has_mirrors(shm, msg)) return TW_OK;
    const uint32_t fragment = (uint32_t)tw_request_fragment_of(msg);
    return learner->push(
        learner->self, is_lead(run, msg) ? TW_ENGINE_THETA | TW_ENGINE_M : TW_ENGINE_THETA,
        shm->fragment_begin[fragment], tw_shm_fragment_elements(shm, fragment), err);
}
