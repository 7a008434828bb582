/* fuzz_json_field.c - arbitrary bytes as a line of JSON: refused with a sentence, or a field within
 * the line. If an accepted line is UTF-8, jansson accepts it too and finds the same string. Input:
 * the line; the field is "t". */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json_field.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* jansson differs from us in its limits: depth, numbers, and unpaired surrogates, which we map to
 * U+FFFD. */
static void compare(const uint8_t *data, size_t size, const uint8_t *text, size_t bytes) {
    json_error_t why;
    json_t *const root =
        json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (root == NULL) return;
    const json_t *const value = json_object_get(root, "t");
    TW_ASSERT(json_is_string(value));
    TW_ASSERT(json_string_length(value) == bytes);
    TW_ASSERT(memcmp(json_string_value(value), text, bytes) == 0);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_error err;
    size_t begin = 0, bytes = 0;
    uint8_t *const line = malloc(size + 1);
    TW_ASSERT(line != NULL);
    memcpy(line, data, size);
    if (tw_json_field(line, size, "t", &begin, &bytes, &err) == TW_OK) {
        TW_ASSERT(begin + bytes <= size);
        compare(data, size, line + begin, bytes);
    } else {
        TW_ASSERT(err.status == TW_DATA);
        TW_ASSERT(memchr(err.message, 0, sizeof(err.message)) != NULL);
        for (const char *c = err.message; *c != 0; c++) TW_ASSERT(*c >= ' ' && *c <= '~');
        /* Conversely, an object with this string is refused only for its depth or a duplicate key.
         * jansson stops at a NUL. */
        json_t *const root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
        const json_t *const value = root != NULL ? json_object_get(root, "t") : NULL;
        TW_ASSERT(!json_is_string(value) || strstr(err.message, "brackets") != NULL ||
                  memchr(data, 0, size) != NULL);
        json_decref(root);
    }
    free(line);
    return 0;
}
