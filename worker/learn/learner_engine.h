/* learner_engine.h - the real learner: the engine on windows of training data. */
#ifndef TW_WORKER_LEARN_LEARNER_ENGINE_H
#define TW_WORKER_LEARN_LEARNER_ENGINE_H

#include <time.h>

#include "worker/data/data.h"
#include "worker/learn/learner.h"
#include "worker/learn/text_sampler.h"

struct tw_learner_engine {
    struct tw_engine *engine;
    struct tw_data data;
    const struct tw_run *run;
    uint64_t data_seed;
    uint32_t *tokens;   /* the batch being trained on, (batch, context + 1) */
    time_t refreshed_s; /* time of the last look for new shards */
    const char *data_path;
    struct tw_text_sampler sampler;
};

/* Opens the data (those that the manifest names, if any), creates the engine and fills *learner,
 * whose self is *real. TW_DATA, TW_AGAIN, TW_NOMEM, TW_CONFIG, each with a message. */
enum tw_status tw_learner_engine_open(struct tw_learner_engine *real, struct tw_learner *learner,
                                      const struct tw_learner_config *config, struct tw_error *err);
void tw_learner_engine_close(struct tw_learner_engine *real);

#endif
