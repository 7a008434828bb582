/* dataset_folder.h - writes datasets for tests from a plan, as `thinwire data prepare` would. */
#ifndef TW_TESTS_WORKER_DATA_DATASET_FOLDER_H
#define TW_TESTS_WORKER_DATA_DATASET_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/dataset.h"

/* Every source gets `train_shards` and `heldout_shards` of `shard_tokens` tokens, in documents of
 * `document_tokens`. A token's value encodes its place, so a window shows where it comes from. */
struct dataset_plan {
    uint32_t vocab;
    int64_t separator;
    struct tw_id tokenizer;
    uint32_t heldout_millionths;
    uint32_t sources_count;
    uint32_t weights_millionths[4];
    uint32_t train_shards, heldout_shards;
    uint32_t shard_tokens, document_tokens;
    bool has_answers; /* the tokens of every second document are answers */
    uint32_t (*token)(uint32_t source, bool is_heldout, uint32_t shard, uint32_t i);
};

/* Writes shards and index into an existing folder. Returns the SHA-256 of the index. */
struct tw_id dataset_folder_write(const char *folder, const struct dataset_plan *plan);

/* Removes the dataset and the folder. */
void dataset_folder_remove(const char *folder);

#endif
