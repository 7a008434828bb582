/* engine_verb.h - the commands (verbs) of thinwire-engine, and the helpers they share. */
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
#include "worker/files/train_file.h"
#include "worker/learn/learner_engine.h"
#include "worker/tokenizer/text_ends.h"

/* Objects on which a command works: manifest and layout, the data if there are any, and the engine
 * once it is created. */
struct engine_bench {
    const struct engine_options *options;
    struct tw_compute_config compute; /* compute settings of the options, completed from a training
                                         file */
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine;
    struct tw_data data; /* data.inner is NULL if there are no data */
};

enum tw_exit engine_generate(struct engine_bench *bench);
enum tw_exit engine_eval(struct engine_bench *bench);
enum tw_exit engine_train(struct engine_bench *bench);
enum tw_exit engine_devices(struct engine_bench *bench);
enum tw_exit engine_models(struct engine_bench *bench);
enum tw_exit engine_merge(struct engine_bench *bench);
enum tw_exit engine_speed(struct engine_bench *bench);

/* Creates bench->engine, configured for the command and its options. */
enum tw_status engine_open(struct engine_bench *bench, enum engine_verb verb, struct tw_error *err);

/* If *model (NULL: none) is a node's state folder, replaces it by the folder's newest undamaged
 * checkpoint, and a NULL *run by the path of the manifest. Prints the chosen file to standard
 * error. The new paths point into *found, which must outlive them. */
enum tw_status engine_take_state(const char **model, const char **run, const char *part,
                                 struct tw_state_found *found, struct tw_error *err);

/* Reads the parameters of the model at `path`, which must fit bench->run, into
 * params[layout.elements]. */
enum tw_status engine_read(const struct engine_bench *bench, const char *path, float *params,
                           struct tw_error *err);

/* Loads parameters into bench->engine from a checkpoint, a training file, weights or a folder. */
enum tw_status engine_load(struct engine_bench *bench, const char *path, struct tw_error *err);

/* Runs tw_eval_heldout over the windows that the options ask for. On a terminal, a progress line
 * appears after the first second, and `what` names the model in it. */
enum tw_status engine_measure(struct engine_bench *bench, const float *params, const char *what,
                              struct tw_eval *eval, struct tw_error *err);

/* Checks that the tokens are the same if the model is a folder with a tokenizer.json and the data
 * are a dataset with another one. The message of TW_DATA names the first token that differs. */
enum tw_status engine_check_tokenizer(const struct engine_options *options, struct tw_error *err);

/* Runs the command in argv[1], import or export, which parses its own options. */
enum tw_exit engine_convert(int argc, char **argv);

/* Runs the command `data`, whose subcommand is argv[2]. Each subcommand parses its own options from
 * argv[3] on. */
enum tw_exit engine_data(int argc, char **argv);
enum tw_exit engine_prepare(int argc, char **argv);
enum tw_exit engine_info(int argc, char **argv);
enum tw_exit engine_weigh(int argc, char **argv);

/* Warns on standard error if a model's files name no end token, or name one that cannot be valid.
 * tokenizer NULL: the output is token numbers. */
void engine_warn_ends(const struct tw_text_ends *ends, const struct tw_tokenizer *tokenizer,
                      uint32_t vocab);

/* Prints the error as "thinwire: ..." to standard error and returns the matching exit status. */
enum tw_exit engine_fail(const struct tw_error *err);

/* Time of the monotonic clock in seconds. */
double engine_now_s(void);

#endif
