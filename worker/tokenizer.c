/* tokenizer.c - bytes as tokens. */
#include "worker/tokenizer.h"

size_t tw_tokenizer_encode(const uint8_t *text, size_t bytes, uint32_t *tokens) {
    for (size_t i = 0; i < bytes; i++) tokens[i] = text[i];
    return bytes;
}

size_t tw_tokenizer_decode(const uint32_t *tokens, size_t count, uint8_t *text) {
    for (size_t i = 0; i < count; i++) {
        text[i] = tokens[i] < TW_TOKENIZER_BYTES_VOCAB ? (uint8_t)tokens[i] : (uint8_t)'?';
    }
    return count;
}
