#include "worker/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- the vocabulary -------------------------------------------------------------------------- */

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

/* ---- the merges ------------------------------------------------------------------------------ */

/* Words of at most this many tokens are merged in an array, which is faster than a heap at this
 * size. */
enum { SHORT_MAX = 48 };

/* ---- the table ------------------------------------------------------------------------------- */

enum tw_status tw_bpe_init(struct tw_bpe *bpe, size_t merges_max, struct tw_error *err) {
    size_t places = 16;
    while (places < 2 * merges_max) places *= 2;
    bpe->table = malloc(places * sizeof(*bpe->table));
    if (bpe->table == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu merges", merges_max);
    for (size_t i = 0; i < places; i++) bpe->table[i].rank = TW_BPE_NONE;
    bpe->mask = places - 1;
    return TW_OK;
}

void tw_bpe_deinit(struct tw_bpe *bpe) {
    free(bpe->table);
    *bpe = (struct tw_bpe){.table = NULL};
}

static inline uint64_t place_of(const struct tw_bpe *bpe, uint32_t left, uint32_t right) {
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) & bpe->mask;
}

void tw_bpe_put(struct tw_bpe *bpe, struct tw_bpe_merge merge) {
    uint64_t at = place_of(bpe, merge.left, merge.right);
    TW_ASSERT(merge.rank != TW_BPE_NONE);
    for (uint64_t steps = 0; bpe->table[at].rank != TW_BPE_NONE; steps++) {
        const struct tw_bpe_merge *const held = &bpe->table[at];
        if (held->left == merge.left && held->right == merge.right) break;
        TW_ASSERT(steps < bpe->mask);
        at = (at + 1) & bpe->mask;
    }
    bpe->table[at] = merge;
}

/* Returns the rank of a pair, or TW_BPE_NONE. Sets *token to the merged token. */
static inline uint32_t find_merge(const struct tw_bpe *bpe, uint32_t left, uint32_t right,
                                  uint32_t *token) {
    for (uint64_t at = place_of(bpe, left, right);; at = (at + 1) & bpe->mask) {
        const struct tw_bpe_merge *const held = &bpe->table[at];
        if (held->rank == TW_BPE_NONE) return TW_BPE_NONE;
        if (held->left == left && held->right == right) {
            *token = held->token;
            return held->rank;
        }
    }
}

/* ---- short words: contiguous arrays ---------------------------------------------------------- */

static size_t apply_short(const struct tw_bpe *bpe, uint32_t *tokens, size_t count) {
    uint32_t ranks[SHORT_MAX], merged[SHORT_MAX];
    for (size_t i = 0; i + 1 < count; i++) {
        ranks[i] = find_merge(bpe, tokens[i], tokens[i + 1], &merged[i]);
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] == TW_BPE_NONE) break;
        tokens[best] = merged[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            tokens[i] = tokens[i + 1];
            ranks[i - 1] = ranks[i];
            merged[i - 1] = merged[i];
        }
        if (best > 0) {
            ranks[best - 1] = find_merge(bpe, tokens[best - 1], tokens[best], &merged[best - 1]);
        }
        if (best + 1 < count) {
            ranks[best] = find_merge(bpe, tokens[best], tokens[best + 1], &merged[best]);
        }
    }
    return count;
}

/* ---- long words: a list and a heap ----------------------------------------------------------- */

/* A heap entry is rank << 32 | position, so the smallest entry is the leftmost pair of the best
 * rank. An entry is stale if the pair at its position has another rank by now. */
struct heap {
    uint64_t *entries;
    size_t count;
};

static void sift_down(struct heap *heap, size_t at) {
    const uint64_t entry = heap->entries[at];
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && heap->entries[child + 1] < heap->entries[child]) child++;
        if (entry <= heap->entries[child]) break;
        heap->entries[at] = heap->entries[child];
    }
    heap->entries[at] = entry;
}

static void push(struct heap *heap, uint64_t entry) {
    size_t at = heap->count++;
    for (; at > 0 && entry < heap->entries[(at - 1) / 2]; at = (at - 1) / 2) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
    }
    heap->entries[at] = entry;
}

static uint64_t pop(struct heap *heap) {
    const uint64_t top = heap->entries[0];
    heap->entries[0] = heap->entries[--heap->count];
    if (heap->count > 0) sift_down(heap, 0);
    return top;
}

struct list {
    const struct tw_bpe *bpe;
    uint32_t *tokens, *next, *previous, *ranks, *merged; /* (count) each */
    struct heap heap;
};

/* Sets the rank of the new pair that begins at `at`, and pushes the pair onto the heap. */
static void update_pair(struct list *list, uint32_t at) {
    const uint32_t right = list->next[at];
    list->ranks[at] = right == TW_BPE_NONE ? TW_BPE_NONE
                                           : find_merge(list->bpe, list->tokens[at],
                                                        list->tokens[right], &list->merged[at]);
    if (list->ranks[at] != TW_BPE_NONE) push(&list->heap, (uint64_t)list->ranks[at] << 32 | at);
}

static void merge_at(struct list *list, uint32_t at) {
    const uint32_t gone = list->next[at], after = list->next[gone];
    list->tokens[at] = list->merged[at];
    list->next[at] = after;
    list->ranks[gone] = TW_BPE_NONE;
    if (after != TW_BPE_NONE) list->previous[after] = at;
    update_pair(list, at);
    if (list->previous[at] != TW_BPE_NONE) update_pair(list, list->previous[at]);
}

static size_t apply_long(struct list *list, size_t count) {
    struct heap *const heap = &list->heap;
    for (uint32_t i = 0; i < count; i++) {
        list->next[i] = i + 1 < count ? i + 1 : TW_BPE_NONE;
        list->previous[i] = i > 0 ? i - 1 : TW_BPE_NONE;
        list->ranks[i] = i + 1 < count ? find_merge(list->bpe, list->tokens[i], list->tokens[i + 1],
                                                    &list->merged[i])
                                       : TW_BPE_NONE;
        if (list->ranks[i] != TW_BPE_NONE) {
            heap->entries[heap->count++] = (uint64_t)list->ranks[i] << 32 | i;
        }
    }
    for (size_t i = heap->count / 2; i-- > 0;) sift_down(heap, i);
    while (heap->count > 0) {
        const uint64_t top = pop(heap);
        const uint32_t at = (uint32_t)top;
        if (list->ranks[at] == (uint32_t)(top >> 32)) merge_at(list, at);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != TW_BPE_NONE; i = list->next[i]) {
        list->tokens[left++] = list->tokens[i];
    }
    return left;
}

static enum tw_status grow(struct tw_bpe_scratch *scratch, size_t count, struct tw_error *err) {
    if (count <= scratch->capacity) return TW_OK;
    size_t capacity = 1024;
    while (capacity < count) capacity *= 2;
    tw_bpe_scratch_deinit(scratch);
    scratch->links = malloc(4 * capacity * sizeof(*scratch->links));
    /* The heap has n - 1 entries at first. A merge removes one entry and adds at most two, so there
     * are never more than 2 * n. */
    scratch->heap = malloc(2 * capacity * sizeof(*scratch->heap));
    if (scratch->links == NULL || scratch->heap == NULL) {
        tw_bpe_scratch_deinit(scratch);
        return tw_fail(err, TW_NOMEM, "no memory to encode a word of %zu bytes", count);
    }
    scratch->capacity = capacity;
    return TW_OK;
}

void tw_bpe_scratch_deinit(struct tw_bpe_scratch *scratch) {
    free(scratch->links);
    free(scratch->heap);
    *scratch = (struct tw_bpe_scratch){.links = NULL};
}

/* ---- entry points ---------------------------------------------------------------------------- */

enum tw_status tw_bpe_apply(const struct tw_bpe *bpe, struct tw_bpe_scratch *scratch,
                            uint32_t *tokens, size_t *count, struct tw_error *err) {
    TW_ASSERT(*count < TW_BPE_NONE);
    if (bpe->table == NULL) return TW_OK;
    if (*count <= SHORT_MAX) {
        *count = apply_short(bpe, tokens, *count);
        return TW_OK;
    }
    TW_TRY(grow(scratch, *count, err));
    const size_t n = scratch->capacity;
    uint32_t *const links = scratch->links;
    struct list list = {
        bpe, tokens, links, links + n, links + 2 * n, links + 3 * n, {scratch->heap, 0}};
    *count = apply_long(&list, *count);
    return TW_OK;
}

size_t tw_bpe_apply_ref(const struct tw_bpe *bpe, uint32_t *tokens, size_t count) {
    while (bpe->table != NULL) {
        uint32_t best_rank = TW_BPE_NONE, best_token = TW_BPE_NONE;
        size_t best = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t token = TW_BPE_NONE;
            const uint32_t rank = find_merge(bpe, tokens[i], tokens[i + 1], &token);
            if (rank < best_rank) best_rank = rank, best_token = token, best = i;
        }
        if (best_rank == TW_BPE_NONE) break;
        tokens[best] = best_token;
        count--;
        for (size_t i = best + 1; i < count; i++) tokens[i] = tokens[i + 1];
    }
    return count;
}
