/* learner_engine.h - the learner of a real node: the engine, trained on windows of the data. */
#ifndef TW_WORKER_LEARN_LEARNER_ENGINE_H
#define TW_WORKER_LEARN_LEARNER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"
#include "proto/worker_msg.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/learn/learner.h"
#include "worker/tokenizer/tokenizer_text.h"

/* ---- the batches that an engine trains on ---------------------------------------------------- */

/* While a device computes a step, the batch of the next step is drawn, so that the device need not
 * wait for it. Every step trains on the batch that would be drawn when it begins. */

struct tw_batches {
    struct tw_data *data; /* borrowed */
    uint64_t seed;
    uint32_t batch;   /* sequences of a batch */
    uint32_t *tokens; /* current batch, (batch, context + 1) */
    uint64_t reached; /* cursor after the current batch */
    struct {
        uint32_t *tokens; /* batch drawn for the next step, (batch, context + 1) */
        bool is_drawn;
        uint64_t begin, end; /* cursor before and after this batch */
        uint32_t files_here; /* number of the files that it was drawn from */
    } next;
};

/* Lets the engine look ahead at these batches (tw_engine_look_ahead): they must not be closed
 * before its last step. `data` may be refreshed, and held-out windows read, between steps. Errors:
 * TW_NOMEM. */
enum tw_status tw_batches_open(struct tw_batches *batches, struct tw_engine *engine,
                               struct tw_data *data, uint64_t seed, struct tw_error *err);
void tw_batches_close(struct tw_batches *batches); /* zeros are allowed */

/* Works like tw_data_draw, for the batch of the step that begins now. The result is
 * batches->tokens, which stays unchanged until the next call. */
enum tw_status tw_batches_draw(struct tw_batches *batches, uint64_t *cursor, struct tw_error *err);

/* A short text by the model in training, for people to read: the beginning of a held-out window,
 * continued by the model. */

struct tw_text_sampler {
    bool is_open;                   /* true once the tokenizer was looked for */
    struct tw_tokenizer *tokenizer; /* NULL if there is none: no sample is generated */
    uint64_t taken_count;           /* samples taken so far; each begins with another held-out
                                       window */
};

/* ---- learner engine -------------------------------------------------------------------------- */

struct tw_learner_engine {
    struct tw_engine *engine;
    struct tw_data data;
    const struct tw_run *run;
    struct tw_batches batches;
    time_t refreshed_s; /* time of the last look for new shards */
    const char *data_path;
    struct tw_text_sampler sampler;
};

/* Opens the training data, creates the engine and fills *learner, whose self is *real. If the
 * manifest names data, the opened data must match. Errors, each with a message: TW_DATA, TW_AGAIN,
 * TW_NOMEM, TW_CONFIG. */
enum tw_status tw_learner_engine_open(struct tw_learner_engine *real, struct tw_learner *learner,
                                      const struct tw_learner_config *config, struct tw_error *err);
void tw_learner_engine_close(struct tw_learner_engine *real);

/* ---- held-out loss of any parameters, such as the live ones or the anchor -------------------- */

struct tw_eval {
    double nats;           /* mean loss, in nats per token */
    double standard_error; /* standard error of the mean, from the spread among groups of windows;
                              NaN for one group */
    uint64_t windows, tokens;
};

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
