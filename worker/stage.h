/* stage.h - a fragment of the anchor while it is changed: the new values are made beside the old
 * ones and take their place in one store, or not at all. */
#ifndef TW_WORKER_STAGE_H
#define TW_WORKER_STAGE_H

#include <stdbool.h>

#include "worker/merger.h"

struct tw_stage {
    uint32_t fragment;
    size_t elements;
    const float *phi_old, *u_old; /* at home, whole until the next stage */
    float *phi, *u;               /* in the spare */
    const float *live_old, *live; /* phi_old, and once published phi, where theta is */
};

void tw_stage_begin(struct tw_merger *merger, uint32_t fragment, struct tw_stage *stage);

/* Publishes the stage. TW_CORRUPT, and nothing published, when the new state is not finite (a merge
 * of finite numbers may still overflow) or does not have the digest `expected` (NULL: any). */
enum tw_status tw_stage_end(struct tw_merger *merger, struct tw_stage *stage, uint64_t rounds,
                            const struct tw_id *expected, struct tw_error *err);

/* Fills the reply with where the fragment stands now. */
void tw_stage_reply(const struct tw_merger *merger, uint32_t fragment, enum tw_status status,
                    struct tw_wmsg_applied *reply);

/* Whether the fragment has this round already: it is then answered, not repeated. */
bool tw_stage_is_applied(const struct tw_merger *merger, uint32_t fragment, uint64_t round);

#endif
