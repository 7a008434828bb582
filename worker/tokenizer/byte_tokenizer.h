/* byte_tokenizer.h - writes the byte tokenizer in formats that other programs read, as a byte-level
 * BPE without merges.
 *
 * GPT-2's byte-level BPE writes each byte as one printable character. A vocabulary of these 256, in
 * the order of the bytes and without merges, is the byte tokenizer. */
#ifndef TW_WORKER_TOKENIZER_BYTE_TOKENIZER_H
#define TW_WORKER_TOKENIZER_BYTE_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

enum { TW_BYTE_TOKEN_BYTES = 3, TW_BYTE_TOKENIZER_BYTES = 8 * 1024 };

/* Writes the character that stands for `byte`, as UTF-8 with a NUL. Returns its length, 1 or 2
 * bytes. */
size_t tw_byte_token(uint8_t byte, char text[TW_BYTE_TOKEN_BYTES]);

/* Writes a tokenizer.json for Hugging Face's `tokenizers`. Returns its size in bytes without the
 * NUL. */
size_t tw_byte_tokenizer_json(char text[TW_BYTE_TOKENIZER_BYTES]);

#endif
