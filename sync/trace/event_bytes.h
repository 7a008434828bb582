/* event_bytes.h - events as bytes, for the flight recorder. Little-endian, without padding.
 *
 * Bytes: kind, flags, peer (u16), then the fields of the kind. A message is its frame kind (u16)
 * and its body as on the wire. */
#ifndef TW_SYNC_TRACE_EVENT_BYTES_H
#define TW_SYNC_TRACE_EVENT_BYTES_H

#include <stddef.h>

#include "base/status.h"
#include "sync/core/event.h"

enum { TW_EVENT_BYTES_MAX = 16 + TW_CONTROL_BYTES_MAX };

/* Encodes *event, and returns the number of bytes. A message must keep the bounds that
 * tw_message_check checks, as every decoded message does. */
size_t tw_event_encode(const struct tw_event *event, uint8_t bytes[TW_EVENT_BYTES_MAX]);

/* Strict inverse for untrusted bytes. A message is decoded into *message, and the state of a worker
 * into *worker, which *event then points to. After TW_CORRUPT, *event is undefined. */
enum tw_status tw_event_decode(const uint8_t *bytes, size_t size, struct tw_event *event,
                               struct tw_message *message, struct tw_worker_state *worker,
                               struct tw_error *err);

#endif
