/* anchor_publish.h - a fragment of the anchor while it is changed: the new values are made beside
 * the old ones and take their place in one store, or not at all. */
#ifndef TW_WORKER_MERGE_ANCHOR_PUBLISH_H
#define TW_WORKER_MERGE_ANCHOR_PUBLISH_H

#include <stdbool.h>

#include "worker/merge/merger.h"

struct tw_anchor_publish {
    uint32_t fragment;
    size_t elements;
    const float *phi_old, *u_old; /* at home, whole until the next stage */
    float *phi, *u;               /* in the spare */
    const float *live_old, *live; /* phi_old, and once published phi, where theta is */
};

void tw_anchor_publish_begin(struct tw_merger *merger, uint32_t fragment,
                             struct tw_anchor_publish *stage);

/* tw_anchor_publish_seal and tw_anchor_publish_publish. TW_CORRUPT, and nothing published, also
 * when the new state does not have the digest `expected` (NULL: any). */
enum tw_status tw_anchor_publish_end(struct tw_merger *merger, struct tw_anchor_publish *stage,
                                     uint64_t rounds, const struct tw_id *expected,
                                     struct tw_error *err);

/* What the stage will be published as. TW_CORRUPT when it is not finite: a merge of finite numbers
 * may still overflow. Reads the stage alone, by any thread. */
enum tw_status tw_anchor_publish_seal(const struct tw_anchor_publish *stage, uint64_t rounds,
                                      struct tw_shm_state *state, struct tw_error *err);

/* The stage takes its place. */
void tw_anchor_publish_publish(struct tw_merger *merger, struct tw_anchor_publish *stage,
                               const struct tw_shm_state *state);

/* Fills the reply with where the fragment stands now. */
void tw_anchor_publish_reply(const struct tw_merger *merger, uint32_t fragment,
                             enum tw_status status, struct tw_wmsg_applied *reply);

/* Whether the fragment has this round already: it is then answered, not repeated. */
bool tw_anchor_publish_is_applied(const struct tw_merger *merger, uint32_t fragment,
                                  uint64_t round);

#endif
