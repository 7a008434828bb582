/* manifest_text.h - reads run manifests from files, and explains them in words and numbers. */
#ifndef TW_DAEMON_CLI_RUN_MANIFEST_TEXT_H
#define TW_DAEMON_CLI_RUN_MANIFEST_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "proto/run/run.h"

/* Reads a manifest, or a run file that a person edits. Returns TW_CONFIG on failure, with file and
 * line. */
enum tw_status cli_manifest_load(const char *path, struct tw_run *run, struct tw_error *err);

/* Returns id, name, sizes and canonical text of the run, as `--json` prints them. The caller owns
 * the object. `path` may be NULL. */
json_t *cli_manifest_json(const struct tw_run *run, const char *path);

/* Writes the value of a key ("sync.preset") to text[TW_RUN_VALUE_BYTES]. Returns `text`. */
const char *cli_run_word(const struct tw_run *run, const char *key, char *text);

/* The speed and bits from which bytes per hour are computed. */
struct cli_pace {
    double steps_per_s; /* speed of a node */
    bool is_guess;      /* the speed was neither given nor measured */
    double bits;        /* bits per parameter of a contribution; 0: the codec's own */
};

/* Prints model, training and synchronisation: sizes, planned outer steps, the reasons for the outer
 * constants, bytes per round and per hour at that pace, and the memory that a node needs on this
 * machine. */
void cli_manifest_explain(FILE *to, const struct tw_run *run, const struct cli_pace *pace);

/* Prints the few lines of it that a person needs before the start, and everything that is wrong:
 * model, tokens and their time, upload, memory, data. */
void cli_manifest_sum_up(FILE *to, const struct tw_run *run, const struct cli_pace *pace);

#endif
