/* json_text.h - any bytes as a JSON string. */
#ifndef TW_WORKER_SUPPORT_JSON_TEXT_H
#define TW_WORKER_SUPPORT_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* With its quotes; bytes that are no UTF-8 become U+FFFD. */
void tw_json_text_print(FILE *to, const uint8_t *text, size_t bytes);

/* The same of a string. */
void tw_json_string_print(FILE *to, const char *text);

#endif
