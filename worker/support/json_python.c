#include "worker/support/json_python.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
