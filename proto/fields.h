/* fields.h - lists of typed bytes, in HELLO and WELCOME: what one node does not know it skips.
 *
 *    per field, types ascending and none twice: type u16, bytes u16, bytes
 *
 * How many there are stands before the list, in what holds it. Pure. */
#ifndef TW_PROTO_FIELDS_H
#define TW_PROTO_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_FIELD_HEADER_BYTES = 4 };

/* Writes one; returns its bytes. Asserts bytes_count < 65536; `to` has room. */
uint32_t tw_field_put(uint8_t *to, uint16_t type, const void *bytes, size_t bytes_count);

/* Is list[size] exactly `count` fields? Untrusted bytes; TW_PROTO, in a sentence about `what`. */
enum tw_status tw_fields_check(const uint8_t *list, size_t size, uint32_t count, const char *what,
                               struct tw_error *err);

/* Of a list that was checked: the bytes of one, or NULL. */
const uint8_t *tw_fields_find(const uint8_t *list, size_t size, uint16_t type,
                              uint32_t *bytes_count);

#endif
