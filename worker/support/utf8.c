#include "worker/support/utf8.h"

#include <string.h>

#include "base/assert.h"

static size_t put_replacement(uint8_t *out) {
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t tw_utf8_take(struct tw_utf8_stream *stream, uint8_t byte, uint8_t *out) {
    size_t written = 0;
    TW_ASSERT(stream->held_bytes < TW_UTF8_BYTES_MAX);
    stream->held[stream->held_bytes++] = byte;
    while (stream->held_bytes > 0) {
        const int size = tw_utf8_size(stream->held, stream->held_bytes);
        if (size < 0) break;
        const size_t gone = size > 0 ? (size_t)size : 1;
        if (size > 0) {
            memcpy(out + written, stream->held, gone);
            written += gone;
        } else {
            written += put_replacement(out + written);
        }
        stream->held_bytes -= gone;
        memmove(stream->held, stream->held + gone, stream->held_bytes);
    }
    return written;
}

size_t tw_utf8_end(struct tw_utf8_stream *stream, uint8_t *out) {
    size_t written = 0;
    for (size_t i = 0; i < stream->held_bytes; i++) written += put_replacement(out + written);
    stream->held_bytes = 0;
    return written;
}

/* ---- JSON strings ---------------------------------------------------------------------------- */

void tw_json_text_print(FILE *to, const uint8_t *text, size_t bytes) {
    (void)fputc('"', to);
    for (size_t i = 0; i < bytes;) {
        const int size = tw_utf8_size(text + i, bytes - i);
        if (size <= 0) {
            (void)fputs("\\ufffd", to);
        } else if (size == 1 && (text[i] < 32 || text[i] == '"' || text[i] == '\\')) {
            (void)fprintf(to, "\\u%04x", text[i]);
        } else {
            (void)fwrite(text + i, 1, (size_t)size, to);
        }
        i += size <= 0 ? 1 : (size_t)size;
    }
    (void)fputc('"', to);
}

void tw_json_string_print(FILE *to, const char *text) {
    tw_json_text_print(to, (const uint8_t *)text, strlen(text));
}
