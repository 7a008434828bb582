/* data_path.h - training data at a path, described as in a manifest: the SHA-256 of a text, or the
 * index of a dataset. */
#ifndef TW_DAEMON_CLI_RUN_DATA_PATH_H
#define TW_DAEMON_CLI_RUN_DATA_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/input_kind.h"
#include "base/status.h"
#include "proto/dataset.h"
#include "proto/run/run.h"

struct cli_data {
    bool is_dataset;
    struct tw_id digest;                   /* value of data.sha256 */
    uint64_t bytes;                        /* size of the text, or of all shards */
    uint64_t train_tokens, heldout_tokens; /* total tokens in a dataset's shards */
    /* tokens of the longest shard, because a window never spans two shards */
    uint64_t train_longest, heldout_longest;
    /* shards of a dataset; those whose files exist with the right size */
    uint32_t shards, shards_here;
    uint8_t head[TW_FILE_LOOK_BYTES]; /* first head_bytes bytes of a text */
    size_t head_bytes;
    struct tw_dataset about; /* index of a dataset, without its list of shards */
};

/* Hashes a text, or the .bin of a Megatron pair, or the index in a folder, which is also parsed.
 * Returns TW_DATA on failure, with the path and the remedy. */
enum tw_status cli_data_read(const char *path, struct cli_data *data, struct tw_error *err);

/* Checks that these are the run's data, with enough tokens for a window on either side of the
 * split. Returns TW_DATA otherwise. */
enum tw_status cli_data_check(const struct cli_data *data, const char *path,
                              const struct tw_run *run, struct tw_error *err);

/* Does both, for a node of an existing run: there it would be wrong to prepare a dataset anew. */
enum tw_status cli_data_of_run(const char *path, const struct tw_run *run, struct cli_data *data,
                               struct tw_error *err);

#endif
