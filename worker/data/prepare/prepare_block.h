/* prepare_block.h - blocks of documents on their way from the reader through the tokenizers to the
 * writer, which gets them in the order they were read.
 *
 * The way is bounded in blocks and in bytes of text; one block may pass alone whatever its size. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_BLOCK_H
#define TW_WORKER_DATA_PREPARE_PREPARE_BLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/tokenizer_text.h"

enum {
    TW_BLOCK_BYTES = 1 << 20, /* of text; more where one document is longer */
    TW_BLOCK_DOCUMENTS_MAX = 4096,
    TW_BLOCKS_MAX = 256, /* on their way */
    TW_BLOCKS_SPARE = 8, /* kept to be used again */
};

enum tw_document_fate {
    TW_DOCUMENT_EMPTY,
    TW_DOCUMENT_TRAIN,
    TW_DOCUMENT_HELDOUT,
    TW_DOCUMENT_BAD
};

struct tw_block_document {
    /* By the reader: text[at .. at + taken) belongs to it, and text[begin .. begin + bytes) is it.
     * One that is too long is BAD from the start, and not in the text. */
    size_t at, taken, begin, bytes;
    enum tw_document_fate fate;
    /* By a tokenizer; lines of one that is too long by the reader. */
    uint32_t lines_before, lines; /* ends of lines up to `begin`, and in all that belongs to it */
    uint32_t invalid_bytes, lost_bytes;
    uint32_t tokens_count;
    size_t tokens_begin;
};

enum tw_block_end {
    TW_BLOCK_GOES_ON, /* the file does, in the next block */
    TW_BLOCK_FILE_END,
    TW_BLOCK_FILE_BAD,    /* nothing more of it can be used: `file_bad` */
    TW_BLOCK_FILE_BINARY, /* found in a folder and passed over, as is one that is */
    TW_BLOCK_FILE_EMPTY,
    TW_BLOCK_INPUTS_END,
};

/* Documents of one file. */
struct tw_block {
    size_t file; /* index into the inputs */
    bool is_records;
    bool is_tokens; /* the text is token numbers, 32-bit little-endian */
    enum tw_block_end end;
    uint64_t at;    /* where in the file's text this text begins */
    uint64_t taken; /* bytes of the file on the disk read so far */
    uint8_t *text;  /* (bytes of capacity) */
    size_t bytes, capacity;
    struct tw_block_document *documents; /* (documents_count of TW_BLOCK_DOCUMENTS_MAX) */
    uint32_t documents_count;
    uint32_t bad_document; /* the first that is bad, */
    struct tw_error bad;   /* and why; status TW_OK: none */
    struct tw_error file_bad;
    struct tw_error failure; /* status TW_OK: none; else nothing can go on */
    struct tw_tokens tokens; /* of all documents */
    bool is_done;
};

struct tw_blocks {
    pthread_mutex_t mutex;
    pthread_cond_t has_room, has_work, has_done;
    struct tw_block *ring[TW_BLOCKS_MAX];
    uint64_t put, taken, got;  /* blocks so far: by the reader, the tokenizers, the writer */
    uint64_t bytes, bytes_max; /* of text on its way */
    struct tw_block *spare[TW_BLOCKS_SPARE];
    uint32_t spare_count;
    bool is_stopped;
};

enum tw_status tw_blocks_init(struct tw_blocks *blocks, uint64_t bytes_max, struct tw_error *err);
/* No thread is left. Frees what is on its way. */
void tw_blocks_deinit(struct tw_blocks *blocks);

/* An empty block of TW_BLOCK_BYTES, the caller's. TW_NOMEM. */
enum tw_status tw_blocks_create(struct tw_blocks *blocks, struct tw_block **block,
                                struct tw_error *err);
void tw_block_destroy(struct tw_block *block); /* NULL is fine */

/* Room for so many bytes of text; what is there stays. TW_NOMEM. */
enum tw_status tw_block_reserve(struct tw_block *block, size_t bytes, struct tw_error *err);

/* The reader's: waits for room, and gives the block away. False: all is to stop; it is destroyed.
 */
bool tw_blocks_put(struct tw_blocks *blocks, struct tw_block *block);

/* A tokenizer's: the next block, or NULL: all is to stop. It tells when it is done with it. */
struct tw_block *tw_blocks_take(struct tw_blocks *blocks);
void tw_blocks_done(struct tw_blocks *blocks, struct tw_block *block);

/* The writer's: the next block in order, or NULL when that took longer than wait_ms. It stays on
 * its way until it is released. */
struct tw_block *tw_blocks_get(struct tw_blocks *blocks, uint32_t wait_ms);
void tw_blocks_release(struct tw_blocks *blocks, struct tw_block *block);

/* Whoever waits is woken, and nobody gets a block any more. */
void tw_blocks_stop(struct tw_blocks *blocks);

#endif
