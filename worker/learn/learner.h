/* learner.h - the interface between the worker's loop and a model that learns. Implementations: the
 * engine (learner_engine.h), a trainer outside of Thinwire (worker/lib/bridge.h), and the tests'
 * stub. */
#ifndef TW_WORKER_LEARN_LEARNER_H
#define TW_WORKER_LEARN_LEARNER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/compute.h"
#include "proto/worker_msg.h"
#include "worker/engine/engine.h"
#include "worker/engine/vectors.h"
#include "worker/learn/train_state.h"

enum { TW_LEARNER_GPU_BYTES = 32 };

/* Reason why the loop asks for no step. */
enum tw_rest {
    TW_REST_PAUSED,
    TW_REST_FINISHED, /* the run has ended, and its last rounds may still change the parameters */
    TW_REST_SETTLED,  /* the run has ended, and its last rounds have been merged into the parameters
                       */
};

/* Durations of a step, measured by the learner. */
struct tw_learner_times {
    uint64_t step_us; /* duration of the step itself */
    uint64_t held_us; /* time for which requests of the loop delayed the start of this step */
};

struct tw_learner {
    void *self;
    float *theta, *m, *v;      /* (elements), host, layout.h order; mirrors if `pull` is not NULL */
    struct tw_vectors vectors; /* the live arrays, with functions that change them where they are */
    bool is_host_idle;         /* true if a step leaves the host's cores idle */
    bool comes_back;           /* true if a supervisor restarts this process whenever it ends */
    bool is_patient;   /* true if steps belong to a program that may do something else between
                          them for any length of time */
    uint64_t *updates; /* optimizer steps accumulated in m and v */
    uint64_t tokens_per_step;
    struct tw_wmsg_about about;     /* zeros if unknown */
    char gpu[TW_LEARNER_GPU_BYTES]; /* PCI address of the GPU in use, for monitoring; empty: none */

    /* Writes the run's initial weights to params (elements): the same bits on every node. */
    void (*init)(void *self, float *params);

    /* Draws a batch at *cursor, advances *cursor by tokens_per_step, and trains on the batch.
     * Returns TW_AGAIN if no step was taken, because the process must end or `watch` stopped it;
     * *cursor is then unchanged. */
    enum tw_status (*step)(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err);

    /* Computes the loss of params in nats per token on held-out text, the same text every time.
     * Returns TW_AGAIN if no held-out text has arrived yet. */
    enum tw_status (*heldout)(void *self, const float *params, double *loss, struct tw_error *err);

    /* Continues a passage of the held-out text, and fills prompt and text of *sample with about
     * `bytes` bytes. Returns TW_AGAIN if no sample can be generated. The pointer is NULL if the
     * learner never samples. */
    enum tw_status (*sample)(void *self, uint32_t bytes, struct tw_wmsg_sample *sample,
                             struct tw_error *err);

    /* Lets the loop stop a call: once *stop is true, `step` and `heldout` may end early with
     * TW_AGAIN, as if they had not been called. With stop = NULL, calls always run to the end.
     * `watch` may be NULL. */
    void (*watch)(void *self, const _Atomic bool *stop);

    /* Compute losses[i], in nats per token, of params on the window that a node with this data seed
     * draws at cursors[i] (count), and the number of windows of an epoch, for a check of other
     * nodes' contributions. TW_AGAIN: not now, as some of the data have not arrived, or `watch`
     * stopped it. Both pointers are NULL if the learner cannot draw the windows of others. */
    enum tw_status (*drawn_losses)(void *self, const float *params, uint64_t seed,
                                   const uint64_t *cursors, uint32_t count, double *losses,
                                   struct tw_error *err);
    uint64_t (*epoch_windows)(void *self);
    /* Whether all of the run's data are here. NULL: the learner does not know. */
    bool (*has_all_data)(void *self);

    float (*lr)(void *self, uint64_t clock_tokens);

    /* If the parameters live on a device, theta, m and v are mirrors. Between steps, elements
     * [begin, begin + n) of `arrays` (enum tw_engine_array) must be pulled before the host reads
     * them and pushed after it wrote them. heldout of theta needs neither. TW_DEVICE means that the
     * device failed, which ends the worker. Both pointers are NULL if theta, m and v are the
     * parameters themselves. */
    enum tw_status (*pull)(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);
    enum tw_status (*push)(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);

    /* ---- for a learner that steps on another thread; NULL for any other learner
     * ------------------ */

    /* Stops the learner at its next step boundary and brings vectors.theta up to date in [begin,
     * begin + n), and also m and v if the learner has them. vectors.written hands changes back. */
    enum tw_status (*borrow)(void *self, uint64_t begin, uint64_t n, struct tw_error *err);
    /* Lets the learner step on while the caller computes with the borrowed range. A change that is
     * handed back later is added to the steps taken meanwhile. */
    void (*release)(void *self);
    /* Holds the learner at its step boundary until the next call of `step`. */
    void (*rest)(void *self, enum tw_rest why);
    /* Tells the learner that training begins, or begins again, in this state. */
    void (*begun)(void *self, const struct tw_train_state *state, enum tw_worker_start start);
    const struct tw_learner_times *times; /* durations of the last step; NULL: the loop measures
                                             them */
};

struct tw_learner_config {
    const struct tw_run *run;       /* borrowed; must outlive the learner */
    const struct tw_layout *layout; /* borrowed; must outlive the learner */
    const char *data_path;          /* path of the training data; borrowed like the run. "": none,
                                       for a learner that takes no steps and is not measured */
    uint64_t data_seed;             /* seed of this node's sampling order */
    struct tw_compute_config compute;
};

#endif
