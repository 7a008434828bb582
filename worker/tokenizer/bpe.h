/* bpe.h - the merges of byte-level BPE: replaces adjacent pairs of tokens by one, smallest rank
 * first.
 *
 * Sennrich, Haddow, Birch (arXiv 1508.07909), with GPT-2's bytes as the alphabet. Of all adjacent
 * pairs in the table, the one with the smallest rank is merged, or the leftmost of several equal
 * ones, until no pair is left. A filled table is immutable, so any number of threads may share
 * it. */
#ifndef TW_WORKER_TOKENIZER_BPE_H
#define TW_WORKER_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TW_BPE_NONE UINT32_MAX /* no token, no rank */

struct tw_bpe_merge {
    uint32_t left, right; /* the pair */
    uint32_t rank;        /* rank of the merge; TW_BPE_NONE: an empty slot of the table */
    uint32_t token;       /* the merged token */
};

/* Open-addressing hash table, at most half full. A zero-initialised one has no merges. */
struct tw_bpe {
    struct tw_bpe_merge *table;
    uint64_t mask; /* number of slots - 1 */
};

/* Allocates room for merges_max merges. Fails with TW_NOMEM. */
enum tw_status tw_bpe_init(struct tw_bpe *bpe, size_t merges_max, struct tw_error *err);
void tw_bpe_deinit(struct tw_bpe *bpe);

/* Adds a merge. A pair added twice keeps the last value. At most merges_max different pairs fit. */
void tw_bpe_put(struct tw_bpe *bpe, struct tw_bpe_merge merge);

/* One thread's scratch for long words. A zero-initialised one is empty. It grows to 32 bytes per
 * token of the longest word, rounded up to a power of two tokens. */
struct tw_bpe_scratch {
    uint32_t *links; /* (4, capacity): next, previous, rank and merged token of each pair */
    uint64_t *heap;  /* (2 capacity) */
    size_t capacity;
};

void tw_bpe_scratch_deinit(struct tw_bpe_scratch *scratch);

/* Merges tokens (*count) in place and sets *count to the new number, in O(n log n) time. Fails with
 * TW_NOMEM and leaves the tokens unchanged. */
enum tw_status tw_bpe_apply(const struct tw_bpe *bpe, struct tw_bpe_scratch *scratch,
                            uint32_t *tokens, size_t *count, struct tw_error *err);

/* Reference implementation that follows the definition, in quadratic time. Tests compare
 * tw_bpe_apply with it. */
size_t tw_bpe_apply_ref(const struct tw_bpe *bpe, uint32_t *tokens, size_t count);

/* ---- the vocabulary: finds the bytes of a token, and the token with given bytes -------------- */

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
