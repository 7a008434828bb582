/* stub_learner.h - a learner without an engine. theta moves towards a target, which has a part
 * shared by all nodes of a run and a part of this node alone. As in training, the loss falls, nodes
 * differ, and merging helps. A step costs almost no time. The same seeds give the same bits. */
#ifndef TW_TESTS_STUB_LEARNER_H
#define TW_TESTS_STUB_LEARNER_H

#include "tests/worker/loop/far_vectors.h"
#include "worker/learn/learner.h"

struct stub_learner {
    const struct tw_run *run;
    const struct tw_layout *layout;
    uint64_t data_seed;
    uint64_t updates;
    float *arrays; /* theta, m, v: (3, elements); if is_remote, mirrors of `remote` */
    /* if is_remote: theta, m, v in far memory, then a copy of theta at the last `written`; else
     * NULL */
    float *remote;
    uint8_t *is_param;       /* (elements): 0 for padding, which stays zero */
    uint32_t step_us;        /* duration of a step, slept */
    uint64_t start_seed;     /* seed of initial weights far from the run's; 0: the run's own */
    uint64_t nan_from_step;  /* gradients are not finite from this update on; 0 = never */
    uint64_t wild_from_step; /* the learning rate is far too high from this update on; 0 = never */
    /* the anchor's loss is far too high from this update on; 0 = never */
    uint64_t poison_from_step;
    float batch_noise; /* size of the part of the target that each batch has alone; 0: 0.1 */
    bool is_thin;      /* a large model: only theta uses memory, and a step changes a part of it */
    bool is_remote;    /* weights in far memory, as on a GPU; a step fills all mirrors with NaN */
    struct far far;    /* used if is_remote */
    uint32_t heldout_us;      /* duration of a held-out loss, slept */
    const _Atomic bool *stop; /* set to stop a step or a held-out loss; may be NULL */
};

/* Fills in all fields but step_us, heldout_us, start_seed, the three numbers of updates,
 * batch_noise, is_thin, is_remote, and the fields that far_open keeps. The caller sets these, and
 * frees the rest with stub_learner_close. */
enum tw_status stub_learner_open(struct stub_learner *stub, struct tw_learner *learner,
                                 const struct tw_learner_config *config, struct tw_error *err);
void stub_learner_close(struct stub_learner *stub);

#endif
