/* armour.h - certificates and lists as text that survives mail and clipboards: a title line, then
 * lines of 64 hex digits. Pure. */
#ifndef TW_PROTO_ARMOUR_H
#define TW_PROTO_ARMOUR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TW_ARMOUR_CERTS "thinwire-certificate 1"
#define TW_ARMOUR_REVOKED "thinwire-revocations 1"
#define TW_ARMOUR_RECALL "thinwire-recall 1"

/* Buffer size for the text of `bytes` bytes, including NUL. */
#define TW_ARMOUR_BYTES(bytes) (40 + 2 * (bytes) + ((bytes) + 31) / 32)

/* Writes the text and a NUL to text[TW_ARMOUR_BYTES(size)]. Returns its length. */
size_t tw_armour_encode(const char *title, const uint8_t *bytes, size_t size, char *text);

/* Reads text that a person pasted: space around lines, CRs and empty lines are allowed. Returns
 * TW_CONFIG if the title differs, if a character is no hex digit, or if there are more bytes than
 * `capacity`. */
enum tw_status tw_armour_decode(const char *title, const char *text, size_t text_size,
                                uint8_t *bytes, size_t capacity, size_t *size_out,
                                struct tw_error *err);

#endif
