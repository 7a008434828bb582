/* json_text.h - prints arbitrary bytes as a JSON string. */
#ifndef TW_WORKER_SUPPORT_JSON_TEXT_H
#define TW_WORKER_SUPPORT_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Prints text between quotation marks. Invalid UTF-8 bytes become U+FFFD. */
void tw_json_text_print(FILE *to, const uint8_t *text, size_t bytes);

/* Like tw_json_text_print, for a NUL-terminated string. */
void tw_json_string_print(FILE *to, const char *text);

#endif
