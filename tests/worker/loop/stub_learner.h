/* stub_learner.h - a learner without an engine. theta moves towards a target; one part of the
 * target is shared by all nodes of a run, another is this node's own. As in training, the loss
 * falls, nodes differ, and merging helps. A step costs almost no time. Same seeds, same bits. */
#ifndef TW_TESTS_STUB_LEARNER_H
#define TW_TESTS_STUB_LEARNER_H

#include "tests/worker/loop/far_vectors.h"
#include "worker/learn/learner.h"

struct stub_learner {
    const struct tw_run *run;
    const struct tw_layout *layout;
    uint64_t data_seed;
    uint64_t updates;
    float *arrays;           /* theta, m, v: (3, elements); with is_remote mirrors of `remote` */
    float *remote;           /* with is_remote, else NULL: theta, m, v in far memory, then a copy of
                                theta at the last `written` */
    uint8_t *is_param;       /* (elements): 0 in the padding, which stays zero */
    uint32_t step_us;        /* duration of a step, slept */
    uint64_t start_seed;     /* seed of first weights far from the run's; 0: the run's weights */
    uint64_t nan_from_step;  /* gradients are not finite from this update on; 0 = never */
    uint64_t wild_from_step; /* the rate is far too high from this update on; 0 = never */
    uint64_t poison_from_step; /* anchor's loss is far too high from this update on; 0 = never */
    bool is_thin;   /* a large model: theta alone uses memory, and a step changes a part of it */
    bool is_remote; /* weights as on a GPU; a step fills all mirrors with NaN */
    struct far far; /* with is_remote */
    uint32_t heldout_us;      /* duration of a loss on held-out text, slept */
    const _Atomic bool *stop; /* step and held-out loss are given up; NULL: never */
};

/* Keeps step_us, heldout_us, start_seed, the three numbers of updates, is_thin, is_remote and the
 * fields that far_open keeps, and fills in the rest. Allocates: call stub_learner_close. */
enum tw_status stub_learner_open(struct stub_learner *stub, struct tw_learner *learner,
                                 const struct tw_learner_config *config, struct tw_error *err);
void stub_learner_close(struct stub_learner *stub);

#endif
