/* bpe_vocab.h - the vocabulary: finds the bytes of a token, and the token with given bytes. */
#ifndef TW_WORKER_TOKENIZER_BPE_VOCAB_H
#define TW_WORKER_TOKENIZER_BPE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_BPE_VOCAB_MAX = 1 << 20,   /* tokens */
    TW_BPE_TOKEN_BYTES_MAX = 1024 /* limit of bytes of one token */
};

enum tw_bpe_token_flags {
    TW_BPE_TOKEN_SET = 1,     /* the id is in use */
    TW_BPE_TOKEN_WORD = 2,    /* token of the model, produced by merges, so found by its bytes */
    TW_BPE_TOKEN_ADDED = 4,   /* added token: found in the text before splitting */
    TW_BPE_TOKEN_SPECIAL = 8, /* added token that has a meaning for the model and is not text */
};

struct tw_bpe_token {
    uint32_t offset; /* offset of the token's bytes in the arena */
    uint16_t bytes;
    uint16_t flags;
};

/* A zero-initialised vocabulary is empty. Immutable after tw_bpe_vocab_index. */
struct tw_bpe_vocab {
    struct tw_bpe_token *tokens; /* (count); unused ids have no flags */
    uint32_t count;
    uint8_t *arena; /* (arena_bytes) used, of arena_max allocated */
    size_t arena_bytes, arena_max;
    uint32_t *table; /* hash table of ids, at most half full */
    uint32_t mask;
};

/* Allocates count <= TW_BPE_VOCAB_MAX ids and arena_max < 2^32 bytes for all texts. Fails with
 * TW_NOMEM. */
enum tw_status tw_bpe_vocab_init(struct tw_bpe_vocab *vocab, uint32_t count, size_t arena_max,
                                 struct tw_error *err);
void tw_bpe_vocab_deinit(struct tw_bpe_vocab *vocab);

/* Sets or replaces the bytes and flags of id < count. Fails with TW_CORRUPT if there are more than
 * TW_BPE_TOKEN_BYTES_MAX bytes, or the arena is full. */
enum tw_status tw_bpe_vocab_set(struct tw_bpe_vocab *vocab, uint32_t id, const uint8_t *bytes,
                                size_t size, enum tw_bpe_token_flags flags, struct tw_error *err);

/* Indexes the tokens with TW_BPE_TOKEN_WORD for tw_bpe_vocab_find. Fails with TW_NOMEM. */
enum tw_status tw_bpe_vocab_index(struct tw_bpe_vocab *vocab, struct tw_error *err);

/* Returns the token with these bytes, or TW_BPE_NONE. */
uint32_t tw_bpe_vocab_find(const struct tw_bpe_vocab *vocab, const uint8_t *bytes, size_t size);

/* A fast hash of a few bytes. It is the same on all machines with the same byte order. */
uint64_t tw_bpe_hash(const uint8_t *bytes, size_t size);

#endif
