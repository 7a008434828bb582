/* tensor_pick.h - the tensors of a run of any model, from the header of a safetensors file or of
 * the files of a folder. */
#ifndef TW_DAEMON_CLI_RUN_TENSOR_PICK_H
#define TW_DAEMON_CLI_RUN_TENSOR_PICK_H

#include <stdint.h>

#include "base/id.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/run/tensor_fold.h"

enum { CLI_PATTERNS_MAX = 32 };

struct cli_pick {
    const char *path; /* --tensors: a file, a folder of files, or a list; NULL: not given */
    const char *base; /* --base: a file or a folder, or NULL */
    const char *train[CLI_PATTERNS_MAX], *frozen[CLI_PATTERNS_MAX]; /* fnmatch */
    uint32_t train_count, frozen_count;

    uint32_t tensors, seen; /* tensors in the run, and in the files */
    uint32_t no_floats;     /* tensors in the files that are not of a floating-point type */
    uint64_t elements_seen; /* elements of the floating-point tensors in the files */
    char text[TW_TENSORS_TEXT_BYTES]; /* model.tensors */
    struct tw_id base_digest;         /* model.base: zero without --base */
};

/* Takes --tensors, --base, --train and --frozen from the command line. */
enum tw_exit cli_pick_read(struct cli *cli, struct cli_pick *pick);

/* Reads the headers, chooses the tensors that match a --train (all without one) and no --frozen,
 * and folds them. Hashes the base. TW_CONFIG, TW_DATA: a sentence with the remedy. */
enum tw_status cli_pick_tensors(struct cli_pick *pick, struct tw_error *err);

#endif
