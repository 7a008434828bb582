/* prepare_read.h - the reader thread of `prepare`: turns files into blocks of whole documents. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_READ_H
#define TW_WORKER_DATA_PREPARE_PREPARE_READ_H

#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/prepare/prepare_inputs.h"

/* Start of a document: its file, and its offset in the file's text. */
struct tw_prepare_place {
    uint64_t file, at;
};

struct tw_prepare_reader {
    const struct tw_prepare_inputs *inputs;
    struct tw_blocks *blocks;
    struct tw_block *first; /* empty block that the reader fills first and then owns */
    struct tw_prepare_place from;
    enum tw_text_unit unit; /* how plain text is cut */
    bool is_plain, skip_bad;
    /* has_tokenizer and vocab are for token files, whose text has 4 bytes per token. */
    bool has_tokenizer;
    uint32_t vocab;
    int64_t separator; /* token that separates documents in token files without an index */
};

/* Reads from the place `from` to the end of the inputs, or until the queue is stopped. Without
 * skip_bad, an unusable file or an overlong document ends the reading. */
void tw_prepare_read(const struct tw_prepare_reader *reader);

#endif
