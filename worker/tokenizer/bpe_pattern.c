#include "worker/tokenizer/bpe_pattern.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- from Oniguruma's syntax to PCRE2's -------------------------------------------------------
 */

struct rewriting {
    const char *at; /* position in the pattern, which ends in NUL */
    char *out;
    size_t bytes, room;
    bool is_in_class;
};

enum { GROWTH_MAX = 16 }; /* bound of output bytes per input byte: \s becomes \p{White_Space} */

static void put(struct rewriting *to, const char *text, size_t bytes) {
    TW_ASSERT(bytes <= to->room - to->bytes);
    memcpy(to->out + to->bytes, text, bytes);
    to->bytes += bytes;
}

static void copy_input(struct rewriting *to, size_t bytes) {
    put(to, to->at, bytes);
    to->at += bytes;
}

static enum tw_status refuse(struct tw_error *err, const char *what, const char *why) {
    char shown[16];
    size_t size = 0;
    for (; size < sizeof(shown) - 1 && what[size] > ' ' && what[size] <= '~'; size++) {
        shown[size] = what[size];
    }
    shown[size] = 0;
    return tw_fail(err, TW_CONFIG, "split pattern, at \"%s\": %s", shown, why);
}

/* Rewrites a property such as \p{L}, \p{^Lu} or \P{Han}. Categories stay; longer names are
 * scripts. */
static enum tw_status take_property(struct rewriting *to, struct tw_error *err) {
    const char *name = to->at + 2;
    if (*name != '{') return refuse(err, to->at, "a property must be in braces");
    name += 1 + (name[1] == '^');
    const size_t size = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
    if (size == 0 || size > 32 || name[size] != '}') {
        return refuse(err, to->at, "not a character category or script");
    }
    put(to, to->at, (size_t)(name - to->at));
    if (size > 2) put(to, "sc:", 3); /* without "sc:", PCRE2 would use Script_Extensions */
    put(to, name, size + 1);
    to->at = name + size + 1;
    return TW_OK;
}

static enum tw_status take_escape(struct rewriting *to, struct tw_error *err) {
    const char c = to->at[1];
    const char *hex = to->at + 2;
    switch (c) {
    case 's': put(to, TW_BPE_SPACE, sizeof(TW_BPE_SPACE) - 1); break;
    case 'S': put(to, "\\P{White_Space}", 15); break;
    case 'd': put(to, "\\p{Nd}", 6); break;
    case 'D': put(to, "\\P{Nd}", 6); break;
    case 'p':
    case 'P': return take_property(to, err);
    case 'r':
    case 'n':
    case 't': put(to, to->at, 2); break;
    case 'u':
        if (strspn(hex, "0123456789abcdefABCDEF") < 4)
            return refuse(err, to->at, "\\u needs four hex digits");
        put(to, "\\x{", 3);
        put(to, hex, 4);
        put(to, "}", 1);
        to->at += 4;
        break;
    case 'x': {
        const size_t digits = *hex == '{' ? strspn(hex + 1, "0123456789abcdefABCDEF") : 0;
        if (digits == 0 || hex[1 + digits] != '}') return refuse(err, to->at, "write \\x{...}");
        copy_input(to, 2 + 1 + digits + 1);
        return TW_OK;
    }
    default:
        if (c == 0 || (unsigned char)c >= 0x80 || isalnum((unsigned char)c)) {
            return refuse(err, to->at,
                          "of the escapes \\s \\S \\d \\D \\p \\P \\r \\n \\t \\x{} \\u and "
                          "escaped punctuation are supported");
        }
        put(to, to->at, 2);
    }
    to->at += 2;
    return TW_OK;
}

/* Copies a repetition such as {3}, {1,3} or {2,}. A + or ? after the } is refused, because the two
 * libraries interpret it differently. */
static enum tw_status take_repeat(struct rewriting *to, struct tw_error *err) {
    const char *end = to->at + 1;
    const size_t digits = strspn(end, "0123456789");
    end += digits;
    if (*end == ',') end += 1 + strspn(end + 1, "0123456789");
    if (digits == 0 || *end != '}' || end[1] == '+' || end[1] == '?') {
        return refuse(err, to->at, "a repeat is {n}, {n,} or {n,m}, with nothing after it");
    }
    copy_input(to, (size_t)(end + 1 - to->at));
    return TW_OK;
}

static enum tw_status take_group(struct rewriting *to, struct tw_error *err) {
    static const char *const GROUPS[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (to->at[1] != '?' && to->at[1] != '*') {
        copy_input(to, 1);
        return TW_OK;
    }
    for (size_t i = 0; i < sizeof(GROUPS) / sizeof(*GROUPS); i++) {
        const size_t size = strlen(GROUPS[i]);
        if (strncmp(to->at, GROUPS[i], size) != 0) continue;
        copy_input(to, size);
        return TW_OK;
    }
    return refuse(err, to->at, "of the groups (?: (?i: (?= (?! (?<= (?<! (?> are supported");
}

static enum tw_status take_class_member(struct rewriting *to, struct tw_error *err) {
    if (*to->at == '\\') return take_escape(to, err);
    if (*to->at == '[') return refuse(err, to->at, "a class within a class is not supported");
    if (strncmp(to->at, "&&", 2) == 0)
        return refuse(err, to->at, "an intersection of classes is not supported");
    if (*to->at == ']') to->is_in_class = false;
    copy_input(to, 1);
    return TW_OK;
}

static enum tw_status take_one(struct rewriting *to, struct tw_error *err) {
    if (to->is_in_class) return take_class_member(to, err);
    switch (*to->at) {
    case '\\': return take_escape(to, err);
    case '{': return take_repeat(to, err);
    case '(': return take_group(to, err);
    case '^':
    case '$': return refuse(err, to->at, "anchors are not supported: lines differ");
    case '[':
        to->is_in_class = true;
        copy_input(to, to->at[1] == '^' ? 2 : 1);
        if (*to->at == ']') return refuse(err, to->at - 1, "an empty class");
        return TW_OK;
    default: copy_input(to, 1); return TW_OK;
    }
}

size_t tw_bpe_pattern_quote(const char *text, char *regex, size_t room) {
    size_t bytes = 0;
    for (; *text != 0; text++) {
        if (room - bytes < 8) return 0;
        if (ispunct((unsigned char)*text)) {
            regex[bytes++] = '\\';
            regex[bytes++] = *text;
        } else if ((unsigned char)*text <= ' ') {
            bytes += (size_t)snprintf(regex + bytes, room - bytes, "\\x{%x}", (unsigned)*text);
        } else {
            regex[bytes++] = *text;
        }
    }
    return bytes;
}

/* ---- PCRE2 ----------------------------------------------------------------------------------- */

static enum tw_status compile(struct tw_bpe_pattern *pattern, const char *text, size_t bytes,
                              struct tw_error *err) {
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (context == NULL) return tw_fail(err, TW_NOMEM, "no memory for a split pattern");
    /* `.` matches all but \n, as in Oniguruma */
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    (void)pcre2_set_parens_nest_limit(context, 50);
    pattern->code = pcre2_compile((PCRE2_SPTR)text, bytes,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK |
                                      PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
                                  &code, &at, context);
    pcre2_compile_context_free(context);
    if (pattern->code == NULL) {
        char why[96];
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
        return tw_fail(err, code == PCRE2_ERROR_NOMEMORY ? TW_NOMEM : TW_CONFIG,
                       "split pattern: %s", why);
    }
    uint32_t is_empty_matched = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &is_empty_matched);
    if (is_empty_matched != 0) {
        tw_bpe_pattern_free(pattern);
        return tw_fail(err, TW_CONFIG,
                       "split pattern: it also matches the empty string, which splits nothing");
    }
    pattern->has_jit = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    return TW_OK;
}

enum tw_status tw_bpe_pattern_compile(struct tw_bpe_pattern *pattern, const char *regex,
                                      struct tw_error *err) {
    const size_t size = strlen(regex);
    if (size == 0 || size > TW_BPE_PATTERN_BYTES_MAX) {
        return tw_fail(err, TW_CONFIG, "split pattern: %zu bytes; 1 to %d are supported", size,
                       TW_BPE_PATTERN_BYTES_MAX);
    }
    struct rewriting to = {.at = regex, .room = GROWTH_MAX * size};
    to.out = malloc(to.room);
    if (to.out == NULL) return tw_fail(err, TW_NOMEM, "no memory for a split pattern");
    enum tw_status status = TW_OK;
    while (status == TW_OK && *to.at != 0) status = take_one(&to, err);
    if (status == TW_OK) status = compile(pattern, to.out, to.bytes, err);
    free(to.out);
    return status;
}

enum tw_status tw_bpe_pattern_compile_own(struct tw_bpe_pattern *pattern, const char *regex,
                                          struct tw_error *err) {
    return compile(pattern, regex, strlen(regex), err);
}

void tw_bpe_pattern_free(struct tw_bpe_pattern *pattern) {
    pcre2_code_free(pattern->code);
    *pattern = (struct tw_bpe_pattern){.code = NULL};
}

/* ---- matching -------------------------------------------------------------------------------- */

enum tw_status tw_bpe_matcher_init(struct tw_bpe_matcher *matcher, struct tw_error *err) {
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    matcher->stack = pcre2_jit_stack_create(32 * 1024, TW_BPE_JIT_STACK_BYTES, NULL);
    if (matcher->data == NULL || matcher->context == NULL) {
        tw_bpe_matcher_deinit(matcher);
        return tw_fail(err, TW_NOMEM, "no memory to match a split pattern");
    }
    (void)pcre2_set_heap_limit(matcher->context, TW_BPE_HEAP_KIB);
    /* If the stack allocation failed, PCRE2's JIT code uses 32 KiB of the thread's stack. */
    pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    return TW_OK;
}

void tw_bpe_matcher_deinit(struct tw_bpe_matcher *matcher) {
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    *matcher = (struct tw_bpe_matcher){.data = NULL};
}

enum tw_status tw_bpe_matcher_next(const struct tw_bpe_matcher *matcher,
                                   const struct tw_bpe_pattern *pattern, struct tw_bpe_piece piece,
                                   size_t from, struct tw_bpe_range *match, struct tw_error *err) {
    const PCRE2_SPTR text = (PCRE2_SPTR)piece.text;
    const uint64_t steps =
        TW_BPE_MATCH_STEPS + TW_BPE_MATCH_STEPS_PER_BYTE * (uint64_t)(piece.bytes - from);
    (void)pcre2_set_match_limit(matcher->context,
                                steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    const int rc = pattern->has_jit
                       ? pcre2_jit_match(pattern->code, text, piece.bytes, from, 0, matcher->data,
                                         matcher->context)
                       : pcre2_match(pattern->code, text, piece.bytes, from, PCRE2_NO_UTF_CHECK,
                                     matcher->data, matcher->context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *match = (struct tw_bpe_range){piece.bytes, piece.bytes};
        return TW_OK;
    }
    if (rc < 0) {
        char why[96];
        (void)pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
        return tw_fail(err, TW_LIMIT,
                       "the split pattern gives up %zu bytes into %zu of text (%s): cut the text "
                       "there, or change the pattern",
                       from, piece.bytes, why);
    }
    const PCRE2_SIZE *const at = pcre2_get_ovector_pointer(matcher->data);
    if (at[0] < from || at[1] <= at[0]) {
        return tw_fail(err, TW_CONFIG, "the split pattern also matches the empty string");
    }
    *match = (struct tw_bpe_range){at[0], at[1]};
    return TW_OK;
}
