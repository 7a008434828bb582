/* manifest_text.h - run manifests as files, and their explanation in words and numbers. */
#ifndef TW_DAEMON_CLI_RUN_MANIFEST_TEXT_H
#define TW_DAEMON_CLI_RUN_MANIFEST_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "proto/run/run.h"

/* Reads a manifest, or a run file that a person edits. TW_CONFIG names the file and the line. */
enum tw_status cli_manifest_load(const char *path, struct tw_run *run, struct tw_error *err);

/* Id, name, sizes and canonical text of the run, as `--json` prints them. The caller owns the
 * object. path may be NULL. */
json_t *cli_manifest_json(const struct tw_run *run, const char *path);

/* The value of a key ("sync.preset") as text[TW_RUN_VALUE_BYTES]; returns text. */
const char *cli_run_word(const struct tw_run *run, const char *key, char *text);

/* The speed from which bytes per hour are computed. */
struct cli_pace {
    double steps_per_s; /* speed of a node */
    bool is_guess;      /* neither given nor measured */
    double bits;        /* bits per parameter of a contribution; 0: those of the codec */
};

/* Prints model, training and synchronisation: sizes, planned outer steps, the reasons for the outer
 * constants, bytes per round and per hour at that pace, and the memory that a node takes here. */
void cli_manifest_explain(FILE *to, const struct tw_run *run, const struct cli_pace *pace);

#endif
