/* utf8.h - turns a stream of single bytes into UTF-8. The output contains complete characters
 * only. */
#ifndef TW_WORKER_SUPPORT_UTF8_H
#define TW_WORKER_SUPPORT_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/utf8.h"

/* Bytes of an incomplete character. A zero-initialised stream is empty. */
struct tw_utf8_stream {
    uint8_t held[TW_UTF8_BYTES_MAX];
    size_t held_bytes;
};

/* Takes one byte and writes the output that it completes to out[TW_UTF8_TAKE_BYTES]: a whole
 * character, nothing yet, or U+FFFD for each invalid byte. Returns the size of that output in
 * bytes. */
enum { TW_UTF8_TAKE_BYTES = 3 * TW_UTF8_BYTES_MAX };
size_t tw_utf8_take(struct tw_utf8_stream *stream, uint8_t byte, uint8_t *out);

/* Ends the stream: writes U+FFFD for each byte still held. Returns the size of that output in
 * bytes. */
size_t tw_utf8_end(struct tw_utf8_stream *stream, uint8_t *out);

/* ---- prints arbitrary bytes as a JSON string ------------------------------------------------- */

/* Prints text between quotation marks. Invalid UTF-8 bytes become U+FFFD. */
void tw_json_text_print(FILE *to, const uint8_t *text, size_t bytes);

/* Like tw_json_text_print, for a NUL-terminated string. */
void tw_json_string_print(FILE *to, const char *text);

#endif
