/* engine_verb.h - what thinwire-engine can do without a daemon: generate, eval, train. */
#ifndef TW_WORKER_ENGINE_VERB_H
#define TW_WORKER_ENGINE_VERB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/exit_codes.h"
#include "base/status.h"
#include "proto/layout.h"
#include "proto/run.h"
#include "worker/data.h"
#include "worker/engine.h"

/* The command line; strings are borrowed from it. */
struct engine_options {
    const char *file, *run, *data, *out, *from, *prompt, *part;
    uint64_t tokens, steps, seed, windows, eval_steps;
    uint32_t threads, top_k;
    double temperature;
    bool json;
};

/* Everything open: manifest, layout, engine, and the text where there is one. */
struct engine_bench {
    const struct engine_options *options;
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine;
    struct tw_data data; /* data.text NULL: none */
};

enum tw_exit engine_generate(struct engine_bench *bench);
enum tw_exit engine_eval(struct engine_bench *bench);
enum tw_exit engine_train(struct engine_bench *bench);

/* The verb argv[1], import or export, with options of its own. */
enum tw_exit engine_convert(int argc, char **argv);

/* "thinwire: ..." on standard error, and the exit status that belongs to it. */
enum tw_exit engine_fail(const struct tw_error *err);

/* Monotonic seconds. */
double engine_now_s(void);

#endif
