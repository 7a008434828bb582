/* device_anchor.h - the anchor phi in the memory where the parameters lie, for outer gradients and
 * for changes of theta.
 *
 * With parameters in host memory this is phi itself, in the memory shared with the daemon. On a
 * device it is a copy, kept per fragment with its digest. A fragment is copied again on use if its
 * published digest has changed, so code that changes an anchor need not update the copy. */
#ifndef TW_WORKER_MERGE_DEVICE_ANCHOR_H
#define TW_WORKER_MERGE_DEVICE_ANCHOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/shm.h"
#include "worker/engine/vectors.h"

struct tw_device_anchor {
    const struct tw_vectors *vectors; /* borrowed, with shm */
    const struct tw_shm *shm;
    float *phi;  /* (elements), live, owned; NULL on the host */
    float *next; /* (largest fragment), live, owned: the new phi, loaded while the old one is still
                    needed */
    struct {
        bool is_there; /* `phi` holds the fragment with this digest */
        struct tw_id digest;
    } fragments[TW_FRAGMENTS_MAX];
    struct {
        bool is_there; /* `next` holds the fragment with this digest, and `phi` still the old values
                        */
        uint32_t fragment;
        struct tw_id digest;
    } fresh;
};

/* TW_NOMEM. deinit after a failed init, too. */
enum tw_status tw_device_anchor_init(struct tw_device_anchor *twin,
                                     const struct tw_vectors *vectors, const struct tw_shm *shm,
                                     struct tw_error *err);
void tw_device_anchor_deinit(struct tw_device_anchor *twin);

/* Elements that init allocates on a device; unused on the host. */
uint64_t tw_device_anchor_elements(const struct tw_layout *layout);

/* Published phi of the fragment, live. Valid until the next call for this fragment after it was
 * published again. */
const float *tw_device_anchor_phi(struct tw_device_anchor *twin, uint32_t fragment);

/* phi' of the fragment just published, live. Valid until the next call of this module. The pointer
 * that tw_device_anchor_phi returned before the publication stays valid until then. */
const float *tw_device_anchor_next(struct tw_device_anchor *twin, uint32_t fragment);

/* phi of all fragments, (elements). On the host call tw_shm_settle() first: no fragment may lie in
 * the spare. */
const float *tw_device_anchor_all(struct tw_device_anchor *twin);

#endif
