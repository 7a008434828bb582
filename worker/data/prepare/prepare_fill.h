/* prepare_fill.h - the block that is being filled, shared by the readers of text and of tokens. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_FILL_H
#define TW_WORKER_DATA_PREPARE_PREPARE_FILL_H

#include "worker/data/prepare/prepare_read.h"
#include "worker/data/text_cut.h"

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
