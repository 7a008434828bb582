/* device_anchor.h - the anchor phi in the memory where the parameters lie, for computing outer
 * gradients and changing theta.
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
    float *phi;  /* device copy (elements), live, owned; NULL on the host */
    float *next; /* (largest fragment), live, owned: the new phi, loaded while the old one is still
                    needed */
    struct {
        bool is_there; /* true if `phi` holds the fragment with this digest */
        struct tw_id digest;
    } fragments[TW_FRAGMENTS_MAX];
    struct {
        bool is_there; /* true if `next` holds the fragment with this digest, while `phi` still has
                          the old values */
        uint32_t fragment;
        struct tw_id digest;
    } fresh;
};

/* Allocates the copy if parameters are on a device. Call deinit also after a failed init. Errors:
 * TW_NOMEM. */
enum tw_status tw_device_anchor_init(struct tw_device_anchor *twin,
                                     const struct tw_vectors *vectors, const struct tw_shm *shm,
                                     struct tw_error *err);
void tw_device_anchor_deinit(struct tw_device_anchor *twin);

/* Returns the published phi of the fragment, live. The pointer is valid until the first call for
 * this fragment after its next publication. */
const float *tw_device_anchor_phi(struct tw_device_anchor *twin, uint32_t fragment);

/* Returns phi of the fragment just published, live. The pointer is valid until the next call of
 * this module. So is the pointer that tw_device_anchor_phi returned before the publication. */
const float *tw_device_anchor_next(struct tw_device_anchor *twin, uint32_t fragment);

/* Returns phi of all fragments (elements). On the host call tw_shm_settle() first: no fragment may
 * be in the spare buffer. */
const float *tw_device_anchor_all(struct tw_device_anchor *twin);

#endif
