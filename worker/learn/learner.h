/* learner.h - what the worker's loop needs of a model that learns. Two exist: the engine's
 * (learner_engine.h) and the stub of the tests. */
#ifndef TW_WORKER_LEARN_LEARNER_H
#define TW_WORKER_LEARN_LEARNER_H

#include <stdint.h>

#include "base/status.h"
#include "proto/compute.h"
#include "proto/worker_msg.h"
#include "worker/engine/engine.h"
#include "worker/engine/vectors.h"

enum { TW_LEARNER_GPU_BYTES = 32 };

struct tw_learner {
    void *self;
    float *theta, *m, *v;      /* (elements), host, layout.h order; mirrors, see pull */
    struct tw_vectors vectors; /* the same where they live, and arithmetic there */
    bool is_host_idle;         /* a step leaves the host's cores alone */
    uint64_t *updates;         /* optimizer steps that made m and v */
    uint64_t tokens_per_step;
    struct tw_wmsg_about about;     /* zero where it does not know */
    char gpu[TW_LEARNER_GPU_BYTES]; /* PCI address of the GPU it computes on, which is then watched;
                                       empty: none */

    /* Initial weights of the run into params (elements): the same bits on every node. */
    void (*init)(void *self, float *params);

    /* Draws a batch at *cursor, advances it by tokens_per_step, and learns from it. */
    enum tw_status (*step)(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err);

    /* Nats per token of params on held-out text: the same text every time. TW_AGAIN: there is none
     * yet. */
    enum tw_status (*heldout)(void *self, const float *params, double *loss, struct tw_error *err);

    float (*lr)(void *self, uint64_t clock_tokens);

    /* Where the parameters live on a device, theta, m and v are mirrors: elements [begin, begin +
     * n) of arrays (enum tw_engine_array) are pulled before they are read and pushed after they
     * were written on the host, between steps. heldout of theta needs neither. TW_DEVICE: the
     * device failed, and the worker with it. NULL, both: theta, m and v are the parameters
     * themselves. */
    enum tw_status (*pull)(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);
    enum tw_status (*push)(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err);
};

struct tw_learner_config {
    const struct tw_run *run;       /* borrowed, must outlive the learner */
    const struct tw_layout *layout; /* borrowed, must outlive the learner */
    const char *data_path;          /* training text */
    uint64_t data_seed;             /* of this node's sampling order */
    struct tw_compute_config compute;
};

#endif
