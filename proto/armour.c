#include "proto/armour.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

enum { BYTES_PER_LINE = 32 };

size_t tw_armour_encode(const char *title, const uint8_t *bytes, size_t size, char *text) {
    static const char digits[] = "0123456789abcdef";
    const size_t title_size = strlen(title);
    TW_ASSERT(title_size < 38);
    memcpy(text, title, title_size);
    size_t at = title_size;
    for (size_t i = 0; i < size; i++) {
        if (i % BYTES_PER_LINE == 0) text[at++] = '\n';
        text[at++] = digits[bytes[i] >> 4];
        text[at++] = digits[bytes[i] & 15];
    }
    text[at++] = '\n';
    text[at] = '\0';
    return at;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

enum tw_status tw_armour_decode(const char *title, const char *text, size_t text_size,
                                uint8_t *bytes, size_t capacity, size_t *size_out,
                                struct tw_error *err) {
    const size_t title_size = strlen(title);
    size_t at = 0, digits = 0;
    while (at < text_size && is_space(text[at])) at++;
    if (text_size - at < title_size || memcmp(text + at, title, title_size) != 0)
        return tw_fail(err, TW_CONFIG, "it does not begin with the line `%s`", title);
    at += title_size;
    if (at < text_size && !is_space(text[at]))
        return tw_fail(err, TW_CONFIG, "it does not begin with the line `%s`", title);
    for (; at < text_size; at++) {
        if (is_space(text[at])) continue;
        const int value = digit(text[at]);
        if (value < 0)
            return tw_fail(err, TW_CONFIG,
                           "after the line `%s` come hex digits, and one of them is something "
                           "else: copy it again",
                           title);
        if (digits / 2 == capacity)
            return tw_fail(err, TW_CONFIG, "it is longer than %zu bytes", capacity);
        if (digits % 2 == 0) bytes[digits / 2] = 0;
        bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | value);
        digits++;
    }
    if (digits % 2 != 0)
        return tw_fail(err, TW_CONFIG, "it ends in the middle of a byte: copy it again");
    *size_out = digits / 2;
    return TW_OK;
}
