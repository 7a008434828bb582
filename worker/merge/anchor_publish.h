/* anchor_publish.h - changes one fragment of the anchor: new values are written beside the old
 * ones, and a single store publishes them. */
#ifndef TW_WORKER_MERGE_ANCHOR_PUBLISH_H
#define TW_WORKER_MERGE_ANCHOR_PUBLISH_H

#include <stdbool.h>

#include "worker/merge/merger.h"

struct tw_anchor_publish {
    uint32_t fragment;
    size_t elements;
    enum tw_momentum momentum;
    const float *phi_old; /* published values, unchanged until the next stage begins */
    const void *u_old;    /* as u: of the type `momentum` */
    float *phi;           /* in the spare */
    void *u;              /* in the spare; not to be touched where `momentum` is NONE */
    const float *live_old,
        *live; /* copies of phi_old, and of phi once published, in the memory of theta */
};

void tw_anchor_publish_begin(struct tw_merger *merger, uint32_t fragment,
                             struct tw_anchor_publish *stage);

/* Seals and publishes. Returns TW_CORRUPT, with nothing published, if a value is not finite or the
 * new state does not have the digest `expected` (NULL: any digest). */
enum tw_status tw_anchor_publish_end(struct tw_merger *merger, struct tw_anchor_publish *stage,
                                     uint64_t rounds, const struct tw_id *expected,
                                     struct tw_error *err);

/* Computes the rounds and the digest of the staged values. Returns TW_CORRUPT if a value is not
 * finite: a merge of finite numbers can overflow. Reads only the stage, so any thread may call it.
 */
enum tw_status tw_anchor_publish_seal(const struct tw_anchor_publish *stage, uint64_t rounds,
                                      struct tw_shm_state *state, struct tw_error *err);

/* Publishes the staged values by a single store. */
void tw_anchor_publish_publish(struct tw_merger *merger, struct tw_anchor_publish *stage,
                               const struct tw_shm_state *state);

/* Fills the reply with the status and the current state of the fragment. */
void tw_anchor_publish_reply(const struct tw_merger *merger, uint32_t fragment,
                             enum tw_status status, struct tw_wmsg_applied *reply);

/* Returns whether this round was already applied. Its request is then answered, but not applied
 * again. */
bool tw_anchor_publish_is_applied(const struct tw_merger *merger, uint32_t fragment,
                                  uint64_t round);

#endif
