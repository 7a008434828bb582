/* json_field.h - extracts one string from a line of JSON, without building a tree and without
 * recursion. */
#ifndef TW_WORKER_DATA_JSON_FIELD_H
#define TW_WORKER_DATA_JSON_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_JSON_FIELD_BYTES = 128, /* size of a field's name, including NUL */
    TW_JSON_DEPTH_MAX = 256,   /* nesting depth of arrays and objects */
};

/* Finds the string `field` of the JSON object in line[size] and unescapes it in place: line[*begin
 * .. *begin + *bytes). The whole line is validated against RFC 8259, with three exceptions: invalid
 * UTF-8 in strings is kept, half a surrogate pair becomes U+FFFD, and NaN, Infinity and -Infinity
 * are values, as in Python. Modifies the line.
 *
 * TW_DATA: invalid JSON, with the offending byte; not an object; the field is missing (the message
 * lists the fields present), duplicate, or not a string. */
enum tw_status tw_json_field(uint8_t *line, size_t size, const char *field, size_t *begin,
                             size_t *bytes, struct tw_error *err);

#endif
