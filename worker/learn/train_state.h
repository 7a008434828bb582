/* train_state.h - everything an inner step changes: what a snapshot and a training file keep. */
#ifndef TW_WORKER_LEARN_TRAIN_STATE_H
#define TW_WORKER_LEARN_TRAIN_STATE_H

#include <stdint.h>

/* The state after a step. Arrays (elements), borrowed. */
struct tw_train_state {
    float *theta, *m, *v;
    uint64_t step, tokens; /* totals of this node */
    uint64_t updates;      /* optimizer steps that made m and v */
    uint64_t cursor;       /* of the data, in tokens drawn */
};

#endif
