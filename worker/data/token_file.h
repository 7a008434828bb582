/* token_file.h - reads tokens from files on demand. Files are not memory-mapped, so a file that
 * shrinks or is damaged causes an error message, not a signal. Shards of a dataset are verified
 * piece by piece before first use: damaged bytes are never trained on, and training does not wait
 * until a whole shard is hashed. */
#ifndef TW_WORKER_DATA_TOKEN_FILE_H
#define TW_WORKER_DATA_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/dataset.h"

enum {
    TW_TOKEN_FILES_OPEN = 64, /* number of files that one reader keeps open */
    TW_TOKEN_READ_MAX = 1 << 15,
};

struct tw_token_file {
    char *path;           /* owned; used in messages */
    int fd;               /* -1: not open */
    uint32_t token_bytes; /* bytes per token: 1, 2, 4 or 8, little-endian */
    bool is_signed;
    bool has_answers;     /* a shard that marks answers: other tokens are read as unscored */
    uint64_t begin_bytes; /* offset of the first token */
    uint64_t tokens_count;
    uint64_t file_bytes;

    /* Shards only: */
    bool is_shard;
    struct tw_id name;
    uint64_t documents_begin, documents_count;
    uint8_t *checked; /* one bit per piece, set once the piece is verified; NULL before the first */
};

/* Frees the file's members, but not *file. */
void tw_token_file_deinit(struct tw_token_file *file);

/* Fills the fields that a planned or decoded shard determines. The caller sets path and name. */
void tw_token_file_set_shard(struct tw_token_file *file, const struct tw_shard *shard);

/* A cache of open files and a buffer for one piece, for use by one thread. */
struct tw_token_reader {
    struct tw_token_file *open[TW_TOKEN_FILES_OPEN];
    uint32_t open_next;
    uint8_t *bytes;
    uint64_t vocab; /* every token must be below this */
};

enum tw_status tw_token_reader_init(struct tw_token_reader *reader, uint64_t vocab,
                                    struct tw_error *err);

/* call before deinitialising its files */
void tw_token_reader_deinit(struct tw_token_reader *reader);

/* Opens the file unless it is open. tw_token_read calls this itself. Fails with TW_DATA. */
enum tw_status tw_token_open(struct tw_token_reader *reader, struct tw_token_file *file,
                             struct tw_error *err);

/* Reads tokens [first, first + count), which must be within tokens_count, into tokens (count). In a
 * shard that marks answers, every other token has the bit TW_TOKEN_UNSCORED.
 * Fails with TW_DATA if the file is truncated, damaged, or has a token outside the vocabulary; the
 * message names the file and the place. */
enum tw_status tw_token_read(struct tw_token_reader *reader, struct tw_token_file *file,
                             uint64_t first, uint32_t count, uint32_t *tokens,
                             struct tw_error *err);

/* Sets *first and *count to the first token and length of document i < documents_count of a shard.
 * Fails with TW_DATA. */
enum tw_status tw_token_document(struct tw_token_reader *reader, struct tw_token_file *file,
                                 uint64_t i, uint64_t *first, uint64_t *count,
                                 struct tw_error *err);

/* Whether the file exists with the expected size. Reads nothing of it. */
bool tw_token_file_is_there(const struct tw_token_file *file);

/* Reads bytes [offset, offset + size), which must exist. Fails with TW_DATA. */
enum tw_status tw_token_file_bytes(int fd, const char *path, uint64_t offset, void *bytes,
                                   size_t size, struct tw_error *err);

/* ---- token files of Megatron-LM -------------------------------------------------------------- */

/* X.bin holds the tokens; X.idx holds the offsets of
 * sequences and the first sequence of each document. Files of any size can be read, because the
 * index is read on demand and not loaded into memory. */

struct tw_megatron {
    int fd; /* descriptor of X.idx */
    char *index_path, *tokens_path;
    uint32_t token_bytes;
    bool is_signed;
    uint64_t tokens_count, tokens_file_bytes;
    uint64_t sequences_count, documents_count;
};

/* Whether `path` is X.idx or X.bin of a pair, or its common prefix X. */
bool tw_megatron_is_pair(const char *path);

/* Fails with TW_DATA if the format is another one, the tokens are not integers, or the files do not
 * match. */
enum tw_status tw_megatron_open(struct tw_megatron *pair, const char *path, struct tw_error *err);
void tw_megatron_close(struct tw_megatron *pair); /* a zero-initialised pair is allowed */

/* Sets *first to the first token of document i <= documents_count. For i = documents_count, this is
 * the number of tokens. */
enum tw_status tw_megatron_document(const struct tw_megatron *pair, uint64_t i, uint64_t *first,
                                    struct tw_error *err);

/* Sets *first to the first token of the first document that begins at or after `token`, or to the
 * number of tokens if no document does. */
enum tw_status tw_megatron_boundary(const struct tw_megatron *pair, uint64_t token, uint64_t *first,
                                    struct tw_error *err);

#endif
