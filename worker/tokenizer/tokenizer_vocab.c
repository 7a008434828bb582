/* tokenizer_vocab.c - gives access to a tokenizer's vocabulary, for file formats that carry one. */
#include <stdlib.h>

#include "worker/tokenizer/tokenizer_inner.h"

enum tw_token_kind tw_tokenizer_kind(const struct tw_tokenizer *tokenizer, uint32_t token) {
    const struct tw_bpe_vocab *const vocab = &tokenizer->vocab;
    const unsigned flags = token < vocab->count ? vocab->tokens[token].flags : 0;
    if ((flags & TW_BPE_TOKEN_SET) == 0) return TW_TOKEN_UNUSED;
    if ((flags & TW_BPE_TOKEN_SPECIAL) != 0) return TW_TOKEN_CONTROL;
    return (flags & TW_BPE_TOKEN_ADDED) != 0 ? TW_TOKEN_USER : TW_TOKEN_NORMAL;
}

uint32_t tw_tokenizer_normal_vocab(const struct tw_tokenizer *tokenizer) {
    uint32_t count = tokenizer->vocab.count;
    while (count > 0) {
        const enum tw_token_kind kind = tw_tokenizer_kind(tokenizer, count - 1);
        if (kind == TW_TOKEN_NORMAL) break;
        count--;
    }
    return count;
}

bool tw_tokenizer_is_bytes(const struct tw_tokenizer *tokenizer) {
    const bool is_plain = tokenizer->nfc == NULL && tokenizer->prefix_step == UINT32_MAX &&
                          tokenizer->before_count == 0 && tokenizer->after_count == 0 &&
                          tokenizer->added[0].count == 0 && tokenizer->added[1].count == 0;
    if (!is_plain || tokenizer->vocab.count != 256 || tw_tokenizer_merges(tokenizer, NULL) > 0) {
        return false;
    }
    for (uint32_t i = 0; i < 256; i++) {
        if (!tokenizer->is_bytes && tokenizer->byte_tokens[i] != i) return false;
    }
    return true;
}

const char *tw_tokenizer_split_name(const struct tw_tokenizer *tokenizer) {
    return tokenizer->split_name;
}

static int by_rank(const void *a, const void *b) {
    const uint32_t left = ((const struct tw_token_pair *)a)->rank;
    const uint32_t right = ((const struct tw_token_pair *)b)->rank;
    return (left > right) - (left < right);
}

size_t tw_tokenizer_merges(const struct tw_tokenizer *tokenizer, struct tw_token_pair *pairs) {
    const struct tw_bpe *const bpe = &tokenizer->bpe;
    size_t count = 0;
    for (uint64_t i = 0; bpe->table != NULL && i <= bpe->mask; i++) {
        const struct tw_bpe_merge *const merge = &bpe->table[i];
        if (merge->rank == TW_BPE_NONE) continue;
        if (pairs != NULL) {
            pairs[count] = (struct tw_token_pair){merge->left, merge->right, merge->rank};
        }
        count++;
    }
    if (pairs != NULL) qsort(pairs, count, sizeof(*pairs), by_rank);
    return count;
}

bool tw_tokenizer_puts_bos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->before_count == 1;
}

bool tw_tokenizer_puts_eos(const struct tw_tokenizer *tokenizer) {
    return tokenizer->after_count == 1;
}

uint32_t tw_tokenizer_template_size(const struct tw_tokenizer *tokenizer) {
    return tokenizer->before_count + tokenizer->after_count;
}

uint32_t tw_tokenizer_before(const struct tw_tokenizer *tokenizer, uint32_t i) {
    return i < tokenizer->before_count ? tokenizer->before[i] : TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_first(const struct tw_tokenizer *tokenizer) {
    return tw_tokenizer_before(tokenizer, 0);
}

uint32_t tw_tokenizer_last(const struct tw_tokenizer *tokenizer) {
    return tokenizer->after_count > 0 ? tokenizer->after[tokenizer->after_count - 1]
                                      : TW_TOKEN_NONE;
}

uint32_t tw_tokenizer_strips(const struct tw_tokenizer *tokenizer) {
    for (size_t set = 0; set < 2; set++) {
        for (size_t i = 0; i < tokenizer->added[set].count; i++) {
            const struct tw_bpe_added_token *const one = &tokenizer->added[set].tokens[i];
            if (one->is_left_strip || one->is_right_strip || one->is_single_word) return one->token;
        }
    }
    return TW_TOKEN_NONE;
}
