#include "worker/tokenizer/bpe_pattern.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"
#include "worker/support/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8

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

/* ---- normal form ----------------------------------------------------------------------------- */

/* every character below U+0300 is its own normal form in every context */
enum { FIRST_UNSTABLE = 0x300 };
static const utf8proc_option_t DECOMPOSE = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
static const utf8proc_option_t COMPOSE = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

/* ---- which characters are stable -------------------------------------------------------------
 *
 * A stable character is its own normal form and cannot compose with the character before it. No
 * mark is reordered across it. So a text may be cut before it (UAX #15 section 9). */

static int class_of(int32_t code) {
    return utf8proc_get_property(code)->combining_class & 255;
}

static struct tw_bpe_nfc table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void mark_unstable(int32_t code) {
    table.unstable[code / 64] |= UINT64_C(1) << (code % 64);
}

/* Marks all unstable characters. Among them is the last part of any character's decomposition,
 * because it composes with a character before it. */
static void fill_table(void) {
    for (int32_t code = FIRST_UNSTABLE; code < TW_BPE_NFC_CODES; code++) {
        int32_t codes[TW_BPE_NFC_PARTS_MAX];
        const utf8proc_ssize_t count =
            utf8proc_decompose_char(code, codes, TW_BPE_NFC_PARTS_MAX, DECOMPOSE, NULL);
        TW_ASSERT(count >= 1 && count <= TW_BPE_NFC_PARTS_MAX);
        if (class_of(code) != 0) mark_unstable(code);
        if (count == 1 && codes[0] == code) continue;
        const int32_t last = codes[count - 1];
        if (utf8proc_normalize_utf32(codes, count, COMPOSE) != 1 || codes[0] != code) {
            mark_unstable(code);
        } else if (last < TW_BPE_NFC_CODES) {
            mark_unstable(last);
        }
    }
}

const struct tw_bpe_nfc *tw_bpe_nfc_table(void) {
    (void)pthread_once(&table_once, fill_table);
    return &table;
}

static bool is_unstable(const struct tw_bpe_nfc *nfc, int32_t code) {
    return code >= FIRST_UNSTABLE && code < TW_BPE_NFC_CODES &&
           (nfc->unstable[code / 64] >> (code % 64) & 1) != 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Decodes the character at text (valid UTF-8) into *code and returns its size. */
static size_t code_at(const uint8_t *text, int32_t *code) {
    const int32_t a = text[0];
    if (a < 0x80) {
        *code = a;
        return 1;
    }
    if (a < 0xE0) {
        *code = (a & 31) << 6 | (text[1] & 63);
        return 2;
    }
    if (a < 0xF0) {
        *code = (a & 15) << 12 | (text[1] & 63) << 6 | (text[2] & 63);
        return 3;
    }
    *code = (a & 7) << 18 | (text[1] & 63) << 12 | (text[2] & 63) << 6 | (text[3] & 63);
    return 4;
}

/* Finds a run to normalise: from the last stable character before the first unstable one, to the
 * next stable one. If there is no unstable character, both ends are piece.bytes. */
static struct tw_bpe_range find_run(const struct tw_bpe_nfc *nfc, struct tw_bpe_piece piece,
                                    size_t from) {
    size_t begin = from, at = from, size, count = 0;
    int32_t code;
    for (; at < piece.bytes; begin = at, at += size) {
        size = piece.text[at] < 0x80 ? 1 : 2;
        /* quick test: characters from U+0300 on begin with a byte of at least 0xCC */
        if (piece.text[at] < 0xCC) continue;
        size = code_at(piece.text + at, &code);
        if (is_unstable(nfc, code)) break;
    }
    if (at == piece.bytes) return (struct tw_bpe_range){piece.bytes, piece.bytes};
    for (; at < piece.bytes && count < TW_BPE_NFC_RUN_MAX - 2; at += size, count++) {
        size = code_at(piece.text + at, &code);
        if (!is_unstable(nfc, code)) break;
    }
    return (struct tw_bpe_range){begin, at};
}

/* Sorts the marks after one base by combining class, stably. This is a counting sort, because an
 * insertion sort would take quadratic time on a text of marks. */
static void sort_marks(int32_t *codes, int32_t *sorted, size_t count) {
    size_t places[257] = {0};
    for (size_t i = 0; i < count; i++) places[class_of(codes[i]) + 1]++;
    for (size_t i = 1; i < 257; i++) places[i] += places[i - 1];
    for (size_t i = 0; i < count; i++) sorted[places[class_of(codes[i])]++] = codes[i];
    memcpy(codes, sorted, count * sizeof(*codes));
}

static void order_marks(int32_t *codes, int32_t *sorted, size_t count) {
    for (size_t begin = 0, end; begin < count; begin = end) {
        bool is_ordered = true;
        for (end = begin; end < count && class_of(codes[end]) != 0; end++) {
            if (end > begin && class_of(codes[end]) < class_of(codes[end - 1])) is_ordered = false;
        }
        if (!is_ordered) sort_marks(codes + begin, sorted, end - begin);
        if (end == begin) end++;
    }
}

/* Appends the normal form of a run to the buffer, which must have room for it. */
static void put_normal(struct tw_bpe_nfc_buffer *buffer, struct tw_bpe_piece run) {
    const size_t room = sizeof(buffer->codes) / sizeof(*buffer->codes);
    size_t count = 0;
    for (size_t at = 0; at < run.bytes;) {
        int32_t code;
        at += code_at(run.text + at, &code);
        const utf8proc_ssize_t parts = utf8proc_decompose_char(
            code, buffer->codes + count, (utf8proc_ssize_t)(room - count), DECOMPOSE, NULL);
        TW_ASSERT(parts >= 0 && (size_t)parts <= room - count);
        count += (size_t)parts;
    }
    order_marks(buffer->codes, buffer->sorted, count);
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(buffer->codes, (utf8proc_ssize_t)count, COMPOSE);
    TW_ASSERT(composed >= 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        buffer->count +=
            (size_t)utf8proc_encode_char(buffer->codes[i], buffer->bytes + buffer->count);
    }
}

static enum tw_status reserve(struct tw_bpe_nfc_buffer *buffer, size_t more, struct tw_error *err) {
    if (more <= buffer->capacity - buffer->count) return TW_OK;
    const size_t capacity = (buffer->count + more) / 2 * 3 + 64;
    uint8_t *const bytes = realloc(buffer->bytes, capacity);
    if (bytes == NULL) return tw_fail(err, TW_NOMEM, "no memory to normalise %zu bytes", capacity);
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return TW_OK;
}

void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer) {
    free(buffer->bytes);
    buffer->bytes = NULL;
    buffer->count = buffer->capacity = 0;
}

enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err) {
    struct tw_bpe_range run = find_run(nfc, *piece, 0);
    if (run.begin == piece->bytes) return TW_OK;
    buffer->count = 0;
    for (size_t from = 0; from < piece->bytes; run = find_run(nfc, *piece, from)) {
        /* No character grows to more than 3 times its size (UAX #15, table 5). */
        TW_TRY(reserve(buffer, run.begin - from + 3 * (run.end - run.begin), err));
        memcpy(buffer->bytes + buffer->count, piece->text + from, run.begin - from);
        buffer->count += run.begin - from;
        put_normal(buffer, (struct tw_bpe_piece){piece->text + run.begin, run.end - run.begin});
        from = run.end;
    }
    *piece = (struct tw_bpe_piece){buffer->bytes, buffer->count};
    return TW_OK;
}

/* ---- from Oniguruma's syntax to PCRE2's ------------------------------------------------------ */

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
                       "split pattern: %s%s", why,
                       PCRE2_MINOR < 40 ? "; patterns of tokenizers need PCRE2 10.40" : "");
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

/* ---- added tokens ---------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const struct tw_bpe_added_token *const x = a, *const y = b;
    const size_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    const int order = memcmp(x->text, y->text, common);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void tw_bpe_added_index(struct tw_bpe_added *added) {
    int firsts = 0;
    memset(added->is_first, 0, sizeof(added->is_first));
    added->only_first = -1;
    if (added->count == 0) return;
    qsort(added->tokens, added->count, sizeof(*added->tokens), compare);
    for (size_t i = 0; i < added->count; i++) {
        const uint8_t first = added->tokens[i].text[0];
        firsts += !added->is_first[first];
        added->is_first[first] = true;
    }
    if (firsts == 1) added->only_first = added->tokens[0].text[0];
}

/* ---- match at one position ------------------------------------------------------------------- */

/* Binary search in tokens [low, high), which are equal in their first `depth` bytes. Returns the
 * first token whose next byte is at least c. Tokens that end at this depth come before it. */
static size_t lower_bound(const struct tw_bpe_added *added, size_t low, size_t high, size_t depth,
                          unsigned c) {
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct tw_bpe_added_token *const token = &added->tokens[middle];
        if (token->bytes <= depth || token->text[depth] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns the longest token with which text[left] begins, or NULL. */
static const struct tw_bpe_added_token *longest_at(const struct tw_bpe_added *added,
                                                   const uint8_t *text, size_t left) {
    const struct tw_bpe_added_token *found = NULL;
    size_t low = 0, high = added->count;
    for (size_t depth = 0; depth < left; depth++) {
        const unsigned c = text[depth];
        low = lower_bound(added, low, high, depth, c);
        high = lower_bound(added, low, high, depth, c + 1);
        if (low == high) break;
        if (added->tokens[low].bytes == depth + 1) found = &added->tokens[low];
    }
    return found;
}

static size_t first_candidate(const struct tw_bpe_added *added, struct tw_bpe_piece piece,
                              size_t from) {
    if (added->count == 0) return piece.bytes;
    if (added->only_first >= 0) {
        const uint8_t *const at = memchr(piece.text + from, added->only_first, piece.bytes - from);
        return at != NULL ? (size_t)(at - piece.text) : piece.bytes;
    }
    while (from < piece.bytes && !added->is_first[piece.text[from]]) from++;
    return from;
}

/* ---- surrounding characters ------------------------------------------------------------------ */

static bool is_word_at(const struct tw_bpe_search *search, size_t begin, size_t end) {
    const struct tw_bpe_piece one = {search->piece.text + begin, end - begin};
    struct tw_bpe_range match;
    return tw_bpe_matcher_next(search->matcher, search->word, one, 0, &match, NULL) == TW_OK &&
           match.begin == 0 && match.end > 0;
}

static size_t character_before(struct tw_bpe_piece piece, size_t at) {
    do at--;
    while (at > 0 && (piece.text[at] & 0xC0) == 0x80);
    return at;
}

static size_t character_after(struct tw_bpe_piece piece, size_t at) {
    return at + (size_t)tw_utf8_size(piece.text + at, piece.bytes - at);
}

static bool is_within_a_word(const struct tw_bpe_search *search, struct tw_bpe_range range) {
    const struct tw_bpe_piece piece = search->piece;
    return (range.begin > 0 &&
            is_word_at(search, character_before(piece, range.begin), range.begin)) ||
           (range.end < piece.bytes &&
            is_word_at(search, range.end, character_after(piece, range.end)));
}

/* Whether the character has the Unicode property White_Space. For assigned characters, this
 * property never changes. */
static bool is_space(struct tw_bpe_piece piece, size_t begin, size_t end) {
    const uint8_t *const c = piece.text + begin;
    if (end - begin == 1) return c[0] == ' ' || (c[0] >= 9 && c[0] <= 13);
    if (end - begin == 2) return c[0] == 0xC2 && (c[1] == 0x85 || c[1] == 0xA0);
    if (end - begin != 3) return false;
    const uint32_t code = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
    return code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static void extend_over_space(const struct tw_bpe_search *search,
                              const struct tw_bpe_added_token *token, struct tw_bpe_range *range) {
    const struct tw_bpe_piece piece = search->piece;
    while (token->is_left_strip && range->begin > search->taken) {
        const size_t before = character_before(piece, range->begin);
        if (!is_space(piece, before, range->begin)) break;
        range->begin = before;
    }
    while (token->is_right_strip && range->end < piece.bytes) {
        const size_t after = character_after(piece, range->end);
        if (!is_space(piece, range->end, after)) break;
        range->end = after;
    }
}

bool tw_bpe_search_next(struct tw_bpe_search *search, struct tw_bpe_range *range, uint32_t *token) {
    const struct tw_bpe_piece piece = search->piece;
    for (;;) {
        const size_t at = first_candidate(search->added, piece, search->scanned);
        if (at == piece.bytes) return false;
        const struct tw_bpe_added_token *const found =
            longest_at(search->added, piece.text + at, piece.bytes - at);
        if (found == NULL) {
            search->scanned = at + 1;
            continue;
        }
        *range = (struct tw_bpe_range){at, at + found->bytes};
        search->scanned = range->end;
        if (search->is_plain && found->is_special) {
            search->names++;
            continue;
        }
        if (found->is_single_word && is_within_a_word(search, *range)) continue;
        /* White space that the previous token stripped may contain this token. It is then
         * skipped. */
        extend_over_space(search, found, range);
        if (range->end <= search->taken) continue;
        search->taken = range->end;
        *token = found->token;
        return true;
    }
}
