/* prepare_read.h - the first thread of `prepare`: files to blocks of whole documents. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_READ_H
#define TW_WORKER_DATA_PREPARE_PREPARE_READ_H

#include "worker/data/prepare/prepare.h"
#include "worker/data/prepare/prepare_block.h"
#include "worker/data/prepare/prepare_inputs.h"

/* Where a document begins: in which file, where in its text. */
struct tw_prepare_place {
    uint64_t file, at;
};

struct tw_prepare_reader {
    const struct tw_prepare_inputs *inputs;
    struct tw_blocks *blocks;
    struct tw_block *first; /* moved: an empty one */
    struct tw_prepare_place from;
    enum tw_text_unit unit; /* of plain text */
    bool skip_bad;
    /* Of files of token numbers; of their text a token is 4 bytes. */
    bool has_tokenizer;
    uint32_t vocab;
    int64_t separator; /* what a document begins with where no index says it */
};

/* From `from` to the end of the inputs, or until the blocks are stopped. A file that cannot be used
 * and a document that is too long end the reading unless skip_bad. */
void tw_prepare_read(const struct tw_prepare_reader *reader);

#endif
