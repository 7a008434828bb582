/* text_sampler.h - a short text by the model in training, for people to read: the beginning of a
 * held-out window, continued by the model. */
#ifndef TW_WORKER_LEARN_TEXT_SAMPLER_H
#define TW_WORKER_LEARN_TEXT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/worker_msg.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/tokenizer/tokenizer_text.h"

enum {
    TW_TEXT_SAMPLE_US = 1000 * 1000,  /* a sample that takes longer ends early */
    TW_TEXT_SAMPLE_CACHE = 256 << 20, /* most bytes of a key/value cache for samples */
};

struct tw_text_sampler {
    bool is_open;                   /* true once the tokenizer was looked for */
    struct tw_tokenizer *tokenizer; /* NULL if there is none: no sample is generated */
    uint64_t taken_count;           /* samples taken so far; each begins with another held-out
                                       window */
};

struct tw_text_sampler_source {
    struct tw_engine *engine; /* the engine whose theta generates text; tw_engine_watch also ends a
                                 sample */
    struct tw_data *data;
    const char *data_path; /* folder of the dataset's shards and its tokenizer.json */
};

/* Generates a sample of about `bytes` bytes. Fills prompt and text of *sample with well-formed
 * UTF-8. The tokenizer is opened at the first call. Returns TW_AGAIN if no sample can be generated:
 * there is no tokenizer, nothing is held out, or keys and values need too much memory. Other
 * errors: TW_NOMEM, TW_DATA, TW_CORRUPT, TW_DEVICE. */
enum tw_status tw_text_sampler_take(struct tw_text_sampler *sampler,
                                    const struct tw_text_sampler_source *source, uint32_t bytes,
                                    struct tw_wmsg_sample *sample, struct tw_error *err);

/* Accepts a zeroed sampler. */
void tw_text_sampler_close(struct tw_text_sampler *sampler);

#endif
