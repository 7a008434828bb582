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

enum {
    TW_BPE_PATTERN_BYTES_MAX = 16 * 1024,
    /* Limit of PCRE2 steps per match: a constant plus a number per byte of the piece, because a
     * pattern may backtrack over a long run once or twice. */
    TW_BPE_MATCH_STEPS = 10 * 1000 * 1000,
    TW_BPE_MATCH_STEPS_PER_BYTE = 3,
    TW_BPE_HEAP_KIB = 64 * 1024, /* heap limit if there is no just-in-time compiler */
    TW_BPE_JIT_STACK_BYTES = 1 << 20,
};

/* Characters with the Unicode property White_Space. Every library involved except PCRE2 uses this
 * set for \s. */
#define TW_BPE_SPACE "\\p{White_Space}"

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

#endif
