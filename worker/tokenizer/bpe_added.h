/* bpe_added.h - finds added tokens in the text before it is split: always the leftmost match, and
 * the longest of those that begin there. */
#ifndef TW_WORKER_TOKENIZER_BPE_ADDED_H
#define TW_WORKER_TOKENIZER_BPE_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/tokenizer/bpe_pattern.h"

enum { TW_BPE_ADDED_MAX = 16 * 1024 }; /* tokens */

struct tw_bpe_added_token {
    const uint8_t *text; /* points into the vocabulary's arena */
    uint32_t bytes;
    uint32_t token;
    bool is_special;     /* special token, which a search with is_plain ignores */
    bool is_single_word; /* matches only as a whole word */
    bool is_left_strip;  /* also matches the white space before it */
    bool is_right_strip; /* also matches the white space after it */
};

/* Tokens sorted by text, which must be unique. Immutable after tw_bpe_added_index. */
struct tw_bpe_added {
    struct tw_bpe_added_token *tokens; /* (count), owned by the caller */
    size_t count;
    bool is_first[256]; /* whether any token begins with this byte */
    int only_first;     /* the only byte that tokens begin with, or -1 */
};

/* Sorts the tokens and prepares the search. */
void tw_bpe_added_index(struct tw_bpe_added *added);

struct tw_bpe_search {
    const struct tw_bpe_added *added;
    const struct tw_bpe_matcher *matcher; /* matcher for the pattern `word`, to check word
                                             boundaries */
    const struct tw_bpe_pattern *word;    /* pattern that matches one word character */
    struct tw_bpe_piece piece;            /* valid UTF-8 */
    bool is_plain;                        /* whether special tokens are treated as text */
    size_t scanned;                       /* bytes searched so far */
    size_t taken;                         /* end of the previous match */
};

/* Finds the next token: its id and its range, which includes the white space that it strips.
 * Returns false if there is none. */
bool tw_bpe_search_next(struct tw_bpe_search *search, struct tw_bpe_range *range, uint32_t *token);

#endif
