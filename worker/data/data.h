/* data.h - training data as a learner sees it: windows to train on, whose order depends on (seed,
 * cursor) alone, and held-out windows that are never trained on.
 *
 * What a path may be: worker/data/corpus.h. With the tokenizer `bytes` a byte of a text is a token;
 * with `ids` a file holds token numbers: 16-bit little-endian when the vocabulary has at most
 * 65536, else 32-bit. Where the data do not say what is held out, their last share is; of
 * Megatron's, from the beginning of a document on.
 *
 * Every epoch visits every window once, in an order of its own (worker/data/stream.h), sources
 * mixed by their weights, the beginning from easy to hard if the manifest says so. A dataset may
 * lack shards that its index names: windows of those are replaced by others until they are there.
 */
#ifndef TW_WORKER_DATA_DATA_H
#define TW_WORKER_DATA_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"

struct tw_data {
    uint64_t bytes; /* of all files */
    uint64_t tokens_count, train_count, heldout_count;
    uint32_t files_count, files_here; /* files there should be, and are */
    uint32_t context;
    struct tw_data_inner *inner; /* NULL: not open */
};

/* Opens what lies at path and splits it. If the manifest names data by SHA-256 they must be those:
 * a text is hashed whole, a dataset by its index, and its shards as they are used. TW_DATA names
 * the path and the way out: missing, damaged, another one, too short for one window on either side
 * of the split, or of another tokenizer. TW_AGAIN: a dataset of which no shard for training is
 * there yet. One thread at a time may use it. */
enum tw_status tw_data_open(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err);
void tw_data_close(struct tw_data *data);

/* Draws `sequences_count` training windows into tokens (sequences_count, context + 1) and advances
 * *cursor by sequences_count * context tokens. The cursor is all there is to save: the same (seed,
 * cursor) draws the same windows, as long as all shards are there. TW_DATA, and the cursor stays:
 * a file is cut off, damaged, or holds a token outside the vocabulary. */
enum tw_status tw_data_draw(struct tw_data *data, uint64_t seed, uint64_t *cursor,
                            uint32_t sequences_count, uint32_t *tokens, struct tw_error *err);

/* Held-out windows that do not overlap in their targets; window i of `count` evenly spaced ones
 * into tokens (context + 1). i < count <= tw_data_heldout_count(), which is 0 while no held-out
 * shard of a dataset is there. TW_DATA. */
uint64_t tw_data_heldout_count(const struct tw_data *data);
enum tw_status tw_data_heldout(struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens,
                               struct tw_error *err);

/* Takes in shards that have arrived since; cheap where none is missing. To be called between steps,
 * about once a second. */
void tw_data_refresh(struct tw_data *data);

#endif
