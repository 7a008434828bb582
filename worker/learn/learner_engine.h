/* learner_engine.h - the learner of a real node: the engine, trained on windows of the data. */
#ifndef TW_WORKER_LEARN_LEARNER_ENGINE_H
#define TW_WORKER_LEARN_LEARNER_ENGINE_H

#include <time.h>

#include "worker/data/data.h"
#include "worker/learn/batches.h"
#include "worker/learn/learner.h"
#include "worker/learn/text_sampler.h"

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

#endif
