/* bpe_pattern.h - split patterns of tokenizer.json, which are Oniguruma's, run by PCRE2.
 *
 * A pattern is taken only if it is made of what both understand alike; \s, \d and \p{...} are
 * rewritten so that they mean the same set of characters. Everything else is refused by name. */
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
    /* Steps of one match, of PCRE2's own kind: so many, and so many for each byte of the piece, as
     * a pattern may go back over a long run once or twice. */
    TW_BPE_MATCH_STEPS = 10 * 1000 * 1000,
    TW_BPE_MATCH_STEPS_PER_BYTE = 3,
    TW_BPE_HEAP_KIB = 64 * 1024, /* where there is no just-in-time compiler */
    TW_BPE_JIT_STACK_BYTES = 1 << 20,
};

/* The set of characters with the Unicode property White_Space: \s of all involved but PCRE2. */
#define TW_BPE_SPACE "\\p{White_Space}"

/* Immutable; any number of threads may match with it. Zero-initialised is none. */
struct tw_bpe_pattern {
    pcre2_code *code;
    bool has_jit;
};

/* TW_CONFIG names what is not supported. TW_NOMEM. */
enum tw_status tw_bpe_pattern_compile(struct tw_bpe_pattern *pattern, const char *regex,
                                      struct tw_error *err);

/* The same for a pattern of ours, in PCRE2's own words. */
enum tw_status tw_bpe_pattern_compile_own(struct tw_bpe_pattern *pattern, const char *regex,
                                          struct tw_error *err);
void tw_bpe_pattern_free(struct tw_bpe_pattern *pattern);

/* Characters that mean themselves. Bytes written to regex[room], without NUL; 0 when it is too
 * small. */
size_t tw_bpe_pattern_quote(const char *text, char *regex, size_t room);

/* What one thread matches with. */
struct tw_bpe_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};
enum tw_status tw_bpe_matcher_init(struct tw_bpe_matcher *matcher, struct tw_error *err);
void tw_bpe_matcher_deinit(struct tw_bpe_matcher *matcher);

/* Bytes of text that belong together; valid UTF-8 for a matcher. */
struct tw_bpe_piece {
    const uint8_t *text;
    size_t bytes;
};

struct tw_bpe_range {
    size_t begin, end;
};

/* The first match at or after `from`; begin = end = piece.bytes when there is none. It is never
 * empty otherwise. TW_LIMIT: the pattern needs more steps than TW_BPE_MATCH_STEPS. */
enum tw_status tw_bpe_matcher_next(const struct tw_bpe_matcher *matcher,
                                   const struct tw_bpe_pattern *pattern, struct tw_bpe_piece piece,
                                   size_t from, struct tw_bpe_range *match, struct tw_error *err);

#endif
