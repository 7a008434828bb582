/* control.h - control messages to protobuf bodies and back (thinwire.proto). */
#ifndef TW_PROTO_CONTROL_H
#define TW_PROTO_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/message.h"

/* Body bytes of `message` into body[capacity]; *size_out <= TW_CONTROL_BYTES_MAX. TW_LIMIT if it
 * does not fit, which never happens with a capacity of TW_CONTROL_BYTES_MAX. Asserts that
 * tw_message_check holds. */
enum tw_status tw_control_encode(const struct tw_message *message, uint8_t *body, size_t capacity,
                                 size_t *size_out, struct tw_error *err);

/* Decodes the untrusted body of a frame of `kind`. Every length, count, enum and order is checked
 * before *message is written; unused array elements become zero. Memory comes from a counting
 * allocator on the stack, limited to 4 x body_bytes + 16 KiB. TW_PROTO names the field. TW_VERSION:
 * the kind is unknown, perhaps because the peer is newer; skip the frame. Unknown protobuf fields
 * are ignored. */
enum tw_status tw_control_decode(uint16_t kind, const uint8_t *body, size_t body_bytes,
                                 struct tw_message *message, struct tw_error *err);

#endif
