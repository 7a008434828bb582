/* token_file.h - token numbers in a file, read where they are wanted. Nothing is mapped: a file
 * that shrinks, or was damaged, is a sentence. Shards of ours are checked piece by piece, each
 * before its first use, so that wrong bytes are never trained on and nobody waits for a whole
 * shard. */
#ifndef TW_WORKER_DATA_TOKEN_FILE_H
#define TW_WORKER_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/shard.h"

enum {
    TW_TOKEN_FILES_OPEN = 64, /* at a time, by one reader */
    TW_TOKEN_READ_MAX = 1 << 15,
};

struct tw_token_file {
    char *path;           /* owned; what messages name */
    int fd;               /* -1: not open */
    uint32_t token_bytes; /* 1, 2, 4 or 8, little-endian */
    bool is_signed;
    uint64_t begin_bytes; /* where the first token lies */
    uint64_t tokens_count;
    uint64_t file_bytes;

    /* Of a shard: */
    bool is_shard;
    struct tw_id name;
    uint64_t documents_begin, documents_count;
    uint8_t *checked; /* a bit per piece; NULL until one was */
};

/* Frees what the file holds; not the file's own memory. */
void tw_token_file_deinit(struct tw_token_file *file);

/* What follows from the numbers of a planned or decoded shard; path and name are the caller's. */
void tw_token_file_set_shard(struct tw_token_file *file, const struct tw_shard *shard);

/* A few open files and room for a piece: one thread's. */
struct tw_token_reader {
    struct tw_token_file *open[TW_TOKEN_FILES_OPEN];
    uint32_t open_next;
    uint8_t *bytes;
    uint64_t vocab; /* every token must be smaller */
};

enum tw_status tw_token_reader_init(struct tw_token_reader *reader, uint64_t vocab,
                                    struct tw_error *err);
void tw_token_reader_deinit(struct tw_token_reader *reader); /* before its files */

/* Opens the file, if it is not; what is read opens it too. TW_DATA. */
enum tw_status tw_token_open(struct tw_token_reader *reader, struct tw_token_file *file,
                             struct tw_error *err);

/* Tokens [first, first + count) of the file into tokens (count); they are within its tokens_count.
 * TW_DATA names file and place: cut off, damaged, or a token outside the vocabulary. */
enum tw_status tw_token_read(struct tw_token_reader *reader, struct tw_token_file *file,
                             uint64_t first, uint32_t count, uint32_t *tokens,
                             struct tw_error *err);

/* First token of document i < documents_count of a shard, and how many it has. TW_DATA. */
enum tw_status tw_token_document(struct tw_token_reader *reader, struct tw_token_file *file,
                                 uint64_t i, uint64_t *first, uint64_t *count,
                                 struct tw_error *err);

/* Whether the file lies there with the bytes it must have; nothing of it is read. */
bool tw_token_file_is_there(const struct tw_token_file *file);

/* Bytes [offset, offset + size) of a file that must have them. TW_DATA. */
enum tw_status tw_token_file_bytes(int fd, const char *path, uint64_t offset, void *bytes,
                                   size_t size, struct tw_error *err);

#endif
