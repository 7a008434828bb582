/* stub_learner.h - a learner without an engine: theta is drawn to a target, part of which all nodes
 * of a run share and part of which is this node's own. So loss falls, nodes differ, and merging
 * them helps, as in training; and a step costs next to nothing. Same seeds, same bits. */
#ifndef TW_TESTS_STUB_LEARNER_H
#define TW_TESTS_STUB_LEARNER_H

#include "tests/worker/loop/far_vectors.h"
#include "worker/learn/learner.h"

struct stub_learner {
    const struct tw_run *run;
    const struct tw_layout *layout;
    uint64_t data_seed;
    uint64_t updates;
    float *arrays;          /* theta, m, v: (3, elements); with is_remote mirrors of `remote` */
    float *remote;          /* as arrays, and where it learns; not NULL with is_remote: far, and
                               after theta, m, v once more theta, as the table was told of it */
    uint8_t *is_param;      /* (elements): 0 in the padding, which stays zero */
    uint32_t step_us;       /* a step sleeps so long */
    uint64_t nan_from_step; /* gradients are not finite from this update on; 0 = never */
    bool is_remote;         /* as on a device: a step leaves NaN in every mirror */
    struct far far;         /* with is_remote */
};

/* step_us, nan_from_step, is_remote and what far_open keeps are kept; all else is filled in. Heap:
 * stub_learner_close. */
enum tw_status stub_learner_open(struct stub_learner *stub, struct tw_learner *learner,
                                 const struct tw_learner_config *config, struct tw_error *err);
void stub_learner_close(struct stub_learner *stub);

#endif
