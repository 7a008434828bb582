#include "worker/loop/host_mirror.h"

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
