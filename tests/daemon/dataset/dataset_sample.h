/* dataset_sample.h - a small complete dataset in memory: an index, shards, and optionally a
 * tokenizer. Documents are lines of text. A token is one byte of the text, stored in 16 bits if
 * there is a tokenizer. So a real worker can train on it. */
#ifndef TW_TESTS_DAEMON_DATASET_DATASET_SAMPLE_H
#define TW_TESTS_DAEMON_DATASET_DATASET_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/dataset.h"

enum { SAMPLE_SHARDS_MAX = 16, SAMPLE_FILES_MAX = SAMPLE_SHARDS_MAX + 2 };

struct sample_file {
    char name[TW_DATASET_FILE_BYTES];
    uint8_t *bytes; /* owned */
    size_t size;
};

struct dataset_sample {
    struct tw_id hash; /* SHA-256 of the index */
    struct tw_dataset index;
    struct tw_dataset_shard shards[SAMPLE_SHARDS_MAX];
    uint32_t files_count;
    /* index, then the tokenizer if any, then the shards */
    struct sample_file files[SAMPLE_FILES_MAX];
};

struct sample_options {
    uint32_t train, heldout;  /* numbers of shards: for training (at least one), and held out */
    uint32_t tokens;          /* tokens of each shard; 0: a default */
    uint32_t tokenizer_bytes; /* bytes of the tokenizer file; 0: no tokenizer */
    bool has_wrong_head;      /* index and shard headers disagree about the separator */
};

void dataset_sample_make(struct dataset_sample *sample, const struct sample_options *options);
void dataset_sample_free(struct dataset_sample *sample);

/* Writes file i, or all files, to a folder. */
void dataset_sample_write(const struct dataset_sample *sample, uint32_t i, const char *folder);
void dataset_sample_write_all(const struct dataset_sample *sample, const char *folder);

#endif
