#include "tests/daemon/dataset/dataset_sample.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "proto/dataset.h"

enum { SOME_TOKENS = 300000, INDEX_ROOM = 16 * 1024 };

static void *memory(size_t size) {
    void *bytes = calloc(1, size);
    TW_ASSERT(bytes != NULL);
    return bytes;
}

/* Returns token i of a shard. A document is one line of text; token 0 begins a document. */
static uint32_t token_at(uint32_t shard, uint32_t i) {
    char line[64];
    (void)snprintf(line, sizeof(line), "The line %6u of shard %2u ends.\n", i / 33, shard);
    return i % 33 == 0 ? 0 : (uint8_t)line[i % 33 - 1];
}

static void shard_make(struct dataset_sample *sample, uint32_t i, uint32_t tokens,
                       struct sample_file *file) {
    struct tw_dataset_shard *row = &sample->shards[i];
    struct tw_shard shard = {.token_bytes = tw_shard_token_bytes(sample->index.vocab, false),
                             .vocab = sample->index.vocab,
                             .separator = 0,
                             .tokens_count = tokens,
                             .documents_count = (tokens + 32) / 33,
                             .tokenizer = sample->index.tokenizer,
                             .is_heldout = row->is_heldout,
                             .number = row->number};
    TW_ASSERT(tw_shard_plan(&shard, NULL) == TW_OK);
    file->size = shard.head_bytes + shard.body_bytes;
    file->bytes = memory(file->size);
    uint8_t *body = file->bytes + shard.head_bytes;
    for (uint32_t k = 0; k < tokens; k++) {
        const uint32_t token = token_at(i, k);
        body[k * shard.token_bytes] = (uint8_t)token; /* the other bytes are zero */
    }
    for (uint32_t k = 0; k < shard.documents_count; k++) {
        tw_put_u32(body + shard.documents_begin + 4 * (size_t)k, 33 * k);
    }
    struct tw_id *digests = memory(shard.pieces_count * sizeof(*digests));
    for (uint32_t k = 0; k < shard.pieces_count; k++) {
        digests[k] =
            tw_sha256(body + (size_t)k * TW_SHARD_PIECE_BYTES, tw_shard_piece_bytes(&shard, k));
    }
    tw_shard_encode(&shard, digests, file->bytes);
    free(digests);
    row->name = tw_sha256(file->bytes, shard.head_bytes);
    row->head_bytes = shard.head_bytes;
    row->file_bytes = file->size;
    row->tokens_count = shard.tokens_count;
    row->documents_count = shard.documents_count;
    tw_dataset_file(&sample->index, row, file->name);
}

static void tokenizer_make(struct dataset_sample *sample, uint32_t bytes) {
    struct sample_file *file = &sample->files[sample->files_count++];
    (void)snprintf(file->name, sizeof(file->name), TW_DATASET_TOKENIZER_FILE);
    file->size = bytes;
    file->bytes = memory(bytes);
    for (uint32_t i = 0; i < bytes; i++) file->bytes[i] = (uint8_t)('a' + i % 23);
    sample->index.tokenizer = tw_sha256(file->bytes, bytes);
    sample->index.tokenizer_bytes = bytes;
    sample->index.vocab = 300;
}

static void index_make(struct dataset_sample *sample) {
    struct sample_file *file = &sample->files[0];
    (void)snprintf(file->name, sizeof(file->name), TW_DATASET_INDEX_FILE);
    file->bytes = memory(INDEX_ROOM);
    struct tw_error err = {0};
    if (tw_dataset_encode(&sample->index, (char *)file->bytes, INDEX_ROOM, &file->size, &err) !=
        TW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        abort();
    }
    sample->hash = tw_sha256(file->bytes, file->size);
}

void dataset_sample_make(struct dataset_sample *sample, const struct sample_options *options) {
    memset(sample, 0, sizeof(*sample));
    sample->index = (struct tw_dataset){.vocab = 256,
                                        .separator = 0,
                                        .heldout_millionths = options->heldout > 0 ? 10000 : 0,
                                        .sources_count = 1,
                                        .shards = sample->shards,
                                        .shards_capacity = SAMPLE_SHARDS_MAX};
    (void)snprintf(sample->index.sources[0].name, TW_DATASET_NAME_BYTES, "text");
    sample->files_count = 1;
    if (options->tokenizer_bytes > 0) tokenizer_make(sample, options->tokenizer_bytes);
    sample->index.shards_count = options->train + options->heldout;
    TW_ASSERT(options->train > 0 && sample->index.shards_count <= SAMPLE_SHARDS_MAX);
    for (uint32_t i = 0; i < sample->index.shards_count; i++) {
        sample->shards[i].is_heldout = i >= options->train;
        sample->shards[i].number = i < options->train ? i : i - options->train;
        shard_make(sample, i, options->tokens > 0 ? options->tokens : SOME_TOKENS,
                   &sample->files[sample->files_count++]);
    }
    if (options->has_wrong_head) sample->index.separator = 1;
    index_make(sample);
}

void dataset_sample_free(struct dataset_sample *sample) {
    for (uint32_t i = 0; i < sample->files_count; i++) free(sample->files[i].bytes);
    sample->files_count = 0;
}

void dataset_sample_write(const struct dataset_sample *sample, uint32_t i, const char *folder) {
    const struct sample_file *file = &sample->files[i];
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file->name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    TW_ASSERT(fd >= 0);
    TW_ASSERT(write(fd, file->bytes, file->size) == (ssize_t)file->size);
    TW_ASSERT(close(fd) == 0);
}

void dataset_sample_write_all(const struct dataset_sample *sample, const char *folder) {
    for (uint32_t i = 0; i < sample->files_count; i++) dataset_sample_write(sample, i, folder);
}
