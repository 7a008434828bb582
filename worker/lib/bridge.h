/* bridge.h - makes a trainer outside of Thinwire a learner (worker/learn/learner.h).
 *
 * The trainer's parameters are reached only by its callbacks, on its own thread (handover.h). The
 * library keeps a mirror of theta, m and v in host memory. A request borrows a range: the trainer's
 * thread copies it to the mirror, and the session computes with the mirror. The changes of the
 * request go back in one of two ways:
 *
 *   the trainer was held meanwhile    parameters := mirror
 *   it took steps meanwhile           parameters += mirror after - mirror before
 *
 * The second is exact for every rule that adds to theta. With sync.sent = mix, the steps taken
 * meanwhile are not mixed, as if they had been taken after the merge. */
#ifndef TW_WORKER_LIB_BRIDGE_H
#define TW_WORKER_LIB_BRIDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fragment_set.h"
#include "worker/learn/learner.h"
#include "worker/lib/handover.h"
#include "worker/lib/include/thinwire/worker.h"

/* number of elements that are read, changed and written at a time */
enum { TW_BRIDGE_PIECE = 1 << 20 };

struct tw_bridge {
    struct tw_handover handover;
    struct thinwire_trainer trainer; /* set before tw_bridge_open is called */
    const struct tw_run *run;
    const struct tw_layout *layout;
    uint32_t *order;  /* (tensors), owned: indices of the tensors, sorted by offset */
    float *mirror[3]; /* (elements) each, owned: theta, m, v */
    float *before[3]; /* (largest fragment) each, owned: content of the mirror when the range was
                         borrowed; NULL for arrays that no request changes */
    float *piece;     /* (TW_BRIDGE_PIECE), owned: buffer of the trainer's thread */
    uint64_t largest; /* number of elements of the largest fragment */
    uint64_t updates; /* number of optimizer steps that the moments contain */
    struct tw_learner_times times; /* duration of the step reported last */
    bool leads;                    /* whether requests read and change the moments */

    /* range of elements that was borrowed last */
    uint64_t begin, n;
    bool is_released;
    /* Fragments whose mirrors hold changes that are still to be added to the parameters. The
     * trainer's thread adds them at the next boundary, before any call, so a range that the session
     * borrows never has any. Protected by the handover's mutex. */
    struct tw_fragment_set late; /* fragments with changes to add */

    struct tw_wmsg_sample text; /* the trainer's newest text, if has_text; protected by the
                                   handover's mutex */
    bool has_text;

    enum tw_status failure; /* status of the last hand-back, which the callback `finish` reports */
    struct tw_error failure_err;

    /* Position from which the trainer's thread steps. Protected by the handover's mutex. */
    struct {
        uint64_t step, tokens, updates, cursor;
        float lr;
        bool is_restored;
    } position;
};

/* Fills *learner for one session. Fails with TW_NOMEM. */
enum tw_status tw_bridge_open(struct tw_bridge *bridge, struct tw_learner *learner,
                              const struct tw_learner_config *config, struct tw_error *err);
/* Ends the session, after waiting until the trainer is at a step boundary. */
void tw_bridge_close(struct tw_bridge *bridge);

/* Adds late changes to the parameters; call it on the trainer's thread, at a step boundary. Fails
 * with TW_DEVICE if a callback fails. */
enum tw_status tw_bridge_settle(struct tw_bridge *bridge, struct tw_error *err);

#endif
