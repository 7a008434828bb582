/* tensors.h - chooses the tensors of a run of any model, from the headers of one safetensors
 * file or of all files in a folder. */
#ifndef TW_DAEMON_CLI_RUN_TENSORS_H
#define TW_DAEMON_CLI_RUN_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "daemon/cli/common/cli.h"
#include "proto/run/layout.h"

enum { CLI_PATTERNS_MAX = 32 };

struct cli_pick {
    const char *path; /* value of --tensors: a file, a folder of files, or a list; NULL: none */
    const char *base; /* value of --base: a file or a folder; NULL: none */
    const char *train[CLI_PATTERNS_MAX], *frozen[CLI_PATTERNS_MAX]; /* patterns for fnmatch */
    uint32_t train_count, frozen_count;

    uint32_t tensors, seen;           /* tensors chosen for the run; all tensors in the files */
    uint32_t no_floats;               /* tensors in the files that are not floating-point */
    uint64_t elements_seen;           /* elements of the floating-point tensors in the files */
    char text[TW_TENSORS_TEXT_BYTES]; /* model.tensors */
    struct tw_id base_digest;         /* value of model.base; zero without --base */
};

/* Reads --tensors, --base, --train and --frozen from the command line. */
enum tw_exit cli_pick_read(struct cli *cli, struct cli_pick *pick);

/* Reads the headers, chooses the tensors that match a --train (all without one) and no --frozen,
 * and folds them. Hashes the base. Returns TW_CONFIG or TW_DATA on failure, with the remedy. */
enum tw_status cli_pick_tensors(struct cli_pick *pick, struct tw_error *err);

struct cli_tensor {
    char name[TW_TENSOR_NAME_BYTES];
    struct tw_tensor_shape shape; /* sides beyond the rank are 0 */
    bool is_folded;               /* used while folding */
};

/* Sorts the tensors by name, numbers by value, and writes their list. The same tensors in any order
 * give the same text. Returns TW_CONFIG if a list cannot hold a name, a shape or so many tensors.
 */
enum tw_status cli_tensors_fold(struct cli_tensor *tensors, uint32_t count,
                                char text[TW_TENSORS_TEXT_BYTES], struct tw_error *err);

#endif
