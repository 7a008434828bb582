#include "worker/support/utf8.h"

#include <string.h>

#include "base/assert.h"

int tw_utf8_size(const uint8_t *text, size_t left) {
    TW_ASSERT(left > 0);
    const uint8_t lead = text[0];
    const int size = lead < 0x80                    ? 1
                     : lead >= 0xC2 && lead <= 0xDF ? 2
                     : lead >= 0xE0 && lead <= 0xEF ? 3
                     : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                    : 0;
    for (size_t i = 1; i < (size_t)size && i < left; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    if (left > 1) {
        if (lead == 0xE0 && text[1] < 0xA0) return 0;
        if (lead == 0xED && text[1] > 0x9F) return 0;
        if (lead == 0xF0 && text[1] < 0x90) return 0;
        if (lead == 0xF4 && text[1] > 0x8F) return 0;
    }
    return (size_t)size > left ? -1 : size;
}

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
