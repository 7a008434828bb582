#include "worker/merge/device_anchor.h"

#include <string.h>

#include "base/assert.h"

enum tw_status tw_device_anchor_init(struct tw_device_anchor *twin,
                                     const struct tw_vectors *vectors, const struct tw_shm *shm,
                                     struct tw_error *err) {
    static const char what[] = "a copy of the anchor";
    memset(twin, 0, sizeof(*twin));
    twin->vectors = vectors;
    twin->shm = shm;
    if (vectors->is_host) return TW_OK;
    TW_TRY(vectors->alloc(vectors->self, &twin->phi, (size_t)shm->geometry.elements, what, err));
    return vectors->alloc(vectors->self, &twin->next, (size_t)shm->geometry.spare_elements, what,
                          err);
}

void tw_device_anchor_deinit(struct tw_device_anchor *twin) {
    const struct tw_vectors *vectors = twin->vectors;
    if (vectors != NULL) {
        vectors->free(vectors->self, twin->next);
        vectors->free(vectors->self, twin->phi);
    }
    memset(twin, 0, sizeof(*twin));
}

static void remember(struct tw_device_anchor *twin, uint32_t fragment, const struct tw_id *digest) {
    twin->fragments[fragment].is_there = true;
    twin->fragments[fragment].digest = *digest;
}

/* Moves `next` to its place in phi. It was loaded separately, while the old values in phi were
 * still needed. */
static void settle(struct tw_device_anchor *twin) {
    const struct tw_vectors *vectors = twin->vectors;
    const uint32_t fragment = twin->fresh.fragment;
    if (!twin->fresh.is_there) return;
    twin->fresh.is_there = false;
    vectors->copy(vectors->self, twin->phi + twin->shm->fragment_begin[fragment], twin->next,
                  (size_t)tw_shm_fragment_elements(twin->shm, fragment));
    remember(twin, fragment, &twin->fresh.digest);
}

const float *tw_device_anchor_phi(struct tw_device_anchor *twin, uint32_t fragment) {
    const struct tw_vectors *vectors = twin->vectors;
    struct tw_shm_view view;
    tw_shm_view(twin->shm, fragment, &view);
    if (twin->phi == NULL) return view.phi;
    float *phi = twin->phi + twin->shm->fragment_begin[fragment];
    if (twin->fresh.is_there && twin->fresh.fragment == fragment) settle(twin);
    if (twin->fragments[fragment].is_there &&
        tw_id_equal(&twin->fragments[fragment].digest, &view.state.digest))
        return phi;
    vectors->copy_in(vectors->self, phi, view.phi, (size_t)view.elements);
    remember(twin, fragment, &view.state.digest);
    return phi;
}

const float *tw_device_anchor_next(struct tw_device_anchor *twin, uint32_t fragment) {
    const struct tw_vectors *vectors = twin->vectors;
    struct tw_shm_view view;
    tw_shm_view(twin->shm, fragment, &view);
    if (twin->phi == NULL) return view.phi;
    settle(twin);
    vectors->copy_in(vectors->self, twin->next, view.phi, (size_t)view.elements);
    twin->fresh.is_there = true;
    twin->fresh.fragment = fragment;
    twin->fresh.digest = view.state.digest;
    return twin->next;
}

const float *tw_device_anchor_all(struct tw_device_anchor *twin) {
    TW_ASSERT(twin->shm->fragment_begin[0] == 0);
    const float *phi = tw_device_anchor_phi(twin, 0);
    for (uint32_t p = 1; p < twin->shm->fragments_count; p++) {
        const float *next = tw_device_anchor_phi(twin, p);
        TW_ASSERT(next == phi + twin->shm->fragment_begin[p]);
    }
    return phi;
}
