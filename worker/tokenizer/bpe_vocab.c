#include "worker/tokenizer/bpe_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/tokenizer/bpe.h"

_Static_assert(TW_BPE_TOKEN_BYTES_MAX <= UINT16_MAX, "a token's length is 16-bit");

enum tw_status tw_bpe_vocab_init(struct tw_bpe_vocab *vocab, uint32_t count, size_t arena_max,
                                 struct tw_error *err) {
    TW_ASSERT(count <= TW_BPE_VOCAB_MAX);
    TW_ASSERT(arena_max < UINT32_MAX);
    *vocab = (struct tw_bpe_vocab){.count = count, .arena_max = arena_max};
    vocab->tokens = calloc(count > 0 ? count : 1, sizeof(*vocab->tokens));
    vocab->arena = malloc(arena_max > 0 ? arena_max : 1);
    if (vocab->tokens == NULL || vocab->arena == NULL) {
        tw_bpe_vocab_deinit(vocab);
        return tw_fail(err, TW_NOMEM, "no memory for a vocabulary of %u tokens", count);
    }
    return TW_OK;
}

void tw_bpe_vocab_deinit(struct tw_bpe_vocab *vocab) {
    free(vocab->tokens);
    free(vocab->arena);
    free(vocab->table);
    *vocab = (struct tw_bpe_vocab){.tokens = NULL};
}

enum tw_status tw_bpe_vocab_set(struct tw_bpe_vocab *vocab, uint32_t id, const uint8_t *bytes,
                                size_t size, enum tw_bpe_token_flags flags, struct tw_error *err) {
    TW_ASSERT(id < vocab->count);
    if (size > TW_BPE_TOKEN_BYTES_MAX) {
        return tw_fail(err, TW_CORRUPT, "token %u has %zu bytes; at most %d are read", id, size,
                       TW_BPE_TOKEN_BYTES_MAX);
    }
    if (size > vocab->arena_max - vocab->arena_bytes) {
        return tw_fail(err, TW_CORRUPT, "the vocabulary's texts have more than %zu bytes",
                       vocab->arena_max);
    }
    memcpy(vocab->arena + vocab->arena_bytes, bytes, size);
    vocab->tokens[id] = (struct tw_bpe_token){
        .offset = (uint32_t)vocab->arena_bytes,
        .bytes = (uint16_t)size,
        .flags = (uint16_t)flags,
    };
    vocab->arena_bytes += size;
    return TW_OK;
}

uint64_t tw_bpe_hash(const uint8_t *bytes, size_t size) {
    uint64_t hash = 0x9E3779B97F4A7C15u ^ size, word;
    for (; size >= 8; bytes += 8, size -= 8) {
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    if (size >= 4) { /* two reads, which may overlap, replace a loop over the bytes */
        uint32_t first, last;
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + size - 4, 4);
        word = (uint64_t)first << 32 | last;
    } else {
        word = 0;
        if (size > 0)
            word = bytes[0] | (uint64_t)bytes[size / 2] << 8 | (uint64_t)bytes[size - 1] << 16;
    }
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 29;
    hash *= 0xFF51AFD7ED558CCDu;
    return hash ^ hash >> 32;
}

enum tw_status tw_bpe_vocab_index(struct tw_bpe_vocab *vocab, struct tw_error *err) {
    uint32_t places = 16;
    while (places < 2 * vocab->count) places *= 2;
    vocab->table = malloc(places * sizeof(*vocab->table));
    if (vocab->table == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for a vocabulary of %u tokens", vocab->count);
    }
    for (uint32_t i = 0; i < places; i++) vocab->table[i] = TW_BPE_NONE;
    vocab->mask = places - 1;
    for (uint32_t id = 0; id < vocab->count; id++) {
        const struct tw_bpe_token *const token = &vocab->tokens[id];
        if ((token->flags & TW_BPE_TOKEN_WORD) == 0) continue;
        uint32_t at = (uint32_t)tw_bpe_hash(vocab->arena + token->offset, token->bytes);
        for (at &= vocab->mask; vocab->table[at] != TW_BPE_NONE;) at = (at + 1) & vocab->mask;
        vocab->table[at] = id;
    }
    return TW_OK;
}

uint32_t tw_bpe_vocab_find(const struct tw_bpe_vocab *vocab, const uint8_t *bytes, size_t size) {
    uint32_t at = (uint32_t)tw_bpe_hash(bytes, size) & vocab->mask;
    for (uint32_t id; (id = vocab->table[at]) != TW_BPE_NONE; at = (at + 1) & vocab->mask) {
        const struct tw_bpe_token *const token = &vocab->tokens[id];
        if (token->bytes == size && memcmp(vocab->arena + token->offset, bytes, size) == 0) {
            return id;
        }
    }
    return TW_BPE_NONE;
}
