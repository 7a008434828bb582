/* engine_verb.h - what thinwire-engine can do without a daemon: train, eval, generate. */
#ifndef TW_WORKER_CLI_ENGINE_VERB_H
#define TW_WORKER_CLI_ENGINE_VERB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/exit_codes.h"
#include "base/status.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/cli/engine_options.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/files/state_folder.h"
#include "worker/learn/eval.h"

/* What a verb works with: manifest and layout, the text where there is one, and the engine once the
 * verb made it. */
struct engine_bench {
    const struct engine_options *options;
    struct tw_compute_config compute; /* the options', and what a training file adds to them */
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine;
    struct tw_data data; /* data.inner NULL: none */
};

enum tw_exit engine_generate(struct engine_bench *bench);
enum tw_exit engine_eval(struct engine_bench *bench);
enum tw_exit engine_train(struct engine_bench *bench);
enum tw_exit engine_devices(struct engine_bench *bench);
enum tw_exit engine_models(struct engine_bench *bench);
enum tw_exit engine_merge(struct engine_bench *bench);
enum tw_exit engine_speed(struct engine_bench *bench);

/* Makes bench->engine as the verb needs and the options want it. */
enum tw_status engine_open(struct engine_bench *bench, enum engine_verb verb, struct tw_error *err);

/* Where *model (NULL: none) is the state folder of a node, makes it the newest whole checkpoint in
 * it, and *run its manifest, if *run is NULL; says on standard error which file that is. *found has
 * the names and outlives them. */
enum tw_status engine_take_state(const char **model, const char **run, const char *part,
                                 struct tw_state_found *found, struct tw_error *err);

/* Parameters of bench->engine from a checkpoint, a training file, weights or a folder. */
enum tw_status engine_load(struct engine_bench *bench, const char *path, struct tw_error *err);

/* tw_eval_heldout over the windows the options want, with a line of progress on a terminal from the
 * second second on; `what` is what it calls the model. */
enum tw_status engine_measure(struct engine_bench *bench, const float *params, const char *what,
                              struct tw_eval *eval, struct tw_error *err);

/* The verb argv[1], import or export, with options of its own. */
enum tw_exit engine_convert(int argc, char **argv);

/* The verb argv[1], data, and what argv[2] can be: each reads its own options from argv[3]. */
enum tw_exit engine_data(int argc, char **argv);
enum tw_exit engine_prepare(int argc, char **argv);
enum tw_exit engine_info(int argc, char **argv);
enum tw_exit engine_weigh(int argc, char **argv);

/* "thinwire: ..." on standard error, and the exit status that belongs to it. */
enum tw_exit engine_fail(const struct tw_error *err);

/* Monotonic seconds. */
double engine_now_s(void);

#endif
