/* tokenizer_inner.h - the private state of a tokenizer, shared by tokenizer_*.c. */
#ifndef TW_WORKER_TOKENIZER_TOKENIZER_INNER_H
#define TW_WORKER_TOKENIZER_TOKENIZER_INNER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/tokenizer/bpe.h"
#include "worker/tokenizer/bpe_pattern.h"
#include "worker/tokenizer/tokenizer_text.h"

_Static_assert(TW_TOKEN_NONE == TW_BPE_NONE, "no token is one number");
_Static_assert(TW_TOKEN_BYTES_MAX == (int)TW_BPE_TOKEN_BYTES_MAX, "one bound on tokens");
enum { TW_TOKENIZER_STEPS_MAX = 8, TW_TOKENIZER_TEMPLATE_MAX = 16 };

/* A step of the pre-tokenizer. Matches of the pattern become pieces. So does the text between
 * matches, unless it is dropped. */
struct tw_split_step {
    struct tw_bpe_pattern pattern;
    bool is_rest_dropped;
};

/* Text passes these stages in order: invalid bytes split off, added[0], NFC, added[1], steps,
 * prefix space, whole words (ignore_merges), bytes, merges. */
struct tw_tokenizer {
    bool is_bytes; /* byte tokenizer, which uses no field below but `vocab` */
    struct tw_bpe_vocab vocab;
    struct tw_bpe bpe;
    uint32_t byte_tokens[256]; /* token of each byte; TW_TOKEN_NONE: the vocabulary has none */
    uint32_t unknown; /* token for bytes that have none; TW_TOKEN_NONE: such bytes are dropped */
    bool is_unknown_fused; /* whether several unknown bytes in a row become one unknown token */
    bool has_whole_words;  /* ignore_merges: a word that is itself a token is not merged */

    const struct tw_bpe_nfc *nfc; /* normaliser; NULL: there is none */
    struct tw_bpe_added added[2]; /* added[0] is matched before normalisation, added[1] after it */
    /* pattern of one word character; compiled only if an added token is single-word */
    struct tw_bpe_pattern word;

    /* Steps of the pre-tokenizer. Pieces that reach step `prefix_step` get a space before them,
     * unless they begin with one. */
    struct tw_split_step steps[TW_TOKENIZER_STEPS_MAX];
    uint32_t steps_count;
    uint32_t prefix_step; /* index of that step; UINT32_MAX: none */

    uint32_t before[TW_TOKENIZER_TEMPLATE_MAX], after[TW_TOKENIZER_TEMPLATE_MAX];
    uint32_t before_count, after_count;
    uint32_t bos, eos;
    const char *split_name; /* see tw_tokenizer_split_name */
    bool is_exact;
};

/* Fills a zeroed *tokenizer from JSON. tw_tokenizer_destroy frees it, also after a failure. */
enum tw_status tw_tokenizer_read(struct tw_tokenizer *tokenizer, const char *json, size_t size,
                                 struct tw_error *err);

#endif
