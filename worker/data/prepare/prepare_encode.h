/* prepare_encode.h - the tokenizer threads of `prepare`: turn documents into tokens and decide
 * which are held out.
 *
 * The token stream is separator, document, separator, document. The separator is
 * 1. byte 0 if a token is a byte;
 * 2. else the first token that the template of the tokenizer puts before a text, if there is one.
 *    The template's other tokens then begin the document, and the end-of-text token ends it;
 * 3. else the end-of-text token (as in llm.c).
 *
 * A document is held out if the first 8 bytes of its text's SHA-256, as a little-endian number
 * modulo a million, are below heldout_millionths. Copies of a text are thus all held out or all
 * trained on. */
#ifndef TW_WORKER_DATA_PREPARE_PREPARE_ENCODE_H
#define TW_WORKER_DATA_PREPARE_PREPARE_ENCODE_H

#include <pthread.h>

#include "worker/data/prepare/prepare_block.h"

enum {
    /* Documents longer than this share one encoder, so only one thread at a time tokenises such a
     * document. The memory that a very long word needs is thus needed only once. */
    TW_ENCODE_SHARED_BYTES = 256 << 10,
    /* Limit of invalid UTF-8 in a document: a tenth of its bytes, but at least this many. */
    TW_ENCODE_INVALID_MIN = 16,
};

struct tw_prepare_coder {
    const struct tw_tokenizer *tokenizer;
    const char *field; /* name of the text field of a JSON record */
    bool is_plain;     /* whether tar members are plain texts, even if they look like JSON */
    uint32_t heldout_millionths;
    int64_t separator, closer; /* token before and after a document; TW_SHARD_NO_SEPARATOR: none */
    pthread_mutex_t large;
};

/* Finds separator and closer. is_bytes: a token is a byte. Fails with TW_NOMEM. */
enum tw_status tw_prepare_coder_init(struct tw_prepare_coder *coder,
                                     const struct tw_tokenizer *tokenizer, bool is_bytes,
                                     struct tw_error *err);
void tw_prepare_coder_deinit(struct tw_prepare_coder *coder);

/* Encodes all documents of the block, and modifies its text. Each thread has its own encoder. */
void tw_prepare_encode(struct tw_prepare_coder *coder, struct tw_encoder *encoder,
                       struct tw_block *block);

#endif
