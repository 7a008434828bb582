/* json_field.h - extracts one string from a JSON object, without building a tree and without
 * recursion. */
#ifndef TW_BASE_JSON_FIELD_H
#define TW_BASE_JSON_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_JSON_FIELD_BYTES = 128, /* size of a field's name, including NUL */
    TW_JSON_DEPTH_MAX = 256,   /* limit of the nesting depth of arrays and objects */
};

/* Finds the string `field` of the JSON object in line[size] and unescapes it in place: line[*begin
 * .. *begin + *bytes). The whole line is validated against RFC 8259, with three exceptions: invalid
 * UTF-8 in strings is kept, a lone surrogate becomes three bytes that are invalid UTF-8, and NaN,
 * Infinity and -Infinity are values, as in Python. Modifies the line.
 *
 * Fails with TW_DATA, and names the offending byte of invalid JSON. Other causes: the value is not
 * an object, or the field is missing, duplicate or not a string. If it is missing, the message
 * lists the fields present. */
enum tw_status tw_json_field(uint8_t *line, size_t size, const char *field, size_t *begin,
                             size_t *bytes, struct tw_error *err);

/* Like tw_json_field, for value[size], which is one JSON string and nothing else. */
enum tw_status tw_json_string(uint8_t *value, size_t size, size_t *begin, size_t *bytes,
                              struct tw_error *err);

enum tw_json_look { TW_JSON_NONE, TW_JSON_VALUE, TW_JSON_CUT };

/* Whether bytes[size] begin with a JSON value. Returns VALUE and sets *end to the value's end; CUT
 * if the bytes are the valid beginning of a value; or NONE. is_all: the text ends with these
 * bytes. */
enum tw_json_look tw_json_look(const uint8_t *bytes, size_t size, bool is_all, size_t *end);

#endif
