/* bpe.h - the merges of byte-level BPE: replaces adjacent pairs of tokens by one, smallest rank
 * first.
 *
 * Sennrich, Haddow, Birch (arXiv 1508.07909), with GPT-2's bytes as the alphabet. Of all adjacent
 * pairs in the table, the one with the smallest rank is merged, or the leftmost of several equal
 * ones, until no pair is left. A filled table is immutable, so any number of threads may share
 * it. */
#ifndef TW_WORKER_TOKENIZER_BPE_H
#define TW_WORKER_TOKENIZER_BPE_H

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

#endif
