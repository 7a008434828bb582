/* engine_options.h - command-line options of the commands that need a model but no daemon. */
#ifndef TW_WORKER_CLI_ENGINE_OPTIONS_H
#define TW_WORKER_CLI_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/compute.h"

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
    const char *file, *run, *data, *out, *from, *prompt, *part, *tokenizer, *eos;
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
};

/* Parses a command's options from argv[2..argc) into *options, which holds the defaults. Fails with
 * TW_CONFIG. The message suggests this command's nearest option for an unknown one, and names the
 * accepted values for a bad value. */
enum tw_status tw_engine_options_parse(struct engine_options *options, enum engine_verb verb,
                                       int argc, char **argv, struct tw_error *err);

#endif
