/* tokenizer_inner.h - what a tokenizer is made of, for the files that fill it and work with it. */
#ifndef TW_WORKER_TOKENIZER_TOKENIZER_INNER_H
#define TW_WORKER_TOKENIZER_TOKENIZER_INNER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/tokenizer/bpe.h"
#include "worker/tokenizer/bpe_added.h"
#include "worker/tokenizer/bpe_nfc.h"
#include "worker/tokenizer/bpe_pattern.h"
#include "worker/tokenizer/bpe_vocab.h"
#include "worker/tokenizer/tokenizer_text.h"

_Static_assert(TW_TOKEN_NONE == TW_BPE_NONE, "no token is one number");
_Static_assert(TW_TOKEN_BYTES_MAX == (int)TW_BPE_TOKEN_BYTES_MAX, "one bound on tokens");

enum { TW_TOKENIZER_STEPS_MAX = 8, TW_TOKENIZER_TEMPLATE_MAX = 16 };

/* A step of the pre-tokenizer: matches are pieces, and so is what stands between them, unless it is
 * dropped. */
struct tw_split_step {
    struct tw_bpe_pattern pattern;
    bool is_rest_dropped;
};

/* Text goes through these in turn: invalid bytes apart, added[0], NFC, added[1], steps, prefix
 * space, words whole (ignore_merges), bytes, merges. */
struct tw_tokenizer {
    bool is_bytes; /* nothing below is filled but vocab */
    struct tw_bpe_vocab vocab;
    struct tw_bpe bpe;
    uint32_t byte_tokens[256]; /* TW_TOKEN_NONE: the vocabulary lacks it */
    uint32_t unknown;          /* stands for such bytes, or TW_TOKEN_NONE: they are left out */
    bool is_unknown_fused;     /* one for many in a row */
    bool has_whole_words; /* ignore_merges: a word that is a token is it, whatever merges say */

    const struct tw_bpe_nfc *nfc; /* NULL: no normalizer */
    struct tw_bpe_added added[2]; /* looked for before and after the normalizer */
    struct tw_bpe_pattern word;   /* a character of a word, if an added token is a single word */

    /* The last step with a prefix space gets it before its matches. */
    struct tw_split_step steps[TW_TOKENIZER_STEPS_MAX];
    uint32_t steps_count;
    uint32_t prefix_step; /* the step before which a space is put; UINT32_MAX: never */

    uint32_t before[TW_TOKENIZER_TEMPLATE_MAX], after[TW_TOKENIZER_TEMPLATE_MAX];
    uint32_t before_count, after_count;
    uint32_t bos, eos;
    const char *split_name; /* tw_tokenizer_split_name */
    bool is_exact;
};

/* Fills a zeroed *tokenizer from JSON; what is filled is tw_tokenizer_destroy's to free, also after
 * a failure. */
enum tw_status tw_tokenizer_read(struct tw_tokenizer *tokenizer, const char *json, size_t size,
                                 struct tw_error *err);

#endif
