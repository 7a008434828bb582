/* engine_verb.h - the commands (verbs) of thinwire-engine, and the helpers they share. */
#ifndef TW_WORKER_CLI_ENGINE_VERB_H
#define TW_WORKER_CLI_ENGINE_VERB_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/exit_codes.h"
#include "base/status.h"
#include "proto/compute.h"
#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "worker/data/data.h"
#include "worker/engine/engine.h"
#include "worker/files/train_file.h"
#include "worker/learn/learner_engine.h"
#include "worker/tokenizer/text_ends.h"

/* ---- command-line options of the commands that need a model but no daemon -------------------- */

enum engine_verb {
    ENGINE_TRAIN = 1,
    ENGINE_EVAL = 2,
    ENGINE_GENERATE = 4,
    ENGINE_MODELS = 8,
    ENGINE_MERGE = 16,
    ENGINE_INFO = 32,
    ENGINE_SPEED = 64,
};

enum { ENGINE_FILES_MAX = 64 }; /* limit of the files that merge accepts */

/* Options of a command. Strings are borrowed from the command line, or NULL if not given. */
struct engine_options {
    const char *file, *run, *data, *out, *from, *prompt, *part, *tokenizer, *eos, *adapter;
    /* state folder and training data of the node that `thinwire` means without a file, or NULL */
    const char *node, *node_data;
    const char *files[ENGINE_FILES_MAX]; /* merge only: the models; the first equals `file` */
    /* merge only: manifest of each file; NULL: not given, but the file may contain one */
    const char *runs[ENGINE_FILES_MAX];
    uint32_t files_count;
    const char *weights; /* merge only: "equal", "loss", "greedy" or a list of numbers */
    struct tw_compute_config compute;
    uint64_t tokens, steps, seed, windows, eval_steps, save_steps;
    uint32_t top_k, samples;
    double temperature, top_p, repeat_penalty;
    double merge_temperature; /* temperature of merge --weights loss, in nats */
    bool has_seed, json, is_ablation;
    bool is_whole;     /* eval only: measures all of the data, not just the held-out part */
    bool has_trainers; /* models only: also the memory of trainers of one's own */
    bool is_plan;      /* whether the command only prints its plan */
    bool is_profiled;  /* train only: prints the time by operator at the end */
};

/* Parses a command's options from argv[2..argc) into *options, which holds the defaults. Fails with
 * TW_CONFIG. The message suggests this command's nearest option for an unknown one, and names the
 * accepted values for a bad value. */
enum tw_status tw_engine_options_parse(struct engine_options *options, enum engine_verb verb,
                                       int argc, char **argv, struct tw_error *err);

/* ---- engine verb ----------------------------------------------------------------------------- */

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

/* Runs the command `verify`, which parses its own options. */
enum tw_exit engine_verify(int argc, char **argv);

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

/* ---- reads the vocabulary of a model to export, and the tokens that end its texts ------------ */

struct convert_words {
    char path[PATH_MAX]; /* path of the tokenizer.json, or "" if there is none */
    char *text;          /* (bytes) content of the tokenizer.json, or NULL if there is none */
    size_t bytes;
    struct tw_tokenizer *tokenizer; /* NULL if there is none, or its kind is not supported */
    struct tw_error why;            /* reason why the tokenizer is not supported */
    struct tw_text_ends ends;
};

struct convert_words_source {
    const char *from;      /* path of the model, a folder or a file */
    bool is_folder;        /* whether `from` is a folder, which may have a tokenizer.json */
    const char *tokenizer; /* the option --tokenizer, or NULL */
    const char *eos;       /* the option --eos, or NULL */
};

/* Reads the tokenizer.json named by the option, else the one in the folder. A model on bytes gets
 * the byte tokenizer. If the tokenizer's kind is not supported, the vocabulary stays empty, and an
 * export that needs one fails. Fails with TW_CONFIG also if the tokenizer has more tokens than the
 * model. Free *words also after a failure. */
enum tw_status tw_engine_words_read(struct convert_words *words, const struct tw_run *run,
                                    const struct convert_words_source *source,
                                    struct tw_error *err);

/* Checks that the tokenizer at `path` has no more tokens than a model's vocabulary. Fails with
 * TW_CONFIG. */
enum tw_status tw_engine_words_check(const struct tw_tokenizer *tokenizer, const char *path,
                                     uint32_t vocab, struct tw_error *err);

/* Warns on standard error if the model is a folder with a tokenizer.json of other tokens than the
 * one at `path`, which the user named. */
void tw_engine_words_compare(const char *model, const char *path,
                             const struct tw_tokenizer *tokenizer);

/* For a folder without tokenizer.json: prints which other file holds its tokenizer, and a
 * remedy. */
void tw_engine_words_hint(const char *folder);
void tw_engine_words_free(struct convert_words *words);

#endif
