/* train_state.h - everything an inner step changes: the content of a snapshot and a training file.
 */
#ifndef TW_WORKER_LEARN_TRAIN_STATE_H
#define TW_WORKER_LEARN_TRAIN_STATE_H

#include <stdint.h>

/* The state after a step. The arrays (elements) are borrowed. */
struct tw_train_state {
    float *theta, *m, *v;
    uint64_t step, tokens; /* this node's totals */
    uint64_t updates;      /* optimizer steps accumulated in m and v */
    uint64_t cursor;       /* data cursor, in tokens drawn */
};

#endif
