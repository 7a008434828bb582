/* engine_options.h - the command line of the verbs that need a model but no daemon. */
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

enum { ENGINE_FILES_MAX = 64 }; /* that merge takes */

/* Strings are borrowed from the command line; NULL where not given. */
struct engine_options {
    const char *file, *run, *data, *out, *from, *prompt, *part, *tokenizer;
    const char *files[ENGINE_FILES_MAX]; /* of merge; the first is `file` too */
    const char *runs[ENGINE_FILES_MAX];  /* and the manifest of each; NULL: it may carry one */
    uint32_t files_count;
    const char *weights; /* of merge: equal, loss, greedy or a list */
    struct tw_compute_config compute;
    uint64_t tokens, steps, seed, windows, eval_steps, save_steps;
    uint32_t top_k, samples;
    double temperature, top_p, repeat_penalty;
    double merge_temperature; /* nats */
    bool has_seed, json, is_ablation;
    bool is_plan; /* is_plan: say what it would take, and stop */
};

/* Options of one verb from argv[2..argc), over what *options holds. TW_CONFIG with a sentence:
 * unknown ones with the nearest of this verb, wrong values with what would be accepted. */
enum tw_status tw_engine_options_parse(struct engine_options *options, enum engine_verb verb,
                                       int argc, char **argv, struct tw_error *err);

#endif
