/* utf8.h - UTF-8 out of a stream of single bytes: characters come out whole or not at all. */
#ifndef TW_WORKER_SUPPORT_UTF8_H
#define TW_WORKER_SUPPORT_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { TW_UTF8_BYTES_MAX = 4 };

/* Length of the well-formed sequence text[left] begins with: 1 to 4. 0 when none can come of it; -1
 * when it is a good beginning that ends too early. Overlong forms, surrogates and what lies beyond
 * U+10FFFF are not well formed (RFC 3629). left > 0. */
int tw_utf8_size(const uint8_t *text, size_t left);

/* Bytes that may still become a character. Zero-initialised is empty. */
struct tw_utf8_stream {
    uint8_t held[TW_UTF8_BYTES_MAX];
    size_t held_bytes;
};

/* Takes one byte. Writes what is settled by it into out[TW_UTF8_TAKE_BYTES] and returns its size: a
 * whole character, nothing yet, or U+FFFD for each byte that no character can come of. */
enum { TW_UTF8_TAKE_BYTES = 3 * TW_UTF8_BYTES_MAX };
size_t tw_utf8_take(struct tw_utf8_stream *stream, uint8_t byte, uint8_t *out);

/* No byte comes any more: U+FFFD for what is left. */
size_t tw_utf8_end(struct tw_utf8_stream *stream, uint8_t *out);

#endif
