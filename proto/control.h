/* control.h - converts control messages to protobuf bodies and back (thinwire.proto). */
#ifndef TW_PROTO_CONTROL_H
#define TW_PROTO_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/message.h"

/* Encodes `message` into body[capacity]; *size_out is at most TW_CONTROL_BYTES_MAX. Returns
 * TW_LIMIT if it does not fit, which never happens with a capacity of TW_CONTROL_BYTES_MAX. Asserts
 * that the message passes tw_message_check. */
enum tw_status tw_control_encode(const struct tw_message *message, uint8_t *body, size_t capacity,
                                 size_t *size_out, struct tw_error *err);

/* Decodes the untrusted body of a frame of `kind`. Every length, count, enum and order is checked
 * before *message is written; unused array elements become zero. Memory comes from an arena on the
 * stack, limited to 4 * body_bytes + 16 KiB. The TW_PROTO error names the field. TW_VERSION means
 * that the kind is unknown, perhaps because the peer is newer: skip the frame. Unknown protobuf
 * fields are ignored. */
enum tw_status tw_control_decode(uint16_t kind, const uint8_t *body, size_t body_bytes,
                                 struct tw_message *message, struct tw_error *err);

#endif
