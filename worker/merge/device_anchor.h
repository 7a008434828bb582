/* device_anchor.h - the anchor phi where the parameters lie: outer gradients are taken against it,
 * and theta goes with it.
 *
 * In the host's memory that is phi itself, as it is shared with the daemon. Elsewhere it is a copy,
 * fragment by fragment, which is known by its digest: it is brought up to date when somebody asks
 * for it and the fragment is no longer what was copied, so that nobody who changes an anchor has to
 * think of it. */
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
    const struct tw_vectors *vectors; /* borrowed, and so below */
    const struct tw_shm *shm;
    float *phi;  /* (elements), live, owned; NULL on the host */
    float *next; /* (largest fragment), live, owned: phi' while phi is still wanted */
    struct {
        bool is_there; /* phi has it, with this digest */
        struct tw_id digest;
    } fragments[TW_FRAGMENTS_MAX];
    struct {
        bool is_there; /* next has this fragment, with this digest, and phi not yet */
        uint32_t fragment;
        struct tw_id digest;
    } fresh;
};

/* TW_NOMEM. deinit after a failed init, too. */
enum tw_status tw_device_anchor_init(struct tw_device_anchor *twin,
                                     const struct tw_vectors *vectors, const struct tw_shm *shm,
                                     struct tw_error *err);
void tw_device_anchor_deinit(struct tw_device_anchor *twin);

/* Elements that init takes, but for the host. */
uint64_t tw_device_anchor_elements(const struct tw_layout *layout);

/* phi of the fragment as it is published, live, until the next call for this fragment after it was
 * published again. */
const float *tw_device_anchor_phi(struct tw_device_anchor *twin, uint32_t fragment);

/* phi', live: of the fragment that was just published, while what tw_device_anchor_phi gave before
 * it is whole. Good until the next call here. */
const float *tw_device_anchor_next(struct tw_device_anchor *twin, uint32_t fragment);

/* phi of all fragments, (elements). On the host nothing may be displaced: tw_shm_settle(). */
const float *tw_device_anchor_all(struct tw_device_anchor *twin);

#endif
