/* eval.h - held-out loss of any parameters: the live ones or the anchor. */
#ifndef TW_WORKER_LEARN_EVAL_H
#define TW_WORKER_LEARN_EVAL_H

#include "worker/data/data.h"
#include "worker/engine/engine.h"

struct tw_eval {
    double nats;           /* mean per token */
    double standard_error; /* of that mean, from the spread among groups of windows; NaN for one */
    uint64_t windows, tokens;
};

/* Over `windows_count` evenly spaced held-out windows (0 or more than there are: all of them). The
 * same windows every time. TW_DATA when nothing is held out. */
enum tw_status tw_eval_heldout(struct tw_engine *engine, struct tw_data *data, const float *params,
                               uint64_t windows_count, struct tw_eval *eval, struct tw_error *err);

/* The same for somebody who waits: `progress` is told, now and then and at the end, how many of the
 * windows are done. */
struct tw_eval_wish {
    uint64_t windows;                                          /* as windows_count above */
    void (*progress)(void *user, uint64_t done, uint64_t all); /* NULL: not told */
    void *user;
};
enum tw_status tw_eval_heldout_shown(struct tw_engine *engine, struct tw_data *data,
                                     const float *params, const struct tw_eval_wish *wish,
                                     struct tw_eval *eval, struct tw_error *err);

#endif
