/* utf8.h - finds the characters of UTF-8. */
#ifndef TW_BASE_UTF8_H
#define TW_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { TW_UTF8_BYTES_MAX = 4 };

/* Returns the length of the well-formed UTF-8 sequence at text[left], left > 0: 1 to 4 bytes.
 * Returns 0 if no such sequence begins there, and -1 if the text ends within a sequence that is
 * valid so far. Overlong forms, surrogates and code points beyond U+10FFFF are not well formed (RFC
 * 3629). */
int tw_utf8_size(const uint8_t *text, size_t left);

#endif
