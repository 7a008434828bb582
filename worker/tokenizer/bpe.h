/* bpe.h - the merging half of byte-level BPE: neighbours become one token, smallest rank first.
 *
 * Sennrich, Haddow, Birch (arXiv 1508.07909), with GPT-2's bytes as the alphabet: of all
 * neighbouring pairs that the table knows the one with the smallest rank is merged, of equals the
 * leftmost, until none is left. Immutable once filled: any number of threads may merge with one
 * table. */
#ifndef TW_WORKER_TOKENIZER_BPE_H
#define TW_WORKER_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TW_BPE_NONE UINT32_MAX /* no token, no rank */

struct tw_bpe_merge {
    uint32_t left, right; /* the pair */
    uint32_t rank;        /* TW_BPE_NONE: an empty place of the table */
    uint32_t token;       /* what it becomes */
};

/* Open addressing, at most half full. Zero-initialised: a table without merges. */
struct tw_bpe {
    struct tw_bpe_merge *table;
    uint64_t mask; /* places - 1 */
};

/* Room for merges_max merges. TW_NOMEM. */
enum tw_status tw_bpe_init(struct tw_bpe *bpe, size_t merges_max, struct tw_error *err);
void tw_bpe_deinit(struct tw_bpe *bpe);

/* A pair put twice keeps what came last. At most merges_max different pairs. */
void tw_bpe_put(struct tw_bpe *bpe, struct tw_bpe_merge merge);

/* What one thread merges long words with. Zero-initialised is empty; grows with the longest word,
 * to 36 bytes for each token of it. */
struct tw_bpe_scratch {
    uint32_t *links; /* (4, capacity): next, previous, rank, token */
    uint64_t *heap;  /* (2 capacity) */
    size_t capacity;
};
void tw_bpe_scratch_deinit(struct tw_bpe_scratch *scratch);

/* Merges tokens (*count) in place, *count becomes what is left. Time n log n in the length.
 * TW_NOMEM (then tokens is unchanged). */
enum tw_status tw_bpe_apply(const struct tw_bpe *bpe, struct tw_bpe_scratch *scratch,
                            uint32_t *tokens, size_t *count, struct tw_error *err);

/* The same by the definition, in quadratic time: what tw_bpe_apply is held against. */
size_t tw_bpe_apply_ref(const struct tw_bpe *bpe, uint32_t *tokens, size_t count);

#endif
