/* prepare_fill.h - a block that is being filled, for the readers of text and of tokens. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_FILL_H
#define TW_WORKER_DATA_PREPARE_PREPARE_FILL_H

#include "worker/data/prepare/prepare_read.h"
#include "worker/data/text_cut.h"

struct tw_prepare_fill {
    const struct tw_prepare_reader *reader;
    const struct tw_prepare_file *file;
    struct tw_block *block; /* NULL: all is to stop */
    size_t cut_bytes;       /* of block->text: documents so far */
    uint64_t taken;         /* of the file on the disk, so far */
};

/* Nothing can go on. */
void tw_prepare_fill_stop(struct tw_prepare_fill *fill, const struct tw_error *failure);

/* Gives the block away. What is behind its documents begins the next one, which begins `dropped`
 * bytes further in the file. */
void tw_prepare_fill_send(struct tw_prepare_fill *fill, enum tw_block_end end, uint64_t dropped);

/* The next document, where documents end so far. */
void tw_prepare_fill_add(struct tw_prepare_fill *fill, struct tw_text_cut cut,
                         enum tw_document_fate fate);

/* A file of token numbers from token `at / 4` on; false: nothing goes on. */
bool tw_prepare_read_tokens(struct tw_prepare_fill *fill, uint64_t at);

#endif
