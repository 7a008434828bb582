/* eval.h - held-out loss of any parameters, such as the live ones or the anchor. */
#ifndef TW_WORKER_LEARN_EVAL_H
#define TW_WORKER_LEARN_EVAL_H

#include "worker/data/data.h"
#include "worker/engine/engine.h"

struct tw_eval {
    double nats;           /* mean loss, in nats per token */
    double standard_error; /* standard error of the mean, from the spread among groups of windows;
                              NaN for one group */
    uint64_t windows, tokens;
};

enum { TW_EVAL_TOKENS = 4096, TW_EVAL_WINDOWS_MIN = 8 };

/* Returns the number of held-out windows for an evaluation during training: enough for
 * TW_EVAL_TOKENS, but at least TW_EVAL_WINDOWS_MIN. */
uint64_t tw_eval_windows(const struct tw_run *run);

/* Evaluates `windows_count` evenly spaced held-out windows, always the same ones. 0, or more than
 * there are, means all windows. Returns TW_DATA if no data is held out. */
enum tw_status tw_eval_heldout(struct tw_engine *engine, struct tw_data *data, const float *params,
                               uint64_t windows_count, struct tw_eval *eval, struct tw_error *err);

/* Options of an evaluation beyond tw_eval_heldout. `progress` is called from time to time, and at
 * the end, with the number of windows done. */
struct tw_eval_wish {
    uint64_t windows; /* number of windows, like windows_count above */
    void (*progress)(void *user, uint64_t done, uint64_t all); /* or NULL */
    void *user;
};
enum tw_status tw_eval_heldout_shown(struct tw_engine *engine, struct tw_data *data,
                                     const float *params, const struct tw_eval_wish *wish,
                                     struct tw_eval *eval, struct tw_error *err);

#endif
