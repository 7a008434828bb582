/* fields.h - lists of typed fields in HELLO and WELCOME. A receiver skips unknown types.
 *
 *    per field, types ascending and none twice: type u16, bytes u16, bytes
 *
 * The container of the list stores the number of fields before it. Pure. */
#ifndef TW_PROTO_FIELDS_H
#define TW_PROTO_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_FIELD_HEADER_BYTES = 4 };

/* Writes one field and returns its size in bytes. Asserts bytes_count < 65536; the caller ensures
 * that `to` has enough space. */
uint32_t tw_field_put(uint8_t *to, uint16_t type, const void *bytes, size_t bytes_count);

/* Checks that the untrusted list[size] is exactly `count` fields. The message of TW_PROTO names the
 * list by `what`. */
enum tw_status tw_fields_check(const uint8_t *list, size_t size, uint32_t count, const char *what,
                               struct tw_error *err);

/* Returns the bytes of one field of a checked list, or NULL if it is absent. */
const uint8_t *tw_fields_find(const uint8_t *list, size_t size, uint16_t type,
                              uint32_t *bytes_count);

#endif
