#include "worker/support/hf_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_kind.h"

/* ---- Python's dialect ------------------------------------------------------------------------ */

enum { NUMBER_BYTES_MAX = 400, ESCAPE_BYTES = 6 };

struct rewrite {
    const char *at, *end;
    char *to;
    bool is_changed;
};

static void put(struct rewrite *rewrite, const char *text) {
    const size_t size = strlen(text);
    memcpy(rewrite->to, text, size);
    rewrite->to += size;
    rewrite->is_changed = true;
}

static void copy(struct rewrite *rewrite, size_t size) {
    memcpy(rewrite->to, rewrite->at, size);
    rewrite->to += size;
    rewrite->at += size;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Copies or rewrites a number. The output is at most twice as long as the number. */
static void take_number(struct rewrite *rewrite) {
    char text[NUMBER_BYTES_MAX + 1], real[32];
    size_t size = 0;
    while (rewrite->at + size < rewrite->end &&
           strchr("+-.0123456789eE", rewrite->at[size]) != NULL && rewrite->at[size] != 0) {
        size++;
    }
    if (size == 0 || size > NUMBER_BYTES_MAX) {
        copy(rewrite, size == 0 ? 1 : size);
        return;
    }
    memcpy(text, rewrite->at, size);
    text[size] = 0;
    errno = 0;
    (void)strtoll(text, NULL, 10);
    const bool is_integer = strpbrk(text, ".eE") == NULL, is_large = errno == ERANGE;
    const double value = strtod(text, NULL);
    if (isinf(value)) {
        put(rewrite, value < 0 ? "\"-Infinity\"" : "\"Infinity\"");
    } else if (is_integer && is_large) {
        (void)snprintf(real, sizeof(real), "%.12e", value);
        put(rewrite, real);
    } else {
        copy(rewrite, size);
        return;
    }
    rewrite->at += size;
}

static void take_value(struct rewrite *rewrite) {
    static const char *const WORDS[] = {"NaN", "Infinity", "-Infinity"};
    static const char *const STRINGS[] = {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""};
    const size_t left = (size_t)(rewrite->end - rewrite->at);
    for (unsigned i = 0; i < 3; i++) {
        const size_t size = strlen(WORDS[i]);
        if (left < size || memcmp(rewrite->at, WORDS[i], size) != 0) continue;
        put(rewrite, STRINGS[i]);
        rewrite->at += size;
        return;
    }
    take_number(rewrite);
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Returns the UTF-16 code unit of \uXXXX at `at`, or -1 if there is none. */
static long escaped_unit(const char *at, const char *end) {
    char digits[5];
    if (end - at < ESCAPE_BYTES || at[0] != '\\' || at[1] != 'u') return -1;
    memcpy(digits, at + 2, 4);
    digits[4] = 0;
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

static void take_escape(struct rewrite *rewrite) {
    const long unit = escaped_unit(rewrite->at, rewrite->end);
    if (unit < 0) {
        copy(rewrite, rewrite->end - rewrite->at > 1 ? 2 : 1);
        return;
    }
    const long next = escaped_unit(rewrite->at + ESCAPE_BYTES, rewrite->end);
    const bool is_high = unit >= 0xD800 && unit <= 0xDBFF,
               is_low = unit >= 0xDC00 && unit <= 0xDFFF;
    if (is_high && next >= 0xDC00 && next <= 0xDFFF) {
        copy(rewrite, (size_t)2 * ESCAPE_BYTES);
    } else if (unit == 0 || is_high || is_low) {
        put(rewrite, "\\ufffd");
        rewrite->at += ESCAPE_BYTES;
    } else {
        copy(rewrite, ESCAPE_BYTES);
    }
}

static void take_string(struct rewrite *rewrite, bool with_strings) {
    copy(rewrite, 1);
    while (rewrite->at < rewrite->end) {
        const char c = *rewrite->at;
        if (c == '\\' && with_strings) {
            take_escape(rewrite);
        } else if (c == '\\' && rewrite->end - rewrite->at > 1) {
            copy(rewrite, 2);
        } else {
            copy(rewrite, 1);
            if (c == '"') return;
        }
    }
}

enum tw_status tw_json_python(const char *json, size_t size, bool with_strings, char **out,
                              size_t *out_size, struct tw_error *err) {
    struct rewrite rewrite = {.at = json, .end = json + size};
    *out = malloc(2 * size + 16); /* 1e999 grows most: it becomes "Infinity", twice as long */
    if (*out == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu bytes of JSON", size);
    rewrite.to = *out;
    while (rewrite.at < rewrite.end) {
        const char c = *rewrite.at;
        if (c == '"') {
            take_string(&rewrite, with_strings);
        } else if (c == '-' || c == 'N' || c == 'I' || (c >= '0' && c <= '9')) {
            take_value(&rewrite);
        } else {
            copy(&rewrite, 1);
        }
    }
    *out_size = (size_t)(rewrite.to - *out);
    if (rewrite.is_changed) return TW_OK;
    free(*out);
    *out = NULL;
    return TW_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Set if an allocation failed during a parse. The result must then be discarded, because jansson
 * silently drops a byte of a string when it runs out of memory. */
static _Thread_local bool is_out_of_memory;

static void *allocate(size_t size) {
    void *const block = malloc(size);
    if (block == NULL) is_out_of_memory = true;
    return block;
}

/* Replaces unprintable bytes, because jansson's message quotes the untrusted text near the
 * error. */
static enum tw_status fail_syntax(const json_error_t *why, struct tw_error *err) {
    char text[JSON_ERROR_TEXT_LENGTH];
    (void)snprintf(text, sizeof(text), "%s", why->text);
    for (char *at = text; *at != 0; at++) {
        if (*at < ' ' || *at > '~') *at = '?';
    }
    return tw_fail(err, TW_CORRUPT, "line %d, column %d: %s", why->line, why->column, text);
}

/* Parses strictly first, so that only files in Python's dialect need a rewritten copy. */
static enum tw_status parse(json_t **root, const char *json, size_t size, bool with_strings,
                            struct tw_error *err) {
    json_error_t why;
    char *rewritten = NULL;
    *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, &why);
    if (*root == NULL && !is_out_of_memory) {
        TW_TRY(tw_json_python(json, size, with_strings, &rewritten, &size, err));
        if (rewritten == NULL) return fail_syntax(&why, err);
        *root = json_loadb(rewritten, size, JSON_REJECT_DUPLICATES, &why);
        free(rewritten);
    }
    if (is_out_of_memory) {
        json_decref(*root);
        return tw_fail(err, TW_NOMEM, "no memory for %zu bytes of JSON", size);
    }
    return *root != NULL ? TW_OK : fail_syntax(&why, err);
}

static enum tw_status parse_object(json_t **root_out, const char *json, size_t size,
                                   size_t bytes_max, bool with_strings, struct tw_error *err) {
    json_t *root;
    const struct tw_file_kind *const kind = tw_file_kind_of((const uint8_t *)json, size);
    if (size > bytes_max) {
        return tw_fail(err, TW_CORRUPT, "%zu bytes of JSON; at most %zu are read", size, bytes_max);
    }
    if (kind != NULL && kind->holds == TW_HOLDS_POINTER) {
        return tw_fail(err, TW_CONFIG, "%s: %s", kind->name, kind->remedy);
    }
    json_set_alloc_funcs(allocate, free);
    is_out_of_memory = false;
    TW_TRY(parse(&root, json, size, with_strings, err));
    if (!json_is_object(root)) {
        json_decref(root);
        return tw_fail(err, TW_CORRUPT, "an object was expected: { ... }");
    }
    *root_out = root;
    return TW_OK;
}

enum tw_status tw_hf_json_parse(json_t **root_out, const char *json, size_t size, size_t bytes_max,
                                struct tw_error *err) {
    return parse_object(root_out, json, size, bytes_max, true, err);
}

enum tw_status tw_hf_json_parse_exact(json_t **root_out, const char *json, size_t size,
                                      size_t bytes_max, struct tw_error *err) {
    return parse_object(root_out, json, size, bytes_max, false, err);
}

static int append_shown(const char *bytes, size_t size, void *context) {
    char *const shown = context;
    const size_t used = strlen(shown), room = TW_HF_SHOWN_BYTES - 1 - used;
    const size_t take = size < room ? size : room;
    memcpy(shown + used, bytes, take);
    shown[used + take] = 0;
    if (take < size) memcpy(shown + TW_HF_SHOWN_BYTES - 4, "...", 4);
    return take < size ? -1 : 0; /* -1 ends the dump once `shown` is full */
}

const char *tw_hf_show(const json_t *value, char shown[TW_HF_SHOWN_BYTES]) {
    shown[0] = 0;
    if (value == NULL) return "nothing";
    (void)json_dump_callback(value, append_shown, shown,
                             JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    return shown;
}

const char *tw_hf_word(const json_t *object, const char *key) {
    const char *const word = json_string_value(json_object_get(object, key));
    return word != NULL ? word : "";
}

bool tw_hf_flag(const json_t *object, const char *key, bool otherwise) {
    const json_t *const flag = json_object_get(object, key);
    return json_is_boolean(flag) ? json_is_true(flag) : otherwise;
}
