#include "worker/support/json_text.h"

#include <string.h>

#include "worker/support/utf8.h"

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
