/* manifest_text.h - run manifests as files, and what a manifest means in words and numbers. */
#ifndef TW_DAEMON_CLI_MANIFEST_TEXT_H
#define TW_DAEMON_CLI_MANIFEST_TEXT_H

#include <stdio.h>

#include "base/status.h"
#include "proto/run.h"

/* Reads a manifest or a run file a person edits. TW_CONFIG names the file and the line. */
enum tw_status cli_manifest_load(const char *path, struct tw_run *run, struct tw_error *err);

/* Model, training and synchronisation: sizes, planned outer steps, why these outer constants, bytes
 * per round and per hour at steps_per_s inner steps a second. */
void cli_manifest_explain(FILE *to, const struct tw_run *run, double steps_per_s);

/* Bits per parameter of a merge. One of sparse contributions has the positions of all of them, and
 * a value takes about as much room as a position. */
double cli_result_bits(const struct tw_run *run);

#endif
