/* bpe_added.h - added tokens: found in the text before it is split, the leftmost first, of these
 * the longest. */
#ifndef TW_WORKER_TOKENIZER_BPE_ADDED_H
#define TW_WORKER_TOKENIZER_BPE_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/tokenizer/bpe_pattern.h"

enum { TW_BPE_ADDED_MAX = 16 * 1024 }; /* tokens */

struct tw_bpe_added_token {
    const uint8_t *text; /* within the vocabulary's arena */
    uint32_t bytes;
    uint32_t token;
    bool is_special;     /* it may be told to stay text */
    bool is_single_word; /* not within a word */
    bool is_left_strip;  /* takes the white space before it along */
    bool is_right_strip; /* and after it */
};

/* Sorted by text, no text twice. Immutable after tw_bpe_added_index. */
struct tw_bpe_added {
    struct tw_bpe_added_token *tokens; /* (count), owned by whom it was given from */
    size_t count;
    bool is_first[256]; /* whether any begins with this byte */
    int only_first;     /* the one byte all begin with, or -1 */
};

/* Sorts, and prepares the search. */
void tw_bpe_added_index(struct tw_bpe_added *added);

struct tw_bpe_search {
    const struct tw_bpe_added *added;
    const struct tw_bpe_matcher *matcher; /* with word_start, for single words */
    const struct tw_bpe_pattern *word;    /* one character of a word */
    struct tw_bpe_piece piece;            /* valid UTF-8 */
    bool is_plain;                        /* special tokens are text */
    size_t scanned;                       /* bytes looked at */
    size_t taken;                         /* end of the match before */
};

/* The next token's range, with the white space it takes, and the token; false: none any more. */
bool tw_bpe_search_next(struct tw_bpe_search *search, struct tw_bpe_range *range, uint32_t *token);

#endif
