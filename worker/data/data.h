/* data.h - the training data of a run: training windows, whose order depends only on (seed,
 * cursor), and held-out windows, which are never trained on.
 *
 * worker/data/corpus.h lists the kinds of data. With the tokenizer `bytes`, each byte of a text is
 * a token. With `ids`, a file holds token numbers: 16-bit little-endian if the vocabulary has at
 * most 65536 tokens, else 32-bit. If the data do not declare a held-out part, their last share is
 * held out. In Megatron-LM files this share starts at a document boundary.
 *
 * Every epoch visits every window once, in an order that differs from epoch to epoch
 * (worker/data/stream.h). Sources are mixed by weight. The manifest may ask for a curriculum, which
 * at first draws easy windows and then harder ones. With data.loss = answers, tokens outside
 * answers have the bit TW_TOKEN_UNSCORED. Shards that the index of a dataset names may be missing.
 * Until they arrive, other windows replace theirs. */
#ifndef TW_WORKER_DATA_DATA_H
#define TW_WORKER_DATA_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/run.h"
#include "worker/data/token_file.h"

struct tw_data {
    uint64_t bytes; /* size of all files */
    uint64_t tokens_count, train_count, heldout_count;
    uint32_t files_count, files_here; /* number of all files of the data, and of those present */
    uint32_t context;
    struct tw_data_inner *inner; /* NULL: not open */
};

/* Opens and splits the data at path, for use by one thread at a time. If the manifest names data by
 * SHA-256, the data must match. A text is hashed as a whole. For a dataset, only the index is
 * hashed now; each shard is verified on first use. Errors:
 * - TW_DATA, with the path and a remedy: missing, damaged, other data, another tokenizer, or too
 *   short for one window on each side of the split;
 * - TW_AGAIN: no training shard of a dataset has arrived yet. */
enum tw_status tw_data_open(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err);

/* The same for data that are only measured: every window counts as held out, and none can be drawn.
 * TW_DATA: also if the data are shorter than one window. */
enum tw_status tw_data_open_whole(struct tw_data *data, const char *path, const struct tw_run *run,
                                  struct tw_error *err);
void tw_data_close(struct tw_data *data);

/* Draws `sequences_count` training windows into tokens (sequences_count, context + 1) and advances
 * *cursor by sequences_count * context tokens. Only the cursor needs saving: the same (seed,
 * cursor) draws the same windows if all shards are present. Fails with TW_DATA and leaves *cursor
 * unchanged if a file is truncated, damaged, or has a token outside the vocabulary. */
enum tw_status tw_data_draw(struct tw_data *data, uint64_t seed, uint64_t *cursor,
                            uint32_t sequences_count, uint32_t *tokens, struct tw_error *err);

/* Held-out windows. No two of them have a target token in common. tw_data_heldout reads window i of
 * `count` evenly spaced windows into tokens (context + 1), with i < count <=
 * tw_data_heldout_count(). The count is 0 while no held-out shard of a dataset is present. Fails
 * with TW_DATA. */
uint64_t tw_data_heldout_count(const struct tw_data *data);
enum tw_status tw_data_heldout(struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens,
                               struct tw_error *err);

/* Adds shards that have arrived. A call is cheap if none is missing. Call it between steps, about
 * once a second. */
void tw_data_refresh(struct tw_data *data);

#endif
