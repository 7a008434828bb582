/* prepare_block.h - the queue of document blocks from the reader through the tokenizers to the
 * writer, which gets them in the order in which they were read.
 *
 * The queue is bounded in blocks and in bytes of text. A block larger than the byte limit waits
 * until the queue is empty. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_BLOCK_H
#define TW_WORKER_DATA_PREPARE_PREPARE_BLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/input_kind.h"
#include "base/status.h"
#include "worker/data/prepare/prepare_inputs.h"
#include "worker/data/text_cut.h"
#include "worker/tokenizer/tokenizer_text.h"

enum {
    TW_BLOCK_BYTES = 1 << 20, /* bytes of text; more if one document is longer */
    TW_BLOCK_DOCUMENTS_MAX = 4096,
    TW_BLOCKS_MAX = 256, /* largest number of blocks in the queue */
    TW_BLOCKS_SPARE = 8, /* number of free blocks kept for reuse */
};

enum tw_document_fate {
    TW_DOCUMENT_EMPTY,
    TW_DOCUMENT_TRAIN,
    TW_DOCUMENT_HELDOUT,
    TW_DOCUMENT_PASSED, /* tar member without text */
    TW_DOCUMENT_BAD
};

struct tw_block_document {
    /* Set by the reader. text[at .. at + taken) is the document with separators, text[begin ..
     * begin + bytes) the document itself. The reader marks an overlong document as BAD and leaves
     * it out of the text. */
    size_t at, taken, begin, bytes;
    enum tw_document_fate fate;
    /* Set by a tokenizer. For an overlong document, the reader sets lines_before and lines. */
    uint32_t lines_before, lines; /* number of line ends before `begin`, and in the whole range */
    uint32_t invalid_bytes, lost_bytes, names;
    uint32_t tokens_count, answer_tokens;
    size_t tokens_begin;
};

enum tw_block_end {
    TW_BLOCK_GOES_ON, /* the file continues in the next block */
    TW_BLOCK_FILE_END,
    TW_BLOCK_FILE_BAD, /* the rest of the file is unusable; `file_bad` says why */
    /* the file is binary and was found in a folder, so it is skipped like an empty file */
    TW_BLOCK_FILE_BINARY,
    TW_BLOCK_FILE_EMPTY,
    TW_BLOCK_INPUTS_END,
};

/* Documents of one file, and their tokens. */
struct tw_block {
    size_t file;             /* index into the inputs */
    enum tw_input_kind kind; /* with TOKENS, `text` holds tokens of 32 bits, little-endian */
    enum tw_block_end end;
    uint64_t at;    /* offset of this block's text in the file's text */
    uint64_t taken; /* bytes of the file on disk that were read so far */
    uint8_t *text;  /* (bytes) used, of `capacity` allocated */
    size_t bytes, capacity;
    struct tw_block_document *documents; /* (documents_count), at most TW_BLOCK_DOCUMENTS_MAX */
    uint32_t documents_count;
    uint32_t bad_document; /* index of the first bad document */
    struct tw_error bad;   /* error of the first bad document; status TW_OK if no document is bad */
    struct tw_error file_bad;
    struct tw_error failure; /* fatal error; status TW_OK if there is none */
    struct tw_tokens tokens; /* tokens of all documents */
    bool is_done;
};

struct tw_blocks {
    pthread_mutex_t mutex;
    pthread_cond_t has_room, has_work, has_done;
    struct tw_block *ring[TW_BLOCKS_MAX];
    /* running totals of blocks: put by the reader, taken by tokenizers, got by the writer */
    uint64_t put, taken, got;
    uint64_t bytes, bytes_max; /* bytes of text in the queue, and their limit */
    struct tw_block *spare[TW_BLOCKS_SPARE];
    uint32_t spare_count;
    bool is_stopped;
};

enum tw_status tw_blocks_init(struct tw_blocks *blocks, uint64_t bytes_max, struct tw_error *err);

/* Frees the blocks in the queue. No thread may still use the queue. */
void tw_blocks_deinit(struct tw_blocks *blocks);

/* Sets *block to a new or reused empty block of TW_BLOCK_BYTES, owned by the caller. Fails with
 * TW_NOMEM. */
enum tw_status tw_blocks_create(struct tw_blocks *blocks, struct tw_block **block,
                                struct tw_error *err);
void tw_block_destroy(struct tw_block *block); /* NULL is allowed */

/* Grows the text buffer to `bytes` bytes and keeps its content. Fails with TW_NOMEM. */
enum tw_status tw_block_reserve(struct tw_block *block, size_t bytes, struct tw_error *err);

/* For the reader: waits for room and moves the block into the queue. Returns false if the queue was
 * stopped; the block is then destroyed. */
bool tw_blocks_put(struct tw_blocks *blocks, struct tw_block *block);

/* For a tokenizer: tw_blocks_take waits for the next block; it returns NULL if the queue was
 * stopped. tw_blocks_done reports that the block is encoded. */
struct tw_block *tw_blocks_take(struct tw_blocks *blocks);
void tw_blocks_done(struct tw_blocks *blocks, struct tw_block *block);

/* For the writer: waits for the next block in order; returns NULL after wait_ms milliseconds. The
 * block counts as queued until it is released. */
struct tw_block *tw_blocks_get(struct tw_blocks *blocks, uint32_t wait_ms);
void tw_blocks_release(struct tw_blocks *blocks, struct tw_block *block);

/* Wakes all waiting threads. From now on no call returns a block. */
void tw_blocks_stop(struct tw_blocks *blocks);

/* the tokenizer threads of `prepare`: turn documents into tokens and decide
 * which are held out.
 *
 * The token stream is separator, document, separator, document. The separator is
 * 1. byte 0 if a token is a byte;
 * 2. else the first token that the template of the tokenizer puts before a text, if there is one.
 *    The template's other tokens then begin the document, and the end-of-text token ends it;
 * 3. else the end-of-text token (as in llm.c).
 *
 * A **chat** is a text in which the noncharacters of Unicode are marks. U+FDD0 NAME U+FDD1 is the
 * special token of this name, and only this is. U+FDD2 begins an answer, U+FDD3 ends it: a token is
 * part of the answer if a byte of it is, all others get the bit TW_TOKEN_UNSCORED. `python3 -m
 * thinwire.data chat` writes such texts, in the field "chat". A chat has all its tokens itself, so
 * only the separator is put before it, unless it begins with that; the separator is the token that
 * --eos names.
 *
 * A document is held out if the first 8 bytes of its text's SHA-256, as a little-endian number
 * modulo a million, are below heldout_millionths. Copies of a text are thus all held out or all
 * trained on. */

struct tw_prepare_coder {
    const struct tw_tokenizer *tokenizer;
    const char *field; /* name of the text field of a JSON record */
    bool is_chat;
    bool is_plain; /* whether tar members are plain texts, even if they look like JSON */
    uint32_t heldout_millionths;
    int64_t separator, closer; /* token before and after a document; TW_SHARD_NO_SEPARATOR: none */
    pthread_mutex_t large;
};

/* Finds separator and closer. is_bytes: a token is a byte. is_chat: of chats, whose separator the
 * caller sets. Fails with TW_NOMEM. */
enum tw_status tw_prepare_coder_init(struct tw_prepare_coder *coder,
                                     const struct tw_tokenizer *tokenizer, bool is_bytes,
                                     bool is_chat, struct tw_error *err);
void tw_prepare_coder_deinit(struct tw_prepare_coder *coder);

/* Encodes all documents of the block, and modifies its text. Each thread has its own encoder. */
void tw_prepare_encode(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                       struct tw_block *block);

/* ---- the block that is being filled, shared by the readers of text and of tokens ------------- */

struct tw_prepare_fill {
    const struct tw_prepare_reader *reader;
    const struct tw_prepare_file *file;
    struct tw_block *block; /* NULL: stopped */
    size_t cut_bytes;       /* end of the last document in block->text */
    uint64_t taken;         /* bytes of the file on disk that were read so far */
};

/* Puts the block into the queue with a fatal error, and stops the reading. */
void tw_prepare_fill_stop(struct tw_prepare_fill *fill, const struct tw_error *failure);

/* Puts the block into the queue. The text after its last document moves to the next block, which
 * begins `dropped` bytes further on in the file. */
void tw_prepare_fill_send(struct tw_prepare_fill *fill, enum tw_block_end end, uint64_t dropped);

/* Adds the next document, which begins at cut_bytes, to the block. */
void tw_prepare_fill_add(struct tw_prepare_fill *fill, struct tw_text_cut cut,
                         enum tw_document_fate fate);

/* Reads a token file from byte offset `at` of its 4-byte tokens on. Returns false if the queue was
 * stopped. */
bool tw_prepare_read_tokens(struct tw_prepare_fill *fill, uint64_t at);

#endif
