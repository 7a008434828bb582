/* prepare_encode.h - the tokenizer threads of `prepare`: documents to tokens, and to their side.
 *
 * The stream is separator, document, separator, document: what begins a text where the tokenizer's
 * template puts that, and then what ends one behind it; else what ends a text (as llm.c has it);
 * byte 0 where a token is a byte. A document is held out if SHA-256 of its text, the first 8 bytes
 * as a little-endian number modulo a million, is less than the millionths held out: so copies of a
 * text fall on one side. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_ENCODE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_ENCODE_H

#include <pthread.h>

#include "worker/data/prepare/prepare_block.h"

enum {
    /* Of text: longer ones are tokenised one at a time over all threads, in memory of their own, so
     * that a long word costs its memory once. */
    TW_ENCODE_SHARED_BYTES = 256 << 10,
    /* Bytes of a document that may be no UTF-8 before it is refused: a tenth, but no fewer. */
    TW_ENCODE_INVALID_MIN = 16,
};

struct tw_prepare_coder {
    const struct tw_tokenizer *tokenizer;
    const char *field; /* of records */
    uint32_t heldout_millionths;
    int64_t separator, closer; /* TW_SHARD_NO_SEPARATOR: none */
    pthread_mutex_t large;
};

/* Finds the separator; is_bytes: a token is a byte. TW_NOMEM. */
enum tw_status tw_prepare_coder_init(struct tw_prepare_coder *coder,
                                     const struct tw_tokenizer *tokenizer, bool is_bytes,
                                     struct tw_error *err);
void tw_prepare_coder_deinit(struct tw_prepare_coder *coder);

/* All documents of the block, whose text is changed. One thread's encoder. */
void tw_prepare_encode(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                       struct tw_block *block);

#endif
