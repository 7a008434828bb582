/* json_field.h - one string out of a line of JSON, without a tree and without recursion. */
#ifndef TW_WORKER_DATA_JSON_FIELD_H
#define TW_WORKER_DATA_JSON_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_JSON_FIELD_BYTES = 128, /* of a field's name, with NUL */
    TW_JSON_DEPTH_MAX = 256,   /* of arrays and objects within each other */
};

/* The string named `field` of the object that line[size] is, unescaped where it lies:
 * line[*begin .. *begin + *bytes). The whole line is held to RFC 8259, but for bytes in strings
 * that are no UTF-8, which stay as they are; half a surrogate pair becomes U+FFFD. The line is
 * changed.
 *
 * TW_DATA: no JSON, with the byte where it ends to be; no object; no such field, with those there
 * are; the field twice; no string. */
enum tw_status tw_json_field(uint8_t *line, size_t size, const char *field, size_t *begin,
                             size_t *bytes, struct tw_error *err);

#endif
