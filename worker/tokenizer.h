/* tokenizer.h - text to tokens and back. Byte tokenizer: a token is a byte, vocabulary 256. */
#ifndef TW_WORKER_TOKENIZER_H
#define TW_WORKER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

enum { TW_TOKENIZER_BYTES_VOCAB = 256 };

/* tokens (bytes). Returns the number of tokens: the number of bytes. */
size_t tw_tokenizer_encode(const uint8_t *text, size_t bytes, uint32_t *tokens);

/* text (count); tokens >= 256 (a model with a larger vocabulary) become '?'. Returns the bytes. */
size_t tw_tokenizer_decode(const uint32_t *tokens, size_t count, uint8_t *text);

#endif
