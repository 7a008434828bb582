/* worker.h - the state of this node's worker, by the events received. */
#ifndef TW_SYNC_CORE_STATE_WORKER_H
#define TW_SYNC_CORE_STATE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fragment_set.h"

struct worker {
    bool is_up;
    bool is_exporting, is_solo_pending;
    bool is_turning; /* the worker has not yet answered LOAD_TURN, the last step of an adoption */
    struct tw_fragment_set applying; /* fragments with an unanswered APPLY, LOAD or SOLO */
    uint64_t step, tokens;           /* inner steps and tokens trained by this node so far */
    uint64_t last_send_step;
    uint64_t entered_step; /* step at which the node last became a member */
    uint64_t stepped_us;   /* when the last inner step ended; 0: none yet */
    uint64_t step_us;      /* moving average of the time of an inner step; 0: not known */
    /* Start of the window over which tokens_per_s is measured. */
    uint64_t rate_us, rate_tokens, rate_step;
    uint32_t tokens_per_s;
};

/* The runtime's measurements of this node's links. */
struct measured {
    uint32_t upload_kib_s; /* 0: not known */
    uint64_t outliers;     /* set of peers whose links are far worse than all others */
    bool is_relay;         /* this node relays links between other nodes, and announces that */
    bool is_over_budget;   /* the byte budget allows no contribution now */
};

#endif
