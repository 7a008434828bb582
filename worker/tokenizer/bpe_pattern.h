/* bpe_pattern.h - split patterns of tokenizer.json, written for Oniguruma and run by PCRE2.
 *
 * Only constructs with the same meaning in both are accepted. \s, \d and \p{...} are rewritten
 * so that they match the same set of characters. Everything else is refused, and the error names
 * it. */
#ifndef TW_WORKER_TOKENIZER_BPE_PATTERN_H
#define TW_WORKER_TOKENIZER_BPE_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Immutable, so any number of threads may match with it. A zero-initialised one has no pattern. */
struct tw_bpe_pattern {
    pcre2_code *code;
    bool has_jit;
};

/* Compiles a pattern from a tokenizer.json. Fails with TW_CONFIG, naming the unsupported construct,
 * or with TW_NOMEM. */
enum tw_status tw_bpe_pattern_compile(struct tw_bpe_pattern *pattern, const char *regex,
                                      struct tw_error *err);

/* Compiles a pattern that is part of this program, in PCRE2 syntax. */
enum tw_status tw_bpe_pattern_compile_own(struct tw_bpe_pattern *pattern, const char *regex,
                                          struct tw_error *err);

void tw_bpe_pattern_free(struct tw_bpe_pattern *pattern);

/* Escapes text so that it matches literally. Returns the number of bytes written to regex[room],
 * without a NUL, or 0 if room is too small. */
size_t tw_bpe_pattern_quote(const char *text, char *regex, size_t room);

/* One thread's matching state. */
struct tw_bpe_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum tw_status tw_bpe_matcher_init(struct tw_bpe_matcher *matcher, struct tw_error *err);
void tw_bpe_matcher_deinit(struct tw_bpe_matcher *matcher);

/* A range of text, which must be valid UTF-8 for a matcher. */
struct tw_bpe_piece {
    const uint8_t *text;
    size_t bytes;
};

struct tw_bpe_range {
    size_t begin, end;
};

/* Finds the first match at or after `from`; a match is never empty. Without a match, begin = end =
 * piece.bytes. Fails with TW_LIMIT if the pattern exceeds TW_BPE_MATCH_STEPS. */
enum tw_status tw_bpe_matcher_next(const struct tw_bpe_matcher *matcher,
                                   const struct tw_bpe_pattern *pattern, struct tw_bpe_piece piece,
                                   size_t from, struct tw_bpe_range *match, struct tw_error *err);

/* ---- Unicode's normalisation form C (UAX #15), for tokenizers that ask for it ---------------- */

/* code points in the table; above them, only CJK ideographs and tags are assigned */
enum { TW_BPE_NFC_CODES = 0x30000 };

/* One bit per character: set if NFC may change it, compose it with the character before, or reorder
 * marks across it. Most texts contain no such character. */
struct tw_bpe_nfc {
    uint64_t unstable[TW_BPE_NFC_CODES / 64];
};

/* Returns the shared table, which the first call builds. It is never freed. May be called by any
 * thread. */
const struct tw_bpe_nfc *tw_bpe_nfc_table(void);

enum {
    /* Limit of characters that are normalised together; stream-safe text (UAX #15) has at most
     * 31. Longer runs of marks are split, which bounds the time and memory that hostile text can
     * cost. */
    TW_BPE_NFC_RUN_MAX = 1024,
    TW_BPE_NFC_PARTS_MAX = 4, /* characters in the longest decomposition of a character (UAX #15) */
};

/* One thread's scratch. A zero-initialised one is empty; it grows with the longest text. */
struct tw_bpe_nfc_buffer {
    uint8_t *bytes;
    size_t count, capacity;
    int32_t codes[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
    int32_t sorted[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
};

void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer);

/* Replaces *piece, valid UTF-8, by its NFC. A piece that is already normal stays as it is.
 * Otherwise the result points into buffer. Fails with TW_NOMEM. */
enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err);

/* finds added tokens in the text before it is split: always the leftmost match, and
 * the longest of those that begin there. */

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
    uint64_t names;                       /* special tokens treated as text */
};

/* Finds the next token: its id and its range, which includes the white space that it strips.
 * Returns false if there is none. */
bool tw_bpe_search_next(struct tw_bpe_search *search, struct tw_bpe_range *range, uint32_t *token);

#endif
